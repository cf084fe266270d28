/* The gradient of a block of lanes.h on tiles.
 *
 * Two blocks of images are summed together: a word holds the same element of an image of each, and a missing second
 * block is zeros. dconv lies as [pixel][filter][word of images], so neighboring filters of a pixel are a left tile as
 * they lie. The rows of a right tile are words of images, and its columns neighboring (column, channel) positions of a
 * row of the kernel's window. So x is transposed, once for all taps: [row][word of images][column, channel]. The
 * window of a pixel begins at any of its columns. Both tiles are always full: what lies beyond the filters or the
 * window only gives sums that nothing reads.
 *
 * Up to 2x2 tiles of sums stay in registers over a band of rows; between bands they lie in memory. */
#include "cpu/lanes/tile_lanes.h"
#include "cpu/vector/interleave.h"
#include "cpu/vector/tile.h"

#include <string.h>

enum { ROWS = LK_TILE_ROWS, WORDS = LK_TILE_ROW_BYTES / 4, PAIR = 2, TILE_SUMS = ROWS * WORDS, BAND_PIXELS = 32 };

typedef lk_pixel_range range;

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Sizes of what a call works on. */
typedef struct sizes {
    lk_lanes_conv conv; /* the one of gathered x */
    int64_t used[2];    /* rows and columns of dconv */
    int64_t band;       /* rows of dconv in a band */
    int64_t filters;    /* of dconv, in whole words */
    int64_t channels;   /* of x, in whole words */
    int64_t row;        /* positions in a row of x with its padding, in an odd number of cache lines */
    int64_t n_filters, n_positions; /* tiles of filters, and of positions in a row of the window */
} sizes;

static int64_t tile_lanes_tiles(int64_t n)
{
    return (n + WORDS - 1) / WORDS;
}

static sizes tile_lanes_sizes(const lk_lanes_block *block)
{
    sizes s = {.conv = lk__tile_lanes_conv(&block->conv), .used = {lk__lanes_used(block, 0), lk__lanes_used(block, 1)}};
    s.band = BAND_PIXELS / s.used[1];
    s.band = s.band < 1 ? 1 : s.band < s.used[0] ? s.band : s.used[0];
    s.filters = lk__lanes_words(s.conv.out[2]) * LK_PER_WORD;
    s.channels = lk__lanes_words(s.conv.in[2]) * LK_PER_WORD;
    s.row = (tile_lanes_tiles((s.conv.out[1] + s.conv.kernel[1] - 1) * s.channels) | 1) * WORDS;
    s.n_filters = tile_lanes_tiles(s.conv.out[2]);
    s.n_positions = tile_lanes_tiles(s.conv.kernel[1] * s.channels);
    return s;
}

typedef struct work_memory {
    float *sums;       /* [tile of filters][row of the window][tile of positions][ROWS][WORDS] */
    float *bias;       /* [tile of filters][ROWS][WORDS], with equal columns */
    element *ones;     /* a row of words of ones */
    element *x;        /* [row][word of images][s.row], with the reach of a tile beyond its end */
    element *apart[2]; /* a band of dconv of each block of images: [pixel][word of filters][LK_WIDTH] */
    element *joined;   /* the same of both: [pixel][filter][word of images], with the reach of a tile beyond its end */
    element *from_x, *from_dy; /* two blocks of x and of dy, if these are row-major */
    char *forward;     /* for dx */
    char *planes[2];
} work_memory;

/* Takes `count` elements of `size` bytes from the memory that begins at *at; if `memory` is NULL, only counts. */
static void *tile_lanes_take(char *memory, size_t *at, int64_t count, size_t size)
{
    char *taken = memory ? memory + *at : NULL;
    *at += ((size_t)count * size + LK_TILE_ROW_BYTES - 1) / LK_TILE_ROW_BYTES * LK_TILE_ROW_BYTES;
    return taken;
}

