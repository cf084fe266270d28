/* Winograd's F(4x4, 3x3) on blocks of channels: groups of tiles, pieces of channels, and products at the points.
 * winograd_points.c does the transforms. */
#include "base/minmax.h"
#include "cpu/blocks/block_conv.h"
#include "cpu/blocks/winograd_points.h"
#include "cpu/vector/vector.h"

/* TILES tiles by a pair of blocks of accumulators, or CHANNELS by a pair for the gradient of the weights, hide the
 * latency of fused multiply-adds and leave registers for the operands. */
enum { TILES = LK_REGISTERS == 32 ? 12 : 6, CHANNELS = LK_REGISTERS == 32 ? 8 : 4 };

/* Groups of tiles and pieces of channels are multiples of these. */
enum { SOME_TILES = 6, SOME_CHANNELS = 16 };

/* A group of tiles has about this many floats at its points, input and output together, so that they stay in the second
 * and third-level cache while all filters pass. */
enum { FLOATS_OF_GROUP = 1 << 18, LEAST_TILES = 96 };

/* Processors with vectors of sixteen lanes have second-level caches of 1 or 2 MB. There the points of fewer tiles stay
 * in that cache. If the points of the kernels are too many for it, a convolution reads them for each group, so its
 * groups are larger. */
enum { FLOATS_AT_ONCE = 1 << 17, LEAST_AT_ONCE = 24, MANY_KERNELS = 1 << 20 };

/* All inputs pass once for each piece of filters, so the transformed kernels of a piece have about as many floats as
 * the transformed inputs, within these limits. If there are several pieces, a group may have MOST_KERNELS floats: if
 * that is enough for all tiles the inputs are transformed once, otherwise once for each piece. */
enum { LEAST_KERNELS = 1 << 20, MOST_KERNELS = 1 << 22 };

/* --- division into groups and pieces ------------------------------------------------------------------------------ */

