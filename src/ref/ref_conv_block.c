/* conv_block and its gradient, computed by the kernels of the operators that it replaces, with nothing rounded in
 * between. `saved` is 1 for the elements of the convolution's result that dy reaches. */
#include "core/shape.h"
#include "core/tensor.h"
#include "ops/geometry.h"
#include "ops/ops.h"
#include "ref/ref.h"

#include <string.h>

/* A tensor of row-major doubles, for calling another kernel. */
typedef struct temporary {
    lk_storage storage;
    lk_tensor tensor;
} temporary;

static void ref_block_make_temporary(temporary *t, double *data, lk_shape shape)
{
    *t = (temporary){.storage = {.data = data}, .tensor = {.dtype = LK_F64, .shape = shape, .storage = &t->storage}};
    lk__shape_strides(shape, t->tensor.strides);
}

static void ref_block_set_attrs(lk_call *call, const void *attrs, size_t size)
{
    memcpy(call->attrs.bytes, attrs, size);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static lk_status ref_block_convolve(const lk_call *call, lk_tensor *conv)
{
    lk_call inner = {.n_in = 3, .n_out = 1, .in = {call->in[0], call->in[1], call->in[2]}, .out = {conv}};
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    ref_block_set_attrs(&inner, &attrs->conv, sizeof attrs->conv);
    return lk__ref_conv2d(&inner);
}

static void ref_block_relu_and_save(double *conv, double *saved, int64_t count, bool relu)
{
    for (int64_t i = 0; i < count; i++) {
        saved[i] = !relu || conv[i] > 0;
        conv[i] = relu && conv[i] <= 0 ? 0 : conv[i];
    }
}

/* Pools, and leaves only the first maximum of each window in `saved`. */
static lk_status ref_block_max_pool(const lk_call *call, lk_tensor *conv, double *saved, lk_ref_scratch *scratch)
{
    lk_shape shape = conv->shape, out = call->out[0]->shape;
    int64_t count = lk__ref_count(out), plane = lk__ref_extent(shape, 2, 4), out_plane = lk__ref_extent(out, 2, 4);
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    int64_t *where = lk__ref_new_int(scratch, count);
    double *reached = lk__ref_new(scratch, lk__ref_count(shape));
    if (!reached)
        return scratch->status;
    lk_storage storage = {.data = where};
    lk_tensor positions = {.dtype = LK_I64, .shape = out, .storage = &storage};
    lk__shape_strides(out, positions.strides);
    lk_call inner = {.n_in = 1, .n_out = 2, .in = {conv}, .out = {call->out[0], &positions}};
    ref_block_set_attrs(&inner, &attrs->pool, sizeof attrs->pool);
    LK_TRY(lk__ref_max_pool2d(&inner));
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i / out_plane * plane + where[i];
        reached[at] = saved[at];
    }
    memcpy(saved, reached, (size_t)lk__ref_count(shape) * sizeof *saved);
    return LK_OK;
}

static lk_status ref_block_pool(const lk_call *call, lk_tensor *conv, double *saved, lk_ref_scratch *scratch)
{
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    lk_call inner = {.n_in = 1, .n_out = 1, .in = {conv}, .out = {call->out[0]}};
    ref_block_set_attrs(&inner, &attrs->pool, sizeof attrs->pool);
    if (attrs->pooling == LK_BLOCK_MAX_POOL)
        return ref_block_max_pool(call, conv, saved, scratch);
    if (attrs->pooling == LK_BLOCK_AVG_POOL)
        return lk__ref_avg_pool2d(&inner);
    lk__ref_store(conv->storage->data, lk__ref_view(call->out[0]));
    return LK_OK;
}

lk_status lk__ref_conv_block(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_shape shape = call->out[1]->shape;
    int64_t count = lk__ref_count(shape);
    double *values = lk__ref_new(&scratch, count);
    double *saved = lk__ref_new(&scratch, count);
    if (!saved)
        return lk__ref_end(&scratch);
    temporary conv;
    ref_block_make_temporary(&conv, values, shape);
    lk_status status = ref_block_convolve(call, &conv.tensor);
    if (status == LK_OK) {
        ref_block_relu_and_save(values, saved, count, LK_ATTRS(call, lk_conv_block_attrs)->relu);
        status = ref_block_pool(call, &conv.tensor, saved, &scratch);
    }
    if (status == LK_OK)
        lk__ref_store(saved, lk__ref_view(call->out[1]));
    lk_status end = lk__ref_end(&scratch);
    return status == LK_OK ? end : status;
}

