/* What cuBLASLt and cuDNN do for the plug-in, as loops on the processor. Products are added up in double and rounded
 * once; operands must lie as the libraries are promised, and with TF32 they are rounded to it first. */
#include "cuda/gpu_direct_conv.h"

#include "cuda/gpu.cuh"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

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

/* --- TF32 --------------------------------------------------------------------------------------------------------- */

/* To nearest even, as tensor cores' inputs are converted. */
static float to_tf32(float x)
{
    uint32_t bits;
    if (!std::isfinite(x))
        return x;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~UINT32_C(0x1fff);
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* Copies of f32 operands that the stream rounds when it comes to them, and forgets when the work behind is done. */
struct rounded {
    std::vector<std::shared_ptr<std::vector<float>>> copies;

    const void *operator()(lk_gpu_stream *stream, const void *data, int64_t count)
    {
        auto copy = std::make_shared<std::vector<float>>((size_t)count);
        copies.push_back(copy);
        emulated_push(stream->stream, [=]() {
            for (int64_t i = 0; i < count; i++)
                (*copy)[(size_t)i] = to_tf32(((const float *)data)[i]);
        });
        return copy->data();
    }

    lk_gpu_status keep_until_here(lk_gpu_stream *stream, lk_gpu_status status)
    {
        std::vector<std::shared_ptr<std::vector<float>>> kept = copies;
        emulated_push(stream->stream, [kept]() {});
        return status;
    }
};

static bool rounds(bool tf32, lk_dtype dtype)
{
    return tf32 && dtype == LK_F32;
}

static int64_t images_in(const lk_gpu_conv_shape &s)
{
    return s.images * s.size[0] * s.size[1] * s.channels;
}

static int64_t results_in(const lk_gpu_conv_shape &s)
{
    return s.images * s.out_size[0] * s.out_size[1] * s.out_channels;
}

static int64_t weights_in(const lk_gpu_conv_shape &s)
{
    return s.out_channels * s.kernel[0] * s.kernel[1] * (s.channels / s.groups);
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
    lk_gpu_matmul with = *m;
    rounded round;
    require_alignment({m->a, m->b, m->bias, m->y});
    if (rounds(m->tf32, m->dtype)) {
        with.a = round(stream, m->a, m->rows * m->inner);
        with.b = round(stream, m->b, m->inner * m->columns);
    }
    FOR_FLOATS(m->y_dtype, return round.keep_until_here(stream, push_product<T>(stream, with)))
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
    lk_gpu_conv with = *a;
    rounded round;
    require_alignment({a->x, a->w, a->bias, a->y});
    if (is_refused(a->shape))
        return refuse();
    if (rounds(a->shape.tf32, a->shape.dtype)) {
        with.x = round(stream, a->x, images_in(a->shape));
        with.w = round(stream, a->w, weights_in(a->shape));
    }
    return round.keep_until_here(stream, lk__gpu_direct_conv(stream, &with));
}

lk_gpu_status lk__gpu_conv_input_grad(lk_gpu_stream *stream, const lk_gpu_conv_input_grad *a)
{
    lk_gpu_conv_input_grad with = *a;
    rounded round;
    require_alignment({a->dy, a->w, a->dx});
    if (is_refused(a->shape))
        return refuse();
    if (rounds(a->shape.tf32, a->shape.dtype)) {
        with.dy = round(stream, a->dy, results_in(a->shape));
        with.w = round(stream, a->w, weights_in(a->shape));
    }
    return round.keep_until_here(stream, lk__gpu_direct_conv_input_grad(stream, &with));
}

lk_gpu_status lk__gpu_conv_weight_grad(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *a)
{
    lk_gpu_conv_weight_grad with = *a;
    rounded round;
    require_alignment({a->dy, a->x, a->dw});
    if (is_refused(a->shape))
        return refuse();
    if (rounds(a->shape.tf32, a->shape.dtype)) {
        with.dy = round(stream, a->dy, results_in(a->shape));
        with.x = round(stream, a->x, images_in(a->shape));
    }
    return round.keep_until_here(stream, lk__gpu_direct_conv_weight_grad(stream, &with));
}
