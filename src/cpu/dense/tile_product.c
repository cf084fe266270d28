/* Products of bf16 on tiles of AMX: see dense.h.
 *
 * Both factors are packed in tiles, with zeros where a matrix ends inside one:
 *
 *   rows of a       [rows / SIDE][steps][SIDE rows][DEPTH]
 *   columns of b    [columns / SIDE][steps][DEPTH / 2][SIDE columns][2]
 *
 * A step is DEPTH elements of the inner dimension. */
#include "base/minmax.h"
#include "cpu/dense/dense.h"
#include "cpu/vector/rectify.h"
#include "cpu/vector/tile.h"
#include "cpu/vector/transpose.h"
#include "cpu/vector/vector.h"
#include "lockstep/dist.h"

#include <string.h>

/* A block of sums is two by two tiles, so that each tile of a factor is loaded for two products. */
enum {
    SIDE = LK_TILE_ROWS,
    PAIRS = LK_TILE_ROW_BYTES / sizeof(float), /* words of a row */
    DEPTH = PAIRS * LK_PER_WORD,
    TILE = SIDE * DEPTH, /* elements */
    BLOCK = 2 * SIDE,    /* rows and columns of a block of sums */
    SUMS = BLOCK * BLOCK
};

/* The most products that are added up without a stack. A full tree of them needs memory for four waiting values. */
enum { TREE_MOST = 8 };

/* Rows of the left factor that stay in the second-level cache while the columns pass. In a sum of products, a block of
 * columns of the right factors stays in the first-level cache while they pass. */
enum { ROWS_AT_ONCE = 128 };

static int64_t tile_product_steps(int64_t inner)
{
    return lk__divide_up(inner, DEPTH);
}

static const element *tile_product_at(const lk_matrix *x, int64_t row, int64_t column)
{
    return (const element *)x->data + row * x->row_stride + column * x->column_stride;
}

/* --- packing ------------------------------------------------------------------------------------------------------ */

static size_t tile_packed_bytes(int64_t vectors, int64_t inner)
{
    return (size_t)(lk__divide_up(vectors, SIDE) * tile_product_steps(inner)) * TILE * sizeof(element);
}

static size_t tile_rows_bytes(int64_t rows, int64_t inner)
{
    return tile_packed_bytes(rows, inner);
}

static size_t tile_columns_bytes(int64_t inner, int64_t columns)
{
    return tile_packed_bytes(columns, inner);
}

/* Transposes 16 x 16 words. */
static void tile_transpose(const element *from, element *to)
{
    enum { EIGHT = 8, FOUR = 4 };
    const float *words = (const float *)(const void *)from;
    float *turned = (float *)(void *)to;
    for (int i = 0; i < SIDE; i += EIGHT)
        for (int j = 0; j < PAIRS; j += FOUR) {
            __m256 columns[FOUR];
            transpose_half(words + i * PAIRS + j, PAIRS, columns);
            for (int c = 0; c < FOUR; c++)
                _mm256_storeu_ps(turned + (j + c) * SIDE + i, columns[c]);
        }
}

/* The part of a factor that one tile holds: `filled` vectors of the inner dimension, which are rows of a or columns of
 * b, and `depth` elements of each. */
typedef struct tile_part {
    const element *data;
    int64_t vector, step; /* elements from one vector to the next, and from one element of a vector to the next */
    int64_t filled, depth;
} tile_part;

/* Makes [SIDE vectors][DEPTH] of vectors whose elements are contiguous. */
static void tile_copy(const tile_part *p, element *to)
{
    if (p->filled < SIDE || p->depth < DEPTH)
        memset(to, 0, TILE * sizeof *to);
    for (int64_t i = 0; i < p->filled; i++, to += DEPTH) {
        if (p->depth == DEPTH)
            word_storeu(to, word_loadu(p->data + i * p->vector));
        else
            memcpy(to, p->data + i * p->vector, (size_t)p->depth * sizeof *to);
    }
}

/* Makes [PAIRS][SIDE vectors][2] of vectors that lie next to each other. */
static void tile_join(const tile_part *p, element *to)
{
    static const element zeros[SIDE];
    for (int64_t k = 0; k < DEPTH; k += LK_PER_WORD, to += SIDE * LK_PER_WORD) {
        const element *pair[LK_PER_WORD];
        for (int h = 0; h < LK_PER_WORD; h++)
            pair[h] = k + h < p->depth ? p->data + (k + h) * p->step : zeros;
        word_storeu(to, word_join(pair));
    }
}

/* Makes [SIDE vectors][DEPTH] with any strides. */
static void tile_gather(const tile_part *p, element *to)
{
    memset(to, 0, TILE * sizeof *to);
    for (int64_t i = 0; i < p->filled; i++)
        for (int64_t k = 0; k < p->depth; k++)
            to[i * DEPTH + k] = p->data[i * p->vector + k * p->step];
}

