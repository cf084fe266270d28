/* Layouts of a whole program. A kernel lays its output out as suits it, and takes over its inputs' layouts where it
 * can; what it cannot see is what comes after it. Where the output becomes plain before anybody reads it (a view is
 * made of it, or it leaves the program), it is told. */
#include "core/execute.h"
#include "program/program.h"

static bool contains(lk_tensor *const *tensors, int n, const lk_storage *storage)
{
    for (int i = 0; i < n; i++)
        if (tensors[i] && tensors[i]->storage == storage)
            return true;
    return false;
}

/* The first call behind call i that uses the storage; NULL: none does. */
static const lk_call *next_user(const lk_program *program, int i, const lk_storage *storage)
{
    for (i++; i < program->n_calls; i++) {
        const lk_call *call = &program->calls[i];
        if (contains(call->in, call->n_in, storage) || contains(call->out, call->n_out, storage))
            return call;
    }
    return NULL;
}

void lk__program_choose_layouts(lk_program *program)
{
    for (int i = 0; i < program->n_calls; i++) {
        lk_call *call = &program->calls[i];
        if (!call->free_layout || call->n_out == 0 || !call->out[0])
            continue;
        const lk_call *next = next_user(program, i, call->out[0]->storage);
        call->plain_next = next && next->op == &lk__op_plain;
    }
}
