/* The gradient of a block of lanes.h: convolution, relu and pooling.
 *
 * Two blocks of images are processed at a time, so that the data between the steps stays in the second-level cache. dy
 * is spread over the pixels that the pooling read, which gives dconv; dx is a convolution of dconv; and the gradient of
 * the weights is summed from dconv and x.
 *
 * That last sum runs over pixels: dw[o][row][column][c] += dconv[pixel][o] * x[pixel + (row, column)][c], lane by lane.
 * A tile of output channels by neighboring elements of x stays in registers over a band of rows. For this loop dconv
 * lies as [pixel][tile], and x is cut into slices of two channels, [slice][H][W][2]: what a tile reads is then
 * contiguous, and all taps of a band find it in the first-level cache. With 32 registers a tile takes more elements of
 * x, not more channels: a band of twelve channels of sixteen images would not fit into that cache.
 *
 * For bf16 a word must hold two elements whose products go into the same sum. Two channels, as in the tensors, do not.
 * Two pixels would, but the pairs differ from tap to tap, and x would have to be there twice. So both blocks of images
 * are summed together: a word holds the same element of an image of each. The copies of dconv and x that the loop reads
 * anyway are written in such words; a missing second block is zeros. dx takes dconv with channels in pairs. */
#include "cpu/lanes/lanes_tiles.h"
#include "cpu/vector/interleave.h"
#include "lockstep/dist.h"

#include <string.h>

enum { TILE = 6, POSITIONS = LK_REGISTERS == 32 ? 4 : 2, PAIR = LK_LANES_PAIR, SLICE = 2, BAND_PIXELS = 104 };

/* Blocks of images that are summed together. */
enum { TOGETHER = LK_PER_WORD };

/* Words of a pixel of a tile of dconv, with channels in pairs for bf16. */
enum { TILE_WORDS = (TILE + LK_PER_WORD - 1) / LK_PER_WORD };

/* Sums of a tile, rounded up to vectors of eight. */
enum { TILE_SUMS = (POSITIONS * TILE + 7) / 8 * 8 };

typedef lk_pixel_range range;

static int64_t lanes_grad_padded_size(const lk_lanes_conv *conv, int axis)
{
    return conv->in[axis] + 2 * conv->padding[axis];
}

static int64_t lanes_grad_slice_count(const lk_lanes_conv *conv)
{
    return (conv->in[2] + SLICE - 1) / SLICE;
}

/* Returns the number of channels of a slice; the last slice may have one. */
static int64_t lanes_grad_slice_channels(const lk_lanes_conv *conv, int64_t slice)
{
    return conv->in[2] - slice * SLICE < SLICE ? 1 : SLICE;
}

static int64_t lanes_grad_band_rows(const lk_lanes_block *block)
{
    int64_t rows = BAND_PIXELS / lk__lanes_used(block, 1);
    return rows < 1 ? 1 : rows < lk__lanes_used(block, 0) ? rows : lk__lanes_used(block, 0);
}

/* Returns the number of tiles of `run` neighboring (column, channel) positions in a row of the kernel. */
static int64_t lanes_grad_position_tiles(int64_t run)
{
    return (run + POSITIONS - 1) / POSITIONS;
}

