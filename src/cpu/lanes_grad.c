/* The gradient of conv, relu and pooling. Two blocks of images at a time, so that what passes between the steps stays
 * in the second-level cache: dy is spread over the pixels that the pooling read (dconv), dx is a convolution of that,
 * and the gradient of the weights is summed from it.
 *
 * That last sum is over pixels: dw[o][row][column][c] += dconv[pixel][o] * x[pixel + (row, column)][c], lane by lane. A
 * tile of output channels by neighbouring x stays in registers over a band of rows. For it dconv lies as
 * [pixel][tile], and x in groups of two channels, [group][H][W][2], so that what a tile reads is contiguous and all
 * taps of a band find it in the first-level cache. */
#include "cpu/avx2.h"
#include "cpu/lanes.h"
#include "cpu/lanes_tiles.h"

#include <string.h>

enum { TILE = LK_LANES_TILE, PAIR = LK_LANES_PAIR, GROUP = 2, BAND_PIXELS = 104, TILE_SUMS = 16 };

typedef lk_lanes_range range;

/* Rows and columns of the convolution's result that the pooling reads, from 0 on. */
static int64_t used(const lk_lanes_block *block, int axis)
{
    const lk_lanes_pool *pool = &block->pool;
    return lk__lanes_window(pool, axis, pool->out[axis] - 1).end;
}

static int64_t padded(const lk_lanes_conv *conv, int axis)
{
    return conv->in[axis] + 2 * conv->padding[axis];
}

static int64_t groups(const lk_lanes_conv *conv)
{
    return (conv->in[2] + GROUP - 1) / GROUP;
}

/* Channels of a group. */
static int64_t group_size(const lk_lanes_conv *conv, int64_t group)
{
    return conv->in[2] - group * GROUP < GROUP ? 1 : GROUP;
}

static int64_t band_rows(const lk_lanes_block *block)
{
    int64_t rows = BAND_PIXELS / used(block, 1);
    return rows < 1 ? 1 : rows < used(block, 0) ? rows : used(block, 0);
}

/* Tiles of neighbouring (column, channel) positions in a kernel's row. */
static int64_t position_tiles(const lk_lanes_conv *conv, int64_t group)
{
    return (conv->kernel[1] * group_size(conv, group) + PAIR - 1) / PAIR;
}

