/* Pooling of images: one thread computes a pack of channels of one pixel. */
#include "cuda/plugin/gpu_row_sums.cuh"

/* --- windows ------------------------------------------------------------------------------------------------------ */

/* A pixel of the result, and the pack's first channel. */
struct pixel {
    int64_t image, at[2], channel;
};

static inline __device__ pixel pixel_of(int64_t i, const int64_t *size, int64_t packs, int count)
{
    pixel p;
    p.channel = i % packs * count;
    i /= packs;
    p.at[1] = i % size[1];
    i /= size[1];
    p.at[0] = i % size[0];
    p.image = i / size[0];
    return p;
}

/* The offset of p's pack in pixel `plane`, in row-major order, of an image of `size`. */
static inline __device__ int64_t pack_offset(const pixel &p, const int64_t *size, int64_t plane, int64_t channels)
{
    return (p.image * size[0] * size[1] + plane) * channels + p.channel;
}

struct range {
    int64_t begin, end;
};

/* The inputs along an axis that the window of output `o` covers, without padding. */
static inline __device__ range covered_inputs(const lk_geometry &w, int axis, int64_t o)
{
    int64_t begin = o * w.stride[axis] - w.padding[axis], end = begin + w.kernel[axis];
    return {begin < 0 ? 0 : begin, end > w.in[axis] ? w.in[axis] : end};
}

/* The outputs along an axis whose windows cover input `i`. */
static inline __device__ range covering_outputs(const lk_geometry &w, int axis, int64_t i)
{
    int64_t reach = i + w.padding[axis], stride = w.stride[axis], kernel = w.kernel[axis];
    int64_t begin = reach < kernel ? 0 : (reach - kernel) / stride + 1, end = reach / stride + 1;
    return {begin, end > w.out[axis] ? w.out[axis] : end};
}

static inline __device__ int64_t divisor_of(const lk_geometry &w, range rows, range columns)
{
    if (w.count_padding)
        return w.kernel[0] * w.kernel[1];
    return (rows.end - rows.begin) * (columns.end - columns.begin);
}

/* The number of packs in images of `size`. */
template <typename P> static inline __host__ __device__ int64_t packs_in(const lk_geometry &w, const int64_t *size)
{
    return w.images * size[0] * size[1] * (w.channels / P::COUNT);
}

/* For each element of a P, the index of its maximum in the plane. */
template <typename P> struct max_indices {
    alignas(alignof(P) == 16 ? 16 : 4) int32_t at[P::COUNT];
};

/* --- maximum ------------------------------------------------------------------------------------------------------ */

template <typename P>
static __global__ void max_pool(const typename P::element *x, typename P::element *y, int32_t *where, lk_geometry w)
{
    EACH(i, packs_in<P>(w, w.out))
    {
        pixel p = pixel_of(i, w.out, w.channels / P::COUNT, P::COUNT);
        range rows = covered_inputs(w, 0, p.at[0]), columns = covered_inputs(w, 1, p.at[1]);
        float greatest[P::COUNT];
        max_indices<P> found;
        for (int k = 0; k < P::COUNT; k++) {
            greatest[k] = -INFINITY;
            found.at[k] = -1;
        }
        for (int64_t row = rows.begin; row < rows.end; row++) {
            for (int64_t column = columns.begin; column < columns.end; column++) {
                int64_t plane = row * w.in[1] + column;
                float values[P::COUNT];
                load<P>(x + pack_offset(p, w.in, plane, w.channels)).get(values);
                for (int k = 0; k < P::COUNT; k++) {
                    /* NaN replaces any number, and nothing replaces NaN. */
                    bool greater = !(values[k] <= greatest[k]) & (greatest[k] == greatest[k]);
                    bool taken = greater | (found.at[k] < 0);
                    greatest[k] = taken ? values[k] : greatest[k];
                    found.at[k] = taken ? (int32_t)plane : found.at[k];
                }
            }
        }
        store<P>(y + i * P::COUNT, greatest);
        *(max_indices<P> *)(where + i * P::COUNT) = found;
    }
}

