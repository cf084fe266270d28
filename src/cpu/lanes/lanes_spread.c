/* The first steps of the gradients of lanes.h: they make blocks of images of row-major operands, and dconv, which is dy
 * spread over the pixels that the pooling read. */
#include "cpu/lanes/lanes_tiles.h"
#include "cpu/vector/interleave.h"

#include <string.h>

enum { TILE = LK_LANES_TILE };

/* Words of a pixel of a tile of dconv, with channels in pairs for bf16. */
enum { TILE_WORDS = (TILE + LK_PER_WORD - 1) / LK_PER_WORD };

/* Bytes that relu saved for a pixel and a channel. */
enum { SIGNS = sizeof(vec_bits) };

typedef lk_pixel_range range;

const element *lk__lanes_vectors_of(const lk_lanes_block *block, const void *x, int64_t channels, const int64_t size[2],
                                    int64_t b, bool plain, element *made)
{
    int64_t left = block->conv.images - b * LK_WIDTH, images = left < LK_WIDTH ? left : LK_WIDTH;
    if (!plain)
        return (const element *)x + b * lk__lanes_block_elements(size, channels);
    lk_interleaving shape = lk__interleaving_of_images(images, channels, size[0] * size[1], LK_WIDTH);
#if defined(LK_VECTOR_BF16)
    LK_ISA_F32(lk__interleaver)
        .interleave_pairs(&shape, (const uint16_t *)x + b * size[0] * size[1] * channels * LK_WIDTH, made);
#else
    LK_ISA_F32(lk__interleaver)
        .interleave(&shape, (const float *)x + b * size[0] * size[1] * channels * LK_WIDTH, made);
#endif
    return made;
}

/* The lanes whose bit is set in the saved signs of position `at`. */
LK_BODY vec_mask passed(const uint8_t *signs, int64_t at)
{
    vec_bits bits;
    memcpy(&bits, signs + at * SIGNS, SIGNS);
    return mask_of_bits(bits);
}

/* One row of a window's pixels, over which spread_tile spreads the window's dy. */
typedef struct window_span {
    const element *dy;
    const uint8_t *signs;      /* saved signs of the first pixel */
    int64_t pixels, sign_step; /* sign_step: bytes of `signs` from pixel to pixel */
    float share;
    element *to;
    int64_t step; /* elements of `to` from pixel to pixel */
} window_span;

/* Returns d with zeros in the channels that relu did not let through. */
LK_BODY vec_word words_passed(const uint8_t *signs, int word, int n, vec_word d)
{
    vec_mask through[LK_PER_WORD];
    for (int h = 0; h < LK_PER_WORD; h++) { /* a 0 follows an odd last channel, and stays 0 with any mask */
        int channel = word * LK_PER_WORD + h;
        through[h] = passed(signs, channel < n ? channel : n - 1);
    }
    return word_where(through, d);
}

/* n: channels. */
LK_BODY void spread_tile(const window_span *r, bool relu, int n)
{
    const int n_words = (n + LK_PER_WORD - 1) / LK_PER_WORD;
    vec share = vec_set(r->share);
    vec_word d[TILE_WORDS];
    LK_UNROLL
    for (int i = 0; i < n_words; i++) {
        vec_word dy = word_load(r->dy + i * LK_ELEMENTS);
        vec scaled[LK_PER_WORD];
        for (int h = 0; h < LK_PER_WORD; h++)
            scaled[h] = vec_mul(word_part(dy, h), share);
        d[i] = word_round(scaled);
    }
    const uint8_t *signs = r->signs;
    element *to = r->to;
    for (int64_t p = 0; p < r->pixels; p++, signs += r->sign_step, to += r->step) {
        LK_UNROLL
        for (int i = 0; i < n_words; i++)
            word_store(to + i * LK_ELEMENTS, relu ? words_passed(signs, i, n, d[i]) : d[i]);
    }
}

/* clang-format off */
#define SPREAD_TILE(n)                                                                                                 \
    static void spread_##n(const window_span *r, bool relu)                                                            \
    {                                                                                                                  \
        if (relu)                                                                                                      \
            spread_tile(r, true, n);                                                                                   \
        else                                                                                                           \
            spread_tile(r, false, n);                                                                                  \
    }
#define SPREAD_OF(n) [n] = spread_##n,

LK_LANES_TILES(SPREAD_TILE)

typedef void (*spread_fn)(const window_span *r, bool relu);

static const spread_fn spread_tiles[TILE + 1] = {LK_LANES_TILES(SPREAD_OF)};
/* clang-format on */

/* Spreads dy of one window, times `share`, over one row of its pixels. y: offset of the window's dy for the channels of
 * the tile. to: [column][n]; tiling: the tiles of n. */
