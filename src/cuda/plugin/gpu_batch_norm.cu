/* Sums over rows, and batch normalization. All of it is bound by memory bandwidth: each pass reads its arrays once, in
 * packs of channels, and every thread has loads of BATCH rows in flight. */
#include "cuda/plugin/gpu_row_sums.cuh"

#include <type_traits>

/* --- the threads' shares of the work ------------------------------------------------------------------------------ */

enum { BATCH = 4 };

/* The threads of a block cover a tile of `width` neighboring packs of channels, and `lanes` rows at once. */
enum { MAX_WIDTH = 32, MAX_WIDTH_SINGLE = 128, MAX_TILE_CHANNELS = 256 };

struct tiling {
    int64_t rows, channels; /* of a part */
    int64_t workspace;      /* of a part */
    unsigned parts;         /* blockIdx.z is the part */
    int tiles, width, lanes;
};

template <typename P> static tiling tiling_of(int64_t rows, int64_t channels, int64_t parts)
{
    int64_t columns = channels / P::COUNT, most = P::COUNT > 1 ? MAX_WIDTH : MAX_WIDTH_SINGLE;
    tiling t = {rows, channels, lk_gpu_sums_workspace(rows, channels), (unsigned)lk_gpu_parts(parts), 0, 0, 0};
    t.tiles = (int)((columns + most - 1) / most);
    t.width = (int)((columns + t.tiles - 1) / t.tiles);
    t.lanes = THREADS / t.width;
    return t;
}

/* A thread's position in its tile. */
struct position {
    int64_t channel; /* of the pack's first element */
    int lane;
    bool inside; /* false: the tile has no pack or no lane for this thread */
};

template <typename P> static inline __device__ position position_in(const tiling &t)
{
    int column = (int)threadIdx.x % t.width, lane = (int)threadIdx.x / t.width;
    int64_t channel = ((int64_t)blockIdx.x * t.width + column) * P::COUNT;
    return {channel, lane, lane < t.lanes && channel < t.channels};
}

/* The first element of this block's part of x, whose parts have t.rows rows. NULL for NULL. */
template <typename T> static inline __device__ T *part_of(T *x, const tiling &t)
{
    return x ? x + blockIdx.z * t.rows * t.channels : x;
}

/* Loops over the rows first, first + lanes, … below `end`: in batches of BATCH rows, whose first rows are `stride`
 * apart, then one row at a time. visit(n, offset, step) gets n rows, whose packs begin at `offset` and are `step`
 * apart.
 */
template <int N> using at_once = std::integral_constant<int, N>;

template <typename Visit>
static inline __device__ void each_batch(const tiling &t, const position &at, int64_t first, int64_t end,
                                         int64_t stride, Visit visit)
{
    int64_t step = t.lanes * t.channels, row = at.inside ? first : end;
    for (; row + (BATCH - 1) * t.lanes < end; row += stride)
        visit(at_once<BATCH>(), row * t.channels + at.channel, step);
    for (; row < end; row += t.lanes)
        visit(at_once<1>(), row * t.channels + at.channel, step);
}

template <typename P, int N>
static inline __device__ void load_packs(P (&packs)[N], const typename P::element *x, int64_t offset, int64_t step)
{
    for (int k = 0; k < N; k++)
        packs[k] = load<P>(x + offset + k * step);
}

/* --- sums over rows ----------------------------------------------------------------------------------------------- */

struct row_blocks {
    int64_t rows; /* of each block except the last */
    int count;
};

static row_blocks row_blocks_of(const tiling &t)
{
    int64_t most = LK_GPU_SUM_BLOCKS / t.tiles > 0 ? LK_GPU_SUM_BLOCKS / t.tiles : 1;
    int64_t rows = (t.rows + most - 1) / most;
    rows = rows > LK_GPU_SUM_ROWS ? rows : (int64_t)LK_GPU_SUM_ROWS;
    rows = (rows + t.lanes - 1) / t.lanes * t.lanes;
    return {rows, (int)((t.rows + rows - 1) / rows)};
}

