/* Convolutions of lanes.h, with relu and pooling in the same pass: a tile of channels is computed for every pixel of a
 * window, and only the average or the maximum is stored. */
#include "cpu/lanes/lanes_tiles.h"
#include "cpu/vector/rectify.h"

#include <string.h>

enum { TILE = LK_LANES_TILE, PAIR = LK_LANES_PAIR };

typedef lk_pixel_range range;

size_t lk__lanes_packed_bytes(const lk_lanes_conv *conv)
{
    int64_t words = conv->out[2] * conv->kernel[0] * conv->kernel[1] * lk__lanes_words(conv->in[2]);
    return (size_t)(words * LK_PER_WORD) * sizeof(element);
}

/* Packed weights lie as [tile][KH][KW][word of in channels][channels of the tile]. */
void lk__lanes_pack(const lk_lanes_conv *conv, const void *w, bool for_gradient, void *packed)
{
    int64_t kh = conv->kernel[0], kw = conv->kernel[1], in = conv->in[2], out = conv->out[2];
    int64_t stride_out = (for_gradient ? 1 : in) * kh * kw, stride_in = (for_gradient ? out : 1) * kh * kw;
    lk_lanes_tiling tiling = lk__lanes_tiling(out, TILE);
    const element *from = w;
    element *to = packed;
    for (int64_t t = 0; t < tiling.tiles; t++) {
        lk_lanes_tile tile = lk__lanes_tile(&tiling, t);
        for (int64_t tap = 0; tap < kh * kw; tap++)
            for (int64_t word = 0; word < lk__lanes_words(in); word++)
                for (int64_t o = tile.first; o < tile.first + tile.n; o++)
                    for (int64_t i = word * LK_PER_WORD; i < (word + 1) * LK_PER_WORD; i++) {
                        int64_t at = o * stride_out + i * stride_in + (for_gradient ? kh * kw - 1 - tap : tap);
                        *to++ = i < in ? from[at] : 0;
                    }
    }
}

size_t lk__lanes_saved_bytes(const lk_lanes_block *block)
{
    return (size_t)lk__lanes_blocks(block->conv.images) * lk__lanes_block_saved_bytes(block);
}

/* --- a tile of one pixel ------------------------------------------------------------------------------------------ */

/* Adds the products of `n` words of (column, channel) to a tile of two vectors by `tile` channels. */
LK_BODY void multiply_run(const element *x0, const element *x1, const element *w, int64_t n, int tile,
                          vec sum[PAIR][TILE])
{
    for (int64_t i = 0; i < n; i++) {
        vec_word a = word_load(x0 + i * LK_ELEMENTS), b = word_load(x1 + i * LK_ELEMENTS);
        LK_UNROLL
        for (int o = 0; o < tile; o++) {
            vec_word weight = word_broadcast(w + (i * tile + o) * LK_PER_WORD);
            sum[0][o] = word_fmadd(a, weight, sum[0][o]);
            sum[1][o] = word_fmadd(b, weight, sum[1][o]);
        }
    }
}

typedef struct pixel {
    int64_t row, column; /* of the output */
    range rows, columns; /* taps that lie inside the input */
} pixel;

/* Computes one tile of one output pixel of two blocks of images. w: the packed weights of the tile. */
LK_BODY void multiply_pixel(const lk_lanes_conv *conv, const element *const x[PAIR], const element *w, pixel p,
                            const float *bias, int tile, vec sum[PAIR][TILE])
{
    int64_t n_words = lk__lanes_words(conv->in[2]), run = (p.columns.end - p.columns.begin) * n_words;
    LK_UNROLL
    for (int o = 0; o < tile; o++)
        sum[0][o] = sum[1][o] = vec_broadcast(bias + o);
    for (int64_t tap = p.rows.begin; tap < p.rows.end; tap++) {
        int64_t row = p.row - conv->padding[0] + tap, column = p.column - conv->padding[1] + p.columns.begin;
        int64_t at = (row * conv->in[1] + column) * n_words * LK_ELEMENTS;
        int64_t weights = (tap * conv->kernel[1] + p.columns.begin) * n_words * tile * LK_PER_WORD;
        multiply_run(x[0] + at, x[1] + at, w + weights, run, tile, sum);
    }
}

