/* Which calls of several shards one call may replace (program/merge.h). A product of dense.h has the same bits with any
 * number of rows (but for the sign of NaN), and reads the weights once for all shards. Passes with convolutions are not
 * merged: a shard's activations are in the caches when its next layer reads them, and those of all shards would not be.
 */
#include "core/shape.h"
#include "core/tensor.h"
#include "cpu/cpu.h"
#include "cpu/isa.h"
#include "ops/ops.h"

static bool cpu_merge_is_shared(const lk_tensor *one, const lk_tensor *all)
{
    return !one || lk__tensor_same_view(one, all);
}

/* Returns whether parts follow each other along the first axis. */
static bool cpu_merge_grows(const lk_tensor *one, const lk_tensor *all, int parts)
{
    return one->shape.ndim > 0 && all->shape.dim[0] == parts * one->shape.dim[0];
}

/* Returns whether all shards multiply by the same weights. */
static bool cpu_merge_shares_weights(const lk_call *one, const lk_call *all)
{
    for (int i = 1; i < one->n_in; i++)
        if (!cpu_merge_is_shared(one->in[i], all->in[i]))
            return false;
    return cpu_merge_grows(one->in[0], all->in[0], all->parts);
}

/* Returns whether every input, and so every element, lies as in the result. */
static bool cpu_merge_elements(const lk_call *all)
{
    for (int i = 0; i < all->n_in; i++)
        if (!lk__shape_equal(all->in[i]->shape, all->out[0]->shape))
            return false;
    return true;
}

bool lk__cpu_merges(const lk_call *one, const lk_call *all)
{
    switch (one->op->id) {
    case LK_OP_CAST:
    case LK_OP_RELU:
    case LK_OP_RELU_GRAD:
    case LK_OP_ACTIVATION:
    case LK_OP_ACTIVATION_GRAD:
        return cpu_merge_elements(all);
    case LK_OP_DROPOUT: /* (x, indices) */
        return cpu_merge_grows(one->in[0], all->in[0], all->parts) &&
               cpu_merge_grows(one->in[1], all->in[1], all->parts);
    case LK_OP_DENSE_ACT:
    case LK_OP_MATMUL:
        return cpu_merge_shares_weights(one, all);
    default:
        return false;
    }
}

lk_apart lk__cpu_stays_apart(const lk_call *one)
{
    if (!lk__isa()) /* products of oneDNN depend on the number of rows */
        return LK_APART_NEVER;
    switch (one->op->id) {
    case LK_OP_CONV2D:
    case LK_OP_CONV_BLOCK:
    case LK_OP_MAX_POOL2D:
    case LK_OP_AVG_POOL2D:
    case LK_OP_BATCH_NORM:
    case LK_OP_BATCH_NORM_ACT:
        return LK_APART_NEVER;
    case LK_OP_CROSS_ENTROPY_STEP:
    case LK_OP_MATMUL:
        return LK_APART_ANY_RESULTS;
    default:
        return LK_APART_WHOLE_RESULTS;
    }
}
