#include "program/keep.h"
#include "base/mem.h"
#include "core/backend.h"
#include "core/execute.h"
#include "core/kept.h"
#include "ops/ops.h"
#include "program/program.h"
#include "program/values.h"

static bool program_keep_is_variable(const lk_program *program, const lk_tensor *x)
{
    const lk_value *value = lk__program_value(program, x);
    return value && value->kind == LK_VALUE_OUTSIDE && !value->written;
}

/* Returns whether the call changes the values in the storage. */
static bool program_keep_changes(const lk_call *call, const lk_storage *storage)
{
    return call->op != &lk__op_plain && lk__lists_storage(call->out, call->n_out, storage);
}

/* Returns whether x is cast from a variable, and changed by nothing else. A pass in bf16 casts all weights. */
static bool program_keep_is_cast(const lk_program *program, const lk_tensor *x)
{
    const lk_value *value = lk__program_value(program, x);
    if (!value || value->kind != LK_VALUE_INSIDE)
        return false;
    const lk_call *maker = &program->calls[value->first];
    if (maker->op->id != LK_OP_CAST || !program_keep_is_variable(program, maker->in[0]))
        return false;
    for (int i = value->first + 1; i <= value->last; i++)
        if (program_keep_changes(&program->calls[i], value->storage))
            return false;
    return true;
}

static unsigned program_keep_variables_of(const lk_program *program, const lk_call *call)
{
    unsigned inputs = 0;
    for (int i = 0; i < call->n_in; i++)
        if (program_keep_is_variable(program, call->in[i]) || program_keep_is_cast(program, call->in[i]))
            inputs |= 1U << i;
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

/* Returns whether what call i keeps is derived from a cast before the segment. That cast may have been left out, and
 * the replay is to use its variable's value of that time in any case. */
static bool program_keep_is_older(const lk_program *program, int i, const lk_segment *segment)
{
    const lk_value *value = lk__program_value(program, program->calls[i].in[program->kept[i].input]);
    return value->kind == LK_VALUE_INSIDE && value->first < segment->begin;
}

/* All variables of a network change together, so there is no record of which one did. */
void lk__program_forget_kept(lk_program *program, const lk_segment *segment)
{
    for (int i = 0; program->kept && i < program->n_calls; i++)
        if (program->kept[i].made && !program_keep_is_older(program, i, segment))
            program->kept[i].made = false;
}

/* Returns whether the call reads nothing of the storage but what it has kept. */
static bool program_keep_needs_no(const lk_call *call, const lk_storage *storage)
{
    for (int k = 0; k < call->n_in; k++)
        if (call->in[k] && call->in[k]->storage == storage &&
            !(call->kept && call->kept->made && call->kept->input == k))
            return false;
    return true;
}

bool lk__program_leaves_out(const lk_program *program, int i)
{
    const lk_call *call = &program->calls[i];
    if (!program->planned || !call->kept || call->op->id != LK_OP_CAST || call->in[0]->storage->layout ||
        !program_keep_is_cast(program, call->out[0]))
        return false;
    const lk_value *value = lk__program_value(program, call->out[0]);
    if (!value->storage->data) /* another replay has the plan's memory */
        return false;
    for (int c = i + 1; c <= value->last; c++)
        if (!program_keep_needs_no(&program->calls[c], value->storage))
            return false;
    return true;
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
