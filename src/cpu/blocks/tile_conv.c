/* Direct convolution on tiles: see lk__block_tiles_amxbf16 in block_conv.h. */
#include "base/minmax.h"
#include "cpu/blocks/block_conv.h"
#include "cpu/blocks/direct_weights.h"
#include "cpu/vector/interleave.h"
#include "cpu/vector/rectify.h"
#include "cpu/vector/tile.h"

#include <string.h>

/* A step multiplies ROWS x DEPTH elements, in two tiles, by DEPTH x WIDTH elements, in two tiles as well; its sums are
 * in four tiles, and the other four hold the operands. In memory, the left operand of a step is [ROWS][DEPTH], the
 * right one [DEPTH / 2][WIDTH][2], and sums are [ROWS][WIDTH]. */
enum { ROWS = 2 * LK_TILE_ROWS, DEPTH = LK_TILE_ROW_BYTES / sizeof(element), STEP = ROWS * DEPTH };

/* Pixels of the result that are computed together. The weights of a pair of blocks are read once for all of them. */
enum { PIXELS_AT_ONCE = 128 };

/* Pixels that are summed over at a time for the gradient of the weights. The right operand, 32 channels of them, stays
 * in the first-level cache while the filters pass. */
enum { SUMMED_AT_ONCE = 512 };

/* The weights of this many steps, for a pair of blocks, stay in the first-level cache while the pixels pass. */
enum { STEPS_AT_ONCE = 16 };

/* --- sums in tiles ------------------------------------------------------------------------------------------------ */

static void tile_conv_load(const float *sums)
{
    enum { STRIDE = WIDTH * sizeof *sums };
    tile_load(0, sums, STRIDE);
    tile_load(1, sums + BLOCK, STRIDE);
    tile_load(2, sums + LK_TILE_ROWS * WIDTH, STRIDE);
    tile_load(3, sums + LK_TILE_ROWS * WIDTH + BLOCK, STRIDE);
}

static void tile_conv_store(float *sums)
{
    enum { STRIDE = WIDTH * sizeof *sums };
    tile_store(0, sums, STRIDE);
    tile_store(1, sums + BLOCK, STRIDE);
    tile_store(2, sums + LK_TILE_ROWS * WIDTH, STRIDE);
    tile_store(3, sums + LK_TILE_ROWS * WIDTH + BLOCK, STRIDE);
}

/* Adds the products of `steps` steps. left_step: from one step of `left` to the next; those of `right` follow each
 * other. */
static void tile_conv_add(const element *left, int64_t left_step, const element *right, int64_t steps)
{
    enum { STRIDE = WIDTH * 2 * sizeof *right };
    for (; steps > 0; steps--, left += left_step, right += STEP) {
        tile_load(4, left, LK_TILE_ROW_BYTES);
        tile_load(5, left + LK_TILE_ROWS * DEPTH, LK_TILE_ROW_BYTES);
        tile_load(6, right, STRIDE);
        tile_load(7, right + BLOCK * 2, STRIDE);
        tile_multiply(0, 4, 6);
        tile_multiply(1, 4, 7);
        tile_multiply(2, 5, 6);
        tile_multiply(3, 5, 7);
    }
}

/* --- pixels ------------------------------------------------------------------------------------------------------- */

/* The direction of a convolution: which side is summed over, and the channels and sizes of both sides. */
typedef struct direction {
    bool gradient;
    int64_t from_channels, to_channels;
    const int64_t *from_size, *to_size;
} direction;

/* A tap that connects pixel i of a phase, in each axis, with pixel i * scale + shift of the other side. */
typedef struct tap {
    int64_t number, shift[2];
} tap;

/* Every `step`th pixel of the result in each axis, and the taps that reach these. The result of a convolution is one
 * phase. The gradient of a strided one has stride x stride phases, which different taps reach. */
typedef struct phase {
    int64_t first[2], step[2], count[2], scale[2];
    int64_t pixels; /* of an image */
    tap *taps;
    int64_t n_taps;
} phase;

