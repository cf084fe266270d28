/* The optimizers' updates. Each operation is rounded separately, in the order that ops/update.h writes, so that every
 * kind of device gives the same bits: see lk__hlo_rounded_mul. But a plug-in may take subnormal numbers for 0, as XLA's
 * for CPUs does. */
#include "base/mem.h"
#include "ops/ops.h"
#include "ops/update.h"
#include "pjrt/lower_ops.h"

lk_hlo lk__hlo_unless_skipped(lk_lowering *l, const lk_tensor *skip, lk_hlo updated, lk_hlo old)
{
    if (!skip)
        return updated;
    lk_hlo flag = lk__hlo_read(l, skip);
    return lk__hlo_select(l, lk__hlo_compare(l, flag, "NE", lk__hlo_number(l, flag.type, 0)), old, updated);
}

/* Writes new values of outputs, which the skip flag holds back. */
static void lower_update_write(lk_lowering *l, const lk_tensor *skip, const lk_tensor *out, lk_hlo updated, lk_hlo old)
{
    lk__hlo_write(l, out, lk__hlo_unless_skipped(l, skip, updated, old));
}

/* Element i of `rates`, or `otherwise` if it is NULL, as a scalar of `type`. */
static lk_hlo lower_update_rate(lk_lowering *l, const lk_tensor *rates, int i, double otherwise, int type)
{
    if (!rates)
        return lk__hlo_number(l, type, otherwise);
    lk_hlo rate = lk__hlo_slice_axis(l, lk__hlo_read(l, rates), 0, i, i + 1);
    return lk__hlo_convert(l, lk__hlo_reshape(l, rate, 0, NULL), type);
}

/* a b + c d */
static lk_hlo lower_update_blend(lk_lowering *l, lk_hlo a, lk_hlo b, lk_hlo c, lk_hlo d)
{
    lk_hlo left = lk__hlo_rounded_mul(l, a, b);
    return lk__hlo_add(l, left, lk__hlo_rounded_mul(l, c, d));
}

/* The gradient: scale g + decay w; `scale` may be NULL. */
static lk_hlo lower_update_gradient(lk_lowering *l, lk_hlo g, const lk_tensor *scale, lk_hlo decay, lk_hlo w)
{
    lk_hlo factor = scale ? lk__hlo_convert(l, lk__hlo_read(l, scale), w.type) : lk__hlo_number(l, w.type, 1);
    return lower_update_blend(l, factor, g, decay, w);
}

void lk__lower_sgd_update(lk_lowering *l, const lk_call *call)
{
    lk_hlo w = lk__hlo_read(l, call->in[0]), g = lk__hlo_read(l, call->in[1]);
    lk_hlo rate = lk__hlo_number(l, w.type, LK_ATTRS(call, lk_sgd_attrs)->rate);
    lk__hlo_write(l, call->out[0], lk__hlo_sub(l, w, lk__hlo_rounded_mul(l, rate, g)));
}

void lk__lower_momentum_update(lk_lowering *l, const lk_call *call)
{
    const lk_momentum_attrs *attrs = LK_ATTRS(call, lk_momentum_attrs);
    const lk_tensor *skip = call->in[3];
    lk_hlo w = lk__hlo_read(l, call->in[0]);
    lk_hlo decay = lk__hlo_number(l, w.type, attrs->weight_decay);
    lk_hlo g = lower_update_gradient(l, lk__hlo_read(l, call->in[1]), call->in[4], decay, w), direction = g;
    lk_hlo rate = lower_update_rate(l, call->in[5], 0, attrs->rate, w.type);
    if (call->in[2]) {
        lk_hlo momentum = lk__hlo_number(l, w.type, attrs->momentum), old = lk__hlo_read(l, call->in[2]);
        lk_hlo v = lk__hlo_add(l, lk__hlo_rounded_mul(l, momentum, old), g);
        direction = attrs->nesterov ? lk__hlo_add(l, g, lk__hlo_rounded_mul(l, momentum, v)) : v;
        lower_update_write(l, skip, call->out[1], v, old);
    }
    lower_update_write(l, skip, call->out[0], lk__hlo_sub(l, w, lk__hlo_rounded_mul(l, rate, direction)), w);
}