/* Writes sum s of a block to workspace[(block * SUMS + s) * channels + channel]. */
template <typename P, int SUMS>
static __device__ void store_block(double (&sums)[SUMS * P::COUNT], double *workspace, const tiling &t,
                                   const position &at)
{
    add_lanes(sums, at.lane, t.lanes, t.width);
    if (at.lane > 0 || !at.inside)
        return;
    workspace += blockIdx.z * t.workspace;
    for (int s = 0; s < SUMS; s++)
        for (int i = 0; i < P::COUNT; i++)
            workspace[((int64_t)blockIdx.y * SUMS + s) * t.channels + at.channel + i] = sums[s * P::COUNT + i];
}

/* Loops over the rows of this block of threads. */
template <typename Visit>
static inline __device__ void each_batch_of_block(const tiling &t, const position &at, int64_t rows_a_block,
                                                  Visit visit)
{
    int64_t begin = blockIdx.y * rows_a_block, end = begin + rows_a_block < t.rows ? begin + rows_a_block : t.rows;
    each_batch(t, at, begin + at.lane, end, BATCH * t.lanes, visit);
}

/* Σ x and, with two sums, Σ x x; each product is exact in double before it is added. */
template <typename P, int SUMS>
static __global__ void __launch_bounds__(THREADS)
    add_rows(const typename P::element *x, double *workspace, tiling t, int64_t rows_a_block)
{
    position at = position_in<P>(t);
    x = part_of(x, t);
    double sums[SUMS * P::COUNT] = {};
    each_batch_of_block(t, at, rows_a_block, [&](auto n, int64_t offset, int64_t step) {
        const int N = decltype(n)::value;
        P xs[N];
        load_packs(xs, x, offset, step);
        for (int k = 0; k < N; k++) {
            float values[P::COUNT];
            xs[k].get(values);
            for (int i = 0; i < P::COUNT; i++) {
                double value = (double)values[i], *square = &sums[(SUMS - 1) * P::COUNT + i];
                sums[i] += value;
                if (SUMS > 1)
                    *square = fma(value, value, *square);
            }
        }
    });
    store_block<P, SUMS>(sums, workspace, t, at);
}

/* Launches add_rows, which writes the sums of each block of rows to `workspace`; *blocks is how many there are. */
template <int SUMS>
static lk_gpu_status add_blocks_of_rows(lk_gpu_stream *stream, const void *x, lk_dtype dtype, int64_t rows,
                                        int64_t channels, int64_t parts, double *workspace, int *blocks)
{
    FOR_PACKS(dtype, channels, address_of(x), {
        tiling t = tiling_of<P>(rows, channels, parts);
        row_blocks r = row_blocks_of(t);
        *blocks = r.count;
        if (r.count > 0)
            LK_GPU_RUN_TOGETHER((add_rows<P, SUMS>), dim3(t.tiles, r.count, t.parts), THREADS, stream->stream,
                                (const typename P::element *)x, workspace, t, r.rows);
    })
    return LK_GPU_OK;
}

static __global__ void finish_channel_sums(const double *workspace, double *sums, int64_t channels, int blocks,
                                           int64_t workspace_of_part)
{
    int64_t c;
    double both[2];
    if (!add_blocks(workspace + blockIdx.y * workspace_of_part, channels, blocks, &c, both))
        return;
    sums += blockIdx.y * 2 * channels;
    sums[c] = both[0];
    sums[channels + c] = both[1];
}

lk_gpu_status lk__gpu_channel_sums(lk_gpu_stream *stream, const lk_gpu_channel_sums *a)
{
    int blocks = 0;
    if (a->channels == 0)
        return LK_GPU_OK;
    LK_GPU_TRY(add_blocks_of_rows<2>(stream, a->x, a->dtype, a->rows, a->channels, a->parts, a->workspace, &blocks));
    LK_GPU_RUN_TOGETHER(finish_channel_sums, finish_blocks(a->channels, a->parts), THREADS, stream->stream,
                        a->workspace, a->sums, a->channels, blocks, lk_gpu_sums_workspace(a->rows, a->channels));
    return lk__gpu_launched("channel_sums");
}