/* joined: whether the tile is to be [PAIRS][SIDE][2], for the right factor, or [SIDE][DEPTH]. */
LK_BODY void tile_pack_part(const tile_part *p, element *to, const bool joined)
{
    _Alignas(LK_TILE_ROW_BYTES) element turned[TILE];
    bool joins = p->vector == 1 && p->filled == SIDE && p->step != 1;
    element *made = joins == joined ? to : turned;
    if (joins)
        tile_join(p, made);
    else if (p->step == 1)
        tile_copy(p, made);
    else
        tile_gather(p, made);
    if (made == turned)
        tile_transpose(turned, to);
}

/* x: the vectors of a factor are its rows. Tiles are made in the order in which x is read from front to back. */
LK_BODY void tile_pack(const lk_matrix *x, element *packed, const bool joined)
{
    int64_t steps = tile_product_steps(x->columns), sides = lk__divide_up(x->rows, SIDE);
    bool are_contiguous = x->column_stride == 1;
    for (int64_t n = 0; n < sides * steps; n++) {
        int64_t side = are_contiguous ? n / steps : n % sides, step = are_contiguous ? n % steps : n / sides;
        int64_t i = side * SIDE, k = step * DEPTH;
        tile_part part = {tile_product_at(x, i, k), x->row_stride, x->column_stride, lk__min(x->rows - i, SIDE),
                          lk__min(x->columns - k, DEPTH)};
        tile_pack_part(&part, packed + (side * steps + step) * TILE, joined);
    }
}

static void tile_pack_rows(const lk_matrix *a, void *packed)
{
    tile_pack(a, packed, false);
}

static void tile_pack_columns(const lk_matrix *b, void *packed)
{
    lk_matrix columns = lk__matrix_transposed(*b);
    tile_pack(&columns, packed, true);
}

/* --- a block of sums ---------------------------------------------------------------------------------------------- */

/* Computes up to two by two tiles of sums, [BLOCK][BLOCK]. high, wide: whether there are two of them in a column and in
 * a row. */
LK_BODY void tile_block_add(const element *left, const element *right, int64_t steps, float *sums, const bool high,
                            const bool wide)
{
    enum { ROW = BLOCK * sizeof *sums };
    const element *below = left + steps * TILE, *beside = right + steps * TILE;
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    for (int64_t at = 0; at < steps * TILE; at += TILE) {
        tile_load(4, left + at, LK_TILE_ROW_BYTES);
        tile_load(6, right + at, LK_TILE_ROW_BYTES);
        tile_multiply(0, 4, 6);
        if (wide) {
            tile_load(7, beside + at, LK_TILE_ROW_BYTES);
            tile_multiply(1, 4, 7);
        }
        if (high) {
            tile_load(5, below + at, LK_TILE_ROW_BYTES);
            tile_multiply(2, 5, 6);
        }
        if (high && wide)
            tile_multiply(3, 5, 7);
    }
    tile_store(0, sums, ROW);
    if (wide)
        tile_store(1, sums + SIDE, ROW);
    if (high)
        tile_store(2, sums + SIDE * BLOCK, ROW);
    if (high && wide)
        tile_store(3, sums + SIDE * BLOCK + SIDE, ROW);
}

/* Computes the products of a block of packed rows with a block of packed columns. `of`: a part of the result, which has
 * as many rows and columns as the block. */
static void tile_block_compute(const element *left, const element *right, int64_t steps, const lk_matrix *of,
                               float *sums)
{
    bool high = of->rows > SIDE, wide = of->columns > SIDE;
    if (high && wide)
        tile_block_add(left, right, steps, sums, true, true);
    else if (high)
        tile_block_add(left, right, steps, sums, true, false);
    else if (wide)
        tile_block_add(left, right, steps, sums, false, true);
    else
        tile_block_add(left, right, steps, sums, false, false);
}

/* Returns the block of y whose first element is at `row` and `column`. */
static lk_matrix tile_block_of(const lk_matrix *y, int64_t row, int64_t column)
{
    lk_matrix part = *y;
    int64_t at = row * y->row_stride + column * y->column_stride;
    part.data = (char *)y->data + at * (int64_t)(y->bf16 ? sizeof(uint16_t) : sizeof(float));
    part.rows = lk__min(y->rows - row, BLOCK);
    part.columns = lk__min(y->columns - column, BLOCK);
    return part;
}

