/* batch_norm, the sum with a residual, and relu, in this order or with the sum last, become batch_norm_act; their
 * gradients become batch_norm_act_grad. */
#include "core/shape.h"
#include "ops/ops.h"
#include "program/rewrite.h"

#include <string.h>

/* The numbers of the calls that match; -1: no such call. */
typedef struct pattern {
    int norm, add, relu;
    int relu_grad, norm_grad; /* -1: no gradient is asked for */
    int add_last;             /* the sum of relu's result and a residual */
} pattern;

static bool fuse_norm_is_inference(const lk_rewrite *r, const pattern *p)
{
    return lk__rewrite_is(r, p->norm, LK_OP_BATCH_NORM_INFERENCE);
}

/* Returns what call `add` adds to y; NULL: it is no sum of y and another tensor that is like y. */
static lk_tensor *fuse_norm_addend(const lk_rewrite *r, int add, const lk_tensor *y)
{
    if (!lk__rewrite_is(r, add, LK_OP_ADD))
        return NULL;
    const lk_call *call = lk__rewrite_call(r, add);
    lk_tensor *other = call->in[call->in[0] == y ? 1 : 0];
    return other != y && other->dtype == y->dtype && lk__shape_equal(other->shape, y->shape) ? other : NULL;
}

static lk_tensor *fuse_norm_residual(const lk_rewrite *r, const pattern *p)
{
    return p->add_last >= 0 ? fuse_norm_addend(r, p->add_last, lk__rewrite_result(r, p->relu))
                            : fuse_norm_addend(r, p->add, lk__rewrite_result(r, p->norm));
}

static bool fuse_norm_find_forward(const lk_rewrite *r, int i, pattern *p)
{
    *p = (pattern){i, -1, -1, -1, -1, -1};
    if (!lk__rewrite_is(r, i, LK_OP_BATCH_NORM) && !lk__rewrite_is(r, i, LK_OP_BATCH_NORM_INFERENCE))
        return false;
    p->relu = lk__rewrite_only_reader(r, i);
    if (lk__rewrite_is(r, p->relu, LK_OP_ADD)) {
        p->add = p->relu;
        p->relu = lk__rewrite_only_reader(r, p->add);
        if (!fuse_norm_residual(r, p))
            return false;
    }
    return lk__rewrite_is(r, p->relu, LK_OP_RELU);
}

/* Returns true also if there is no gradient to fuse. relu's gradient goes to batch_norm's gradient and, with a
 * residual, also to the residual's. */
static bool fuse_norm_find_backward(const lk_rewrite *r, pattern *p)
{
    enum { MOST = 8 };
    int after[MOST], n = lk__rewrite_readers(r, lk__rewrite_result(r, p->relu), after, MOST);
    for (int k = 0; k < n && k < MOST; k++) {
        if (!lk__rewrite_is(r, after[k], LK_OP_RELU_GRAD) ||
            lk__rewrite_call(r, after[k])->in[1] != lk__rewrite_result(r, p->relu))
            continue;
        if (p->relu_grad >= 0)
            return false;
        p->relu_grad = after[k];
    }
    if (n > MOST)
        return false;
    if (p->relu_grad < 0 || fuse_norm_is_inference(r, p))
        return p->relu_grad < 0; /* batch_norm_inference_act has no gradient */
    const lk_tensor *d = lk__rewrite_result(r, p->relu_grad);
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

/* Sets add_last if relu's result goes to a sum and to relu's own gradient alone. */
static void fuse_norm_find_last_sum(const lk_rewrite *r, pattern *p)
{
    const lk_tensor *y = lk__rewrite_result(r, p->relu);
    int readers[2], n = lk__rewrite_readers(r, y, readers, 2);
    for (int k = 0; k < n && k < 2 && p->add < 0 && !fuse_norm_is_inference(r, p); k++)
        if (readers[k] != p->relu_grad && fuse_norm_addend(r, readers[k], y) &&
            lk__rewrite_is_between(r, y, (int[]){readers[k], p->relu_grad}, 2))
            p->add_last = readers[k];
}

static lk_call fuse_norm_forward_call(const lk_rewrite *r, const pattern *p)
{
    const lk_call *norm = lk__rewrite_call(r, p->norm);
    const lk_call *last = lk__rewrite_call(r, p->add_last >= 0 ? p->add_last : p->relu);
    bool inference = fuse_norm_is_inference(r, p);
    lk_call call = {.op = inference ? &lk__op_batch_norm_inference_act : &lk__op_batch_norm_act,
                    .place = norm->place,
                    .free_layout = last->free_layout,
                    .n_in = inference ? 6 : 4,
                    .n_out = inference ? 1 : 2,
                    .out = {last->out[0], inference ? NULL : norm->out[1]}};
    lk_batch_norm_attrs attrs = *LK_ATTRS(norm, lk_batch_norm_attrs);
    attrs.residual_last = p->add_last >= 0;
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    memcpy(call.in, norm->in, (size_t)norm->n_in * sizeof *call.in);
    call.in[call.n_in - 1] = fuse_norm_residual(r, p);
    return call;
}

static lk_call fuse_norm_backward_call(const lk_rewrite *r, const pattern *p)
{
    const lk_call *relu_grad = lk__rewrite_call(r, p->relu_grad), *norm_grad = lk__rewrite_call(r, p->norm_grad);
    lk_call call = {
        .op = &lk__op_batch_norm_act_grad,
        .place = norm_grad->place,
        .free_layout = norm_grad->free_layout,
        .n_in = p->add >= 0 ? 5 : 6,
        .n_out = p->add >= 0 ? 4 : 3,
        .in = {relu_grad->in[0], p->add_last >= 0 ? NULL : relu_grad->in[1], norm_grad->in[1], norm_grad->in[2],
               norm_grad->in[3], lk__rewrite_call(r, p->norm)->in[2]},
        .out = {norm_grad->out[0], norm_grad->out[1], norm_grad->out[2], p->add >= 0 ? relu_grad->out[0] : NULL},
        .attrs = norm_grad->attrs,
        .attrs_unused = norm_grad->attrs_unused};
    return call;
}

/* Returns false if the device has no kernels for the fused calls, or they would come too late or too early. The fused
 * gradient computes relu's mask from what batch_norm read. */
static bool fuse_norm_apply(lk_rewrite *r, const pattern *p)
{
    lk_call forward = fuse_norm_forward_call(r, p), backward;
    int at = p->add_last >= 0 ? p->add_last : p->relu;
    const int gone[] = {p->norm, p->add, p->relu}, read[] = {p->norm_grad, p->norm};
    if (!lk__rewrite_fits(r, &forward) || !lk__rewrite_may_stand(r, at, &forward, gone, 3))
        return false;
    if (p->relu_grad >= 0) {
        backward = fuse_norm_backward_call(r, p);
        if (!lk__rewrite_fits(r, &backward) || !lk__rewrite_may_stand(r, p->relu_grad, &backward, read, 2))
            return false;
        lk__rewrite_replace(r, p->relu_grad, &backward, &p->norm_grad, 1);
    }
    lk__rewrite_replace(r, at, &forward, gone, 3);
    return true;
}

lk_status lk__fuse_batch_norm_act(lk_rewrite *r, int i)
{
    pattern p;
    if (!fuse_norm_find_forward(r, i, &p) || !fuse_norm_find_backward(r, &p))
        return LK_OK;
    fuse_norm_find_last_sum(r, &p);
    if (p.add_last >= 0 && fuse_norm_apply(r, &p))
        return LK_OK;
    p.add_last = -1;
    fuse_norm_apply(r, &p);
    return LK_OK;
}
