#include "cpu/lanes.h"

#include "cpu/avx2.h"

#include <string.h>

/* Output channels a tile, and vectors of images a tile: 5 x 2 accumulators hide the latency of fused multiply-adds and
 * leave room for the operands in 16 registers. */
enum { TILE = 5, PAIR = 2 };

typedef struct range {
    int64_t begin, end;
} range;

/* Taps of an axis that lie inside the input for output `o`. */
static inline range taps(const lk_lanes_conv *conv, int axis, int64_t o)
{
    int64_t first = o - conv->padding[axis], last = conv->in[axis] - first;
    return (range){first < 0 ? -first : 0, last < conv->kernel[axis] ? last : conv->kernel[axis]};
}

static int64_t tiles(const lk_lanes_conv *conv)
{
    return (conv->out[2] + TILE - 1) / TILE;
}

static int64_t blocks(const lk_lanes_conv *conv)
{
    return (conv->images + LK_LANES - 1) / LK_LANES;
}

static int64_t volume(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

size_t lk__lanes_packed_count(const lk_lanes_conv *conv)
{
    return (size_t)(tiles(conv) * TILE * conv->kernel[0] * conv->kernel[1] * conv->in[2]);
}

/* [tile][KH][KW][in channel][TILE], zeros where the last tile has no channel. */
void lk__lanes_pack(const lk_lanes_conv *conv, const float *w, bool for_gradient, float *packed)
{
    int64_t kh = conv->kernel[0], kw = conv->kernel[1], in = conv->in[2], out = conv->out[2];
    int64_t stride_out = (for_gradient ? 1 : in) * kh * kw, stride_in = (for_gradient ? out : 1) * kh * kw;
    int64_t n_tiles = tiles(conv);
    for (int64_t t = 0; t < n_tiles; t++)
        for (int64_t tap = 0; tap < kh * kw; tap++)
            for (int64_t i = 0; i < in; i++)
                for (int64_t o = t * TILE; o < (t + 1) * TILE; o++) {
                    int64_t at = for_gradient ? kh * kw - 1 - tap : tap;
                    *packed++ = o < out ? w[o * stride_out + i * stride_in + at] : 0;
                }
}

bool lk__lanes_supported(void)
{
    return lk__has_avx2();
}

#if defined(__x86_64__)

#include <immintrin.h>

/* All ones in the lanes of block `block` that hold an image. */
LK_AVX2 static __m256 image_mask(int64_t images, int64_t block)
{
    int64_t left = images - block * LK_LANES;
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(left > LK_LANES ? LK_LANES : (int)left), lane));
}

/* --- forward, and the gradient of the input ----------------------------------------------------------------------- */