lk_gpu_status lk__gpu_max_pool(lk_gpu_stream *stream, const lk_gpu_max_pool *a)
{
    lk_geometry w = a->window;
    if (w.images == 0)
        return LK_GPU_OK;
    FOR_PACKS(a->dtype, w.channels, address_of(a->x) | address_of(a->y) | address_of(a->where),
              LK_GPU_RUN(max_pool<P>, blocks_for(packs_in<P>(w, w.out)), THREADS, stream->stream,
                         (const P::element *)a->x, (P::element *)a->y, a->where, w))
    return lk__gpu_launched("max_pool");
}

template <typename P>
static __global__ void max_pool_grad(const typename P::element *dy, const int32_t *where, typename P::element *dx,
                                     lk_geometry w)
{
    EACH(i, packs_in<P>(w, w.in))
    {
        pixel p = pixel_of(i, w.in, w.channels / P::COUNT, P::COUNT);
        range rows = covering_outputs(w, 0, p.at[0]), columns = covering_outputs(w, 1, p.at[1]);
        int32_t self = (int32_t)(p.at[0] * w.in[1] + p.at[1]);
        float sum[P::COUNT] = {};
        for (int64_t row = rows.begin; row < rows.end; row++) {
            for (int64_t column = columns.begin; column < columns.end; column++) {
                int64_t offset = pack_offset(p, w.out, row * w.out[1] + column, w.channels);
                max_indices<P> chosen = *(const max_indices<P> *)(where + offset);
                float values[P::COUNT];
                load<P>(dy + offset).get(values);
                for (int k = 0; k < P::COUNT; k++)
                    sum[k] += chosen.at[k] == self ? values[k] : 0;
            }
        }
        store<P>(dx + i * P::COUNT, sum);
    }
}

lk_gpu_status lk__gpu_max_pool_grad(lk_gpu_stream *stream, const lk_gpu_max_pool_grad *a)
{
    lk_geometry w = a->window;
    if (w.images == 0)
        return LK_GPU_OK;
    FOR_PACKS(a->dtype, w.channels, address_of(a->dy) | address_of(a->dx) | address_of(a->where),
              LK_GPU_RUN(max_pool_grad<P>, blocks_for(packs_in<P>(w, w.in)), THREADS, stream->stream,
                         (const P::element *)a->dy, a->where, (P::element *)a->dx, w))
    return lk__gpu_launched("max_pool_grad");
}

/* --- average ------------------------------------------------------------------------------------------------------ */

template <typename P>
static __global__ void avg_pool(const typename P::element *x, typename P::element *y, lk_geometry w)
{
    EACH(i, packs_in<P>(w, w.out))
    {
        pixel p = pixel_of(i, w.out, w.channels / P::COUNT, P::COUNT);
        range rows = covered_inputs(w, 0, p.at[0]), columns = covered_inputs(w, 1, p.at[1]);
        float divisor = (float)divisor_of(w, rows, columns), values[P::COUNT];
        double sum[P::COUNT] = {};
        for (int64_t row = rows.begin; row < rows.end; row++) {
            for (int64_t column = columns.begin; column < columns.end; column++) {
                load<P>(x + pack_offset(p, w.in, row * w.in[1] + column, w.channels)).get(values);
                for (int k = 0; k < P::COUNT; k++)
                    sum[k] += (double)values[k];
            }
        }
        for (int k = 0; k < P::COUNT; k++)
            values[k] = (float)sum[k] / divisor;
        store<P>(y + i * P::COUNT, values);
    }
}

/* The average of whole images: of the threads of a block, GLOBAL_WIDTH take neighboring packs of one image's channels,
 * and GLOBAL_LANES share its pixels. Lane l adds pixels l, l + GLOBAL_LANES, … in order, then a tree adds the lanes. */
enum { GLOBAL_WIDTH = 32, GLOBAL_LANES = THREADS / GLOBAL_WIDTH };

