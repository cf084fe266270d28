/* momentum_update, adam_update, lars_update. */
#include "ops/fused_update.h"
#include "ops/support.h"
#include "ops/update.h"

#include <math.h>

_Static_assert(sizeof(lk_momentum_attrs) <= LK_MAX_ATTRS, "attributes of momentum_update");
_Static_assert(sizeof(lk_adam_attrs) <= LK_MAX_ATTRS, "attributes of adam_update");
_Static_assert(sizeof(lk_lars_attrs) <= LK_MAX_ATTRS, "attributes of lars_update");

lk_status lk__check_flat(const char *op, const char *operand, const lk_tensor *x)
{
    LK_TRY(lk__check_dtype(op, operand, x->dtype, LK_DTYPE_BIT(LK_F32) | LK_DTYPE_BIT(LK_F64)));
    LK_TRY(lk__check_ndim(op, operand, x, 1));
    if (!lk__tensor_is_dense(x))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: %s is a view with gaps; it must be dense", op, operand);
    return LK_OK;
}

/* Checks that call->in[i], unless NULL, has the parameters' dtype and shape. */
static lk_status update_check_slot(const lk_call *call, int i, const char *operand)
{
    const lk_tensor *w = call->in[0], *x = call->in[i];
    if (!x)
        return LK_OK;
    LK_TRY(lk__check_like(call->op->name, operand, x, w->dtype, w->shape));
    return lk__check_flat(call->op->name, operand, x);
}

static lk_status update_check_scalar(const lk_call *call, int i, const char *operand)
{
    return call->in[i] ? lk__check_like(call->op->name, operand, call->in[i], LK_F32, LK_SCALAR) : LK_OK;
}

double lk__update_rate(const lk_tensor *rates, int i, double otherwise)
{
    return rates ? ((const double *)lk__data(rates))[i] : otherwise;
}

/* Sets all outputs to the parameters' dtype and shape. Checks the parameters, the gradients, and the skip flag, scale
 * and rates from in[first] on, which may be NULL. */
static lk_status update_infer_common(const lk_call *call, int first, lk_meta *out)
{
    for (int i = 0; i < call->n_out; i++)
        out[i] = (lk_meta){call->in[0]->dtype, call->in[0]->shape};
    const lk_tensor *rates = call->in[first + 2];
    if (rates)
        LK_TRY(lk__check_like(call->op->name, "rates", rates, LK_F64, LK_SHAPE(LK_UPDATE_RATES)));
    LK_TRY(lk__check_flat(call->op->name, "w", call->in[0]));
    LK_TRY(update_check_slot(call, 1, "g"));
    LK_TRY(update_check_scalar(call, first, "skip"));
    return update_check_scalar(call, first + 1, "scale");
}

static lk_status update_check_finite(const lk_call *call, const char *attribute, double value)
{
    if (!isfinite(value))
        LK_FAIL(LK_ERR_ARGUMENT, "%s: %s is %g; it must be finite", call->op->name, attribute, value);
    return LK_OK;
}

/* Updates in place, off the tape. The first `required` inputs must not be NULL. */
static lk_status update_call(lk_call *call, int required, const void *attrs, size_t size)
{
    for (int i = 0; i < required; i++)
        if (!call->in[i])
            return lk__missing(call->op->name, "an operand");
    lk__call_set_attrs(call, attrs, size);
    return lk__call_unrecorded(call);
}

/* --- momentum_update ---------------------------------------------------------------------------------------------- */

static lk_status momentum_update_infer(const lk_call *call, lk_meta *out)
{
    const lk_momentum_attrs *attrs = LK_ATTRS(call, lk_momentum_attrs);
    LK_TRY(update_infer_common(call, 3, out));
    LK_TRY(update_check_slot(call, 2, "v"));
    LK_TRY(update_check_finite(call, "rate", attrs->rate));
    LK_TRY(update_check_finite(call, "momentum", attrs->momentum));
    return update_check_finite(call, "weight_decay", attrs->weight_decay);
}

static double momentum_update_flops(const lk_call *call)
{
    bool nesterov = LK_ATTRS(call, lk_momentum_attrs)->nesterov;
    return (call->in[2] ? nesterov ? 9 : 7 : 5) * lk__flops_output(call);
}

