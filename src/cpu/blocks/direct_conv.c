/* Direct convolution on blocks of channels, as lists of pixels: see lk__block_direct_avx2 in block_conv.h. */
#include "base/minmax.h"
#include "cpu/blocks/block_conv.h"
#include "cpu/blocks/direct_weights.h"
#include "cpu/vector/rectify.h"
#include "cpu/vector/vector.h"

#include <string.h>

/* A tile has PIXELS by PAIR accumulators, or CHANNELS by PAIR for the gradient of the weights. They hide the latency of
 * fused multiply-adds and leave registers for the operands. */
enum { PIXELS = LK_REGISTERS == 32 ? 14 : 6, CHANNELS = LK_REGISTERS == 32 ? 8 : 4 };

/* The weights of one tap and this many channels stay in the first-level cache while a chunk's pixels pass. */
enum { CHANNELS_AT_ONCE = 128 };

/* A chunk has as many images as are needed for this many pixels. */
enum { PIXELS_OF_CHUNK = 400 };

/* For the gradient of the weights this many pixels of a pair of blocks of dy, of a block of x and of two lists fit into
 * the first-level cache. */
enum { PIXELS_AT_ONCE = 224, WORDS_AT_ONCE = PIXELS_AT_ONCE / LK_PER_WORD };

static int64_t direct_conv_chunk_images(const lk_geometry *conv)
{
    return lk__min((PIXELS_OF_CHUNK + direct_conv_area_of(conv->out) - 1) / direct_conv_area_of(conv->out),
                   conv->images);
}

/* --- lists of pixels ---------------------------------------------------------------------------------------------- */

/* The pairs of pixels that a tap connects: offsets from the first image of a chunk, in elements, image by image. */
typedef struct tap_list {
    int32_t *in, *out;
    int64_t an_image; /* pairs of an image */
} tap_list;

static int64_t direct_conv_list_capacity(const lk_geometry *conv)
{
    return direct_conv_chunk_images(conv) * direct_conv_area_of(conv->out);
}