/* Divides the memory of a call, and returns its size in *bytes. */
static work_memory tile_lanes_memory(const lk_lanes_block *block, const sizes *s, bool input_grad, char *memory,
                                     size_t *bytes)
{
    enum { TILE = ROWS * WORDS * LK_PER_WORD };
    work_memory m;
    int64_t pixels = s->band * s->used[1], x_block = lk__lanes_block_elements(block->conv.in, block->conv.in[2]),
            dy_block = lk__lanes_block_elements(block->pool.out, block->pool.channels);
    *bytes = 0;
    m.sums = tile_lanes_take(memory, bytes, s->n_filters * s->conv.kernel[0] * s->n_positions * TILE_SUMS,
                             sizeof *m.sums);
    m.bias = tile_lanes_take(memory, bytes, s->n_filters * TILE_SUMS, sizeof *m.bias);
    m.ones = tile_lanes_take(memory, bytes, LK_ELEMENTS, sizeof *m.ones);
    m.x = tile_lanes_take(memory, bytes, s->conv.in[0] * WORDS * s->row * LK_PER_WORD + TILE, sizeof *m.x);
    for (int i = 0; i < PAIR; i++)
        m.apart[i] = tile_lanes_take(memory, bytes, pixels * s->filters * LK_WIDTH, sizeof *m.apart[i]);
    m.joined = tile_lanes_take(memory, bytes, pixels * s->filters * LK_ELEMENTS + 2 * TILE, sizeof *m.joined);
    m.from_x = tile_lanes_take(memory, bytes, block->plain_x ? PAIR * x_block : 0, sizeof *m.from_x);
    m.from_dy = tile_lanes_take(memory, bytes, block->plain_dy ? PAIR * dy_block : 0, sizeof *m.from_dy);
    for (int i = 0; i < PAIR; i++)
        m.planes[i] = tile_lanes_take(memory, bytes, (int64_t)lk__tile_lanes_plane_bytes(&block->conv), 1);
    m.forward = NULL;
    if (input_grad) {
        lk_lanes_conv back = lk__lanes_input_grad_conv(block);
        lk_lanes_block plain = lk__lanes_block_of(&back);
        int64_t dconv = lk__lanes_block_elements(s->used, block->conv.out[2]);
        m.forward = tile_lanes_take(memory, bytes,
                                    dconv * (int64_t)sizeof(element) + (int64_t)lk__lanes_forward_bytes(&plain), 1);
    }
    return m;
}

