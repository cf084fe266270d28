/* Winograd's F(4x4, 3x3) on blocks of channels: chunks of tiles, pieces of filters, and products at the points.
 * winograd_points.c does the transforms. */
#include "base/minmax.h"
#include "cpu/blocks/block_conv.h"
#include "cpu/blocks/winograd_points.h"
#include "cpu/vector/vector.h"

#include <string.h>

/* TILES tiles by a pair of blocks of accumulators, or CHANNELS by a pair for the gradient of the weights, hide the
 * latency of fused multiply-adds and leave registers for the operands. */
enum { TILES = LK_REGISTERS == 32 ? 12 : 6, CHANNELS = LK_REGISTERS == 32 ? 8 : 4 };

/* Chunks are multiples of these for vectors of any width, so that sums of gradients, which go chunk by chunk, do not
 * depend on the width. */
enum { SOME_TILES = 6, SOME_CHANNELS = 16 };

/* A chunk of tiles has about this many floats at its points, input and output together, so that they stay in the second
 * and third-level cache while all filters pass. */
enum { FLOATS_OF_CHUNK = 1 << 18, LEAST_TILES = 96 };

/* A convolution may process fewer tiles at a time than a sum of gradients, since no bit depends on it. Processors with
 * vectors of sixteen lanes have second-level caches of 1 or 2 MB. There the points of a few tiles stay in that cache;
 * if the kernels' points are too many for it, they are read for each of these groups, so groups are larger. */
enum { FLOATS_AT_ONCE = 1 << 17, LEAST_AT_ONCE = 24, MANY_KERNELS = 1 << 20 };

/* All inputs pass once for each piece of filters, so the transformed kernels of a piece have about as many floats as
 * the transformed inputs, within these limits. If there are several pieces, a chunk may have MOST_KERNELS floats: if
 * that is enough for all tiles the inputs are transformed once, otherwise once for each piece. */
enum { LEAST_KERNELS = 1 << 20, MOST_KERNELS = 1 << 22 };

/* --- division into chunks and pieces ------------------------------------------------------------------------------ */

/* Both sides of a convolution as tiles, and how much of them is processed at a time. */
typedef struct pieces {
    lk_tiles from, to;
    int64_t tiles;    /* tiles of all images */
    int64_t chunk;    /* tiles at a time */
    int64_t at_once;  /* tiles at a time if nothing is summed over them; at most a chunk */
    int64_t channels; /* channels of `to` at a time, a piece */
} pieces;

static lk_tiles winograd_conv_tiles_of(int64_t channels, const int64_t size[2], const int64_t out[2],
                                       int64_t row_padding, int64_t column_padding)
{
    return (lk_tiles){.channels = channels,
                      .size = {size[0], size[1]},
                      .padding = {row_padding, column_padding},
                      .rows = (out[0] + LK_TILE - 1) / LK_TILE,
                      .columns = (out[1] + LK_TILE - 1) / LK_TILE};
}

/* Returns the tiles of the groups if `tiles` are divided into groups of about `fit` tiles. */
static int64_t winograd_conv_group(int64_t tiles, int64_t fit)
{
    int64_t groups = lk__divide_up(tiles, fit);
    return lk__divide_up(lk__divide_up(tiles, groups), SOME_TILES) * SOME_TILES;
}

static int64_t winograd_conv_at_once(const pieces *p)
{
    if (LK_WIDTH < 16 || LK_POINTS * p->from.channels * p->to.channels > MANY_KERNELS)
        return p->chunk;
    int64_t fit = lk__max(FLOATS_AT_ONCE / (LK_POINTS * (p->from.channels + p->channels)), LEAST_AT_ONCE);
    return lk__min(winograd_conv_group(p->tiles, fit), p->chunk);
}

static void choose_pieces(pieces *p, int64_t images)
{
    int64_t from = p->from.channels, to = p->to.channels;
    p->tiles = images * p->to.rows * p->to.columns;
    int64_t inputs = LK_POINTS * from * p->tiles, kernels = lk__min(lk__max(inputs, LEAST_KERNELS), MOST_KERNELS);
    int64_t channels =
        lk__min(to, lk__max(kernels / (LK_POINTS * from) / SOME_CHANNELS * SOME_CHANNELS, SOME_CHANNELS));
    int64_t floats = channels < to ? MOST_KERNELS : FLOATS_OF_CHUNK;
    p->chunk = winograd_conv_group(p->tiles, lk__max(floats / (LK_POINTS * (from + channels)), LEAST_TILES));
    p->channels = lk__min(to, lk__paired(channels));
    p->at_once = winograd_conv_at_once(p);
}

