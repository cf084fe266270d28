/* The kernels of dense.h against single chains of fused multiply-adds, bit for bit. */
#include "cpu/dense/dense.h"

#include "base/bf16.h"
#include "cpu/isa.h"
#include "cpu/layouts_testing.h"

#include <math.h>
#include <string.h>

typedef struct copy {
    const lk_isa *isa;
    bool bf16; /* its kernels for bf16 */
    bool tiles;
} copy;

static const copy copies[] = {{&lk__isa_avx2, false, false},         {&lk__isa_avx512, false, false},
                              {&lk__isa_emulated, false, false},     {&lk__isa_avx512bf16, true, false},
                              {&lk__isa_emulatedbf16, true, false},  {&lk__isa_amxbf16, true, true},
                              {&lk__isa_emulatedamxbf16, true, true}};
enum { COPIES = sizeof copies / sizeof *copies };

static const lk_dense_kernels *kernels_of(const copy *c)
{
    return c->bf16 ? c->isa->bf16->dense : c->isa->f32->dense;
}

/* Rows, inner dimension, columns: parts of tiles, of panels and of vectors, several parts of the inner dimension. */
static const int64_t shapes[][3] = {{1, 1, 1},     {6, 16, 16},   {14, 8, 32},   {5, 3, 7},     {7, 40, 33},
                                    {32, 785, 10}, {31, 401, 50}, {13, 0, 9},    {64, 1203, 8}, {97, 32, 70},
                                    {3, 2, 40},    {15, 1, 31},   {9, 2307, 35}, {150, 64, 40}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void *numbers(int64_t count, uint32_t seed, bool bf16)
{
    void *values = malloc((size_t)(count + 1) * (bf16 ? sizeof(uint16_t) : sizeof(float)));
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        lk__element_set(values, i, (float)(seed >> 8) / (1 << 23) - 1, bf16);
    }
    return values;
}

static lk_matrix matrix(int64_t rows, int64_t columns, uint32_t seed, bool bf16)
{
    return (lk_matrix){numbers(rows * columns, seed, bf16), rows, columns, columns, 1, bf16};
}

static int64_t place(const lk_matrix *x, int64_t i, int64_t j)
{
    return i * x->row_stride + j * x->column_stride;
}

static float at(const lk_matrix *x, int64_t i, int64_t j)
{
    return lk__element(x->data, place(x, i, j), x->bf16);
}

/* Sums the first and the second elements of sixteen pairs apart, as a tile does. */
static float chain_of_tiles(const lk_matrix *a, const lk_matrix *b, int64_t i, int64_t j)
{
    float sum = 0;
    for (int64_t first = 0; first < a->columns; first += 32) {
        float parts[2] = {0, 0};
        for (int64_t k = first; k < a->columns && k < first + 32; k++)
            parts[k % 2] = fmaf(at(a, i, k), at(b, k, j), parts[k % 2]);
        sum += parts[0] + parts[1];
    }
    return sum;
}

/* The second product of a pair of bf16 is added first. */
static float chain(const copy *c, const lk_matrix *a, const lk_matrix *b, int64_t i, int64_t j)
{
    if (c->tiles)
        return chain_of_tiles(a, b, i, j);
    float sum = 0;
    int64_t step = a->bf16 ? 2 : 1;
    for (int64_t k = 0; k < a->columns; k += step) {
        if (step == 2 && k + 1 < a->columns)
            sum = fmaf(at(a, i, k + 1), at(b, k + 1, j), sum);
        sum = fmaf(at(a, i, k), at(b, k, j), sum);
    }
    return sum;
}

enum { CLOSE, APART, TRANSPOSED, COLUMNS };

/* Returns the same matrix with other strides, and NaN between its elements; with CLOSE none is within a row, with
 * COLUMNS none within a column. */
