#include "ops/ops.h"
#include "ref/ref.h"

/* y += a · b, each element's products in order of k; the innermost loop runs along rows of b and y. */
static void multiply(const double *a, const double *b, double *y, int64_t m, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t l = 0; l < k; l++) {
            double factor = a[i * k + l];
            for (int64_t j = 0; j < n; j++)
                y[i * n + j] += factor * b[l * n + j];
        }
    }
}

lk_status lk__ref_matmul(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in0 = lk__ref_view(call->in[0]), in1 = lk__ref_view(call->in[1]), out = lk__ref_view(call->out[0]);
    const double *a = lk__ref_load(&scratch, in0);
    const double *b = lk__ref_load(&scratch, in1);
    double *y = lk__ref_new(&scratch, lk__ref_count(out.shape));
    if (y) {
        multiply(a, b, y, in0.shape.dim[0], in0.shape.dim[1], in1.shape.dim[1]);
        lk__ref_store(y, out);
    }
    return lk__ref_end(&scratch);
}