lk_lanes_conv lk__lanes_input_grad_conv(const lk_lanes_block *block)
{
    lk_lanes_conv conv = {.images = block->conv.images};
    for (int i = 0; i < 2; i++) {
        conv.in[i] = used(block, i);
        conv.out[i] = block->conv.in[i];
        conv.kernel[i] = block->conv.kernel[i];
        conv.padding[i] = block->conv.kernel[i] - 1 - block->conv.padding[i];
    }
    conv.in[2] = block->conv.out[2];
    conv.out[2] = block->conv.in[2];
    return conv;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

typedef struct memory {
    double *bias;                /* [out channels] */
    float *sums;                 /* of the lanes: [tile][group][kernel row][positions][TILE_SUMS] */
    float *tile;                 /* dconv of a band and a tile: [pixel][tile] */
    float *x;                    /* of a block of images, padded, in groups of channels */
    float *dconv;                /* of two blocks of images: [pixel][channel]; for dx alone */
    int32_t *offsets[GROUP + 1]; /* of x at each pixel of a band, in floats, by the size of the group */
    size_t n_sums;               /* floats */
} memory;

static size_t sums_count(const lk_lanes_block *block)
{
    const lk_lanes_conv *conv = &block->conv;
    int64_t positions = 0;
    for (int64_t g = 0; g < groups(conv); g++)
        positions += position_tiles(conv, g);
    return (size_t)(lk__lanes_tiling(conv->out[2]).tiles * conv->kernel[0] * positions * TILE_SUMS);
}

/* x in its own layout is in one group already. */
static bool needs_groups(const lk_lanes_conv *conv)
{
    return groups(conv) > 1 || conv->padding[0] > 0 || conv->padding[1] > 0;
}

static size_t x_count(const lk_lanes_conv *conv)
{
    return needs_groups(conv) ? (size_t)(padded(conv, 0) * padded(conv, 1) * conv->in[2] * LK_LANES) : 0;
}

/* Of one block of images. */
static size_t dconv_count(const lk_lanes_block *block)
{
    return (size_t)(used(block, 0) * used(block, 1) * block->conv.out[2] * LK_LANES);
}

static size_t band_pixels(const lk_lanes_block *block)
{
    return (size_t)(band_rows(block) * used(block, 1));
}

static size_t tile_count(const lk_lanes_block *block)
{
    return band_pixels(block) * TILE * LK_LANES;
}

/* Doubles before floats, in whole vectors. */
static size_t bias_count(const lk_lanes_block *block)
{
    return (size_t)(block->conv.out[2] + 3) / 4 * 4;
}

size_t lk__lanes_grad_bytes(const lk_lanes_block *block, bool input_grad)
{
    size_t floats = sums_count(block) + tile_count(block) + x_count(&block->conv);
    if (input_grad)
        floats += PAIR * dconv_count(block);
    floats += GROUP * band_pixels(block); /* offsets */
    return floats * sizeof(float) + bias_count(block) * sizeof(double);
}

static void fill_offsets(const lk_lanes_block *block, const memory *m)
{
    int32_t i = 0, width = (int32_t)padded(&block->conv, 1);
    for (int32_t row = 0; row < band_rows(block); row++)
        for (int32_t column = 0; column < used(block, 1); column++, i++)
            for (int32_t size = 1; size <= GROUP; size++)
                m->offsets[size][i] = (row * width + column) * size * LK_LANES;
}

static memory memory_of(const lk_lanes_block *block, bool input_grad, void *data)
{
    memory m = {.bias = data, .n_sums = sums_count(block)};
    m.sums = (float *)(void *)(m.bias + bias_count(block));
    m.tile = m.sums + m.n_sums;
    m.x = m.tile + tile_count(block);
    m.dconv = m.x + x_count(&block->conv);
    m.offsets[1] = (int32_t *)(void *)(m.dconv + (input_grad ? PAIR * dconv_count(block) : 0));
    m.offsets[2] = m.offsets[1] + band_pixels(block);
    fill_offsets(block, &m);
    return m;
}

#if defined(__x86_64__)

#include <immintrin.h>

/* --- dconv -------------------------------------------------------------------------------------------------------- */

/* A block of images. */
typedef struct image_block {
    const float *dy, *x;
    const uint8_t *saved;
} image_block;

/* All ones in the lanes whose bit is set. */
LK_INLINE __m256 lanes_of(uint8_t bits)
{
    __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi8((char)bits), lane), lane));
}

/* All ones in the lanes whose byte is `index`. */
LK_INLINE __m256 lanes_won(const uint8_t *winners, int index)
{
    __m256i lanes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)winners));
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(lanes, _mm256_set1_epi32(index)));
}

/* Where dy of one window goes in one row of its pixels. */
typedef struct window_span {
    const float *dy;
    const uint8_t *signs; /* of the first pixel */
    int64_t pixels, channels;
    float share;
    float *to;
    int64_t step; /* of `to`, from pixel to pixel */
} window_span;

LK_INLINE void spread_tile(const window_span *r, bool relu, int n)
{
    __m256 share = _mm256_set1_ps(r->share), d[TILE];
#pragma GCC unroll 6
    for (int o = 0; o < n; o++)
        d[o] = _mm256_mul_ps(_mm256_load_ps(r->dy + o * LK_LANES), share);
    const uint8_t *signs = r->signs;
    float *to = r->to;
    for (int64_t p = 0; p < r->pixels; p++, signs += r->channels, to += r->step) {
#pragma GCC unroll 6
        for (int o = 0; o < n; o++)
            _mm256_store_ps(to + o * LK_LANES, relu ? _mm256_and_ps(d[o], lanes_of(signs[o])) : d[o]);
    }
}

/* clang-format off */
#define SPREAD_TILE(n)                                                                                                 \
    LK_AVX2 static void spread_##n(const window_span *r, bool relu)                                                     \
    {                                                                                                                  \
        if (relu)                                                                                                      \
            spread_tile(r, true, n);                                                                                   \
        else                                                                                                           \
            spread_tile(r, false, n);                                                                                  \
    }
