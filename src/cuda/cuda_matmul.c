/* matmul, and dense_act, which adds a bias and relu. */
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_library_operands.h"
#include "cuda/cuda_operands.h"
#include "ops/ops.h"

static lk_tensor cuda_matmul_transposed_view(const lk_tensor *x)
{
    lk_tensor y = lk__tensor_alias(x);
    for (int i = 0; i < 2; i++) {
        y.shape.dim[i] = x->shape.dim[1 - i];
        y.strides[i] = x->strides[1 - i];
    }
    return y;
}

static bool cuda_matmul_is_transposed(const lk_tensor *x)
{
    lk_tensor transposed = cuda_matmul_transposed_view(x);
    return !lk__tensor_is_dense(x) && lk__tensor_is_dense(&transposed);
}

/* Takes a dense matrix, or a transposed view of one, without a copy; copies any other. */
static const void *cuda_matmul_matrix_in(lk_cuda_scratch *s, const lk_tensor *x)
{
    lk_tensor transposed = cuda_matmul_transposed_view(x);
    return lk__cuda_library_in(s, cuda_matmul_is_transposed(x) ? &transposed : x, NULL, x->dtype);
}

/* Fills in all arguments except the pointers to operands. The parts of a merged call have rows of y of their own. If
 * they share b, they also have rows of a; otherwise a's columns and b's rows. */
static lk_gpu_matmul matmul_of(const lk_call *call)
{
    const lk_tensor *a = call->in[0], *b = call->in[1], *y = call->out[0];
    bool b_is_shared = call->parts > 0 && a->shape.dim[0] == y->shape.dim[0];
    return (lk_gpu_matmul){.dtype = call->dtype,
                           .y_dtype = y->dtype,
                           .rows = y->shape.dim[0] / lk__cuda_parts(call),
                           .inner = b_is_shared ? a->shape.dim[1] : a->shape.dim[1] / lk__cuda_parts(call),
                           .columns = y->shape.dim[1],
                           .parts = call->parts,
                           .b_is_shared = b_is_shared,
                           .a_transposed = cuda_matmul_is_transposed(a),
                           .b_transposed = cuda_matmul_is_transposed(b),
                           .tf32 = call->tf32};
}

bool lk__cuda_matmul_choice(const lk_call *call, lk_gpu_choice *choice)
{
    *choice = (lk_gpu_choice){.kernel = LK_GPU_MATMUL, .matmul = matmul_of(call)};
    if (call->op->id == LK_OP_DENSE_ACT)
        choice->matmul.bias = call->in[2];
    bool has_one = lk_tensor_count(call->out[0]) > 0 && choice->matmul.inner > 0;
    if (call->tuning && has_one)
        choice->matmul.engine = lk__cuda_tuned_engine(call->tuning, choice);
    return has_one;
}

static lk_status launch_matmul(lk_call *call, const lk_tensor *added, bool relu)
{
    lk_cuda_scratch s = {.call = call};
    const lk_cuda *cuda = lk__cuda_of(call);
    lk_gpu_choice choice;
    lk__cuda_matmul_choice(call, &choice);
    lk_gpu_matmul product = choice.matmul;
    product.relu = relu;
    product.a = cuda_matmul_matrix_in(&s, call->in[0]);
    product.b = cuda_matmul_matrix_in(&s, call->in[1]);
    product.bias = lk__cuda_library_in(&s, added, NULL, call->dtype);
    lk_cuda_result y = lk__cuda_library_out(&s, 0, NULL, NULL, call->out[0]->dtype);
    product.y = y.data;
    if (s.status == LK_OK && lk_tensor_count(call->out[0]) > 0)
        s.status = lk__cuda_check(cuda->driver, cuda->driver->matmul(cuda->stream, &product));
    lk__cuda_library_written(&s, 0, &y);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_matmul(lk_call *call)
{
    return launch_matmul(call, NULL, false);
}

lk_status lk__cuda_dense_act(lk_call *call)
{
    return launch_matmul(call, call->in[2], LK_ATTRS(call, lk_dense_act_attrs)->relu);
}
