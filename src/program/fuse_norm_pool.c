/* batch_norm_act and max pooling become batch_norm_pool, and their gradients, with the sum of two gradients before
 * them, batch_norm_pool_grad. Only where there are gradients. */
#include "core/shape.h"
#include "ops/ops.h"
#include "ops/pool2d.h"
#include "program/rewrite.h"

#include <string.h>

/* The numbers of the calls that match. */
typedef struct pattern {
    int norm, pool;
    int sum; /* of the gradients of the pooling's result; -1: there is none */
    int pool_grad, norm_grad;
} pattern;

/* Returns whether the call is the gradient of `norm` that computes its mask again from x. */
static bool fuse_norm_pool_is_gradient(const lk_rewrite *r, int i, const lk_call *norm, const lk_tensor *d)
{
    const lk_call *call = lk__rewrite_call(r, i);
    return lk__rewrite_is(r, i, LK_OP_BATCH_NORM_ACT_GRAD) && call->in[0] == d && !call->in[1] &&
           call->in[2] == norm->in[0] && call->in[4] == norm->out[1] && call->n_in == 6 && call->n_out == 3;
}

/* Sets norm_grad; other calls may read d too. */
static bool fuse_norm_pool_find_gradient(const lk_rewrite *r, pattern *p)
{
    enum { MOST = 8 };
    int readers[MOST];
    const lk_call *norm = lk__rewrite_call(r, p->norm);
    const lk_tensor *d = lk__rewrite_result(r, p->pool_grad);
    int n = lk__rewrite_readers(r, d, readers, MOST);
    for (int k = 0; k < n && k < MOST && p->norm_grad < 0; k++)
        if (fuse_norm_pool_is_gradient(r, readers[k], norm, d))
            p->norm_grad = readers[k];
    return n <= MOST && p->norm_grad >= 0 && lk__rewrite_writer(r, d) == p->pool_grad;
}

static void fuse_norm_pool_find_sum(const lk_rewrite *r, pattern *p)
{
    const lk_tensor *dy = lk__rewrite_call(r, p->pool_grad)->in[0];
    int sum = lk__rewrite_writer(r, dy);
    if (!lk__rewrite_is(r, sum, LK_OP_ADD) || lk__rewrite_result(r, sum) != dy ||
        lk__rewrite_only_reader(r, sum) != p->pool_grad)
        return;
    const lk_call *add = lk__rewrite_call(r, sum);
    bool alike = true;
    for (int k = 0; k < 2; k++)
        alike = alike && add->in[k]->dtype == dy->dtype && lk__shape_equal(add->in[k]->shape, dy->shape);
    p->sum = alike ? sum : -1;
}

static bool fuse_norm_pool_find(const lk_rewrite *r, int i, pattern *p)
{
    if (!lk__rewrite_is(r, i, LK_OP_BATCH_NORM_ACT))
        return false;
    *p = (pattern){i, lk__rewrite_only_reader(r, i), -1, -1, -1};
    if (!lk__rewrite_is(r, p->pool, LK_OP_MAX_POOL2D) ||
        !lk__pool2d_has_taps(LK_ATTRS(lk__rewrite_call(r, p->pool), lk_pool2d_opts)))
        return false;
    const lk_tensor *where = lk__rewrite_call(r, p->pool)->out[1];
    if (lk__rewrite_readers(r, where, &p->pool_grad, 1) != 1 || !lk__rewrite_is_between(r, where, &p->pool_grad, 1) ||
        !lk__rewrite_is(r, p->pool_grad, LK_OP_MAX_POOL2D_GRAD))
        return false;
    fuse_norm_pool_find_sum(r, p);
    return fuse_norm_pool_find_gradient(r, p);
}

lk_status lk__fuse_batch_norm_pool(lk_rewrite *r, int i)
{
    pattern p;
    if (!fuse_norm_pool_find(r, i, &p))
        return LK_OK;
    const lk_call *norm = lk__rewrite_call(r, p.norm), *pool = lk__rewrite_call(r, p.pool);
    const lk_call *norm_grad = lk__rewrite_call(r, p.norm_grad), *pool_grad = lk__rewrite_call(r, p.pool_grad);
    const lk_call *first = p.sum >= 0 ? lk__rewrite_call(r, p.sum) : pool_grad;
    const lk_batch_norm_pool_attrs attrs = {*LK_ATTRS(norm, lk_batch_norm_attrs), *LK_ATTRS(pool, lk_pool2d_opts)};
    lk_call forward = {.op = &lk__op_batch_norm_pool,
                       .place = norm->place,
                       .free_layout = pool->free_layout,
                       .n_in = 4,
                       .n_out = 3,
                       .in = {norm->in[0], norm->in[1], norm->in[2], norm->in[3]},
                       .out = {pool->out[0], norm->out[1]}};
    lk_call backward = {.op = &lk__op_batch_norm_pool_grad,
                        .place = norm_grad->place,
                        .free_layout = norm_grad->free_layout && pool_grad->free_layout,
                        .n_in = 7,
                        .n_out = 4,
                        .in = {first->in[0], NULL, norm->in[0], norm->in[1], norm->out[1], norm->in[2],
                               p.sum >= 0 ? first->in[1] : NULL},
                        .out = {norm_grad->out[0], norm_grad->out[1], norm_grad->out[2], pool_grad->out[0]}};
    lk__call_set_attrs(&forward, &attrs, sizeof attrs);
    lk__call_set_attrs(&backward, &attrs, sizeof attrs);
    const int gone[] = {p.sum, p.norm_grad};
    if (!lk__rewrite_fits(r, &forward) || !lk__rewrite_fits(r, &backward) ||
        !lk__rewrite_may_stand(r, p.pool, &forward, &p.norm, 1) ||
        !lk__rewrite_may_stand(r, p.pool_grad, &backward, gone, 2))
        return LK_OK;
    lk_tensor *where;
    LK_TRY(lk__rewrite_output(&forward, 2, &where));
    forward.out[2] = backward.in[1] = where;
    lk__rewrite_replace(r, p.pool_grad, &backward, gone, 2);
    lk__rewrite_replace(r, p.pool, &forward, &p.norm, 1);
    lk_tensor_release(where);
    return LK_OK;
}