/* clang-format on */
SPREAD_TILE(1)
SPREAD_TILE(2)
SPREAD_TILE(3)
SPREAD_TILE(4)
SPREAD_TILE(5)
SPREAD_TILE(6)

typedef void (*spread_fn)(const window_span *r, bool relu);

static const spread_fn spread_tiles[TILE + 1] = {NULL, spread_1, spread_2, spread_3, spread_4, spread_5, spread_6};

/* dy of one window to one row of its pixels. to: [column][n]; tiling: of n. */
static void spread_average(const lk_lanes_block *block, const image_block *images, int64_t row, int64_t y,
                           range columns, float share, lk_lanes_tile tile, const lk_lanes_tiling *tiling, float *to)
{
    int64_t channels = block->conv.out[2];
    int64_t signs = (row * block->conv.out[1] + columns.begin) * channels + tile.first;
    window_span r = {.dy = images->dy + (y * channels + tile.first) * LK_LANES,
                     .pixels = columns.end - columns.begin,
                     .channels = block->relu ? channels : 0,
                     .share = share,
                     .to = to + columns.begin * tile.n * LK_LANES,
                     .step = (int64_t)tile.n * LK_LANES};
    for (int64_t t = 0; t < tiling->tiles; t++) {
        lk_lanes_tile part = lk__lanes_tile(tiling, t);
        window_span here = r;
        here.dy += part.first * LK_LANES;
        here.to += part.first * LK_LANES;
        here.signs = block->relu ? images->saved + signs + part.first : NULL;
        spread_tiles[part.n](&here, block->relu);
    }
}

LK_AVX2 static void spread_maximum(const lk_lanes_block *block, const image_block *images, int index, int64_t y,
                                   range columns, lk_lanes_tile tile, float *to)
{
    int64_t first = (y * block->conv.out[2] + tile.first) * LK_LANES;
    for (int64_t column = columns.begin; column < columns.end; column++, index++) {
        float *pixel = to + column * tile.n * LK_LANES;
        for (int64_t o = 0; o < tile.n; o++) {
            __m256 d = _mm256_load_ps(images->dy + first + o * LK_LANES);
            __m256 won = lanes_won(images->saved + first + o * LK_LANES, index);
            _mm256_store_ps(pixel + o * LK_LANES, _mm256_and_ps(d, won));
        }
    }
}

/* One row of dconv, of the channels of a tile. to: [column][n]. */
LK_AVX2 static void spread_row(const lk_lanes_block *block, const image_block *images, int64_t row, lk_lanes_tile tile,
                               float *to)
{
    const lk_lanes_pool *pool = &block->pool;
    int64_t from_top = row + pool->padding[0], window_row = from_top / pool->stride[0];
    int64_t in_window = from_top - window_row * pool->stride[0];
    bool gaps = pool->stride[1] > pool->kernel[1], covered = in_window < pool->kernel[0];
    if (gaps || !covered)
        memset(to, 0, (size_t)(used(block, 1) * tile.n * LK_LANES) * sizeof *to);
    if (!covered)
        return;
    range rows = lk__lanes_window(pool, 0, window_row);
    lk_lanes_tiling tiling = lk__lanes_tiling(tile.n);
    for (int64_t o = 0; o < pool->out[1]; o++) {
        range columns = lk__lanes_window(pool, 1, o);
        int64_t y = window_row * pool->out[1] + o, left = o * pool->stride[1] - pool->padding[1];
        if (block->max)
            spread_maximum(block, images, (int)(in_window * pool->kernel[1] + columns.begin - left), y, columns, tile,
                           to);
        else
            spread_average(block, images, row, y, columns, 1 / lk__lanes_divisor(pool, rows, columns), tile, &tiling,
                           to);
    }
}

LK_AVX2 static void spread(const lk_lanes_block *block, const image_block *images, range rows, lk_lanes_tile tile,
                           float *to)
{
    for (int64_t row = rows.begin; row < rows.end; row++, to += used(block, 1) * tile.n * LK_LANES)
        spread_row(block, images, row, tile, to);
}

/* --- the gradient of the weights ---------------------------------------------------------------------------------- */

