/* The loss, its gradient and the number of hits, all from the same logits, become cross_entropy_step. */
#include "ops/ops.h"
#include "program/rewrite.h"

#include <string.h>

/* Calls by number; -1: there is none. */
typedef struct pattern {
    int loss, gradient, top_k, sum; /* of the first metric of hits */
} pattern;

static lk_tensor *output(const lk_rewrite *r, int call)
{
    return lk__rewrite_call(r, call)->out[0];
}

/* What backward starts with has to be there where the loss is. */
static bool is_there(const lk_rewrite *r, const lk_tensor *dloss, int loss)
{
    lk_span span = lk__rewrite_span(r, dloss);
    for (int i = loss; i <= span.last_write; i++)
        if (!r->removed[i])
            for (int k = 0; k < lk__rewrite_call(r, i)->n_out; k++)
                if (lk__rewrite_call(r, i)->out[k] && lk__rewrite_call(r, i)->out[k]->storage == dloss->storage)
                    return false;
    return true;
}

static bool is_gradient(const lk_rewrite *r, int i, const lk_call *loss)
{
    const lk_call *call = lk__rewrite_call(r, i);
    return lk__rewrite_is(r, i, LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY_GRAD) && call->in[1] == loss->in[0] &&
           call->in[2] == loss->in[1];
}

/* The sum over all samples of what only it reads. */
static int sum_of(const lk_rewrite *r, int top_k)
{
    int reader;
    if (lk__rewrite_readers(r, output(r, top_k), &reader, 1) != 1 || !lk__rewrite_is(r, reader, LK_OP_SUM) ||
        !lk__rewrite_is_between(r, output(r, top_k), &reader, 1) || output(r, reader)->shape.ndim != 0)
        return -1;
    return reader;
}

static bool find(const lk_rewrite *r, int i, pattern *p)
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
        if (is_gradient(r, readers[k], loss) && is_there(r, call->in[0], i))
            p->gradient = readers[k];
        else if (lk__rewrite_is(r, readers[k], LK_OP_IN_TOP_K) && call->in[1] == loss->in[1] && p->sum < 0)
            p->sum = sum_of(r, p->top_k = readers[k]);
    }
    return n <= MOST && p->gradient >= 0;
}

lk_status lk__fuse_loss(lk_rewrite *r, int i)
{
    pattern p;
    if (!find(r, i, &p))
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
        call.out[call.n_out++] = output(r, p.sum);
    } else {
        p.top_k = -1;
    }
    memcpy(call.attrs.bytes, &attrs, sizeof attrs);
    if (lk__rewrite_fits(r, &call))
        lk__rewrite_replace(r, i, &call, (int[]){p.gradient, p.top_k, p.sum}, 3);
    return LK_OK;
}