size_t lk__lanes_grad_bytes(const lk_lanes_block *block, bool input_grad)
{
    sizes s = tile_lanes_sizes(block);
    size_t bytes;
    tile_lanes_memory(block, &s, input_grad, NULL, &bytes);
    return bytes;
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

/* Transposes sixteen rows of sixteen words. stride: elements from row to row of `to`. */
static void tile_lanes_transpose(const element *from, element *to, int64_t stride)
{
    const lk_interleaving words = lk__interleaving_of_channels(1, ROWS, WORDS, ROWS);
    _Alignas(64) element rows[ROWS * WORDS * LK_PER_WORD];
    lk__deinterleave(&words, (const float *)(const void *)from, (float *)(void *)rows);
    for (int64_t i = 0; i < ROWS; i++)
        word_storeu(to + i * stride, word_load(rows + i * WORDS * LK_PER_WORD));
}

/* Joins words of two channels of two blocks of images to words of an image of each: the first channels, then the second
 * ones. b: NULL if there is no second block. */
LK_BODY void join_word(const element *a, const element *b, element *to)
{
    vec_word first = word_load(a), second = b ? word_load(b) : word_zero();
    word_store(to, word_firsts(first, second));
    word_store(to + LK_ELEMENTS, word_seconds(first, second));
}

/* Joins and transposes x of one or two blocks of images. */
static void tile_lanes_transpose_x(const sizes *s, const lk_lanes_plane planes[PAIR], int n, element *to)
{
    enum { AT_ONCE = WORDS / LK_PER_WORD }; /* words of two channels that give a tile */
    _Alignas(64) element joined[ROWS * LK_ELEMENTS];
    int64_t words = (s->conv.out[1] + s->conv.kernel[1] - 1) * s->channels / LK_PER_WORD;
    memset(joined, 0, sizeof joined);
    for (int64_t row = 0; row < s->conv.in[0]; row++, to += WORDS * s->row * LK_PER_WORD) {
        const element *a = planes[0].first + row * planes[0].row_step,
                      *b = n > 1 ? planes[1].first + row * planes[1].row_step : NULL;
        for (int64_t first = 0; first < words; first += AT_ONCE) {
            int64_t here = words - first < AT_ONCE ? words - first : AT_ONCE;
            for (int64_t i = 0; i < here; i++)
                join_word(a + (first + i) * LK_ELEMENTS, b ? b + (first + i) * LK_ELEMENTS : NULL,
                          joined + 2 * i * LK_ELEMENTS);
            tile_lanes_transpose(joined, to + first * LK_PER_WORD * LK_PER_WORD, s->row * LK_PER_WORD);
        }
    }
}

/* Computes a band of dconv of one or two blocks of images. */
static void tile_lanes_spread(const lk_lanes_block *block, const sizes *s, const lk_lanes_images *images, int n,
                              range rows, const work_memory *m)
{
    int64_t words = (rows.end - rows.begin) * s->used[1] * s->filters / LK_PER_WORD;
    lk_lanes_tile all = {0, (int)block->conv.out[2]};
    for (int i = 0; i < n; i++)
        lk__lanes_spread_rows(block, &images[i], rows, all, m->apart[i]);
    for (int64_t i = 0; i < words; i++)
        join_word(m->apart[0] + i * LK_ELEMENTS, n > 1 ? m->apart[1] + i * LK_ELEMENTS : NULL,
                  m->joined + 2 * i * LK_ELEMENTS);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* The pixels that tiles of sums run over. */
typedef struct run {
    const element *dconv, *x; /* at the first pixel; dconv from the first filter on, x at the first position */
    int64_t rows, columns;
    int64_t dconv_step;            /* elements from pixel to pixel; rows follow each other */
    int64_t x_step, x_row, stride; /* elements from pixel to pixel, from row to row, and between the rows of a tile */
} run;

/* Adds to n_filters by n_positions tiles of sums. next: floats from the sums of a tile of filters to those of the next.
 */
LK_BODY void sum_tiles(const run *r, int n_filters, int n_positions, float *sums, int64_t next)
{
    const element *d = r->dconv;
    tile_load(0, sums, LK_TILE_ROW_BYTES);
    if (n_positions > 1)
        tile_load(1, sums + TILE_SUMS, LK_TILE_ROW_BYTES);
    if (n_filters > 1)
        tile_load(2, sums + next, LK_TILE_ROW_BYTES);
    if (n_filters > 1 && n_positions > 1)
        tile_load(3, sums + next + TILE_SUMS, LK_TILE_ROW_BYTES);
    for (int64_t row = 0; row < r->rows; row++) {
        const element *x = r->x + row * r->x_row;
        for (int64_t column = 0; column < r->columns; column++, d += r->dconv_step, x += r->x_step) {
            tile_load(4, d, LK_TILE_ROW_BYTES);
            tile_load(6, x, r->stride * (int64_t)sizeof *x);
            tile_multiply(0, 4, 6);
            if (n_filters > 1) {
                tile_load(5, d + ROWS * LK_ELEMENTS, LK_TILE_ROW_BYTES);
                tile_multiply(2, 5, 6);
            }
            if (n_positions > 1) {
                tile_load(7, x + LK_ELEMENTS, r->stride * (int64_t)sizeof *x);
                tile_multiply(1, 4, 7);
                if (n_filters > 1)
                    tile_multiply(3, 5, 7);
            }
        }
    }
    tile_store(0, sums, LK_TILE_ROW_BYTES);
    if (n_positions > 1)
        tile_store(1, sums + TILE_SUMS, LK_TILE_ROW_BYTES);
    if (n_filters > 1)
        tile_store(2, sums + next, LK_TILE_ROW_BYTES);
    if (n_filters > 1 && n_positions > 1)
        tile_store(3, sums + next + TILE_SUMS, LK_TILE_ROW_BYTES);
}

static void tile_lanes_sum(const run *r, int64_t n_filters, int64_t n_positions, float *sums, int64_t next)
{
    if (n_filters > 1 && n_positions > 1)
        sum_tiles(r, 2, 2, sums, next);
    else if (n_filters > 1)
        sum_tiles(r, 2, 1, sums, next);
    else if (n_positions > 1)
        sum_tiles(r, 1, 2, sums, next);
    else
        sum_tiles(r, 1, 1, sums, next);
}

/* Returns the rows of a band whose window has row `tap` of the kernel inside x. */
static range tile_lanes_rows_inside(const lk_lanes_conv *conv, range rows, int64_t tap)
{
    int64_t first = conv->padding[0] - tap, end = first + conv->in[0];
    return (range){rows.begin > first ? rows.begin : first, rows.end < end ? rows.end : end};
}

/* Adds a band to the sums of two tiles of filters from number `f` on. */
static void tile_lanes_sum_filters(const sizes *s, range rows, int64_t f, const work_memory *m, bool bias)
{
    const lk_lanes_conv *conv = &s->conv;
    int64_t left = s->n_filters - f, pixel = s->filters * LK_ELEMENTS, next = conv->kernel[0] * s->n_positions * TILE_SUMS;
    run r = {.columns = s->used[1], .dconv_step = pixel};
    const element *dconv = m->joined + f * ROWS * LK_ELEMENTS;
    if (bias) {
        r.dconv = dconv;
        r.x = m->ones;
        r.rows = rows.end - rows.begin;
        tile_lanes_sum(&r, left, 1, m->bias + f * TILE_SUMS, TILE_SUMS);
    }
    r.x_step = s->channels * LK_PER_WORD;
    r.x_row = WORDS * s->row * LK_PER_WORD;
    r.stride = s->row * LK_PER_WORD;
    for (int64_t tap = 0; tap < conv->kernel[0]; tap++) {
        range inside = tile_lanes_rows_inside(conv, rows, tap);
        r.rows = inside.end - inside.begin;
        if (r.rows <= 0)
            continue;
        r.dconv = dconv + (inside.begin - rows.begin) * s->used[1] * pixel;
        const element *x = m->x + (inside.begin - conv->padding[0] + tap) * r.x_row;
        for (int64_t p = 0; p < s->n_positions; p += 2) {
            r.x = x + p * LK_ELEMENTS;
            tile_lanes_sum(&r, left, s->n_positions - p,
                           m->sums + ((f * conv->kernel[0] + tap) * s->n_positions + p) * TILE_SUMS, next);
        }
    }
}

/* Adds one or two blocks of images. */
static void tile_lanes_add_images(const lk_lanes_block *block, const sizes *s, const lk_lanes_images *images, int n,
                                  const work_memory *m, bool bias)
{
    lk_lanes_plane planes[PAIR];
    for (int i = 0; i < n; i++)
        planes[i] = lk__tile_lanes_plane(&block->conv, images[i].x, m->planes[i]);
    tile_lanes_transpose_x(s, planes, n, m->x);
    tile_configure();
    for (int64_t row = 0; row < s->used[0]; row += s->band) {
        range rows = {row, row + s->band < s->used[0] ? row + s->band : s->used[0]};
        tile_lanes_spread(block, s, images, n, rows, m);
        for (int64_t f = 0; f < s->n_filters; f += 2)
            tile_lanes_sum_filters(s, rows, f, m, bias);
    }
    tile_release();
}

static void tile_lanes_store_gradients(const sizes *s, const work_memory *m, const lk_lanes_grad *grad)
{
    const lk_lanes_conv *conv = &s->conv;
    float *dw = grad->dw;
    for (int64_t f = 0; f < conv->out[2]; f++) {
        int64_t in_tile = f % ROWS * WORDS;
        for (int64_t c = 0; c < conv->in[2]; c++)
            for (int64_t tap = 0; tap < conv->kernel[0]; tap++)
                for (int64_t column = 0; column < conv->kernel[1]; column++) {
                    int64_t position = column * s->channels + c;
                    int64_t at = (f / ROWS * conv->kernel[0] + tap) * s->n_positions + position / WORDS;
                    *dw++ = m->sums[at * TILE_SUMS + in_tile + position % WORDS];
                }
        if (grad->dbias)
            grad->dbias[f] = m->bias[f / ROWS * TILE_SUMS + in_tile];
    }
}

/* --- whole tensors ------------------------------------------------------------------------------------------------ */

static void tile_lanes_compute_dx(const lk_lanes_block *block, const lk_lanes_grad *grad, const lk_lanes_images *images,
                                  int64_t b, const work_memory *m)
{
    lk_lanes_conv conv = lk__lanes_input_grad_conv(block);
    lk_lanes_block plain = lk__lanes_block_of(&conv);
    lk_lanes_tile all = {0, (int)conv.in[2]};
    element *dconv = (element *)(void *)m->forward;
    lk__lanes_spread_rows(block, images, (range){0, conv.in[0]}, all, dconv);
    lk__tile_lanes_block(&plain, b, dconv, grad->packed, NULL, grad->dx, NULL,
                         dconv + lk__lanes_block_elements(conv.in, conv.in[2]));
}

void lk__lanes_block_grad(const lk_lanes_block *block, const lk_lanes_grad *grad, void *data)
{
    enum { ONE = 0x3f80 };
    sizes s = tile_lanes_sizes(block);
    size_t bytes;
    work_memory m = tile_lanes_memory(block, &s, grad->dx, data, &bytes);
    int64_t n = lk__lanes_blocks(block->conv.images), x_block = lk__lanes_block_elements(block->conv.in, block->conv.in[2]),
            dy_block = lk__lanes_block_elements(block->pool.out, block->pool.channels);
    memset(m.sums, 0, (size_t)((char *)m.ones - (char *)m.sums));
    for (int i = 0; i < LK_ELEMENTS; i++)
        m.ones[i] = ONE;
    for (int64_t b = 0; b < n; b += PAIR) {
        int in_pair = b + 1 < n ? 2 : 1;
        lk_lanes_images images[PAIR];
        for (int i = 0; i < in_pair; i++) {
            images[i].dy = lk__lanes_vectors_of(block, grad->dy, block->pool.channels, block->pool.out, b + i,
                                                block->plain_dy, m.from_dy + i * dy_block);
            images[i].x = lk__lanes_vectors_of(block, grad->x, block->conv.in[2], block->conv.in, b + i, block->plain_x,
                                               m.from_x + i * x_block);
            images[i].saved =
                grad->saved ? grad->saved + (size_t)(b + i) * lk__lanes_block_saved_bytes(block) : NULL;
            if (grad->dx)
                tile_lanes_compute_dx(block, grad, &images[i], b + i, &m);
        }
        tile_lanes_add_images(block, &s, images, in_pair, &m, grad->dbias != NULL);
    }
    tile_lanes_store_gradients(&s, &m, grad);
}