/* --- a tile of one window ----------------------------------------------------------------------------------------- */

/* Two blocks of images. An odd last block is its own partner. */
typedef struct pair {
    const lk_lanes_block *block;
    const element *x[PAIR];
    element *y[PAIR];
    uint8_t *saved[PAIR];
    vec_mask images[PAIR];
} pair;

typedef struct window {
    int64_t row, column; /* of the pooling's result */
    range rows, columns;
    int64_t top, left; /* where the window begins, possibly in the padding */
    float share;       /* 1 / number of elements */
} window;

static window lanes_conv_window_at(const lk_lanes_block *block, int64_t row, int64_t column)
{
    const lk_geometry *pool = &block->pool;
    window w = {.row = row, .column = column};
    w.rows = lk__geometry_window(pool, 0, row);
    w.columns = lk__geometry_window(pool, 1, column);
    w.top = row * pool->stride[0] - pool->padding[0];
    w.left = column * pool->stride[1] - pool->padding[1];
    w.share = 1 / (float)lk__geometry_divisor(pool, w.rows, w.columns);
    return w;
}

/* Saves a bit for each lane, set where x is above 0. */
LK_BODY void save_signs(vec x, uint8_t *saved, int64_t at)
{
    vec_bits bits = mask_bits(mask_greater(x, vec_zero()));
    memcpy(saved + at * (int64_t)sizeof bits, &bits, sizeof bits);
}

/* Returns the offset of the pooling's result for the channels from `first` on. */
static int64_t lanes_conv_offset_of(const pair *p, const window *w, int64_t first)
{
    const lk_geometry *pool = &p->block->pool;
    int64_t window_index = w->row * pool->out[1] + w->column;
    return (window_index * lk__lanes_words(pool->channels) + first / LK_PER_WORD) * LK_ELEMENTS;
}

/* Stores the channels from `o` on that share a word. */
LK_BODY void store_word(const pair *p, int which, int64_t to, const vec *channel, int o, int tile)
{
    vec halves[LK_PER_WORD];
    for (int h = 0; h < LK_PER_WORD; h++)
        halves[h] = o + h < tile ? vec_where(p->images[which], channel[o + h]) : vec_zero();
    word_store(p->y[which] + to + o / LK_PER_WORD * LK_ELEMENTS, word_round(halves));
}

/* Adds one pixel to the average. signs: offset of the bits that relu saves. */
LK_BODY void add_pixel(const pair *p, pixel at, const element *weights, const float *bias, int64_t signs, int tile,
                       vec pooled[PAIR][TILE])
{
    vec sum[PAIR][TILE]; /* only ever indexed by constants, so it lives in registers */
    multiply_pixel(&p->block->conv, p->x, weights, at, bias, tile, sum);
    if (p->block->relu) {
        LK_UNROLL
        for (int o = 0; o < tile; o++) {
            save_signs(sum[0][o], p->saved[0], signs + o);
            save_signs(sum[1][o], p->saved[1], signs + o);
            sum[0][o] = lk__rectified(sum[0][o]);
            sum[1][o] = lk__rectified(sum[1][o]);
        }
    }
    LK_UNROLL
    for (int o = 0; o < tile; o++) {
        pooled[0][o] = vec_add(pooled[0][o], sum[0][o]);
        pooled[1][o] = vec_add(pooled[1][o], sum[1][o]);
    }
}

