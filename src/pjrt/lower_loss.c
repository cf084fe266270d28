/* Logits against labels, and against targets. A label that is out of range makes its sample's results NaN, as on GPUs.
 */
#include "ops/ops.h"
#include "pjrt/lower_ops.h"

#include <math.h>

/* A batch of logits [N, C] with labels [N]. */
typedef struct labeled {
    lk_hlo logits, below; /* below: logits minus their row's maximum */
    lk_hlo is_label;      /* [N, C] */
    lk_hlo is_valid;      /* [N]: whether the label is a class */
    lk_hlo classes, bad;  /* the index along C; NaN */
} labeled;

static labeled lower_labeled(lk_lowering *l, const lk_tensor *logits, const lk_tensor *labels)
{
    labeled b = {.logits = lk__hlo_read_float(l, logits)};
    lk_hlo label = lk__hlo_read(l, labels);
    b.below = lk__hlo_below_max(l, b.logits, 1);
    b.classes = lk__hlo_iota(l, label.type, b.logits, 1);
    b.is_valid = lk__hlo_is_inside(l, label, b.logits.size[1]);
    label = lk__hlo_reshape(l, label, 2, (int64_t[]){label.size[0], 1});
    b.is_label = lk__hlo_compare(l, b.classes, "EQ", label);
    b.bad = lk__hlo_number(l, b.logits.type, NAN);
    return b;
}

/* The label's element of each row of x: [N, 1]. */
static lk_hlo lower_pick_label(lk_lowering *l, const labeled *b, lk_hlo x)
{
    lk_hlo picked = lk__hlo_select(l, b->is_label, x, lk__hlo_number(l, x.type, 0));
    return lk__hlo_reduce_keep(l, "add", picked, 1u << 1);
}

/* [N]. Without smoothing the mean is not computed: a logit of -infinity would make it infinite. */
static lk_hlo lower_losses(lk_lowering *l, const labeled *b, double smoothing)
{
    int64_t n = b->logits.size[0];
    lk_hlo target = lower_pick_label(l, b, b->below);
    if (smoothing > 0) {
        lk_hlo count = lk__hlo_number(l, target.type, (double)b->logits.size[1]);
        lk_hlo mean = lk__hlo_div(l, lk__hlo_reduce_keep(l, "add", b->below, 1u << 1), count);
        target = lk__hlo_mul(l, lk__hlo_number(l, target.type, 1 - smoothing), target);
        target = lk__hlo_add(l, target, lk__hlo_mul(l, lk__hlo_number(l, target.type, smoothing), mean));
    }
    lk_hlo loss = lk__hlo_sub(l, lk__hlo_log_sum(l, b->below, 1), target);
    return lk__hlo_select(l, b->is_valid, lk__hlo_reshape(l, loss, 1, &n), b->bad);
}

/* (softmax - smoothed onehot) dloss; dloss is a scalar or [N, 1]. */
static lk_hlo lower_logits_grad(lk_lowering *l, const labeled *b, double smoothing, lk_hlo dloss)
{
    int type = b->logits.type;
    double others = smoothing / (double)b->logits.size[1];
    lk_hlo target = lk__hlo_select(l, b->is_label, lk__hlo_number(l, type, 1 - smoothing + others),
                                   lk__hlo_number(l, type, others));
    lk_hlo difference = lk__hlo_sub(l, lk__hlo_softmax(l, b->below, 1), target);
    return lk__hlo_select_rows(l, b->is_valid, lk__hlo_mul(l, difference, dloss), b->bad);
}

void lk__lower_cross_entropy(lk_lowering *l, const lk_call *call)
{
    const lk_cross_entropy_attrs *attrs = LK_ATTRS(call, lk_cross_entropy_attrs);
    labeled b = lower_labeled(l, call->in[0], call->in[1]);
    lk_hlo loss = lower_losses(l, &b, attrs->smoothing);
    if (attrs->reduction != LK_REDUCTION_NONE)
        loss = lk__hlo_reduce(l, "add", loss, 1u);
    if (attrs->reduction == LK_REDUCTION_MEAN)
        loss = lk__hlo_div(l, loss, lk__hlo_number(l, loss.type, (double)b.logits.size[0]));
    lk__hlo_write(l, call->out[0], loss);
}