/* Sums of the lanes of eight vectors: neighbours, then pairs, then halves. */
LK_INLINE __m256 sum_lanes(const __m256 v[8])
{
    __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

/* What a tile's sum is over. */
typedef struct band {
    const float *dconv, *x; /* of the tile; x of its first position */
    const int32_t *offsets; /* of x at each pixel: one loop over all of them, whose end is predicted */
    int64_t pixels;
} band;

/* sums[position][o] += over a band: dconv's channels against n_in neighbouring positions of x. */
LK_INLINE void correlate(const band *b, int n_out, int n_in, float *sums)
{
    __m256 sum[TILE_SUMS]; /* only ever indexed by constants, so it lives in registers */
    const float *dconv = b->dconv;
    for (int i = 0; i < TILE_SUMS; i++)
        sum[i] = _mm256_setzero_ps();
    for (int64_t p = 0; p < b->pixels; p++, dconv += n_out * LK_LANES) {
        const float *x = b->x + b->offsets[p];
        __m256 value[PAIR];
        for (int j = 0; j < n_in; j++)
            value[j] = _mm256_load_ps(x + j * LK_LANES);
        for (int o = 0; o < n_out; o++) {
            __m256 d = _mm256_load_ps(dconv + o * LK_LANES);
            __asm__("" : "+x"(d)); /* one load: as a memory operand of each product it would be PAIR of them */
            for (int j = 0; j < n_in; j++)
                sum[j * n_out + o] = _mm256_fmadd_ps(d, value[j], sum[j * n_out + o]);
        }
    }
    _mm256_store_ps(sums, _mm256_add_ps(_mm256_load_ps(sums), sum_lanes(sum)));
    if (n_out * n_in > 8)
        _mm256_store_ps(sums + 8, _mm256_add_ps(_mm256_load_ps(sums + 8), sum_lanes(sum + 8)));
}

typedef void (*correlate_fn)(const band *b, float *sums);

/* clang-format off */
#define CORRELATE_TILE(n_out)                                                                                          \
    LK_AVX2 static void correlate_##n_out##_1(const band *b, float *sums)                                              \
    {                                                                                                                  \
        correlate(b, n_out, 1, sums);                                                                                  \
    }                                                                                                                  \
    LK_AVX2 static void correlate_##n_out##_2(const band *b, float *sums)                                              \
    {                                                                                                                  \
        correlate(b, n_out, 2, sums);                                                                                  \
    }
/* clang-format on */
CORRELATE_TILE(1)
CORRELATE_TILE(2)
CORRELATE_TILE(3)
CORRELATE_TILE(4)
CORRELATE_TILE(5)
CORRELATE_TILE(6)

static const correlate_fn correlate_tile[TILE + 1][PAIR + 1] = {
    {NULL},
    {NULL, correlate_1_1, correlate_1_2},
    {NULL, correlate_2_1, correlate_2_2},
    {NULL, correlate_3_1, correlate_3_2},
    {NULL, correlate_4_1, correlate_4_2},
    {NULL, correlate_5_1, correlate_5_2},
    {NULL, correlate_6_1, correlate_6_2},
};

/* One tile of output channels against all taps of a group of x's channels. Gives back where the next group's sums are.
 */
static float *correlate_group(const lk_lanes_conv *conv, band b, int n_out, int64_t size, float *sums)
{
    int64_t run = conv->kernel[1] * size, row_step = padded(conv, 1) * size * LK_LANES;
    const float *x = b.x;
    for (int64_t row = 0; row < conv->kernel[0]; row++) {
        for (int64_t position = 0; position < run; position += PAIR, sums += TILE_SUMS) {
            int n_in = run - position < PAIR ? 1 : PAIR;
            b.x = x + row * row_step + position * LK_LANES;
            correlate_tile[n_out][n_in](&b, sums);
        }
    }
    return sums;
}

/* Sums in double of the lanes of `pixels` vectors, `step` floats apart, in f32 over every fourth pixel. */
LK_AVX2 static double sum_pixels(const float *x, int64_t pixels, int64_t step)
{
    enum { CHAINS = 4 }; /* one would wait for each addition */
    __m256 sum[CHAINS] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    int64_t p = 0;
    for (; p + CHAINS <= pixels; p += CHAINS)
        for (int i = 0; i < CHAINS; i++)
            sum[i] = _mm256_add_ps(sum[i], _mm256_load_ps(x + (p + i) * step));
    for (; p < pixels; p++)
        sum[0] = _mm256_add_ps(sum[0], _mm256_load_ps(x + p * step));
    __m256d four = _mm256_setzero_pd();
    double lanes[4];
    for (int i = 0; i < CHAINS; i++) {
        four = _mm256_add_pd(four, _mm256_cvtps_pd(_mm256_castps256_ps128(sum[i])));
        four = _mm256_add_pd(four, _mm256_cvtps_pd(_mm256_extractf128_ps(sum[i], 1)));
    }
    _mm256_storeu_pd(lanes, four);
    return lanes[0] + lanes[1] + (lanes[2] + lanes[3]);
}

static void add_bias(const float *dconv, int64_t pixels, lk_lanes_tile tile, double *bias)
{
    for (int o = 0; o < tile.n; o++)
        bias[tile.first + o] += sum_pixels(dconv + (int64_t)o * LK_LANES, pixels, (int64_t)tile.n * LK_LANES);
}

/* A band of rows of one block of images. x: in groups. */
static void add_band(const lk_lanes_block *block, const image_block *images, range rows, const float *x,
                     const memory *m, bool bias)
{
    const lk_lanes_conv *conv = &block->conv;
    int64_t width = used(block, 1), plane = padded(conv, 0) * padded(conv, 1) * LK_LANES;
    float *sums = m->sums;
    lk_lanes_tiling tiling = lk__lanes_tiling(conv->out[2]);
    for (int64_t t = 0; t < tiling.tiles; t++) {
        lk_lanes_tile tile = lk__lanes_tile(&tiling, t);
        spread(block, images, rows, tile, m->tile);
        if (bias)
            add_bias(m->tile, (rows.end - rows.begin) * width, tile, m->bias);
        for (int64_t g = 0; g < groups(conv); g++) {
            int64_t size = group_size(conv, g), first = rows.begin * padded(conv, 1) * size * LK_LANES;
            band b = {.dconv = m->tile,
                      .x = x + g * GROUP * plane + first,
                      .offsets = m->offsets[size],
                      .pixels = (rows.end - rows.begin) * width};
            sums = correlate_group(conv, b, tile.n, size, sums);
        }
    }
}

/* Copies a row's channels `first` on, `size` of them. */
LK_INLINE void copy_row(const float *x, int64_t pixels, int64_t channels, int64_t size, float *to)
{
    for (int64_t p = 0; p < pixels; p++, x += channels * LK_LANES, to += size * LK_LANES)
        for (int64_t c = 0; c < size; c++)
            _mm256_store_ps(to + c * LK_LANES, _mm256_load_ps(x + c * LK_LANES));
}

/* x with its padding, in groups of channels. */
LK_AVX2 static void group_x(const lk_lanes_conv *conv, const float *x, float *to)
{
    int64_t channels = conv->in[2], width = padded(conv, 1), pixels = conv->in[1];
    if (conv->padding[0] > 0 || conv->padding[1] > 0)
        memset(to, 0, x_count(conv) * sizeof *to);
    for (int64_t g = 0; g < groups(conv); g++) {
        int64_t size = group_size(conv, g);
        for (int64_t row = 0; row < conv->in[0]; row++) {
            const float *from = x + (row * pixels * channels + g * GROUP) * LK_LANES;
            float *first = to + ((row + conv->padding[0]) * width + conv->padding[1]) * size * LK_LANES;
            if (size == GROUP)
                copy_row(from, pixels, channels, GROUP, first);
            else
                copy_row(from, pixels, channels, 1, first);
        }
        to += padded(conv, 0) * width * size * LK_LANES;
    }
}

static void add_images(const lk_lanes_block *block, const image_block *images, const memory *m, bool bias)
{
    const float *x = images->x;
    if (needs_groups(&block->conv)) {
        group_x(&block->conv, x, m->x);
        x = m->x;
    }
    int64_t step = band_rows(block), height = used(block, 0);
    for (int64_t row = 0; row < height; row += step)
        add_band(block, images, (range){row, row + step < height ? row + step : height}, x, m, bias);
}

/* From tiles' order to dw's. */
static const float *store_group(const lk_lanes_conv *conv, lk_lanes_tile tile, int64_t group, const float *sums,
                                float *dw)
{
    int64_t size = group_size(conv, group), n_taps = conv->kernel[0] * conv->kernel[1];
    for (int64_t row = 0; row < conv->kernel[0]; row++) {
        for (int64_t position = 0, column = 0; column < conv->kernel[1]; column++) {
            for (int64_t c = 0; c < size; c++, position++) {
                const float *from = sums + position / PAIR * TILE_SUMS + position % PAIR * tile.n;
                int64_t to = (tile.first * conv->in[2] + group * GROUP + c) * n_taps + row * conv->kernel[1] + column;
                for (int o = 0; o < tile.n; o++)
                    dw[to + o * conv->in[2] * n_taps] = from[o];
            }
        }
        sums += position_tiles(conv, group) * TILE_SUMS;
    }
    return sums;
}

static void store_sums(const lk_lanes_block *block, const memory *m, const lk_lanes_grad *grad)
{
    const lk_lanes_conv *conv = &block->conv;
    const float *sums = m->sums;
    lk_lanes_tiling tiling = lk__lanes_tiling(conv->out[2]);
    for (int64_t t = 0; t < tiling.tiles; t++)
        for (int64_t g = 0; g < groups(conv); g++)
            sums = store_group(conv, lk__lanes_tile(&tiling, t), g, sums, grad->dw);
    for (int64_t o = 0; grad->dbias && o < conv->out[2]; o++)
        grad->dbias[o] = (float)m->bias[o];
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static image_block images_of(const lk_lanes_block *block, const lk_lanes_grad *grad, int64_t b)
{
    const int64_t *in = block->conv.in, *out = block->pool.out;
    size_t saved = lk__lanes_saved_bytes(block) / (size_t)lk__lanes_blocks(block->conv.images);
    return (image_block){.dy = grad->dy + b * out[0] * out[1] * block->pool.channels * LK_LANES,
                         .x = grad->x + b * in[0] * in[1] * in[2] * LK_LANES,
                         .saved = grad->saved ? grad->saved + (size_t)b * saved : NULL};
}

static void input_grad(const lk_lanes_block *block, const lk_lanes_grad *grad, const image_block *images, int64_t b,
                       int n, float *dconv)
{
    lk_lanes_conv conv = lk__lanes_input_grad_conv(block);
    lk_lanes_block plain = lk__lanes_block_of(&conv);
    lk_lanes_tile all = {0, (int)conv.in[2]};
    const float *from[PAIR] = {dconv, n > 1 ? dconv + dconv_count(block) : dconv};
    for (int i = 0; i < n; i++)
        spread(block, &images[i], (range){0, conv.in[0]}, all, dconv + (size_t)i * dconv_count(block));
    lk__lanes_block_pair(&plain, b, from, grad->packed, NULL, grad->dx, NULL);
}

void lk__lanes_block_grad(const lk_lanes_block *block, const lk_lanes_grad *grad, void *data)
{
    memory m = memory_of(block, grad->dx, data);
    int64_t n = lk__lanes_blocks(block->conv.images);
    memset(m.bias, 0, bias_count(block) * sizeof *m.bias);
    memset(m.sums, 0, m.n_sums * sizeof *m.sums);
    for (int64_t b = 0; b < n; b += PAIR) {
        image_block images[PAIR] = {images_of(block, grad, b), images_of(block, grad, b)};
        int in_pair = b + 1 < n ? 2 : 1;
        if (in_pair > 1)
            images[1] = images_of(block, grad, b + 1);
        if (grad->dx)
            input_grad(block, grad, images, b, in_pair, m.dconv);
        for (int i = 0; i < in_pair; i++)
            add_images(block, &images[i], &m, grad->dbias != NULL);
    }
    store_sums(block, &m, grad);
}

#else

void lk__lanes_block_grad(const lk_lanes_block *block, const lk_lanes_grad *grad, void *data)
{
    (void)block, (void)grad, (void)data;
}

#endif
