/* batch_norm, the sum with a residual, and relu become batch_norm_act; their gradients batch_norm_act_grad. */
#include "ops/ops.h"
#include "program/rewrite.h"

#include <string.h>

/* Calls by number; -1: there is none. */
typedef struct pattern {
    int norm, add, relu;
    int relu_grad, norm_grad; /* -1: no gradient is asked for */
} pattern;

static lk_tensor *output(const lk_rewrite *r, int call)
{
    return lk__rewrite_call(r, call)->out[0];
}

static bool is_inference(const lk_rewrite *r, const pattern *p)
{
    return lk__rewrite_is(r, p->norm, LK_OP_BATCH_NORM_INFERENCE);
}

/* The one call that reads the result of `call`, and nobody else sees it; else -1. */
static int only_reader(const lk_rewrite *r, int call)
{
    int reader;
    if (lk__rewrite_readers(r, output(r, call), &reader, 1) != 1 ||
        !lk__rewrite_is_between(r, output(r, call), &reader, 1))
        return -1;
    return reader;
}

static bool has_shape_of(const lk_tensor *a, const lk_tensor *b)
{
    return a->dtype == b->dtype && a->shape.ndim == b->shape.ndim &&
           memcmp(a->shape.dim, b->shape.dim, (size_t)a->shape.ndim * sizeof *a->shape.dim) == 0;
}

static lk_tensor *residual_of(const lk_rewrite *r, const pattern *p)
{
    if (p->add < 0)
        return NULL;
    const lk_call *add = lk__rewrite_call(r, p->add);
    return add->in[add->in[0] == output(r, p->norm) ? 1 : 0];
}

static bool find_forward(const lk_rewrite *r, int i, pattern *p)
{
    *p = (pattern){i, -1, -1, -1, -1};
    if (!lk__rewrite_is(r, i, LK_OP_BATCH_NORM) && !lk__rewrite_is(r, i, LK_OP_BATCH_NORM_INFERENCE))
        return false;
    p->relu = only_reader(r, i);
    if (lk__rewrite_is(r, p->relu, LK_OP_ADD)) {
        p->add = p->relu;
        p->relu = only_reader(r, p->add);
        const lk_tensor *residual = residual_of(r, p);
        if (residual == output(r, i) || !has_shape_of(residual, output(r, i)))
            return false;
    }
    return lk__rewrite_is(r, p->relu, LK_OP_RELU);
}

/* relu's gradient goes to the norm's, and where there is a residual also to that. */
static bool find_backward(const lk_rewrite *r, pattern *p)
{
    enum { MOST = 8 };
    int after[MOST], n = lk__rewrite_readers(r, output(r, p->relu), after, MOST);
    for (int k = 0; k < n && k < MOST; k++) {
        if (!lk__rewrite_is(r, after[k], LK_OP_RELU_GRAD) || lk__rewrite_call(r, after[k])->in[1] != output(r, p->relu))
            continue;
        if (p->relu_grad >= 0)
            return false;
        p->relu_grad = after[k];
    }
    if (n > MOST || p->relu_grad < 0 || is_inference(r, p))
        return n <= MOST && p->relu_grad < 0;
    const lk_tensor *d = output(r, p->relu_grad);
    n = lk__rewrite_readers(r, d, after, MOST);
    for (int k = 0; k < n && k < MOST; k++) {
        const lk_call *call = lk__rewrite_call(r, after[k]);
        if (lk__rewrite_is(r, after[k], LK_OP_BATCH_NORM_GRAD) && call->in[0] == d &&
            call->in[1] == lk__rewrite_call(r, p->norm)->in[0] && call->in[3] == lk__rewrite_call(r, p->norm)->out[1])
            p->norm_grad = after[k];
    }
    if (n > MOST || p->norm_grad < 0)
        return false;
    return p->add >= 0 || lk__rewrite_is_between(r, d, &p->norm_grad, 1);
}

static lk_call forward_call(const lk_rewrite *r, const pattern *p)
{
    const lk_call *norm = lk__rewrite_call(r, p->norm), *relu = lk__rewrite_call(r, p->relu);
    bool inference = is_inference(r, p);
    lk_call call = {.op = inference ? &lk__op_batch_norm_inference_act : &lk__op_batch_norm_act,
                    .place = norm->place,
                    .free_layout = relu->free_layout,
                    .n_in = inference ? 6 : 4,
                    .n_out = inference ? 1 : 2,
                    .out = {relu->out[0], inference ? NULL : norm->out[1]},
                    .attrs = norm->attrs};
    memcpy(call.in, norm->in, (size_t)norm->n_in * sizeof *call.in);
    call.in[call.n_in - 1] = residual_of(r, p);
    return call;
}

static lk_call backward_call(const lk_rewrite *r, const pattern *p)
{
    const lk_call *relu_grad = lk__rewrite_call(r, p->relu_grad), *norm_grad = lk__rewrite_call(r, p->norm_grad);
    lk_call call = {
        .op = &lk__op_batch_norm_act_grad,
        .place = norm_grad->place,
        .free_layout = norm_grad->free_layout,
        .n_in = 5,
        .n_out = p->add >= 0 ? 4 : 3,
        .in = {relu_grad->in[0], relu_grad->in[1], norm_grad->in[1], norm_grad->in[2], norm_grad->in[3]},
        .out = {norm_grad->out[0], norm_grad->out[1], norm_grad->out[2], p->add >= 0 ? relu_grad->out[0] : NULL},
        .attrs = norm_grad->attrs};
    return call;
}

lk_status lk__fuse_batch_norm_act(lk_rewrite *r, int i)
{
    pattern p;
    if (!find_forward(r, i, &p) || !find_backward(r, &p))
        return LK_OK;
    lk_call forward = forward_call(r, &p), backward;
    if (!lk__rewrite_fits(r, &forward))
        return LK_OK;
    /* What norm makes besides must not be needed before the fused call has run, which stands where relu stood. */
    if (forward.out[1] && lk__rewrite_is_read_before(r, forward.out[1], p.relu))
        return LK_OK;
    if (p.relu_grad >= 0) {
        backward = backward_call(r, &p);
        if (!lk__rewrite_fits(r, &backward))
            return LK_OK;
        lk__rewrite_replace(r, p.relu_grad, &backward, &p.norm_grad, 1);
    }
    lk__rewrite_replace(r, p.relu, &forward, (int[]){p.norm, p.add}, 2);
    return LK_OK;
}