/* Adds the products of `n` (column, channel) positions to a tile of two vectors by TILE channels. */
LK_AVX2 static inline __attribute__((always_inline)) void multiply_row(const float *x0, const float *x1, const float *w,
                                                                       int64_t n, __m256 sum[PAIR][TILE])
{
    for (int64_t i = 0; i < n; i++) {
        __m256 a = _mm256_load_ps(x0 + i * LK_LANES), b = _mm256_load_ps(x1 + i * LK_LANES);
        for (int o = 0; o < TILE; o++) {
            __m256 weight = _mm256_broadcast_ss(w + i * TILE + o);
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
LK_AVX2 static inline __attribute__((always_inline)) void multiply_pixel(const lk_lanes_conv *conv,
                                                                         const float *const x[PAIR], const float *w,
                                                                         pixel p, const float *bias,
                                                                         __m256 result[PAIR][TILE])
{
    __m256 sum[PAIR][TILE]; /* only ever indexed by constants, so it lives in registers */
    int64_t channels = conv->in[2], run = (p.columns.end - p.columns.begin) * channels;
    for (int o = 0; o < TILE; o++)
        sum[0][o] = sum[1][o] = _mm256_set1_ps(bias[o]);
    for (int64_t tap = p.rows.begin; tap < p.rows.end; tap++) {
        int64_t row = p.row - conv->padding[0] + tap, column = p.column - conv->padding[1] + p.columns.begin;
        int64_t at = (row * conv->in[1] + column) * channels * LK_LANES;
        multiply_row(x[0] + at, x[1] + at, w + (tap * conv->kernel[1] + p.columns.begin) * channels * TILE, run, sum);
    }
    for (int o = 0; o < TILE; o++) {
        result[0][o] = sum[0][o];
        result[1][o] = sum[1][o];
    }
}

LK_AVX2 static void conv_pair(const lk_lanes_conv *conv, const float *const x[PAIR], const float *packed,
                              const float *bias, float *const y[PAIR], const __m256 mask[PAIR])
{
    int64_t channels = conv->out[2], n_tiles = tiles(conv);
    int64_t tile_weights = conv->kernel[0] * conv->kernel[1] * conv->in[2] * TILE;
    for (int64_t row = 0; row < conv->out[0]; row++) {
        for (int64_t column = 0; column < conv->out[1]; column++) {
            pixel p = {row, column, taps(conv, 0, row), taps(conv, 1, column)};
            int64_t at = (row * conv->out[1] + column) * channels;
            for (int64_t t = 0; t < n_tiles; t++) {
                float tile_bias[TILE] = {0};
                int n = channels - t * TILE < TILE ? (int)(channels - t * TILE) : TILE;
                __m256 sum[PAIR][TILE];
                if (bias)
                    memcpy(tile_bias, bias + t * TILE, (size_t)n * sizeof *bias);
                multiply_pixel(conv, x, packed + t * tile_weights, p, tile_bias, sum);
                for (int o = 0; o < n; o++) {
                    int64_t to = (at + t * TILE + o) * LK_LANES;
                    _mm256_store_ps(y[0] + to, _mm256_and_ps(sum[0][o], mask[0]));
                    _mm256_store_ps(y[1] + to, _mm256_and_ps(sum[1][o], mask[1]));
                }
            }
        }
    }
}

/* The last block of an odd number is its own partner. */
LK_AVX2 void lk__lanes_conv2d(const lk_lanes_conv *conv, const float *x, const float *packed, const float *bias,
                              float *y)
{
    int64_t n = blocks(conv), in = volume(conv->in) * LK_LANES, out = volume(conv->out) * LK_LANES;
    for (int64_t b = 0; b < n; b += PAIR) {
        int64_t partner = b + 1 < n ? b + 1 : b;
        const float *from[PAIR] = {x + b * in, x + partner * in};
        float *to[PAIR] = {y + b * out, y + partner * out};
        __m256 mask[PAIR] = {image_mask(conv->images, b), image_mask(conv->images, partner)};
        conv_pair(conv, from, packed, bias, to, mask);
    }
}

/* --- the gradient of the weights ---------------------------------------------------------------------------------- */

/* The sum of the lanes: neighbours, then pairs, then halves. */
LK_AVX2 static inline float sum_lanes(__m256 v)
{
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

/* sum[o][j] over all pixels of one block: dy's channels o0 … o0 + n_out - 1 against n_in neighbouring (column, channel)
 * positions of one kernel row. */
LK_AVX2 static inline __attribute__((always_inline)) void
correlate(const lk_lanes_conv *conv, const float *dy, const float *x, int n_out, int n_in, __m256 result[TILE][PAIR])
{
    __m256 sum[TILE][PAIR];
    int64_t step_x = conv->in[2] * LK_LANES, step_dy = conv->out[2] * LK_LANES;
    for (int o = 0; o < n_out; o++)
        for (int j = 0; j < n_in; j++)
            sum[o][j] = _mm256_setzero_ps();
    for (int64_t row = 0; row < conv->out[0]; row++) {
        const float *px = x + row * conv->in[1] * step_x, *pdy = dy + row * conv->out[1] * step_dy;
        for (int64_t column = 0; column < conv->out[1]; column++, px += step_x, pdy += step_dy) {
            __m256 value[PAIR];
            for (int j = 0; j < n_in; j++)
                value[j] = _mm256_load_ps(px + j * LK_LANES);
            for (int o = 0; o < n_out; o++) {
                __m256 d = _mm256_load_ps(pdy + o * LK_LANES);
                __asm__("" : "+x"(d)); /* one load: as a memory operand of each product it would be PAIR of them */
                for (int j = 0; j < n_in; j++)
                    sum[o][j] = _mm256_fmadd_ps(d, value[j], sum[o][j]);
            }
        }
    }
    for (int o = 0; o < n_out; o++)
        for (int j = 0; j < n_in; j++)
            result[o][j] = sum[o][j];
}

/* The same for tiles at the edges, whose sizes the compiler does not know. */
LK_AVX2 static void correlate_edge(const lk_lanes_conv *conv, const float *dy, const float *x, int n_out, int n_in,
                                   __m256 sum[TILE][PAIR])
{
    correlate(conv, dy, x, n_out, n_in, sum);
}

typedef struct weight_tile {
    int64_t out, row, position; /* the first output channel, the kernel's row, the first (column, channel) */
    int n_out, n_in;
} weight_tile;

LK_AVX2 static void add_tile(const lk_lanes_conv *conv, const float *dy, const float *x, weight_tile t, float *dw)
{
    __m256 sum[TILE][PAIR];
    const float *from_dy = dy + t.out * LK_LANES;
    const float *from_x = x + (t.row * conv->in[1] * conv->in[2] + t.position) * LK_LANES;
    if (t.n_out == TILE && t.n_in == PAIR)
        correlate(conv, from_dy, from_x, TILE, PAIR, sum);
    else
        correlate_edge(conv, from_dy, from_x, t.n_out, t.n_in, sum);
    int64_t taps_per_channel = conv->kernel[0] * conv->kernel[1];
    for (int j = 0; j < t.n_in; j++) {
        int64_t column = (t.position + j) / conv->in[2], channel = (t.position + j) % conv->in[2];
        float *to = dw + (t.out * conv->in[2] + channel) * taps_per_channel + t.row * conv->kernel[1] + column;
        for (int o = 0; o < t.n_out; o++)
            to[o * conv->in[2] * taps_per_channel] += sum_lanes(sum[o][j]);
    }
}

LK_AVX2 static void add_block(const lk_lanes_conv *conv, const float *dy, const float *x, float *dw)
{
    int64_t run = conv->kernel[1] * conv->in[2];
    weight_tile t;
    for (t.out = 0; t.out < conv->out[2]; t.out += TILE) {
        t.n_out = conv->out[2] - t.out < TILE ? (int)(conv->out[2] - t.out) : TILE;
        for (t.row = 0; t.row < conv->kernel[0]; t.row++) {
            for (t.position = 0; t.position < run; t.position += PAIR) {
                t.n_in = run - t.position < PAIR ? (int)(run - t.position) : PAIR;
                add_tile(conv, dy, x, t, dw);
            }
        }
    }
}

/* Block after block, so that a tile's dy and x stay in the first-level cache. */
void lk__lanes_weight_grad(const lk_lanes_conv *conv, const float *dy, const float *x, float *dw)
{
    int64_t n = blocks(conv), in = volume(conv->in) * LK_LANES, out = volume(conv->out) * LK_LANES;
    memset(dw, 0, (size_t)(conv->out[2] * conv->in[2] * conv->kernel[0] * conv->kernel[1]) * sizeof *dw);
    for (int64_t b = 0; b < n; b++)
        add_block(conv, dy + b * out, x + b * in, dw);
}

#else

void lk__lanes_conv2d(const lk_lanes_conv *conv, const float *x, const float *packed, const float *bias, float *y)
{
    (void)conv, (void)x, (void)packed, (void)bias, (void)y;
}

void lk__lanes_weight_grad(const lk_lanes_conv *conv, const float *dy, const float *x, float *dw)
{
    (void)conv, (void)dy, (void)x, (void)dw;
}

#endif