lk_gpu_status lk__gpu_column_sums(lk_gpu_stream *stream, const lk_gpu_column_sums *a)
{
    int blocks = 0;
    if (a->columns == 0)
        return LK_GPU_OK;
    LK_GPU_TRY(add_blocks_of_rows<1>(stream, a->x, a->dtype, a->rows, a->columns, a->parts, a->workspace, &blocks));
    FOR_FLOATS(a->sums_dtype, LK_GPU_RUN_TOGETHER(finish_column_sums<T>, finish_blocks(a->columns, a->parts), THREADS,
                                                  stream->stream, a->workspace, (T *)a->sums, a->columns, blocks,
                                                  lk_gpu_sums_workspace(a->rows, a->columns)))
    return lk__gpu_launched("column_sums");
}

/* --- statistics --------------------------------------------------------------------------------------------------- */

struct moments {
    double mean, variance;
    double inverse; /* 1 / sqrt(variance + epsilon) */
};

/* Raises a variance that rounding has made negative to 0; keeps NaN. */
static inline __device__ moments channel_moments(const lk_gpu_statistics &s, int64_t channels, int64_t c, unsigned part)
{
    double mean, variance;
    if (s.sums) {
        const double *sums = s.sums + part * 2 * channels;
        mean = sums[c] / (double)s.count;
        variance = sums[channels + c] / (double)s.count - mean * mean;
        variance = variance < 0 ? 0 : variance;
    } else {
        mean = (double)s.mean[c];
        variance = (double)s.variance[c];
    }
    return {mean, variance, 1 / sqrt(variance + s.epsilon)};
}

/* The part of the mean that an f32 cannot hold. Subtracting the f32 mean from an element is nearly exact, and the rest
 * goes into the constant that is added later; so a mean that is large compared with the deviation costs no digits. */
static inline __device__ double rest_of(double mean)
{
    double near = (double)(float)mean;
    return near == mean ? 0 : mean - near;
}

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
        a.mean[c] = (float)(keep * (double)a.mean[c] + a.momentum * m.mean);
        a.variance[c] = (float)(keep * (double)a.variance[c] + a.momentum * (m.variance * unbiased));
    }
}

lk_gpu_status lk__gpu_running_statistics(lk_gpu_stream *stream, const lk_gpu_running_statistics *a)
{
    int64_t most = 0;
    for (int i = 0; i < a->n; i++)
        most = a->layer[i].channels > most ? a->layer[i].channels : most;
    if (most == 0)
        return LK_GPU_OK;
    LK_GPU_RUN(running_statistics, dim3(blocks_for(most), (unsigned)a->n), THREADS, stream->stream, *a);
    return lk__gpu_launched("running_statistics");
}

/* --- functions of each element ------------------------------------------------------------------------------------ */

/* The most blocks that share all rows: four for each multiprocessor of the largest GPUs. Affects only speed. */
enum { PASS_BLOCKS = 528 };

static dim3 pass_grid(const tiling &t)
{
    int64_t all = (t.rows + BATCH * t.lanes - 1) / (BATCH * t.lanes), most = PASS_BLOCKS / t.tiles;
    return dim3(t.tiles, (unsigned)(all < most ? all : most > 0 ? most : 1), t.parts);
}

template <typename Visit>
static inline __device__ void each_batch_of_pass(const tiling &t, const position &at, Visit visit)
{
    int64_t batch = (int64_t)BATCH * t.lanes;
    each_batch(t, at, blockIdx.y * batch + at.lane, t.rows, gridDim.y * batch, visit);
}

/* y = scale (x - origin) + shift */
struct line {
    float origin, scale, shift;

    inline __device__ float at(float x) const
    {
        return fmaf(scale, x - origin, shift);
    }
};

struct normalization {
    lk_gpu_statistics statistics;
    const float *gamma, *beta;

    inline __device__ line of(int64_t channels, int64_t c, unsigned part) const
    {
        moments m = channel_moments(statistics, channels, c, part);
        double scale = (double)gamma[c] * m.inverse;
        return {(float)m.mean, (float)scale, (float)((double)beta[c] - rest_of(m.mean) * scale)};
    }
};

struct gradient_of_sums {
    const double *dsums;

    inline __device__ line of(int64_t channels, int64_t c, unsigned part) const
    {
        const double *own = dsums + part * 2 * channels;
        return {0, (float)(2 * own[channels + c]), (float)own[c]};
    }
};

