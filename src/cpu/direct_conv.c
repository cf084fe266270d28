#include "cpu/block_conv.h"

#include "cpu/rectify.h"
#include "cpu/vector.h"

#include <string.h>

enum { BLOCK = LK_WIDTH, PAIR = 2, WIDTH = PAIR * BLOCK };

/* PIXELS by PAIR accumulators hide the latency of fused multiply-adds and leave room for the operands in registers. Of
 * the weights' gradient it is CHANNELS by PAIR. */
enum { PIXELS = LK_REGISTERS == 32 ? 14 : 6, CHANNELS = LK_REGISTERS == 32 ? 8 : 4 };

/* Weights of one tap and this many channels stay in the first cache while a group's pixels pass. */
enum { CHANNELS_AT_ONCE = 128 };

/* Images are taken together until they have this many pixels. */
enum { PIXELS_OF_GROUP = 400 };

/* Of the weights' gradient: these pixels of dy's pair of blocks, of a block of x and of two lists fit the first cache.
 */
enum { PIXELS_AT_ONCE = 224 };

static int64_t area(const int64_t size[2])
{
    return size[0] * size[1];
}

static int64_t pairs_of(int64_t channels)
{
    return (channels + WIDTH - 1) / WIDTH;
}

static int64_t group_images(const lk_block_conv *conv)
{
    int64_t images = (PIXELS_OF_GROUP + area(conv->out) - 1) / area(conv->out);
    return images < conv->images ? images : conv->images;
}

/* --- pixels that taps connect ------------------------------------------------------------------------------------- */

/* Offsets of pixels from the first image of a group, in elements, image by image. */
typedef struct tap_list {
    int32_t *in, *out;
    int64_t an_image; /* pairs */
} tap_list;

static int64_t list_room(const lk_block_conv *conv)
{
    return group_images(conv) * area(conv->out);
}