static pieces winograd_conv_forward_pieces(const lk_geometry *conv)
{
    pieces p = {.from = winograd_conv_tiles_of(conv->channels, conv->in, conv->out, conv->padding[0], conv->padding[1]),
                .to = winograd_conv_tiles_of(conv->filters, conv->out, conv->out, 0, 0)};
    choose_pieces(&p, conv->images);
    return p;
}

/* The gradient of the input is a convolution of dy, padded by what the forward padding leaves of the kernel's reach. */
static pieces winograd_conv_input_grad_pieces(const lk_geometry *conv)
{
    pieces p = {
        .from = winograd_conv_tiles_of(conv->filters, conv->out, conv->in, 2 - conv->padding[0], 2 - conv->padding[1]),
        .to = winograd_conv_tiles_of(conv->channels, conv->in, conv->in, 0, 0)};
    choose_pieces(&p, conv->images);
    return p;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Points of the kernels (u), of inputs (v) and of outputs (m). Operands of products are elements, and results floats: m
 * in the forward direction, u as the gradient of the weights. */
typedef struct points {
    element *u, *v;
    float *m;
    float *u_sums;       /* in the memory of u */
    element *m_elements; /* in the memory of m */
} points;

static int64_t winograd_conv_u_count(const pieces *p)
{
    return LK_POINTS * lk__point_stride(lk__paired(p->channels) * p->from.channels);
}

static int64_t winograd_conv_v_count(const pieces *p)
{
    return LK_POINTS * lk__point_stride(p->from.channels * p->chunk);
}

static int64_t winograd_conv_m_count(const pieces *p)
{
    return LK_POINTS * lk__point_stride(lk__paired(p->channels) * p->chunk);
}

static size_t winograd_conv_total_bytes(const pieces *p)
{
    return (size_t)(winograd_conv_u_count(p) + winograd_conv_m_count(p)) * sizeof(float) +
           (size_t)winograd_conv_v_count(p) * sizeof(element);
}

static size_t winograd_memory_bytes(const lk_geometry *conv)
{
    pieces forward = winograd_conv_forward_pieces(conv), backward = winograd_conv_input_grad_pieces(conv);
    return lk__max(winograd_conv_total_bytes(&forward), winograd_conv_total_bytes(&backward));
}

static size_t winograd_kept_bytes(const lk_geometry *conv, bool for_input_grad)
{
    pieces p = for_input_grad ? winograd_conv_input_grad_pieces(conv) : winograd_conv_forward_pieces(conv);
    return (size_t)((p.to.channels + p.channels - 1) / p.channels * winograd_conv_u_count(&p)) * sizeof(element);
}

static points winograd_conv_points_in(void *memory, const pieces *p)
{
    float *m = (float *)memory + winograd_conv_u_count(p);
    element *v = (element *)(void *)(m + winograd_conv_m_count(p));
    return (points){.u = memory, .v = v, .m = m, .u_sums = memory, .m_elements = (element *)(void *)m};
}

/* --- products at a point ------------------------------------------------------------------------------------------ */

/* Computes n tiles of a pair of blocks of m = v u, over `blocks` blocks of channels. v_block, m_block: the distance
 * from one block to the next. */
LK_BODY void multiply_tile(const element *v, int64_t v_block, const element *u, int64_t blocks, float *m,
                           int64_t m_block, const int n)
{
    vec sum[TILES][2]; /* only ever indexed by constants, so it lives in registers */
    for (int j = 0; j < n; j++)
        sum[j][0] = sum[j][1] = vec_zero();
    for (int64_t b = 0; b < blocks; b++, v += v_block)
        for (int i = 0; i < LK_BLOCK; i += LK_PER_WORD, u += LK_PAIR * LK_PER_WORD) {
            vec_word u0 = word_load(u), u1 = word_load(u + LK_BLOCK * LK_PER_WORD);
            for (int j = 0; j < n; j++) {
                vec_word value = word_broadcast(v + j * LK_BLOCK + i);
                sum[j][0] = word_fmadd(value, u0, sum[j][0]);
                sum[j][1] = word_fmadd(value, u1, sum[j][1]);
            }
        }
    for (int j = 0; j < n; j++) {
        vec_storeu(m + j * LK_BLOCK, sum[j][0]);
        vec_storeu(m + m_block + j * LK_BLOCK, sum[j][1]);
    }
}

static void winograd_conv_multiply_tiles(const element *v, const element *u, int64_t blocks, float *m, int64_t n)
{
    int64_t a_block = LK_BLOCK * n;
    for (; n >= TILES; n -= TILES, v += TILES * LK_BLOCK, m += TILES * LK_BLOCK)
        multiply_tile(v, a_block, u, blocks, m, a_block, TILES);
    if (TILES > 6 && n >= 6) {
        multiply_tile(v, a_block, u, blocks, m, a_block, 6);
        n -= 6;
        v += 6 * LK_BLOCK;
        m += 6 * LK_BLOCK;
    }
#define TILE_CASE(n)                                         \
    case n:                                                  \
        multiply_tile(v, a_block, u, blocks, m, a_block, n); \
        break;
    switch (n) {
        LK_UP_TO_FIVE(TILE_CASE)
    }
#undef TILE_CASE
}

/* Multiplies n tiles for `to` channels at all points. */
static void winograd_multiply(const points *at, int64_t from, int64_t to, int64_t n)
{
    int64_t pairs = lk__paired(to);
    for (int64_t i = 0; i < LK_POINTS; i++) {
        const element *v = at->v + i * lk__point_stride(from * n), *u = at->u + i * lk__point_stride(pairs * from);
        float *m = at->m + i * lk__point_stride(pairs * n);
        for (int64_t o = 0; o < pairs; o += LK_PAIR)
            winograd_conv_multiply_tiles(v, u + o * from, from / LK_BLOCK, m + o * n, n);
    }
}

/* Adds to CHANNELS by a pair of blocks of du the sum of v dm over n words of tiles. */
LK_BODY void multiply_gradient(const element *v, const element *dm, int64_t n, float *du)
{
    vec sum[CHANNELS][2];
    int64_t a_word = LK_BLOCK * LK_PER_WORD, a_block = a_word * n;
    for (int i = 0; i < CHANNELS; i++)
        sum[i][0] = sum[i][1] = vec_zero();
    for (int64_t k = 0; k < n; k++, v += a_word, dm += a_word) {
        vec_word d0 = word_loadu(dm), d1 = word_loadu(dm + a_block);
        for (int i = 0; i < CHANNELS; i++) {
            vec_word value = word_broadcast(v + i * LK_PER_WORD);
            sum[i][0] = word_fmadd(value, d0, sum[i][0]);
            sum[i][1] = word_fmadd(value, d1, sum[i][1]);
        }
    }
    for (int i = 0; i < CHANNELS; i++)
        for (int b = 0; b < 2; b++) {
            float *to = du + i * LK_PAIR + b * LK_BLOCK;
            vec_store(to, vec_add(vec_load(to), sum[i][b]));
        }
}

/* The same for `to` filters at all points, over n tiles. */
static void winograd_conv_add_gradients(const points *at, int64_t from, int64_t to, int64_t n)
{
    int64_t pairs = lk__paired(to), words = lk__tile_words(n), elements = words * LK_PER_WORD;
    for (int64_t i = 0; i < LK_POINTS; i++) {
        const element *v = at->v + i * lk__point_stride(from * elements),
                      *dm = at->m_elements + i * lk__point_stride(pairs * elements);
        float *du = at->u_sums + i * lk__point_stride(pairs * from);
        for (int64_t o = 0; o < pairs; o += LK_PAIR)
            for (int64_t c = 0; c < from; c += CHANNELS)
                multiply_gradient(v + c / LK_BLOCK * LK_BLOCK * elements + c % LK_BLOCK * LK_PER_WORD,
                                  dm + o * elements, words, du + (o * from + c * LK_PAIR));
    }
}

/* --- the algorithm ------------------------------------------------------------------------------------------------ */

/* Returns whether the inputs of some tiles must be transformed for the piece that begins at `channel`. If these are all
 * tiles, all pieces use the points that the first piece made. */
static bool winograd_conv_needs_points(const pieces *p, int64_t channel, int64_t tiles)
{
    return channel == 0 || tiles < p->tiles;
}

static lk_channel_range winograd_conv_channels(const pieces *p, int64_t first)
{
    return (lk_channel_range){first, lk__min(p->channels, p->to.channels - first)};
}

/* The tensors of a convolution; `bias` and `passed` may be NULL. */
typedef struct operands {
    const element *x, *bias;
    element *y;
    uint8_t *passed;
} operands;

/* Convolves a group of tiles for pieces of channels, from `begin` to `end`. */
static void winograd_conv_group_of_tiles(const pieces *p, points at, lk_tile_range t, int64_t begin, int64_t end,
                                         const operands *o)
{
    for (int64_t k = begin; k < end; k += p->channels, at.u += winograd_conv_u_count(p)) {
        lk_channel_range c = winograd_conv_channels(p, k);
        winograd_multiply(&at, p->from.channels, c.count, t.count);
        lk__output_of_points(&p->to, at.m, o->bias, t, c, o->y, o->passed);
    }
}

/* Kept points of kernels lie one piece after the other. Then all pieces may be made first, so that inputs are
 * transformed once and not for each piece. If all tiles are one group that is so anyway, and a piece is used while it
 * is in a cache. */
static void winograd_convolve(const pieces *p, const lk_kernels *kernels, const lk_block_weights *w, const operands *o,
                              void *memory)
{
    points at = winograd_conv_points_in(memory, p);
    int64_t all = p->to.channels, u_count = winograd_conv_u_count(p);
    int64_t each = w->kept && p->at_once < p->tiles ? all : p->channels;
    for (int64_t begin = 0; begin < all; begin += each) {
        int64_t end = lk__min(begin + each, all);
        if (w->kept)
            at.u = (element *)w->kept + begin / p->channels * u_count;
        for (int64_t k = begin; k < end && !w->is_made; k += p->channels)
            lk__points_of_kernels(kernels, w->plain, winograd_conv_channels(p, k),
                                  at.u + (k - begin) / p->channels * u_count);
        for (int64_t first = 0; first < p->tiles; first += p->at_once) {
            lk_tile_range t = {first, lk__min(p->at_once, p->tiles - first)};
            if (winograd_conv_needs_points(p, begin, p->at_once))
                lk__points_of_input(&p->from, o->x, t, (lk_channel_range){0, p->from.channels}, at.v);
            winograd_conv_group_of_tiles(p, at, t, begin, end, o);
        }
    }
}

static void winograd_conv2d(const lk_geometry *conv, const void *x, const lk_block_weights *w, const void *bias,
                            void *y, uint8_t *passed, void *memory)
{
    pieces p = winograd_conv_forward_pieces(conv);
    lk_kernels kernels = {conv->filters, conv->channels, false};
    winograd_convolve(&p, &kernels, w, &(operands){x, bias, y, passed}, memory);
}

static void winograd_input_grad(const lk_geometry *conv, const void *dy, const lk_block_weights *w, void *dx,
                                void *memory)
{
    pieces p = winograd_conv_input_grad_pieces(conv);
    lk_kernels kernels = {conv->filters, conv->channels, true};
    winograd_convolve(&p, &kernels, w, &(operands){.x = dy, .y = dx}, memory);
}

static void winograd_weight_grad(const lk_geometry *conv, const void *dy, const void *x, float *dw, void *memory)
{
    pieces p = winograd_conv_forward_pieces(conv);
    lk_kernels kernels = {conv->filters, conv->channels, false};
    points at = winograd_conv_points_in(memory, &p);
    for (int64_t k = 0; k < conv->filters; k += p.channels) {
        lk_channel_range c = winograd_conv_channels(&p, k);
        memset(at.u_sums, 0, (size_t)winograd_conv_u_count(&p) * sizeof *at.u_sums);
        for (int64_t first = 0; first < p.tiles; first += p.chunk) {
            lk_tile_range t = {first, lk__min(p.chunk, p.tiles - first)};
            if (winograd_conv_needs_points(&p, k, p.chunk))
                lk__points_of_input_in_words(&p.from, x, t, (lk_channel_range){0, p.from.channels}, at.v);
            lk__points_of_gradient(&p.to, dy, t, c, at.m_elements);
            winograd_conv_add_gradients(&at, conv->channels, c.count, t.count);
        }
        lk__kernels_of_points(&kernels, at.u_sums, c, dw);
    }
}

static bool winograd_takes(const lk_geometry *conv)
{
    for (int i = 0; i < 2; i++)
        if (conv->kernel[i] != 3 || conv->stride[i] != 1 || conv->dilation[i] != 1 || conv->padding[i] > 2)
            return false;
    return conv->channels % LK_BLOCK == 0 && conv->filters % LK_BLOCK == 0;
}

const lk_block_algorithm LK_ISA(lk__block_winograd) = {
    "winograd:" LK_ISA_NAME, LK_BLOCK,        winograd_takes,      winograd_memory_bytes,
    winograd_kept_bytes,     winograd_conv2d, winograd_input_grad, winograd_weight_grad,
};
