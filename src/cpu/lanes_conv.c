#include "cpu/avx2.h"
#include "cpu/lanes.h"
#include "cpu/lanes_tiles.h"

#include <math.h>
#include <string.h>

enum { TILE = LK_LANES_TILE, PAIR = LK_LANES_PAIR };

typedef lk_lanes_range range;

/* Taps of an axis that lie inside the input for output `o`. */
static inline range taps(const lk_lanes_conv *conv, int axis, int64_t o)
{
    int64_t first = o - conv->padding[axis], last = conv->in[axis] - first;
    return (range){first < 0 ? -first : 0, last < conv->kernel[axis] ? last : conv->kernel[axis]};
}

static int64_t volume(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

size_t lk__lanes_packed_count(const lk_lanes_conv *conv)
{
    return (size_t)(conv->out[2] * conv->kernel[0] * conv->kernel[1] * conv->in[2]);
}

/* [tile][KH][KW][in channel][channels of the tile] */
void lk__lanes_pack(const lk_lanes_conv *conv, const float *w, bool for_gradient, float *packed)
{
    int64_t kh = conv->kernel[0], kw = conv->kernel[1], in = conv->in[2], out = conv->out[2];
    int64_t stride_out = (for_gradient ? 1 : in) * kh * kw, stride_in = (for_gradient ? out : 1) * kh * kw;
    lk_lanes_tiling tiling = lk__lanes_tiling(out);
    for (int64_t t = 0; t < tiling.tiles; t++) {
        lk_lanes_tile tile = lk__lanes_tile(&tiling, t);
        for (int64_t tap = 0; tap < kh * kw; tap++)
            for (int64_t i = 0; i < in; i++)
                for (int64_t o = tile.first; o < tile.first + tile.n; o++)
                    *packed++ = w[o * stride_out + i * stride_in + (for_gradient ? kh * kw - 1 - tap : tap)];
    }
}

bool lk__lanes_supported(void)
{
    return lk__has_avx2();
}

lk_lanes_block lk__lanes_block_of(const lk_lanes_conv *conv)
{
    return (lk_lanes_block){.conv = *conv,
                            .pool = {.images = conv->images,
                                     .channels = conv->out[2],
                                     .in = {conv->out[0], conv->out[1]},
                                     .out = {conv->out[0], conv->out[1]},
                                     .kernel = {1, 1},
                                     .stride = {1, 1}}};
}

/* Of one block of images. */
static size_t saved_bytes(const lk_lanes_block *block)
{
    const lk_lanes_pool *pool = &block->pool;
    if (block->max)
        return (size_t)(pool->out[0] * pool->out[1] * pool->channels * LK_LANES);
    return (size_t)(pool->in[0] * pool->in[1] * pool->channels);
}

size_t lk__lanes_saved_bytes(const lk_lanes_block *block)
{
    return (size_t)lk__lanes_blocks(block->conv.images) * saved_bytes(block);
}

#if defined(__x86_64__)

#include <immintrin.h>

/* All ones in the lanes of block `b` that hold an image. */
LK_AVX2 static __m256 image_mask(int64_t images, int64_t b)
{
    int64_t left = images - b * LK_LANES;
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(left > LK_LANES ? LK_LANES : (int)left), lane));
}

/* --- a tile of one pixel ------------------------------------------------------------------------------------------ */

/* Adds the products of `n` (column, channel) positions to a tile of two vectors by `tile` channels. */
LK_AVX2 static inline __attribute__((always_inline)) void multiply_run(const float *x0, const float *x1, const float *w,
                                                                       int64_t n, int tile, __m256 sum[PAIR][TILE])
{
    for (int64_t i = 0; i < n; i++) {
        __m256 a = _mm256_load_ps(x0 + i * LK_LANES), b = _mm256_load_ps(x1 + i * LK_LANES);
#pragma GCC unroll 6
        for (int o = 0; o < tile; o++) {
            __m256 weight = _mm256_broadcast_ss(w + i * tile + o);
            sum[0][o] = _mm256_fmadd_ps(a, weight, sum[0][o]);
            sum[1][o] = _mm256_fmadd_ps(b, weight, sum[1][o]);
        }
    }
}

