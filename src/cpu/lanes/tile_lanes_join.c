/* The operands of sums over images on tiles: see tile_lanes.h. */
#include "cpu/lanes/tile_lanes.h"
#include "cpu/vector/tile.h"
#include "cpu/vector/transpose.h"

#include <string.h>

/* Bytes that relu saved for a pixel and a channel. */
enum { SIGNS = sizeof(vec_bits) };

typedef lk_pixel_range range;

/* --- x ------------------------------------------------------------------------------------------------------------ */

void lk__tile_lanes_join(const element *a, const element *b, int64_t n, element *to)
{
    for (int64_t i = 0; i < n; i++, to += 2 * LK_ELEMENTS) {
        vec_word first = word_load(a + i * LK_ELEMENTS), second = b ? word_load(b + i * LK_ELEMENTS) : word_zero();
        word_store(to, word_firsts(first, second));
        word_store(to + LK_ELEMENTS, word_seconds(first, second));
    }
}

void lk__tile_lanes_transpose(const element *rows, element *to, int64_t stride)
{
    enum { HALF = LK_TILE_ROWS / 2, AT_ONCE = 4 };
    const float *from = (const float *)(const void *)rows; /* words of any kind */
    for (int64_t half = 0; half < 2; half++)
        for (int64_t column = 0; column < LK_WIDTH; column += AT_ONCE) {
            __m256 turned[AT_ONCE];
            transpose_half(from + half * HALF * LK_WIDTH + column, LK_WIDTH, turned);
            for (int64_t i = 0; i < AT_ONCE; i++)
                _mm256_storeu_ps((float *)(void *)(to + (column + i) * stride + half * HALF * LK_PER_WORD), turned[i]);
        }
}

/* --- dconv -------------------------------------------------------------------------------------------------------- */

/* One row of a window's pixels, for all filters. */
typedef struct span {
    const element *dy[2];    /* of the window; the second is NULL if there is no second block */
    const uint8_t *saved[2]; /* signs of the first pixel, or winners of the window */
    int64_t filters;
    int64_t pixels, step; /* step: elements of `to` from pixel to pixel */
    float share;          /* for averages */
    int index;            /* number of the first pixel in its window, for maxima */
    element *to;
} span;

/* The lanes whose bit is set in saved signs. */
LK_BODY vec_mask passed(const uint8_t *signs)
{
    vec_bits bits;
    memcpy(&bits, signs, SIGNS);
    return mask_of_bits(bits);
}

/* Returns word `i` of dy, times the share of a pixel. */
LK_BODY vec_word scaled_word(const element *dy, int64_t i, vec share)
{
    vec_word word = word_load(dy + i * LK_ELEMENTS);
    vec scaled[LK_PER_WORD];
    for (int h = 0; h < LK_PER_WORD; h++)
        scaled[h] = vec_mul(word_part(word, h), share);
    return word_round(scaled);
}

/* Stores a row for one filter at all pixels of the span, with zeros where relu stopped it. */
LK_BODY void spread_average(const span *s, int64_t filter, vec_word row, bool relu)
{
    element *to = s->to + filter * LK_ELEMENTS;
    for (int64_t p = 0; p < s->pixels; p++, to += s->step) {
        if (relu) {
            int64_t at = (p * s->filters + filter) * SIGNS;
            vec_mask masks[LK_PER_WORD] = {passed(s->saved[0] + at), passed(s->saved[1] + at)};
            word_store(to, word_where(masks, row));
        } else {
            word_store(to, row);
        }
    }
}

/* Stores a row for one filter at the pixel that was the maximum of its window, and zeros at the others. */
LK_BODY void spread_maximum(const span *s, int64_t filter, vec_word row)
{
    element *to = s->to + filter * LK_ELEMENTS;
    const uint8_t *a = s->saved[0] + filter * LK_WIDTH, *b = s->saved[1] + filter * LK_WIDTH;
    for (int64_t p = 0; p < s->pixels; p++, to += s->step) {
        vec_mask masks[LK_PER_WORD] = {mask_bytes_equal(a, s->index + (int)p), mask_bytes_equal(b, s->index + (int)p)};
        word_store(to, word_where(masks, row));
    }
}