const lk_op lk__op_momentum_update = {
    .name = "momentum_update",
    .id = LK_OP_MOMENTUM_UPDATE,
    .infer = momentum_update_infer,
    .flops = momentum_update_flops,
};

lk_status lk__momentum_update(lk_call_site at, lk_tensor *w, lk_tensor *g, lk_tensor *v,
                              const lk_update_control *control, const lk_momentum_attrs *attrs)
{
    lk_call call = {.op = &lk__op_momentum_update,
                    .place = at,
                    .n_in = 6,
                    .n_out = v ? 2 : 1,
                    .in = {w, g, v, control->skip, control->scale, control->rates},
                    .out = {w, v}};
    return update_call(&call, 2, attrs, sizeof *attrs);
}

/* --- adam_update -------------------------------------------------------------------------------------------------- */

static lk_status adam_update_infer(const lk_call *call, lk_meta *out)
{
    const lk_adam_attrs *attrs = LK_ATTRS(call, lk_adam_attrs);
    LK_TRY(update_infer_common(call, 4, out));
    LK_TRY(update_check_slot(call, 2, "m"));
    LK_TRY(update_check_slot(call, 3, "v"));
    LK_TRY(update_check_finite(call, "step", attrs->step));
    LK_TRY(update_check_finite(call, "unbias", attrs->unbias));
    LK_TRY(update_check_finite(call, "keep", attrs->keep));
    return update_check_finite(call, "weight_decay", attrs->weight_decay);
}

static double adam_update_flops(const lk_call *call)
{
    return 17 * lk__flops_output(call);
}

const lk_op lk__op_adam_update = {
    .name = "adam_update",
    .id = LK_OP_ADAM_UPDATE,
    .infer = adam_update_infer,
    .flops = adam_update_flops,
};

lk_status lk__adam_update(lk_call_site at, lk_tensor *w, lk_tensor *g, lk_tensor *m, lk_tensor *v,
                          const lk_update_control *control, const lk_adam_attrs *attrs)
{
    lk_call call = {.op = &lk__op_adam_update,
                    .place = at,
                    .n_in = 7,
                    .n_out = 3,
                    .in = {w, g, m, v, control->skip, control->scale, control->rates},
                    .out = {w, m, v}};
    return update_call(&call, 4, attrs, sizeof *attrs);
}

/* --- lars_update -------------------------------------------------------------------------------------------------- */

static lk_status lars_update_infer(const lk_call *call, lk_meta *out)
{
    const lk_lars_attrs *attrs = LK_ATTRS(call, lk_lars_attrs);
    const lk_tensor *offsets = call->in[3];
    const char *op = call->op->name;
    LK_TRY(update_infer_common(call, 6, out));
    LK_TRY(update_check_slot(call, 2, "v"));
    LK_TRY(lk__check_dtype(op, "offsets", offsets->dtype, LK_DTYPE_BIT(LK_I64)));
    LK_TRY(lk__check_ndim(op, "offsets", offsets, 1));
    lk_shape segments = LK_SHAPE(offsets->shape.dim[0] - 1);
    LK_TRY(lk__check_like(op, "ratios", call->in[4], LK_F32, segments));
    LK_TRY(lk__check_like(op, "adapted", call->in[5], LK_F32, segments));
    LK_TRY(update_check_finite(call, "rate", attrs->rate));
    LK_TRY(update_check_finite(call, "momentum", attrs->momentum));
    return update_check_finite(call, "weight_decay", attrs->weight_decay);
}

static double lars_update_flops(const lk_call *call)
{
    return 7 * lk__flops_output(call);
}

const lk_op lk__op_lars_update = {
    .name = "lars_update",
    .id = LK_OP_LARS_UPDATE,
    .infer = lars_update_infer,
    .flops = lars_update_flops,
};

lk_status lk__lars_update(lk_call_site at, lk_tensor *w, lk_tensor *g, lk_tensor *v, const lk_update_segments *segments,
                          const lk_update_control *control, const lk_lars_attrs *attrs)
{
    lk_call call = {.op = &lk__op_lars_update,
                    .place = at,
                    .n_in = 9,
                    .n_out = 2,
                    .in = {w, g, v, segments->offsets, segments->ratios, segments->adapted, control->skip,
                           control->scale, control->rates},
                    .out = {w, v}};
    return update_call(&call, 6, attrs, sizeof *attrs);
}