typedef struct pixel {
    int64_t row, column; /* of the output */
    range rows, columns; /* taps */
} pixel;

/* One tile of one output pixel of two blocks of images. w: the tile's packed weights. */
LK_INLINE void multiply(const lk_lanes_conv *conv, const float *const x[PAIR], const float *w, pixel p,
                        const float *bias, int tile, __m256 sum[PAIR][TILE])
{
    int64_t channels = conv->in[2], run = (p.columns.end - p.columns.begin) * channels;
#pragma GCC unroll 6
    for (int o = 0; o < tile; o++)
        sum[0][o] = sum[1][o] = _mm256_broadcast_ss(bias + o);
    for (int64_t tap = p.rows.begin; tap < p.rows.end; tap++) {
        int64_t row = p.row - conv->padding[0] + tap, column = p.column - conv->padding[1] + p.columns.begin;
        int64_t at = (row * conv->in[1] + column) * channels * LK_LANES;
        int64_t weights = (tap * conv->kernel[1] + p.columns.begin) * channels * tile;
        multiply_run(x[0] + at, x[1] + at, w + weights, run, tile, sum);
    }
}

/* --- a tile of one window ----------------------------------------------------------------------------------------- */

/* Two blocks of images. An odd last block is its own partner. */
typedef struct pair {
    const lk_lanes_block *block;
    const float *x[PAIR];
    float *y[PAIR];
    uint8_t *saved[PAIR];
    __m256 images[PAIR]; /* masks */
} pair;

typedef struct window {
    int64_t row, column; /* of the pooling's result */
    range rows, columns;
    int64_t top, left; /* where it begins, in the padding or not */
    float share;       /* of each element in the average */
} window;

static window window_of(const lk_lanes_block *block, int64_t row, int64_t column)
{
    const lk_lanes_pool *pool = &block->pool;
    window w = {.row = row, .column = column};
    w.rows = lk__lanes_window(pool, 0, row);
    w.columns = lk__lanes_window(pool, 1, column);
    w.top = row * pool->stride[0] - pool->padding[0];
    w.left = column * pool->stride[1] - pool->padding[1];
    w.share = 1 / lk__lanes_divisor(pool, w.rows, w.columns);
    return w;
}

/* What is not greater than 0 becomes +0, but for NaN. */
LK_INLINE __m256 rectified(__m256 x)
{
    return _mm256_and_ps(x, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NLE_UQ));
}

/* A bit for each lane. */
LK_INLINE uint8_t positive(__m256 x)
{
    return (uint8_t)_mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GT_OQ));
}

/* Adds one pixel to the average. signs: where relu's go. */
LK_INLINE void add_pixel(const pair *p, pixel at, const float *weights, const float *bias, int64_t signs, int tile,
                         __m256 pooled[PAIR][TILE])
{
    __m256 sum[PAIR][TILE]; /* only ever indexed by constants, so it lives in registers */
    multiply(&p->block->conv, p->x, weights, at, bias, tile, sum);
    if (p->block->relu) {
#pragma GCC unroll 6
        for (int o = 0; o < tile; o++) {
            p->saved[0][signs + o] = positive(sum[0][o]);
            p->saved[1][signs + o] = positive(sum[1][o]);
            sum[0][o] = rectified(sum[0][o]);
            sum[1][o] = rectified(sum[1][o]);
        }
    }
#pragma GCC unroll 6
    for (int o = 0; o < tile; o++) {
        pooled[0][o] = _mm256_add_ps(pooled[0][o], sum[0][o]);
        pooled[1][o] = _mm256_add_ps(pooled[1][o], sum[1][o]);
    }
}

