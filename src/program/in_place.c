/* Results in the place of an operand. */
#include "core/tensor.h"
#include "program/program.h"

/* The one of n tensors that is in the storage; -1 where none is, or several are. */
static int only(lk_tensor *const *tensors, int n, const lk_storage *storage)
{
    int found = -1;
    for (int i = 0; i < n; i++) {
        if (!tensors[i] || tensors[i]->storage != storage)
            continue;
        if (found >= 0)
            return -1;
        found = i;
    }
    return found;
}

static bool is_flagged(const lk_call *call, int out, int in)
{
    return call->kernel && in < LK_KERNEL_IN_PLACE_INPUTS && (call->kernel->flags & LK_KERNEL_IN_PLACE(out, in));
}

bool lk__call_may_replace(const lk_call *call, const lk_storage *from, const lk_storage *to)
{
    int in = only(call->in, call->n_in, from), out = only(call->out, call->n_out, to);
    if (in < 0 || out < 0 || !is_flagged(call, out, in))
        return false;
    const lk_tensor *x = call->in[in], *y = call->out[out];
    return x->dtype == call->dtype && y->dtype == call->dtype && lk__shape_equal(x->shape, y->shape) &&
           lk__tensor_is_whole(x) && lk__tensor_is_whole(y);
}
