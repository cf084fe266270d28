/* See depthwise.h. */
#include "base/minmax.h"
#include "cpu/depthwise/depthwise.h"
#include "cpu/vector/interleave.h"
#include "cpu/vector/vector.h"

#include <string.h>

/* The sums of a tile of taps, a column of as many rows of dy, and a vector of x fill fifteen of AVX2's registers. With
 * few taps there are two chains of multiply-adds for each, to hide the latency. */
enum { TILE = 7, ROWS = 7, FEW = 3, CHAINS = 2 };

/* Which images share a chain must not depend on the width of vectors, so it is defined for the widest. */
enum { WIDEST = 16 };

typedef lk_pixel_range range;

static int64_t depthwise_area(const int64_t size[2])
{
    return size[0] * size[1];
}

static int64_t depthwise_planes(const lk_geometry *conv)
{
    return conv->images * conv->channels;
}

static int64_t depthwise_blocks(const lk_geometry *conv)
{
    return lk__divide_up(depthwise_planes(conv), LK_WIDTH);
}

/* Returns after how many images a channel is in the same lane of WIDEST again. */
static int64_t depthwise_period(const lk_geometry *conv)
{
    int64_t images = 1;
    while (images * conv->channels % WIDEST != 0)
        images++;
    return images;
}

/* Returns the same as a number of blocks of planes, or the number of blocks if there are not so many. */
static int64_t depthwise_sets(const lk_geometry *conv)
{
    return lk__min(depthwise_period(conv) * conv->channels / LK_WIDTH, depthwise_blocks(conv));
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* The memory of a call: a block of planes of dy and one of x, and sums [set][tap][LK_WIDTH]. */
typedef struct parts {
    float *dy, *x, *sums;
} parts;

static size_t depthwise_sums_count(const lk_geometry *conv)
{
    return (size_t)(depthwise_sets(conv) * depthwise_area(conv->kernel) * LK_WIDTH);
}

static size_t depthwise_memory(const lk_geometry *conv)
{
    size_t pixels = (size_t)(depthwise_area(conv->in) + depthwise_area(conv->out));
    return (pixels * LK_WIDTH + depthwise_sums_count(conv)) * sizeof(float);
}

static parts depthwise_parts_of(const lk_geometry *conv, float *memory)
{
    float *x = memory + depthwise_area(conv->out) * LK_WIDTH;
    return (parts){.dy = memory, .x = x, .sums = x + depthwise_area(conv->in) * LK_WIDTH};
}

/* Returns block b of an operand with this number of planes and of pixels in each; `made` is memory for it. */
static const float *depthwise_block(lk_depthwise_planes from, int64_t planes, int64_t pixels, int64_t b, float *made)
{
    int64_t first = b * LK_WIDTH;
    const float *data = from.data + first * pixels;
    if (from.in_blocks)
        return data;
    lk_interleaving shape = {
        .width = LK_WIDTH, .lanes = lk__min(planes - first, LK_WIDTH), .inners = 1, .pixels = pixels};
    LK_ISA(lk__interleaver).interleave(&shape, data, made);
    return made;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* Some rows of dy and of x, and some of the kernel's rows, between which there is neither stride nor dilation: row
 * `tap` of these connects row `o` of dy with row o + tap + shift of x. With a stride these are every stride-th rows of
 * x and of the kernel; with dilation every so many rows of dy and of x. */
typedef struct lattice {
    int64_t dy_first, dy_step, dy_rows, x_first, x_step, x_rows, tap_first, tap_step, taps, shift;
} lattice;

static int64_t depthwise_lattices(const lk_geometry *conv)
{
    int64_t stride = conv->stride[0];
    return stride > 1 ? lk__min(stride, conv->kernel[0]) : lk__min(conv->dilation[0], conv->out[0]);
}

/* Returns the number of those of n rows that are `step` apart, from `first` on. */
static int64_t depthwise_every(int64_t n, int64_t first, int64_t step)
{
    return first < n ? lk__divide_up(n - first, step) : 0;
}

static lattice depthwise_lattice(const lk_geometry *conv, int64_t i)
{
    int64_t stride = conv->stride[0], step = lk__max(stride, conv->dilation[0]), first = i - conv->padding[0],
            x_first = (first % step + step) % step;
    lattice l = {.dy_step = 1, .x_first = x_first, .x_step = step, .tap_step = 1, .shift = (first - x_first) / step};
    if (stride > 1) {
        l.tap_first = i;
        l.tap_step = step;
    } else {
        l.dy_first = i;
        l.dy_step = step;
    }
    l.dy_rows = depthwise_every(conv->out[0], l.dy_first, l.dy_step);
    l.x_rows = depthwise_every(conv->in[0], x_first, step);
    l.taps = depthwise_every(conv->kernel[0], l.tap_first, l.tap_step);
    return l;
}

/* --- a tile of taps ----------------------------------------------------------------------------------------------- */

/* Rows of dy, and what a tile of taps connects them with, in a column of the kernel. */
typedef struct strip {
    const float *dy, *x;           /* its first pixel; the taps of the first row of dy begin at that of x */
    int64_t dy_row, x_row, x_next; /* distances to the next row, and in x to the next pixel, in elements */
    int64_t pixels;                /* of a row of dy */
    range inside;                  /* which of the rows + taps - 1 rows of x exist */
} strip;

/* Adds a column of `rows` pixels of dy after the other. A vector of x serves all taps and rows that it connects. */
LK_BODY void depthwise_add_strip(const strip *s, vec sum[CHAINS][TILE], const int taps, const int rows,
                                 const int chains)
{
    const float *dy = s->dy, *x = s->x;
    for (int64_t i = 0; i < s->pixels; i++, dy += LK_WIDTH, x += s->x_next) {
        vec y[ROWS];
        LK_UNROLL
        for (int j = 0; j < rows; j++)
            y[j] = vec_load(dy + j * s->dy_row);
        LK_UNROLL
        for (int r = 0; r < rows + taps - 1; r++) {
            if (r < s->inside.begin || r >= s->inside.end)
                continue;
            vec v = vec_load(x + r * s->x_row);
            LK_UNROLL
            for (int j = 0; j < rows; j++)
                if (r >= j && r - j < taps)
                    sum[j % chains][r - j] = vec_fmadd(y[j], v, sum[j % chains][r - j]);
        }
    }
}

/* A tile: neighboring rows of the kernel in a lattice, in one column of the kernel. */
typedef struct tile {
    const lattice *rows;
    strip first;     /* without `inside`: the strip of the lattice's first rows */
    int64_t x_first; /* the lattice's row of x that the first tap connects with the first row of dy */
} tile;

/* Returns the strip from `row` on. */
static strip depthwise_strip_of(const tile *t, int64_t row, int64_t rows, int taps)
{
    strip s = t->first;
    int64_t x_row = t->x_first + row;
    s.dy += row * s.dy_row;
    s.x += row * s.x_row;
    s.inside.begin = lk__max(-x_row, 0);
    s.inside.end = lk__min(t->rows->x_rows - x_row, rows + taps - 1);
    return s;
}

/* Adds all rows of dy to the sums of a tile, which are `a_tap` floats apart. */
LK_BODY void depthwise_add_tile(const tile *t, float *sums, int64_t a_tap, const int taps)
{
    vec sum[CHAINS][TILE]; /* only ever indexed by constants, so it lives in registers */
    const int chains = taps > FEW ? 1 : CHAINS;
    int64_t all = t->rows->dy_rows, strips = lk__divide_up(all, ROWS);
    LK_UNROLL
    for (int i = 0; i < taps; i++)
        sum[0][i] = sum[1][i] = vec_zero();
    for (int64_t i = 0; i < strips; i++) {
        int64_t row = all * i / strips, rows = all * (i + 1) / strips - row;
        strip s = depthwise_strip_of(t, row, rows, taps);
        switch (rows) {
#define STRIP_CASE(n)                                  \
    case n:                                            \
        depthwise_add_strip(&s, sum, taps, n, chains); \
        break;
            LK_UP_TO_SIX(STRIP_CASE)
        default:
            depthwise_add_strip(&s, sum, taps, ROWS, chains);
        }
    }
    LK_UNROLL
    for (int i = 0; i < taps; i++) {
        float *to = sums + i * a_tap;
        vec_store(to, vec_add(vec_load(to), chains == 1 ? sum[0][i] : vec_add(sum[0][i], sum[1][i])));
    }
}

/* clang-format off */
#define TILE_OF(n)                                                      \
    static void add_tile_##n(const tile *t, float *sums, int64_t a_tap) \
    {                                                                   \
        depthwise_add_tile(t, sums, a_tap, n);                          \
    }
#define ADD_OF(n) [n] = add_tile_##n,

LK_UP_TO_SIX(TILE_OF) TILE_OF(7)

typedef void (*tile_fn)(const tile *t, float *sums, int64_t a_tap);

static const tile_fn add_tile[TILE + 1] = {LK_UP_TO_SIX(ADD_OF) ADD_OF(7)};
/* clang-format on */

/* --- all taps ----------------------------------------------------------------------------------------------------- */

/* Returns the pixels in a row of dy for which column `tap` of the kernel lies inside x. */
static range depthwise_columns_of(const lk_geometry *conv, int64_t tap)
{
    int64_t stride = conv->stride[1], first = conv->padding[1] - tap * conv->dilation[1], last = conv->in[1] + first;
    return (range){first > 0 ? lk__divide_up(first, stride) : 0,
                   lk__min(last > 0 ? lk__divide_up(last, stride) : 0, conv->out[1])};
}

/* Adds a block of planes to the sums of `n` taps, `tap` and those below, in one column of the kernel. */
static void depthwise_add_taps(const lk_geometry *conv, const lattice *rows, const float *dy, const float *x,
                               int64_t tap, int n, int64_t column, float *sums)
{
    range pixels = depthwise_columns_of(conv, column);
    if (pixels.begin >= pixels.end)
        return;
    int64_t dy_row = conv->out[1] * LK_WIDTH, x_row = conv->in[1] * LK_WIDTH, x_first = tap + rows->shift,
            x_column = pixels.begin * conv->stride[1] - conv->padding[1] + column * conv->dilation[1];
    tile t = {.rows = rows,
              .first = {.dy = dy + rows->dy_first * dy_row + pixels.begin * LK_WIDTH,
                        .x = x + (rows->x_first + x_first * rows->x_step) * x_row + x_column * LK_WIDTH,
                        .dy_row = rows->dy_step * dy_row,
                        .x_row = rows->x_step * x_row,
                        .x_next = conv->stride[1] * LK_WIDTH,
                        .pixels = pixels.end - pixels.begin},
              .x_first = x_first};
    int64_t a_row = conv->kernel[1] * LK_WIDTH;
    add_tile[n](&t, sums + (rows->tap_first + tap * rows->tap_step) * a_row + column * LK_WIDTH,
                rows->tap_step * a_row);
}

static void depthwise_add_block(const lk_geometry *conv, const float *dy, const float *x, float *sums)
{
    for (int64_t i = 0; i < depthwise_lattices(conv); i++) {
        lattice rows = depthwise_lattice(conv, i);
        int64_t tiles = lk__divide_up(rows.taps, TILE);
        for (int64_t t = 0; t < tiles; t++) {
            int64_t first = rows.taps * t / tiles, end = rows.taps * (t + 1) / tiles;
            for (int64_t column = 0; column < conv->kernel[1]; column++)
                depthwise_add_taps(conv, &rows, dy, x, first, (int)(end - first), column, sums);
        }
    }
}

/* Adds the sums of all lanes of a channel: its planes of the images before the lanes repeat. */
static void depthwise_join(const lk_geometry *conv, const float *sums, float *dw)
{
    int64_t taps = depthwise_area(conv->kernel), images = lk__min(depthwise_period(conv), conv->images);
    for (int64_t c = 0; c < conv->channels; c++)
        for (int64_t t = 0; t < taps; t++) {
            float sum = 0;
            for (int64_t n = 0; n < images; n++) {
                int64_t plane = n * conv->channels + c;
                sum += sums[(plane / LK_WIDTH * taps + t) * LK_WIDTH + plane % LK_WIDTH];
            }
            dw[c * taps + t] = sum;
        }
}

static void depthwise_weight_grad(const lk_geometry *conv, lk_depthwise_planes dy, lk_depthwise_planes x, float *dw,
                                  void *memory)
{
    parts p = depthwise_parts_of(conv, memory);
    int64_t planes = depthwise_planes(conv), blocks = depthwise_blocks(conv), sets = depthwise_sets(conv),
            a_set = depthwise_area(conv->kernel) * LK_WIDTH;
    memset(p.sums, 0, depthwise_sums_count(conv) * sizeof(float));
    for (int64_t b = 0; b < blocks; b++)
        depthwise_add_block(conv, depthwise_block(dy, planes, depthwise_area(conv->out), b, p.dy),
                            depthwise_block(x, planes, depthwise_area(conv->in), b, p.x), p.sums + b % sets * a_set);
    depthwise_join(conv, p.sums, dw);
}

const lk_depthwise_kernels LK_ISA(lk__depthwise) = {
    .name = "depthwise:" LK_ISA_NAME,
    .memory = depthwise_memory,
    .weight_grad = depthwise_weight_grad,
};
