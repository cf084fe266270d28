/* relu and its gradient. */
#include "ops/ops.h"
#include "ref/ref.h"

/* relu only selects, so f32 needs no conversion to double. Numbers not greater than 0 become +0; NaN stays NaN. */
static void ref_relu_f32(const float *x, float *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] <= 0 ? 0 : x[i];
}

static void ref_relu_grad_f32(const float *dy, const float *y, float *dx, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        dx[i] = y[i] > 0 ? dy[i] : 0;
}

static bool ref_relu_is_dense_f32(lk_ref_view view)
{
    return view.dtype == LK_F32 && lk__ref_is_dense(view);
}

lk_status lk__ref_relu(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]), out = lk__ref_view(call->out[0]);
    int64_t count = lk__ref_count(out.shape);
    if (ref_relu_is_dense_f32(in)) {
        ref_relu_f32(in.data, out.data, count);
        return LK_OK;
    }
    const double *x = lk__ref_load(&scratch, in);
    double *y = lk__ref_new(&scratch, count);
    if (y) {
        for (int64_t i = 0; i < count; i++)
            y[i] = x[i] <= 0 ? 0 : x[i];
        lk__ref_store(y, out);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_relu_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in0 = lk__ref_view(call->in[0]), in1 = lk__ref_view(call->in[1]), out = lk__ref_view(call->out[0]);
    int64_t count = lk__ref_count(out.shape);
    if (ref_relu_is_dense_f32(in0) && ref_relu_is_dense_f32(in1)) {
        ref_relu_grad_f32(in0.data, in1.data, out.data, count);
        return LK_OK;
    }
    const double *dy = lk__ref_load(&scratch, in0);
    const double *y = lk__ref_load(&scratch, in1);
    double *dx = lk__ref_new(&scratch, count);
    if (dx) {
        for (int64_t i = 0; i < count; i++)
            dx[i] = y[i] > 0 ? dy[i] : 0;
        lk__ref_store(dx, out);
    }
    return lk__ref_end(&scratch);
}