/* --- gradient ----------------------------------------------------------------------------------------------------- */

/* Computes dconv of a plane: each input whose `saved` is set gets its window's share of dy. */
static void ref_block_pool_grad_plane(const lk_geometry *pool, bool max, const double *dy, const double *saved,
                                      double *dconv)
{
    for (int64_t row = 0; row < pool->out[0]; row++) {
        lk_pixel_range rows = lk__geometry_window(pool, 0, row);
        for (int64_t column = 0; column < pool->out[1]; column++) {
            lk_pixel_range columns = lk__geometry_window(pool, 1, column);
            double share = *dy++ / (double)(max ? 1 : lk__geometry_divisor(pool, rows, columns));
            for (int64_t h = rows.begin; h < rows.end; h++)
                for (int64_t w = columns.begin; w < columns.end; w++)
                    dconv[h * pool->in[1] + w] = saved[h * pool->in[1] + w] > 0 ? share : 0;
        }
    }
}

static lk_conv2d_grad_attrs ref_block_grad_attrs(const lk_conv_block_attrs *attrs, lk_shape size)
{
    lk_conv2d_grad_attrs grad = {.conv = attrs->conv, .bias = attrs->bias};
    memcpy(grad.size, size.dim, sizeof grad.size);
    return grad;
}

static lk_status ref_block_conv_grads(const lk_call *call, lk_tensor *dconv)
{
    const lk_conv_block_attrs *attrs = LK_ATTRS(call, lk_conv_block_attrs);
    lk_tensor *x = call->in[2], *w = call->in[3];
    lk_call weights = {.n_in = 2, .n_out = 1 + attrs->bias, .in = {dconv, x}, .out = {call->out[0], call->out[1]}};
    lk_conv2d_grad_attrs grad = ref_block_grad_attrs(attrs, w->shape);
    ref_block_set_attrs(&weights, &grad, sizeof grad);
    LK_TRY(lk__ref_conv2d_weight_grad(&weights));
    if (!attrs->input_grad)
        return LK_OK;
    lk_call input = {.n_in = 2, .n_out = 1, .in = {dconv, w}, .out = {call->out[1 + attrs->bias]}};
    grad = ref_block_grad_attrs(attrs, x->shape);
    ref_block_set_attrs(&input, &grad, sizeof grad);
    return lk__ref_conv2d_input_grad(&input);
}

lk_status lk__ref_conv_block_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_conv_block_attrs attrs = *LK_ATTRS(call, lk_conv_block_attrs);
    lk_shape y = call->in[0]->shape, conv = call->in[1]->shape;
    int64_t plane = lk__ref_extent(conv, 2, 4), y_plane = lk__ref_extent(y, 2, 4);
    if (attrs.pooling == LK_BLOCK_NO_POOL)
        attrs.pool = (lk_pool2d_opts){.kernel = {1, 1}, .stride = {1, 1}};
    const double *dy = lk__ref_load(&scratch, lk__ref_view(call->in[0]));
    const double *saved = lk__ref_load(&scratch, lk__ref_view(call->in[1]));
    double *values = lk__ref_new(&scratch, lk__ref_count(conv));
    if (!values)
        return lk__ref_end(&scratch);
    temporary dconv;
    ref_block_make_temporary(&dconv, values, conv);
    lk_geometry pool = lk__geometry_of_pool(conv, y, &attrs.pool);
    bool max = attrs.pooling == LK_BLOCK_MAX_POOL;
    for (int64_t i = 0; i < conv.dim[0] * conv.dim[1]; i++)
        ref_block_pool_grad_plane(&pool, max, dy + i * y_plane, saved + i * plane, values + i * plane);
    lk_status status = ref_block_conv_grads(call, &dconv.tensor);
    lk_status end = lk__ref_end(&scratch);
    return status == LK_OK ? end : status;
}
