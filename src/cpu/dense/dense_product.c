/* Products in tiles of registers: see dense.h. */
#include "base/minmax.h"
#include "cpu/dense/dense.h"
#include "cpu/vector/rectify.h"
#include "cpu/vector/vector.h"
#include "lockstep/dist.h"

#include <string.h>

/* A tile has at most ROWS by PAIR accumulators. They hide the latency of fused multiply-adds and leave registers for
 * the operands. */
enum { PAIR = 2, WIDTH = PAIR * LK_WIDTH, ROWS = LK_REGISTERS == 32 ? 14 : 6 };

/* A panel of b with so many rows stays in the second-level cache while the rows of a pass. */
enum { INNER_AT_ONCE = 1024 };

/* So many floats of packed rows stay in the second-level cache while the panels pass. */
enum { ROWS_AT_ONCE = 48 << 10 };

enum { LINE = 16 }; /* floats of a cache line */

/* --- packing ------------------------------------------------------------------------------------------------------ */

static int64_t dense_packed_count(int64_t inner, int64_t columns, int64_t width)
{
    return lk__divide_up(lk__divide_up(columns, width) * inner * width, LINE) * LINE;
}

static int64_t dense_rows_count(int64_t rows, int64_t inner)
{
    return dense_packed_count(inner, rows, ROWS);
}

static int64_t dense_columns_count(int64_t inner, int64_t columns)
{
    return dense_packed_count(inner, columns, WIDTH);
}

/* Packs rows [first, first + n) of the panel that begins at b: panel[row][width]. `filled` columns exist, and zeros
 * follow them. */
LK_BODY void pack_panel(const float *b, const lk_matrix *like, int64_t n, int64_t filled, float *panel, const int width)
{
    for (int64_t k = 0; k < n; k++, b += like->row_stride, panel += width) {
        if (filled == width && like->column_stride == 1) {
            memcpy(panel, b, (size_t)width * sizeof *panel);
            continue;
        }
        for (int64_t j = 0; j < filled; j++)
            panel[j] = b[j * like->column_stride];
        for (int64_t j = filled; j < width; j++)
            panel[j] = 0;
    }
}

/* Packs b as [panel of columns][row][width], a few rows at a time: these are read as streams, and the panels are
 * written in whole cache lines. */
LK_BODY void pack(const lk_matrix *b, float *packed, const int width)
{
    enum { AT_ONCE = 16 };
    for (int64_t k = 0; k < b->rows; k += AT_ONCE)
        for (int64_t j = 0; j < b->columns; j += width)
            pack_panel(b->data + k * b->row_stride + j * b->column_stride, b, lk__min(b->rows - k, AT_ONCE),
                       lk__min(b->columns - j, width), packed + j * b->rows + k * width, width);
}

static void dense_pack_rows(const lk_matrix *a, float *packed)
{
    lk_matrix columns = lk__matrix_transposed(*a);
    pack(&columns, packed, ROWS);
}