static void list_tap(const lk_block_conv *conv, int64_t row_tap, int64_t column_tap, tap_list *list)
{
    int64_t in_image = conv->channels * area(conv->in), out_image = conv->filters * area(conv->out), n = 0;
    int64_t images = group_images(conv);
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

/* Packed weights, then the lists of all taps, then their pixels. */
typedef struct tables {
    float *packed;
    tap_list *lists;
} tables;

static int64_t packed_count(const lk_block_conv *conv)
{
    int64_t forward = pairs_of(conv->filters) * conv->channels, backward = pairs_of(conv->channels) * conv->filters;
    return (forward > backward ? forward : backward) * WIDTH * area(conv->kernel);
}

static size_t kept_bytes(const lk_block_conv *conv, bool for_input_grad)
{
    (void)for_input_grad;
    return (size_t)packed_count(conv) * sizeof(float);
}

static size_t memory_bytes(const lk_block_conv *conv)
{
    int64_t taps = area(conv->kernel);
    return (size_t)packed_count(conv) * sizeof(float) + (size_t)taps * sizeof(tap_list) +
           (size_t)(2 * taps * list_room(conv)) * sizeof(int32_t);
}

static tables start(const lk_block_conv *conv, void *memory)
{
    int64_t taps = area(conv->kernel), room = list_room(conv);
    tables made = {.packed = memory};
    made.lists = (tap_list *)(void *)(made.packed + packed_count(conv));
    int32_t *offsets = (int32_t *)(void *)(made.lists + taps);
    for (int64_t t = 0; t < taps; t++, offsets += 2 * room) {
        made.lists[t] = (tap_list){.in = offsets, .out = offsets + room};
        list_tap(conv, t / conv->kernel[1], t % conv->kernel[1], &made.lists[t]);
    }
    return made;
}

/* [pair of blocks of `to`][tap][`from`][WIDTH], zeros where there is no channel. to, from: filters and channels, or,
 * for the gradient of the input, channels and filters. */
static void pack(const lk_block_conv *conv, const float *w, bool for_gradient, float *packed)
{
    int64_t taps = area(conv->kernel), a_filter = conv->channels * taps;
    int64_t to = for_gradient ? conv->channels : conv->filters, from = for_gradient ? conv->filters : conv->channels;
    int64_t to_stride = for_gradient ? taps : a_filter, from_stride = for_gradient ? a_filter : taps;
    for (int64_t first = 0; first < to; first += WIDTH, packed += taps * from * WIDTH, w += WIDTH * to_stride) {
        int64_t width = to - first < WIDTH ? to - first : WIDTH;
        for (int64_t i = 0; i < from; i++)
            for (int64_t t = 0; t < taps; t++) {
                const float *weights = w + i * from_stride + t;
                float *row = packed + (t * from + i) * WIDTH;
                for (int64_t o = 0; o < width; o++)
                    row[o] = weights[o * to_stride];
                for (int64_t o = width; o < WIDTH; o++)
                    row[o] = 0;
            }
    }
}

/* dw from the packed gradient [pair of blocks of filters][block of channels][tap][BLOCK][WIDTH]. */
static void unpack_gradient(const lk_block_conv *conv, const float *packed, float *dw)
{
    int64_t taps = area(conv->kernel), pair = conv->channels * taps * WIDTH;
    for (int64_t o = 0; o < conv->filters; o++)
        for (int64_t i = 0; i < conv->channels; i++) {
            const float *from = packed + o / WIDTH * pair + i / BLOCK * taps * BLOCK * WIDTH;
            for (int64_t t = 0; t < taps; t++)
                *dw++ = from[(t * BLOCK + i % BLOCK) * WIDTH + o % WIDTH];
        }
}

/* --- forward, and the gradient of the input ----------------------------------------------------------------------- */

/* One side of a product: pixels at offsets[] from data, and the distance from a block of channels to the next. */
typedef struct side {
    const int32_t *offsets;
    int64_t block;
} side;

/* y += w x for n pixels and `wide` blocks of y, over `blocks` blocks of x. */
LK_BODY void multiply_tile(const float *x, side from, const float *w, int64_t blocks, float *y, side to, const int n,
                           const int wide)
{
    vec sum[PIXELS][PAIR]; /* only ever indexed by constants, so it lives in registers */
    const float *pixel[PIXELS];
    for (int j = 0; j < n; j++) {
        pixel[j] = x + from.offsets[j];
        for (int b = 0; b < wide; b++)
            sum[j][b] = vec_loadu(y + to.offsets[j] + b * to.block);
    }
    for (int64_t at = 0; at < blocks * from.block; at += from.block) {
        for (int i = 0; i < BLOCK; i++, w += WIDTH) {
            vec w0 = vec_load(w), w1 = vec_load(w + BLOCK);
            for (int j = 0; j < n; j++) {
                vec value = vec_broadcast(pixel[j] + at + i);
                sum[j][0] = vec_fmadd(value, w0, sum[j][0]);
                if (wide == PAIR)
                    sum[j][1] = vec_fmadd(value, w1, sum[j][1]);
            }
        }
    }
    for (int j = 0; j < n; j++)
        for (int b = 0; b < wide; b++)
            vec_storeu(y + to.offsets[j] + b * to.block, sum[j][b]);
}

/* Fewer than six. */
LK_BODY void multiply_rest(const float *x, side from, const float *w, int64_t blocks, float *y, side to, int64_t n,
                           const int wide)
{
    switch (n) {
    case 1:
        multiply_tile(x, from, w, blocks, y, to, 1, wide);
        break;
    case 2:
        multiply_tile(x, from, w, blocks, y, to, 2, wide);
        break;
    case 3:
        multiply_tile(x, from, w, blocks, y, to, 3, wide);
        break;
    case 4:
        multiply_tile(x, from, w, blocks, y, to, 4, wide);
        break;
    case 5:
        multiply_tile(x, from, w, blocks, y, to, 5, wide);
        break;
    default:
        break;
    }
}

/* n pixels; w: packed weights of a tap from some channel on, `blocks` blocks of them. */
LK_BODY void multiply_pixels(const float *x, side from, const float *w, int64_t blocks, float *y, side to, int64_t n,
                             const int wide)
{
    for (; n >= PIXELS; n -= PIXELS, from.offsets += PIXELS, to.offsets += PIXELS)
        multiply_tile(x, from, w, blocks, y, to, PIXELS, wide);
    for (; PIXELS > 6 && n >= 6; n -= 6, from.offsets += 6, to.offsets += 6)
        multiply_tile(x, from, w, blocks, y, to, 6, wide);
    multiply_rest(x, from, w, blocks, y, to, n, wide);
}

static void multiply_single(const float *x, side from, const float *w, int64_t blocks, float *y, side to, int64_t n)
{
    multiply_pixels(x, from, w, blocks, y, to, n, 1);
}

static void multiply_pair(const float *x, side from, const float *w, int64_t blocks, float *y, side to, int64_t n)
{
    multiply_pixels(x, from, w, blocks, y, to, n, PAIR);
}

/* A direction of a convolution: which side is summed over, and how many channels and pixels the sides have. */
typedef struct direction {
    bool gradient;
    int64_t from_channels, from_pixels, to_channels, to_pixels;
} direction;

/* One pair of blocks of y, for a group of images. */
static void multiply_group(const lk_block_conv *conv, const direction *d, const tables *t, const float *x, int64_t pair,
                           int64_t images, float *y)
{
    int64_t taps = area(conv->kernel);
    bool single = (pair + 1) * WIDTH > d->to_channels;
    for (int64_t tap = 0; tap < taps; tap++) {
        const tap_list *list = &t->lists[tap];
        side from = {d->gradient ? list->out : list->in, d->from_pixels * BLOCK};
        side to = {d->gradient ? list->in : list->out, d->to_pixels * BLOCK};
        for (int64_t c = 0; c < d->from_channels; c += CHANNELS_AT_ONCE) {
            int64_t left = d->from_channels - c, blocks = (left < CHANNELS_AT_ONCE ? left : CHANNELS_AT_ONCE) / BLOCK;
            const float *weights = t->packed + ((pair * taps + tap) * d->from_channels + c) * WIDTH;
            (single ? multiply_single : multiply_pair)(x + c * d->from_pixels, from, weights, blocks,
                                                       y + pair * WIDTH * d->to_pixels, to, list->an_image * images);
        }
    }
}

/* Sets the pixels of an image to the bias of their channels. */
static void start_image(const direction *d, const float *bias, float *y)
{
    if (!bias) {
        memset(y, 0, (size_t)(d->to_channels * d->to_pixels) * sizeof *y);
        return;
    }
    for (int64_t c = 0; c < d->to_channels; c += BLOCK, bias += BLOCK)
        for (int64_t p = 0; p < d->to_pixels; p++, y += BLOCK)
            memcpy(y, bias, BLOCK * sizeof *y);
}

/* relu of what stays in the second-level cache. */
static void rectify(float *y, int64_t count, uint8_t *passed)
{
    for (int64_t i = 0; i < count; i += BLOCK)
        vec_storeu(y + i, lk__rectify(vec_loadu(y + i), passed + i / 8));
}

static void convolve(const lk_block_conv *conv, const direction *d, const float *x, const lk_block_weights *w,
                     const float *bias, float *y, uint8_t *passed, void *memory)
{
    tables t = start(conv, memory);
    int64_t group = group_images(conv), from_image = d->from_channels * d->from_pixels;
    int64_t to_image = d->to_channels * d->to_pixels;
    if (w->kept)
        t.packed = w->kept;
    if (!w->is_made)
        pack(conv, w->plain, d->gradient, t.packed);
    for (int64_t first = 0; first < conv->images; first += group) {
        int64_t images = conv->images - first < group ? conv->images - first : group;
        for (int64_t i = first; i < first + images; i++)
            start_image(d, bias, y + i * to_image);
        for (int64_t pair = 0; pair < pairs_of(d->to_channels); pair++)
            multiply_group(conv, d, &t, x + first * from_image, pair, images, y + first * to_image);
        if (passed)
            rectify(y + first * to_image, images * to_image, passed + first * to_image / 8);
    }
}

/* --- the gradient of the weights ---------------------------------------------------------------------------------- */

/* dw [CHANNELS][WIDTH] += the sum over n pixels of x dy. */
LK_BODY void gradient_tile(const float *x, const int32_t *in, const float *dy, side out, int64_t n, float *dw,
                           const int wide)
{
    vec sum[CHANNELS][PAIR];
    for (int i = 0; i < CHANNELS; i++)
        sum[i][0] = sum[i][1] = vec_zero();
    for (int64_t k = 0; k < n; k++) {
        const float *from = dy + out.offsets[k], *pixel = x + in[k];
        vec d0 = vec_loadu(from), d1 = wide == PAIR ? vec_loadu(from + out.block) : d0;
        for (int i = 0; i < CHANNELS; i++) {
            vec value = vec_broadcast(pixel + i);
            sum[i][0] = vec_fmadd(value, d0, sum[i][0]);
            if (wide == PAIR)
                sum[i][1] = vec_fmadd(value, d1, sum[i][1]);
        }
    }
    for (int i = 0; i < CHANNELS; i++)
        for (int b = 0; b < wide; b++) {
            float *to = dw + i * WIDTH + b * BLOCK;
            vec_store(to, vec_add(vec_load(to), sum[i][b]));
        }
}

static void gradient_block(const float *x, const int32_t *in, const float *dy, side out, int64_t n, float *dw,
                           bool single)
{
    for (int64_t i = 0; i < BLOCK; i += CHANNELS) {
        if (single)
            gradient_tile(x + i, in, dy, out, n, dw + i * WIDTH, 1);
        else
            gradient_tile(x + i, in, dy, out, n, dw + i * WIDTH, PAIR);
    }
}

/* A pair of blocks of filters, and the pairs of pixels of every tap from number `begin` on. */
static void gradient_piece(const lk_block_conv *conv, const tables *t, const float *dy, const float *x, int64_t pair,
                           int64_t begin, int64_t images)
{
    int64_t taps = area(conv->kernel), in_pixels = area(conv->in), out_pixels = area(conv->out);
    bool single = (pair + 1) * WIDTH > conv->filters;
    float *dw = t->packed + pair * conv->channels * taps * WIDTH;
    dy += pair * WIDTH * out_pixels;
    for (int64_t c = 0; c < conv->channels; c += BLOCK)
        for (int64_t tap = 0; tap < taps; tap++, dw += BLOCK * WIDTH) {
            const tap_list *list = &t->lists[tap];
            int64_t left = list->an_image * images - begin, n = left < PIXELS_AT_ONCE ? left : PIXELS_AT_ONCE;
            side out = {list->out + begin, out_pixels * BLOCK};
            gradient_block(x + c * in_pixels, list->in + begin, dy, out, n, dw, single);
        }
}

static void gradient_group(const lk_block_conv *conv, const tables *t, const float *dy, const float *x, int64_t pair,
                           int64_t images)
{
    for (int64_t begin = 0; begin < images * area(conv->out); begin += PIXELS_AT_ONCE)
        gradient_piece(conv, t, dy, x, pair, begin, images);
}

static void weight_grad(const lk_block_conv *conv, const float *dy, const float *x, float *dw, void *memory)
{
    tables t = start(conv, memory);
    int64_t group = group_images(conv), in_image = conv->channels * area(conv->in);
    int64_t out_image = conv->filters * area(conv->out);
    memset(t.packed, 0, (size_t)packed_count(conv) * sizeof(float));
    for (int64_t first = 0; first < conv->images; first += group) {
        int64_t images = conv->images - first < group ? conv->images - first : group;
        for (int64_t pair = 0; pair < pairs_of(conv->filters); pair++)
            gradient_group(conv, &t, dy + first * out_image, x + first * in_image, pair, images);
    }
    unpack_gradient(conv, t.packed, dw);
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static void conv2d(const lk_block_conv *conv, const float *x, const lk_block_weights *w, const float *bias, float *y,
                   uint8_t *passed, void *memory)
{
    direction d = {false, conv->channels, area(conv->in), conv->filters, area(conv->out)};
    convolve(conv, &d, x, w, bias, y, passed, memory);
}

static void input_grad(const lk_block_conv *conv, const float *dy, const lk_block_weights *w, float *dx, void *memory)
{
    direction d = {true, conv->filters, area(conv->out), conv->channels, area(conv->in)};
    convolve(conv, &d, dy, w, NULL, dx, NULL, memory);
}

static bool takes(const lk_block_conv *conv)
{
    return conv->channels % BLOCK == 0 && conv->filters % BLOCK == 0;
}

const lk_block_algorithm LK_ISA(lk__block_direct) = {
    "direct:" LK_ISA_NAME, BLOCK, takes, memory_bytes, kept_bytes, conv2d, input_grad, weight_grad,
};
