/* matmul, and with a bias and relu behind it. */
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_library_operands.h"
#include "ops/ops.h"

typedef struct matrix {
    const void *data;
    bool transposed;
} matrix;

static lk_tensor transpose(const lk_tensor *x)
{
    lk_tensor y = lk__tensor_alias(x);
    for (int i = 0; i < 2; i++) {
        y.shape.dim[i] = x->shape.dim[1 - i];
        y.strides[i] = x->strides[1 - i];
    }
    return y;
}

/* A dense matrix, or a transposed view of one, as it is; what lies otherwise is copied. */
static matrix matrix_in(lk_cuda_scratch *s, const lk_tensor *x)
{
    lk_tensor transposed = transpose(x);
    bool is_transposed = !lk__tensor_is_dense(x) && lk__tensor_is_dense(&transposed);
    return (matrix){lk__cuda_library_in(s, is_transposed ? &transposed : x, NULL, x->dtype), is_transposed};
}

static lk_status multiply(lk_call *call, const lk_tensor *added, bool relu)
{
    lk_cuda_scratch s = {.call = call};
    const lk_tensor *out = call->out[0];
    matrix a = matrix_in(&s, call->in[0]), b = matrix_in(&s, call->in[1]);
    const void *bias = lk__cuda_library_in(&s, added, NULL, call->dtype);
    lk_cuda_result y = lk__cuda_library_out(&s, 0, NULL, NULL, out->dtype);
    if (s.status == LK_OK && lk_tensor_count(out) > 0)
        s.status =
            LK_CUDA_LAUNCH(call, matmul, .a = a.data, .b = b.data, .bias = bias, .y = y.data, .dtype = call->dtype,
                           .y_dtype = out->dtype, .rows = out->shape.dim[0], .inner = call->in[0]->shape.dim[1],
                           .columns = out->shape.dim[1], .a_transposed = a.transposed, .b_transposed = b.transposed,
                           .relu = relu, .tf32 = call->tf32);
    lk__cuda_library_written(&s, 0, &y);
    return lk__cuda_end(&s, LK_OK);
}

lk_status lk__cuda_matmul(lk_call *call)
{
    return multiply(call, NULL, false);
}

lk_status lk__cuda_dense_act(lk_call *call)
{
    return multiply(call, call->in[2], LK_ATTRS(call, lk_dense_act_attrs)->relu);
}
