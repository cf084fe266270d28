#include "program/in_place.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "program/program.h"

/* Returns the index of the tensor that lies in the storage; -1 if none does, or more than one. */
static int in_place_find_only(lk_tensor *const *tensors, int n, const lk_storage *storage)
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

bool lk__call_may_replace(const lk_call *call, const lk_storage *from, const lk_storage *to)
{
    int in = in_place_find_only(call->in, call->n_in, from), out = in_place_find_only(call->out, call->n_out, to);
    if (in < 0 || out < 0 || in >= LK_KERNEL_IN_PLACE_INPUTS || out >= LK_KERNEL_IN_PLACE_OUTPUTS || !call->kernel ||
        !(call->kernel->flags & LK_KERNEL_IN_PLACE(out, in)))
        return false;
    const lk_tensor *x = call->in[in], *y = call->out[out];
    return x->dtype == call->dtype && y->dtype == call->dtype && lk__shape_equal(x->shape, y->shape) &&
           lk__tensor_is_whole(x) && lk__tensor_is_whole(y);
}
