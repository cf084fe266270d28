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

/* A panel of b with this many words in a column stays in the second-level cache while the rows of a pass. */
enum { WORDS_AT_ONCE = 1024 };

/* This many words of packed rows stay in the second-level cache while the panels pass. */
enum { ROWS_AT_ONCE = 48 << 10 };

enum { WORD = 4, LINE = 16 }; /* bytes of a word, words of a cache line */

/* Returns the number of words that hold `inner` elements. */
static int64_t dense_words(int64_t inner)
{
    return lk__divide_up(inner, LK_PER_WORD);
}

static void *dense_address(const lk_matrix *x, int64_t row, int64_t column)
{
    int64_t at = row * x->row_stride + column * x->column_stride;
    return (char *)x->data + at * (int64_t)(x->bf16 ? sizeof(uint16_t) : sizeof(float));
}

/* --- packing ------------------------------------------------------------------------------------------------------ */

static size_t dense_packed_bytes(int64_t inner, int64_t columns, int64_t width)
{
    int64_t words = lk__divide_up(columns, width) * dense_words(inner) * width;
    return (size_t)(lk__divide_up(words, LINE) * LINE * WORD);
}

static size_t dense_rows_bytes(int64_t rows, int64_t inner)
{
    return dense_packed_bytes(inner, rows, ROWS);
}

static size_t dense_columns_bytes(int64_t inner, int64_t columns)
{
    return dense_packed_bytes(inner, columns, WIDTH);
}

/* Packs whole rows whose elements share words. */
LK_BODY void pack_words(const element *const from[LK_PER_WORD], element *restrict to, const int width)
{
    if (LK_PER_WORD == 1) {
        memcpy(to, from[0], (size_t)width * sizeof *to);
    } else if (width % LK_WIDTH == 0) {
        for (int j = 0; j < width; j += LK_WIDTH) {
            const element *part[LK_PER_WORD];
            for (int h = 0; h < LK_PER_WORD; h++)
                part[h] = from[h] + j;
            word_storeu(to + j * LK_PER_WORD, word_join(part));
        }
    } else {
        for (int j = 0; j < width; j++)
            for (int h = 0; h < LK_PER_WORD; h++)
                to[j * LK_PER_WORD + h] = from[h][j];
    }
}

/* Packs n rows of the panel that begins at b: panel[word of rows][width]. Only `filled` columns exist. Zeros follow
 * them, and an odd last row. */
LK_BODY void pack_panel(const element *b, const lk_matrix *like, int64_t n, int64_t filled, element *panel,
                        const int width)
{
    for (int64_t k = 0; k < n; k += LK_PER_WORD, panel += width * LK_PER_WORD) {
        const element *row[LK_PER_WORD];
        for (int h = 0; h < LK_PER_WORD; h++)
            row[h] = b + lk__min(k + h, n - 1) * like->row_stride;
        if (filled == width && like->column_stride == 1 && k + LK_PER_WORD <= n) {
            pack_words(row, panel, width);
            continue;
        }
        for (int64_t j = 0; j < width; j++)
            for (int h = 0; h < LK_PER_WORD; h++)
                panel[j * LK_PER_WORD + h] = j < filled && k + h < n ? row[h][j * like->column_stride] : 0;
    }
}

/* Packs b as [panel of columns][word of rows][width], a few rows at a time: these are read as streams, and the panels
 * are written in whole cache lines. */
LK_BODY void pack(const lk_matrix *b, element *packed, const int width)
{
    enum { AT_ONCE = 16 };
    for (int64_t k = 0; k < b->rows; k += AT_ONCE)
        for (int64_t j = 0; j < b->columns; j += width)
            pack_panel(dense_address(b, k, j), b, lk__min(b->rows - k, AT_ONCE), lk__min(b->columns - j, width),
                       packed + j * dense_words(b->rows) * LK_PER_WORD + k * width, width);
}

static void dense_pack_rows(const lk_matrix *a, void *packed)
{
    lk_matrix columns = lk__matrix_transposed(*a);
    pack(&columns, packed, ROWS);
}