/* The positions of tile t of them. */
static range lanes_grad_positions(int64_t run, int64_t t)
{
    lk_range part = lk_part(run, lanes_grad_position_tiles(run), t);
    return (range){part.begin, part.end};
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

typedef struct work_memory {
    double *bias;                /* [out channels] */
    float *sums;                 /* lane sums of dw: [tile][slice][kernel row][positions][TILE_SUMS] */
    element *tile;               /* dconv of a band and a tile: [pixel][tile] */
    element *apart[TOGETHER];    /* for bf16: the same of each block of images, with channels in pairs */
    element *x;                  /* x of the blocks summed together, padded, in slices of channels */
    element *dconv;              /* dconv of two blocks of images: [pixel][channel]; for dx only */
    element *from_x, *from_dy;   /* two blocks of x and of dy, if these are row-major */
    int32_t *offsets[SLICE + 1]; /* offsets of x at each pixel of a band, in elements, by the size of the slice */
    size_t n_sums;               /* floats of `sums` */
} work_memory;

static size_t lanes_grad_sums_count(const lk_lanes_block *block)
{
    const lk_lanes_conv *conv = &block->conv;
    int64_t positions = 0;
    for (int64_t g = 0; g < lanes_grad_slice_count(conv); g++)
        positions += lanes_grad_position_tiles(conv->kernel[1] * lanes_grad_slice_channels(conv, g));
    return (size_t)(lk__lanes_tiling(conv->out[2], TILE).tiles * conv->kernel[0] * positions * TILE_SUMS + 15) / 16 *
           16;
}

/* x in its own layout is one slice already if it is f32 and has one or two channels and no padding. */
static bool lanes_grad_needs_slices(const lk_lanes_conv *conv)
{
    return TOGETHER > 1 || lanes_grad_slice_count(conv) > 1 || conv->padding[0] > 0 || conv->padding[1] > 0;
}

static size_t lanes_grad_x_count(const lk_lanes_conv *conv)
{
    return lanes_grad_needs_slices(conv)
               ? (size_t)(lanes_grad_padded_size(conv, 0) * lanes_grad_padded_size(conv, 1) * conv->in[2] * LK_ELEMENTS)
               : 0;
}

/* Elements of dconv of one block of images. */
static size_t lanes_grad_dconv_count(const lk_lanes_block *block)
{
    int64_t used[] = {lk__lanes_used(block, 0), lk__lanes_used(block, 1)};
    return (size_t)lk__lanes_block_elements(used, block->conv.out[2]);
}

/* Elements of one block of x or dy after its conversion from row-major; 0 if none is needed. */
static size_t lanes_grad_from_x_count(const lk_lanes_block *block)
{
    return block->plain_x ? (size_t)lk__lanes_block_elements(block->conv.in, block->conv.in[2]) : 0;
}

static size_t lanes_grad_from_dy_count(const lk_lanes_block *block)
{
    return block->plain_dy ? (size_t)lk__lanes_block_elements(block->pool.out, block->pool.channels) : 0;
}

static size_t lanes_grad_band_pixels(const lk_lanes_block *block)
{
    return (size_t)(lanes_grad_band_rows(block) * lk__lanes_used(block, 1));
}

static size_t lanes_grad_tile_count(const lk_lanes_block *block)
{
    return lanes_grad_band_pixels(block) * TILE * LK_ELEMENTS;
}

/* Elements of `apart`, for one block of images. */
static size_t lanes_grad_apart_count(const lk_lanes_block *block)
{
    return TOGETHER > 1 ? lanes_grad_band_pixels(block) * TILE_WORDS * LK_ELEMENTS : 0;
}

/* Doubles for the gradient of the bias, in whole cache lines, since floats follow them. */
static size_t lanes_grad_bias_count(const lk_lanes_block *block)
{
    return (size_t)(block->conv.out[2] + 7) / 8 * 8;
}

size_t lk__lanes_grad_bytes(const lk_lanes_block *block, bool input_grad)
{
    size_t elements = lanes_grad_tile_count(block) + lanes_grad_x_count(&block->conv);
    elements += TOGETHER * lanes_grad_apart_count(block);
    if (input_grad)
        elements += PAIR * lanes_grad_dconv_count(block);
    elements += PAIR * (lanes_grad_from_x_count(block) + lanes_grad_from_dy_count(block));
    return lanes_grad_bias_count(block) * sizeof(double) + lanes_grad_sums_count(block) * sizeof(float) +
           elements * sizeof(element) + SLICE * lanes_grad_band_pixels(block) * sizeof(int32_t);
}

static void lanes_grad_fill_offsets(const lk_lanes_block *block, const work_memory *m)
{
    int32_t i = 0, width = (int32_t)lanes_grad_padded_size(&block->conv, 1);
    for (int32_t row = 0; row < lanes_grad_band_rows(block); row++)
        for (int32_t column = 0; column < lk__lanes_used(block, 1); column++, i++)
            for (int32_t size = 1; size <= SLICE; size++)
                m->offsets[size][i] = (row * width + column) * size * LK_ELEMENTS;
}

static work_memory lanes_grad_work_memory_at(const lk_lanes_block *block, bool input_grad, void *data)
{
    work_memory m = {.bias = data, .n_sums = lanes_grad_sums_count(block)};
    m.sums = (float *)(void *)(m.bias + lanes_grad_bias_count(block));
    m.tile = (element *)(m.sums + m.n_sums);
    m.x = m.tile + lanes_grad_tile_count(block);
    for (int i = 0; i < TOGETHER; i++, m.x += lanes_grad_apart_count(block))
        m.apart[i] = m.x;
    m.dconv = m.x + lanes_grad_x_count(&block->conv);
    m.from_x = m.dconv + (input_grad ? PAIR * lanes_grad_dconv_count(block) : 0);
    m.from_dy = m.from_x + PAIR * lanes_grad_from_x_count(block);
    m.offsets[1] = (int32_t *)(void *)(m.from_dy + PAIR * lanes_grad_from_dy_count(block));
    m.offsets[2] = m.offsets[1] + lanes_grad_band_pixels(block);
    lanes_grad_fill_offsets(block, &m);
    return m;
}

/* --- the gradient of the weights ---------------------------------------------------------------------------------- */

/* Sums the lanes of eight vectors: first eights of lanes, then neighbors, pairs and halves. */
LK_BODY __m256 sum_lanes(const vec v[8])
{
    __m256 e[8];
    for (int i = 0; i < 8; i++) {
        e[i] = vec_part(v[i], 0);
        for (int part = 1; part < LK_EIGHTS; part++)
            e[i] = _mm256_add_ps(e[i], vec_part(v[i], part));
    }
    __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(e[0], e[1]), _mm256_hadd_ps(e[2], e[3]));
    __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(e[4], e[5]), _mm256_hadd_ps(e[6], e[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

/* The pixels that a tile sums over. */
typedef struct band {
    const element *dconv, *x; /* dconv of the tile, x at its first position */
    const int32_t *offsets;   /* offset of x at each pixel; one loop over them, whose end the processor predicts */
    int64_t pixels;
} band;

/* Adds to sums[position][o], over a band, the products of dconv's channels and n_in neighboring positions of x. */
LK_BODY void correlate(const band *b, int n_out, int n_in, float *sums)
{
    vec sum[TILE_SUMS]; /* only ever indexed by constants, so it lives in registers */
    const element *dconv = b->dconv;
    LK_UNROLL
    for (int i = 0; i < TILE_SUMS; i++)
        sum[i] = vec_zero();
    for (int64_t p = 0; p < b->pixels; p++, dconv += n_out * LK_ELEMENTS) {
        const element *x = b->x + b->offsets[p];
        vec_word value[POSITIONS];
        for (int j = 0; j < n_in; j++)
            value[j] = word_load(x + j * LK_ELEMENTS);
        LK_UNROLL
        for (int o = 0; o < n_out; o++) {
            /* loaded once; as a memory operand of each product it would be loaded n_in times */
            vec_word d = word_pinned(word_load(dconv + o * LK_ELEMENTS));
            for (int j = 0; j < n_in; j++)
                sum[j * n_out + o] = word_fmadd(d, value[j], sum[j * n_out + o]);
        }
    }
    LK_UNROLL
    for (int i = 0; i < n_out * n_in; i += 8)
        _mm256_store_ps(sums + i, _mm256_add_ps(_mm256_load_ps(sums + i), sum_lanes(sum + i)));
}

typedef void (*correlate_fn)(const band *b, float *sums);

/* clang-format off */
#if LK_REGISTERS == 32
#define EACH_N_IN(X, n_out) X(n_out, 1) X(n_out, 2) X(n_out, 3) X(n_out, 4)
#else
#define EACH_N_IN(X, n_out) X(n_out, 1) X(n_out, 2)
#endif
#define CORRELATE(n_out, n_in)                                                                                         \
    static void correlate_##n_out##_##n_in(const band *b, float *sums)                                                 \
    {                                                                                                                  \
        correlate(b, n_out, n_in, sums);                                                                               \
    }
#define CORRELATE_TILE(n_out) EACH_N_IN(CORRELATE, n_out)
#define CORRELATE_ENTRY(n_out, n_in) [n_in] = correlate_##n_out##_##n_in,
#define CORRELATE_OF(n_out) [n_out] = {EACH_N_IN(CORRELATE_ENTRY, n_out)},

LK_UP_TO_SIX(CORRELATE_TILE)

static const correlate_fn correlate_tile[TILE + 1][POSITIONS + 1] = {LK_UP_TO_SIX(CORRELATE_OF)};
/* clang-format on */

/* Correlates one tile of output channels with all taps of a slice of x. Returns the address of the next slice's
 * sums. */
static float *lanes_grad_correlate_slice(const lk_lanes_conv *conv, band b, int n_out, int64_t size, float *sums)
{
    int64_t run = conv->kernel[1] * size, tiles = lanes_grad_position_tiles(run);
    int64_t row_step = lanes_grad_padded_size(conv, 1) * size * LK_ELEMENTS;
    const element *x = b.x;
    for (int64_t row = 0; row < conv->kernel[0]; row++) {
        for (int64_t t = 0; t < tiles; t++, sums += TILE_SUMS) {
            range positions = lanes_grad_positions(run, t);
            b.x = x + row * row_step + positions.begin * LK_ELEMENTS;
            correlate_tile[n_out][positions.end - positions.begin](&b, sums);
        }
    }
    return sums;
}

LK_BODY vec add_word(vec sum, const element *from)
{
    vec_word word = word_load(from);
    for (int h = 0; h < LK_PER_WORD; h++)
        sum = vec_add(sum, word_part(word, h));
    return sum;
}

/* Sums in double the lanes of `pixels` vectors that lie `step` elements apart. Four chains in f32, over every fourth
 * pixel, come first. */
static double lanes_grad_sum_pixels(const element *x, int64_t pixels, int64_t step)
{
    enum { CHAINS = 4 }; /* a single chain would wait for each addition */
    vec sum[CHAINS] = {vec_zero(), vec_zero(), vec_zero(), vec_zero()};
    int64_t p = 0;
    for (; p + CHAINS <= pixels; p += CHAINS)
        for (int i = 0; i < CHAINS; i++)
            sum[i] = add_word(sum[i], x + (p + i) * step);
    for (; p < pixels; p++)
        sum[0] = add_word(sum[0], x + p * step);
    __m256d four = _mm256_setzero_pd();
    double lanes[4];
    for (int i = 0; i < CHAINS; i++)
        for (int part = 0; part < LK_EIGHTS; part++) {
            __m256 eight = vec_part(sum[i], part);
            four = _mm256_add_pd(four, _mm256_cvtps_pd(_mm256_castps256_ps128(eight)));
            four = _mm256_add_pd(four, _mm256_cvtps_pd(_mm256_extractf128_ps(eight, 1)));
        }
    _mm256_storeu_pd(lanes, four);
    return lanes[0] + lanes[1] + (lanes[2] + lanes[3]);
}

static void lanes_grad_add_bias_sums(const element *dconv, int64_t pixels, lk_lanes_tile tile, double *bias)
{
    for (int o = 0; o < tile.n; o++)
        bias[tile.first + o] +=
            lanes_grad_sum_pixels(dconv + (int64_t)o * LK_ELEMENTS, pixels, (int64_t)tile.n * LK_ELEMENTS);
}

#if defined(LK_VECTOR_BF16)

/* Writes words with channels in pairs, of two blocks of images, as words with an element of each block. There is no
 * second block if b is NULL. n: channels. */
LK_BODY void join_blocks(const element *a, const element *b, int64_t n, element *to)
{
    for (int64_t c = 0; c < n; c += 2, a += LK_ELEMENTS, to += 2 * LK_ELEMENTS) {
        vec_word first = word_load(a), second = b ? word_load(b + c / 2 * LK_ELEMENTS) : word_zero();
        word_store(to, word_firsts(first, second));
        if (c + 1 < n)
            word_store(to + LK_ELEMENTS, word_seconds(first, second));
    }
}

/* Computes dconv of a band and a tile for the blocks that are summed together. */
static void lanes_grad_spread_band(const lk_lanes_block *block, const lk_lanes_images *images, int n, range rows,
                                   lk_lanes_tile tile, const work_memory *m)
{
    int64_t pixels = (rows.end - rows.begin) * lk__lanes_used(block, 1), step = lk__lanes_words(tile.n) * LK_ELEMENTS;
    for (int i = 0; i < n; i++)
        lk__lanes_spread_rows(block, &images[i], rows, tile, m->apart[i]);
    for (int64_t p = 0; p < pixels; p++)
        join_blocks(m->apart[0] + p * step, n > 1 ? m->apart[1] + p * step : NULL, tile.n,
                    m->tile + p * tile.n * LK_ELEMENTS);
}

#else

static void lanes_grad_spread_band(const lk_lanes_block *block, const lk_lanes_images *images, int n, range rows,
                                   lk_lanes_tile tile, const work_memory *m)
{
    (void)n;
    lk__lanes_spread_rows(block, images, rows, tile, m->tile);
}

#endif

/* Adds to the sums of dw and of the bias a band of rows of the n blocks of images that are summed together. x: in
 * slices. */
static void lanes_grad_add_band(const lk_lanes_block *block, const lk_lanes_images *images, int n, range rows,
                                const element *x, const work_memory *m, bool bias)
{
    const lk_lanes_conv *conv = &block->conv;
    int64_t width = lk__lanes_used(block, 1),
            plane = lanes_grad_padded_size(conv, 0) * lanes_grad_padded_size(conv, 1) * LK_ELEMENTS;
    float *sums = m->sums;
    lk_lanes_tiling tiling = lk__lanes_tiling(conv->out[2], TILE);
    for (int64_t t = 0; t < tiling.tiles; t++) {
        lk_lanes_tile tile = lk__lanes_tile(&tiling, t);
        lanes_grad_spread_band(block, images, n, rows, tile, m);
        if (bias)
            lanes_grad_add_bias_sums(m->tile, (rows.end - rows.begin) * width, tile, m->bias);
        for (int64_t g = 0; g < lanes_grad_slice_count(conv); g++) {
            int64_t size = lanes_grad_slice_channels(conv, g),
                    first = rows.begin * lanes_grad_padded_size(conv, 1) * size * LK_ELEMENTS;
            band b = {.dconv = m->tile,
                      .x = x + g * SLICE * plane + first,
                      .offsets = m->offsets[size],
                      .pixels = (rows.end - rows.begin) * width};
            sums = lanes_grad_correlate_slice(conv, b, tile.n, size, sums);
        }
    }
}

/* Copies `size` channels of a row's pixels, at offset `at` of the n blocks of images that are summed together. step:
 * elements from pixel to pixel. */
LK_BODY void copy_row(const lk_lanes_images *images, int n, int64_t at, int64_t pixels, int64_t step, int64_t size,
                      element *to)
{
    const element *x = images[0].x + at;
#if defined(LK_VECTOR_BF16)
    const element *second = n > 1 ? images[1].x + at : NULL;
    for (int64_t p = 0; p < pixels; p++, to += size * LK_ELEMENTS)
        join_blocks(x + p * step, second ? second + p * step : NULL, size, to);
#else
    (void)n;
    for (int64_t p = 0; p < pixels; p++, x += step, to += size * LK_ELEMENTS)
        for (int64_t c = 0; c < size; c++)
            word_store(to + c * LK_ELEMENTS, word_load(x + c * LK_ELEMENTS));
#endif
}

/* Copies x with its padding into slices of channels. */
static void lanes_grad_slice_x(const lk_lanes_conv *conv, const lk_lanes_images *images, int n, element *to)
{
    int64_t step = lk__lanes_words(conv->in[2]) * LK_ELEMENTS, width = lanes_grad_padded_size(conv, 1),
            pixels = conv->in[1];
    if (conv->padding[0] > 0 || conv->padding[1] > 0)
        memset(to, 0, lanes_grad_x_count(conv) * sizeof *to);
    for (int64_t g = 0; g < lanes_grad_slice_count(conv); g++) {
        int64_t size = lanes_grad_slice_channels(conv, g);
        for (int64_t row = 0; row < conv->in[0]; row++) {
            int64_t at = row * pixels * step + g * SLICE / LK_PER_WORD * LK_ELEMENTS;
            element *first = to + ((row + conv->padding[0]) * width + conv->padding[1]) * size * LK_ELEMENTS;
            if (size == SLICE)
                copy_row(images, n, at, pixels, step, SLICE, first);
            else
                copy_row(images, n, at, pixels, step, 1, first);
        }
        to += lanes_grad_padded_size(conv, 0) * width * size * LK_ELEMENTS;
    }
}

/* Adds the n blocks of images that are summed together. */
static void lanes_grad_add_images(const lk_lanes_block *block, const lk_lanes_images *images, int n,
                                  const work_memory *m, bool bias)
{
    const element *x = images->x;
    if (lanes_grad_needs_slices(&block->conv)) {
        lanes_grad_slice_x(&block->conv, images, n, m->x);
        x = m->x;
    }
    int64_t step = lanes_grad_band_rows(block), height = lk__lanes_used(block, 0);
    for (int64_t row = 0; row < height; row += step)
        lanes_grad_add_band(block, images, n, (range){row, row + step < height ? row + step : height}, x, m, bias);
}

/* Copies the sums of a tile and a slice to their positions in dw. */
static const float *lanes_grad_store_slice(const lk_lanes_conv *conv, lk_lanes_tile tile, int64_t slice,
                                           const float *sums, float *dw)
{
    int64_t size = lanes_grad_slice_channels(conv, slice), n_taps = conv->kernel[0] * conv->kernel[1];
    int64_t run = conv->kernel[1] * size;
    for (int64_t row = 0; row < conv->kernel[0]; row++) {
        for (int64_t t = 0; t < lanes_grad_position_tiles(run); t++, sums += TILE_SUMS) {
            range positions = lanes_grad_positions(run, t);
            const float *from = sums;
            for (int64_t p = positions.begin; p < positions.end; p++, from += tile.n) {
                int64_t channel = slice * SLICE + p % size, tap = row * conv->kernel[1] + p / size;
                float *to = dw + (tile.first * conv->in[2] + channel) * n_taps + tap;
                for (int o = 0; o < tile.n; o++)
                    to[o * conv->in[2] * n_taps] = from[o];
            }
        }
    }
    return sums;
}

static void store_gradients(const lk_lanes_block *block, const work_memory *m, const lk_lanes_grad *grad)
{
    const lk_lanes_conv *conv = &block->conv;
    const float *sums = m->sums;
    lk_lanes_tiling tiling = lk__lanes_tiling(conv->out[2], TILE);
    for (int64_t t = 0; t < tiling.tiles; t++)
        for (int64_t g = 0; g < lanes_grad_slice_count(conv); g++)
            sums = lanes_grad_store_slice(conv, lk__lanes_tile(&tiling, t), g, sums, grad->dw);
    for (int64_t o = 0; grad->dbias && o < conv->out[2]; o++)
        grad->dbias[o] = (float)m->bias[o];
}

/* --- whole tensors ------------------------------------------------------------------------------------------------ */

/* Returns block b of the operands; `i` is its number in the pair. */
static lk_lanes_images lanes_grad_images_of(const lk_lanes_block *block, const lk_lanes_grad *grad, int64_t b, int i,
                                            const work_memory *m)
{
    const int64_t *in = block->conv.in, *out = block->pool.out;
    element *x = m->from_x + (size_t)i * lanes_grad_from_x_count(block),
            *dy = m->from_dy + (size_t)i * lanes_grad_from_dy_count(block);
    size_t saved = lk__lanes_block_saved_bytes(block);
    return (lk_lanes_images){
        .dy = lk__lanes_vectors_of(block, grad->dy, block->pool.channels, out, b, block->plain_dy, dy),
        .x = lk__lanes_vectors_of(block, grad->x, in[2], in, b, block->plain_x, x),
        .saved = grad->saved ? grad->saved + (size_t)b * saved : NULL};
}

static void lanes_grad_compute_dx(const lk_lanes_block *block, const lk_lanes_grad *grad, const lk_lanes_images *images,
                                  int64_t b, int n, element *dconv)
{
    lk_lanes_conv conv = lk__lanes_input_grad_conv(block);
    lk_lanes_block plain = lk__lanes_block_of(&conv);
    lk_lanes_tile all = {0, (int)conv.in[2]};
    const element *from[PAIR] = {dconv, n > 1 ? dconv + lanes_grad_dconv_count(block) : dconv};
    for (int i = 0; i < n; i++)
        lk__lanes_spread_rows(block, &images[i], (range){0, conv.in[0]}, all,
                              dconv + (size_t)i * lanes_grad_dconv_count(block));
    lk__lanes_block_pair(&plain, b, from, grad->packed, NULL, grad->dx, NULL);
}

void lk__lanes_block_grad(const lk_lanes_block *block, const lk_lanes_grad *grad, void *data)
{
    work_memory m = lanes_grad_work_memory_at(block, grad->dx, data);
    int64_t n = lk__lanes_blocks(block->conv.images);
    memset(m.bias, 0, lanes_grad_bias_count(block) * sizeof *m.bias);
    memset(m.sums, 0, m.n_sums * sizeof *m.sums);
    for (int64_t b = 0; b < n; b += PAIR) {
        int in_pair = b + 1 < n ? 2 : 1;
        lk_lanes_images images[PAIR];
        for (int i = 0; i < in_pair; i++)
            images[i] = lanes_grad_images_of(block, grad, b + i, i, &m);
        if (grad->dx)
            lanes_grad_compute_dx(block, grad, images, b, in_pair, m.dconv);
        for (int i = 0; i < in_pair; i += TOGETHER)
            lanes_grad_add_images(block, &images[i], in_pair - i < TOGETHER ? in_pair - i : TOGETHER, &m,
                                  grad->dbias != NULL);
    }
    store_gradients(block, &m, grad);
}
