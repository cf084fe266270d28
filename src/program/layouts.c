/* Layouts of a whole program. A kernel lays its output out as suits it, and takes over its inputs' layouts where it
 * can; what it cannot see is what comes after it. Where the output becomes plain before anybody reads it (a view is
 * made of it, or it leaves the program), it is told. */
#include "base/mem.h"
#include "base/status.h"
#include "core/execute.h"
#include "program/program.h"

/* next_user: of each value, the first of the calls behind this one that uses it. */
static void choose(const lk_program *program, lk_call *call, const lk_call *const *next_user)
{
    if (!call->free_layout || call->n_out == 0 || !call->out[0])
        return;
    const lk_call *next = next_user[lk__number_of(&program->numbers, call->out[0]->storage)];
    call->plain_next = next && next->op == &lk__op_plain;
}

static void note_uses(const lk_program *program, const lk_call *call, const lk_call **next_user)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i])
            next_user[lk__number_of(&program->numbers, call->in[i]->storage)] = call;
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i])
            next_user[lk__number_of(&program->numbers, call->out[i]->storage)] = call;
}

lk_status lk__program_choose_layouts(lk_program *program)
{
    const lk_call **next_user = lk__calloc((size_t)program->n_values + 1, sizeof *next_user);
    if (!next_user)
        return LK_ERR_MEMORY;
    for (int i = program->n_calls - 1; i >= 0; i--) {
        choose(program, &program->calls[i], next_user);
        note_uses(program, &program->calls[i], next_user);
    }
    lk__free(next_user);
    return LK_OK;
}
