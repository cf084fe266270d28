/* Direct convolution on tiles, and the gradient of its input: see lk__block_tiles_amxbf16 in block_conv.h.
 *
 * The rows of a left tile are sixteen images at one pixel. So a tap reaches padding with all rows or with none, and the
 * tiles of x are copies that all taps share. */
#include "cpu/blocks/tile_conv.h"
#include "cpu/blocks/tile_grad.h"
#include "cpu/blocks/tile_weights.h"
#include "cpu/vector/rectify.h"

/* Rows of the source that a band of the result needs have about so many elements. They stay in the second-level cache,
 * with the weights of a pair of blocks, while all channels of the band are computed. */
enum { HELD_ELEMENTS = 448 * 1024 };

/* Columns of the result below which tiles are paired by images. */
enum { SHORT_ROW = 6 };

/* The direction of a convolution: which side is summed over, and the channels and sizes of both sides. */
typedef struct direction {
    bool gradient;
    int64_t from_channels, to_channels;
    const int64_t *from_size, *to_size;
} direction;

/* Sixteen images at one pixel of the result. */
typedef struct place {
    int64_t row, column, group;
} place;

/* A call, and its memory. */
typedef struct work {
    const lk_geometry *conv;
    direction d;
    int64_t taps, steps; /* steps: of a tap */
    int64_t images;      /* of a chunk */
    int64_t groups;      /* of sixteen images in a chunk */
    int64_t band, slots; /* rows of the result that are computed together, and rows that are held for them */
    element *packed;
    element *rows;       /* [slots][columns][groups][steps][TILE] */
    float *sums;         /* [STEP_SUMS] */
    int64_t *sources[2]; /* for each axis, [to_size][kernel]: see tile_conv_source */
    bool *used[2];       /* for each axis, [from_size]: whether a tap reaches it */
    place *places;
} work;

/* Returns the row or column of the source that a tap connects with one of the result; -1: there is none. */
static int64_t tile_conv_source(const lk_geometry *conv, const direction *d, int axis, int64_t at, int64_t tap)
{
    int64_t shift = tap * conv->dilation[axis] - conv->padding[axis], stride = conv->stride[axis];
    int64_t source = d->gradient ? at - shift : at * stride + shift;
    if (d->gradient && source % stride != 0)
        return -1;
    source = d->gradient ? source / stride : source;
    return source < d->from_size[axis] ? lk__max(source, -1) : -1;
}

