/* Group normalization. A set is the elements that share a mean and a variance: `span` neighboring channels of all
 * pixels of an image. A warp computes the sums of a set in a fixed order. */
#include "cuda/plugin/gpu_row_sums.cuh"

/* --- a set -------------------------------------------------------------------------------------------------------- */

typedef struct set_shape {
    int64_t sets, groups, span, pixels, channels;
} set_shape;

static set_shape shape_of(int64_t images, int64_t pixels, int64_t channels, int64_t groups)
{
    return {images * groups, groups, channels / groups, pixels, channels};
}

/* Returns the warp's set; at least s.sets: it has none. */
static inline __device__ int64_t own_set(void)
{
    return (int64_t)blockIdx.x * WARPS + threadIdx.y;
}

/* Visits the lane's elements of a set: their offset, and their channel. */
template <typename Visit> static inline __device__ void each_of_set(const set_shape &s, int64_t set, Visit visit)
{
    int64_t first = set % s.groups * s.span, image = set / s.groups * s.pixels * s.channels;
    for (int64_t e = threadIdx.x; e < s.pixels * s.span; e += 32) {
        int64_t channel = first + e % s.span;
        visit(image + e / s.span * s.channels + channel, channel);
    }
}

/* xhat = (x - origin) inverse + rest: the origin is the mean as an f32 has it, so that subtracting it is nearly exact.
 */
struct normalizing {
    float origin, inverse, rest;

    inline __device__ float xhat(float x) const
    {
        return fmaf(x - origin, inverse, rest);
    }
};

/* Rounding may make the variance negative, which becomes 0; NaN stays NaN. */
template <typename T>
static inline __device__ normalizing normalizing_of(const T *x, const set_shape &s, int64_t set, double epsilon)
{
    double sum = 0, squares = 0, count = (double)(s.pixels * s.span);
    each_of_set(s, set, [&](int64_t at, int64_t) {
        double value = (double)widen(x[at]);
        sum += value;
        squares = fma(value, value, squares);
    });
    double mean = warp_sum(sum) / count, variance = warp_sum(squares) / count - mean * mean;
    double inverse = 1 / sqrt((variance < 0 ? 0 : variance) + epsilon);
    return {(float)mean, (float)inverse, (float)(((double)(float)mean - mean) * inverse)};
}

template <typename T>
static __global__ void group_norm(const T *x, const float *gamma, const float *beta, T *y, set_shape s, double epsilon)
{
    int64_t set = own_set();
    if (set >= s.sets)
        return;
    normalizing n = normalizing_of(x, s, set, epsilon);
    __syncwarp(); /* y may be x: all lanes must have read their set */
    each_of_set(s, set, [&](int64_t at, int64_t channel) {
        y[at] = narrow<T>(fmaf(gamma[channel], n.xhat(widen(x[at])), beta[channel]));
    });
}

lk_gpu_status lk__gpu_group_norm(lk_gpu_stream *stream, const lk_gpu_group_norm *a)
{
    set_shape s = shape_of(a->images, a->pixels, a->channels, a->groups);
    if (a->images * a->pixels * a->channels == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype, LK_GPU_RUN_TOGETHER(group_norm<T>, blocks_for_warps(s.sets), dim3(32, WARPS), stream,
                                             (const T *)a->x, a->gamma, a->beta, (T *)a->y, s, a->epsilon))
    return lk__gpu_launched("group_norm");
}

/* --- the gradient ------------------------------------------------------------------------------------------------- */

/* The values of a set, computed before anything is written. mean: of gamma dy; slope: of gamma dy xhat. */
typedef struct set_values {
    normalizing n;
    float mean, slope;
} set_values;
static_assert(sizeof(set_values) <= LK_GPU_SET_DOUBLES * sizeof(double), "lk_gpu_group_norm_workspace");

template <typename T>
static __global__ void group_norm_sets(const T *dy, const T *x, const float *gamma, set_values *values, set_shape s,
                                       double epsilon)
{
    int64_t set = own_set();
    if (set >= s.sets)
        return;
    normalizing n = normalizing_of(x, s, set, epsilon);
    double sum = 0, product = 0, count = (double)(s.pixels * s.span);
    each_of_set(s, set, [&](int64_t at, int64_t channel) {
        double scaled = (double)gamma[channel] * (double)widen(dy[at]);
        sum += scaled;
        product = fma(scaled, (double)n.xhat(widen(x[at])), product);
    });
    sum = warp_sum(sum);
    product = warp_sum(product);
    if (threadIdx.x == 0)
        values[set] = {n, (float)(sum / count), (float)(product / count)};
}

static inline __device__ const set_values &values_at(const set_values *values, const set_shape &s, int64_t row,
                                                     int64_t channel)
{
    return values[row / s.pixels * s.groups + channel / s.span];
}

