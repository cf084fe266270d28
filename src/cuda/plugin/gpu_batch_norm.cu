/* Batch normalization with what follows it: a residual, relu, dropout. Bound by memory bandwidth. */
#include "cuda/plugin/gpu_normalization.cuh"

/* --- running statistics ------------------------------------------------------------------------------------------- */

/* blockIdx.y is the layer. */
static __global__ void running_statistics(const lk_gpu_running_statistics all)
{
    const lk_gpu_running_layer &a = all.layer[blockIdx.y];
    if (a.skip && *a.skip != 0)
        return;
    double count = (double)a.statistics.count, unbiased = a.statistics.count > 1 ? count / (count - 1) : 1;
    double keep = 1 - a.momentum;
    EACH(c, a.channels)
    {
        moments m = channel_moments(a.statistics, a.channels, c, 0);
        double mean = keep == 0 ? 0 : keep * (double)a.mean[c]; /* 0 * NaN would be NaN */
        double variance = keep == 0 ? 0 : keep * (double)a.variance[c];
        a.mean[c] = (float)(mean + a.momentum * m.mean);
        a.variance[c] = (float)(variance + a.momentum * (m.variance * unbiased));
    }
}

lk_gpu_status lk__gpu_running_statistics(lk_gpu_stream *stream, const lk_gpu_running_statistics *a)
{
    int64_t most = 0;
    for (int i = 0; i < a->n; i++)
        most = a->layer[i].channels > most ? a->layer[i].channels : most;
    if (most == 0)
        return LK_GPU_OK;
    LK_GPU_RUN(running_statistics, dim3(blocks_for(most), (unsigned)a->n), THREADS, stream, *a);
    return lk__gpu_launched("running_statistics");
}

/* --- normalization ------------------------------------------------------------------------------------------------ */

/* A residual is added before relu, or to relu's rounded result. */
enum adding { NOTHING_ADDED, ADDED_FIRST, ADDED_LAST };

/* y = line(x) with the residual; with `act` relu of that, which keeps NaN. */
template <typename P, typename Lines, adding RESIDUAL>
static __global__ void __launch_bounds__(THREADS, RESIDUAL == NOTHING_ADDED ? 4 : 3)
    apply_lines(const typename P::element *x, const typename P::element *residual, typename P::element *y, Lines lines,
                tiling t, bool act)
{
    position at = position_in<P>(t);
    line own[P::COUNT] = {};
    find_lines<P>(lines, t, at, own);
    x = part_of(x, t);
    residual = part_of(residual, t);
    y = part_of(y, t);
    float least = act ? 0 : -INFINITY;
    each_batch_of_pass(t, at, [&](auto n, int64_t offset, int64_t step) {
        const int N = decltype(n)::value;
        P xs[N], rs[N];
        load_packs(xs, x, offset, step);
        if (RESIDUAL != NOTHING_ADDED)
            load_packs(rs, residual, offset, step);
        for (int k = 0; k < N; k++) {
            float values[P::COUNT], more[P::COUNT];
            xs[k].get(values);
            if (RESIDUAL != NOTHING_ADDED)
                rs[k].get(more);
            for (int i = 0; i < P::COUNT; i++) {
                float value = own[i].at(values[i]);
                value = RESIDUAL == ADDED_FIRST ? value + more[i] : value;
                value = value <= least ? least : value;
                values[i] = RESIDUAL == ADDED_LAST ? rounded<P>(value) + more[i] : value;
            }
            store<P>(y + offset + k * step, values);
        }
    });
}

template <typename P, adding RESIDUAL, typename Lines>
static void start_lines(lk_gpu_stream *stream, const void *x, const void *residual, void *y, Lines lines, tiling t,
                        bool act)
{
    typedef typename P::element T;
    LK_GPU_RUN_TOGETHER((apply_lines<P, Lines, RESIDUAL>), pass_grid(t, BATCH), THREADS, stream, (const T *)x,
                        (const T *)residual, (T *)y, lines, t, act);
}

template <typename P> static void start_normalization(lk_gpu_stream *stream, const lk_gpu_normalize *a)
{
    normalization lines = {a->statistics, a->gamma, a->beta};
    tiling t = tiling_of<P>(a->rows, a->channels, a->parts, 0);
    if (a->residual && a->residual_last)
        start_lines<P, ADDED_LAST>(stream, a->x, a->residual, a->y, lines, t, a->act);
    else if (a->residual)
        start_lines<P, ADDED_FIRST>(stream, a->x, a->residual, a->y, lines, t, a->act);
    else
        start_lines<P, NOTHING_ADDED>(stream, a->x, nullptr, a->y, lines, t, a->act);
}

/* Operands of dropout, for the rows of a part. */
struct dropping {
    const int64_t *indices;
    int64_t pixels;   /* of an image */
    uint64_t dropped; /* elements with a word below this are dropped */
    double scale;
    lk_gpu_philox philox;
};