static void tile_conv_find_sources(const work *w)
{
    for (int i = 0; i < 2; i++) {
        int64_t taps = w->conv->kernel[i];
        memset(w->used[i], 0, (size_t)w->d.from_size[i] * sizeof(bool));
        for (int64_t at = 0; at < w->d.to_size[i] * taps; at++) {
            int64_t source = tile_conv_source(w->conv, &w->d, i, at / taps, at % taps);
            w->sources[i][at] = source;
            if (source >= 0)
                w->used[i][source] = true;
        }
    }
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Returns the rows of the source that a band needs at most. */
static int64_t tile_conv_slots(const lk_geometry *conv, const direction *d, int64_t band)
{
    int64_t reach = (conv->kernel[0] - 1) * conv->dilation[0];
    int64_t slots = d->gradient ? (band - 1 + reach) / conv->stride[0] + 2 : (band - 1) * conv->stride[0] + reach + 1;
    return lk__min(slots, d->from_size[0]);
}

static int64_t tile_conv_band(const lk_geometry *conv, const direction *d, int64_t a_row)
{
    int64_t band = 1;
    while (band < d->to_size[0] && tile_conv_slots(conv, d, band + 1) * a_row <= HELD_ELEMENTS)
        band++;
    return band;
}

/* Lays out the memory of a call, which may be NULL, and returns its bytes. */
static size_t tile_conv_start(const lk_geometry *conv, const direction *d, char *memory, work *w)
{
    size_t used = 0;
    *w = (work){.conv = conv, .d = *d};
    w->taps = tile_conv_area_of(conv->kernel);
    w->steps = tile_conv_pairs(d->from_channels);
    w->groups = lk__divide_up(lk__min(conv->images, IMAGES_AT_ONCE), ROWS);
    int64_t a_row = d->from_size[1] * w->groups * w->steps * TILE;
    w->band = tile_conv_band(conv, d, a_row);
    w->slots = tile_conv_slots(conv, d, w->band);
    w->packed = tile_conv_take(memory, &used, tile_weights_count(conv), sizeof(element));
    w->rows = tile_conv_take(memory, &used, w->slots * a_row, sizeof(element));
    w->sums = tile_conv_take(memory, &used, STEP_SUMS, sizeof(float));
    for (int i = 0; i < 2; i++)
        w->used[i] = tile_conv_take(memory, &used, d->from_size[i], sizeof(bool));
    for (int i = 0; i < 2; i++)
        w->sources[i] = tile_conv_take(memory, &used, d->to_size[i] * conv->kernel[i], sizeof(int64_t));
    w->places = tile_conv_take(memory, &used, w->band * d->to_size[1] * w->groups, sizeof(place));
    return used;
}

/* --- rows of the source ------------------------------------------------------------------------------------------- */

/* Copies a row of the source to its slot. Rows of tiles without an image keep what they have, as do their sums. */
static void tile_conv_copy_row(const work *w, const element *x, int64_t row)
{
    static const element zeros[BLOCK];
    int64_t a_block = tile_conv_area_of(w->d.from_size) * BLOCK, blocks = w->d.from_channels / BLOCK,
            an_image = blocks * a_block, columns = w->d.from_size[1];
    element *to = w->rows + row % w->slots * columns * w->groups * w->steps * TILE;
    for (int64_t image = 0; image < w->images; image++)
        for (int64_t b = 0; b < blocks; b += PAIR) {
            const element *from = x + image * an_image + b * a_block + row * columns * BLOCK,
                          *second = b + 1 < blocks ? from + a_block : NULL;
            element *at = to + (image / ROWS * w->steps + b / PAIR) * TILE + image % ROWS * DEPTH;
            for (int64_t c = 0; c < columns; c++, at += w->groups * w->steps * TILE) {
                if (!w->used[1][c])
                    continue;
                memcpy(at, from + c * BLOCK, BLOCK * sizeof *to);
                memcpy(at + BLOCK, second ? second + c * BLOCK : zeros, BLOCK * sizeof *to);
            }
        }
}

/* Copies the rows that a band of the result needs and that are not there yet. *end: the first row not copied yet. */
static void tile_conv_copy(const work *w, const element *x, int64_t first, int64_t last, int64_t *end)
{
    int64_t begin = w->d.from_size[0], needed = 0;
    for (int64_t i = first * w->conv->kernel[0]; i < last * w->conv->kernel[0]; i++)
        if (w->sources[0][i] >= 0) {
            begin = lk__min(begin, w->sources[0][i]);
            needed = lk__max(needed, w->sources[0][i] + 1);
        }
    for (*end = lk__max(*end, begin); *end < needed; ++*end)
        if (w->used[0][*end])
            tile_conv_copy_row(w, x, *end);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* Lists the tiles of a band. Neighbors share weights: in the gradient of a strided convolution that are columns which
 * the same taps reach. Neighboring columns also share tiles of the source. In short rows, where many columns lie at an
 * edge, neighbors are groups of images. */
static int64_t tile_conv_list(const work *w, int64_t first, int64_t last)
{
    int64_t n = 0, step = w->d.gradient ? w->conv->stride[1] : 1, columns = w->d.to_size[1];
    int64_t together = columns < SHORT_ROW ? w->groups : 1;
    for (int64_t row = first; row < last; row++)
        for (int64_t begin = 0; begin < w->groups; begin += together)
            for (int64_t start = 0; start < step; start++)
                for (int64_t column = start; column < columns; column += step)
                    for (int64_t group = begin; group < begin + together; group++)
                        w->places[n++] = (place){row, column, group};
    return n;
}

/* Returns the tiles of the first column that a row of taps connects with a place; NULL: the taps reach padding. */
static const element *tile_conv_row_at(const work *w, const place *p, int64_t kernel_row)
{
    int64_t row = w->sources[0][p->row * w->conv->kernel[0] + kernel_row];
    if (row < 0)
        return NULL;
    return w->rows + (row % w->slots * w->d.from_size[1] * w->groups + p->group) * w->steps * TILE;
}

/* Returns the tiles that a tap of such a row connects with the place; NULL: the tap reaches padding. */
LK_BODY const element *tile_conv_at(const work *w, const element *row, const int64_t *columns, int64_t kernel_column)
{
    if (!row || columns[kernel_column] < 0)
        return NULL;
    return row + columns[kernel_column] * w->groups * w->steps * TILE;
}

/* Adds the products of one left tile, to the sums of the second one if `lower`. */
LK_BODY void tile_conv_add_one(const element *left, const element *right, int64_t steps, const bool lower)
{
    for (; steps > 0; steps--, left += TILE, right += STEP) {
        tile_load(4, left, LK_TILE_ROW_BYTES);
        tile_load(6, right, LK_TILE_ROW_BYTES);
        tile_load(7, right + TILE, LK_TILE_ROW_BYTES);
        if (lower) {
            tile_multiply(2, 4, 6);
            tile_multiply(3, 4, 7);
        } else {
            tile_multiply(0, 4, 6);
            tile_multiply(1, 4, 7);
        }
    }
}

/* Adds the products of all taps to the sums of two places; the second may be missing. */
static void tile_conv_sum(const work *w, const place *p, bool both, const element *right)
{
    const int64_t *kernel = w->conv->kernel, *of_upper = w->sources[1] + p->column * kernel[1],
                  *of_lower = w->sources[1] + p[both].column * kernel[1];
    for (int64_t i = 0; i < kernel[0]; i++) {
        const element *upper_row = tile_conv_row_at(w, p, i), *lower_row = both ? tile_conv_row_at(w, p + 1, i) : NULL;
        for (int64_t j = 0; j < kernel[1]; j++, right += w->steps * STEP) {
            const element *upper = tile_conv_at(w, upper_row, of_upper, j),
                          *lower = tile_conv_at(w, lower_row, of_lower, j);
            tile_pair left = {upper, lower}, of_step = {right, right + TILE};
            if (upper && lower)
                tile_conv_add(left, TILE, of_step, STEP, w->steps);
            else if (upper)
                tile_conv_add_one(upper, right, w->steps, false);
            else if (lower)
                tile_conv_add_one(lower, right, w->steps, true);
        }
    }
}

/* The bias, or NULL, and the destinations of results: y of the chunk's first image, and bits of relu, or NULL. */
typedef struct results {
    const element *bias;
    element *y;
    uint8_t *passed;
} results;

/* Adds bias to the sums of a place for one block of channels, and rounds them to y; if `passed` is given, after relu.
 */
static void tile_conv_finish_block(const work *w, const place *p, int64_t block, const float *sums, const results *r)
{
    int64_t a_block = tile_conv_area_of(w->d.to_size) * BLOCK, an_image = w->d.to_channels / BLOCK * a_block;
    int64_t at = p->group * ROWS * an_image + block * a_block + (p->row * w->d.to_size[1] + p->column) * BLOCK;
    vec bias = r->bias ? vec_widen(r->bias + block * BLOCK) : vec_zero();
    for (int64_t i = 0; i < lk__min(w->images - p->group * ROWS, ROWS); i++, at += an_image, sums += BLOCK) {
        vec value = vec_add(vec_load(sums), bias);
        vec_round(r->y + at, r->passed ? lk__rectify(value, r->passed + at / 8) : value);
    }
}

static void tile_conv_finish(const work *w, const place *p, int64_t channel, const float *sums, const results *r)
{
    for (int64_t b = 0; b < lk__min((w->d.to_channels - channel) / BLOCK, PAIR); b++)
        tile_conv_finish_block(w, p, channel / BLOCK + b, sums + b * SUMS, r);
}

/* Computes a pair of blocks of channels for n tiles. */
static void tile_conv_channels(const work *w, int64_t n, int64_t channel, const results *r)
{
    const element *weights = w->packed + channel / WIDTH * w->taps * w->steps * STEP;
    for (int64_t i = 0; i < n; i += PAIR) {
        tile_conv_clear();
        tile_conv_sum(w, &w->places[i], i + 1 < n, weights);
        tile_conv_store(w->sums);
        for (int64_t t = i; t < lk__min(n, i + PAIR); t++)
            tile_conv_finish(w, &w->places[t], channel, w->sums + (t - i) * PAIR * SUMS, r);
    }
}

static void tile_conv_chunk(work *w, const element *x, const results *r)
{
    int64_t copied = 0;
    for (int64_t first = 0; first < w->d.to_size[0]; first += w->band) {
        int64_t last = lk__min(first + w->band, w->d.to_size[0]), n = tile_conv_list(w, first, last);
        tile_conv_copy(w, x, first, last, &copied);
        for (int64_t channel = 0; channel < w->d.to_channels; channel += WIDTH)
            tile_conv_channels(w, n, channel, r);
    }
}

static void tile_convolve(const lk_geometry *conv, const direction *d, const element *x,
                          const lk_block_weights *weights, results r, void *memory)
{
    work w;
    tile_conv_start(conv, d, memory, &w);
    if (weights->kept)
        w.packed = weights->kept;
    if (!weights->is_made)
        tile_weights_pack(conv, weights->plain, d->gradient, w.packed);
    tile_conv_find_sources(&w);
    tile_configure();
    int64_t a_chunk_of_x = IMAGES_AT_ONCE * d->from_channels * tile_conv_area_of(d->from_size),
            a_chunk_of_y = IMAGES_AT_ONCE * d->to_channels * tile_conv_area_of(d->to_size);
    for (int64_t first = 0; first < conv->images; first += IMAGES_AT_ONCE) {
        w.images = lk__min(conv->images - first, IMAGES_AT_ONCE);
        w.groups = lk__divide_up(w.images, ROWS);
        tile_conv_chunk(&w, x, &r);
        x += a_chunk_of_x;
        r.y += a_chunk_of_y;
        if (r.passed)
            r.passed += a_chunk_of_y / 8;
    }
    tile_release();
}

static direction tile_conv_direction(const lk_geometry *conv, bool gradient)
{
    return gradient ? (direction){true, conv->filters, conv->channels, conv->out, conv->in}
                    : (direction){false, conv->channels, conv->filters, conv->in, conv->out};
}

static void tile_conv2d(const lk_geometry *conv, const void *x, const lk_block_weights *w, const void *bias, void *y,
                        uint8_t *passed, void *memory)
{
    direction d = tile_conv_direction(conv, false);
    tile_convolve(conv, &d, x, w, (results){bias, y, passed}, memory);
}

static void tile_conv_input_grad(const lk_geometry *conv, const void *dy, const lk_block_weights *w, void *dx,
                                 void *memory)
{
    direction d = tile_conv_direction(conv, true);
    tile_convolve(conv, &d, dy, w, (results){NULL, dx, NULL}, memory);
}

/* --- the algorithm ------------------------------------------------------------------------------------------------ */

static bool tile_conv_takes(const lk_geometry *conv)
{
    return conv->channels % BLOCK == 0 && conv->filters % BLOCK == 0;
}

static size_t tile_conv_memory_bytes(const lk_geometry *conv)
{
    work w;
    size_t most = LK_ISA(lk__tile_weight_grad_bytes)(conv);
    for (int gradient = 0; gradient < 2; gradient++) {
        direction d = tile_conv_direction(conv, gradient);
        size_t bytes = tile_conv_start(conv, &d, NULL, &w);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static size_t tile_conv_kept_bytes(const lk_geometry *conv, bool for_input_grad)
{
    (void)for_input_grad;
    return (size_t)tile_weights_count(conv) * sizeof(element);
}

const lk_block_algorithm LK_ISA(lk__block_tiles) = {
    .name = "direct:" LK_ISA_NAME,
    .block = BLOCK,
    .takes = tile_conv_takes,
    .memory = tile_conv_memory_bytes,
    .kept_bytes = tile_conv_kept_bytes,
    .conv2d = tile_conv2d,
    .input_grad = tile_conv_input_grad,
    .weight_grad = LK_ISA(lk__tile_weight_grad),
};