LK_INLINE void average_tile(const pair *p, const window *w, int64_t first, const float *weights, const float *bias,
                            int tile)
{
    const lk_lanes_conv *conv = &p->block->conv;
    __m256 pooled[PAIR][TILE];
    for (int o = 0; o < tile; o++)
        pooled[0][o] = pooled[1][o] = _mm256_set1_ps(-0.0f); /* added to x that is x, also to -0 */
    for (int64_t row = w->rows.begin; row < w->rows.end; row++) {
        for (int64_t column = w->columns.begin; column < w->columns.end; column++) {
            pixel at = {row, column, taps(conv, 0, row), taps(conv, 1, column)};
            int64_t signs = (row * conv->out[1] + column) * conv->out[2] + first;
            add_pixel(p, at, weights, bias, signs, tile, pooled);
        }
    }
    int64_t to = ((w->row * p->block->pool.out[1] + w->column) * conv->out[2] + first) * LK_LANES;
    __m256 share = _mm256_set1_ps(w->share);
    for (int o = 0; o < tile; o++) {
        _mm256_store_ps(p->y[0] + to + o * LK_LANES, _mm256_and_ps(_mm256_mul_ps(pooled[0][o], share), p->images[0]));
        _mm256_store_ps(p->y[1] + to + o * LK_LANES, _mm256_and_ps(_mm256_mul_ps(pooled[1][o], share), p->images[1]));
    }
}

/* Maxima so far, and where in the window. */
typedef struct maxima {
    __m256 value[PAIR][TILE];
    __m256i winner[PAIR][TILE];
} maxima;

/* Takes x for the maximum where it is one; a NaN is greater than any number. */
LK_INLINE void take_maximum(__m256 x, __m256i index, __m256 *value, __m256i *winner)
{
    __m256 greater = _mm256_cmp_ps(x, *value, _CMP_NLE_UQ);
    greater = _mm256_and_ps(greater, _mm256_cmp_ps(*value, *value, _CMP_ORD_Q));
    *value = _mm256_blendv_ps(*value, x, greater);
    *winner = _mm256_blendv_epi8(*winner, index, _mm256_castps_si256(greater));
}

LK_INLINE void take_pixel(const pair *p, pixel at, const float *weights, const float *bias, int index, int tile,
                          maxima *m)
{
    __m256 sum[PAIR][TILE];
    __m256i here = _mm256_set1_epi32(index);
    multiply(&p->block->conv, p->x, weights, at, bias, tile, sum);
    if (p->block->relu) {
#pragma GCC unroll 6
        for (int o = 0; o < tile; o++) {
            sum[0][o] = rectified(sum[0][o]);
            sum[1][o] = rectified(sum[1][o]);
        }
    }
#pragma GCC unroll 6
    for (int o = 0; o < tile; o++) {
        take_maximum(sum[0][o], here, &m->value[0][o], &m->winner[0][o]);
        take_maximum(sum[1][o], here, &m->value[1][o], &m->winner[1][o]);
    }
}

/* Lowest bytes of the lanes. */
LK_INLINE void store_bytes(__m256i x, uint8_t *to)
{
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packus_epi16(words, words));
}

LK_INLINE void store_maxima(const pair *p, const maxima *m, int64_t to, int tile)
{
    for (int v = 0; v < PAIR; v++)
        for (int o = 0; o < tile; o++) {
            __m256 y = m->value[v][o];
            __m256i winner = m->winner[v][o], stopped = _mm256_set1_epi32(255);
            __m256 passes = _mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_GT_OQ);
            if (p->block->relu)
                winner = _mm256_blendv_epi8(stopped, winner, _mm256_castps_si256(passes));
            _mm256_store_ps(p->y[v] + to + o * LK_LANES, _mm256_and_ps(y, p->images[v]));
            store_bytes(winner, p->saved[v] + to + o * LK_LANES);
        }
}

LK_INLINE void maximum_tile(const pair *p, const window *w, int64_t first, const float *weights, const float *bias,
                            int tile)
{
    const lk_lanes_conv *conv = &p->block->conv;
    int64_t kernel = p->block->pool.kernel[1];
    int begin = (int)((w->rows.begin - w->top) * kernel + w->columns.begin - w->left);
    maxima m;
    for (int o = 0; o < tile; o++) {
        m.value[0][o] = m.value[1][o] = _mm256_set1_ps(-INFINITY);
        m.winner[0][o] = m.winner[1][o] = _mm256_set1_epi32(begin);
    }
    for (int64_t row = w->rows.begin; row < w->rows.end; row++) {
        for (int64_t column = w->columns.begin; column < w->columns.end; column++) {
            pixel at = {row, column, taps(conv, 0, row), taps(conv, 1, column)};
            take_pixel(p, at, weights, bias, (int)((row - w->top) * kernel + column - w->left), tile, &m);
        }
    }
    store_maxima(p, &m, ((w->row * p->block->pool.out[1] + w->column) * conv->out[2] + first) * LK_LANES, tile);
}