/* A block of threads adds up a block of rows of 32 channels: lane l adds rows l, l + lanes, … in order. */
enum { COLUMNS = 32, ROW_LANES = THREADS / COLUMNS };

template <typename T>
static __global__ void group_norm_rows(const T *dy, const T *x, const set_values *values, double *workspace,
                                       set_shape s, int64_t rows, int64_t rows_a_block)
{
    int lane = (int)threadIdx.x / COLUMNS;
    int64_t channel = (int64_t)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS, begin = blockIdx.y * rows_a_block;
    int64_t end = begin + rows_a_block < rows ? begin + rows_a_block : rows;
    double sums[2] = {0, 0};
    for (int64_t row = begin + lane; row < end && channel < s.channels; row += ROW_LANES) {
        int64_t at = row * s.channels + channel;
        double slope = (double)widen(dy[at]);
        sums[0] += slope;
        sums[1] = fma(slope, (double)values_at(values, s, row, channel).n.xhat(widen(x[at])), sums[1]);
    }
    add_lanes(sums, lane, ROW_LANES, COLUMNS);
    if (lane == 0 && channel < s.channels)
        for (int i = 0; i < 2; i++)
            workspace[((int64_t)blockIdx.y * 2 + i) * s.channels + channel] = sums[i];
}

static __global__ void group_norm_finish(const double *workspace, float *dgamma, float *dbeta, int64_t channels,
                                         int blocks)
{
    int64_t c;
    double sums[2];
    if (!add_blocks(workspace, channels, blocks, &c, sums))
        return;
    dbeta[c] = (float)sums[0];
    dgamma[c] = (float)sums[1];
}

/* dx may be dy or x. */
template <typename T>
static __global__ void group_norm_dx(const T *dy, const T *x, const float *gamma, const set_values *values, T *dx,
                                     set_shape s, int64_t count)
{
    EACH(i, count)
    {
        int64_t channel = i % s.channels;
        const set_values &v = values_at(values, s, i / s.channels, channel);
        float slope = gamma[channel] * widen(dy[i]);
        dx[i] = narrow<T>(v.n.inverse * (slope - v.mean - v.n.xhat(widen(x[i])) * v.slope));
    }
}

template <typename T> static void start_gradient(lk_gpu_stream *stream, const lk_gpu_group_norm_grad *a, set_shape s)
{
    int64_t rows = a->images * a->pixels, most = (rows + LK_GPU_SUM_BLOCKS - 1) / LK_GPU_SUM_BLOCKS;
    int64_t rows_a_block = most > LK_GPU_SUM_ROWS ? most : (int64_t)LK_GPU_SUM_ROWS;
    int blocks = (int)((rows + rows_a_block - 1) / rows_a_block);
    const T *dy = (const T *)a->dy, *x = (const T *)a->x;
    double *sums = a->workspace + s.sets * LK_GPU_SET_DOUBLES;
    set_values *values = (set_values *)a->workspace;
    LK_GPU_RUN_TOGETHER(group_norm_sets<T>, blocks_for_warps(s.sets), dim3(32, WARPS), stream, dy, x, a->gamma, values,
                        s, a->epsilon);
    LK_GPU_RUN_TOGETHER(group_norm_rows<T>, dim3((unsigned)((a->channels + COLUMNS - 1) / COLUMNS), (unsigned)blocks),
                        THREADS, stream, dy, x, values, sums, s, rows, rows_a_block);
    LK_GPU_RUN_TOGETHER(group_norm_finish, finish_blocks(a->channels, 1), THREADS, stream, sums, a->dgamma, a->dbeta,
                        a->channels, blocks);
    LK_GPU_RUN(group_norm_dx<T>, blocks_for(rows * a->channels), THREADS, stream, dy, x, a->gamma, values, (T *)a->dx,
               s, rows * a->channels);
}

static __global__ void group_norm_zero(float *dgamma, float *dbeta, int64_t channels)
{
    EACH(c, channels)
    {
        dgamma[c] = 0;
        dbeta[c] = 0;
    }
}

lk_gpu_status lk__gpu_group_norm_grad(lk_gpu_stream *stream, const lk_gpu_group_norm_grad *a)
{
    set_shape s = shape_of(a->images, a->pixels, a->channels, a->groups);
    if (a->channels == 0)
        return LK_GPU_OK;
    if (a->images * a->pixels == 0)
        LK_GPU_RUN(group_norm_zero, blocks_for(a->channels), THREADS, stream, a->dgamma, a->dbeta, a->channels);
    else
        FOR_FLOATS(a->dtype, start_gradient<T>(stream, a, s))
    return lk__gpu_launched("group_norm_grad");
}
