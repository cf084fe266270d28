/* The kernels of dense.h against single chains of fused multiply-adds, bit for bit. */
#include "cpu/dense/dense.h"

#include "cpu/isa.h"
#include "cpu/layouts_testing.h"

#include <math.h>
#include <string.h>

static const lk_isa *const isas[] = {&lk__isa_avx2, &lk__isa_avx512, &lk__isa_emulated};
enum { ISAS = sizeof isas / sizeof *isas };

/* Rows, inner dimension, columns: parts of tiles, of panels and of vectors, several parts of the inner dimension. */
static const int64_t shapes[][3] = {{1, 1, 1},     {6, 16, 16},   {14, 8, 32}, {5, 3, 7},     {7, 40, 33},
                                    {32, 785, 10}, {31, 401, 50}, {13, 0, 9},  {64, 1203, 8}, {97, 32, 70}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static float *some(int64_t count, uint32_t seed)
{
    float *values = malloc((size_t)(count + 1) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        values[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
    return values;
}

static lk_matrix matrix(float *data, int64_t rows, int64_t columns)
{
    return (lk_matrix){data, rows, columns, columns, 1};
}

static float at(const lk_matrix *x, int64_t i, int64_t j)
{
    return x->data[i * x->row_stride + j * x->column_stride];
}

static float chain(const lk_matrix *a, const lk_matrix *b, int64_t i, int64_t j)
{
    float sum = 0;
    for (int64_t k = 0; k < a->columns; k++)
        sum = fmaf(at(a, i, k), at(b, k, j), sum);
    return sum;
}

/* The same matrix, with other strides and memory that the kernels must not touch between its elements. */
static lk_matrix spread(const lk_matrix *x, bool transposed)
{
    lk_matrix y = *x;
    y.row_stride = transposed ? 2 : 2 * x->columns + 3;
    y.column_stride = transposed ? 2 * x->rows + 1 : 2;
    y.data = some((x->rows + 1) * (x->columns + 1) * 4, 9);
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++)
            y.data[i * y.row_stride + j * y.column_stride] = at(x, i, j);
    return y;
}

static void expect_product(const lk_matrix *y, const lk_matrix *a, const lk_matrix *b, const float *bias, bool relu)
{
    for (int64_t i = 0; i < y->rows; i++)
        for (int64_t j = 0; j < y->columns; j++) {
            float want = chain(a, b, i, j), have = at(y, i, j);
            want = bias ? want + bias[j] : want;
            want = relu && want <= 0 ? 0 : want;
            if (memcmp(&have, &want, sizeof have) != 0)
                fail_msg("[%lld,%lld,%lld]: element %lld,%lld is %.9g, not %.9g", (long long)a->rows,
                         (long long)a->columns, (long long)b->columns, (long long)i, (long long)j, have, want);
        }
}

static float *packed_columns(const lk_dense_kernels *kernels, const lk_matrix *b)
{
    float *packed = some(kernels->columns_count(b->rows, b->columns), 1);
    kernels->pack_columns(b, packed);
    return packed;
}

static float *packed_rows(const lk_dense_kernels *kernels, const lk_matrix *a)
{
    float *packed = some(kernels->rows_count(a->rows, a->columns), 1);
    kernels->pack_rows(a, packed);
    return packed;
}

static void multiply_and_expect(const lk_dense_kernels *kernels, const lk_matrix *a, const lk_matrix *b,
                                const float *bias, bool relu, const lk_matrix *y)
{
    float *packed = packed_columns(kernels, b);
    kernels->multiply(a, packed, bias, relu, y);
    expect_product(y, a, b, bias, relu);
    free(packed);
}

static void check_shape(const lk_dense_kernels *kernels, const int64_t *shape)
{
    lk_matrix a = matrix(some(shape[0] * shape[1], 2), shape[0], shape[1]),
              b = matrix(some(shape[1] * shape[2], 3), shape[1], shape[2]),
              y = matrix(some(shape[0] * shape[2], 4), shape[0], shape[2]);
    float *bias = some(shape[2], 5);
    for (int relu = 0; relu < 2; relu++) {
        multiply_and_expect(kernels, &a, &b, NULL, relu, &y);
        multiply_and_expect(kernels, &a, &b, bias, relu, &y);
    }
    for (int way = 0; way < 4; way++) {
        lk_matrix wide_a = spread(&a, way & 1), wide_b = spread(&b, way & 2), wide_y = spread(&y, way & 1);
        multiply_and_expect(kernels, &wide_a, &wide_b, bias, true, &wide_y);
        free(wide_a.data);
        free(wide_b.data);
        free(wide_y.data);
    }
    free(a.data);
    free(b.data);
    free(y.data);
    free(bias);
}

static void an_element_is_one_chain(void **state)
{
    (void)state;
    for (int i = 0; i < ISAS; i++)
        for (int s = 0; s < SHAPES && lk__isa_runs(isas[i]); s++)
            check_shape(isas[i]->f32->dense, shapes[s]);
}

static void relu_keeps_nan(void **state)
{
    (void)state;
    for (int i = 0; i < ISAS; i++) {
        if (!lk__isa_runs(isas[i]))
            continue;
        float a[] = {NAN, -1, 0, 2}, b[] = {1}, y[4];
        lk_matrix left = matrix(a, 4, 1), right = matrix(b, 1, 1), result = matrix(y, 4, 1);
        float *packed = packed_columns(isas[i]->f32->dense, &right);
        isas[i]->f32->dense->multiply(&left, packed, NULL, true, &result);
        assert_true(isnan(y[0]));
        assert_true(y[1] == 0 && !signbit(y[1]) && y[2] == 0 && y[3] == 2);
        free(packed);
    }
}

enum { ADDENDS = 9 };

/* The last shard of a batch may have fewer samples, and some addends are sums already. */
static void check_sum(const lk_dense_kernels *kernels, int n, const unsigned char *additions, int depth, unsigned plain,
                      int64_t rows, int64_t columns)
{
    lk_addend addends[ADDENDS];
    float *single[ADDENDS], *memory[ADDENDS][2] = {{0}};
    for (int i = 0; i < n; i++) {
        int64_t inner = 17 - i;
        lk_matrix a = matrix(some(rows * inner, 10 + (uint32_t)i), rows, inner),
                  b = matrix(some(inner * columns, 30 + (uint32_t)i), inner, columns);
        single[i] = some(rows * columns, 0);
        for (int64_t e = 0; e < rows * columns; e++)
            single[i][e] = chain(&a, &b, e / columns, e % columns);
        memory[i][0] = packed_rows(kernels, &a);
        memory[i][1] = packed_columns(kernels, &b);
        addends[i] = plain >> i & 1 ? (lk_addend){.plain = single[i]}
                                    : (lk_addend){.rows = memory[i][0], .columns = memory[i][1], .inner = inner};
        free(a.data);
        free(b.data);
    }
    lk_matrix y = matrix(some(rows * columns, 6), rows, columns);
    float *scratch = some(kernels->scratch_count(depth), 7);
    lk_addend_sum sum = {addends, additions, n};
    kernels->sum(&sum, &y, scratch);
    for (int64_t e = 0; e < rows * columns; e++) {
        float stack[ADDENDS];
        int top = 0;
        for (int i = 0; i < n; i++) {
            stack[top++] = single[i][e];
            for (int add = 0; add < additions[i]; add++, top--)
                stack[top - 2] += stack[top - 1];
        }
        if (memcmp(&stack[0], &y.data[e], sizeof *stack) != 0)
            fail_msg("%d addends: element %lld is %.9g, not %.9g", n, (long long)e, y.data[e], stack[0]);
    }
    for (int i = 0; i < n; i++) {
        free(single[i]);
        free(memory[i][0]);
        free(memory[i][1]);
    }
    free(y.data);
    free(scratch);
}

static void products_are_added_in_the_order_of_a_tree(void **state)
{
    (void)state;
    static const unsigned char one[] = {0}, eight[] = {0, 1, 0, 2, 0, 1, 0, 3}, nine[] = {0, 0, 1, 0, 2, 0, 1, 0, 4};
    for (int i = 0; i < ISAS; i++) {
        if (!lk__isa_runs(isas[i]))
            continue;
        for (int64_t rows = 1; rows < 40; rows += 13)
            for (int64_t columns = 1; columns < 90; columns += 29) {
                check_sum(isas[i]->f32->dense, 1, one, 1, 0, rows, columns);
                check_sum(isas[i]->f32->dense, 8, eight, 4, 0, rows, columns);
                check_sum(isas[i]->f32->dense, 8, eight, 4, 0x41, rows, columns);
                check_sum(isas[i]->f32->dense, 9, nine, 5, 1, rows, columns);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_element_is_one_chain),
        cmocka_unit_test(relu_keeps_nan),
        cmocka_unit_test(products_are_added_in_the_order_of_a_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