/* clang-format off */
#define TILE_OF(n)                                                                                                     \
    LK_AVX2 static void average_##n(const pair *p, const window *w, int64_t first, const float *weights,               \
                                    const float *bias)                                                                 \
    {                                                                                                                  \
        average_tile(p, w, first, weights, bias, n);                                                                   \
    }                                                                                                                  \
    LK_AVX2 static void maximum_##n(const pair *p, const window *w, int64_t first, const float *weights,               \
                                    const float *bias)                                                                 \
    {                                                                                                                  \
        maximum_tile(p, w, first, weights, bias, n);                                                                   \
    }
/* clang-format on */
TILE_OF(1)
TILE_OF(2)
TILE_OF(3)
TILE_OF(4)
TILE_OF(5)
TILE_OF(6)

typedef void (*window_fn)(const pair *p, const window *w, int64_t first, const float *weights, const float *bias);

static const window_fn average[TILE + 1] = {NULL, average_1, average_2, average_3, average_4, average_5, average_6};
static const window_fn maximum[TILE + 1] = {NULL, maximum_1, maximum_2, maximum_3, maximum_4, maximum_5, maximum_6};

LK_AVX2 static void all_windows(const pair *p, const float *packed, const float *bias)
{
    const lk_lanes_block *block = p->block;
    const lk_lanes_conv *conv = &block->conv;
    int64_t channels = conv->out[2], taps_each = conv->kernel[0] * conv->kernel[1] * conv->in[2];
    lk_lanes_tiling tiling = lk__lanes_tiling(channels);
    for (int64_t row = 0; row < block->pool.out[0]; row++) {
        for (int64_t column = 0; column < block->pool.out[1]; column++) {
            window w = window_of(block, row, column);
            for (int64_t t = 0; t < tiling.tiles; t++) {
                static const float zeros[TILE];
                lk_lanes_tile tile = lk__lanes_tile(&tiling, t);
                const window_fn *fn = block->max ? maximum : average;
                fn[tile.n](p, &w, tile.first, packed + tile.first * taps_each, bias ? bias + tile.first : zeros);
            }
        }
    }
}

LK_AVX2 void lk__lanes_block_pair(const lk_lanes_block *block, int64_t b, const float *const x[PAIR],
                                  const float *packed, const float *bias, float *y, uint8_t *saved)
{
    int64_t images = block->conv.images, partner = b + 1 < lk__lanes_blocks(images) ? b + 1 : b;
    int64_t out = block->pool.out[0] * block->pool.out[1] * block->pool.channels * LK_LANES;
    size_t bytes = saved_bytes(block);
    pair p = {.block = block,
              .x = {x[0], x[1]},
              .y = {y + b * out, y + partner * out},
              .images = {image_mask(images, b), image_mask(images, partner)}};
    if (saved) {
        p.saved[0] = saved + (size_t)b * bytes;
        p.saved[1] = saved + (size_t)partner * bytes;
    }
    all_windows(&p, packed, bias);
}

#else

void lk__lanes_block_pair(const lk_lanes_block *block, int64_t b, const float *const x[PAIR], const float *packed,
                          const float *bias, float *y, uint8_t *saved)
{
    (void)block, (void)b, (void)x, (void)packed, (void)bias, (void)y, (void)saved;
}

#endif

void lk__lanes_block_forward(const lk_lanes_block *block, const float *x, const float *packed, const float *bias,
                             float *y, uint8_t *saved)
{
    int64_t n = lk__lanes_blocks(block->conv.images), in = volume(block->conv.in) * LK_LANES;
    for (int64_t b = 0; b < n; b += PAIR) {
        const float *from[PAIR] = {x + b * in, x + (b + 1 < n ? b + 1 : b) * in};
        lk__lanes_block_pair(block, b, from, packed, bias, y, saved);
    }
}

void lk__lanes_conv2d(const lk_lanes_conv *conv, const float *x, const float *packed, const float *bias, float *y)
{
    lk_lanes_block block = lk__lanes_block_of(conv);
    lk__lanes_block_forward(&block, x, packed, bias, y, NULL);
}