LK_BODY void spread_row(const span *s, int64_t filter, vec_word row, bool max, bool relu)
{
    if (max)
        spread_maximum(s, filter, row);
    else
        spread_average(s, filter, row, relu);
}

/* Spreads dy over the span. A word of an odd last filter gives a row of zeros too. */
LK_BODY void spread_span(const span *s, bool max, bool relu)
{
    vec share = vec_set(s->share);
    for (int64_t f = 0; f < s->filters; f += LK_PER_WORD) {
        vec_word a = max ? word_load(s->dy[0] + f / LK_PER_WORD * LK_ELEMENTS)
                         : scaled_word(s->dy[0], f / LK_PER_WORD, share),
                 b = word_zero();
        if (s->dy[1])
            b = max ? word_load(s->dy[1] + f / LK_PER_WORD * LK_ELEMENTS)
                    : scaled_word(s->dy[1], f / LK_PER_WORD, share);
        spread_row(s, f, word_firsts(a, b), max, relu);
        if (f + 1 < s->filters)
            spread_row(s, f + 1, word_seconds(a, b), max, relu);
        else
            for (int64_t p = 0; p < s->pixels; p++)
                word_store(s->to + p * s->step + (f + 1) * LK_ELEMENTS, word_zero());
    }
}

static void tile_lanes_spread_span(const span *s, bool max, bool relu)
{
    if (max)
        spread_span(s, true, relu);
    else if (relu)
        spread_span(s, false, true);
    else
        spread_span(s, false, false);
}

/* Computes one row of dconv. */
static void tile_lanes_spread_row(const lk_lanes_block *block, const lk_lanes_images *images, int n, int64_t row,
                                  element *to)
{
    const lk_geometry *pool = &block->pool;
    int64_t filters = block->conv.out[2], words = lk__lanes_words(filters), step = 2 * words * LK_ELEMENTS;
    int64_t from_top = row + pool->padding[0], window_row = from_top / pool->stride[0],
            in_window = from_top - window_row * pool->stride[0];
    bool covered = in_window < pool->kernel[0];
    if (!covered || pool->stride[1] > pool->kernel[1])
        memset(to, 0, (size_t)(lk__lanes_used(block, 1) * step) * sizeof *to);
    if (!covered)
        return;
    range rows = lk__geometry_window(pool, 0, window_row);
    for (int64_t o = 0; o < pool->out[1]; o++) {
        range columns = lk__geometry_window(pool, 1, o);
        int64_t at = window_row * pool->out[1] + o, left = o * pool->stride[1] - pool->padding[1];
        int64_t saved =
            block->max ? at * filters * LK_WIDTH : (row * block->conv.out[1] + columns.begin) * filters * SIGNS;
        span s = {.filters = filters,
                  .pixels = columns.end - columns.begin,
                  .step = step,
                  .share = 1 / (float)lk__geometry_divisor(pool, rows, columns),
                  .index = (int)(in_window * pool->kernel[1] + columns.begin - left),
                  .to = to + columns.begin * step};
        const lk_lanes_images *second = n > 1 ? &images[1] : images;
        s.dy[0] = images->dy + at * words * LK_ELEMENTS;
        s.dy[1] = n > 1 ? second->dy + at * words * LK_ELEMENTS : NULL;
        if (block->relu || block->max) {
            s.saved[0] = images->saved + saved;
            s.saved[1] = second->saved + saved;
        }
        tile_lanes_spread_span(&s, block->max, block->relu);
    }
}

void lk__tile_lanes_spread(const lk_lanes_block *block, const lk_lanes_images *images, int n, range rows, element *to)
{
    int64_t row_step = lk__lanes_used(block, 1) * lk__lanes_words(block->conv.out[2]) * 2 * LK_ELEMENTS;
    for (int64_t row = rows.begin; row < rows.end; row++, to += row_step)
        tile_lanes_spread_row(block, images, n, row, to);
}
