#include "cuda/gpu_direct_conv.h"

#include "cuda/gpu.cuh"

typedef lk_gpu_conv_shape conv_shape;

/* A pixel of an array of images, and one of its channels. */
typedef struct place {
    int64_t image, row, column, channel;
} place;

/* Of element i, channels innermost. */
static inline __device__ place place_of(int64_t i, int64_t channels, const int64_t *size)
{
    place at;
    at.channel = i % channels;
    i /= channels;
    at.column = i % size[1];
    i /= size[1];
    at.row = i % size[0];
    at.image = i / size[0];
    return at;
}

static inline __device__ int64_t pixel(int64_t image, int64_t row, int64_t column, const int64_t *size)
{
    return (image * size[0] + row) * size[1] + column;
}

/* Where the weights of output channel o start for one element of the kernel. */
static inline __device__ int64_t tap(const conv_shape &s, int64_t o, int64_t row, int64_t column)
{
    return ((o * s.kernel[0] + row) * s.kernel[1] + column) * (s.channels / s.groups);
}

/* Along one axis, what a kernel's element sees from an output, or -1 for padding. */
static inline __device__ int64_t seen(const conv_shape &s, int axis, int64_t out, int64_t k)
{
    int64_t at = out * s.stride[axis] + k * s.dilation[axis] - s.padding[axis];
    return at < s.size[axis] ? (at < 0 ? -1 : at) : -1;
}

/* The reverse: the output from which a kernel's element sees `at`, or -1. */
static inline __device__ int64_t seen_from(const conv_shape &s, int axis, int64_t at, int64_t k)
{
    int64_t steps = at + s.padding[axis] - k * s.dilation[axis];
    if (steps < 0 || steps % s.stride[axis] != 0)
        return -1;
    steps /= s.stride[axis];
    return steps < s.out_size[axis] ? steps : -1;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

template <typename T>
static inline __device__ double result(const T *x, const T *w, const conv_shape &s, const place &at)
{
    int64_t channels = s.channels / s.groups, first = at.channel / (s.out_channels / s.groups) * channels;
    double sum = 0;
    for (int64_t kh = 0; kh < s.kernel[0]; kh++) {
        int64_t row = seen(s, 0, at.row, kh);
        for (int64_t kw = 0; kw < s.kernel[1] && row >= 0; kw++) {
            int64_t column = seen(s, 1, at.column, kw);
            if (column < 0)
                continue;
            const T *from = x + pixel(at.image, row, column, s.size) * s.channels + first;
            const T *weights = w + tap(s, at.channel, kh, kw);
            for (int64_t c = 0; c < channels; c++)
                sum += (double)widen(from[c]) * (double)widen(weights[c]);
        }
    }
    return sum;
}

template <typename T>
static __global__ void direct_conv(T *y, const T *x, const T *w, const T *bias, conv_shape s, bool relu, int64_t count)
{
    EACH(i, count)
    {
        place at = place_of(i, s.out_channels, s.out_size);
        double sum = result(x, w, s, at) + (bias ? (double)widen(bias[at.channel]) : 0);
        y[i] = narrow<T>((float)(relu && sum <= 0 ? 0 : sum));
    }
}

lk_gpu_status lk__gpu_direct_conv(lk_gpu_stream *stream, const lk_gpu_conv *a)
{
    const conv_shape &s = a->shape;
    int64_t count = s.images * s.out_size[0] * s.out_size[1] * s.out_channels;
    if (count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(s.dtype, LK_GPU_RUN(direct_conv<T>, blocks_for(count), THREADS, stream->stream, (T *)a->y,
                                   (const T *)a->x, (const T *)a->w, (const T *)a->bias, s, a->relu, count))
    return lk__gpu_launched("direct_conv");
}

/* --- gradient of the images --------------------------------------------------------------------------------------- */

template <typename T>
static inline __device__ double input_gradient(const T *dy, const T *w, const conv_shape &s, const place &at)
{
    int64_t channels = s.channels / s.groups, results = s.out_channels / s.groups;
    int64_t group = at.channel / channels, first = group * results;
    double sum = 0;
    for (int64_t kh = 0; kh < s.kernel[0]; kh++) {
        int64_t row = seen_from(s, 0, at.row, kh);
        for (int64_t kw = 0; kw < s.kernel[1] && row >= 0; kw++) {
            int64_t column = seen_from(s, 1, at.column, kw);
            if (column < 0)
                continue;
            const T *from = dy + pixel(at.image, row, column, s.out_size) * s.out_channels;
            for (int64_t o = first; o < first + results; o++)
                sum += (double)widen(from[o]) * (double)widen(w[tap(s, o, kh, kw) + at.channel - group * channels]);
        }
    }
    return sum;
}

template <typename T>
static __global__ void direct_conv_input_grad(T *dx, const T *dy, const T *w, conv_shape s, int64_t count)
{
    EACH(i, count)
    dx[i] = narrow<T>((float)input_gradient(dy, w, s, place_of(i, s.channels, s.size)));
}

lk_gpu_status lk__gpu_direct_conv_input_grad(lk_gpu_stream *stream, const lk_gpu_conv_input_grad *a)
{
    const conv_shape &s = a->shape;
    int64_t count = s.images * s.size[0] * s.size[1] * s.channels;
    if (count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(s.dtype, LK_GPU_RUN(direct_conv_input_grad<T>, blocks_for(count), THREADS, stream->stream, (T *)a->dx,
                                   (const T *)a->dy, (const T *)a->w, s, count))
    return lk__gpu_launched("direct_conv_input_grad");
}

/* --- gradient of the weights -------------------------------------------------------------------------------------- */

/* `at`: output channel, row and column of the kernel, channel in its group. */
template <typename T>
static inline __device__ double weight_gradient(const T *dy, const T *x, const conv_shape &s, const place &at)
{
    int64_t channel = at.image / (s.out_channels / s.groups) * (s.channels / s.groups) + at.channel;
    double sum = 0;
    for (int64_t n = 0; n < s.images; n++) {
        for (int64_t oh = 0; oh < s.out_size[0]; oh++) {
            int64_t row = seen(s, 0, oh, at.row);
            for (int64_t ow = 0; ow < s.out_size[1] && row >= 0; ow++) {
                int64_t column = seen(s, 1, ow, at.column);
                if (column >= 0)
                    sum += (double)widen(dy[pixel(n, oh, ow, s.out_size) * s.out_channels + at.image]) *
                           (double)widen(x[pixel(n, row, column, s.size) * s.channels + channel]);
            }
        }
    }
    return sum;
}

template <typename W, typename T>
static __global__ void direct_conv_weight_grad(W *dw, const T *dy, const T *x, conv_shape s, int64_t count)
{
    EACH(i, count)
    dw[i] = narrow<W>((float)weight_gradient(dy, x, s, place_of(i, s.channels / s.groups, s.kernel)));
}

template <typename W> static lk_gpu_status weight_grad(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *a)
{
    const conv_shape &s = a->shape;
    int64_t count = s.out_channels * s.kernel[0] * s.kernel[1] * (s.channels / s.groups);
    FOR_FLOATS(s.dtype, LK_GPU_RUN((direct_conv_weight_grad<W, T>), blocks_for(count), THREADS, stream->stream,
                                   (W *)a->dw, (const T *)a->dy, (const T *)a->x, s, count))
    return lk__gpu_launched("direct_conv_weight_grad");
}

lk_gpu_status lk__gpu_direct_conv_weight_grad(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *a)
{
    FOR_FLOATS(a->dw_dtype, return weight_grad<T>(stream, a))
    return LK_GPU_OK;
}