static void dense_pack_columns(const lk_matrix *b, float *packed)
{
    pack(b, packed, WIDTH);
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* Adds to the sums the products of n rows of a with `inner` rows of a panel. `row` and `step` are the strides of a. */
LK_BODY void tile_multiply(vec sum[ROWS][PAIR], const float *a, int64_t row, int64_t step, const float *b,
                           int64_t inner, const int n, const int wide)
{
    const float *from[ROWS];
    LK_UNROLL
    for (int i = 0; i < n; i++)
        from[i] = a + i * row;
    for (int64_t at = 0; inner > 0; inner--, at += step, b += WIDTH) {
        vec b0 = vec_loadu(b), b1 = vec_loadu(b + LK_WIDTH);
        LK_UNROLL
        for (int i = 0; i < n; i++) {
            vec value = vec_broadcast(from[i] + at);
            sum[i][0] = vec_fmadd(value, b0, sum[i][0]);
            if (wide == PAIR)
                sum[i][1] = vec_fmadd(value, b1, sum[i][1]);
        }
    }
}

LK_BODY void tile_clear(vec sum[ROWS][PAIR], const int n)
{
    LK_UNROLL
    for (int i = 0; i < n; i++)
        sum[i][0] = sum[i][1] = vec_zero();
}

/* Returns whether a tile's rows lie in y as whole vectors. */
LK_BODY bool tile_is_whole(const lk_matrix *y, const int wide)
{
    return y->columns == wide * LK_WIDTH && y->column_stride == 1;
}

/* Copies the elements of y to a buffer of ROWS by WIDTH, or from it. */
static void dense_tile_gather(const lk_matrix *y, float *buffer)
{
    for (int64_t i = 0; i < y->rows; i++)
        for (int64_t j = 0; j < y->columns; j++)
            buffer[i * WIDTH + j] = y->data[i * y->row_stride + j * y->column_stride];
}

static void dense_tile_scatter(const lk_matrix *y, const float *buffer)
{
    for (int64_t j = 0; j < y->columns; j++)
        for (int64_t i = 0; i < y->rows; i++)
            y->data[i * y->row_stride + j * y->column_stride] = buffer[i * WIDTH + j];
}

LK_BODY void tile_load(vec sum[ROWS][PAIR], const lk_matrix *y, const int n, const int wide)
{
    float buffer[ROWS * WIDTH] = {0};
    const float *from = y->data;
    int64_t row = y->row_stride;
    if (!tile_is_whole(y, wide)) {
        dense_tile_gather(y, buffer);
        from = buffer;
        row = WIDTH;
    }
    LK_UNROLL
    for (int i = 0; i < n; i++)
        LK_UNROLL
    for (int j = 0; j < wide; j++)
        sum[i][j] = vec_loadu(from + i * row + j * LK_WIDTH);
}

LK_BODY void tile_store(vec sum[ROWS][PAIR], const lk_matrix *y, const int n, const int wide)
{
    float buffer[ROWS * WIDTH];
    bool whole = tile_is_whole(y, wide);
    float *to = whole ? y->data : buffer;
    int64_t row = whole ? y->row_stride : WIDTH;
    LK_UNROLL
    for (int i = 0; i < n; i++)
        LK_UNROLL
    for (int j = 0; j < wide; j++)
        vec_storeu(to + i * row + j * LK_WIDTH, sum[i][j]);
    if (!whole)
        dense_tile_scatter(y, buffer);
}

/* --- a product ---------------------------------------------------------------------------------------------------- */

/* A tile of y = a b: a and y begin at its first row, `panel` and y at its first column. */
typedef struct tile {
    const float *a, *panel;
    int64_t row, step, inner; /* the strides of a */
    const float *bias;        /* of its columns; NULL: none */
    bool goes_on, relu;       /* whether y holds the products of earlier rows of b; whether relu follows */
    lk_matrix y;
} tile;

LK_BODY void tile_compute(const tile *t, const int n, const int wide)
{
    vec sum[ROWS][PAIR];
    if (t->goes_on)
        tile_load(sum, &t->y, n, wide);
    else
        tile_clear(sum, n);
    tile_multiply(sum, t->a, t->row, t->step, t->panel, t->inner, n, wide);
    if (t->bias) {
        LK_UNROLL
        for (int j = 0; j < wide; j++) {
            vec bias = vec_loadu(t->bias + j * LK_WIDTH);
            LK_UNROLL
            for (int i = 0; i < n; i++)
                sum[i][j] = vec_add(sum[i][j], bias);
        }
    }
    if (t->relu)
        LK_UNROLL
    for (int i = 0; i < n; i++)
        LK_UNROLL
    for (int j = 0; j < wide; j++)
        sum[i][j] = lk__rectified(sum[i][j]);
    tile_store(sum, &t->y, n, wide);
}

/* clang-format off: a list of cases */
#if LK_REGISTERS == 32
#define EACH_HEIGHT(X) LK_UP_TO_FIVE(X) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#else
#define EACH_HEIGHT(X) LK_UP_TO_FIVE(X) X(6)
#endif
/* clang-format on */

static void dense_tile_compute(const tile *t)
{
#define TILE_CASE(n)                  \
    case n:                           \
        if (t->y.columns <= LK_WIDTH) \
            tile_compute(t, n, 1);    \
        else                          \
            tile_compute(t, n, PAIR); \
        break;
    switch (t->y.rows) {
        EACH_HEIGHT(TILE_CASE)
    }
#undef TILE_CASE
}

static lk_matrix dense_part_of(const lk_matrix *y, lk_range rows, int64_t column)
{
    return (lk_matrix){y->data + rows.begin * y->row_stride + column * y->column_stride, rows.end - rows.begin,
                       lk__min(y->columns - column, WIDTH), y->row_stride, y->column_stride};
}

/* Adds the products of b's rows [inner.begin, inner.end) with one panel of its columns, from `column` on. */
static void dense_multiply_panel(const lk_matrix *a, const float *panel, lk_range inner, const float *bias, bool relu,
                                 const lk_matrix *y, int64_t column)
{
    int64_t tiles = lk__divide_up(y->rows, ROWS);
    float biases[WIDTH] = {0};
    bool last = inner.end == a->columns;
    if (bias)
        memcpy(biases, bias + column, (size_t)lk__min(y->columns - column, WIDTH) * sizeof *bias);
    for (int64_t i = 0; i < tiles; i++) {
        lk_range rows = lk_part(y->rows, tiles, i); /* heights differ by at most one, so that none is much slower */
        tile t = {.a = a->data + rows.begin * a->row_stride + inner.begin * a->column_stride,
                  .panel = panel + inner.begin * WIDTH,
                  .row = a->row_stride,
                  .step = a->column_stride,
                  .inner = inner.end - inner.begin,
                  .bias = bias && last ? biases : NULL,
                  .goes_on = inner.begin > 0,
                  .relu = relu && last,
                  .y = dense_part_of(y, rows, column)};
        dense_tile_compute(&t);
    }
}

static void dense_multiply(const lk_matrix *a, const float *b, const float *bias, bool relu, const lk_matrix *y)
{
    int64_t parts = lk__max(lk__divide_up(a->columns, INNER_AT_ONCE), 1);
    for (int64_t p = 0; p < parts; p++)
        for (int64_t column = 0; column < y->columns; column += WIDTH)
            dense_multiply_panel(a, b + column * a->columns, lk_part(a->columns, parts, p), bias, relu, y, column);
}

/* --- sums of products --------------------------------------------------------------------------------------------- */

static int64_t dense_scratch_count(int depth)
{
    return (int64_t)depth * ROWS * WIDTH;
}

/* Computes a tile of the sum: `row` and `column` are those of its first element. */
LK_BODY void tile_sum(const lk_addend_sum *s, const lk_matrix *y, int64_t row, int64_t column, float *scratch,
                      const int wide)
{
    lk_matrix part = dense_part_of(y, (lk_range){row, lk__min(row + ROWS, y->rows)}, column);
    float *top = scratch; /* above the values that wait */
    for (int a = 0; a < s->n; a++) {
        const lk_addend *addend = &s->addends[a];
        vec sum[ROWS][PAIR];
        if (addend->plain) {
            lk_matrix plain = part;
            plain.data = (float *)(uintptr_t)addend->plain + row * y->columns + column;
            plain.row_stride = y->columns;
            plain.column_stride = 1;
            if (part.rows == ROWS) {
                tile_load(sum, &plain, ROWS, wide);
            } else {
                float buffer[ROWS * WIDTH] = {0};
                lk_matrix whole = {buffer, ROWS, wide * LK_WIDTH, WIDTH, 1};
                dense_tile_gather(&plain, buffer);
                tile_load(sum, &whole, ROWS, wide);
            }
        } else {
            tile_clear(sum, ROWS);
            tile_multiply(sum, addend->rows + row * addend->inner, 1, ROWS, addend->columns + column * addend->inner,
                          addend->inner, ROWS, wide);
        }
        for (int add = 0; add < s->additions[a]; add++) {
            top -= ROWS * WIDTH;
            LK_UNROLL
            for (int i = 0; i < ROWS; i++)
                LK_UNROLL
            for (int j = 0; j < wide; j++)
                sum[i][j] = vec_add(vec_loadu(top + i * WIDTH + j * LK_WIDTH), sum[i][j]);
        }
        if (a + 1 == s->n && part.rows == ROWS) {
            tile_store(sum, &part, ROWS, wide);
            return;
        }
        LK_UNROLL
        for (int i = 0; i < ROWS; i++)
            LK_UNROLL
        for (int j = 0; j < wide; j++)
            vec_storeu(top + i * WIDTH + j * LK_WIDTH, sum[i][j]);
        top += ROWS * WIDTH;
    }
    dense_tile_scatter(&part, scratch);
}

static void dense_sum(const lk_addend_sum *s, const lk_matrix *y, float *scratch)
{
    int64_t inner = 1;
    for (int a = 0; a < s->n; a++)
        inner += s->addends[a].plain ? 0 : s->addends[a].inner;
    int64_t rows = lk__max(ROWS_AT_ONCE / inner / ROWS, 1) * ROWS;
    for (int64_t first = 0; first < y->rows; first += rows)
        for (int64_t column = 0; column < y->columns; column += WIDTH)
            for (int64_t row = first; row < lk__min(first + rows, y->rows); row += ROWS) {
                if (y->columns - column <= LK_WIDTH)
                    tile_sum(s, y, row, column, scratch, 1);
                else
                    tile_sum(s, y, row, column, scratch, PAIR);
            }
}

const lk_dense_kernels LK_ISA(lk__dense) = {
    .name = "dense:" LK_ISA_NAME,
    .width = WIDTH,
    .rows_count = dense_rows_count,
    .columns_count = dense_columns_count,
    .pack_rows = dense_pack_rows,
    .pack_columns = dense_pack_columns,
    .multiply = dense_multiply,
    .sum = dense_sum,
    .scratch_count = dense_scratch_count,
};
