/* Pooling of images: one thread computes a pack of channels of one pixel. */
#include "cuda/plugin/gpu_row_sums.cuh"
#include "cuda/plugin/gpu_windows.cuh"

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

/* Reads and writes packs of pooled images that are channels-last or PLAIN. */
template <typename P, bool PLAIN> struct pooled_images {
    static inline __device__ int64_t plain_offset(int64_t row, int64_t pixels, int64_t channel, int64_t channels)
    {
        int64_t image = row / pixels;
        return (image * channels + channel) * pixels + row - image * pixels;
    }

    /* `row` is a pixel of all images. */
    static inline __device__ void get(const typename P::element *x, int64_t row, int64_t pixels, int64_t channel,
                                      int64_t channels, float (&values)[P::COUNT])
    {
        if (!PLAIN) {
            load<P>(x + row * channels + channel).get(values);
            return;
        }
        x += plain_offset(row, pixels, channel, channels);
        for (int k = 0; k < P::COUNT; k++)
            values[k] = widen(x[k * pixels]);
    }

    static inline __device__ void put(typename P::element *y, int64_t row, int64_t pixels, int64_t channel,
                                      int64_t channels, const float (&values)[P::COUNT])
    {
        if (!PLAIN) {
            store<P>(y + row * channels + channel, values);
            return;
        }
        y += plain_offset(row, pixels, channel, channels);
        for (int k = 0; k < P::COUNT; k++)
            y[k * pixels] = narrow<typename P::element>(values[k]);
    }
};

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
        *in_one_access<max_indices<P>>(where + i * P::COUNT) = found;
    }
}

lk_gpu_status lk__gpu_max_pool(lk_gpu_stream *stream, const lk_gpu_max_pool *a)
{
    lk_geometry w = a->window;
    if (w.images == 0)
        return LK_GPU_OK;
    FOR_PACKS(a->dtype, w.channels, address_of(a->x) | address_of(a->y) | address_of(a->where),
              LK_GPU_RUN(max_pool<P>, blocks_for(packs_in<P>(w, w.out)), THREADS, stream, (const P::element *)a->x,
                         (P::element *)a->y, a->where, w))
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
                max_indices<P> chosen = *in_one_access<const max_indices<P>>(where + offset);
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
              LK_GPU_RUN(max_pool_grad<P>, blocks_for(packs_in<P>(w, w.in)), THREADS, stream, (const P::element *)a->dy,
                         a->where, (P::element *)a->dx, w))
    return lk__gpu_launched("max_pool_grad");
}

/* --- maximum of relu ---------------------------------------------------------------------------------------------- */

enum { NOT_ABOVE_0 = 255 };

template <typename P, bool PLAIN>
static __global__ void relu_max_pool(const typename P::element *x, typename P::element *y, uint8_t *where, windows w,
                                     int64_t count, int64_t channels)
{
    int64_t packs = channels / P::COUNT;
    EACH(i, count)
    {
        int64_t row = i / packs, channel = (i - row * packs) * P::COUNT, first = w.first(row) * channels + channel;
        maxima<P> found;
        for (unsigned tap = 0; tap < w.taps(); tap++) {
            float values[P::COUNT];
            load<P>(x + first + (int64_t)w.distance(tap) * channels).get(values);
            for (int k = 0; k < P::COUNT; k++)
                found.take(k, values[k] <= 0 ? 0 : values[k], tap);
        }
        taps_of_pack<P> places;
        for (int k = 0; k < P::COUNT; k++)
            places.at[k] = (uint8_t)(found.values[k] > 0 ? found.taps[k] : (unsigned)NOT_ABOVE_0);
        pooled_images<P, PLAIN>::put(y, row, w.out[0] * w.out[1], channel, channels, found.values);
        *in_one_access<taps_of_pack<P>>(where + i * P::COUNT) = places;
    }
}

template <typename P, bool PLAIN> static void run_relu_max(lk_gpu_stream *stream, const lk_gpu_relu_max_pool *a)
{
    typedef typename P::element T;
    const lk_geometry &w = a->window;
    int64_t count = packs_in<P>(w, w.out);
    LK_GPU_RUN((relu_max_pool<P, PLAIN>), blocks_for(count), THREADS, stream, (const T *)a->x, (T *)a->y, a->where,
               windows_of(w), count, w.channels);
}