LK_BODY void average_tile(const pair *p, const window *w, int64_t first, const element *weights, const float *bias,
                          int tile)
{
    const lk_lanes_conv *conv = &p->block->conv;
    vec pooled[PAIR][TILE];
    for (int o = 0; o < tile; o++)
        pooled[0][o] = pooled[1][o] = vec_set(-0.0f); /* -0 + x is x, also for x = -0 */
    for (int64_t row = w->rows.begin; row < w->rows.end; row++) {
        for (int64_t column = w->columns.begin; column < w->columns.end; column++) {
            pixel at = {row, column, lk__lanes_taps_inside(conv, 0, row), lk__lanes_taps_inside(conv, 1, column)};
            int64_t signs = (row * conv->out[1] + column) * conv->out[2] + first;
            add_pixel(p, at, weights, bias, signs, tile, pooled);
        }
    }
    int64_t to = lanes_conv_offset_of(p, w, first);
    vec share = vec_set(w->share);
    LK_UNROLL
    for (int o = 0; o < tile; o++) {
        pooled[0][o] = vec_mul(pooled[0][o], share);
        pooled[1][o] = vec_mul(pooled[1][o], share);
    }
    LK_UNROLL
    for (int o = 0; o < tile; o += LK_PER_WORD) {
        store_word(p, 0, to, pooled[0], o, tile);
        store_word(p, 1, to, pooled[1], o, tile);
    }
}

/* The maxima so far and their indexes in the window. */
typedef struct maxima {
    vec value[PAIR][TILE];
    vec_int winner[PAIR][TILE];
} maxima;

LK_BODY void take_pixel(const pair *p, pixel at, const element *weights, const float *bias, int index, bool first,
                        int tile, maxima *m)
{
    vec sum[PAIR][TILE];
    vec_int here = int_set(index);
    multiply_pixel(&p->block->conv, p->x, weights, at, bias, tile, sum);
    LK_UNROLL
    for (int o = 0; o < tile; o++) {
        for (int v = 0; v < PAIR; v++) {
            if (first) {
                m->value[v][o] = sum[v][o];
                m->winner[v][o] = here;
            } else {
                lk__lanes_take_maximum(sum[v][o], here, &m->value[v][o], &m->winner[v][o]);
            }
        }
    }
}

/* relu of the maximum is the maximum of relu, and where that is above 0 its first index is the same. */
LK_BODY void store_maxima(const pair *p, const window *w, maxima *m, int64_t first, int tile)
{
    const lk_geometry *pool = &p->block->pool;
    int64_t to = lanes_conv_offset_of(p, w, first);
    int64_t bytes = ((w->row * pool->out[1] + w->column) * pool->channels + first) * LK_WIDTH;
    for (int v = 0; v < PAIR; v++) {
        for (int o = 0; o < tile; o++) {
            vec_int winner = m->winner[v][o], stopped = int_set(255);
            if (p->block->relu) {
                winner = int_select(mask_greater(m->value[v][o], vec_zero()), winner, stopped);
                m->value[v][o] = lk__rectified(m->value[v][o]);
            }
            int_store_bytes(winner, p->saved[v] + bytes + o * LK_WIDTH);
        }
        LK_UNROLL
        for (int o = 0; o < tile; o += LK_PER_WORD)
            store_word(p, v, to, m->value[v], o, tile);
    }
}

LK_BODY void maximum_tile(const pair *p, const window *w, int64_t first, const element *weights, const float *bias,
                          int tile)
{
    const lk_lanes_conv *conv = &p->block->conv;
    int64_t kernel = p->block->pool.kernel[1];
    maxima m;
    bool is_first = true;
    for (int64_t row = w->rows.begin; row < w->rows.end; row++) {
        for (int64_t column = w->columns.begin; column < w->columns.end; column++, is_first = false) {
            pixel at = {row, column, lk__lanes_taps_inside(conv, 0, row), lk__lanes_taps_inside(conv, 1, column)};
            take_pixel(p, at, weights, bias, (int)((row - w->top) * kernel + column - w->left), is_first, tile, &m);
        }
    }
    store_maxima(p, w, &m, first, tile);
}

