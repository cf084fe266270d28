#include "program/order.h"
#include "base/mem.h"
#include "ops/ops.h"
#include "program/program.h"
#include "program/values.h"

static bool order_call_uses(const lk_call *call, const lk_storage *storage)
{
    return lk__lists_storage(call->in, call->n_in, storage) || lk__lists_storage(call->out, call->n_out, storage);
}

static bool order_is_sum(const lk_call *call)
{
    return call->op == &lk__op_add || call->op == &lk__op_pairwise_sum;
}

/* Returns whether calls after call i use the storage, and only to add up an output. */
static bool order_is_for_outputs(const lk_program *program, int i, const lk_storage *storage, const bool *finishes)
{
    bool used = false;
    for (i++; i < program->n_calls; i++) {
        if (!order_call_uses(&program->calls[i], storage))
            continue;
        if (!finishes[i] || !order_is_sum(&program->calls[i]))
            return false;
        used = true;
    }
    return used;
}

static bool order_finishes_outputs(const lk_program *program, int i, const bool *finishes)
{
    const lk_call *call = &program->calls[i];
    for (int k = 0; k < call->n_out; k++) {
        const lk_storage *made = call->out[k] ? call->out[k]->storage : NULL;
        if (made && !lk__lists_storage(program->out, program->n_out, made) &&
            !(order_is_sum(call) && order_is_for_outputs(program, i, made, finishes)))
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
        (*finishes)[i] = order_finishes_outputs(program, i, *finishes);
    return LK_OK;
}

static bool order_depends(const lk_call *writer, const lk_call *user)
{
    for (int i = 0; i < writer->n_out; i++)
        if (writer->out[i] && order_call_uses(user, writer->out[i]->storage))
            return true;
    return false;
}

/* Returns whether `call` uses an input that is given only after `before` has finished an output. */
static bool order_is_cut(const lk_program *program, const lk_call *before, const lk_call *call)
{
    for (int k = 1; k <= program->cuts; k++) {
        const lk_tensor *out = program->out[program->n_out - k], *in = program->in[program->n_in - k];
        if (out && lk__lists_storage(before->out, before->n_out, out->storage) && order_call_uses(call, in->storage))
            return true;
    }
    return false;
}

/* A call outside branches waits for all branches, so it never passes a call inside one, nor the other way round. */
static bool order_may_pass(const lk_program *program, const lk_call *before, const lk_call *call)
{
    return (before->branch > 0) == (call->branch > 0) && !order_depends(before, call) && !order_depends(call, before) &&
           !order_is_cut(program, before, call);
}

/* Moves a call from position `from` up to `to`, where it joins the pass, and piece, of the call before it. */
static void order_move_up(lk_call *calls, bool *finishes, int from, int to)
{
    lk_call moved = calls[from];
    bool moved_finishes = finishes[from];
    if (to < from) {
        moved.pass = calls[to > 0 ? to - 1 : 0].pass;
        moved.piece = calls[to > 0 ? to - 1 : 0].piece;
    }
    for (int i = from; i > to; i--) {
        calls[i] = calls[i - 1];
        finishes[i] = finishes[i - 1];
    }
    calls[to] = moved;
    finishes[to] = moved_finishes;
}

lk_status lk__program_finish_outputs_early(lk_program *program)
{
    bool *finishes;
    LK_TRY(lk__program_find_finishing(program, &finishes));
    for (int i = 0; i < program->n_calls; i++) {
        int position = i;
        if (!finishes[i])
            continue;
        while (position > 0 && order_may_pass(program, &program->calls[position - 1], &program->calls[i]))
            position--;
        order_move_up(program->calls, finishes, i, position);
    }
    lk__free(finishes);
    return LK_OK;
}
