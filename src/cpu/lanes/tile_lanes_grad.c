/* The gradient of a block of lanes.h on tiles.
 *
 * The gradient of the weights sums over the images of two blocks at a time, pixel by pixel: a row of words holds an
 * element of all 32 images (tile_lanes.h). The rows of a left tile are neighboring elements of one operand as they lie;
 * the columns of a right tile are neighboring elements of the other one, which is transposed, so that its rows are
 * words of images. The elements of dconv are a pixel's filters, those of x the (column, channel) positions of a row of
 * the window, which may begin at any column. Either operand may be the transposed one. If it is x, most right tiles
 * begin in the middle of a cache line and load more slowly; so it is x only if dconv is much larger.
 *
 * Tiles are always full. Elements beyond the filters or the window only give sums that nothing reads. Up to 2x2 tiles
 * of sums stay in registers over a band of rows; between bands they lie in memory. */
#include "cpu/lanes/tile_lanes.h"
#include "cpu/vector/tile.h"

#include <string.h>

enum { ROWS = LK_TILE_ROWS, WORDS = LK_TILE_ROW_BYTES / 4, PAIR = 2, TILE_SUMS = ROWS * WORDS, BAND_PIXELS = 32 };

typedef lk_pixel_range range;

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Sizes of what a call works on. */
typedef struct sizes {
    lk_lanes_conv conv;             /* the one of gathered x */
    int64_t used[2];                /* rows and columns of dconv */
    int64_t band;                   /* rows of dconv in a band */
    int64_t filters;                /* of dconv, in whole words */
    int64_t channels;               /* of x, in whole words */
    int64_t columns;                /* of x with its padding */
    int64_t n_filters, n_positions; /* tiles of filters, and of positions in a row of the window */
    bool turns_x;                   /* x is transposed, not dconv */
    bool has_ones; /* x has a channel of ones, in the free half of a word; its sums are those of the bias */
    int64_t x_row, x_pixel, x_word; /* elements from row to row, from pixel to pixel, and from tile row to tile row */
    int64_t d_pixel, d_word;        /* the same of dconv */
} sizes;

static int64_t tile_lanes_tiles(int64_t n)
{
    return (n + WORDS - 1) / WORDS;
}

/* Returns the elements from word to word of n transposed elements: an odd number of cache lines, so that the rows of a
 * tile do not meet in the same set of a cache. */
static int64_t tile_lanes_word_step(int64_t n)
{
    return (tile_lanes_tiles(n) | 1) * LK_ELEMENTS;
}

static sizes tile_lanes_sizes(const lk_lanes_block *block)
{
    enum { MUCH_LARGER = 2 };
    sizes s = {.conv = lk__tile_lanes_conv(&block->conv), .used = {lk__lanes_used(block, 0), lk__lanes_used(block, 1)}};
    s.band = BAND_PIXELS / s.used[1];
    s.band = s.band < 1 ? 1 : s.band < s.used[0] ? s.band : s.used[0];
    s.filters = lk__lanes_words(s.conv.out[2]) * LK_PER_WORD;
    s.channels = lk__lanes_words(s.conv.in[2]) * LK_PER_WORD;
    s.columns = s.conv.out[1] + s.conv.kernel[1] - 1;
    s.n_filters = tile_lanes_tiles(s.conv.out[2]);
    s.n_positions = tile_lanes_tiles(s.conv.kernel[1] * s.channels);
    s.turns_x =
        s.used[0] * s.used[1] * s.n_filters > MUCH_LARGER * s.conv.in[0] * tile_lanes_tiles(s.columns * s.channels);
    s.has_ones = s.channels > s.conv.in[2] && s.conv.padding[0] == 0;
    s.x_word = s.turns_x ? tile_lanes_word_step(s.columns * s.channels) : LK_ELEMENTS;
    s.x_pixel = s.channels * (s.turns_x ? LK_PER_WORD : LK_ELEMENTS);
    s.x_row = s.turns_x ? WORDS * s.x_word : s.columns * s.x_pixel;
    s.d_word = s.turns_x ? LK_ELEMENTS : tile_lanes_word_step(s.filters);
    s.d_pixel = s.turns_x ? s.filters * LK_ELEMENTS : WORDS * s.d_word;
    return s;
}

