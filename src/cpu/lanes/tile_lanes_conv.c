/* Convolutions of lanes.h on tiles, with relu and pooling.
 *
 * A product of tiles multiplies up to sixteen filters by the pixels of sixteen images. Its left operand are packed
 * weights, [filters][words of a window's row]; its right operand are rows of x as they lie. A step loads two tiles of
 * filters and one tile at each of two pixels, for four products. The time of a product is the larger of its numbers of
 * filters and of words. So filters are divided into tiles of one size, and a run of words into as few tiles of one size
 * as possible. If the last of a run would be shorter, it begins earlier and the words that it repeats meet weights of
 * 0: an x that is infinite may give NaN there.
 *
 * The sums of a window's pixels go to memory in the first-level cache. From there vectors add the bias, apply relu and
 * the pooling, and round. */
#include "cpu/lanes/tile_lanes.h"
#include "cpu/vector/rectify.h"
#include "cpu/vector/tile.h"

#include <string.h>

enum { ROWS = LK_TILE_ROWS, WORDS = LK_TILE_ROW_BYTES / 4 };

/* Pixels that are computed together, where windows allow it. */
enum { TOGETHER = 4 };

typedef lk_pixel_range range;

/* --- packed weights ----------------------------------------------------------------------------------------------- */

/* How filters and the words of a window's row are divided into tiles. */
typedef struct division {
    int64_t pairs, filters; /* pairs of tiles; filters of a tile */
    int64_t run;            /* words of a window's row */
    int64_t steps, depth;   /* tiles of a run; words of a tile */
} division;

static division tile_lanes_division(const lk_lanes_conv *conv)
{
    division d = {.run = conv->kernel[1] * lk__lanes_words(conv->in[2])};
    d.pairs = (conv->out[2] + 2 * ROWS - 1) / (2 * ROWS);
    d.filters = (conv->out[2] + 2 * d.pairs - 1) / (2 * d.pairs);
    d.steps = (d.run + WORDS - 1) / WORDS;
    d.depth = (d.run + d.steps - 1) / d.steps;
    return d;
}

/* Returns the first word of a step. */
static int64_t tile_lanes_begin(const division *d, int64_t step)
{
    return step + 1 < d->steps ? step * d->depth : d->run - d->depth;
}

/* Elements of the packed weights of a row of the window, for a pair of tiles of filters. */
static int64_t tile_lanes_row_weights(const division *d)
{
    return d->steps * 2 * d->filters * WORDS * LK_PER_WORD;
}

size_t lk__lanes_packed_bytes(const lk_lanes_conv *conv)
{
    lk_lanes_conv read = lk__tile_lanes_conv(conv);
    division d = tile_lanes_division(&read);
    return (size_t)(d.pairs * read.kernel[0] * tile_lanes_row_weights(&d) + d.run * LK_PER_WORD) * sizeof(element);
}

/* The plain weights, and how to find them. */
typedef struct weights {
    const lk_lanes_conv *conv;
    const element *plain;
    int64_t stride_out, stride_in; /* elements from filter to filter, and from channel to channel */
    bool rotated;
} weights;

/* Collects the weights of a filter for a row of the window: [column][channels, in whole words]. */
static void tile_lanes_collect_row(const weights *w, int64_t filter, int64_t row, element *to)
{
    const lk_lanes_conv *conv = w->conv;
    int64_t padded = lk__lanes_words(conv->in[2]) * LK_PER_WORD, last = conv->kernel[0] * conv->kernel[1] - 1;
    for (int64_t column = 0; column < conv->kernel[1]; column++, to += padded) {
        int64_t tap = row * conv->kernel[1] + column;
        const element *from = w->plain + filter * w->stride_out + (w->rotated ? last - tap : tap);
        for (int64_t c = 0; c < conv->in[2]; c++)
            to[c] = from[c * w->stride_in];
    }
}

/* Packs a row of the window for a filter. collected: its weights; step_size: elements of a step. */
static void tile_lanes_pack_row(const division *d, const element *collected, element *to, int64_t step_size)
{
    for (int64_t step = 0; step < d->steps; step++, to += step_size) {
        int64_t begin = tile_lanes_begin(d, step), repeated = step * d->depth - begin;
        memcpy(to + repeated * LK_PER_WORD, collected + (begin + repeated) * LK_PER_WORD,
               (size_t)((d->depth - repeated) * LK_PER_WORD) * sizeof *to);
    }
}

/* Packed weights lie as [pair of tiles][row of the window][step][2][filters][WORDS][2], and end with memory for a row.
 * A gradient's kernel with one channel is gathered after its rotation, so its channels are the rows of the window in
 * reverse. */