static bool tile_conv_reaches(const lk_geometry *conv, const direction *d, const phase *p, int64_t number, tap *t)
{
    const int64_t at[2] = {number / conv->kernel[1], number % conv->kernel[1]};
    t->number = number;
    for (int i = 0; i < 2; i++) {
        int64_t shift = at[i] * conv->dilation[i] - conv->padding[i];
        if (d->gradient && (p->first[i] - shift) % conv->stride[i] != 0)
            return false;
        t->shift[i] = d->gradient ? (p->first[i] - shift) / conv->stride[i] : shift;
    }
    return true;
}

/* taps: memory for all taps of the kernel. */
static phase tile_conv_phase(const lk_geometry *conv, const direction *d, int64_t row, int64_t column, tap *taps)
{
    phase p = {.first = {row, column}, .taps = taps};
    for (int i = 0; i < 2; i++) {
        p.step[i] = d->gradient ? conv->stride[i] : 1;
        p.scale[i] = d->gradient ? 1 : conv->stride[i];
        p.count[i] = (d->to_size[i] - p.first[i] + p.step[i] - 1) / p.step[i];
    }
    p.pixels = p.count[0] * p.count[1];
    for (int64_t number = 0; number < direct_conv_area_of(conv->kernel); number++)
        p.n_taps += tile_conv_reaches(conv, d, &p, number, &taps[p.n_taps]);
    return p;
}

/* A pixel of a phase: image, row and column. */
typedef struct pixel {
    int64_t image, at[2];
} pixel;

/* Lists n pixels of a phase, image by image, from number `first` on. */
static void tile_conv_list(const phase *p, int64_t first, int64_t n, pixel *pixels)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = (first + i) % p->pixels;
        pixels[i] = (pixel){(first + i) / p->pixels, {rest / p->count[1], rest % p->count[1]}};
    }
}

/* Sets the offsets of pixels of the result, in elements. */
static void tile_conv_find_results(const direction *d, const phase *p, const pixel *pixels, int64_t n, int64_t *offsets)
{
    int64_t an_image = d->to_channels * direct_conv_area_of(d->to_size);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = p->first[0] + pixels[i].at[0] * p->step[0], column = p->first[1] + pixels[i].at[1] * p->step[1];
        offsets[i] = pixels[i].image * an_image + (row * d->to_size[1] + column) * BLOCK;
    }
}

/* Sets the offsets of the pixels that a tap connects with pixels of the result; −1: the tap reaches padding. */
static void tile_conv_find_sources(const direction *d, const phase *p, const tap *t, const pixel *pixels, int64_t n,
                                   int64_t *offsets)
{
    int64_t an_image = d->from_channels * direct_conv_area_of(d->from_size);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = pixels[i].at[0] * p->scale[0] + t->shift[0], column = pixels[i].at[1] * p->scale[1] + t->shift[1];
        bool inside = row >= 0 && row < d->from_size[0] && column >= 0 && column < d->from_size[1];
        offsets[i] = inside ? pixels[i].image * an_image + (row * d->from_size[1] + column) * BLOCK : -1;
    }
}