/* Stores SIDE sums as the n elements of y at row i from column j on. */
LK_BODY void tile_store_row(const lk_matrix *y, int64_t i, int64_t j, int64_t n, vec sums)
{
    union {
        float f32[SIDE];
        element bf16[SIDE];
    } row;
    char *to = (char *)y->data +
               (i * y->row_stride + j * y->column_stride) * (int64_t)(y->bf16 ? sizeof(element) : sizeof(float));
    bool whole = n == SIDE && y->column_stride == 1;
    if (y->bf16)
        vec_round(whole ? (element *)(void *)to : row.bf16, sums);
    else
        vec_storeu(whole ? (float *)(void *)to : row.f32, sums);
    for (int64_t c = 0; !whole && c < n; c++) {
        if (y->bf16)
            ((element *)(void *)to)[c * y->column_stride] = row.bf16[c];
        else
            ((float *)(void *)to)[c * y->column_stride] = row.f32[c];
    }
}

/* --- a product ---------------------------------------------------------------------------------------------------- */

static size_t tile_multiply_bytes(int64_t rows, int64_t inner)
{
    return tile_rows_bytes(lk__min(rows, ROWS_AT_ONCE), inner) + SUMS * sizeof(float);
}

/* bias: of the block's columns, up to a multiple of SIDE; NULL: none. */
static void tile_block_finish(const float *sums, const float *bias, bool relu, const lk_matrix *y)
{
    for (int64_t j = 0; j < y->columns; j += SIDE) {
        vec of_columns = bias ? vec_loadu(bias + j) : vec_zero();
        for (int64_t i = 0; i < y->rows; i++) {
            vec sum = vec_loadu(sums + i * BLOCK + j);
            sum = bias ? vec_add(sum, of_columns) : sum;
            tile_store_row(y, i, j, lk__min(y->columns - j, SIDE), relu ? lk__rectified(sum) : sum);
        }
    }
}

static void tile_product_multiply(const lk_matrix *a, const void *b, const void *bias, bool relu, const lk_matrix *y,
                                  void *scratch)
{
    int64_t steps = tile_product_steps(a->columns), a_block = 2 * steps * TILE;
    float *sums = scratch;
    element *left = (element *)(void *)(sums + SUMS);
    tile_configure();
    for (int64_t first = 0; first < a->rows; first += ROWS_AT_ONCE) {
        lk_matrix rows = *a;
        rows.data = (void *)(uintptr_t)tile_product_at(a, first, 0);
        rows.rows = lk__min(a->rows - first, ROWS_AT_ONCE);
        tile_pack_rows(&rows, left);
        for (int64_t column = 0; column < y->columns; column += BLOCK) {
            float biases[BLOCK] = {0};
            for (int64_t j = 0; bias && j < lk__min(y->columns - column, BLOCK); j++)
                biases[j] = element_widen(((const element *)bias)[column + j]);
            for (int64_t row = 0; row < rows.rows; row += BLOCK) {
                lk_matrix part = tile_block_of(y, first + row, column);
                part.rows = lk__min(part.rows, rows.rows - row);
                tile_block_compute(left + row / BLOCK * a_block, (const element *)b + column / BLOCK * a_block, steps,
                                   &part, sums);
                tile_block_finish(sums, bias ? biases : NULL, relu, &part);
            }
        }
    }
    tile_release();
}

/* --- sums of products --------------------------------------------------------------------------------------------- */

static size_t tile_scratch_bytes(int depth)
{
    return (size_t)depth * SUMS * sizeof(float);
}

/* Copies a block of a plain addend; what it lacks of the block is not set. */
static void tile_block_load(const float *plain, int64_t columns, const lk_matrix *of, float *sums)
{
    for (int64_t i = 0; i < of->rows; i++)
        memcpy(sums + i * BLOCK, plain + i * columns, (size_t)of->columns * sizeof *sums);
}

/* Adds the `n` values before the one at `sums` to it, the latest first. The result replaces the first of them or, if
 * `y` is given, goes there. */
LK_BODY void tile_block_merge(float *sums, int n, const lk_matrix *of, const lk_matrix *y)
{
    for (int64_t i = 0; i < of->rows; i++)
        for (int64_t j = 0; j < of->columns; j += SIDE) {
            float *at = sums + i * BLOCK + j;
            vec sum = vec_loadu(at);
            for (int k = 0; k < n; k++) {
                at -= SUMS;
                sum = vec_add(vec_loadu(at), sum);
            }
            if (y)
                tile_store_row(y, i, j, lk__min(y->columns - j, SIDE), sum);
            else
                vec_storeu(at, sum);
        }
}