lk_gpu_status lk__gpu_relu_max_pool(lk_gpu_stream *stream, const lk_gpu_relu_max_pool *a)
{
    lk_geometry w = a->window;
    if (w.images == 0)
        return LK_GPU_OK;
    FOR_PACKS(a->dtype, w.channels, address_of(a->x) | address_of(a->y) | address_of(a->where),
              a->y_is_plain ? run_relu_max<P, true>(stream, a) : run_relu_max<P, false>(stream, a))
    return lk__gpu_launched("relu_max_pool");
}

template <typename P, bool PLAIN>
static __global__ void relu_max_pool_grad(const typename P::element *dy, const uint8_t *where, typename P::element *dx,
                                          windows w, int64_t count, int64_t channels)
{
    int64_t packs = channels / P::COUNT;
    EACH(i, count)
    {
        int64_t row = i / packs, of_y;
        unsigned tap;
        float d[P::COUNT] = {};
        if (w.find(row, &of_y, &tap)) {
            int64_t channel = (i - row * packs) * P::COUNT;
            taps_of_pack<P> places = *in_one_access<const taps_of_pack<P>>(where + of_y * channels + channel);
            pooled_images<P, PLAIN>::get(dy, of_y, w.out[0] * w.out[1], channel, channels, d);
            for (int k = 0; k < P::COUNT; k++)
                d[k] = places.at[k] == tap ? 0 + d[k] : 0; /* as a sum: there is no -0 */
        }
        store<P>(dx + i * P::COUNT, d);
    }
}

template <typename P, bool PLAIN>
static void run_relu_max_grad(lk_gpu_stream *stream, const lk_gpu_relu_max_pool_grad *a)
{
    typedef typename P::element T;
    const lk_geometry &w = a->window;
    int64_t count = packs_in<P>(w, w.in);
    LK_GPU_RUN((relu_max_pool_grad<P, PLAIN>), blocks_for(count), THREADS, stream, (const T *)a->dy, a->where,
               (T *)a->dx, windows_of(w), count, w.channels);
}

lk_gpu_status lk__gpu_relu_max_pool_grad(lk_gpu_stream *stream, const lk_gpu_relu_max_pool_grad *a)
{
    lk_geometry w = a->window;
    if (w.images == 0)
        return LK_GPU_OK;
    FOR_PACKS(a->dtype, w.channels, address_of(a->dy) | address_of(a->dx) | address_of(a->where),
              a->dy_is_plain ? run_relu_max_grad<P, true>(stream, a) : run_relu_max_grad<P, false>(stream, a))
    return lk__gpu_launched("relu_max_pool_grad");
}

/* --- average ------------------------------------------------------------------------------------------------------ */

/* least: 0 with relu, else -infinity. Keeps NaN. */
template <typename P>
static inline __device__ void add_pack(double (&sum)[P::COUNT], const typename P::element *x, float least)
{
    float values[P::COUNT];
    load<P>(x).get(values);
    for (int k = 0; k < P::COUNT; k++)
        sum[k] += (double)(values[k] <= least ? least : values[k]);
}

template <typename P, bool PLAIN>
static __global__ void avg_pool(const typename P::element *x, typename P::element *y, lk_geometry w, float least)
{
    EACH(i, packs_in<P>(w, w.out))
    {
        pixel p = pixel_of(i, w.out, w.channels / P::COUNT, P::COUNT);
        range rows = covered_inputs(w, 0, p.at[0]), columns = covered_inputs(w, 1, p.at[1]);
        float divisor = (float)divisor_of(w, rows, columns), values[P::COUNT];
        double sum[P::COUNT] = {};
        for (int64_t row = rows.begin; row < rows.end; row++) {
            for (int64_t column = columns.begin; column < columns.end; column++)
                add_pack<P>(sum, x + pack_offset(p, w.in, row * w.in[1] + column, w.channels), least);
        }
        for (int k = 0; k < P::COUNT; k++)
            values[k] = (float)sum[k] / divisor;
        pooled_images<P, PLAIN>::put(y, i / (w.channels / P::COUNT), w.out[0] * w.out[1], p.channel, w.channels,
                                     values);
    }
}

/* The average of whole images: of the threads of a block, GLOBAL_WIDTH take neighboring packs of one image's channels,
 * and GLOBAL_LANES share its pixels. Lane l adds pixels l, l + GLOBAL_LANES, … in order, then a tree adds the lanes. */