static void direct_conv_list_tap(const lk_geometry *conv, int64_t row_tap, int64_t column_tap, tap_list *list)
{
    int64_t in_image = conv->channels * direct_conv_area_of(conv->in),
            out_image = conv->filters * direct_conv_area_of(conv->out), n = 0;
    int64_t images = direct_conv_chunk_images(conv);
    for (int64_t image = 0; image < images; image++)
        for (int64_t r = 0; r < conv->out[0]; r++) {
            int64_t row = r * conv->stride[0] - conv->padding[0] + row_tap * conv->dilation[0];
            for (int64_t c = 0; c < conv->out[1]; c++) {
                int64_t column = c * conv->stride[1] - conv->padding[1] + column_tap * conv->dilation[1];
                if (row < 0 || row >= conv->in[0] || column < 0 || column >= conv->in[1])
                    continue;
                list->in[n] = (int32_t)(image * in_image + (row * conv->in[1] + column) * BLOCK);
                list->out[n++] = (int32_t)(image * out_image + (r * conv->out[1] + c) * BLOCK);
            }
        }
    list->an_image = n / images;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* The memory of a call: packed weights or their gradient, sums or joined pixels, then the lists of all taps, then their
 * offsets. */
typedef struct tables {
    element *packed;
    float *gradient; /* of the weights, in the memory of `packed` */
    float *sums;     /* with bf16: y of a pair of blocks and a chunk of images */
    element *joined; /* with bf16, in the memory of `sums`: for the gradient of the weights, see direct_join_pixels */
    tap_list *lists;
} tables;

/* Returns the floats of `sums` for one direction. The images of a chunk lie as far apart as in y. */
static int64_t direct_conv_sums_of(const lk_geometry *conv, int64_t channels, int64_t pixels)
{
    return ((direct_conv_chunk_images(conv) - 1) * channels + lk__min(channels, WIDTH)) * pixels;
}

/* Returns the number of floats of `sums` and `joined`. */
static int64_t direct_conv_sums_count(const lk_geometry *conv)
{
    if (LK_PER_WORD == 1)
        return 0;
    int64_t forward = direct_conv_sums_of(conv, conv->filters, direct_conv_area_of(conv->out));
    int64_t backward = direct_conv_sums_of(conv, conv->channels, direct_conv_area_of(conv->in));
    int64_t joined = (conv->filters + BLOCK) * WORDS_AT_ONCE;
    return lk__max(joined, lk__max(forward, backward));
}

static size_t direct_memory_bytes(const lk_geometry *conv)
{
    int64_t taps = direct_conv_area_of(conv->kernel);
    return (size_t)(direct_packed_count(conv) + direct_conv_sums_count(conv)) * sizeof(float) +
           (size_t)taps * sizeof(tap_list) + (size_t)(2 * taps * direct_conv_list_capacity(conv)) * sizeof(int32_t);
}

/* Lays out `memory` and fills the lists. */
static tables direct_start(const lk_geometry *conv, void *memory)
{
    int64_t taps = direct_conv_area_of(conv->kernel), capacity = direct_conv_list_capacity(conv);
    float *sums = (float *)memory + direct_packed_count(conv);
    tables made = {.packed = memory, .gradient = memory, .sums = sums, .joined = (element *)(void *)sums};
    made.lists = (tap_list *)(void *)(sums + direct_conv_sums_count(conv));
    int32_t *offsets = (int32_t *)(void *)(made.lists + taps);
    for (int64_t t = 0; t < taps; t++, offsets += 2 * capacity) {
        made.lists[t] = (tap_list){.in = offsets, .out = offsets + capacity};
        direct_conv_list_tap(conv, t / conv->kernel[1], t % conv->kernel[1], &made.lists[t]);
    }
    return made;
}

/* Unpacks the gradient [pair of blocks of filters][block of channels][tap][BLOCK][WIDTH] to dw. */
static void direct_conv_unpack_gradient(const lk_geometry *conv, const float *packed, float *dw)
{
    int64_t taps = direct_conv_area_of(conv->kernel), pair = conv->channels * taps * WIDTH;
    for (int64_t o = 0; o < conv->filters; o++)
        for (int64_t i = 0; i < conv->channels; i++) {
            const float *from = packed + o / WIDTH * pair + i / BLOCK * taps * BLOCK * WIDTH;
            for (int64_t t = 0; t < taps; t++)
                *dw++ = from[(t * BLOCK + i % BLOCK) * WIDTH + o % WIDTH];
        }
}

/* --- forward, and the gradient of the input ----------------------------------------------------------------------- */

/* One side of a product: the offsets of its pixels, and the distance from one block of channels to the next. */
typedef struct side {
    const int32_t *offsets;
    int64_t block;
} side;

/* Adds w x to `n` pixels and `wide` blocks of y, over `blocks` blocks of x. */
LK_BODY void multiply_tile(const element *x, side from, const element *w, int64_t blocks, float *y, side to,
                           const int n, const int wide)
{
    vec sum[PIXELS][PAIR]; /* only ever indexed by constants, so it lives in registers */
    const element *pixel[PIXELS];
    for (int j = 0; j < n; j++) {
        pixel[j] = x + from.offsets[j];
        for (int b = 0; b < wide; b++)
            sum[j][b] = vec_loadu(y + to.offsets[j] + b * to.block);
    }
    for (int64_t at = 0; at < blocks * from.block; at += from.block) {
        for (int i = 0; i < BLOCK; i += LK_PER_WORD, w += WIDTH * LK_PER_WORD) {
            vec_word w0 = word_load(w), w1 = word_load(w + BLOCK * LK_PER_WORD);
            for (int j = 0; j < n; j++) {
                vec_word value = word_broadcast(pixel[j] + at + i);
                sum[j][0] = word_fmadd(value, w0, sum[j][0]);
                if (wide == PAIR)
                    sum[j][1] = word_fmadd(value, w1, sum[j][1]);
            }
        }
    }
    for (int j = 0; j < n; j++)
        for (int b = 0; b < wide; b++)
            vec_storeu(y + to.offsets[j] + b * to.block, sum[j][b]);
}

/* The same for fewer than six pixels. */
LK_BODY void multiply_rest(const element *x, side from, const element *w, int64_t blocks, float *y, side to, int64_t n,
                           const int wide)
{
#define TILE_CASE(n)                                       \
    case n:                                                \
        multiply_tile(x, from, w, blocks, y, to, n, wide); \
        break;
    switch (n) {
        LK_UP_TO_FIVE(TILE_CASE)
    }
#undef TILE_CASE
}

/* The same for any number of pixels. w: the packed weights of a tap from some channel on, `blocks` blocks of them. */
LK_BODY void multiply_pixels(const element *x, side from, const element *w, int64_t blocks, float *y, side to,
                             int64_t n, const int wide)
{
    for (; n >= PIXELS; n -= PIXELS, from.offsets += PIXELS, to.offsets += PIXELS)
        multiply_tile(x, from, w, blocks, y, to, PIXELS, wide);
    for (; PIXELS > 6 && n >= 6; n -= 6, from.offsets += 6, to.offsets += 6)
        multiply_tile(x, from, w, blocks, y, to, 6, wide);
    multiply_rest(x, from, w, blocks, y, to, n, wide);
}

static void direct_conv_multiply_single(const element *x, side from, const element *w, int64_t blocks, float *y,
                                        side to, int64_t n)
{
    multiply_pixels(x, from, w, blocks, y, to, n, 1);
}

static void direct_conv_multiply_pair(const element *x, side from, const element *w, int64_t blocks, float *y, side to,
                                      int64_t n)
{
    multiply_pixels(x, from, w, blocks, y, to, n, PAIR);
}

/* The direction of a convolution: which side is summed over, and the channels and pixels of both sides. */
typedef struct direction {
    bool gradient;
    int64_t from_channels, from_pixels, to_channels, to_pixels;
} direction;

/* Adds the products for one pair of blocks of y to `sums`, for a chunk of images. */
static void direct_conv_multiply_chunk(const lk_geometry *conv, const direction *d, const tables *t, const element *x,
                                       int64_t pair, int64_t images, float *sums)
{
    int64_t taps = direct_conv_area_of(conv->kernel);
    bool single = (pair + 1) * WIDTH > d->to_channels;
    for (int64_t tap = 0; tap < taps; tap++) {
        const tap_list *list = &t->lists[tap];
        side from = {d->gradient ? list->out : list->in, d->from_pixels * BLOCK};
        side to = {d->gradient ? list->in : list->out, d->to_pixels * BLOCK};
        for (int64_t c = 0; c < d->from_channels; c += CHANNELS_AT_ONCE) {
            int64_t blocks = lk__min(d->from_channels - c, CHANNELS_AT_ONCE) / BLOCK;
            const element *weights = t->packed + ((pair * taps + tap) * d->from_channels + c) * WIDTH;
            (single ? direct_conv_multiply_single : direct_conv_multiply_pair)(
                x + c * d->from_pixels, from, weights, blocks, sums, to, list->an_image * images);
        }
    }
}

/* Sets `blocks` blocks of sums to the bias of their channels. */
static void direct_conv_start_sums(const direction *d, const element *bias, int64_t blocks, float *sums)
{
    int64_t a_block = d->to_pixels * BLOCK;
    if (!bias) {
        memset(sums, 0, (size_t)(blocks * a_block) * sizeof *sums);
        return;
    }
    for (int64_t b = 0; b < blocks; b++, bias += BLOCK) {
        vec of_channels = vec_widen(bias);
        for (int64_t i = 0; i < a_block; i += BLOCK, sums += BLOCK)
            vec_storeu(sums, of_channels);
    }
}

/* Rounds sums, which are still in the cache, to y; if `passed` is given, after relu. */
static void direct_conv_finish_sums(const float *sums, int64_t count, element *y, uint8_t *passed)
{
    for (int64_t i = 0; i < count; i += BLOCK) {
        vec value = vec_loadu(sums + i);
        vec_round(y + i, passed ? lk__rectify(value, passed + i / 8) : value);
    }
}

/* Computes one pair of blocks of y for a chunk of images. With f32, y itself holds the sums. */
static void direct_conv_chunk(const lk_geometry *conv, const direction *d, const tables *t, const element *x,
                              int64_t pair, int64_t images, const element *bias, element *y, uint8_t *passed)
{
    int64_t an_image = d->to_channels * d->to_pixels, blocks = lk__min(d->to_channels - pair * WIDTH, WIDTH) / BLOCK,
            count = blocks * BLOCK * d->to_pixels;
    float *sums = LK_PER_WORD == 1 ? (float *)(void *)y : t->sums;
    for (int64_t i = 0; i < images; i++)
        direct_conv_start_sums(d, bias, blocks, sums + i * an_image);
    direct_conv_multiply_chunk(conv, d, t, x, pair, images, sums);
    for (int64_t i = 0; i < images && (LK_PER_WORD > 1 || passed); i++)
        direct_conv_finish_sums(sums + i * an_image, count, y + i * an_image,
                                passed ? passed + i * an_image / 8 : NULL);
}

static void direct_convolve(const lk_geometry *conv, const direction *d, const element *x, const lk_block_weights *w,
                            const element *bias, element *y, uint8_t *passed, void *memory)
{
    tables t = direct_start(conv, memory);
    int64_t chunk = direct_conv_chunk_images(conv), from_image = d->from_channels * d->from_pixels;
    int64_t to_image = d->to_channels * d->to_pixels;
    if (w->kept)
        t.packed = w->kept;
    if (!w->is_made)
        direct_pack(conv, w->plain, d->gradient, t.packed);
    for (int64_t first = 0; first < conv->images; first += chunk) {
        int64_t images = lk__min(conv->images - first, chunk);
        for (int64_t pair = 0; pair < block_pairs(d->to_channels); pair++) {
            int64_t at = first * to_image + pair * WIDTH * d->to_pixels;
            direct_conv_chunk(conv, d, &t, x + first * from_image, pair, images, bias ? bias + pair * WIDTH : NULL,
                              y + at, passed ? passed + at / 8 : NULL);
        }
    }
}

/* --- the gradient of the weights ---------------------------------------------------------------------------------- */

/* The words of pixels that a piece multiplies. With f32 they are elements of x and dy, found through a list. With bf16
 * a word joins two pixels that follow each other on the list, and words lie next to each other. */
typedef struct words {
    const element *x, *dy;
    const int32_t *in, *out; /* with f32 */
    int64_t dy_block;        /* the distance from one block of dy to the next */
    int64_t count;
} words;

/* Adds to dw [CHANNELS][WIDTH] the sum of x dy. */
LK_BODY void gradient_tile(const words *from, int64_t channel, float *dw, const int wide)
{
    vec sum[CHANNELS][PAIR];
    for (int i = 0; i < CHANNELS; i++)
        sum[i][0] = sum[i][1] = vec_zero();
    for (int64_t k = 0; k < from->count; k++) {
        int64_t a_word = BLOCK * LK_PER_WORD;
        const element *dy = from->dy + (LK_PER_WORD == 1 ? from->out[k] : k * a_word);
        const element *pixel = from->x + (LK_PER_WORD == 1 ? from->in[k] : k * a_word) + channel * LK_PER_WORD;
        vec_word d0 = word_loadu(dy), d1 = wide == PAIR ? word_loadu(dy + from->dy_block) : d0;
        for (int i = 0; i < CHANNELS; i++) {
            vec_word value = word_broadcast(pixel + i * LK_PER_WORD);
            sum[i][0] = word_fmadd(value, d0, sum[i][0]);
            if (wide == PAIR)
                sum[i][1] = word_fmadd(value, d1, sum[i][1]);
        }
    }
    for (int i = 0; i < CHANNELS; i++)
        for (int b = 0; b < wide; b++) {
            float *to = dw + i * WIDTH + b * BLOCK;
            vec_store(to, vec_add(vec_load(to), sum[i][b]));
        }
}

static void gradient_block(const words *from, float *dw, bool single)
{
    for (int64_t i = 0; i < BLOCK; i += CHANNELS) {
        if (single)
            gradient_tile(from, i, dw + i * WIDTH, 1);
        else
            gradient_tile(from, i, dw + i * WIDTH, PAIR);
    }
}

/* Adds to the gradient of a pair of blocks of filters, for each tap, at most PIXELS_AT_ONCE pairs of pixels, from
 * number `begin` of its list on. */
static void direct_conv_gradient_piece(const lk_geometry *conv, const tables *t, const element *dy, const element *x,
                                       int64_t pair, int64_t begin, int64_t images)
{
    int64_t taps = direct_conv_area_of(conv->kernel), in_pixels = direct_conv_area_of(conv->in),
            out_pixels = direct_conv_area_of(conv->out);
    bool single = (pair + 1) * WIDTH > conv->filters;
    float *dw = t->gradient + pair * conv->channels * taps * WIDTH;
    for (int64_t c = 0; c < conv->channels; c += BLOCK)
        for (int64_t tap = 0; tap < taps; tap++, dw += BLOCK * WIDTH) {
            const tap_list *list = &t->lists[tap];
            words from = {.x = x + c * in_pixels,
                          .dy = dy + pair * WIDTH * out_pixels,
                          .in = list->in + begin,
                          .out = list->out + begin,
                          .dy_block = out_pixels * BLOCK,
                          .count = lk__min(list->an_image * images - begin, PIXELS_AT_ONCE)};
            gradient_block(&from, dw, single);
        }
}

/* Joins n pixels of a block, found through a list, to words; an odd last pixel is joined with zeros. */
static void direct_join_pixels(const element *x, const int32_t *offsets, int64_t n, element *joined)
{
    static const element zeros[BLOCK];
    for (int64_t k = 0; k < n; k += LK_PER_WORD, joined += BLOCK * LK_PER_WORD) {
        const element *pixel[LK_PER_WORD];
        for (int i = 0; i < LK_PER_WORD; i++)
            pixel[i] = k + i < n ? x + offsets[k + i] : zeros;
        word_store(joined, word_join(pixel));
    }
}

/* The same as direct_conv_gradient_piece for all filters and one tap. dy is joined once for all channels, and x once
 * for all filters. */
static void direct_conv_gradient_tap(const lk_geometry *conv, const tables *t, const element *dy, const element *x,
                                     int64_t tap, int64_t begin, int64_t images)
{
    enum { A_BLOCK = WORDS_AT_ONCE * BLOCK * LK_PER_WORD };
    const tap_list *list = &t->lists[tap];
    int64_t taps = direct_conv_area_of(conv->kernel), in_pixels = direct_conv_area_of(conv->in),
            out_pixels = direct_conv_area_of(conv->out);
    int64_t n = lk__min(list->an_image * images - begin, PIXELS_AT_ONCE), blocks = conv->filters / BLOCK;
    words from = {.x = t->joined, .dy_block = A_BLOCK, .count = (n + LK_PER_WORD - 1) / LK_PER_WORD};
    if (n <= 0)
        return;
    for (int64_t b = 0; b < blocks; b++)
        direct_join_pixels(dy + b * BLOCK * out_pixels, list->out + begin, n, t->joined + (b + 1) * A_BLOCK);
    for (int64_t c = 0; c < conv->channels; c += BLOCK) {
        direct_join_pixels(x + c * in_pixels, list->in + begin, n, t->joined);
        for (int64_t pair = 0; pair < block_pairs(conv->filters); pair++) {
            float *dw = t->gradient + (pair * conv->channels * taps + c * taps + tap * BLOCK) * WIDTH;
            from.dy = t->joined + (1 + pair * PAIR) * A_BLOCK;
            gradient_block(&from, dw, (pair + 1) * WIDTH > conv->filters);
        }
    }
}

static void direct_conv_gradient_chunk(const lk_geometry *conv, const tables *t, const element *dy, const element *x,
                                       int64_t images)
{
    int64_t pixels = images * direct_conv_area_of(conv->out);
    if (LK_PER_WORD > 1) {
        for (int64_t begin = 0; begin < pixels; begin += PIXELS_AT_ONCE)
            for (int64_t tap = 0; tap < direct_conv_area_of(conv->kernel); tap++)
                direct_conv_gradient_tap(conv, t, dy, x, tap, begin, images);
        return;
    }
    for (int64_t pair = 0; pair < block_pairs(conv->filters); pair++)
        for (int64_t begin = 0; begin < pixels; begin += PIXELS_AT_ONCE)
            direct_conv_gradient_piece(conv, t, dy, x, pair, begin, images);
}

static void direct_weight_grad(const lk_geometry *conv, const void *dy, const void *x, float *dw, void *memory)
{
    tables t = direct_start(conv, memory);
    const element *dys = dy, *xs = x;
    int64_t chunk = direct_conv_chunk_images(conv), in_image = conv->channels * direct_conv_area_of(conv->in);
    int64_t out_image = conv->filters * direct_conv_area_of(conv->out);
    memset(t.gradient, 0, (size_t)direct_packed_count(conv) * sizeof *t.gradient);
    for (int64_t first = 0; first < conv->images; first += chunk)
        direct_conv_gradient_chunk(conv, &t, dys + first * out_image, xs + first * in_image,
                                   lk__min(conv->images - first, chunk));
    direct_conv_unpack_gradient(conv, t.gradient, dw);
}

/* --- the algorithm ------------------------------------------------------------------------------------------------ */

static void direct_conv2d(const lk_geometry *conv, const void *x, const lk_block_weights *w, const void *bias, void *y,
                          uint8_t *passed, void *memory)
{
    direction d = {false, conv->channels, direct_conv_area_of(conv->in), conv->filters, direct_conv_area_of(conv->out)};
    direct_convolve(conv, &d, x, w, bias, y, passed, memory);
}

static void direct_input_grad(const lk_geometry *conv, const void *dy, const lk_block_weights *w, void *dx,
                              void *memory)
{
    direction d = {true, conv->filters, direct_conv_area_of(conv->out), conv->channels, direct_conv_area_of(conv->in)};
    direct_convolve(conv, &d, dy, w, NULL, dx, NULL, memory);
}

static bool direct_takes(const lk_geometry *conv)
{
    return conv->channels % BLOCK == 0 && conv->filters % BLOCK == 0;
}

const lk_block_algorithm LK_ISA(lk__block_direct) = {
    "direct:" LK_ISA_NAME, BLOCK,         direct_takes,      direct_memory_bytes,
    direct_kept_bytes,     direct_conv2d, direct_input_grad, direct_weight_grad,
};