static void lanes_spread_average(const lk_lanes_block *block, const lk_lanes_images *images, int64_t row, int64_t y,
                                 range columns, float share, lk_lanes_tile tile, const lk_lanes_tiling *tiling,
                                 element *to)
{
    int64_t channels = block->conv.out[2], step = lk__lanes_words(tile.n) * LK_ELEMENTS;
    int64_t signs = (row * block->conv.out[1] + columns.begin) * channels + tile.first;
    window_span r = {.dy = images->dy + y,
                     .pixels = columns.end - columns.begin,
                     .sign_step = block->relu ? channels * SIGNS : 0,
                     .share = share,
                     .to = to + columns.begin * step,
                     .step = step};
    for (int64_t t = 0; t < tiling->tiles; t++) {
        lk_lanes_tile part = lk__lanes_tile(tiling, t);
        window_span here = r;
        here.dy += part.first / LK_PER_WORD * LK_ELEMENTS;
        here.to += part.first / LK_PER_WORD * LK_ELEMENTS;
        here.signs = block->relu ? images->saved + (signs + part.first) * SIGNS : NULL;
        spread_tiles[part.n](&here, block->relu);
    }
}

/* Returns d, a word of dy, with zeros in the channels whose maximum was not at pixel `index` of the window. winners:
 * those of the word's `n` channels. */
LK_BODY vec_word words_won(const uint8_t *winners, int64_t n, int index, vec_word d)
{
    vec_mask won[LK_PER_WORD];
    for (int h = 0; h < LK_PER_WORD; h++)
        won[h] = mask_bytes_equal(winners + (h < n ? h : 0) * LK_WIDTH, index);
    return word_where(won, d);
}

/* Writes dy of one window to the pixel that was its maximum, and 0 to the others. index: number of the first pixel in
 * the window; y: as in lanes_spread_average; winners: those of the window and the tile. */
static void lanes_spread_maximum(const lk_lanes_images *images, int index, int64_t y, const uint8_t *winners,
                                 range columns, lk_lanes_tile tile, element *to)
{
    element *pixel = to + columns.begin * lk__lanes_words(tile.n) * LK_ELEMENTS;
    for (int64_t column = columns.begin; column < columns.end; column++, index++)
        for (int64_t o = 0; o < tile.n; o += LK_PER_WORD, pixel += LK_ELEMENTS) {
            vec_word d = word_load(images->dy + y + o / LK_PER_WORD * LK_ELEMENTS);
            word_store(pixel, words_won(winners + o * LK_WIDTH, tile.n - o, index, d));
        }
}

/* Computes one row of dconv for the channels of a tile, in pairs for bf16. to: [column][n]. */
static void lanes_spread_row(const lk_lanes_block *block, const lk_lanes_images *images, int64_t row,
                             lk_lanes_tile tile, element *to)
{
    const lk_geometry *pool = &block->pool;
    int64_t from_top = row + pool->padding[0], window_row = from_top / pool->stride[0];
    int64_t in_window = from_top - window_row * pool->stride[0];
    bool gaps = pool->stride[1] > pool->kernel[1], covered = in_window < pool->kernel[0];
    if (gaps || !covered)
        memset(to, 0, (size_t)(lk__lanes_used(block, 1) * lk__lanes_words(tile.n) * LK_ELEMENTS) * sizeof *to);
    if (!covered)
        return;
    range rows = lk__geometry_window(pool, 0, window_row);
    lk_lanes_tiling tiling = lk__lanes_tiling(tile.n, TILE);
    for (int64_t o = 0; o < pool->out[1]; o++) {
        range columns = lk__geometry_window(pool, 1, o);
        int64_t window = window_row * pool->out[1] + o, left = o * pool->stride[1] - pool->padding[1];
        int64_t y = (window * lk__lanes_words(pool->channels) + tile.first / LK_PER_WORD) * LK_ELEMENTS;
        if (block->max)
            lanes_spread_maximum(images, (int)(in_window * pool->kernel[1] + columns.begin - left), y,
                                 images->saved + (window * pool->channels + tile.first) * LK_WIDTH, columns, tile, to);
        else
            lanes_spread_average(block, images, row, y, columns, 1 / (float)lk__geometry_divisor(pool, rows, columns),
                                 tile, &tiling, to);
    }
}

void lk__lanes_spread_rows(const lk_lanes_block *block, const lk_lanes_images *images, range rows, lk_lanes_tile tile,
                           element *to)
{
    int64_t step = lk__lanes_used(block, 1) * lk__lanes_words(tile.n) * LK_ELEMENTS;
    for (int64_t row = rows.begin; row < rows.end; row++, to += step)
        lanes_spread_row(block, images, row, tile, to);
}
