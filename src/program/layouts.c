/* A kernel chooses its output's layout, and uses its inputs' layouts if it can. It does not know the calls that
 * come later: plain_next tells it if the output is made plain before anything reads it, because a view of it follows or
 * it leaves the program. */
#include "program/layouts.h"
#include "base/mem.h"
#include "core/execute.h"
#include "program/program.h"

/* next_user[value]: the first call after this one that uses the value. */
static void layouts_choose(const lk_program *program, lk_call *call, const lk_call *const *next_user)
{
    if (!call->free_layout || call->n_out == 0 || !call->out[0])
        return;
    const lk_call *next = next_user[lk__number_of(&program->numbers, call->out[0]->storage)];
    call->plain_next = next && next->op == &lk__op_plain;
}

static void layouts_note_uses(const lk_program *program, const lk_call *call, const lk_call **next_user)
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
        layouts_choose(program, &program->calls[i], next_user);
        layouts_note_uses(program, &program->calls[i], next_user);
    }
    lk__free(next_user);
    return LK_OK;
}