/* clang-format off */
#define TILE_OF(n)                                                                                                     \
    static void average_##n(const pair *p, const window *w, int64_t first, const element *weights, const float *bias)  \
    {                                                                                                                  \
        average_tile(p, w, first, weights, bias, n);                                                                   \
    }                                                                                                                  \
    static void maximum_##n(const pair *p, const window *w, int64_t first, const element *weights, const float *bias)  \
    {                                                                                                                  \
        maximum_tile(p, w, first, weights, bias, n);                                                                   \
    }
#define AVERAGE_OF(n) [n] = average_##n,
#define MAXIMUM_OF(n) [n] = maximum_##n,

LK_LANES_TILES(TILE_OF)

typedef void (*window_fn)(const pair *p, const window *w, int64_t first, const element *weights, const float *bias);

static const window_fn average[TILE + 1] = {LK_LANES_TILES(AVERAGE_OF)};
static const window_fn maximum[TILE + 1] = {LK_LANES_TILES(MAXIMUM_OF)};
/* clang-format on */

static void lanes_conv_all_windows(const pair *p, const element *packed, const float *bias)
{
    const lk_lanes_block *block = p->block;
    const lk_lanes_conv *conv = &block->conv;
    int64_t channels = conv->out[2],
            each = conv->kernel[0] * conv->kernel[1] * lk__lanes_words(conv->in[2]) * LK_PER_WORD;
    lk_lanes_tiling tiling = lk__lanes_tiling(channels, TILE);
    for (int64_t row = 0; row < block->pool.out[0]; row++) {
        for (int64_t column = 0; column < block->pool.out[1]; column++) {
            window w = lanes_conv_window_at(block, row, column);
            for (int64_t t = 0; t < tiling.tiles; t++) {
                static const float zeros[TILE];
                lk_lanes_tile tile = lk__lanes_tile(&tiling, t);
                const window_fn *fn = block->max ? maximum : average;
                fn[tile.n](p, &w, tile.first, packed + tile.first * each, bias ? bias + tile.first : zeros);
            }
        }
    }
}

void lk__lanes_block_pair(const lk_lanes_block *block, int64_t b, const element *const x[PAIR], const element *packed,
                          const float *bias, element *y, uint8_t *saved)
{
    int64_t images = block->conv.images, partner = b + 1 < lk__lanes_blocks(images) ? b + 1 : b;
    int64_t out = lk__lanes_block_elements(block->pool.out, block->pool.channels);
    size_t bytes = lk__lanes_block_saved_bytes(block);
    pair p = {.block = block,
              .x = {x[0], x[1]},
              .y = {y + b * out, y + partner * out},
              .images = {mask_first(images - b * LK_WIDTH), mask_first(images - partner * LK_WIDTH)}};
    if (saved) {
        p.saved[0] = saved + (size_t)b * bytes;
        p.saved[1] = saved + (size_t)partner * bytes;
    }
    lanes_conv_all_windows(&p, packed, bias);
}

size_t lk__lanes_forward_bytes(const lk_lanes_block *block)
{
    (void)block;
    return 0;
}

void lk__lanes_block_forward(const lk_lanes_block *block, const void *x, const void *packed, const float *bias, void *y,
                             uint8_t *saved, void *memory)
{
    (void)memory;
    int64_t n = lk__lanes_blocks(block->conv.images), in = lk__lanes_block_elements(block->conv.in, block->conv.in[2]);
    for (int64_t b = 0; b < n; b += PAIR) {
        const element *from[PAIR] = {(const element *)x + b * in, (const element *)x + (b + 1 < n ? b + 1 : b) * in};
        lk__lanes_block_pair(block, b, from, packed, bias, y, saved);
    }
}

void lk__lanes_conv2d(const lk_lanes_conv *conv, const void *x, const void *packed, const float *bias, void *y,
                      void *memory)
{
    lk_lanes_block block = lk__lanes_block_of(conv);
    lk__lanes_block_forward(&block, x, packed, bias, y, NULL, memory);
}
