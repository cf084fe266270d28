/* What cuBLASLt and cuDNN do for the plug-in, as loops on the processor. Products are added up in double and rounded
 * once; operands must lie as the libraries are promised. */
#include "cuda/gpu_direct_conv.h"

#include "cuda/gpu.cuh"

#include <cstdio>
#include <cstdlib>

struct lk_gpu_libraries {
    char none;
};

lk_gpu_status lk__gpu_libraries_need(lk_gpu_stream *)
{
    return LK_GPU_OK;
}

void lk__gpu_libraries_free(lk_gpu_libraries *)
{
}

void lk__gpu_libraries_versions(lk_gpu_versions *versions)
{
    snprintf(versions->cublas, sizeof versions->cublas, "emulated");
    snprintf(versions->cudnn, sizeof versions->cudnn, "emulated");
}

static void require_alignment(std::initializer_list<const void *> operands)
{
    for (const void *operand : operands) {
        if ((uintptr_t)operand % LK_GPU_LIBRARY_ALIGNMENT == 0)
            continue;
        fprintf(stderr, "emulated CUDA: an operand of a library is not aligned to %d bytes\n",
                LK_GPU_LIBRARY_ALIGNMENT);
        abort();
    }
}

/* --- products ----------------------------------------------------------------------------------------------------- */

template <typename Y, typename T> static void multiply(const lk_gpu_matmul &m)
{
    const T *a = (const T *)m.a, *b = (const T *)m.b;
    const Y *bias = (const Y *)m.bias;
    int64_t row_step = m.a_transposed ? 1 : m.inner, a_step = m.a_transposed ? m.rows : 1;
    int64_t column_step = m.b_transposed ? m.inner : 1, b_step = m.b_transposed ? 1 : m.columns;
    for (int64_t i = 0; i < m.rows; i++) {
        for (int64_t j = 0; j < m.columns; j++) {
            double sum = 0;
            for (int64_t k = 0; k < m.inner; k++)
                sum += (double)widen(a[i * row_step + k * a_step]) * (double)widen(b[j * column_step + k * b_step]);
            sum += bias ? (double)widen(bias[j]) : 0;
            ((Y *)m.y)[i * m.columns + j] = narrow<Y>((float)(m.relu && sum <= 0 ? 0 : sum));
        }
    }
}

template <typename Y> static lk_gpu_status push_product(lk_gpu_stream *stream, const lk_gpu_matmul &m)
{
    FOR_FLOATS(m.dtype, emulated_push(stream->stream, [m]() { multiply<Y, T>(m); }))
    return LK_GPU_OK;
}

lk_gpu_status lk__gpu_matmul(lk_gpu_stream *stream, const lk_gpu_matmul *m)
{
    require_alignment({m->a, m->b, m->bias, m->y});
    FOR_FLOATS(m->y_dtype, return push_product<T>(stream, *m))
    return LK_GPU_OK;
}

/* --- convolutions ------------------------------------------------------------------------------------------------- */

/* $LOCKSTEP_EMULATED_BF16_CONV=no: as a cuDNN that has no engine for them. */
static bool is_refused(const lk_gpu_conv_shape &shape)
{
    const char *setting = getenv("LOCKSTEP_EMULATED_BF16_CONV");
    return shape.dtype == LK_BF16 && setting && strcmp(setting, "no") == 0;
}

static lk_gpu_status refuse(void)
{
    return lk__gpu_fail(LK_GPU_UNSUPPORTED, "emulated: no convolutions in bf16");
}

lk_gpu_status lk__gpu_conv(lk_gpu_stream *stream, const lk_gpu_conv *a)
{
    require_alignment({a->x, a->w, a->bias, a->y});
    return is_refused(a->shape) ? refuse() : lk__gpu_direct_conv(stream, a);
}

lk_gpu_status lk__gpu_conv_input_grad(lk_gpu_stream *stream, const lk_gpu_conv_input_grad *a)
{
    require_alignment({a->dy, a->w, a->dx});
    return is_refused(a->shape) ? refuse() : lk__gpu_direct_conv_input_grad(stream, a);
}

lk_gpu_status lk__gpu_conv_weight_grad(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *a)
{
    require_alignment({a->dy, a->x, a->dw});
    return is_refused(a->shape) ? refuse() : lk__gpu_direct_conv_weight_grad(stream, a);
}