/* The words of N neighboring pixels of a channel, of which `element` is the first. ALIGNED: it is a multiple of four.
 */
template <bool ALIGNED, int N>
static inline __device__ void draw(const dropping &d, uint32_t element, uint32_t index, int n, uint32_t (&words)[N])
{
    uint32_t drawn[2 * N] = {}, first = ALIGNED ? 0 : element % N;
    philox(d.philox, element / N, index, *(uint32_t(*)[N])drawn);
    if (!ALIGNED && (int)first + n > N)
        philox(d.philox, element / N + 1, index, *(uint32_t(*)[N])(drawn + N));
    UNROLLED
    for (int k = 0; k < N; k++) {
        words[k] = drawn[k];
        UNROLLED
        for (int by = 1; by < N && !ALIGNED; by++)
            words[k] = (int)first == by ? drawn[k + by] : words[k];
    }
}

/* y = dropout of relu of line(x). A thread takes up to four neighboring pixels, for which one block of Philox has words
 * if images have a multiple of four. */
template <typename P, bool ALIGNED>
static __global__ void __launch_bounds__(THREADS, 2)
    apply_and_drop(const typename P::element *x, typename P::element *y, uint8_t *kept, normalization lines, tiling t,
                   dropping d)
{
    const int WORDS = 4;
    typedef typename P::element T;
    position at = position_in<P>(t);
    line own[P::COUNT] = {};
    find_lines<P>(lines, t, at, own);
    x = part_of(x, t);
    y = part_of(y, t);
    kept += blockIdx.z * t.rows * t.channels / P::COUNT;
    uint32_t pixels = (uint32_t)d.pixels, groups = (pixels + WORDS - 1) / WORDS;
    int64_t images = t.rows / d.pixels, all = images * groups;
    d.indices += blockIdx.z * images;
    if (d.philox.epoch) {
        d.philox.counter[2] = (uint32_t)*d.philox.epoch;
        d.philox.counter[3] = (uint32_t)(*d.philox.epoch >> 32);
    }
    for (int64_t group = blockIdx.y * t.lanes + at.lane; at.inside && group < all; group += gridDim.y * t.lanes) {
        int64_t image = group / groups;
        uint32_t first = (uint32_t)(group % groups) * WORDS;
        uint64_t index = (uint64_t)d.indices[image];
        int n = ALIGNED || pixels - first >= WORDS ? WORDS : (int)(pixels - first);
        int64_t offset = (image * pixels + first) * t.channels + at.channel;
        float values[WORDS][P::COUNT] = {};
        unsigned bits[WORDS] = {};
        UNROLLED
        for (int k = 0; k < WORDS; k++)
            if (k < n)
                load<P>(x + offset + k * t.channels).get(values[k]);
        UNROLLED
        for (int i = 0; i < P::COUNT; i++) {
            uint32_t words[WORDS];
            draw<ALIGNED>(d, (uint32_t)(at.channel + i) * pixels + first, (uint32_t)index, n, words);
            UNROLLED
            for (int k = 0; k < WORDS; k++) {
                float value = own[i].at(values[k][i]);
                value = rounded<P>(value <= 0 ? 0 : value);
                value = words[k] < d.dropped ? 0 : widen(narrow<T>((float)((double)value * d.scale)));
                value = index > UINT32_MAX ? NAN : value;
                bits[k] |= value > 0 ? 1u << i : 0;
                values[k][i] = value;
            }
        }
        UNROLLED
        for (int k = 0; k < WORDS; k++) {
            if (k >= n)
                continue;
            store<P>(y + offset + k * t.channels, values[k]);
            kept[(offset + k * t.channels) / P::COUNT] = (uint8_t)bits[k];
        }
    }
}

template <typename P> static void start_dropping(lk_gpu_stream *stream, const lk_gpu_normalize *a)
{
    typedef typename P::element T;
    normalization lines = {a->statistics, a->gamma, a->beta};
    tiling t = tiling_of<P>(a->rows, a->channels, a->parts, 0);
    dropping d = {a->indices, a->pixels, (uint64_t)ceil(a->rate * 0x1p32), 1 / (1 - a->rate), a->philox};
    if (a->pixels % 4 == 0)
        LK_GPU_RUN_TOGETHER((apply_and_drop<P, true>), pass_grid(t, BATCH), THREADS, stream, (const T *)a->x, (T *)a->y,
                            a->kept, lines, t, d);
    else
        LK_GPU_RUN_TOGETHER((apply_and_drop<P, false>), pass_grid(t, BATCH), THREADS, stream, (const T *)a->x,
                            (T *)a->y, a->kept, lines, t, d);
}

lk_gpu_status lk__gpu_normalize(lk_gpu_stream *stream, const lk_gpu_normalize *a)
{
    if (a->rows == 0 || a->channels == 0)
        return LK_GPU_OK;
    if (a->kept) {
        FOR_PACKS(a->dtype, a->channels, address_of(a->x) | address_of(a->y), start_dropping<P>(stream, a))
        return lk__gpu_launched("normalize");
    }
    FOR_PACKS(a->dtype, a->channels, address_of(a->x) | address_of(a->y) | address_of(a->residual),
              start_normalization<P>(stream, a))
    return lk__gpu_launched("normalize");
}

