/* The gradients of the weights and the bias of a convolution with few inputs a result, such as the first layer's. A
 * thread adds up, for a pack of filters and one input of their windows, the products in its share of the pixels of dy:
 * a sum over rows. The bias counts as the weight of one more input, which is 1. */
#include "cuda/plugin/gpu_few_inputs.h"

#include "cuda/plugin/gpu_row_sums.cuh"

/* The columns of the sum are packs of filters times the inputs of a window. */
struct work {
    int64_t pixels, pixels_a_block;          /* of a part; blockIdx.z is the part */
    int64_t workspace;                       /* of a part */
    int inputs, sums, columns, width, lanes; /* sums: inputs, and the bias; width: columns in a block */
};

/* x's element that input `input` of the window of output pixel `pixel` is; -1: it is in the padding. */
static inline __device__ int64_t element_of_window(const lk_geometry &s, int64_t pixel, int input)
{
    int64_t channel = input % s.channels, at[2] = {pixel / s.out[1] % s.out[0], pixel % s.out[1]};
    int64_t k[2] = {input / s.channels / s.kernel[1], input / s.channels % s.kernel[1]};
    for (int axis = 0; axis < 2; axis++) {
        at[axis] = at[axis] * s.stride[axis] + k[axis] * s.dilation[axis] - s.padding[axis];
        if (at[axis] < 0 || at[axis] >= s.in[axis])
            return -1;
    }
    return ((pixel / (s.out[0] * s.out[1]) * s.in[0] + at[0]) * s.in[1] + at[1]) * s.channels + channel;
}

template <typename P>
static __global__ void __launch_bounds__(THREADS)
    add_window_products(const typename P::element *dy, const typename P::element *x, double *workspace, lk_geometry s,
                        work w)
{
    int lane = (int)threadIdx.x / w.width, column = (int)blockIdx.x * w.width + (int)threadIdx.x % w.width;
    bool inside = lane < w.lanes && column < w.columns;
    dy += blockIdx.z * w.pixels * s.filters;
    x += blockIdx.z * s.images * s.in[0] * s.in[1] * s.channels;
    workspace += blockIdx.z * w.workspace;
    int pack = column / w.sums, input = column % w.sums;
    int64_t begin = blockIdx.y * w.pixels_a_block, end = begin + w.pixels_a_block;
    end = end < w.pixels ? end : w.pixels;
    double sums[P::COUNT] = {};
    for (int64_t pixel = begin + lane; pixel < end && inside; pixel += w.lanes) {
        bool is_bias = input == w.inputs;
        int64_t element = is_bias ? 0 : element_of_window(s, pixel, input);
        if (element < 0)
            continue;
        double value = is_bias ? 1 : (double)widen(x[element]);
        float d[P::COUNT];
        load<P>(dy + pixel * s.filters + pack * P::COUNT).get(d);
        for (int i = 0; i < P::COUNT; i++)
            sums[i] = fma((double)d[i], value, sums[i]);
    }
    add_lanes(sums, lane, w.lanes, w.width);
    if (lane > 0 || !inside)
        return;
    for (int i = 0; i < P::COUNT; i++)
        workspace[((int64_t)blockIdx.y * s.filters + pack * P::COUNT + i) * w.sums + input] = sums[i];
}

template <typename T>
static __global__ void finish_window_products(const double *workspace, T *dw, T *dbias, int64_t filters, work w,
                                              int blocks)
{
    int64_t c, part = blockIdx.y;
    double sum[1];
    if (!add_blocks(workspace + part * w.workspace, filters * w.sums, blocks, &c, sum))
        return;
    int64_t filter = c / w.sums, input = c % w.sums;
    T *result = input == w.inputs ? dbias + part * filters + filter : dw + (part * filters + filter) * w.inputs + input;
    *result = narrow_double<T>(sum[0]);
}

template <typename P> static work add_all(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *a, int *blocks)
{
    const lk_geometry &s = a->shape.geometry;
    typedef typename P::element T;
    work w = {};
    w.pixels = s.images * s.out[0] * s.out[1];
    w.workspace = lk_gpu_weight_grad_workspace(&a->shape);
    w.inputs = (int)(s.channels * s.kernel[0] * s.kernel[1]);
    w.sums = w.inputs + (a->dbias ? 1 : 0);
    w.columns = (int)(s.filters / P::COUNT) * w.sums;
    w.width = w.columns < THREADS ? w.columns : (int)THREADS;
    w.lanes = THREADS / w.width;
    w.pixels_a_block = (w.pixels + LK_GPU_SUM_BLOCKS - 1) / LK_GPU_SUM_BLOCKS;
    w.pixels_a_block = w.pixels_a_block > LK_GPU_SUM_ROWS ? w.pixels_a_block : (int64_t)LK_GPU_SUM_ROWS;
    *blocks = (int)((w.pixels + w.pixels_a_block - 1) / w.pixels_a_block);
    dim3 grid((unsigned)((w.columns + w.width - 1) / w.width), (unsigned)*blocks,
              (unsigned)lk_gpu_parts(a->shape.parts));
    LK_GPU_RUN_TOGETHER(add_window_products<P>, grid, THREADS, stream, (const T *)a->dy, (const T *)a->x, a->workspace,
                        s, w);
    return w;
}

lk_gpu_status lk__gpu_few_inputs_weight_grad(lk_gpu_stream *stream, const lk_gpu_conv_weight_grad *a)
{
    int blocks = 0;
    int64_t filters = a->shape.geometry.filters;
    work w = {};
    FOR_PACKS(a->shape.dtype, filters, address_of(a->dy), w = add_all<P>(stream, a, &blocks))
    FOR_FLOATS(a->dw_dtype,
               LK_GPU_RUN_TOGETHER(finish_window_products<T>, finish_blocks(filters * w.sums, a->shape.parts), THREADS,
                                   stream, a->workspace, (T *)a->dw, (T *)a->dbias, filters, w, blocks))
    return lk__gpu_launched("few_inputs_weight_grad");
}
