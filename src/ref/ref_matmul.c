/* matmul and dense_act. */
#include "ops/ops.h"
#include "ref/ref.h"

/* Adds the products one by one in the order of k, four in a pass, so that y is read and written a quarter as often. */
static void ref_matmul_add_products(const double *factor, const double *b, double *y, int64_t k, int64_t n)
{
    int64_t l = 0;
    for (; l + 4 <= k; l += 4) {
        const double *b0 = b + l * n, *b1 = b0 + n, *b2 = b1 + n, *b3 = b2 + n;
        double f0 = factor[l], f1 = factor[l + 1], f2 = factor[l + 2], f3 = factor[l + 3];
        for (int64_t j = 0; j < n; j++)
            y[j] = (((y[j] + f0 * b0[j]) + f1 * b1[j]) + f2 * b2[j]) + f3 * b3[j];
    }
    for (; l < k; l++)
        for (int64_t j = 0; j < n; j++)
            y[j] += factor[l] * b[l * n + j];
}

void lk__ref_multiply(const double *a, const double *b, double *y, int64_t m, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        ref_matmul_add_products(a + i * k, b, y + i * n, k, n);
}

/* Computes y = x w of the call's first two inputs; NULL after a failure. */
static double *ref_matmul_multiply_inputs(lk_ref_scratch *scratch, const lk_call *call)
{
    lk_ref_view x = lk__ref_view(call->in[0]), w = lk__ref_view(call->in[1]);
    const double *a = lk__ref_load(scratch, x);
    const double *b = lk__ref_load(scratch, w);
    double *y = lk__ref_new(scratch, x.shape.dim[0] * w.shape.dim[1]);
    if (y)
        lk__ref_multiply(a, b, y, x.shape.dim[0], x.shape.dim[1], w.shape.dim[1]);
    return y;
}

lk_status lk__ref_matmul(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    double *y = ref_matmul_multiply_inputs(&scratch, call);
    if (y)
        lk__ref_store(y, lk__ref_view(call->out[0]));
    return lk__ref_end(&scratch);
}

lk_status lk__ref_dense_act(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    bool relu = LK_ATTRS(call, lk_dense_act_attrs)->relu;
    lk_ref_view out = lk__ref_view(call->out[0]);
    int64_t units = out.shape.dim[1], n = lk__ref_count(out.shape);
    double *y = ref_matmul_multiply_inputs(&scratch, call);
    const double *bias = call->in[2] ? lk__ref_load(&scratch, lk__ref_view(call->in[2])) : NULL;
    if (scratch.status == LK_OK) {
        for (int64_t i = 0; i < n; i++) {
            double value = bias ? y[i] + bias[i % units] : y[i];
            y[i] = relu && value <= 0 ? 0 : value;
        }
        lk__ref_store(y, out);
    }
    return lk__ref_end(&scratch);
}
