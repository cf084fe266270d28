/* Which calls may do the work of several shards at once. Every kernel here computes a shard's results as it would
 * alone: see lk_gpu_parts. Kernels of an element, a row or an image need not know of shards; those that add up over
 * samples, and libraries, which choose an algorithm by a problem's shape, take the parts one by one. */
#include "core/shape.h"
#include "core/tensor.h"
#include "cuda/cuda.h"
#include "cuda/kernels.h"
#include "ops/ops.h"

enum { MAX_PARTS = 65535 }; /* in a grid's y or z */

typedef struct merging {
    const lk_call *one, *all; /* a part's call, and the merged one */
} merging;

/* Returns whether the tensor has parts that follow each other along `axis`, or is a scalar, which has become an array.
 */
static bool cuda_merge_grows(const lk_tensor *one, const lk_tensor *all, int axis, int parts)
{
    return one->shape.ndim == 0 ? all->shape.ndim == 1
                                : all->shape.dim[axis] == parts * one->shape.dim[axis] && axis < one->shape.ndim;
}

static bool cuda_merge_is_shared(const lk_tensor *one, const lk_tensor *all)
{
    return !one || lk__tensor_same_view(one, all);
}

static bool cuda_merge_in_grows(const merging *m, int i)
{
    return cuda_merge_grows(m->one->in[i], m->all->in[i], 0, m->all->parts);
}

/* Returns whether inputs [begin, n) are the same for all parts. */
static bool cuda_merge_shares_from(const merging *m, int begin)
{
    for (int i = begin; i < m->one->n_in; i++)
        if (!cuda_merge_is_shared(m->one->in[i], m->all->in[i]))
            return false;
    return true;
}

/* Returns whether the first n inputs, except absent ones, have parts along the first axis, and all others are shared.
 */
static bool cuda_merge_first(const merging *m, int n)
{
    for (int i = 0; i < n && i < m->one->n_in; i++)
        if (m->one->in[i] && !cuda_merge_in_grows(m, i))
            return false;
    return cuda_merge_shares_from(m, n);
}

/* Returns whether every input, and so every element, lies as in the result. */
static bool cuda_merge_elements(const merging *m)
{
    for (int i = 0; i < m->one->n_in; i++)
        if (!lk__shape_equal(m->all->in[i]->shape, m->all->out[0]->shape))
            return false;
    return true;
}

/* Returns whether the inputs' shapes still broadcast to that of the result. An input that differs between parts needs
 * all axes: a scalar of each part is an array now, which would broadcast along the last axis. */
static bool cuda_merge_broadcasts(const merging *m)
{
    const lk_shape *y = &m->all->out[0]->shape;
    for (int i = 0; i < m->one->n_in; i++) {
        const lk_shape *x = &m->all->in[i]->shape;
        if (!cuda_merge_is_shared(m->one->in[i], m->all->in[i]) && (x->ndim != y->ndim || !cuda_merge_in_grows(m, i)))
            return false;
        for (int axis = 0; axis < x->ndim; axis++)
            if (x->ndim > y->ndim || (x->dim[axis] != 1 && x->dim[axis] != y->dim[y->ndim - x->ndim + axis]))
                return false;
    }
    return true;
}

/* a b for a matrix b that all parts share, or, for gradients of weights, the product of each part's own. */
static bool cuda_merge_product(const merging *m)
{
    bool own = cuda_merge_grows(m->one->in[0], m->all->in[0], 1, m->all->parts) && cuda_merge_in_grows(m, 1);
    return cuda_merge_first(m, 1) || (own && m->one->in[0]->shape.dim[0] == m->all->in[0]->shape.dim[0]);
}

static bool cuda_merge_rows(const merging *m)
{
    return LK_ATTRS(m->one, lk_axis_attrs)->axis > 0 && cuda_merge_first(m, m->one->n_in);
}

static bool cuda_merge_is_aligned(const lk_tensor *one, const lk_tensor *all)
{
    size_t bytes = (size_t)lk_tensor_count(one) * lk_dtype_size(one->dtype);
    return cuda_merge_is_shared(one, all) || bytes % LK_GPU_LIBRARY_ALIGNMENT == 0;
}

/* Returns whether parts of the operands and the first result begin at addresses that libraries take. They do not write
 * the second result, the gradient of a bias. */
static bool cuda_merge_suits_libraries(const merging *m)
{
    const lk_tensor *result = m->one->out[0];
    for (int i = 0; i < m->one->n_in; i++)
        if (m->one->in[i] && !cuda_merge_is_aligned(m->one->in[i], m->all->in[i]))
            return false;
    return !result || cuda_merge_is_aligned(result, m->all->out[0]);
}

