/* Creation, copies, and picking elements. */
#include "ops/ops.h"
#include "pjrt/lower_ops.h"

#include <math.h>

void lk__lower_full(lk_lowering *l, const lk_call *call)
{
    const lk_tensor *out = call->out[0];
    lk_hlo value = lk__hlo_number(l, LK_F64, LK_ATTRS(call, lk_full_attrs)->value);
    if (lk__dtype_is_float(out->dtype))
        value = lk__hlo_number(l, out->dtype, LK_ATTRS(call, lk_full_attrs)->value);
    value = lk__hlo_convert(l, value, out->dtype);
    lk__hlo_write(l, out, lk__hlo_fill(l, value, lk__hlo_like(out->dtype, out->shape)));
}

void lk__lower_arange(lk_lowering *l, const lk_call *call)
{
    const lk_arange_attrs *attrs = LK_ATTRS(call, lk_arange_attrs);
    lk_hlo index = lk__hlo_iota(l, LK_F64, lk__hlo_like(LK_F64, call->out[0]->shape), 0);
    lk_hlo steps = lk__hlo_rounded_mul(l, index, lk__hlo_number(l, LK_F64, attrs->step));
    lk__hlo_write(l, call->out[0], lk__hlo_add(l, lk__hlo_number(l, LK_F64, attrs->start), steps));
}

void lk__lower_copy(lk_lowering *l, const lk_call *call)
{
    lk__hlo_write(l, call->out[0], lk__hlo_read(l, call->in[0]));
}

void lk__lower_concat(lk_lowering *l, const lk_call *call)
{
    lk_hlo parts[LK_MAX_INPUTS];
    for (int i = 0; i < call->n_in; i++)
        parts[i] = lk__hlo_read(l, call->in[i]);
    lk__hlo_write(l, call->out[0], lk__hlo_concat(l, parts, call->n_in, LK_ATTRS(call, lk_concat_attrs)->axis));
}

lk_hlo lk__hlo_is_inside(lk_lowering *l, lk_hlo index, int64_t count)
{
    lk_hlo first = lk__hlo_compare(l, index, "GE", lk__hlo_integer(l, index.type, 0));
    return lk__hlo_and(l, first, lk__hlo_compare(l, index, "LT", lk__hlo_integer(l, index.type, count)));
}

lk_hlo lk__hlo_select_rows(lk_lowering *l, lk_hlo condition, lk_hlo yes, lk_hlo no)
{
    int64_t size[LK_HLO_AXES] = {condition.size[0]};
    for (int i = 1; i < yes.rank; i++)
        size[i] = 1;
    return lk__hlo_select(l, lk__hlo_reshape(l, condition, yes.rank, size), yes, no);
}

lk_hlo lk__hlo_gather(lk_lowering *l, lk_hlo x, lk_hlo indices)
{
    int64_t window[LK_HLO_AXES];
    bool drop[LK_HLO_AXES] = {true};
    for (int i = 0; i < x.rank; i++)
        window[i] = i ? x.size[i] : 1;
    lk_hlo column = lk__hlo_reshape(l, indices, 2, (int64_t[]){indices.size[0], 1});
    return lk__hlo_windows(l, x, column, (int[]){0}, window, drop);
}

/* Elements of an index that is out of range have all bits set, as on GPUs. */
void lk__lower_gather(lk_lowering *l, const lk_call *call)
{
    lk_hlo x = lk__hlo_read(l, call->in[0]), indices = lk__hlo_read(l, call->in[1]);
    bool is_float = lk__dtype_is_float(call->in[0]->dtype);
    lk_hlo bad = is_float ? lk__hlo_number(l, x.type, NAN) : lk__hlo_integer(l, x.type, x.type == LK_U8 ? 255 : -1);
    lk_hlo is_inside = lk__hlo_is_inside(l, indices, x.size[0]);
    lk_hlo y =
        x.size[0] > 0 ? lk__hlo_gather(l, x, indices) : lk__hlo_fill(l, bad, lk__hlo_like(x.type, call->out[0]->shape));
    lk__hlo_write(l, call->out[0], lk__hlo_select_rows(l, is_inside, y, bad));
}