void lk__lanes_pack(const lk_lanes_conv *conv, const void *plain, bool for_gradient, void *packed)
{
    lk_lanes_conv read = lk__tile_lanes_conv(conv);
    int64_t taps = conv->kernel[0] * conv->kernel[1];
    weights w = {.conv = &read,
                 .plain = plain,
                 .stride_out = (for_gradient ? 1 : conv->in[2]) * taps,
                 .stride_in = (for_gradient ? conv->out[2] : 1) * taps,
                 .rotated = for_gradient};
    if (lk__tile_lanes_is_gathered(conv)) {
        w.stride_in = for_gradient ? -conv->kernel[1] : conv->kernel[1];
        w.plain += for_gradient ? (conv->kernel[0] - 1) * conv->kernel[1] : 0;
    }
    division d = tile_lanes_division(&read);
    int64_t row_size = tile_lanes_row_weights(&d);
    element *to = packed, *collected = to + d.pairs * read.kernel[0] * row_size;
    memset(packed, 0, lk__lanes_packed_bytes(conv));
    for (int64_t filter = 0; filter < read.out[2]; filter++) {
        int64_t pair = filter / (2 * d.filters), in_pair = filter % (2 * d.filters);
        element *of_filter = to + pair * read.kernel[0] * row_size + in_pair * WORDS * LK_PER_WORD;
        for (int64_t row = 0; row < read.kernel[0]; row++) {
            tile_lanes_collect_row(&w, filter, row, collected);
            tile_lanes_pack_row(&d, collected, of_filter + row * row_size, row_size / d.steps);
        }
    }
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* One block of images in work. */
typedef struct work {
    const lk_lanes_block *block;
    lk_lanes_conv conv; /* the one of gathered x */
    division division;
    lk_lanes_plane x;
    const element *packed;
    const float *bias; /* or NULL */
    element *y;
    uint8_t *saved;
    vec_mask images;
    float *sums; /* [pixel][filters of a pair of tiles][LK_WIDTH] */
} work;

static void tile_lanes_configure(const division *d)
{
    tile_shape shapes[LK_TILES];
    for (int i = 0; i < LK_TILES; i++) {
        bool is_right = i >= 6, is_left = i >= 4 && !is_right;
        shapes[i].rows = (int)(is_right ? d->depth : d->filters);
        shapes[i].row_bytes = is_left ? (int)d->depth * 4 : LK_TILE_ROW_BYTES;
    }
    tile_configure_as(shapes);
}

/* Returns the steps whose words lie in x, not only in its padding, for pixels at columns c to c + next. */
static range tile_lanes_steps_inside(const work *k, int64_t c, int64_t next)
{
    const division *d = &k->division;
    const lk_lanes_conv *conv = &k->conv;
    int64_t padding = conv->padding[1], words = lk__lanes_words(conv->in[2]);
    if (padding <= 0)
        return (range){0, d->steps};
    int64_t first = padding - c - next, last = padding + conv->in[1] - c;
    int64_t end = last < conv->kernel[1] ? (last * words + d->depth - 1) / d->depth : d->steps;
    return (range){first > 0 ? first * words / d->depth : 0, end};
}

/* Adds the products of one step to the sums in tiles 0 to 3: those of a tile of filters at two pixels, then those of
 * the other one. single: tiles 4 and 5 have the weights already. */
LK_BODY void multiply_step(const element *w, int64_t one, const element *x, int64_t next, bool single)
{
    if (!single)
        tile_load(4, w, LK_TILE_ROW_BYTES);
    tile_load(6, x, LK_TILE_ROW_BYTES);
    tile_multiply(0, 4, 6);
    if (!single)
        tile_load(5, w + one, LK_TILE_ROW_BYTES);
    tile_multiply(1, 5, 6);
    tile_load(7, x + next, LK_TILE_ROW_BYTES);
    tile_multiply(3, 5, 7);
    tile_multiply(2, 4, 7);
}

/* Computes the pixels at columns c and c + next of a row, for a pair of tiles of filters. w: its packed weights. */
LK_BODY void multiply_two_pixels(const work *k, const element *w, int64_t row, int64_t c, int64_t next, bool single,
                                 float *sums)
{
    const division *d = &k->division;
    int64_t pixel = lk__lanes_words(k->conv.in[2]) * LK_ELEMENTS, one = d->filters * WORDS * LK_PER_WORD;
    const element *x = k->x.first + c * pixel;
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    if (single) {
        multiply_step(w, one, x + row * k->x.row_step, next * pixel, true);
    } else {
        range taps = lk__lanes_taps_inside(&k->conv, 0, row), steps = tile_lanes_steps_inside(k, c, next);
        for (int64_t tap = taps.begin; tap < taps.end; tap++) {
            const element *x_row = x + (row - k->conv.padding[0] + tap) * k->x.row_step,
                          *w_row = w + tap * tile_lanes_row_weights(d);
            for (int64_t step = steps.begin; step < steps.end; step++)
                multiply_step(w_row + step * 2 * one, one, x_row + tile_lanes_begin(d, step) * LK_ELEMENTS,
                              next * pixel, false);
        }
    }
    tile_store(0, sums, LK_TILE_ROW_BYTES);
    tile_store(1, sums + d->filters * LK_WIDTH, LK_TILE_ROW_BYTES);
    tile_store(2, sums + 2 * d->filters * LK_WIDTH, LK_TILE_ROW_BYTES);
    tile_store(3, sums + 3 * d->filters * LK_WIDTH, LK_TILE_ROW_BYTES);
}

/* Floats of the sums of a pixel, and of a row of pixels, whose number is rounded up to pairs. */
static int64_t tile_lanes_pixel_sums(const division *d)
{
    return 2 * d->filters * LK_WIDTH;
}

static int64_t tile_lanes_row_sums(const division *d, int64_t n)
{
    return (n + 1) / 2 * 2 * tile_lanes_pixel_sums(d);
}

/* Computes pixels of the convolution's result for a pair of tiles of filters. If every window has one row of x, which
 * is one step, the weights stay in their tiles. Rows of a gradient that pooling leaves out have none. */
static void tile_lanes_multiply(const work *k, const element *w, range rows, range columns)
{
    const division *d = &k->division;
    float *sums = k->sums;
    const lk_lanes_conv *conv = &k->conv;
    bool single = conv->kernel[0] == 1 && conv->padding[0] == 0 && conv->out[0] <= conv->in[0] && d->steps == 1;
    if (single) {
        tile_load(4, w, LK_TILE_ROW_BYTES);
        tile_load(5, w + d->filters * WORDS * LK_PER_WORD, LK_TILE_ROW_BYTES);
    }
    for (int64_t row = rows.begin; row < rows.end; row++)
        for (int64_t c = columns.begin; c < columns.end; c += 2, sums += 2 * tile_lanes_pixel_sums(d)) {
            int64_t next = c + 1 < columns.end;
            if (single)
                multiply_two_pixels(k, w, row, c, next, true, sums);
            else
                multiply_two_pixels(k, w, row, c, next, false, sums);
        }
}

/* --- bias, relu and pooling --------------------------------------------------------------------------------------- */

/* The sums of a window's pixels for the filters from `first` on. */
typedef struct window {
    const lk_lanes_block *block;
    const float *sums;
    int64_t row_sums, pixel_sums; /* floats from row to row, and from pixel to pixel */
    int64_t at, row, column;      /* number of the window; its first pixel */
    int64_t rows, columns;
    int index, index_step; /* number of the first pixel in the window with its padding; from row to row */
    float share;           /* 1 / number of elements */
} window;

/* A word's sums at a pixel, with the bias. */
LK_BODY void load_sums(const float *sums, const vec bias[LK_PER_WORD], int n, vec value[LK_PER_WORD])
{
    for (int h = 0; h < n; h++)
        value[h] = vec_add(vec_load(sums + h * LK_WIDTH), bias[h]);
}

/* Averages `n` filters that share a word. signs: where relu saves the bits of the first pixel. */
LK_BODY void average_word(const window *w, const float *sums, const vec bias[LK_PER_WORD], uint8_t *signs, bool relu,
                          int n, int64_t rows, int64_t columns, vec pooled[LK_PER_WORD])
{
    int64_t filters = w->block->conv.out[2], row_signs = w->block->conv.out[1] * filters;
    for (int h = 0; h < LK_PER_WORD; h++)
        pooled[h] = h < n ? vec_set(-0.0f) : vec_zero(); /* -0 + x is x, also for x = -0 */
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++) {
            vec value[LK_PER_WORD];
            load_sums(sums + row * w->row_sums + column * w->pixel_sums, bias, n, value);
            for (int h = 0; h < n; h++) {
                if (relu)
                    value[h] = lk__rectify(value[h], signs + (row * row_signs + column * filters + h) *
                                                                 (int64_t)sizeof(vec_bits));
                pooled[h] = vec_add(pooled[h], value[h]);
            }
        }
    for (int h = 0; h < n; h++)
        pooled[h] = vec_mul(pooled[h], vec_set(w->share));
}

