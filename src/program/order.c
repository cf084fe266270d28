/* Outputs early. What finishes an output is recorded where backward comes by, or at the very end (a conversion to the
 * plain layout, a copy of what is a view): nothing inside waits for it. The sooner it runs, the sooner the output can
 * leave, and the sooner the memory that it was made from is free. */
#include "program/program.h"

static bool is_output(const lk_program *program, const lk_storage *storage)
{
    for (int i = 0; i < program->n_out; i++)
        if (program->out[i] && program->out[i]->storage == storage)
            return true;
    return false;
}

static bool makes_only_outputs(const lk_program *program, const lk_call *call)
{
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i] && !is_output(program, call->out[i]->storage))
            return false;
    return call->n_out > 0;
}

static bool writes(const lk_call *call, const lk_storage *storage)
{
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i] && call->out[i]->storage == storage)
            return true;
    return false;
}

static bool writes_what_uses(const lk_call *writer, const lk_call *user)
{
    for (int i = 0; i < user->n_in; i++)
        if (user->in[i] && writes(writer, user->in[i]->storage))
            return true;
    for (int i = 0; i < user->n_out; i++)
        if (user->out[i] && writes(writer, user->out[i]->storage))
            return true;
    return false;
}

/* It becomes a part of the pass that it comes to. */
static void move_up(lk_call *calls, int from, int to)
{
    lk_call moved = calls[from];
    if (to < from)
        moved.pass = calls[to > 0 ? to - 1 : 0].pass;
    for (int i = from; i > to; i--)
        calls[i] = calls[i - 1];
    calls[to] = moved;
}

void lk__program_finish_outputs_early(lk_program *program)
{
    lk_call *calls = program->calls;
    for (int i = 0; i < program->n_calls; i++) {
        int place = i;
        if (!makes_only_outputs(program, &calls[i]))
            continue;
        while (place > 0 && !writes_what_uses(&calls[place - 1], &calls[i]) &&
               !writes_what_uses(&calls[i], &calls[place - 1]))
            place--;
        move_up(calls, i, place);
    }
}
