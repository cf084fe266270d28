#include "cuda/plugin/gpu_direct_conv.h"

#include "cuda/plugin/gpu.cuh"

/* The indices of an element of an array of images. */
typedef struct element_index {
    int64_t image, row, column, channel;
} element_index;

/* The indices of element i; channels are innermost. */
static inline __device__ element_index index_of_element(int64_t i, int64_t channels, const int64_t *size)
{
    element_index at;
    at.channel = i % channels;
    i /= channels;
    at.column = i % size[1];
    i /= size[1];
    at.row = i % size[0];
    at.image = i / size[0];
    return at;
}

static inline __device__ int64_t pixel_index(int64_t image, int64_t row, int64_t column, const int64_t *size)
{
    return (image * size[0] + row) * size[1] + column;
}

/* The offset of the weights of output channel o at one element of the kernel. */
static inline __device__ int64_t weights_offset(const lk_geometry &s, int64_t o, int64_t row, int64_t column)
{
    return ((o * s.kernel[0] + row) * s.kernel[1] + column) * (s.channels / s.groups);
}

/* Along one axis, the input that kernel element k reads for output `out`; -1: it is in the padding. */
static inline __device__ int64_t input_at(const lk_geometry &s, int axis, int64_t out, int64_t k)
{
    int64_t at = out * s.stride[axis] + k * s.dilation[axis] - s.padding[axis];
    return at < s.in[axis] ? (at < 0 ? -1 : at) : -1;
}

