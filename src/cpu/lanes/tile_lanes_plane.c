/* x as convolutions on tiles read it: as it lies, copied with its padding, or gathered (tile_lanes.h). */
#include "cpu/lanes/tile_lanes.h"

#include <string.h>

lk_lanes_conv lk__tile_lanes_conv(const lk_lanes_conv *conv)
{
    lk_lanes_conv gathered = *conv;
    if (!lk__tile_lanes_is_gathered(conv))
        return gathered;
    gathered.in[0] = conv->out[0];
    gathered.in[2] = conv->kernel[0];
    gathered.kernel[0] = 1;
    gathered.padding[0] = 0;
    return gathered;
}

/* Columns of a plane: `before` of zeros, those of x, and zeros again. */
typedef struct plane_columns {
    int64_t before, all;
} plane_columns;

static plane_columns tile_lanes_columns(const lk_lanes_conv *conv)
{
    int64_t padding = conv->padding[1], before = padding > 0 ? padding : 0, read = before + conv->in[1],
            reached = before - padding + conv->out[1] + conv->kernel[1] - 1;
    return (plane_columns){before, read > reached ? read : reached};
}

static bool tile_lanes_is_copied(const lk_lanes_conv *conv)
{
    return lk__tile_lanes_is_gathered(conv) || tile_lanes_columns(conv).all > conv->in[1];
}

size_t lk__tile_lanes_plane_bytes(const lk_lanes_conv *conv)
{
    lk_lanes_conv read = lk__tile_lanes_conv(conv);
    int64_t size[2] = {read.in[0], tile_lanes_columns(conv).all};
    return tile_lanes_is_copied(conv) ? (size_t)lk__lanes_block_elements(size, read.in[2]) * sizeof(element) : 0;
}

/* Gathers the taps of a column of windows, two rows of x a word. a, b: the rows; NULL: padding. step: elements from
 * column to column of `to`. */
static void tile_lanes_gather_pair(const element *a, const element *b, int64_t columns, element *to, int64_t step)
{
    for (int64_t c = 0; c < columns; c++, to += step)
        word_store(to, word_firsts(a ? word_load(a + c * LK_ELEMENTS) : word_zero(),
                                   b ? word_load(b + c * LK_ELEMENTS) : word_zero()));
}

static const element *tile_lanes_row_of(const lk_lanes_conv *conv, const element *x, int64_t row)
{
    return row >= 0 && row < conv->in[0] ? x + row * conv->in[1] * LK_ELEMENTS : NULL;
}

static void tile_lanes_gather(const lk_lanes_conv *conv, const element *x, element *to, int64_t row_step)
{
    int64_t words = lk__lanes_words(conv->kernel[0]), step = words * LK_ELEMENTS;
    for (int64_t row = 0; row < conv->out[0]; row++, to += row_step)
        for (int64_t tap = 0; tap < conv->kernel[0]; tap += LK_PER_WORD) {
            int64_t from = row - conv->padding[0] + tap;
            bool last = tap + 1 == conv->kernel[0];
            tile_lanes_gather_pair(tile_lanes_row_of(conv, x, from), last ? NULL : tile_lanes_row_of(conv, x, from + 1),
                                   conv->in[1], to + tap / LK_PER_WORD * LK_ELEMENTS, step);
        }
}

element *lk__tile_lanes_inside(const lk_lanes_conv *conv, void *memory, int64_t *row_step)
{
    int64_t pixel = lk__lanes_words(conv->in[2]) * LK_ELEMENTS;
    plane_columns of_plane = tile_lanes_columns(conv);
    if (lk__tile_lanes_is_gathered(conv) || of_plane.all == conv->in[1])
        return NULL;
    *row_step = of_plane.all * pixel;
    return (element *)memory + of_plane.before * pixel;
}

lk_lanes_plane lk__tile_lanes_plane(const lk_lanes_conv *conv, const element *x, void *memory)
{
    lk_lanes_conv read = lk__tile_lanes_conv(conv);
    plane_columns of_plane = tile_lanes_columns(conv);
    int64_t pixel = lk__lanes_words(read.in[2]) * LK_ELEMENTS, x_row = conv->in[1] * pixel;
    if (!tile_lanes_is_copied(conv))
        return (lk_lanes_plane){x - conv->padding[1] * pixel, x_row};
    element *to = (element *)memory + of_plane.before * pixel;
    int64_t row_step = of_plane.all * pixel;
    if (of_plane.all > conv->in[1] && x != to)
        memset(memory, 0, lk__tile_lanes_plane_bytes(conv));
    if (lk__tile_lanes_is_gathered(conv))
        tile_lanes_gather(conv, x, to, row_step);
    else
        for (int64_t row = 0; x != to && row < conv->in[0]; row++)
            memcpy(to + row * row_step, x + row * x_row, (size_t)x_row * sizeof *to);
    return (lk_lanes_plane){to - conv->padding[1] * pixel, row_step};
}