typedef struct work_memory {
    float *sums;               /* [tile of filters][row of the window][tile of positions][ROWS][WORDS] */
    float *bias;               /* [tile of filters][ROWS][WORDS], all rows or all columns of a tile equal */
    float *of_filter;          /* the gradient of one filter: [row of the window][column][channel] */
    element *ones;             /* a tile */
    element *x;                /* with the reach of tiles beyond its end, as dconv */
    element *rows;             /* a row of x before it is transposed, with the reach of a tile beyond its end */
    element *dconv;            /* of a band */
    element *natural;          /* the same before it is transposed */
    element *from_x, *from_dy; /* two blocks of x and of dy, if these are row-major */
    char *planes[PAIR];        /* for lk__tile_lanes_plane */
    char *convolution;         /* for the convolution that gives dx */
    element *input;            /* all of dconv of one block of images, unless it lies within `convolution` */
} work_memory;

/* Takes `count` elements of `size` bytes of the memory from offset *at on, and advances that. */
static void *tile_lanes_take(char *memory, size_t *at, int64_t count, size_t size)
{
    char *taken = memory + *at;
    *at += ((size_t)count * size + LK_TILE_ROW_BYTES - 1) / LK_TILE_ROW_BYTES * LK_TILE_ROW_BYTES;
    return taken;
}

/* Divides the memory of a call, and returns its size in *bytes. */
static work_memory tile_lanes_memory(const lk_lanes_block *block, const sizes *s, bool input_grad, char *memory,
                                     size_t *bytes)
{
    enum { TILE = ROWS * WORDS * LK_PER_WORD, REACH = 2 * TILE };
    work_memory m;
    int64_t pixels = s->band * s->used[1], x_block = lk__lanes_block_elements(block->conv.in, block->conv.in[2]),
            dy_block = lk__lanes_block_elements(block->pool.out, block->pool.channels);
    *bytes = 0;
    m.sums =
        tile_lanes_take(memory, bytes, s->n_filters * s->conv.kernel[0] * s->n_positions * TILE_SUMS, sizeof *m.sums);
    m.bias = tile_lanes_take(memory, bytes, s->n_filters * TILE_SUMS, sizeof *m.bias);
    m.of_filter =
        tile_lanes_take(memory, bytes, s->conv.kernel[0] * s->conv.kernel[1] * s->channels, sizeof *m.of_filter);
    m.ones = tile_lanes_take(memory, bytes, TILE, sizeof *m.ones);
    m.x = tile_lanes_take(memory, bytes, s->conv.in[0] * s->x_row + REACH, sizeof *m.x);
    m.rows =
        tile_lanes_take(memory, bytes, s->turns_x ? s->columns * s->channels * LK_ELEMENTS + TILE : 0, sizeof *m.rows);
    m.dconv = tile_lanes_take(memory, bytes, pixels * s->d_pixel + REACH, sizeof *m.dconv);
    m.natural =
        tile_lanes_take(memory, bytes, s->turns_x ? 0 : pixels * s->filters * LK_ELEMENTS + REACH, sizeof *m.natural);
    m.from_x = tile_lanes_take(memory, bytes, block->plain_x ? PAIR * x_block : 0, sizeof *m.from_x);
    m.from_dy = tile_lanes_take(memory, bytes, block->plain_dy ? PAIR * dy_block : 0, sizeof *m.from_dy);
    for (int i = 0; i < PAIR; i++)
        m.planes[i] = tile_lanes_take(memory, bytes, (int64_t)lk__tile_lanes_plane_bytes(&block->conv), 1);
    m.convolution = NULL;
    m.input = NULL;
    if (input_grad) {
        lk_lanes_conv back = lk__lanes_input_grad_conv(block);
        lk_lanes_block plain = lk__lanes_block_of(&back);
        m.convolution = tile_lanes_take(memory, bytes, (int64_t)lk__lanes_forward_bytes(&plain), 1);
        m.input = tile_lanes_take(memory, bytes, lk__lanes_block_elements(back.in, back.in[2]), sizeof *m.input);
    }
    return m;
}

