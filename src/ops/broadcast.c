#include "ops/broadcast.h"
#include "core/scope.h"
#include "core/shape.h"
#include "ops/reduce.h"
#include "ops/support.h"

static int64_t broadcast_size_from_end(lk_shape shape, int i)
{
    return i < shape.ndim ? shape.dim[shape.ndim - 1 - i] : 1;
}

lk_status lk__broadcast(const char *op, lk_shape a, lk_shape b, lk_shape *out)
{
    lk_shape shape = {.ndim = a.ndim > b.ndim ? a.ndim : b.ndim};
    for (int i = 0; i < shape.ndim; i++) {
        int64_t size_a = broadcast_size_from_end(a, i), size_b = broadcast_size_from_end(b, i);
        if (size_a != size_b && size_a != 1 && size_b != 1)
            LK_FAIL(LK_ERR_SHAPE, "%s: shapes %s and %s do not broadcast: axis %d has %lld and %lld", op,
                    lk__text(a).string, lk__text(b).string, -1 - i, (long long)size_a, (long long)size_b);
        shape.dim[shape.ndim - 1 - i] = size_a == 1 ? size_b : size_a;
    }
    LK_TRY(lk__check_shape(op, shape));
    *out = shape;
    return LK_OK;
}

lk_tensor *lk__sum_to(lk_call_site at, lk_tensor *t, lk_shape shape, bool f32)
{
    if (!t)
        return NULL;
    if (lk__shape_equal(t->shape, shape))
        return lk__scope_adopt(lk_tensor_retain(t));
    lk_reduce_opts opts = {.keepdim = true};
    for (int i = 0; i < t->shape.ndim; i++) {
        int64_t kept = broadcast_size_from_end(shape, t->shape.ndim - 1 - i);
        if (kept == 1 && t->shape.dim[i] != 1)
            opts.axes[opts.n_axes++] = i;
    }
    lk_scope_begin();
    lk_tensor *sum = opts.n_axes ? lk__sum(at, t, &opts, f32) : t;
    return lk__scope_return(sum ? lk_reshape_at(at, sum, shape) : NULL);
}
