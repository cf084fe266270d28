/* Products of matrices for dense layers, compiled for several instruction sets (isa.h). An element of a product is one
 * chain of fused multiply-adds, which begins at 0 and follows the order of the inner dimension. So its bits depend
 * neither on its position, nor on how many rows or columns are computed together, nor on which function computes it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A matrix of f32 seen through its strides, in elements. */
typedef struct lk_matrix {
    float *data;
    int64_t rows, columns, row_stride, column_stride;
} lk_matrix;

static inline lk_matrix lk__matrix_transposed(lk_matrix x)
{
    return (lk_matrix){x.data, x.columns, x.rows, x.column_stride, x.row_stride};
}

/* An addend of a sum: a plain row-major matrix, or a product of two packed factors. */
typedef struct lk_addend {
    const float *plain;          /* NULL: the product of … */
    const float *rows, *columns; /* … factors that pack_rows and pack_columns made */
    int64_t inner;
} lk_addend;

/* The sum of n addends in the order of a tree in postfix form: after addend i come additions[i] additions, each of the
 * two values before it. */
typedef struct lk_addend_sum {
    const lk_addend *addends;
    const unsigned char *additions;
    int n;
} lk_addend_sum;

typedef struct lk_dense_kernels {
    const char *name;
    int width; /* columns of a panel */

    /* Return the number of floats that a packed matrix takes, a multiple of a cache line. */
    int64_t (*rows_count)(int64_t rows, int64_t inner);
    int64_t (*columns_count)(int64_t inner, int64_t columns);
    /* Pack the left and the right factor of a product, so that the kernels read them from front to back. */
    void (*pack_rows)(const lk_matrix *a, float *packed);
    void (*pack_columns)(const lk_matrix *b, float *packed);

    /* Computes y = a b, from b's packed columns. If bias is not NULL, it is added to each row; then relu may follow. */
    void (*multiply)(const lk_matrix *a, const float *b, const float *bias, bool relu, const lk_matrix *y);

    /* Computes y, the sum of the addends. `scratch` holds scratch_count(depth) floats; depth: the largest number of
     * values that wait at one time for their partner. */
    void (*sum)(const lk_addend_sum *sum, const lk_matrix *y, float *scratch);
    int64_t (*scratch_count)(int depth);
} lk_dense_kernels;

extern const lk_dense_kernels lk__dense_avx2, lk__dense_avx512, lk__dense_emulated;