static lk_matrix spread(const lk_matrix *x, int how)
{
    lk_matrix y = *x;
    int64_t count = (x->rows + 1) * (x->columns + 1) * 4;
    y.row_stride = how == COLUMNS ? 1 : how == TRANSPOSED ? 2 : 2 * x->columns + 3;
    y.column_stride = how == COLUMNS ? x->rows + 1 : how == TRANSPOSED ? 2 * x->rows + 1 : how == APART ? 2 : 1;
    y.data = numbers(count, 9, x->bf16);
    for (int64_t i = 0; i < count; i++)
        lk__element_set(y.data, i, NAN, x->bf16);
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++)
            lk__element_set(y.data, place(&y, i, j), at(x, i, j), x->bf16);
    return y;
}

static void expect_element(const lk_matrix *y, int64_t i, int64_t j, float want, const char *what)
{
    float have = at(y, i, j);
    if (y->bf16)
        want = lk__bf16_wide(lk__bf16_rounded(want));
    if (memcmp(&have, &want, sizeof have) != 0)
        fail_msg("%s: element %lld,%lld is %.9g, not %.9g", what, (long long)i, (long long)j, have, want);
}

static void expect_product(const copy *c, const lk_matrix *y, const lk_matrix *a, const lk_matrix *b, const void *bias,
                           bool relu)
{
    char what[64];
    snprintf(what, sizeof what, "[%lld,%lld,%lld]", (long long)a->rows, (long long)a->columns, (long long)b->columns);
    for (int64_t i = 0; i < y->rows; i++)
        for (int64_t j = 0; j < y->columns; j++) {
            float want = chain(c, a, b, i, j);
            want = bias ? want + lk__element(bias, j, a->bf16) : want;
            expect_element(y, i, j, relu && want <= 0 ? 0 : want, what);
        }
}

static void *packed_columns(const lk_dense_kernels *kernels, const lk_matrix *b)
{
    void *packed = malloc(kernels->columns_bytes(b->rows, b->columns) + 1);
    assert_non_null(packed);
    kernels->pack_columns(b, packed);
    return packed;
}

static void *packed_rows(const lk_dense_kernels *kernels, const lk_matrix *a)
{
    void *packed = malloc(kernels->rows_bytes(a->rows, a->columns) + 1);
    assert_non_null(packed);
    kernels->pack_rows(a, packed);
    return packed;
}

static void multiply_and_expect(const copy *c, const lk_matrix *a, const lk_matrix *b, const void *bias, bool relu,
                                const lk_matrix *y)
{
    const lk_dense_kernels *kernels = kernels_of(c);
    void *packed = packed_columns(kernels, b), *scratch = malloc(kernels->multiply_bytes(a->rows, a->columns) + 1);
    assert_non_null(scratch);
    kernels->multiply(a, packed, bias, relu, y, scratch);
    expect_product(c, y, a, b, bias, relu);
    free(packed);
    free(scratch);
}