/* --- with max pooling --------------------------------------------------------------------------------------------- */

/* A thread takes a pack of y: the maxima of relu(line(x)) + residual in a window. `t` is of y. */
template <typename P, bool RESIDUAL>
static __global__ void __launch_bounds__(THREADS, 2)
    pool_lines(const typename P::element *x, const typename P::element *residual, typename P::element *y,
               uint8_t *where, normalization lines, tiling t, windows w, int64_t part)
{
    position at = position_in<P>(t);
    line own[P::COUNT] = {};
    find_lines<P>(lines, t, at, own);
    x += blockIdx.z * part;
    residual += RESIDUAL ? blockIdx.z * part : 0;
    y = part_of(y, t);
    where = part_of(where, t);
    for (int64_t row = blockIdx.y * t.lanes + at.lane; at.inside && row < t.rows; row += gridDim.y * t.lanes) {
        int64_t first = w.first(row) * t.channels + at.channel;
        maxima<P> found;
        auto visit = [&](auto n, unsigned tap) {
            const int N = decltype(n)::value;
            P xs[N], rs[N];
            for (int k = 0; k < N; k++) {
                int64_t offset = first + (int64_t)w.distance(tap + k) * t.channels;
                xs[k] = load<P>(x + offset);
                if (RESIDUAL)
                    rs[k] = load<P>(residual + offset);
            }
            for (int k = 0; k < N; k++) {
                float values[P::COUNT], more[P::COUNT];
                xs[k].get(values);
                if (RESIDUAL)
                    rs[k].get(more);
                for (int i = 0; i < P::COUNT; i++) {
                    float value = own[i].at(values[i]);
                    value = rounded<P>(value <= 0 ? 0 : value);
                    found.take(i, RESIDUAL ? rounded<P>(value + more[i]) : value, tap + k);
                }
            }
        };
        unsigned tap = 0, taps = w.taps();
        for (; tap + BATCH <= taps; tap += BATCH)
            visit(at_once<BATCH>(), tap);
        for (; tap < taps; tap++)
            visit(at_once<1>(), tap);
        taps_of_pack<P> places;
        for (int i = 0; i < P::COUNT; i++)
            places.at[i] = (uint8_t)found.taps[i];
        store<P>(y + row * t.channels + at.channel, found.values);
        *in_one_access<taps_of_pack<P>>(where + row * t.channels + at.channel) = places;
    }
}

template <typename P, bool RESIDUAL> static void start_pooling(lk_gpu_stream *stream, const lk_gpu_normalize_pool *a)
{
    typedef typename P::element T;
    const lk_geometry &g = a->window;
    normalization lines = {a->statistics, a->gamma, a->beta};
    tiling t = tiling_of<P>(g.images * g.out[0] * g.out[1], g.channels, a->parts, 0);
    LK_GPU_RUN_TOGETHER((pool_lines<P, RESIDUAL>), pass_grid(t, 1), THREADS, stream, (const T *)a->x,
                        (const T *)a->residual, (T *)a->y, a->where, lines, t, windows_of(g),
                        g.images * g.in[0] * g.in[1] * g.channels);
}

lk_gpu_status lk__gpu_normalize_pool(lk_gpu_stream *stream, const lk_gpu_normalize_pool *a)
{
    uintptr_t addresses = address_of(a->x) | address_of(a->y) | address_of(a->residual) | address_of(a->where);
    if (a->window.images == 0 || a->window.channels == 0)
        return LK_GPU_OK;
    FOR_PACKS(a->dtype, a->window.channels, addresses,
              a->residual ? start_pooling<P, true>(stream, a) : start_pooling<P, false>(stream, a))
    return lk__gpu_launched("normalize_pool");
}

/* --- the gradient of sums ----------------------------------------------------------------------------------------- */

struct gradient_of_sums {
    const double *dsums;

    inline __device__ line of(int64_t channels, int64_t c, unsigned part) const
    {
        const double *own = dsums + part * 2 * channels;
        return {0, (float)(2 * own[channels + c]), (float)own[c]};
    }
};

lk_gpu_status lk__gpu_channel_sums_grad(lk_gpu_stream *stream, const lk_gpu_channel_sums_grad *a)
{
    gradient_of_sums lines = {a->dsums};
    if (a->rows == 0 || a->channels == 0)
        return LK_GPU_OK;
    FOR_PACKS(a->dtype, a->channels, address_of(a->x) | address_of(a->dx),
              (start_lines<P, NOTHING_ADDED>(stream, a->x, nullptr, a->dx, lines,
                                             tiling_of<P>(a->rows, a->channels, a->parts, 0), false)))
    return lk__gpu_launched("channel_sums_grad");
}
