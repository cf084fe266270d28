/* A call whose result is only copied writes it where the copy would have gone: a sum of gradients, for example, into
 * its part of the packed gradients. */
#include "core/backend.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "ops/ops.h"
#include "program/branches.h"
#include "program/rewrite.h"
#include "program/values.h"

/* Returns which of the maker's results x is, with all its elements in their order; -1: none. */
static int fuse_copy_find(const lk_call *maker, const lk_tensor *x)
{
    for (int k = 0; k < maker->n_out; k++) {
        const lk_tensor *made = maker->out[k];
        if (made && made->storage == x->storage)
            return lk__tensor_is_whole(made) && lk__tensor_is_whole(x) && made->dtype == x->dtype ? k : -1;
    }
    return -1;
}

/* Returns whether the call uses elements of y, or may: only results in another part of y's storage are surely apart. */
static bool fuse_copy_meets(const lk_call *call, const lk_tensor *y)
{
    if (lk__lists_storage(call->in, call->n_in, y->storage))
        return true;
    for (int k = 0; k < call->n_out; k++)
        if (call->out[k] && lk__tensors_may_overlap(call->out[k], y))
            return true;
    return false;
}

/* Returns whether the maker can write y already where it stands, before the copy at i. */
static bool fuse_copy_may_move(const lk_rewrite *r, int maker, int i)
{
    const lk_call *from = lk__rewrite_call(r, maker), *copy = lk__rewrite_call(r, i);
    if (from->branch != copy->branch && !(copy->branch == 0 && lk__program_is_only_branch(r->program, from->branch)))
        return false;
    if (maker >= i || from->n_in == 0 || !from->in[0] || lk__lists_storage(from->in, from->n_in, copy->in[0]->storage))
        return false;
    for (int c = maker; c < i; c++)
        if (!r->removed[c] && fuse_copy_meets(lk__rewrite_call(r, c), copy->out[0]))
            return false;
    return true;
}

/* Returns whether the maker can write y in place of out[k], as `call`. On GPUs a kernel's bits do not depend on
 * free_layout. On CPU devices another kernel may run without it, and some kernels expect to write the whole of a
 * storage. */
static bool fuse_copy_can_write(const lk_rewrite *r, const lk_call *maker, const lk_call *call, const lk_tensor *y)
{
    const lk_backend *backend = r->program->device->backend;
    if (backend->graphs)
        return lk__tensor_is_dense(y);
    return lk__tensor_is_whole(y) && (!backend->to_plain || call->free_layout == maker->free_layout);
}

lk_status lk__fuse_copy(lk_rewrite *r, int i)
{
    if (!lk__rewrite_is(r, i, LK_OP_COPY))
        return LK_OK;
    const lk_call *copy = lk__rewrite_call(r, i);
    const lk_tensor *x = copy->in[0], *y = copy->out[0];
    int maker = lk__rewrite_writer(r, x);
    if (maker < 0 || x->storage->device != r->program->device || x->storage->is_product)
        return LK_OK;
    lk_call call = *lk__rewrite_call(r, maker);
    int k = fuse_copy_find(&call, x);
    if (k < 0)
        return LK_OK;
    lk_tensor like = lk__tensor_alias(call.out[k]);
    like.offset = y->offset;
    call.free_layout = call.free_layout && copy->free_layout && lk__shape_equal(like.shape, y->shape);
    if (!fuse_copy_can_write(r, lk__rewrite_call(r, maker), &call, y) || !lk__rewrite_is_between(r, x, &i, 1) ||
        !fuse_copy_may_move(r, maker, i))
        return LK_OK;
    call.out[k] = lk__tensor_over(y->storage, &like);
    if (!call.out[k])
        return LK_ERR_MEMORY;
    lk_dtype dtype = call.dtype;
    const lk_kernel *kernel = call.kernel;
    if (lk__rewrite_fits(r, &call) && call.kernel == kernel && call.dtype == dtype)
        lk__rewrite_replace(r, maker, &call, &i, 1);
    lk_tensor_release(call.out[k]);
    return LK_OK;
}
