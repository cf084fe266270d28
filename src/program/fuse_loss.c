/* The loss, its gradient and the number of hits, all from the same logits, become cross_entropy_step, which takes in
 * the casts of logits and gradient between bf16 and f32. */
#include "ops/ops.h"
#include "program/rewrite.h"
#include "program/values.h"

/* The numbers of the calls that match; -1: no such call. */
typedef struct pattern {
    int loss, gradient;
    int top_k, sum; /* the first metric that sums hits: both, or none */
} pattern;

static bool fuse_loss_is_gradient(const lk_rewrite *r, int i, const lk_call *loss)
{
    const lk_call *call = lk__rewrite_call(r, i);
    if (!lk__rewrite_is(r, i, LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY_GRAD))
        return false;
    const lk_cross_entropy_attrs *a = LK_ATTRS(call, lk_cross_entropy_attrs);
    const lk_cross_entropy_attrs *b = LK_ATTRS(loss, lk_cross_entropy_attrs);
    return call->in[1] == loss->in[0] && call->in[2] == loss->in[1] && a->reduction == b->reduction &&
           a->smoothing == b->smoothing;
}

/* Returns the sum over all samples, if nothing else reads the result of `top_k`; else -1. */
static int fuse_loss_hits_sum(const lk_rewrite *r, int top_k)
{
    int reader = lk__rewrite_only_reader(r, top_k);
    bool is_total = lk__rewrite_is(r, reader, LK_OP_SUM) && lk__rewrite_result(r, reader)->shape.ndim == 0;
    return is_total ? reader : -1;
}

static bool fuse_loss_find(const lk_rewrite *r, int i, pattern *p)
{
    enum { MOST = 8 };
    int readers[MOST];
    if (!lk__rewrite_is(r, i, LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY))
        return false;
    const lk_call *loss = lk__rewrite_call(r, i);
    if (LK_ATTRS(loss, lk_cross_entropy_attrs)->reduction != LK_REDUCTION_SUM)
        return false;
    *p = (pattern){i, -1, -1, -1};
    int n = lk__rewrite_readers(r, loss->in[0], readers, MOST);
    for (int k = 0; k < n && k < MOST; k++) {
        const lk_call *call = lk__rewrite_call(r, readers[k]);
        if (fuse_loss_is_gradient(r, readers[k], loss))
            p->gradient = readers[k];
        else if (lk__rewrite_is(r, readers[k], LK_OP_IN_TOP_K) && call->in[0] == loss->in[0] &&
                 call->in[1] == loss->in[1] && p->sum < 0) {
            p->sum = fuse_loss_hits_sum(r, readers[k]);
            p->top_k = p->sum >= 0 ? readers[k] : -1;
        }
    }
    return n <= MOST && p->gradient >= 0;
}

lk_status lk__fuse_loss(lk_rewrite *r, int i)
{
    pattern p;
    if (!fuse_loss_find(r, i, &p))
        return LK_OK;
    const lk_call *loss = lk__rewrite_call(r, i), *gradient = lk__rewrite_call(r, p.gradient);
    lk_cross_entropy_step_attrs attrs = {.smoothing = LK_ATTRS(loss, lk_cross_entropy_attrs)->smoothing};
    lk_call call = {.op = &lk__op_cross_entropy_step,
                    .place = loss->place,
                    .n_in = 3,
                    .n_out = 2,
                    .in = {gradient->in[0], loss->in[0], loss->in[1]},
                    .out = {loss->out[0], gradient->out[0]}};
    if (p.sum >= 0) {
        attrs.k = LK_ATTRS(lk__rewrite_call(r, p.top_k), lk_top_k_attrs)->k;
        call.out[call.n_out++] = lk__rewrite_result(r, p.sum);
    }
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    const int gone[] = {p.gradient, p.top_k, p.sum}; /* dloss may be made after the loss */
    if (lk__rewrite_fits(r, &call) && lk__rewrite_may_stand(r, i, &call, gone, 3))
        lk__rewrite_replace(r, i, &call, gone, 3);
    return LK_OK;
}

/* Returns the cast to bf16 that alone reads x; -1: there is none. */
static int fuse_loss_only_cast(const lk_rewrite *r, const lk_tensor *x)
{
    int reader;
    bool only = lk__rewrite_readers(r, x, &reader, 1) == 1 && lk__rewrite_is_between(r, x, &reader, 1);
    bool narrows = only && lk__rewrite_is(r, reader, LK_OP_CAST) && lk__rewrite_call(r, reader)->in[0] == x &&
                   lk__rewrite_result(r, reader)->dtype == LK_BF16;
    return narrows ? reader : -1;
}

lk_status lk__fuse_loss_casts(lk_rewrite *r, int i)
{
    if (!lk__rewrite_is(r, i, LK_OP_CROSS_ENTROPY_STEP))
        return LK_OK;
    lk_call call = *lk__rewrite_call(r, i);
    int widened = lk__rewrite_writer(r, call.in[1]), narrowed = fuse_loss_only_cast(r, call.out[1]);
    if (!lk__rewrite_is(r, widened, LK_OP_CAST) || lk__rewrite_result(r, widened) != call.in[1] ||
        lk__rewrite_only_reader(r, widened) != i || narrowed < 0 || call.in[1]->dtype != LK_F32 ||
        lk__rewrite_call(r, widened)->in[0]->dtype != LK_BF16)
        return LK_OK;
    call.in[1] = lk__rewrite_call(r, widened)->in[0];
    call.out[1] = lk__rewrite_result(r, narrowed);
    const int gone[] = {widened, narrowed};
    if (lk__rewrite_fits(r, &call) && lk__rewrite_may_stand(r, i, &call, gone, 2))
        lk__rewrite_replace(r, i, &call, gone, 2);
    return LK_OK;
}