enum { GLOBAL_WIDTH = 32, GLOBAL_LANES = THREADS / GLOBAL_WIDTH };

template <typename P>
static __global__ void __launch_bounds__(THREADS)
    global_avg_pool(const typename P::element *x, typename P::element *y, int64_t pixels, int64_t channels,
                    unsigned tiles, float least)
{
    int self = (int)threadIdx.x, lane = self / GLOBAL_WIDTH;
    int64_t image = blockIdx.x / tiles, pack = (int64_t)(blockIdx.x % tiles) * GLOBAL_WIDTH + self % GLOBAL_WIDTH;
    bool inside = pack * P::COUNT < channels;
    double sum[P::COUNT] = {};
    float values[P::COUNT];
    for (int64_t pixel = lane; pixel < pixels && inside; pixel += GLOBAL_LANES)
        add_pack<P>(sum, x + (image * pixels + pixel) * channels + pack * P::COUNT, least);
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
                               const lk_geometry &w, float least)
{
    int64_t packs = w.channels / P::COUNT;
    unsigned tiles = (unsigned)((packs + GLOBAL_WIDTH - 1) / GLOBAL_WIDTH);
    LK_GPU_RUN_TOGETHER(global_avg_pool<P>, (unsigned)w.images * tiles, THREADS, stream, x, y, w.in[0] * w.in[1],
                        w.channels, tiles, least);
}

/* dx may be relu_x. */
template <typename P, bool PLAIN>
static __global__ void avg_pool_grad(const typename P::element *dy, const typename P::element *relu_x,
                                     typename P::element *dx, lk_geometry w)
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
                pooled_images<P, PLAIN>::get(dy, (p.image * w.out[0] + row) * w.out[1] + column, w.out[0] * w.out[1],
                                             p.channel, w.channels, values);
                for (int k = 0; k < P::COUNT; k++)
                    sum[k] += values[k] * share;
            }
        }
        if (relu_x) {
            float values[P::COUNT];
            load<P>(relu_x + i * P::COUNT).get(values);
            for (int k = 0; k < P::COUNT; k++)
                sum[k] = values[k] > 0 ? sum[k] : 0;
        }
        store<P>(dx + i * P::COUNT, sum);
    }
}

template <typename P> static void run_average(lk_gpu_stream *stream, const lk_gpu_avg_pool *a)
{
    const lk_geometry &w = a->window;
    const typename P::element *x = (const typename P::element *)a->x;
    typename P::element *y = (typename P::element *)a->y;
    float least = a->relu ? 0 : -INFINITY;
    if (is_global(w))
        run_global_average<P>(stream, x, y, w, least);
    else if (a->y_is_plain)
        LK_GPU_RUN((avg_pool<P, true>), blocks_for(packs_in<P>(w, w.out)), THREADS, stream, x, y, w, least);
    else
        LK_GPU_RUN((avg_pool<P, false>), blocks_for(packs_in<P>(w, w.out)), THREADS, stream, x, y, w, least);
}

lk_gpu_status lk__gpu_avg_pool(lk_gpu_stream *stream, const lk_gpu_avg_pool *a)
{
    if (a->window.images == 0)
        return LK_GPU_OK;
    FOR_PACKS(a->dtype, a->window.channels, address_of(a->x) | address_of(a->y), run_average<P>(stream, a))
    return lk__gpu_launched("avg_pool");
}

template <typename P, bool PLAIN> static void run_average_grad(lk_gpu_stream *stream, const lk_gpu_avg_pool_grad *a)
{
    typedef typename P::element T;
    const lk_geometry &w = a->window;
    LK_GPU_RUN((avg_pool_grad<P, PLAIN>), blocks_for(packs_in<P>(w, w.in)), THREADS, stream, (const T *)a->dy,
               (const T *)a->relu_x, (T *)a->dx, w);
}

lk_gpu_status lk__gpu_avg_pool_grad(lk_gpu_stream *stream, const lk_gpu_avg_pool_grad *a)
{
    lk_geometry w = a->window;
    if (w.images == 0)
        return LK_GPU_OK;
    FOR_PACKS(a->dtype, w.channels, address_of(a->dy) | address_of(a->relu_x) | address_of(a->dx),
              a->dy_is_plain ? run_average_grad<P, true>(stream, a) : run_average_grad<P, false>(stream, a))
    return lk__gpu_launched("avg_pool_grad");
}