/* Takes the maximum of `n` filters that share a word. winners: where their pixels are saved. */
LK_BODY void maximum_word(const window *w, const float *sums, const vec bias[LK_PER_WORD], uint8_t *winners, bool relu,
                          int n, int64_t rows, int64_t columns, vec pooled[LK_PER_WORD])
{
    vec_int winner[LK_PER_WORD];
    for (int h = 0; h < LK_PER_WORD; h++) {
        pooled[h] = vec_zero();
        winner[h] = int_set(0);
    }
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++) {
            vec value[LK_PER_WORD];
            vec_int here = int_set(w->index + (int)row * w->index_step + (int)column);
            load_sums(sums + row * w->row_sums + column * w->pixel_sums, bias, n, value);
            for (int h = 0; h < n; h++) {
                if (row == 0 && column == 0) {
                    pooled[h] = value[h];
                    winner[h] = here;
                } else {
                    lk__lanes_take_maximum(value[h], here, &pooled[h], &winner[h]);
                }
            }
        }
    for (int h = 0; h < n; h++) {
        if (relu) {
            winner[h] = int_select(mask_greater(pooled[h], vec_zero()), winner[h], int_set(255));
            pooled[h] = lk__rectified(pooled[h]);
        }
        int_store_bytes(winner[h], winners + h * LK_WIDTH);
    }
}