static const element *tile_conv_at(const element *x, int64_t offset)
{
    static const element zeros[BLOCK];
    return offset < 0 ? zeros : x + offset;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* The memory of a call: packed weights or their gradient, the copied pixels, sums or the right operand, then the taps.
 */
typedef struct buffers {
    element *packed;
    float *gradient; /* in the memory of `packed`: [pairs of filters][pairs of channels][taps][WIDTH][WIDTH] */
    element *left;   /* [taps][steps][PIXELS_AT_ONCE][DEPTH], or [pairs of filters][steps][ROWS][DEPTH] */
    float *sums;     /* [PIXELS_AT_ONCE][WIDTH] */
    element *right;  /* in the memory of `sums`: [SUMMED_AT_ONCE / 2][WIDTH][2] */
    tap *taps;
} buffers;

static int64_t tile_conv_left_count(const lk_geometry *conv)
{
    int64_t pixels = direct_conv_area_of(conv->kernel) * lk__max(conv->channels, conv->filters) * PIXELS_AT_ONCE;
    return lk__max(pixels, conv->filters * SUMMED_AT_ONCE);
}

enum { SUMS_COUNT = PIXELS_AT_ONCE * WIDTH, RIGHT_COUNT = SUMMED_AT_ONCE * WIDTH / 2 }; /* in floats */
enum { SUMS_OR_RIGHT_COUNT = SUMS_COUNT > RIGHT_COUNT ? SUMS_COUNT : RIGHT_COUNT };

static size_t tile_conv_memory_bytes(const lk_geometry *conv)
{
    return (size_t)direct_packed_count(conv) * sizeof(float) + (size_t)tile_conv_left_count(conv) * sizeof(element) +
           SUMS_OR_RIGHT_COUNT * sizeof(float) + (size_t)direct_conv_area_of(conv->kernel) * sizeof(tap);
}

static buffers tile_conv_start(const lk_geometry *conv, void *memory)
{
    buffers b = {.packed = memory, .gradient = memory};
    b.left = (element *)(void *)(b.gradient + direct_packed_count(conv));
    b.sums = (float *)(void *)(b.left + tile_conv_left_count(conv));
    b.right = (element *)(void *)b.sums;
    b.taps = (tap *)(void *)(b.sums + SUMS_OR_RIGHT_COUNT);
    return b;
}

/* --- forward, and the gradient of the input ----------------------------------------------------------------------- */

/* Copies what all taps of a phase connect with n pixels. */
static void tile_conv_copy(const direction *d, const phase *p, const element *x, const pixel *pixels, int64_t n,
                           element *left)
{
    int64_t offsets[PIXELS_AT_ONCE], a_block = direct_conv_area_of(d->from_size) * BLOCK;
    for (int64_t t = 0; t < p->n_taps; t++) {
        tile_conv_find_sources(d, p, &p->taps[t], pixels, n, offsets);
        for (int64_t c = 0; c < d->from_channels; c += BLOCK) {
            const element *from = x + c / BLOCK * a_block;
            element *to = left + (t * d->from_channels + c - c % DEPTH) * PIXELS_AT_ONCE + c % DEPTH;
            for (int64_t i = 0; i < n; i++, to += DEPTH)
                memcpy(to, tile_conv_at(from, offsets[i]), BLOCK * sizeof *to);
        }
    }
}

/* Sets the sums of all pixels to the bias of their channels. */
static void tile_conv_start_sums(const element *bias, float *sums)
{
    for (int b = 0; b < PAIR; b++) {
        vec of_channels = bias ? vec_widen(bias + b * BLOCK) : vec_zero();
        for (int64_t i = 0; i < PIXELS_AT_ONCE; i++)
            vec_store(sums + i * WIDTH + b * BLOCK, of_channels);
    }
}

/* Adds the products for one pair of blocks. Rows of `left` from the n-th on hold anything, and so do their sums. */
static void tile_conv_multiply(const direction *d, const phase *p, const buffers *b, const element *weights, int64_t n,
                               float *sums)
{
    int64_t steps = d->from_channels / DEPTH, at_once = lk__max(STEPS_AT_ONCE / steps, 1);
    for (int64_t first = 0; first < p->n_taps; first += at_once)
        for (int64_t i = 0; i < n; i += ROWS) {
            tile_conv_load(sums + i * WIDTH);
            for (int64_t t = first; t < lk__min(first + at_once, p->n_taps); t++)
                tile_conv_add(b->left + (t * steps * PIXELS_AT_ONCE + i) * DEPTH, PIXELS_AT_ONCE * DEPTH,
                              weights + p->taps[t].number * steps * STEP, steps);
            tile_conv_store(sums + i * WIDTH);
        }
}

/* Rounds sums to y; if `passed` is given, after relu. */
static void tile_conv_finish_sums(const float *sums, const int64_t *offsets, int64_t n, element *y, uint8_t *passed)
{
    for (int64_t i = 0; i < n; i++) {
        vec value = vec_load(sums + i * WIDTH);
        vec_round(y + offsets[i], passed ? lk__rectify(value, passed + offsets[i] / 8) : value);
    }
}

/* Computes n pixels of a phase, from number `first` on, for all channels. */
static void tile_conv_pixels(const lk_geometry *conv, const direction *d, const phase *p, const buffers *b,
                             const element *x, int64_t first, int64_t n, const element *bias, element *y,
                             uint8_t *passed)
{
    pixel pixels[PIXELS_AT_ONCE];
    int64_t offsets[PIXELS_AT_ONCE], taps = direct_conv_area_of(conv->kernel),
                                     to_block = direct_conv_area_of(d->to_size) * BLOCK;
    tile_conv_list(p, first, n, pixels);
    tile_conv_find_results(d, p, pixels, n, offsets);
    tile_conv_copy(d, p, x, pixels, n, b->left);
    for (int64_t c = 0; c < d->to_channels; c += WIDTH) {
        tile_conv_start_sums(bias ? bias + c : NULL, b->sums);
        tile_conv_multiply(d, p, b, b->packed + c * taps * d->from_channels, n, b->sums);
        for (int64_t block = 0; block < PAIR; block++) {
            int64_t at = (c / BLOCK + block) * to_block;
            tile_conv_finish_sums(b->sums + block * BLOCK, offsets, n, y + at, passed ? passed + at / 8 : NULL);
        }
    }
}

static void tile_convolve(const lk_geometry *conv, const direction *d, const element *x, const lk_block_weights *w,
                          const element *bias, element *y, uint8_t *passed, void *memory)
{
    buffers b = tile_conv_start(conv, memory);
    if (w->kept)
        b.packed = w->kept;
    if (!w->is_made)
        direct_pack(conv, w->plain, d->gradient, b.packed);
    tile_configure();
    int64_t phases[2] = {d->gradient ? conv->stride[0] : 1, d->gradient ? conv->stride[1] : 1};
    for (int64_t i = 0; i < direct_conv_area_of(phases); i++) {
        phase p = tile_conv_phase(conv, d, i / phases[1], i % phases[1], b.taps);
        for (int64_t first = 0; first < conv->images * p.pixels; first += PIXELS_AT_ONCE)
            tile_conv_pixels(conv, d, &p, &b, x, first, lk__min(conv->images * p.pixels - first, PIXELS_AT_ONCE), bias,
                             y, passed);
    }
    tile_release();
}

static void tile_conv2d(const lk_geometry *conv, const void *x, const lk_block_weights *w, const void *bias, void *y,
                        uint8_t *passed, void *memory)
{
    direction d = {false, conv->channels, conv->filters, conv->in, conv->out};
    tile_convolve(conv, &d, x, w, bias, y, passed, memory);
}

static void tile_conv_input_grad(const lk_geometry *conv, const void *dy, const lk_block_weights *w, void *dx,
                                 void *memory)
{
    direction d = {true, conv->filters, conv->channels, conv->out, conv->in};
    tile_convolve(conv, &d, dy, w, NULL, dx, NULL, memory);
}

/* --- the gradient of the weights ---------------------------------------------------------------------------------- */

/* Joins neighboring pixels of a block to words: [n / 2][BLOCK][2], `stride` elements from word to word. */
static void tile_conv_join(const element *x, const int64_t *offsets, int64_t n, element *joined, int64_t stride)
{
    for (int64_t i = 0; i < n; i += 2, joined += stride)
        word_store(joined,
                   word_join((const element *const[]){tile_conv_at(x, offsets[i]), tile_conv_at(x, offsets[i + 1])}));
}

/* Copies DEPTH pixels of dy to a row for each channel of a block. dy is transposed, not x, because it is the same for
 * all taps. */
static void tile_conv_transpose(const element *dy, const int64_t *offsets, element *rows)
{
    enum { WORDS = DEPTH / 2 };
    const lk_interleaving words = lk__interleaving_of_channels(1, BLOCK, WORDS, BLOCK);
    _Alignas(64) element joined[WORDS * BLOCK * 2];
    tile_conv_join(dy, offsets, DEPTH, joined, BLOCK * 2);
    lk__deinterleave(&words, (const float *)(const void *)joined, (float *)(void *)rows);
}

/* Adds n pixels of dy to the gradient for all taps. Zeros fill them up to a multiple of DEPTH. */
static void tile_conv_sum_pixels(const lk_geometry *conv, const direction *d, const phase *p, const buffers *b,
                                 const element *dy, const element *x, int64_t first, int64_t n)
{
    enum { A_PAIR = SUMMED_AT_ONCE * ROWS };
    pixel pixels[SUMMED_AT_ONCE];
    int64_t offsets[SUMMED_AT_ONCE], steps = lk__divide_up(n, DEPTH), end = steps * DEPTH;
    int64_t in_block = direct_conv_area_of(conv->in) * BLOCK, out_block = direct_conv_area_of(conv->out) * BLOCK;
    float *dw = b->gradient;
    tile_conv_list(p, first, n, pixels);
    tile_conv_find_results(d, p, pixels, n, offsets);
    for (int64_t i = n; i < end; i++)
        offsets[i] = -1;
    for (int64_t f = 0; f < conv->filters; f += BLOCK)
        for (int64_t s = 0; s < steps; s++)
            tile_conv_transpose(dy + f / BLOCK * out_block, offsets + s * DEPTH,
                                b->left + f / WIDTH * A_PAIR + s * STEP + f % WIDTH * DEPTH);
    for (int64_t t = 0; t < p->n_taps; t++) {
        tile_conv_find_sources(d, p, &p->taps[t], pixels, n, offsets);
        for (int64_t c = 0; c < conv->channels; c += WIDTH) {
            for (int64_t block = 0; block < PAIR; block++)
                tile_conv_join(x + (c / BLOCK + block) * in_block, offsets, end, b->right + block * BLOCK * 2,
                               WIDTH * 2);
            for (int64_t f = 0; f < conv->filters; f += WIDTH) {
                float *sums = dw + ((f / WIDTH * (conv->channels / WIDTH) + c / WIDTH) * p->n_taps + t) * WIDTH * WIDTH;
                tile_conv_load(sums);
                tile_conv_add(b->left + f / WIDTH * A_PAIR, STEP, b->right, steps);
                tile_conv_store(sums);
            }
        }
    }
}

static void tile_conv_unpack_gradient(const lk_geometry *conv, const float *packed, float *dw)
{
    int64_t taps = direct_conv_area_of(conv->kernel);
    for (int64_t f = 0; f < conv->filters; f++)
        for (int64_t c = 0; c < conv->channels; c++) {
            const float *from = packed + (f / WIDTH * (conv->channels / WIDTH) + c / WIDTH) * taps * WIDTH * WIDTH;
            for (int64_t t = 0; t < taps; t++)
                *dw++ = from[(t * WIDTH + f % WIDTH) * WIDTH + c % WIDTH];
        }
}

static void tile_conv_weight_grad(const lk_geometry *conv, const void *dy, const void *x, float *dw, void *memory)
{
    direction d = {false, conv->channels, conv->filters, conv->in, conv->out};
    buffers b = tile_conv_start(conv, memory);
    phase p = tile_conv_phase(conv, &d, 0, 0, b.taps);
    memset(b.gradient, 0, (size_t)direct_packed_count(conv) * sizeof *b.gradient);
    tile_configure();
    for (int64_t first = 0; first < conv->images * p.pixels; first += SUMMED_AT_ONCE)
        tile_conv_sum_pixels(conv, &d, &p, &b, dy, x, first, lk__min(conv->images * p.pixels - first, SUMMED_AT_ONCE));
    tile_release();
    tile_conv_unpack_gradient(conv, b.gradient, dw);
}

/* --- the algorithm ------------------------------------------------------------------------------------------------ */

static bool tile_conv_takes(const lk_geometry *conv)
{
    return conv->channels % WIDTH == 0 && conv->filters % WIDTH == 0;
}

const lk_block_algorithm LK_ISA(lk__block_tiles) = {
    .name = "direct:" LK_ISA_NAME,
    .block = BLOCK,
    .takes = tile_conv_takes,
    .memory = tile_conv_memory_bytes,
    .kept_bytes = direct_kept_bytes,
    .conv2d = tile_conv2d,
    .input_grad = tile_conv_input_grad,
    .weight_grad = tile_conv_weight_grad,
};
