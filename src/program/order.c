/* Outputs early. What finishes an output is recorded where backward comes by, or at the very end (a conversion to the
 * plain layout, a copy of what is a view, a sum over what several passes give): nothing inside waits for it. The sooner
 * it runs, the sooner the output can leave, and the sooner the memory that it was made from is free. */
#include "program/program.h"

#include "base/mem.h"
#include "ops/ops.h"

static bool is_output(const lk_program *program, const lk_storage *storage)
{
    for (int i = 0; i < program->n_out; i++)
        if (program->out[i] && program->out[i]->storage == storage)
            return true;
    return false;
}

static bool lists(lk_tensor *const *tensors, int n, const lk_storage *storage)
{
    for (int i = 0; i < n; i++)
        if (tensors[i] && tensors[i]->storage == storage)
            return true;
    return false;
}

static bool uses(const lk_call *call, const lk_storage *storage)
{
    return lists(call->in, call->n_in, storage) || lists(call->out, call->n_out, storage);
}

static bool is_sum(const lk_call *call)
{
    return call->op == &lk__op_add || call->op == &lk__op_pairwise_sum;
}

/* Whether calls behind call i use the storage, and only to add up an output. */
static bool is_for_outputs(const lk_program *program, int i, const lk_storage *storage, const bool *finishes)
{
    bool used = false;
    for (i++; i < program->n_calls; i++) {
        if (!uses(&program->calls[i], storage))
            continue;
        if (!finishes[i] || !is_sum(&program->calls[i]))
            return false;
        used = true;
    }
    return used;
}

static bool finishes_outputs(const lk_program *program, int i, const bool *finishes)
{
    const lk_call *call = &program->calls[i];
    for (int k = 0; k < call->n_out; k++) {
        const lk_storage *made = call->out[k] ? call->out[k]->storage : NULL;
        if (made && !is_output(program, made) && !(is_sum(call) && is_for_outputs(program, i, made, finishes)))
            return false;
    }
    return call->n_out > 0;
}

lk_status lk__program_find_finishing(const lk_program *program, bool **finishes)
{
    *finishes = lk__calloc((size_t)program->n_calls + 1, sizeof **finishes);
    if (!*finishes)
        return LK_ERR_MEMORY;
    for (int i = program->n_calls - 1; i >= 0; i--)
        (*finishes)[i] = finishes_outputs(program, i, *finishes);
    return LK_OK;
}

static bool writes_what_uses(const lk_call *writer, const lk_call *user)
{
    for (int i = 0; i < writer->n_out; i++)
        if (writer->out[i] && uses(user, writer->out[i]->storage))
            return true;
    return false;
}

/* What is in no branch waits for all branches: so it stays behind what is in one, and the other way round. */
static bool may_pass(const lk_call *before, const lk_call *call)
{
    return (before->branch > 0) == (call->branch > 0) && !writes_what_uses(before, call) &&
           !writes_what_uses(call, before);
}

/* It becomes a part of the pass that it comes to. */
static void move_up(lk_call *calls, bool *finishes, int from, int to)
{
    lk_call moved = calls[from];
    bool it_does = finishes[from];
    if (to < from)
        moved.pass = calls[to > 0 ? to - 1 : 0].pass;
    for (int i = from; i > to; i--) {
        calls[i] = calls[i - 1];
        finishes[i] = finishes[i - 1];
    }
    calls[to] = moved;
    finishes[to] = it_does;
}

lk_status lk__program_finish_outputs_early(lk_program *program)
{
    bool *finishes;
    LK_TRY(lk__program_find_finishing(program, &finishes));
    for (int i = 0; i < program->n_calls; i++) {
        int place = i;
        if (!finishes[i])
            continue;
        while (place > 0 && may_pass(&program->calls[place - 1], &program->calls[i]))
            place--;
        move_up(program->calls, finishes, i, place);
    }
    lk__free(finishes);
    return LK_OK;
}