void lk__lower_adam_update(lk_lowering *l, const lk_call *call)
{
    const lk_adam_attrs *a = LK_ATTRS(call, lk_adam_attrs);
    const lk_tensor *skip = call->in[4], *rates = call->in[6];
    lk_hlo w = lk__hlo_read(l, call->in[0]), m = lk__hlo_read(l, call->in[2]), v = lk__hlo_read(l, call->in[3]);
    int type = w.type;
    lk_hlo decay = lk__hlo_number(l, type, a->weight_decay);
    lk_hlo g = lower_update_gradient(l, lk__hlo_read(l, call->in[1]), call->in[5], decay, w);
    lk_hlo new_m = lower_update_blend(l, lk__hlo_number(l, type, a->beta1), m, lk__hlo_number(l, type, a->rest1), g);
    lk_hlo square = lk__hlo_rounded_mul(l, g, g);
    lk_hlo new_v =
        lower_update_blend(l, lk__hlo_number(l, type, a->beta2), v, lk__hlo_number(l, type, a->rest2), square);
    lk_hlo unbias = lower_update_rate(l, rates, 1, a->unbias, type);
    lk_hlo root = lk__hlo_unary(l, "sqrt", lk__hlo_rounded_mul(l, new_v, unbias));
    lk_hlo step = lk__hlo_rounded_mul(l, lower_update_rate(l, rates, 0, a->step, type), new_m);
    lk_hlo change = lk__hlo_div(l, step, lk__hlo_add(l, root, lk__hlo_number(l, type, a->epsilon)));
    lk_hlo kept = lk__hlo_rounded_mul(l, lower_update_rate(l, rates, 2, a->keep, type), w);
    lower_update_write(l, skip, call->out[0], lk__hlo_sub(l, kept, change), w);
    lower_update_write(l, skip, call->out[1], new_m, m);
    lower_update_write(l, skip, call->out[2], new_v, v);
}

/* --- LARS --------------------------------------------------------------------------------------------------------- */

/* The elements of a tensor that belong to segments. */
static lk_hlo lower_lars_inside(lk_lowering *l, lk_hlo x, const int64_t *offsets, int64_t n)
{
    return lk__hlo_slice_axis(l, x, 0, offsets[0], offsets[n]);
}

/* x with new elements in its segments. */
static lk_hlo lower_lars_put_inside(lk_lowering *l, lk_hlo x, lk_hlo inside, const int64_t *offsets)
{
    return lk__hlo_count(&inside) == lk__hlo_count(&x) ? inside : lk__hlo_replace(l, x, inside, offsets);
}

/* Repeats element i of x, [n], for all elements of segment i. parts: scratch for n values. */
static lk_hlo lower_lars_spread(lk_lowering *l, lk_hlo x, const int64_t *offsets, int64_t n, lk_hlo *parts)
{
    int used = 0;
    for (int64_t i = 0; i < n; i++) {
        lk_hlo like = {.rank = 1, .size = {offsets[i + 1] - offsets[i]}};
        if (like.size[0] > 0)
            parts[used++] = lk__hlo_fill(l, lk__hlo_reshape(l, lk__hlo_slice_axis(l, x, 0, i, i + 1), 0, NULL), like);
    }
    return lk__hlo_concat(l, parts, used, 0);
}

/* In its segment, each element has l = rate ratio and d = weight_decay adapted. */
static void lower_lars_update(lk_lowering *l, const lk_call *call, const int64_t *offsets, int64_t n, lk_hlo *parts)
{
    const lk_lars_attrs *attrs = LK_ATTRS(call, lk_lars_attrs);
    const lk_tensor *skip = call->in[6];
    lk_hlo all_w = lk__hlo_read(l, call->in[0]), all_v = lk__hlo_read(l, call->in[2]);
    int type = all_w.type;
    lk_hlo ratios = lk__hlo_convert(l, lk__hlo_read(l, call->in[4]), type);
    lk_hlo adapted = lk__hlo_convert(l, lk__hlo_read(l, call->in[5]), type);
    lk_hlo w = lower_lars_inside(l, all_w, offsets, n), old = lower_lars_inside(l, all_v, offsets, n);
    lk_hlo plain_rate = lower_update_rate(l, call->in[8], 0, attrs->rate, type);
    lk_hlo rates = lk__hlo_rounded_mul(l, plain_rate, ratios);
    rates = lk__hlo_select(l, lk__hlo_is_finite(l, rates), rates, plain_rate);
    lk_hlo decays = lk__hlo_rounded_mul(l, lk__hlo_number(l, type, attrs->weight_decay), adapted);
    lk_hlo rate = lower_lars_spread(l, rates, offsets, n, parts);
    lk_hlo decay = lower_lars_spread(l, decays, offsets, n, parts);
    lk_hlo gradients = lower_lars_inside(l, lk__hlo_read(l, call->in[1]), offsets, n);
    lk_hlo g = lower_update_gradient(l, gradients, call->in[7], decay, w);
    lk_hlo v = lower_update_blend(l, lk__hlo_number(l, type, attrs->momentum), old, rate, g);
    lk_hlo new_w = lower_lars_put_inside(l, all_w, lk__hlo_sub(l, w, v), offsets);
    lower_update_write(l, skip, call->out[0], new_w, all_w);
    lower_update_write(l, skip, call->out[1], lower_lars_put_inside(l, all_v, v, offsets), all_v);
}

void lk__lower_lars_update(lk_lowering *l, const lk_call *call)
{
    int64_t n = lk_tensor_count(call->in[4]);
    int64_t *offsets = lk__calloc((size_t)n + 1, sizeof *offsets);
    lk_hlo *parts = lk__calloc((size_t)n + 1, sizeof *parts);
    if (!offsets || !parts)
        l->body.status = LK_ERR_MEMORY;
    else if (lk__hlo_constants(l, call->in[3], offsets) && offsets[0] < offsets[n])
        lower_lars_update(l, call, offsets, n, parts);
    LK_FREE_ALL(offsets, parts);
}