/* Pools n filters from number `first` on, of which those from `o` on share a word, and stores them. */
LK_BODY void pool_word(const work *k, const window *w, int64_t first, int64_t o, int n, bool max, bool relu,
                       int64_t rows, int64_t columns)
{
    const lk_lanes_block *block = k->block;
    int64_t filters = block->conv.out[2], filter = first + o;
    const float *sums = w->sums + o * LK_WIDTH;
    vec bias[LK_PER_WORD], pooled[LK_PER_WORD];
    for (int h = 0; h < n; h++)
        bias[h] = k->bias ? vec_broadcast(k->bias + filter + h) : vec_zero();
    if (max)
        maximum_word(w, sums, bias, k->saved + (w->at * filters + filter) * LK_WIDTH, relu, n, rows, columns, pooled);
    else
        average_word(w, sums, bias,
                     relu ? k->saved + ((w->row * block->conv.out[1] + w->column) * filters + filter) *
                                           (int64_t)sizeof(vec_bits)
                          : NULL,
                     relu, n, rows, columns, pooled);
    for (int h = 0; h < n; h++)
        pooled[h] = vec_where(k->images, pooled[h]);
    word_store(k->y + (w->at * lk__lanes_words(filters) + filter / LK_PER_WORD) * LK_ELEMENTS, word_round(pooled));
}

LK_BODY void pool_words(const work *k, const window *w, int64_t first, int64_t n, bool max, bool relu, int64_t rows,
                        int64_t columns)
{
    int64_t o = 0;
    for (; o + LK_PER_WORD <= n; o += LK_PER_WORD)
        pool_word(k, w, first, o, LK_PER_WORD, max, relu, rows, columns);
    if (o < n)
        pool_word(k, w, first, o, 1, max, relu, rows, columns);
}

/* Pools n filters of a window. The usual sizes of windows have loops of their own, which are unrolled. */
static void tile_lanes_pool(const work *k, const window *w, int64_t first, int64_t n)
{
    const lk_lanes_block *block = k->block;
    bool two_by_two = w->rows == 2 && w->columns == 2, max = block->max, relu = block->relu;
    if (two_by_two && max && relu)
        pool_words(k, w, first, n, true, true, 2, 2);
    else if (two_by_two && !max && relu)
        pool_words(k, w, first, n, false, true, 2, 2);
    else if (w->rows == 1 && w->columns == 1 && !max)
        pool_words(k, w, first, n, false, relu, 1, 1);
    else
        pool_words(k, w, first, n, max, relu, w->rows, w->columns);
}

/* --- blocks of images --------------------------------------------------------------------------------------------- */

/* Returns the number of neighboring windows whose pixels are computed together: several, so that vectors do not wait
 * for each window's products. */
static int64_t tile_lanes_windows_together(const lk_lanes_block *block)
{
    const lk_geometry *pool = &block->pool;
    int64_t pixels = pool->kernel[0] * pool->kernel[1];
    return pool->stride[1] == pool->kernel[1] && pixels < TOGETHER ? TOGETHER / pixels : 1;
}