void lk__lower_cross_entropy_grad(lk_lowering *l, const lk_call *call)
{
    const lk_cross_entropy_attrs *attrs = LK_ATTRS(call, lk_cross_entropy_attrs);
    lk_hlo dloss = lk__hlo_read_float(l, call->in[0]);
    labeled b = lower_labeled(l, call->in[1], call->in[2]);
    int64_t n = b.logits.size[0];
    if (attrs->reduction == LK_REDUCTION_MEAN)
        dloss = lk__hlo_div(l, dloss, lk__hlo_number(l, dloss.type, (double)n));
    if (attrs->reduction == LK_REDUCTION_NONE)
        dloss = lk__hlo_reshape(l, dloss, 2, (int64_t[]){n, 1});
    lk__hlo_write(l, call->out[0], lower_logits_grad(l, &b, attrs->smoothing, dloss));
}

/* --- hits --------------------------------------------------------------------------------------------------------- */

/* [N] f32: 1 if fewer than k classes rank before the label, else 0. A greater logit ranks before, and an equal one with
 * a smaller index; NaN is the greatest. */
static lk_hlo lower_hits(lk_lowering *l, const labeled *b, const lk_tensor *labels, int k)
{
    int64_t n = b->logits.size[0];
    lk_hlo label = lk__hlo_reshape(l, lk__hlo_read(l, labels), 2, (int64_t[]){n, 1});
    lk_hlo own = lower_pick_label(l, b, b->logits);
    lk_hlo is_nan = lk__hlo_is_nan(l, b->logits), own_is_nan = lk__hlo_is_nan(l, own);
    lk_hlo is_earlier = lk__hlo_compare(l, b->classes, "LT", label);
    lk_hlo is_tie = lk__hlo_or(l, lk__hlo_compare(l, b->logits, "EQ", own), lk__hlo_and(l, is_nan, own_is_nan));
    lk_hlo is_greater = lk__hlo_compare(l, b->logits, "GT", own);
    is_greater = lk__hlo_or(l, is_greater, lk__hlo_and(l, is_nan, lk__hlo_unary(l, "not", own_is_nan)));
    lk_hlo ranks_before = lk__hlo_or(l, is_greater, lk__hlo_and(l, is_tie, is_earlier));
    lk_hlo before = lk__hlo_reduce(l, "add", lk__hlo_convert(l, ranks_before, LK_I32), 1u << 1);
    lk_hlo hit = lk__hlo_convert(l, lk__hlo_compare(l, before, "LT", lk__hlo_integer(l, LK_I32, k)), LK_F32);
    return lk__hlo_select(l, b->is_valid, hit, lk__hlo_number(l, LK_F32, NAN));
}

void lk__lower_in_top_k(lk_lowering *l, const lk_call *call)
{
    labeled b = lower_labeled(l, call->in[0], call->in[1]);
    lk__hlo_write(l, call->out[0], lower_hits(l, &b, call->in[1], LK_ATTRS(call, lk_top_k_attrs)->k));
}

void lk__lower_cross_entropy_step(lk_lowering *l, const lk_call *call)
{
    const lk_cross_entropy_step_attrs *attrs = LK_ATTRS(call, lk_cross_entropy_step_attrs);
    lk_hlo dloss = lk__hlo_read_float(l, call->in[0]);
    labeled b = lower_labeled(l, call->in[1], call->in[2]);
    lk_hlo loss = lower_losses(l, &b, attrs->smoothing);
    lk__hlo_write(l, call->out[0], lk__hlo_reduce(l, "add", loss, 1u));
    lk_hlo hits = call->n_out == 3 ? lower_hits(l, &b, call->in[2], attrs->k) : loss;
    lk__hlo_write(l, call->out[1], lower_logits_grad(l, &b, attrs->smoothing, dloss));
    if (call->n_out == 3)
        lk__hlo_write(l, call->out[2], lk__hlo_reduce(l, "add", hits, 1u));
}

/* --- targets ------------------------------------------------------------------------------------------------------ */

/* max(z, 0) - z t + ln(1 + e^-|z|) */
void lk__lower_sigmoid_cross_entropy(lk_lowering *l, const lk_call *call)
{
    lk_hlo z = lk__hlo_read_float(l, call->in[0]), t = lk__hlo_read_float(l, call->in[1]);
    lk__hlo_write(l, call->out[0], lk__hlo_sub(l, lk__hlo_softplus(l, z), lk__hlo_mul(l, z, t)));
}

void lk__lower_sigmoid_cross_entropy_grad(lk_lowering *l, const lk_call *call)
{
    lk_hlo dloss = lk__hlo_read_float(l, call->in[0]), z = lk__hlo_read_float(l, call->in[1]);
    lk_hlo t = lk__hlo_read_float(l, call->in[2]);
    lk__hlo_write(l, call->out[0], lk__hlo_mul(l, lk__hlo_sub(l, lk__hlo_sigmoid(l, z), t), dloss));
}