bool lk__cuda_merges(const lk_call *one, const lk_call *all)
{
    const merging m = {one, all};
    if (all->parts > MAX_PARTS)
        return false;
    for (int i = 0; i < one->n_out; i++)
        if (one->out[i] && !cuda_merge_grows(one->out[i], all->out[i], 0, all->parts))
            return false;
    switch (one->op->id) {
    case LK_OP_COPY:
    case LK_OP_CAST:
    case LK_OP_PAIRWISE_SUM:
    case LK_OP_RELU:
    case LK_OP_RELU_GRAD:
    case LK_OP_ACTIVATION:
    case LK_OP_ACTIVATION_GRAD:
    case LK_OP_SIGMOID_CROSS_ENTROPY:
    case LK_OP_SIGMOID_CROSS_ENTROPY_GRAD:
        return cuda_merge_elements(&m);
    case LK_OP_ADD:
    case LK_OP_SUB:
    case LK_OP_MUL:
    case LK_OP_DIV:
        return cuda_merge_broadcasts(&m);
    case LK_OP_DROPOUT:
    case LK_OP_MAX_POOL2D:
    case LK_OP_MAX_POOL2D_GRAD:
    case LK_OP_AVG_POOL2D:
    case LK_OP_AVG_POOL2D_GRAD:
    case LK_OP_RELU_AVG_POOL2D:
    case LK_OP_RELU_AVG_POOL2D_GRAD:
    case LK_OP_RELU_MAX_POOL2D:
    case LK_OP_RELU_MAX_POOL2D_GRAD:
    case LK_OP_SUM:
    case LK_OP_MEAN:
    case LK_OP_MAX:
    case LK_OP_MAX_GRAD:
    case LK_OP_CHANNEL_SUMS:
    case LK_OP_CHANNEL_SUMS_GRAD:
    case LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY:
    case LK_OP_IN_TOP_K:
        return cuda_merge_first(&m, one->n_in);
    case LK_OP_ARGMAX:
    case LK_OP_SOFTMAX:
    case LK_OP_SOFTMAX_GRAD:
    case LK_OP_LOG_SOFTMAX:
    case LK_OP_LOG_SOFTMAX_GRAD:
        return cuda_merge_rows(&m);
    case LK_OP_CONV2D_WEIGHT_GRAD:
        return cuda_merge_first(&m, one->n_in) && cuda_merge_suits_libraries(&m);
    case LK_OP_CONV2D:
    case LK_OP_CONV2D_INPUT_GRAD:
    case LK_OP_DENSE_ACT:
        return cuda_merge_first(&m, 1) && cuda_merge_suits_libraries(&m);
    case LK_OP_BATCH_NORM:
    case LK_OP_BATCH_NORM_INFERENCE:
        return cuda_merge_first(&m, 1);
    case LK_OP_MATMUL:
        return cuda_merge_product(&m) && cuda_merge_suits_libraries(&m);
    case LK_OP_CROSS_ENTROPY_STEP: /* (dloss, logits, labels) */
    case LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY_GRAD:
        return cuda_merge_is_shared(one->in[0], all->in[0]) && cuda_merge_in_grows(&m, 1) && cuda_merge_in_grows(&m, 2);
    case LK_OP_BATCH_NORM_ACT: /* (x, gamma, beta, residual) */
    case LK_OP_BATCH_NORM_POOL:
        return cuda_merge_in_grows(&m, 0) && cuda_merge_is_shared(one->in[1], all->in[1]) &&
               cuda_merge_is_shared(one->in[2], all->in[2]) && (!one->in[3] || cuda_merge_in_grows(&m, 3));
    case LK_OP_BATCH_NORM_DROP: /* (x, gamma, beta, indices) */
        return cuda_merge_in_grows(&m, 0) && cuda_merge_is_shared(one->in[1], all->in[1]) &&
               cuda_merge_is_shared(one->in[2], all->in[2]) && cuda_merge_in_grows(&m, 3);
    case LK_OP_BATCH_NORM_DROP_GRAD: /* (dy, kept, x, gamma, sums, beta, indices) */
        return cuda_merge_in_grows(&m, 0) && cuda_merge_in_grows(&m, 1) && cuda_merge_in_grows(&m, 2) &&
               cuda_merge_is_shared(one->in[3], all->in[3]) && cuda_merge_in_grows(&m, 4) &&
               cuda_merge_is_shared(one->in[5], all->in[5]) && cuda_merge_in_grows(&m, 6);
    case LK_OP_BATCH_NORM_POOL_GRAD: /* (dy, where, x, gamma, sums, beta, more) */
        return cuda_merge_in_grows(&m, 0) && cuda_merge_in_grows(&m, 1) && cuda_merge_in_grows(&m, 2) &&
               cuda_merge_is_shared(one->in[3], all->in[3]) && cuda_merge_in_grows(&m, 4) &&
               cuda_merge_is_shared(one->in[5], all->in[5]) && (!one->in[6] || cuda_merge_in_grows(&m, 6));
    case LK_OP_BATCH_NORM_GRAD: /* (dy, x, gamma, sums) */
        return cuda_merge_in_grows(&m, 0) && cuda_merge_in_grows(&m, 1) &&
               cuda_merge_is_shared(one->in[2], all->in[2]) && cuda_merge_in_grows(&m, 3);
    case LK_OP_BATCH_NORM_ACT_GRAD: /* (dy, y, x, gamma, sums, beta, more) */
        return cuda_merge_in_grows(&m, 0) && (!one->in[1] || cuda_merge_in_grows(&m, 1)) &&
               cuda_merge_in_grows(&m, 2) && cuda_merge_is_shared(one->in[3], all->in[3]) &&
               cuda_merge_in_grows(&m, 4) && (one->n_in < 6 || cuda_merge_is_shared(one->in[5], all->in[5])) &&
               (one->n_in < 7 || cuda_merge_in_grows(&m, 6));
    default:
        return false;
    }
}