/* Computes the windows [first, end) of row `row`. */
static void tile_lanes_windows(const work *k, int64_t row, int64_t first, int64_t end)
{
    const lk_geometry *pool = &k->block->pool;
    const division *d = &k->division;
    range rows = lk__geometry_window(pool, 0, row), all = lk__geometry_window(pool, 1, first);
    all.end = lk__geometry_window(pool, 1, end - 1).end;
    window w = {.block = k->block,
                .row_sums = tile_lanes_row_sums(d, all.end - all.begin),
                .pixel_sums = tile_lanes_pixel_sums(d),
                .row = rows.begin,
                .rows = rows.end - rows.begin,
                .index_step = (int)pool->kernel[1]};
    int64_t top = row * pool->stride[0] - pool->padding[0];
    for (int64_t pair = 0; pair < d->pairs; pair++) {
        int64_t filter = pair * 2 * d->filters, left_over = k->conv.out[2] - filter;
        tile_lanes_multiply(k, k->packed + pair * k->conv.kernel[0] * tile_lanes_row_weights(d), rows, all);
        for (int64_t i = first; i < end; i++) {
            range columns = lk__geometry_window(pool, 1, i);
            int64_t left = i * pool->stride[1] - pool->padding[1];
            w.at = row * pool->out[1] + i;
            w.column = columns.begin;
            w.columns = columns.end - columns.begin;
            w.index = (int)((rows.begin - top) * pool->kernel[1] + columns.begin - left);
            w.share = 1 / (float)lk__geometry_divisor(pool, rows, columns);
            w.sums = k->sums + (columns.begin - all.begin) * w.pixel_sums;
            tile_lanes_pool(k, &w, filter, left_over < 2 * d->filters ? left_over : 2 * d->filters);
        }
    }
}

/* Returns the floats of the sums of the windows that are computed together. */
static size_t tile_lanes_sums_count(const lk_lanes_block *block, const division *d)
{
    int64_t size[2] = {block->pool.kernel[0], block->pool.kernel[1] * tile_lanes_windows_together(block)};
    for (int i = 0; i < 2; i++)
        size[i] = size[i] < block->conv.out[i] ? size[i] : block->conv.out[i];
    return (size_t)(size[0] * tile_lanes_row_sums(d, size[1]));
}

size_t lk__lanes_forward_bytes(const lk_lanes_block *block)
{
    lk_lanes_conv read = lk__tile_lanes_conv(&block->conv);
    division d = tile_lanes_division(&read);
    return lk__tile_lanes_plane_bytes(&block->conv) + tile_lanes_sums_count(block, &d) * sizeof(float);
}

void lk__tile_lanes_block(const lk_lanes_block *block, int64_t b, const element *x, const element *packed,
                          const float *bias, element *y, uint8_t *saved, void *memory)
{
    const lk_geometry *pool = &block->pool;
    work k = {.block = block,
              .conv = lk__tile_lanes_conv(&block->conv),
              .x = lk__tile_lanes_plane(&block->conv, x, memory),
              .packed = packed,
              .bias = bias,
              .y = y + b * lk__lanes_block_elements(pool->out, pool->channels),
              .saved = saved ? saved + (size_t)b * lk__lanes_block_saved_bytes(block) : NULL,
              .images = mask_first(block->conv.images - b * LK_WIDTH),
              .sums = (float *)(void *)((char *)memory + lk__tile_lanes_plane_bytes(&block->conv))};
    k.division = tile_lanes_division(&k.conv);
    tile_lanes_configure(&k.division);
    int64_t together = tile_lanes_windows_together(block);
    for (int64_t row = 0; row < pool->out[0]; row++)
        for (int64_t column = 0; column < pool->out[1]; column += together)
            tile_lanes_windows(&k, row, column, column + together < pool->out[1] ? column + together : pool->out[1]);
    tile_release();
}

void lk__lanes_block_forward(const lk_lanes_block *block, const void *x, const void *packed, const float *bias, void *y,
                             uint8_t *saved, void *memory)
{
    int64_t n = lk__lanes_blocks(block->conv.images), in = lk__lanes_block_elements(block->conv.in, block->conv.in[2]);
    for (int64_t b = 0; b < n; b++)
        lk__tile_lanes_block(block, b, (const element *)x + b * in, packed, bias, y, saved, memory);
}

void lk__lanes_conv2d(const lk_lanes_conv *conv, const void *x, const void *packed, const float *bias, void *y,
                      void *memory)
{
    lk_lanes_block block = lk__lanes_block_of(conv);
    lk__lanes_block_forward(&block, x, packed, bias, y, NULL, memory);
}
