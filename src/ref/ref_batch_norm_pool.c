/* batch_norm_pool and its gradient, computed by the kernels of the operators that they replace. `where` is the number
 * of a window's maximum in its window. */
#include "core/shape.h"
#include "core/tensor.h"
#include "ops/geometry.h"
#include "ops/ops.h"
#include "ref/ref.h"

#include <string.h>

/* A tensor of its own, for calling another kernel. */
typedef struct temporary {
    lk_storage storage;
    lk_tensor tensor;
} temporary;

/* Its elements have at most eight bytes. */
static lk_tensor *ref_norm_pool_temporary(lk_ref_scratch *scratch, temporary *t, lk_dtype dtype, lk_shape shape)
{
    *t = (temporary){.storage = {.data = lk__ref_new(scratch, lk__ref_count(shape))},
                     .tensor = {.dtype = dtype, .shape = shape, .storage = &t->storage}};
    lk__shape_strides(shape, t->tensor.strides);
    return &t->tensor;
}

static lk_geometry ref_norm_pool_geometry(const lk_call *call, const lk_tensor *x, const lk_tensor *y)
{
    return lk__geometry_of_pool(x->shape, y->shape, &LK_ATTRS(call, lk_batch_norm_pool_attrs)->pool);
}

lk_status lk__ref_batch_norm_pool(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    temporary all, positions;
    const lk_batch_norm_pool_attrs *attrs = LK_ATTRS(call, lk_batch_norm_pool_attrs);
    lk_tensor *y = call->out[0];
    lk_geometry p = ref_norm_pool_geometry(call, call->in[0], y);
    int64_t n = lk__ref_count(y->shape);
    lk_call norm = {.dtype = call->dtype,
                    .n_in = 4,
                    .n_out = 2,
                    .in = {call->in[0], call->in[1], call->in[2], call->in[3]},
                    .out = {ref_norm_pool_temporary(&scratch, &all, call->dtype, call->in[0]->shape), call->out[1]}};
    lk_call pool = {.n_in = 1,
                    .n_out = 2,
                    .in = {norm.out[0]},
                    .out = {y, ref_norm_pool_temporary(&scratch, &positions, LK_I64, y->shape)}};
    int64_t *where = positions.storage.data;
    memcpy(norm.attrs.bytes, &attrs->norm, sizeof attrs->norm);
    memcpy(pool.attrs.bytes, &attrs->pool, sizeof attrs->pool);
    if (scratch.status == LK_OK)
        scratch.status = lk__ref_batch_norm_act(&norm);
    if (scratch.status == LK_OK)
        scratch.status = lk__ref_max_pool2d(&pool);
    for (int64_t i = 0; i < n && scratch.status == LK_OK; i++)
        where[i] = lk__ref_tap_of_index(&p, i, where[i]);
    if (scratch.status == LK_OK)
        lk__ref_store_int(where, lk__ref_view(call->out[2]));
    return lk__ref_end(&scratch);
}

/* Sets d to the gradient of what the pooling pooled. */
static void ref_norm_pool_spread(lk_ref_scratch *scratch, const lk_call *call, lk_tensor *d)
{
    lk_geometry p = ref_norm_pool_geometry(call, d, call->in[0]);
    const double *dy = lk__ref_load(scratch, lk__ref_view(call->in[0]));
    const double *more = call->in[6] ? lk__ref_load(scratch, lk__ref_view(call->in[6])) : NULL;
    const int64_t *where = lk__ref_load_int(scratch, lk__ref_view(call->in[1]));
    double *spread = lk__ref_new(scratch, lk__ref_count(d->shape));
    int64_t plane = p.in[0] * p.in[1], out_plane = p.out[0] * p.out[1], n = lk__ref_count(call->in[0]->shape);
    for (int64_t i = 0; i < n && spread; i++)
        spread[i / out_plane * plane + lk__ref_index_of_tap(&p, i, where[i])] =
            more ? lk__ref_rounded(dy[i] + more[i], call->dtype) : dy[i];
    if (spread)
        lk__ref_store(spread, lk__ref_view(d));
}

lk_status lk__ref_batch_norm_pool_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    temporary all;
    const lk_batch_norm_pool_attrs *attrs = LK_ATTRS(call, lk_batch_norm_pool_attrs);
    bool keeps = call->n_out > 3 && call->out[3];
    lk_tensor *d = keeps ? call->out[3] : ref_norm_pool_temporary(&scratch, &all, call->dtype, call->in[2]->shape);
    lk_call norm = {.dtype = call->dtype,
                    .n_in = 6,
                    .n_out = call->n_out,
                    .in = {d, NULL, call->in[2], call->in[3], call->in[4], call->in[5]},
                    .out = {call->out[0], call->out[1], call->out[2], NULL, call->out[4]}};
    memcpy(norm.attrs.bytes, &attrs->norm, sizeof attrs->norm);
    if (scratch.status == LK_OK)
        ref_norm_pool_spread(&scratch, call, d);
    if (scratch.status == LK_OK)
        scratch.status = lk__ref_batch_norm_act_grad(&norm);
    return lk__ref_end(&scratch);
}