/* Both sides of a convolution as tiles, and how much of them is processed at a time. No bit depends on it. */
typedef struct pieces {
    lk_tiles from, to;
    int64_t tiles;    /* tiles of all images */
    int64_t at_once;  /* tiles at a time, a group */
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

/* Returns the tiles of a group if `tiles` are divided into groups of about `floats` floats at their points, for this
 * many channels of both sides, and of at least about `least` tiles. */
static int64_t winograd_conv_group(int64_t tiles, int64_t channels, int64_t floats, int64_t least)
{
    int64_t groups = lk__divide_up(tiles, lk__max(floats / (LK_POINTS * channels), least));
    return lk__divide_up(lk__divide_up(tiles, groups), SOME_TILES) * SOME_TILES;
}

static void choose_pieces(pieces *p, int64_t images)
{
    int64_t from = p->from.channels, to = p->to.channels;
    p->tiles = images * p->to.rows * p->to.columns;
    int64_t inputs = LK_POINTS * from * p->tiles, kernels = lk__min(lk__max(inputs, LEAST_KERNELS), MOST_KERNELS);
    int64_t channels =
        lk__min(to, lk__max(kernels / (LK_POINTS * from) / SOME_CHANNELS * SOME_CHANNELS, SOME_CHANNELS));
    p->channels = lk__min(to, lk__paired(channels));
    if (LK_WIDTH >= 16 && LK_POINTS * from * to <= MANY_KERNELS)
        p->at_once = winograd_conv_group(p->tiles, from + p->channels, FLOATS_AT_ONCE, LEAST_AT_ONCE);
    else
        p->at_once =
            winograd_conv_group(p->tiles, from + channels, channels < to ? MOST_KERNELS : FLOATS_OF_GROUP, LEAST_TILES);
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

/* How the gradient of the weights is divided. Its points stay in memory while group after group of tiles is added. If
 * all tiles are one group of few, the gradient is made in pieces that stay in a cache, along with the points of x. */
typedef struct gradient_pieces {
    lk_tiles x, dy;
    int64_t tiles, at_once;
    int64_t channels, filters; /* of a piece; all of them if there are several groups */
} gradient_pieces;

enum { FEW_TILES = 128, GRADIENT_TILES = LK_WIDTH < 16 ? LEAST_TILES : 48 };
enum { GRADIENT_FLOATS = LK_WIDTH < 16 ? FLOATS_OF_GROUP : FLOATS_AT_ONCE };

static gradient_pieces winograd_conv_gradient_pieces(const lk_geometry *conv)
{
    gradient_pieces p = {
        .x = winograd_conv_tiles_of(conv->channels, conv->in, conv->out, conv->padding[0], conv->padding[1]),
        .dy = winograd_conv_tiles_of(conv->filters, conv->out, conv->out, 0, 0),
        .channels = conv->channels,
        .filters = conv->filters};
    p.tiles = conv->images * p.dy.rows * p.dy.columns;
    if (p.tiles > FEW_TILES) {
        p.at_once = winograd_conv_group(p.tiles, p.channels + p.filters, GRADIENT_FLOATS, GRADIENT_TILES);
        return p;
    }
    p.at_once = lk__divide_up(p.tiles, SOME_TILES) * SOME_TILES;
    p.channels = lk__min(p.channels, lk__paired(FLOATS_AT_ONCE / (LK_POINTS * p.tiles)));
    p.filters = lk__min(p.filters, LK_PAIR);
    return p;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Points of the kernels (u), of inputs (v) and of outputs (m). */
typedef struct points {
    element *u, *v;
    float *m;
} points;

static int64_t winograd_conv_u_count(const pieces *p)
{
    return LK_POINTS * lk__point_stride(lk__paired(p->channels) * p->from.channels);
}

static int64_t winograd_conv_m_count(const pieces *p)
{
    return LK_POINTS * lk__point_stride(lk__paired(p->channels) * p->at_once);
}

static size_t winograd_conv_total_bytes(const pieces *p)
{
    int64_t v_count = LK_POINTS * lk__point_stride(p->from.channels * p->at_once);
    return (size_t)winograd_conv_m_count(p) * sizeof(float) +
           (size_t)(winograd_conv_u_count(p) + v_count) * sizeof(element);
}

static points winograd_conv_points_in(void *memory, const pieces *p)
{
    float *m = memory;
    element *u = (element *)(void *)(m + winograd_conv_m_count(p));
    return (points){.u = u, .v = u + winograd_conv_u_count(p), .m = m};
}

/* Points of the gradients of kernels (du), of inputs (v) and of the gradients of outputs (dm). */
typedef struct gradient_points {
    float *du;
    element *v, *dm;
} gradient_points;

static int64_t winograd_conv_du_count(const gradient_pieces *p)
{
    return LK_POINTS * lk__point_stride(p->channels * lk__paired(p->filters));
}

static int64_t winograd_conv_gradient_v_count(const gradient_pieces *p)
{
    return LK_POINTS * lk__point_stride(p->x.channels * p->at_once);
}

static size_t winograd_conv_gradient_bytes(const gradient_pieces *p)
{
    int64_t dm_count = LK_POINTS * lk__point_stride(lk__paired(p->dy.channels) * p->at_once);
    return (size_t)winograd_conv_du_count(p) * sizeof(float) +
           (size_t)(winograd_conv_gradient_v_count(p) + dm_count) * sizeof(element);
}

static gradient_points winograd_conv_gradient_points_in(void *memory, const gradient_pieces *p)
{
    float *du = memory;
    element *v = (element *)(void *)(du + winograd_conv_du_count(p));
    return (gradient_points){.du = du, .v = v, .dm = v + winograd_conv_gradient_v_count(p)};
}

static size_t winograd_memory_bytes(const lk_geometry *conv)
{
    pieces forward = winograd_conv_forward_pieces(conv), backward = winograd_conv_input_grad_pieces(conv);
    gradient_pieces gradient = winograd_conv_gradient_pieces(conv);
    return lk__max(lk__max(winograd_conv_total_bytes(&forward), winograd_conv_total_bytes(&backward)),
                   winograd_conv_gradient_bytes(&gradient));
}

static size_t winograd_kept_bytes(const lk_geometry *conv, bool for_input_grad)
{
    pieces p = for_input_grad ? winograd_conv_input_grad_pieces(conv) : winograd_conv_forward_pieces(conv);
    return (size_t)((p.to.channels + p.channels - 1) / p.channels * winograd_conv_u_count(&p)) * sizeof(element);
}

/* --- products at a point ------------------------------------------------------------------------------------------ */

/* Elements of u are fetched this far ahead of their use: each serves at most TILES tiles before the next must come from
 * a second or third-level cache. */
enum { AHEAD = 1024 };

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
            __builtin_prefetch(u + AHEAD);
            __builtin_prefetch(u + AHEAD + LK_BLOCK * LK_PER_WORD);
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

/* Adds to CHANNELS by a pair of blocks of du the sum of v dm over n words of tiles; `fresh`: to zeros instead.
 * dm_block: the distance from one block of dm to the next. */
LK_BODY void multiply_gradient(const element *v, const element *dm, int64_t dm_block, int64_t n, bool fresh, float *du)
{
    vec sum[CHANNELS][2];
    int64_t a_word = LK_BLOCK * LK_PER_WORD;
    for (int i = 0; i < CHANNELS; i++)
        for (int b = 0; b < 2; b++)
            sum[i][b] = fresh ? vec_zero() : vec_load(du + i * LK_PAIR + b * LK_BLOCK);
    for (const element *end = v + n * a_word; v < end; v += a_word, dm += a_word) {
        vec_word d0 = word_loadu(dm), d1 = word_loadu(dm + dm_block);
        for (int i = 0; i < CHANNELS; i++) {
            vec_word value = word_broadcast(v + i * LK_PER_WORD);
            sum[i][0] = word_fmadd(value, d0, sum[i][0]);
            sum[i][1] = word_fmadd(value, d1, sum[i][1]);
        }
    }
    for (int i = 0; i < CHANNELS; i++)
        for (int b = 0; b < 2; b++)
            vec_store(du + i * LK_PAIR + b * LK_BLOCK, sum[i][b]);
}

/* The same for a piece of the gradient at all points, over n tiles. */
static void winograd_conv_add_gradients(const gradient_pieces *p, const gradient_points *at, lk_channel_range from,
                                        lk_channel_range to, int64_t n, bool fresh)
{
    int64_t pairs = lk__paired(to.count), words = lk__tile_words(n), elements = words * LK_PER_WORD;
    for (int64_t i = 0; i < LK_POINTS; i++) {
        const element *v = at->v + i * lk__point_stride(p->x.channels * elements) + from.first * elements,
                      *dm = at->dm + i * lk__point_stride(lk__paired(p->dy.channels) * elements) + to.first * elements;
        float *du = at->du + i * lk__point_stride(pairs * from.count);
        for (int64_t o = 0; o < pairs; o += LK_PAIR)
            for (int64_t c = 0; c < from.count; c += CHANNELS)
                multiply_gradient(v + c / LK_BLOCK * LK_BLOCK * elements + c % LK_BLOCK * LK_PER_WORD,
                                  dm + o * elements, LK_BLOCK * elements, words, fresh,
                                  du + (o * from.count + c * LK_PAIR));
    }
}

/* --- the algorithm ------------------------------------------------------------------------------------------------ */

/* Returns the piece of up to `count` of `all` channels that begins at `first`. */
static lk_channel_range winograd_conv_piece(int64_t first, int64_t count, int64_t all)
{
    return (lk_channel_range){first, lk__min(count, all - first)};
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
        lk_channel_range c = winograd_conv_piece(k, p->channels, p->to.channels);
        winograd_multiply(&at, p->from.channels, c.count, t.count);
        lk__output_of_points(&p->to, at.m, o->bias, t, c, o->y, o->passed);
    }
}

/* Kept points of kernels lie one piece after the other. Then all pieces may be made first, so that inputs are
 * transformed once and not for each piece. If all tiles are one group that is so anyway: all pieces use the points that
 * the first piece made, and a piece is used while it is in a cache. */
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
            lk__points_of_kernels(kernels, w->plain, winograd_conv_piece(k, p->channels, p->to.channels),
                                  at.u + (k - begin) / p->channels * u_count);
        for (int64_t first = 0; first < p->tiles; first += p->at_once) {
            lk_tile_range t = {first, lk__min(p->at_once, p->tiles - first)};
            if (begin == 0 || p->at_once < p->tiles)
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
    gradient_pieces p = winograd_conv_gradient_pieces(conv);
    gradient_points at = winograd_conv_gradient_points_in(memory, &p);
    lk_kernels kernels = {conv->filters, conv->channels, false};
    for (int64_t first = 0; first < p.tiles; first += p.at_once) {
        lk_tile_range t = {first, lk__min(p.at_once, p.tiles - first)};
        lk__points_of_input_in_words(&p.x, x, t, (lk_channel_range){0, conv->channels}, at.v);
        lk__points_of_gradient(&p.dy, dy, t, (lk_channel_range){0, conv->filters}, at.dm);
        for (int64_t c = 0; c < conv->channels; c += p.channels)
            for (int64_t o = 0; o < conv->filters; o += p.filters) {
                lk_channel_range from = winograd_conv_piece(c, p.channels, conv->channels),
                                 to = winograd_conv_piece(o, p.filters, conv->filters);
                winograd_conv_add_gradients(&p, &at, from, to, t.count, first == 0);
                if (first + t.count == p.tiles)
                    lk__kernels_of_points(&kernels, at.du, from, to, dw);
            }
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
