#include "program/keep.h"
#include "base/mem.h"
#include "core/backend.h"
#include "core/kept.h"
#include "program/program.h"
#include "program/values.h"

static unsigned program_keep_variables_of(const lk_program *program, const lk_call *call)
{
    unsigned inputs = 0;
    for (int i = 0; i < call->n_in; i++) {
        const lk_value *value = lk__program_value(program, call->in[i]);
        if (value && value->kind == LK_VALUE_OUTSIDE && !value->written)
            inputs |= 1U << i;
    }
    return inputs;
}

lk_status lk__program_keep(lk_program *program, size_t bytes)
{
    if (bytes == 0)
        return LK_OK;
    program->kept = lk__calloc((size_t)program->n_calls + 1, sizeof *program->kept);
    if (!program->kept)
        return LK_ERR_MEMORY;
    program->may_keep = bytes;
    for (int i = 0; i < program->n_calls; i++) {
        lk_call *call = &program->calls[i];
        program->kept[i] = (lk_kept){.inputs = program_keep_variables_of(program, call), .left = &program->may_keep};
        if (program->kept[i].inputs)
            call->kept = &program->kept[i];
    }
    return LK_OK;
}

/* All variables of a network change together, so there is no record of which one did. */
void lk__program_forget_kept(lk_program *program)
{
    for (int i = 0; program->kept && i < program->n_calls; i++)
        program->kept[i].made = false;
}

size_t lk__program_kept_bytes(const lk_program *program)
{
    size_t bytes = 0;
    for (int i = 0; program->kept && i < program->n_calls; i++)
        bytes += program->kept[i].bytes;
    return bytes;
}

void lk__program_drop_kept(lk_program *program)
{
    for (int i = 0; program->kept && i < program->n_calls; i++)
        lk__allocator_put(program->device->allocator, program->kept[i].block);
    lk__free(program->kept);
    program->kept = NULL;
}
