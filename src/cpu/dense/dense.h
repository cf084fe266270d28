/* Products of matrices for dense layers, compiled for several instruction sets (isa.h), of f32 and of bf16. An element
 * of a product is one chain of fused multiply-adds in f32, which begins at 0 and follows the order of the inner
 * dimension; of bf16 it takes each pair of products as word_fmadd does (vector.h), and an odd last one with a pair of
 * zeros. On tiles it takes 32 products at a time as tile_multiply does (tile.h), and the last ones with zeros. So its
 * bits depend neither on its position, nor on how many rows or columns are computed together, nor on which function
 * computes it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A matrix seen through its strides, in elements. */
typedef struct lk_matrix {
    void *data;
    int64_t rows, columns, row_stride, column_stride;
    bool bf16; /* its elements are bf16; otherwise f32 */
} lk_matrix;

static inline lk_matrix lk__matrix_transposed(lk_matrix x)
{
    return (lk_matrix){x.data, x.columns, x.rows, x.column_stride, x.row_stride, x.bf16};
}

/* An addend of a sum: a plain row-major matrix of f32, or a product of two packed factors. */
typedef struct lk_addend {
    const float *plain;         /* NULL: the product of … */
    const void *rows, *columns; /* … factors that pack_rows and pack_columns made */
    int64_t inner;
} lk_addend;

/* The sum of n addends in the order of a tree in postfix form: addend i is followed by additions[i] additions, each of
 * the two latest values. */
typedef struct lk_addend_sum {
    const lk_addend *addends;
    const unsigned char *additions;
    int n;
} lk_addend_sum;

/* Kernels of one dtype: factors and bias have its elements. A result is rounded once if its elements are bf16. */
typedef struct lk_dense_kernels {
    const char *name;
    int width;  /* columns of a panel */
    bool turns; /* whether y' = b' a' is faster than y = a b if b's columns are contiguous, not its rows */

    /* Return the number of bytes that a packed matrix takes, a multiple of a cache line. */
    size_t (*rows_bytes)(int64_t rows, int64_t inner);
    size_t (*columns_bytes)(int64_t inner, int64_t columns);
    /* Pack the left and the right factor of a product, so that the kernels read them from front to back. */
    void (*pack_rows)(const lk_matrix *a, void *packed);
    void (*pack_columns)(const lk_matrix *b, void *packed);

    /* Computes y = a b, from b's packed columns. If bias is not NULL, it is added to each row; then relu may follow.
     * Rows of bf16 must be contiguous: a->column_stride is 1, or a has one column. `scratch` holds
     * multiply_bytes(rows and columns of a) bytes. */
    void (*multiply)(const lk_matrix *a, const void *b, const void *bias, bool relu, const lk_matrix *y, void *scratch);
    size_t (*multiply_bytes)(int64_t rows, int64_t inner);

    /* Computes y, the sum of the addends. `scratch` holds scratch_bytes(depth) bytes; depth: the largest number of
     * values that wait at one time for their partner. */
    void (*sum)(const lk_addend_sum *sum, const lk_matrix *y, float *scratch);
    size_t (*scratch_bytes)(int depth);
} lk_dense_kernels;

extern const lk_dense_kernels lk__dense_avx2, lk__dense_avx512, lk__dense_avx512bf16, lk__dense_amxbf16,
    lk__dense_emulated, lk__dense_emulatedbf16, lk__dense_emulatedamxbf16;