size_t lk__lanes_grad_bytes(const lk_lanes_block *block, bool input_grad)
{
    sizes s = tile_lanes_sizes(block);
    size_t bytes;
    char nothing; /* only offsets from it are of interest */
    tile_lanes_memory(block, &s, input_grad, &nothing, &bytes);
    return bytes;
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

/* Sets the channel that fills up a word to one, in n rows of pixels' channels. */
static void tile_lanes_set_ones(const sizes *s, const element *ones, int64_t n, element *rows)
{
    for (int64_t i = s->channels - 1; i < n; i += s->channels)
        word_store(rows + i * LK_ELEMENTS, word_load(ones));
}

/* Joins x of one or two blocks of images, and transposes it if it is the operand of right tiles. */
static void tile_lanes_join_x(const sizes *s, const lk_lanes_plane planes[PAIR], int n, const work_memory *m)
{
    int64_t positions = s->columns * s->channels;
    element *to = m->x, *rows = s->turns_x ? m->rows : to;
    for (int64_t row = 0; row < s->conv.in[0]; row++, to += s->x_row) {
        if (!s->turns_x)
            rows = to;
        lk__tile_lanes_join(planes[0].first + row * planes[0].row_step,
                            n > 1 ? planes[1].first + row * planes[1].row_step : NULL, positions / LK_PER_WORD, rows);
        if (s->has_ones)
            tile_lanes_set_ones(s, m->ones, positions, rows);
        for (int64_t first = 0; s->turns_x && first < positions; first += ROWS)
            lk__tile_lanes_transpose(rows + first * LK_ELEMENTS, to + first * LK_PER_WORD, s->x_word);
    }
}

/* Computes a band of dconv, and transposes it if it is the operand of right tiles. */
static void tile_lanes_make_dconv(const lk_lanes_block *block, const sizes *s, const lk_lanes_images *images, int n,
                                  range rows, const work_memory *m)
{
    int64_t pixels = (rows.end - rows.begin) * s->used[1];
    lk__tile_lanes_spread(block, images, n, rows, s->turns_x ? m->dconv : m->natural);
    for (int64_t p = 0; !s->turns_x && p < pixels; p++)
        for (int64_t f = 0; f < s->filters; f += ROWS)
            lk__tile_lanes_transpose(m->natural + (p * s->filters + f) * LK_ELEMENTS,
                                     m->dconv + p * s->d_pixel + f * LK_PER_WORD, s->d_word);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* The pixels that tiles of sums run over. */
typedef struct run {
    const element *left, *right; /* at the first pixel */
    int64_t rows, columns;
    int64_t left_pixel, left_row, right_pixel, right_row; /* elements from pixel to pixel, and from row to row */
    int64_t stride;                                       /* bytes between the rows of a right tile */
    int64_t next_left, next_right;                        /* floats from the sums of a tile to those of the next */
} run;

/* Adds to `n_left` by `n_right` tiles of sums. */
LK_BODY void sum_tiles(const run *r, int n_left, int n_right, float *sums)
{
    float *next = sums + r->next_left;
    tile_load(0, sums, LK_TILE_ROW_BYTES);
    if (n_right > 1)
        tile_load(1, sums + r->next_right, LK_TILE_ROW_BYTES);
    if (n_left > 1)
        tile_load(2, next, LK_TILE_ROW_BYTES);
    if (n_left > 1 && n_right > 1)
        tile_load(3, next + r->next_right, LK_TILE_ROW_BYTES);
    for (int64_t row = 0; row < r->rows; row++) {
        const element *left = r->left + row * r->left_row, *right = r->right + row * r->right_row;
        for (int64_t column = 0; column < r->columns; column++, left += r->left_pixel, right += r->right_pixel) {
            tile_load(4, left, LK_TILE_ROW_BYTES);
            tile_load(6, right, r->stride);
            tile_multiply(0, 4, 6);
            if (n_left > 1) {
                tile_load(5, left + ROWS * LK_ELEMENTS, LK_TILE_ROW_BYTES);
                tile_multiply(2, 5, 6);
            }
            if (n_right > 1) {
                tile_load(7, right + LK_ELEMENTS, r->stride);
                tile_multiply(1, 4, 7);
                if (n_left > 1)
                    tile_multiply(3, 5, 7);
            }
        }
    }
    tile_store(0, sums, LK_TILE_ROW_BYTES);
    if (n_right > 1)
        tile_store(1, sums + r->next_right, LK_TILE_ROW_BYTES);
    if (n_left > 1)
        tile_store(2, next, LK_TILE_ROW_BYTES);
    if (n_left > 1 && n_right > 1)
        tile_store(3, next + r->next_right, LK_TILE_ROW_BYTES);
}

static void tile_lanes_sum(const run *r, int64_t n_left, int64_t n_right, float *sums)
{
    if (n_left > 1 && n_right > 1)
        sum_tiles(r, 2, 2, sums);
    else if (n_left > 1)
        sum_tiles(r, 2, 1, sums);
    else if (n_right > 1)
        sum_tiles(r, 1, 2, sums);
    else
        sum_tiles(r, 1, 1, sums);
}

/* Returns the rows of a band whose window has row `tap` of the kernel inside x. */
static range tile_lanes_rows_inside(const lk_lanes_conv *conv, range rows, int64_t tap)
{
    int64_t first = conv->padding[0] - tap, end = first + conv->in[0];
    return (range){rows.begin > first ? rows.begin : first, rows.end < end ? rows.end : end};
}

/* Adds products of dconv's rows from `rows.begin` on and of x to the sums of n_filters tiles of filters, at most two
 * of which are used, by n_positions tiles of positions. d, x: at the first pixel. */
static void tile_lanes_sum_pair(const sizes *s, range rows, const element *d, const element *x, int64_t n_filters,
                                int64_t n_positions, float *sums)
{
    int64_t d_row = s->used[1] * s->d_pixel, filters = s->conv.kernel[0] * s->n_positions * TILE_SUMS;
    run r = {.rows = rows.end - rows.begin, .columns = s->used[1]};
    if (s->turns_x) {
        r = (run){d,          x,          r.rows,
                  r.columns,  s->d_pixel, d_row,
                  s->x_pixel, s->x_row,   s->x_word * (int64_t)sizeof *x,
                  filters,    TILE_SUMS};
        tile_lanes_sum(&r, n_filters, n_positions, sums);
    } else {
        r = (run){x,          d,          r.rows,
                  r.columns,  s->x_pixel, s->x_row,
                  s->d_pixel, d_row,      s->d_word * (int64_t)sizeof *d,
                  TILE_SUMS,  filters};
        tile_lanes_sum(&r, n_positions, n_filters, sums);
    }
}

/* Adds a band to the sums of the bias: products with ones. */
static void tile_lanes_sum_bias(const sizes *s, int64_t pixels, const work_memory *m)
{
    for (int64_t f = 0; f < s->n_filters; f++) {
        run r = {.rows = 1, .columns = pixels, .left = m->ones, .right = m->ones, .stride = LK_TILE_ROW_BYTES};
        if (s->turns_x) {
            r.left = m->dconv + f * ROWS * LK_ELEMENTS;
            r.left_pixel = s->d_pixel;
        } else {
            r.right = m->dconv + f * LK_ELEMENTS;
            r.right_pixel = s->d_pixel;
            r.stride = s->d_word * (int64_t)sizeof *r.right;
        }
        tile_lanes_sum(&r, 1, 1, m->bias + f * TILE_SUMS);
    }
}

/* Adds a band to the sums of the weights. */
static void tile_lanes_sum_band(const sizes *s, range rows, const work_memory *m)
{
    const lk_lanes_conv *conv = &s->conv;
    int64_t d_tile = s->turns_x ? ROWS * LK_ELEMENTS : LK_ELEMENTS,
            x_tile = s->turns_x ? LK_ELEMENTS : ROWS * LK_ELEMENTS;
    for (int64_t f = 0; f < s->n_filters; f += 2)
        for (int64_t tap = 0; tap < conv->kernel[0]; tap++) {
            range inside = tile_lanes_rows_inside(conv, rows, tap);
            if (inside.begin >= inside.end)
                continue;
            const element *d = m->dconv + (inside.begin - rows.begin) * s->used[1] * s->d_pixel + f * d_tile,
                          *x = m->x + (inside.begin - conv->padding[0] + tap) * s->x_row;
            float *sums = m->sums + (f * conv->kernel[0] + tap) * s->n_positions * TILE_SUMS;
            for (int64_t p = 0; p < s->n_positions; p += 2)
                tile_lanes_sum_pair(s, inside, d, x + p * x_tile, s->n_filters - f, s->n_positions - p,
                                    sums + p * TILE_SUMS);
        }
}

/* Adds one or two blocks of images. */
static void tile_lanes_add_images(const lk_lanes_block *block, const sizes *s, const lk_lanes_images *images, int n,
                                  const work_memory *m, bool bias)
{
    lk_lanes_plane planes[PAIR] = {{0}};
    for (int i = 0; i < n; i++)
        planes[i] = lk__tile_lanes_plane(&block->conv, images[i].x, m->planes[i]);
    tile_lanes_join_x(s, planes, n, m);
    tile_configure();
    for (int64_t row = 0; row < s->used[0]; row += s->band) {
        range rows = {row, row + s->band < s->used[0] ? row + s->band : s->used[0]};
        tile_lanes_make_dconv(block, s, images, n, rows, m);
        tile_lanes_sum_band(s, rows, m);
        if (bias && !s->has_ones)
            tile_lanes_sum_bias(s, (rows.end - rows.begin) * s->used[1], m);
    }
    tile_release();
}

/* Collects the sums of one filter: [row of the window][column][channel]. */
static void tile_lanes_collect(const sizes *s, const float *sums, int64_t filter, float *to)
{
    int64_t n = s->conv.kernel[1] * s->channels, in_tile = filter % ROWS * (s->turns_x ? WORDS : 1);
    sums += filter / ROWS * s->conv.kernel[0] * s->n_positions * TILE_SUMS + in_tile;
    for (int64_t tap = 0; tap < s->conv.kernel[0]; tap++, to += n)
        for (int64_t first = 0; first < n; first += WORDS, sums += TILE_SUMS)
            for (int64_t i = 0; i < WORDS && first + i < n; i++)
                to[first + i] = sums[s->turns_x ? i : i * WORDS];
}

static float tile_lanes_bias_sum(const sizes *s, const work_memory *m, int64_t filter)
{
    return m->bias[filter / ROWS * TILE_SUMS + filter % ROWS * (s->turns_x ? WORDS : 1)];
}

static void tile_lanes_store_gradients(const sizes *s, const work_memory *m, const lk_lanes_grad *grad)
{
    const lk_lanes_conv *conv = &s->conv;
    int64_t taps = conv->kernel[0] * conv->kernel[1];
    float *dw = grad->dw, *of_filter = m->of_filter;
    for (int64_t f = 0; f < conv->out[2]; f++) {
        tile_lanes_collect(s, m->sums, f, of_filter);
        for (int64_t c = 0; c < conv->in[2]; c++)
            for (int64_t tap = 0; tap < taps; tap++)
                *dw++ = of_filter[tap * s->channels + c];
        if (grad->dbias)
            grad->dbias[f] = s->has_ones ? of_filter[s->channels - 1] : tile_lanes_bias_sum(s, m, f);
    }
}

/* --- whole tensors ------------------------------------------------------------------------------------------------ */

static void tile_lanes_compute_dx(const lk_lanes_block *block, const lk_lanes_grad *grad, const lk_lanes_images *images,
                                  int64_t b, const work_memory *m)
{
    lk_lanes_conv conv = lk__lanes_input_grad_conv(block);
    lk_lanes_block plain = lk__lanes_block_of(&conv);
    lk_lanes_tile all = {0, (int)conv.in[2]};
    int64_t row_step = conv.in[1] * lk__lanes_words(conv.in[2]) * LK_ELEMENTS;
    element *inside = lk__tile_lanes_inside(&conv, m->convolution, &row_step), *dconv = inside ? inside : m->input;
    if (inside && b == 0)
        memset(m->convolution, 0, lk__tile_lanes_plane_bytes(&conv));
    for (int64_t row = 0; row < conv.in[0]; row++)
        lk__lanes_spread_rows(block, images, (range){row, row + 1}, all, dconv + row * row_step);
    lk__tile_lanes_block(&plain, b, dconv, grad->packed, NULL, grad->dx, NULL, m->convolution);
}

void lk__lanes_block_grad(const lk_lanes_block *block, const lk_lanes_grad *grad, void *data)
{
    enum { ONE = 0x3f80 };
    sizes s = tile_lanes_sizes(block);
    size_t bytes;
    work_memory m = tile_lanes_memory(block, &s, grad->dx, data, &bytes);
    int64_t n = lk__lanes_blocks(block->conv.images),
            x_block = lk__lanes_block_elements(block->conv.in, block->conv.in[2]),
            dy_block = lk__lanes_block_elements(block->pool.out, block->pool.channels);
    memset(m.sums, 0, (size_t)((char *)m.of_filter - (char *)m.sums));
    for (int i = 0; i < ROWS * LK_ELEMENTS; i++)
        m.ones[i] = ONE;
    for (int64_t b = 0; b < n; b += PAIR) {
        int in_pair = b + 1 < n ? 2 : 1;
        lk_lanes_images images[PAIR];
        for (int i = 0; i < in_pair; i++) {
            images[i].dy = lk__lanes_vectors_of(block, grad->dy, block->pool.channels, block->pool.out, b + i,
                                                block->plain_dy, m.from_dy + i * dy_block);
            images[i].x = lk__lanes_vectors_of(block, grad->x, block->conv.in[2], block->conv.in, b + i, block->plain_x,
                                               m.from_x + i * x_block);
            images[i].saved = grad->saved ? grad->saved + (size_t)(b + i) * lk__lanes_block_saved_bytes(block) : NULL;
            if (grad->dx)
                tile_lanes_compute_dx(block, grad, &images[i], b + i, &m);
        }
        tile_lanes_add_images(block, &s, images, in_pair, &m, grad->dbias != NULL);
    }
    tile_lanes_store_gradients(&s, &m, grad);
}