template <typename P>
static __global__ void __launch_bounds__(THREADS) global_avg_pool(const typename P::element *x, typename P::element *y,
                                                                  int64_t pixels, int64_t channels, unsigned tiles)
{
    int self = (int)threadIdx.x, lane = self / GLOBAL_WIDTH;
    int64_t image = blockIdx.x / tiles, pack = (int64_t)(blockIdx.x % tiles) * GLOBAL_WIDTH + self % GLOBAL_WIDTH;
    bool inside = pack * P::COUNT < channels;
    double sum[P::COUNT] = {};
    float values[P::COUNT];
    for (int64_t pixel = lane; pixel < pixels && inside; pixel += GLOBAL_LANES) {
        load<P>(x + (image * pixels + pixel) * channels + pack * P::COUNT).get(values);
        for (int k = 0; k < P::COUNT; k++)
            sum[k] += (double)values[k];
    }
    add_lanes(sum, lane, GLOBAL_LANES, GLOBAL_WIDTH);
    if (lane > 0 || !inside)
        return;
    for (int k = 0; k < P::COUNT; k++)
        values[k] = (float)sum[k] / (float)pixels;
    store<P>(y + image * channels + pack * P::COUNT, values);
}

static bool is_global(const lk_geometry &w)
{
    bool covers = true;
    for (int axis = 0; axis < 2; axis++)
        covers = covers && w.out[axis] == 1 && w.padding[axis] == 0 && w.kernel[axis] == w.in[axis];
    return covers;
}

template <typename P>
static void run_global_average(lk_gpu_stream *stream, const typename P::element *x, typename P::element *y,
                               const lk_geometry &w)
{
    int64_t packs = w.channels / P::COUNT;
    unsigned tiles = (unsigned)((packs + GLOBAL_WIDTH - 1) / GLOBAL_WIDTH);
    LK_GPU_RUN_TOGETHER(global_avg_pool<P>, (unsigned)w.images * tiles, THREADS, stream->stream, x, y,
                        w.in[0] * w.in[1], w.channels, tiles);
}

template <typename P>
static __global__ void avg_pool_grad(const typename P::element *dy, typename P::element *dx, lk_geometry w)
{
    EACH(i, packs_in<P>(w, w.in))
    {
        pixel p = pixel_of(i, w.in, w.channels / P::COUNT, P::COUNT);
        range rows = covering_outputs(w, 0, p.at[0]), columns = covering_outputs(w, 1, p.at[1]);
        float sum[P::COUNT] = {};
        for (int64_t row = rows.begin; row < rows.end; row++) {
            for (int64_t column = columns.begin; column < columns.end; column++) {
                float share = 1 / (float)divisor_of(w, covered_inputs(w, 0, row), covered_inputs(w, 1, column));
                float values[P::COUNT];
                load<P>(dy + pack_offset(p, w.out, row * w.out[1] + column, w.channels)).get(values);
                for (int k = 0; k < P::COUNT; k++)
                    sum[k] += values[k] * share;
            }
        }
        store<P>(dx + i * P::COUNT, sum);
    }
}

/* Launches an average pooling, or its gradient. */
static lk_gpu_status run_average(lk_gpu_stream *stream, const void *from, void *to, lk_dtype dtype,
                                 const lk_geometry &w, bool backward)
{
    if (w.images == 0)
        return LK_GPU_OK;
    if (!backward && is_global(w)) {
        FOR_PACKS(dtype, w.channels, address_of(from) | address_of(to),
                  run_global_average<P>(stream, (const P::element *)from, (P::element *)to, w))
        return lk__gpu_launched("avg_pool");
    }
    FOR_PACKS(dtype, w.channels, address_of(from) | address_of(to),
              LK_GPU_RUN((backward ? avg_pool_grad<P> : avg_pool<P>),
                         blocks_for(packs_in<P>(w, backward ? w.in : w.out)), THREADS, stream->stream,
                         (const P::element *)from, (P::element *)to, w))
    return lk__gpu_launched(backward ? "avg_pool_grad" : "avg_pool");
}

lk_gpu_status lk__gpu_avg_pool(lk_gpu_stream *stream, const lk_gpu_avg_pool *a)
{
    return run_average(stream, a->x, a->y, a->dtype, a->window, false);
}

lk_gpu_status lk__gpu_avg_pool_grad(lk_gpu_stream *stream, const lk_gpu_avg_pool_grad *a)
{
    return run_average(stream, a->dy, a->dx, a->dtype, a->window, true);
}