/* The reverse: the output for which kernel element k reads input `at`; -1: none. */
static inline __device__ int64_t output_at(const lk_geometry &s, int axis, int64_t at, int64_t k)
{
    int64_t steps = at + s.padding[axis] - k * s.dilation[axis];
    if (steps < 0 || steps % s.stride[axis] != 0)
        return -1;
    steps /= s.stride[axis];
    return steps < s.out[axis] ? steps : -1;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

template <typename T>
static inline __device__ double conv_output(const T *x, const T *w, const lk_geometry &s, const element_index &at)
{
    int64_t channels = s.channels / s.groups, first = at.channel / (s.filters / s.groups) * channels;
    double sum = 0;
    for (int64_t kh = 0; kh < s.kernel[0]; kh++) {
        int64_t row = input_at(s, 0, at.row, kh);
        for (int64_t kw = 0; kw < s.kernel[1] && row >= 0; kw++) {
            int64_t column = input_at(s, 1, at.column, kw);
            if (column < 0)
                continue;
            const T *from = x + pixel_index(at.image, row, column, s.in) * s.channels + first;
            const T *weights = w + weights_offset(s, at.channel, kh, kw);
            for (int64_t c = 0; c < channels; c++)
                sum += (double)widen(from[c]) * (double)widen(weights[c]);
        }
    }
    return sum;
}

template <typename T>
static __global__ void direct_conv(T *y, const T *x, const T *w, const T *bias, lk_geometry s, bool relu, int64_t count)
{
    EACH(i, count)
    {
        element_index at = index_of_element(i, s.filters, s.out);
        double sum = conv_output(x, w, s, at) + (bias ? (double)widen(bias[at.channel]) : 0);
        y[i] = narrow_double<T>(relu && sum <= 0 ? 0 : sum);
    }
}

lk_gpu_status lk__gpu_direct_conv(lk_gpu_stream *stream, const lk_gpu_conv *a)
{
    lk_geometry s = lk_gpu_all_images(&a->shape);
    int64_t count = s.images * s.out[0] * s.out[1] * s.filters;
    if (count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->shape.dtype, LK_GPU_RUN(direct_conv<T>, blocks_for(count), THREADS, stream, (T *)a->y,
                                          (const T *)a->x, (const T *)a->w, (const T *)a->bias, s, a->relu, count))
    return lk__gpu_launched("direct_conv");
}

/* --- gradient of the images --------------------------------------------------------------------------------------- */

template <typename T>
static inline __device__ double input_gradient(const T *dy, const T *w, const lk_geometry &s, const element_index &at)
{
    int64_t channels = s.channels / s.groups, results = s.filters / s.groups;
    int64_t group = at.channel / channels, first = group * results;
    double sum = 0;
    for (int64_t kh = 0; kh < s.kernel[0]; kh++) {
        int64_t row = output_at(s, 0, at.row, kh);
        for (int64_t kw = 0; kw < s.kernel[1] && row >= 0; kw++) {
            int64_t column = output_at(s, 1, at.column, kw);
            if (column < 0)
                continue;
            const T *from = dy + pixel_index(at.image, row, column, s.out) * s.filters;
            for (int64_t o = first; o < first + results; o++)
                sum += (double)widen(from[o]) *
                       (double)widen(w[weights_offset(s, o, kh, kw) + at.channel - group * channels]);
        }
    }
    return sum;
}

template <typename T>
static __global__ void direct_conv_input_grad(T *dx, const T *dy, const T *w, lk_geometry s, int64_t count)
{
    EACH(i, count)
    dx[i] = narrow_double<T>(input_gradient(dy, w, s, index_of_element(i, s.channels, s.in)));
}

lk_gpu_status lk__gpu_direct_conv_input_grad(lk_gpu_stream *stream, const lk_gpu_conv_input_grad *a)
{
    lk_geometry s = lk_gpu_all_images(&a->shape);
    int64_t count = s.images * s.in[0] * s.in[1] * s.channels;
    if (count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->shape.dtype, LK_GPU_RUN(direct_conv_input_grad<T>, blocks_for(count), THREADS, stream, (T *)a->dx,
                                          (const T *)a->dy, (const T *)a->w, s, count))
    return lk__gpu_launched("direct_conv_input_grad");
}

/* --- gradient of the weights -------------------------------------------------------------------------------------- */

/* `at` is an element of the weights: its image is the output channel, its row and column are the kernel's, its channel
 * is that in the group. */
template <typename T>
static inline __device__ double weight_gradient(const T *dy, const T *x, const lk_geometry &s, const element_index &at)
{
    int64_t channel = at.image / (s.filters / s.groups) * (s.channels / s.groups) + at.channel;
    double sum = 0;
    for (int64_t n = 0; n < s.images; n++) {
        for (int64_t oh = 0; oh < s.out[0]; oh++) {
            int64_t row = input_at(s, 0, oh, at.row);
            for (int64_t ow = 0; ow < s.out[1] && row >= 0; ow++) {
                int64_t column = input_at(s, 1, ow, at.column);
                if (column >= 0)
                    sum += (double)widen(dy[pixel_index(n, oh, ow, s.out) * s.filters + at.image]) *
                           (double)widen(x[pixel_index(n, row, column, s.in) * s.channels + channel]);
            }
        }
    }
    return sum;
}

template <typename W, typename T>
static __global__ void direct_conv_weight_grad(W *dw, const T *dy, const T *x, lk_geometry s, int64_t count)
{
    EACH(i, count)
    dw[i] = narrow_double<W>(weight_gradient(dy, x, s, index_of_element(i, s.channels / s.groups, s.kernel)));
}

template <typename W> static lk_gpu_status run_weight_grad(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *a)
{
    const lk_geometry &s = a->shape.geometry;
    int64_t count = lk__geometry_w_count(&s);
    FOR_FLOATS(a->shape.dtype, LK_GPU_RUN((direct_conv_weight_grad<W, T>), blocks_for(count), THREADS, stream,
                                          (W *)a->dw, (const T *)a->dy, (const T *)a->x, s, count))
    return lk__gpu_launched("direct_conv_weight_grad");
}

lk_gpu_status lk__gpu_direct_conv_weight_grad(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *a)
{
    FOR_FLOATS(a->dw_dtype, return run_weight_grad<T>(stream, a))
    return LK_GPU_OK;
}