/* Sets own[] to the lines of a thread's channels. All threads of the block must take part. */
template <typename P, typename Lines>
static inline __device__ void find_lines(const Lines &lines, const tiling &t, const position &at, line (&own)[P::COUNT])
{
    __shared__ line shared[MAX_TILE_CHANNELS];
    int64_t first = (int64_t)blockIdx.x * t.width * P::COUNT;
    for (int i = (int)threadIdx.x; i < t.width * P::COUNT && first + i < t.channels; i += THREADS)
        shared[i] = lines.of(t.channels, first + i, blockIdx.z);
    __syncthreads();
    for (int i = 0; i < P::COUNT && at.inside; i++)
        own[i] = shared[at.channel - first + i];
}

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
    LK_GPU_RUN_TOGETHER((apply_lines<P, Lines, RESIDUAL>), pass_grid(t), THREADS, stream->stream, (const T *)x,
                        (const T *)residual, (T *)y, lines, t, act);
}

template <typename P> static void start_normalization(lk_gpu_stream *stream, const lk_gpu_normalize *a)
{
    normalization lines = {a->statistics, a->gamma, a->beta};
    tiling t = tiling_of<P>(a->rows, a->channels, a->parts);
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
        uint32_t first = (uint32_t)(group % groups) * WORDS, index = (uint32_t)d.indices[image];
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
            draw<ALIGNED>(d, (uint32_t)(at.channel + i) * pixels + first, index, n, words);
            UNROLLED
            for (int k = 0; k < WORDS; k++) {
                float value = own[i].at(values[k][i]);
                value = rounded<P>(value <= 0 ? 0 : value);
                value = words[k] < d.dropped ? 0 : widen(narrow<T>((float)((double)value * d.scale)));
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
    tiling t = tiling_of<P>(a->rows, a->channels, a->parts);
    dropping d = {a->indices, a->pixels, (uint64_t)ceil(a->rate * 0x1p32), 1 / (1 - a->rate), a->philox};
    if (a->pixels % 4 == 0)
        LK_GPU_RUN_TOGETHER((apply_and_drop<P, true>), pass_grid(t), THREADS, stream->stream, (const T *)a->x,
                            (T *)a->y, a->kept, lines, t, d);
    else
        LK_GPU_RUN_TOGETHER((apply_and_drop<P, false>), pass_grid(t), THREADS, stream->stream, (const T *)a->x,
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

lk_gpu_status lk__gpu_channel_sums_grad(lk_gpu_stream *stream, const lk_gpu_channel_sums_grad *a)
{
    gradient_of_sums lines = {a->dsums};
    if (a->rows == 0 || a->channels == 0)
        return LK_GPU_OK;
    FOR_PACKS(a->dtype, a->channels, address_of(a->x) | address_of(a->dx),
              (start_lines<P, NOTHING_ADDED>(stream, a->x, nullptr, a->dx, lines,
                                             tiling_of<P>(a->rows, a->channels, a->parts), false)))
    return lk__gpu_launched("channel_sums_grad");
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* Sets dy to 0 where y is not above 0. */
template <typename P> static inline __device__ void mask(float (&dy)[P::COUNT], const P &y)
{
    float values[P::COUNT];
    y.get(values);
    for (int i = 0; i < P::COUNT; i++)
        dy[i] = values[i] > 0 ? dy[i] : 0;
}

/* Sets dy to 0 where the lines' y, rounded as it was when it was written, is not above 0. */
template <typename P>
static inline __device__ void mask(float (&dy)[P::COUNT], const float (&x)[P::COUNT], const line (&lines)[P::COUNT])
{
    for (int i = 0; i < P::COUNT; i++)
        dy[i] = rounded<P>(lines[i].at(x[i])) > 0 ? dy[i] : 0;
}

enum masking { NOT_MASKED, MASKED_BY_Y, MASKED_BY_X, DROPPED };

/* The y of MASKED_BY_Y; the bits of DROPPED, and what elements that are kept are multiplied by. */
template <typename T> struct masks {
    const T *y;
    const uint8_t *kept;
    double scale;

    inline __device__ masks of_part(const tiling &t, int count) const
    {
        return {part_of(y, t), kept ? kept + blockIdx.z * t.rows * t.channels / count : kept, scale};
    }
};

/* The operands of a gradient in N rows: dy, what is added to it with MORE, x if X, and what masks dy. */
template <typename P, int N, bool X, masking MASK, bool MORE> struct gradient_rows {
    P dys[N], more[N], xs[N], ys[N];
    unsigned kept[N];
    double scale;

    inline __device__ gradient_rows(const typename P::element *dy, const typename P::element *more_dy,
                                    const typename P::element *x, const masks<typename P::element> &mask,
                                    int64_t offset, int64_t step)
        : scale(mask.scale)
    {
        load_packs(dys, dy, offset, step);
        if (MORE)
            load_packs(more, more_dy, offset, step);
        if (X)
            load_packs(xs, x, offset, step);
        if (MASK == MASKED_BY_Y)
            load_packs(ys, mask.y, offset, step);
        for (int k = 0; k < N && MASK == DROPPED; k++)
            kept[k] = mask.kept[(offset + k * step) / P::COUNT];
    }

    inline __device__ void get_unmasked(int k, float (&d)[P::COUNT]) const
    {
        float added[P::COUNT];
        dys[k].get(d);
        if (!MORE)
            return;
        more[k].get(added);
        for (int i = 0; i < P::COUNT; i++)
            d[i] = rounded<P>(d[i] + added[i]);
    }

    /* lines: of MASKED_BY_X. */
    inline __device__ void get(int k, const line (&lines)[P::COUNT], float (&d)[P::COUNT],
                               float (&values)[P::COUNT]) const
    {
        get_unmasked(k, d);
        if (X)
            xs[k].get(values);
        if (MASK == MASKED_BY_Y)
            mask(d, ys[k]);
        if (MASK == MASKED_BY_X)
            mask<P>(d, values, lines);
        for (int i = 0; i < P::COUNT && MASK == DROPPED; i++)
            d[i] = kept[k] >> i & 1 ? rounded<P>((float)((double)d[i] * scale)) : 0;
    }
};

/* Σ dy and Σ dy x; each product is exact in double before it is added. */
template <typename P, masking MASK, bool MORE>
static __global__ void __launch_bounds__(THREADS)
    add_gradients(const typename P::element *dy, const typename P::element *more, masks<typename P::element> mask,
                  const typename P::element *x, typename P::element *dresidual, normalization forward,
                  double *workspace, tiling t, int64_t rows_a_block)
{
    position at = position_in<P>(t);
    line lines[P::COUNT] = {};
    if (MASK == MASKED_BY_X)
        find_lines<P>(forward, t, at, lines);
    dy = part_of(dy, t);
    more = part_of(more, t);
    mask = mask.of_part(t, P::COUNT);
    x = part_of(x, t);
    dresidual = part_of(dresidual, t);
    double sums[2 * P::COUNT] = {};
    each_batch_of_block(t, at, rows_a_block, [&](auto n, int64_t offset, int64_t step) {
        const int N = decltype(n)::value;
        gradient_rows<P, N, true, MASK, MORE> rows(dy, more, x, mask, offset, step);
        for (int k = 0; k < N; k++) {
            float d[P::COUNT], values[P::COUNT];
            if (MASK == MASKED_BY_X && MORE) {
                rows.get_unmasked(k, d);
                store<P>(dresidual + offset + k * step, d);
            }
            rows.get(k, lines, d, values);
            if (MASK == MASKED_BY_Y && dresidual)
                store<P>(dresidual + offset + k * step, d);
            for (int i = 0; i < P::COUNT; i++) {
                sums[i] += (double)d[i];
                sums[P::COUNT + i] = fma((double)d[i], (double)values[i], sums[P::COUNT + i]);
            }
        }
    });
    store_block<P, 2>(sums, workspace, t, at);
}

/* dx = a dy + b (x - mean) + c. Each array has a value for each channel. The line (mean, a, shift) is that of the
 * forward pass if dy is masked by x. */
struct planes {
    float *a, *b, *mean, *c, *shift;

    /* Those of a part, which are in its workspace. */
    inline __device__ planes of_part(unsigned part, int64_t workspace) const
    {
        int64_t at = part * workspace * (int64_t)(sizeof(double) / sizeof(float));
        return {a + at, b + at, mean + at, c + at, shift + at};
    }
};

/* dgamma = Σ dy (x - mean) inverse, dbeta = Σ dy, and
 *   dx = gamma inverse (dy - dbeta / count - (x - mean) inverse dgamma / count)
 * if the normalization used x's own sums, otherwise dx = gamma inverse dy. With mean = s1 / count and
 * variance = s2 / count - mean^2:
 *   dmean = -gamma inverse dbeta,  dvariance = -gamma inverse^2 dgamma / 2,
 *   ds1 = (dmean - 2 mean dvariance) / count,  ds2 = dvariance / count. */
static __global__ void finish_gradients(lk_gpu_normalize_grad g, int blocks, planes all, int64_t workspace_of_part)
{
    int64_t c;
    double sums[2];
    unsigned part = blockIdx.y;
    if (!add_blocks(g.workspace + part * workspace_of_part, g.channels, blocks, &c, sums))
        return;
    planes dx = all.of_part(part, workspace_of_part);
    moments m = channel_moments(g.statistics, g.channels, c, part);
    double count = (double)g.statistics.count, scale = (double)g.gamma[c] * m.inverse;
    double dbeta = sums[0], dgamma = blocks > 0 ? (sums[1] - m.mean * sums[0]) * m.inverse : 0;
    bool through = g.through == LK_GPU_THROUGH_SUMS;
    double b = through ? -scale * m.inverse * dgamma / count : 0;
    g.dgamma[part * g.channels + c] = (float)dgamma;
    g.dbeta[part * g.channels + c] = (float)dbeta;
    dx.a[c] = (float)scale;
    dx.b[c] = (float)b;
    dx.mean[c] = (float)m.mean;
    if (g.act_beta)
        dx.shift[c] = normalization{g.statistics, g.gamma, g.act_beta}.of(g.channels, c, part).shift;
    dx.c[c] = through ? (float)(-scale * dbeta / count - b * rest_of(m.mean)) : 0;
    if (g.through == LK_GPU_SUMS_HELD) {
        double dvariance = -scale * m.inverse * dgamma / 2, *dsums = g.dsums + part * 2 * g.channels;
        dsums[c] = (-scale * dbeta - 2 * m.mean * dvariance) / count;
        dsums[g.channels + c] = dvariance / count;
    }
}

/* Computes dx as `planes` says; without X, dx = a dy. With SUMS each block of threads takes rows_a_block rows and
 * writes their sums of dx to the workspace, as add_rows does. */
template <typename P, bool X, masking MASK, bool SUMS>
static __global__ void __launch_bounds__(THREADS, 2)
    apply_planes(const typename P::element *dy, masks<typename P::element> mask, const typename P::element *x,
                 typename P::element *dx, planes all, double *workspace, tiling t, int64_t rows_a_block)
{
    position at = position_in<P>(t);
    planes planes = all.of_part(blockIdx.z, t.workspace);
    dy = part_of(dy, t);
    mask = mask.of_part(t, P::COUNT);
    x = part_of(x, t);
    dx = part_of(dx, t);
    float a[P::COUNT] = {}, b[P::COUNT] = {}, mean[P::COUNT] = {}, c[P::COUNT] = {};
    line lines[P::COUNT] = {};
    for (int i = 0; i < P::COUNT && at.inside; i++) {
        a[i] = planes.a[at.channel + i];
        b[i] = planes.b[at.channel + i];
        mean[i] = planes.mean[at.channel + i];
        c[i] = planes.c[at.channel + i];
        if (MASK == MASKED_BY_X)
            lines[i] = {mean[i], a[i], planes.shift[at.channel + i]};
    }
    double sums[P::COUNT] = {};
    auto visit = [&](auto n, int64_t offset, int64_t step) {
        const int N = decltype(n)::value;
        gradient_rows<P, N, X, MASK, false> rows(dy, nullptr, x, mask, offset, step);
        for (int k = 0; k < N; k++) {
            float d[P::COUNT], values[P::COUNT];
            rows.get(k, lines, d, values);
            for (int i = 0; i < P::COUNT; i++) {
                d[i] = X ? fmaf(a[i], d[i], fmaf(b[i], values[i] - mean[i], c[i])) : a[i] * d[i];
                if (SUMS)
                    sums[i] += (double)rounded<P>(d[i]);
            }
            store<P>(dx + offset + k * step, d);
        }
    };
    if (!SUMS) {
        each_batch_of_pass(t, at, visit);
        return;
    }
    each_batch_of_block(t, at, rows_a_block, visit);
    store_block<P, 1>(sums, workspace, t, at);
}

/* Launches the kernels of an lk_gpu_normalize_grad with the packs P. */
template <typename P> struct gradients {
    typedef typename P::element T;
    lk_gpu_stream *stream;
    lk_gpu_normalize_grad g;
    tiling t;
    row_blocks r;
    planes dx;

    masks<T> mask() const
    {
        return {(const T *)g.act_y, g.kept, 1 / (1 - g.rate)};
    }

    template <masking MASK, bool MORE> void add()
    {
        normalization forward = {g.statistics, g.gamma, g.act_beta};
        LK_GPU_RUN_TOGETHER((add_gradients<P, MASK, MORE>), dim3(t.tiles, r.count, t.parts), THREADS, stream->stream,
                            (const T *)g.dy, (const T *)g.more, mask(), (const T *)g.x, (T *)g.dresidual, forward,
                            g.workspace, t, r.rows);
    }

    template <masking MASK> void add()
    {
        g.more ? add<MASK, true>() : add<MASK, false>();
    }

    template <bool X, masking MASK, bool SUMS> void apply_to(dim3 grid)
    {
        LK_GPU_RUN_TOGETHER((apply_planes<P, X, MASK, SUMS>), grid, THREADS, stream->stream, (const T *)g.dy, mask(),
                            (const T *)g.x, (T *)g.dx, dx, g.workspace, t, r.rows);
    }

    /* The sums of blocks take the place of those of dy, which have been added. */
    template <masking MASK> void apply()
    {
        if (g.dx_sums)
            apply_to<true, MASK, true>(dim3(t.tiles, r.count, t.parts));
        else
            apply_to<true, MASK, false>(pass_grid(t));
    }

    void start()
    {
        if (r.count > 0)
            g.kept       ? add<DROPPED, false>()
            : g.act_beta ? add<MASKED_BY_X>()
            : g.act_y    ? add<MASKED_BY_Y>()
                         : add<NOT_MASKED, false>();
        LK_GPU_RUN_TOGETHER(finish_gradients, finish_blocks(g.channels, t.parts), THREADS, stream->stream, g, r.count,
                            dx, t.workspace);
        if (g.dresidual) { /* it now holds dy, masked by act_y, or unmasked */
            g.dy = g.dresidual;
            g.act_y = nullptr;
        }
        if (r.count > 0 && g.through == LK_GPU_THROUGH_SUMS)
            g.kept       ? apply<DROPPED>()
            : g.act_beta ? apply<MASKED_BY_X>()
            : g.act_y    ? apply<MASKED_BY_Y>()
                         : apply<NOT_MASKED>();
        else if (r.count > 0)
            g.act_y ? apply_to<false, MASKED_BY_Y, false>(pass_grid(t))
                    : apply_to<false, NOT_MASKED, false>(pass_grid(t));
        if (g.dx_sums)
            LK_GPU_RUN_TOGETHER(finish_column_sums<float>, finish_blocks(g.channels, t.parts), THREADS, stream->stream,
                                g.workspace, g.dx_sums, g.channels, r.count, t.workspace);
    }
};

template <typename P> static void start_gradients(lk_gpu_stream *stream, const lk_gpu_normalize_grad *g)
{
    tiling t = tiling_of<P>(g->rows, g->channels, g->parts);
    row_blocks r = row_blocks_of(t);
    /* The constants are in the workspace, behind the sums of the blocks. */
    float *constants = (float *)(g->workspace + 2 * g->channels * r.count);
    planes dx = {constants, constants + g->channels, constants + 2 * g->channels, constants + 3 * g->channels,
                 constants + 4 * g->channels};
    gradients<P>{stream, *g, t, r, dx}.start();
}

lk_gpu_status lk__gpu_normalize_grad(lk_gpu_stream *stream, const lk_gpu_normalize_grad *a)
{
    if (a->channels == 0)
        return LK_GPU_OK;
    uintptr_t addresses = address_of(a->dy) | address_of(a->more) | address_of(a->act_y) | address_of(a->x) |
                          address_of(a->dx) | address_of(a->dresidual);
    FOR_PACKS(a->dtype, a->channels, addresses, start_gradients<P>(stream, a))
    return lk__gpu_launched("normalize_grad");
}