static void dense_pack_columns(const lk_matrix *b, void *packed)
{
    pack(b, packed, WIDTH);
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* The rows of a tile's left factor. */
typedef struct tile_rows {
    const element *data;
    int64_t row, step; /* elements from one row to the next, and from one word of a row to the next */
    int64_t words;     /* whole ones */
    bool odd;          /* an element follows that has no partner */
} tile_rows;

/* Adds to the sums the products of one word of n rows, at `at`, with a row of a panel. alone: its first element has no
 * partner. */
LK_BODY void tile_add_word(vec sum[ROWS][PAIR], const element *const from[ROWS], int64_t at, const element *b,
                           const bool alone, const int n, const int wide)
{
    vec_word b0 = word_loadu(b), b1 = word_loadu(b + LK_WIDTH * LK_PER_WORD);
    LK_UNROLL
    for (int i = 0; i < n; i++) {
        vec_word value = alone ? word_broadcast_first(from[i] + at) : word_broadcast(from[i] + at);
        sum[i][0] = word_fmadd(value, b0, sum[i][0]);
        if (wide == PAIR)
            sum[i][1] = word_fmadd(value, b1, sum[i][1]);
    }
}

/* Adds to the sums the products of n rows with the rows of a panel. */
LK_BODY void tile_multiply(vec sum[ROWS][PAIR], const tile_rows *a, const element *b, const int n, const int wide)
{
    const element *from[ROWS];
    int64_t at = 0, step = a->step;
    LK_UNROLL
    for (int i = 0; i < n; i++)
        from[i] = a->data + i * a->row;
    for (int64_t words = a->words; words > 0; words--, at += step, b += WIDTH * LK_PER_WORD)
        tile_add_word(sum, from, at, b, false, n, wide);
    if (LK_PER_WORD > 1 && a->odd)
        tile_add_word(sum, from, at, b, true, n, wide);
}

LK_BODY void tile_clear(vec sum[ROWS][PAIR], const int n)
{
    LK_UNROLL
    for (int i = 0; i < n; i++)
        sum[i][0] = sum[i][1] = vec_zero();
}

/* Returns whether n rows of a tile lie in y as whole vectors. */
LK_BODY bool tile_is_whole(const lk_matrix *y, const int n, const int wide)
{
    return y->rows == n && y->columns == wide * LK_WIDTH && y->column_stride == 1;
}

/* The elements of a tile, in rows of WIDTH. */
typedef union tile_buffer {
    float f32[ROWS * WIDTH];
    uint16_t bf16[ROWS * WIDTH];
} tile_buffer;

/* Copies the elements of y, f32, to a buffer. */
static void dense_tile_gather(const lk_matrix *y, float *buffer)
{
    const float *from = y->data;
    for (int64_t i = 0; i < y->rows; i++)
        for (int64_t j = 0; j < y->columns; j++)
            buffer[i * WIDTH + j] = from[i * y->row_stride + j * y->column_stride];
}

static void dense_tile_scatter(const lk_matrix *y, const tile_buffer *buffer)
{
    for (int64_t j = 0; j < y->columns; j++)
        for (int64_t i = 0; i < y->rows; i++) {
            int64_t at = i * y->row_stride + j * y->column_stride;
            if (y->bf16)
                ((uint16_t *)y->data)[at] = buffer->bf16[i * WIDTH + j];
            else
                ((float *)y->data)[at] = buffer->f32[i * WIDTH + j];
        }
}

/* Loads n rows of a tile from y, which is f32. What y lacks of the tile is 0. */
LK_BODY void tile_load(vec sum[ROWS][PAIR], const lk_matrix *y, const int n, const int wide)
{
    float buffer[ROWS * WIDTH] = {0};
    const float *from = y->data;
    int64_t row = y->row_stride;
    if (!tile_is_whole(y, n, wide)) {
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

/* Stores n rows of a tile whose columns are contiguous in y. rounds: to bf16, which needs an even n. */
LK_BODY void tile_store_columns(vec sum[ROWS][PAIR], const lk_matrix *y, const int n, const int wide, const bool rounds)
{
    const int each = rounds ? LK_PER_WORD : 1, words = n / each;
    int64_t step = y->column_stride * (int64_t)(rounds ? sizeof(uint16_t) : sizeof(float));
    LK_UNROLL
    for (int j = 0; j < wide; j++) {
        vec turned[LK_WIDTH];
        LK_UNROLL
        for (int i = 0; i < LK_WIDTH; i++) {
            vec row[LK_PER_WORD];
            for (int h = 0; h < LK_PER_WORD; h++)
                row[h] = i < words && h < each ? sum[i * each + h][j] : vec_zero();
            turned[i] = rounds ? word_bits(word_round(row)) : row[0];
        }
        vec_transpose(turned);
        char *to = dense_address(y, 0, j * LK_WIDTH);
        int64_t columns = y->columns - j * LK_WIDTH;
        LK_UNROLL
        for (int c = 0; c < LK_WIDTH; c++)
            if (c < columns)
                vec_store_first((float *)(void *)(to + c * step), words, turned[c]);
    }
}

LK_BODY void tile_store(vec sum[ROWS][PAIR], const lk_matrix *y, const int n, const int wide)
{
    tile_buffer buffer;
    bool whole = tile_is_whole(y, n, wide), rounds = LK_PER_WORD > 1 && y->bf16;
    void *to = whole ? y->data : &buffer;
    int64_t row = whole ? y->row_stride : WIDTH;
    if (!whole && y->row_stride == 1 && y->rows == n) {
        if (!rounds) {
            tile_store_columns(sum, y, n, wide, false);
            return;
        }
        if (LK_PER_WORD > 1 && n % LK_PER_WORD == 0) {
            tile_store_columns(sum, y, n, wide, true);
            return;
        }
    }
    LK_UNROLL
    for (int i = 0; i < n; i++)
        LK_UNROLL
    for (int j = 0; j < wide; j++) {
        int64_t at = i * row + j * LK_WIDTH;
        if (rounds)
            vec_round((element *)to + at, sum[i][j]);
        else
            vec_storeu((float *)to + at, sum[i][j]);
    }
    if (!whole)
        dense_tile_scatter(y, &buffer);
}

/* --- a product ---------------------------------------------------------------------------------------------------- */

/* A tile of y = a b: a and y begin at its first row, `panel` and y at its first column. */
typedef struct tile {
    tile_rows a;
    const element *panel;
    const float *bias;  /* of its columns; NULL: none */
    bool goes_on, relu; /* whether y holds the products of earlier rows of b; whether relu follows */
    lk_matrix y;
} tile;

LK_BODY void tile_compute(const tile *t, const int n, const int wide)
{
    vec sum[ROWS][PAIR];
    if (t->goes_on)
        tile_load(sum, &t->y, n, wide);
    else
        tile_clear(sum, n);
    tile_multiply(sum, &t->a, t->panel, n, wide);
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
    lk_matrix part = *y;
    part.data = dense_address(y, rows.begin, column);
    part.rows = rows.end - rows.begin;
    part.columns = lk__min(y->columns - column, WIDTH);
    return part;
}

/* Adds the products of these words of b's rows with one panel of its columns, from `column` on. */
static void dense_multiply_panel(const lk_matrix *a, const element *panel, lk_range words, const element *bias,
                                 bool relu, const lk_matrix *y, int64_t column)
{
    int64_t tiles = lk__divide_up(y->rows, ROWS), whole = a->columns / LK_PER_WORD;
    float biases[WIDTH] = {0};
    bool last = words.end == dense_words(a->columns);
    for (int64_t j = 0; bias && j < lk__min(y->columns - column, WIDTH); j++)
        biases[j] = element_widen(bias[column + j]);
    for (int64_t i = 0; i < tiles; i++) {
        lk_range rows = lk_part(y->rows, tiles, i); /* heights differ by at most one, so that none is much slower */
        tile t = {.a = {.data = dense_address(a, rows.begin, words.begin * LK_PER_WORD),
                        .row = a->row_stride,
                        .step = a->column_stride * LK_PER_WORD,
                        .words = lk__min(words.end, whole) - words.begin,
                        .odd = words.end > whole},
                  .panel = panel + words.begin * WIDTH * LK_PER_WORD,
                  .bias = bias && last ? biases : NULL,
                  .goes_on = words.begin > 0,
                  .relu = relu && last,
                  .y = dense_part_of(y, rows, column)};
        dense_tile_compute(&t);
    }
}

/* Between two parts of the inner dimension y holds the sums. In bf16 it would round them, so there is one part. */
static void dense_multiply(const lk_matrix *a, const void *b, const void *bias, bool relu, const lk_matrix *y,
                           void *scratch)
{
    (void)scratch;
    int64_t words = dense_words(a->columns);
    int64_t parts = y->bf16 ? 1 : lk__max(lk__divide_up(words, WORDS_AT_ONCE), 1);
    for (int64_t p = 0; p < parts; p++)
        for (int64_t column = 0; column < y->columns; column += WIDTH)
            dense_multiply_panel(a, (const element *)b + column * words * LK_PER_WORD, lk_part(words, parts, p), bias,
                                 relu, y, column);
}

static size_t dense_multiply_bytes(int64_t rows, int64_t inner)
{
    (void)rows;
    (void)inner;
    return 0;
}

/* --- sums of products --------------------------------------------------------------------------------------------- */

static size_t dense_scratch_bytes(int depth)
{
    return (size_t)depth * ROWS * WIDTH * sizeof(float);
}

/* Computes a tile of the sum: `row` and `column` are those of its first element. */
LK_BODY void tile_sum(const lk_addend_sum *s, const lk_matrix *y, int64_t row, int64_t column, float *scratch,
                      const int wide)
{
    lk_matrix part = dense_part_of(y, (lk_range){row, lk__min(row + ROWS, y->rows)}, column);
    float *top = scratch; /* end of the values that wait for their partner */
    for (int a = 0; a < s->n; a++) {
        const lk_addend *addend = &s->addends[a];
        vec sum[ROWS][PAIR];
        if (addend->plain) {
            lk_matrix plain = part;
            plain.data = (float *)(uintptr_t)addend->plain + row * y->columns + column;
            plain.row_stride = y->columns;
            plain.column_stride = 1;
            plain.bf16 = false;
            tile_load(sum, &plain, ROWS, wide);
        } else {
            int64_t words = dense_words(addend->inner), each = words * LK_PER_WORD; /* elements of a row */
            tile_rows rows = {(const element *)addend->rows + row * each, LK_PER_WORD, ROWS * LK_PER_WORD, words,
                              false};
            tile_clear(sum, ROWS);
            tile_multiply(sum, &rows, (const element *)addend->columns + column * each, ROWS, wide);
        }
        for (int add = 0; add < s->additions[a]; add++) {
            top -= ROWS * WIDTH;
            LK_UNROLL
            for (int i = 0; i < ROWS; i++)
                LK_UNROLL
            for (int j = 0; j < wide; j++)
                sum[i][j] = vec_add(vec_loadu(top + i * WIDTH + j * LK_WIDTH), sum[i][j]);
        }
        if (a + 1 == s->n) {
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
}

static void dense_sum(const lk_addend_sum *s, const lk_matrix *y, float *scratch)
{
    int64_t words = 1;
    for (int a = 0; a < s->n; a++)
        words += s->addends[a].plain ? 0 : dense_words(s->addends[a].inner);
    int64_t rows = lk__max(ROWS_AT_ONCE / words / ROWS, 1) * ROWS;
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
    .turns = true,
    .rows_bytes = dense_rows_bytes,
    .columns_bytes = dense_columns_bytes,
    .pack_rows = dense_pack_rows,
    .pack_columns = dense_pack_columns,
    .multiply = dense_multiply,
    .multiply_bytes = dense_multiply_bytes,
    .sum = dense_sum,
    .scratch_bytes = dense_scratch_bytes,
};