static void tile_block_sum(const lk_addend_sum *s, const lk_matrix *y, int64_t row, int64_t column, float *scratch)
{
    lk_matrix part = tile_block_of(y, row, column);
    float *top = scratch; /* end of the values that wait for their partner */
    for (int a = 0; a < s->n; a++) {
        const lk_addend *addend = &s->addends[a];
        int64_t steps = tile_product_steps(addend->inner);
        if (addend->plain)
            tile_block_load(addend->plain + row * y->columns + column, y->columns, &part, top);
        else
            tile_block_compute((const element *)addend->rows + row / SIDE * steps * TILE,
                               (const element *)addend->columns + column / SIDE * steps * TILE, steps, &part, top);
        if (a + 1 == s->n)
            tile_block_merge(top, s->additions[a], &part, &part);
        else if (s->additions[a] > 0)
            tile_block_merge(top, s->additions[a], &part, NULL);
        top += (1 - s->additions[a]) * SUMS;
    }
}

/* Adds up n products, a power of two, in the order of a full binary tree. Only SIDE rows at a time, so that all
 * products stay in the first-level cache. */
LK_BODY void tile_tree_sum(const lk_addend_sum *s, const lk_matrix *y, int64_t row, int64_t column, float *products,
                           const int n)
{
    enum { HALF = SIDE * BLOCK };
    lk_matrix part = tile_block_of(y, row, column);
    part.rows = lk__min(part.rows, SIDE);
    /* The elements that the sum replaces arrive while the products are computed. */
    for (int64_t i = 0; i < part.rows; i++)
        for (int64_t j = 0; j < BLOCK; j += LK_TILE_ROW_BYTES / sizeof(float))
            __builtin_prefetch((const char *)part.data + (i * y->row_stride + j) * (int64_t)sizeof(float), 1);
    for (int a = 0; a < n; a++) {
        int64_t steps = tile_product_steps(s->addends[a].inner);
        tile_block_compute((const element *)s->addends[a].rows + row / SIDE * steps * TILE,
                           (const element *)s->addends[a].columns + column / SIDE * steps * TILE, steps, &part,
                           products + a * HALF);
    }
    for (int64_t i = 0; i < part.rows; i++)
        for (int64_t j = 0; j < part.columns; j += SIDE) {
            vec sum[TREE_MOST];
            LK_UNROLL
            for (int a = 0; a < n; a++)
                sum[a] = vec_loadu(products + a * HALF + i * BLOCK + j);
            LK_UNROLL
            for (int apart = 1; apart < n; apart *= 2)
                LK_UNROLL
            for (int a = 0; a < n; a += 2 * apart)
                sum[a] = vec_add(sum[a], sum[a + apart]);
            tile_store_row(&part, i, j, lk__min(part.columns - j, SIDE), sum[0]);
        }
}

/* Computes `rows` of the sum, and a block of its columns. tree: see tile_full_tree. */
static void tile_sum_rows(const lk_addend_sum *s, const lk_matrix *y, lk_range rows, int64_t column, int tree,
                          float *scratch)
{
    int64_t step = tree > 0 ? SIDE : BLOCK;
    for (int64_t row = rows.begin; row < rows.end; row += step) {
        if (tree == 1)
            tile_tree_sum(s, y, row, column, scratch, 1);
        else if (tree == 2)
            tile_tree_sum(s, y, row, column, scratch, 2);
        else if (tree == 4)
            tile_tree_sum(s, y, row, column, scratch, 4);
        else if (tree == TREE_MOST)
            tile_tree_sum(s, y, row, column, scratch, TREE_MOST);
        else
            tile_block_sum(s, y, row, column, scratch);
    }
}

/* Returns the number of addends if all are products and the tree is full; otherwise, or if there are too many, 0. */
static int tile_full_tree(const lk_addend_sum *s)
{
    bool full = s->n <= TREE_MOST && (s->n & (s->n - 1)) == 0;
    for (int a = 0; a < s->n; a++)
        full = full && !s->addends[a].plain && s->additions[a] == __builtin_ctz((unsigned)a + 1);
    return full ? s->n : 0;
}

static void tile_product_sum(const lk_addend_sum *s, const lk_matrix *y, float *scratch)
{
    int tree = tile_full_tree(s);
    tile_configure();
    for (int64_t first = 0; first < y->rows; first += ROWS_AT_ONCE)
        for (int64_t column = 0; column < y->columns; column += BLOCK)
            tile_sum_rows(s, y, (lk_range){first, lk__min(first + ROWS_AT_ONCE, y->rows)}, column, tree, scratch);
    tile_release();
}

const lk_dense_kernels LK_ISA(lk__dense) = {
    .name = "dense:" LK_ISA_NAME,
    .width = BLOCK,
    .rows_bytes = tile_rows_bytes,
    .columns_bytes = tile_columns_bytes,
    .pack_rows = tile_pack_rows,
    .pack_columns = tile_pack_columns,
    .multiply_bytes = tile_multiply_bytes,
    .multiply = tile_product_multiply,
    .sum = tile_product_sum,
    .scratch_bytes = tile_scratch_bytes,
};
