/* relu and pooling become relu_avg_pool2d or relu_max_pool2d, and their gradients relu_avg_pool2d_grad or
 * relu_max_pool2d_grad. */
#include "ops/ops.h"
#include "ops/pool2d.h"
#include "program/rewrite.h"

/* The numbers of the calls that match; the gradients are -1 if none are asked for. */
typedef struct pattern {
    int relu, pool;
    int pool_grad, relu_grad;
} pattern;

/* Maxima: where they are is read by the pooling's gradient alone, and a byte can say it. */
static bool fuse_relu_pool_is_pooling(const lk_rewrite *r, int i)
{
    int gradient;
    if (lk__rewrite_is(r, i, LK_OP_AVG_POOL2D))
        return true;
    if (!lk__rewrite_is(r, i, LK_OP_MAX_POOL2D))
        return false;
    const lk_call *pool = lk__rewrite_call(r, i);
    int n = lk__rewrite_readers(r, pool->out[1], &gradient, 1);
    return n <= 1 && lk__rewrite_is_between(r, pool->out[1], &gradient, n) &&
           lk__pool2d_has_taps(LK_ATTRS(pool, lk_pool2d_opts));
}

static bool fuse_relu_pool_is_gradient(const lk_rewrite *r, int i, const lk_call *pool)
{
    return pool->op == &lk__op_avg_pool2d
               ? lk__rewrite_is(r, i, LK_OP_AVG_POOL2D_GRAD)
               : lk__rewrite_is(r, i, LK_OP_MAX_POOL2D_GRAD) && lk__rewrite_call(r, i)->in[1] == pool->out[1];
}

/* relu's result may go to the pooling and to relu's own gradient alone. */
static bool fuse_relu_pool_find(const lk_rewrite *r, int i, pattern *p)
{
    int readers[2];
    if (!lk__rewrite_is(r, i, LK_OP_RELU))
        return false;
    const lk_tensor *y = lk__rewrite_result(r, i);
    int n = lk__rewrite_readers(r, y, readers, 2);
    *p = (pattern){i, readers[0], -1, n == 2 ? readers[1] : -1};
    if (n < 1 || n > 2 || !fuse_relu_pool_is_pooling(r, p->pool) || !lk__rewrite_is_between(r, y, readers, n))
        return false;
    if (n == 1) {
        const lk_tensor *where = lk__rewrite_call(r, p->pool)->out[1];
        return lk__rewrite_is(r, p->pool, LK_OP_AVG_POOL2D) || lk__rewrite_readers(r, where, readers, 1) == 0;
    }
    if (!lk__rewrite_is(r, p->relu_grad, LK_OP_RELU_GRAD))
        return false;
    const lk_call *relu_grad = lk__rewrite_call(r, p->relu_grad);
    p->pool_grad = lk__rewrite_writer(r, relu_grad->in[0]);
    return relu_grad->in[1] == y && fuse_relu_pool_is_gradient(r, p->pool_grad, lk__rewrite_call(r, p->pool)) &&
           lk__rewrite_result(r, p->pool_grad) == relu_grad->in[0] &&
           lk__rewrite_only_reader(r, p->pool_grad) == p->relu_grad;
}

/* The fused call takes its attributes, which are those of the pooling, from call `pooling`, and the rest from `last`.
 */
static lk_call fuse_relu_pool_call(const lk_rewrite *r, const lk_op *op, int pooling, int last)
{
    const lk_call *pool = lk__rewrite_call(r, pooling);
    return (lk_call){.op = op,
                     .place = pool->place,
                     .free_layout = lk__rewrite_call(r, last)->free_layout,
                     .attrs = pool->attrs,
                     .attrs_unused = pool->attrs_unused,
                     .n_out = 1,
                     .out = {lk__rewrite_result(r, last)}};
}

lk_status lk__fuse_relu_pool(lk_rewrite *r, int i)
{
    pattern p;
    if (!fuse_relu_pool_find(r, i, &p))
        return LK_OK;
    lk_tensor *x = lk__rewrite_call(r, p.relu)->in[0], *where = NULL;
    bool is_max = lk__rewrite_is(r, p.pool, LK_OP_MAX_POOL2D), has_gradient = p.relu_grad >= 0;
    const lk_op *op = is_max ? &lk__op_relu_max_pool2d : &lk__op_relu_avg_pool2d;
    const lk_op *op_grad = is_max ? &lk__op_relu_max_pool2d_grad : &lk__op_relu_avg_pool2d_grad;
    lk_call forward = fuse_relu_pool_call(r, op, p.pool, p.pool), backward = {.op = NULL};
    forward.n_in = 1;
    forward.n_out = is_max ? 2 : 1;
    forward.in[0] = x;
    if (!lk__rewrite_fits(r, &forward) || !lk__rewrite_may_stand(r, p.pool, &forward, &p.relu, 1))
        return LK_OK;
    if (has_gradient) {
        backward = fuse_relu_pool_call(r, op_grad, p.pool_grad, p.relu_grad);
        backward.n_in = 2;
        backward.in[0] = lk__rewrite_call(r, p.pool_grad)->in[0];
        backward.in[1] = x;
        if (!lk__rewrite_fits(r, &backward) ||
            !lk__rewrite_may_stand(r, p.relu_grad, &backward, (int[]){p.pool_grad, p.relu}, 2))
            return LK_OK;
    }
    if (is_max) {
        LK_TRY(lk__rewrite_output(&forward, 1, &where));
        forward.out[1] = where;
        backward.in[1] = where;
    }
    if (has_gradient)
        lk__rewrite_replace(r, p.relu_grad, &backward, &p.pool_grad, 1);
    lk__rewrite_replace(r, p.pool, &forward, &p.relu, 1);
    lk_tensor_release(where);
    return LK_OK;
}