static void check_shape(const copy *c, const int64_t *shape, bool rounds)
{
    lk_matrix a = matrix(shape[0], shape[1], 2, c->bf16), b = matrix(shape[1], shape[2], 3, c->bf16),
              y = matrix(shape[0], shape[2], 4, rounds);
    void *bias = numbers(shape[2], 5, c->bf16);
    for (int relu = 0; relu < 2; relu++) {
        multiply_and_expect(c, &a, &b, NULL, relu, &y);
        multiply_and_expect(c, &a, &b, bias, relu, &y);
    }
    for (int way = 0; way < 4; way++) {
        int of_a = c->bf16 ? CLOSE : way & 1 ? TRANSPOSED : APART;
        lk_matrix wide_a = spread(&a, of_a), wide_b = spread(&b, way & 2 ? TRANSPOSED : APART),
                  wide_y = spread(&y, 1 + way % 3);
        multiply_and_expect(c, &wide_a, &wide_b, bias, true, &wide_y);
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
    for (int i = 0; i < COPIES; i++)
        for (int s = 0; s < SHAPES && lk__isa_runs(copies[i].isa); s++)
            for (int rounds = 0; rounds <= copies[i].bf16; rounds++)
                check_shape(&copies[i], shapes[s], rounds);
}

static void relu_keeps_nan(void **state)
{
    (void)state;
    static const float numbers_of_a[] = {NAN, -1, 0, 2};
    for (int i = 0; i < COPIES; i++) {
        if (!lk__isa_runs(copies[i].isa))
            continue;
        bool bf16 = copies[i].bf16;
        lk_matrix left = matrix(4, 1, 1, bf16), right = matrix(1, 1, 1, bf16), y = matrix(4, 1, 1, bf16);
        for (int e = 0; e < 4; e++)
            lk__element_set(left.data, e, numbers_of_a[e], bf16);
        lk__element_set(right.data, 0, 1, bf16);
        const lk_dense_kernels *kernels = kernels_of(&copies[i]);
        void *packed = packed_columns(kernels, &right), *scratch = malloc(kernels->multiply_bytes(4, 1) + 1);
        assert_non_null(scratch);
        kernels->multiply(&left, packed, NULL, true, &y, scratch);
        assert_true(isnan(at(&y, 0, 0)));
        assert_true(at(&y, 1, 0) == 0 && !signbit(at(&y, 1, 0)) && at(&y, 2, 0) == 0 && at(&y, 3, 0) == 2);
        free(packed);
        free(scratch);
        free(left.data);
        free(right.data);
        free(y.data);
    }
}

enum { ADDENDS = 9 };

/* The order of a sum's additions, and which addends are sums already. */
typedef struct tree {
    int n, depth;
    unsigned char additions[ADDENDS];
    unsigned plain;
} tree;

static const tree trees[] = {{1, 1, {0}, 0},
                             {8, 4, {0, 1, 0, 2, 0, 1, 0, 3}, 0},
                             {8, 4, {0, 1, 0, 2, 0, 1, 0, 3}, 0x41},
                             {9, 5, {0, 0, 1, 0, 2, 0, 1, 0, 4}, 1}};
enum { TREES = sizeof trees / sizeof *trees };

/* The last shard of a batch may have fewer samples. */
static void check_sum(const copy *c, const tree *t, int64_t rows, int64_t columns, bool rounds)
{
    const lk_dense_kernels *kernels = kernels_of(c);
    lk_addend addends[ADDENDS];
    float *single[ADDENDS];
    void *memory[ADDENDS][2] = {{0}};
    for (int i = 0; i < t->n; i++) {
        int64_t inner = (i % 3 == 1 ? 70 : 17) - i;
        lk_matrix a = matrix(rows, inner, 10 + (uint32_t)i, c->bf16),
                  b = matrix(inner, columns, 30 + (uint32_t)i, c->bf16);
        single[i] = numbers(rows * columns, 0, false);
        for (int64_t e = 0; e < rows * columns; e++)
            single[i][e] = chain(c, &a, &b, e / columns, e % columns);
        memory[i][0] = packed_rows(kernels, &a);
        memory[i][1] = packed_columns(kernels, &b);
        addends[i] = t->plain >> i & 1 ? (lk_addend){.plain = single[i]}
                                       : (lk_addend){.rows = memory[i][0], .columns = memory[i][1], .inner = inner};
        free(a.data);
        free(b.data);
    }
    lk_matrix y = matrix(rows, columns, 6, rounds);
    float *scratch = malloc(kernels->scratch_bytes(t->depth));
    assert_non_null(scratch);
    lk_addend_sum sum = {addends, t->additions, t->n};
    kernels->sum(&sum, &y, scratch);
    for (int64_t e = 0; e < rows * columns; e++) {
        float stack[ADDENDS];
        int top = 0;
        for (int i = 0; i < t->n; i++) {
            stack[top++] = single[i][e];
            for (int add = 0; add < t->additions[i]; add++, top--)
                stack[top - 2] += stack[top - 1];
        }
        expect_element(&y, e / columns, e % columns, stack[0], "a sum");
    }
    for (int i = 0; i < t->n; i++) {
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
    for (int i = 0; i < COPIES; i++)
        for (int t = 0; t < TREES && lk__isa_runs(copies[i].isa); t++)
            for (int64_t rows = 1; rows < 40; rows += 13)
                for (int64_t columns = 1; columns < 90; columns += 29)
                    for (int rounds = 0; rounds <= copies[i].bf16; rounds++)
                        check_sum(&copies[i], &trees[t], rows, columns, rounds);
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
