/* Operators on bf16 give the bits of the operators on the widened operands, rounded, in every layout. */
#include "base/status.h"
#include "core/device_testing.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "lockstep/ops.h"
#include "ops/ops.h"
#include "ops/matmul.h"
#include "ops/conv2d.h"
#include "ops/reduce.h"

#include <stdlib.h>
#include <string.h>

static lk_device *device;

/* bf16 numbers. */
static lk_tensor *numbers(lk_shape shape, uint64_t purpose)
{
    lk_tensor *x = lk_uniform(device, LK_F32, shape, -1, 1, (lk_random_key){.seed = 3, .purpose = purpose});
    lk_tensor *rounded = lk_cast(x, LK_BF16);
    assert_non_null(rounded);
    return rounded;
}

static lk_tensor *wide(lk_tensor *x)
{
    return lk_cast(x, LK_F32);
}

static void expect_same_bits(lk_tensor *have, lk_tensor *want, const char *what)
{
    assert_true(have && want);
    assert_int_equal(lk_tensor_dtype(have), lk_tensor_dtype(want));
    assert_int_equal(lk_tensor_count(have), lk_tensor_count(want));
    size_t bytes = (size_t)lk_tensor_count(want) * lk_dtype_size(lk_tensor_dtype(want));
    char *a = malloc(bytes + 1), *b = malloc(bytes + 1);
    assert_true(a && b);
    if (lk_tensor_read(have, a, bytes) != LK_OK || lk_tensor_read(want, b, bytes) != LK_OK)
        fail_msg("%s", lk_error_message());
    if (memcmp(a, b, bytes) != 0)
        fail_msg("%s: other bits than those of f32, rounded", what);
    free(a);
    free(b);
}

static void expect_rounded(lk_tensor *have, lk_tensor *want, const char *what)
{
    expect_same_bits(have, lk_cast(want, LK_BF16), what);
}

/* Returns whether x's storage has a private layout after it has been written. */
static bool has_layout(lk_tensor *x)
{
    assert_int_equal(lk_device_sync(device), LK_OK);
    return x->storage->layout != NULL;
}

typedef struct size {
    const char *name;
    int64_t images, in, out, size;
} size;

static const size sizes[] = {
    {"blocks", 3, 16, 16, 9},
    {"padded blocks", 2, 12, 20, 6},
    {"images in lanes", 11, 3, 5, 8},
    {"one image", 1, 16, 33, 5},
};

/* Each operator takes the result of the one before, in the layout that this one chose. */
static void chain(const size *s)
{
    lk_scope_begin();
    const lk_conv2d_opts conv = {.padding = {1, 1}};
    const lk_pool2d_opts pool = {.kernel = {2, 2}};
    lk_tensor *x = numbers(LK_SHAPE(s->images, s->in, s->size, s->size), 1),
              *w = numbers(LK_SHAPE(s->out, s->in, 3, 3), 2), *bias = numbers(LK_SHAPE(s->out), 3),
              *again = numbers(LK_SHAPE(s->out, s->out, 3, 3), 4), *gamma = wide(numbers(LK_SHAPE(s->out), 5)),
              *beta = wide(numbers(LK_SHAPE(s->out), 6));
    lk_tensor *y = lk_conv2d(x, w, bias, &conv), *r = lk_relu(y), *z = lk_conv2d(r, again, NULL, &conv), *sums,
              *want_sums;
    lk_tensor *n = lk_batch_norm(z, gamma, beta, 1e-5, &sums), *a = lk_add(n, r), *m = lk_max_pool2d(a, &pool),
              *p = lk_avg_pool2d(a, &pool);
    assert_true(has_layout(y) && has_layout(r) && has_layout(z) && has_layout(n) && has_layout(a));
    assert_true(y->storage->used >= (size_t)lk_tensor_count(y) * 2);
    lk_tensor *wide_y = wide(y);
    assert_true(has_layout(wide_y) && wide_y->storage->used > y->storage->used);
    expect_rounded(y, lk_conv2d(wide(x), wide(w), wide(bias), &conv), s->name);
    expect_rounded(r, lk_relu(wide_y), s->name);
    expect_rounded(z, lk_conv2d(wide(r), wide(again), NULL, &conv), s->name);
    expect_rounded(n, lk_batch_norm(wide(z), gamma, beta, 1e-5, &want_sums), s->name);
    expect_same_bits(sums, want_sums, s->name);
    expect_rounded(a, lk_add(wide(n), wide(r)), s->name);
    expect_rounded(m, lk_max_pool2d(wide(a), &pool), s->name);
    expect_rounded(p, lk_avg_pool2d(wide(a), &pool), s->name);
    lk_scope_end();
}

static void keeps_layouts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        chain(&sizes[i]);
}

/* Transposed, repeated and sliced views must be read through their strides. */
static void reads_views(void **state)
{
    (void)state;
    lk_scope_begin();
    lk_tensor *a = numbers(LK_SHAPE(6, 20), 1), *b = numbers(LK_SHAPE(9, 20), 2), *row = numbers(LK_SHAPE(1, 20), 3);
    lk_tensor *transposed = lk_transpose(b, 0, 1), *cut = lk_slice(a, 1, 3, 17),
              *repeated = lk_expand(row, LK_SHAPE(6, 20));
    assert_true(transposed && cut && repeated);
    expect_rounded(lk_matmul(a, transposed), lk_matmul(wide(a), lk_transpose(wide(b), 0, 1)), "transposed");
    expect_rounded(lk_relu(cut), lk_relu(wide(cut)), "cut out");
    expect_rounded(lk_add(a, repeated), lk_add(wide(a), wide(repeated)), "repeated");
    expect_same_bits(lk_cast(wide(transposed), LK_F64), lk_cast(transposed, LK_F64), "a cast of a transposed view");
    expect_same_bits(lk_cast(wide(repeated), LK_F64), lk_cast(repeated, LK_F64), "a cast of a repeated view");
    lk_scope_end();
}

/* dw and dbias of conv_block, in f32. */
static void block_gradients(lk_tensor *const *in, const lk_conv_block_attrs *attrs, lk_tensor **dw, lk_tensor **dbias)
{
    lk_call call = {.op = &lk__op_conv_block_grad, .place = LK_HERE, .n_in = 4, .n_out = 2};
    memcpy(call.in, in, 4 * sizeof *in);
    lk__call_set_attrs(&call, attrs, sizeof *attrs);
    assert_int_equal(lk__call(&call), LK_OK);
    *dw = call.out[0];
    *dbias = call.out[1];
}

static void f32_block_gradients(const size *s, lk_tensor *x)
{
    const lk_conv_block_attrs attrs = {.conv = {{1, 1}, {1, 1}, {1, 1}, 1},
                                       .pool = {.kernel = {2, 2}, .stride = {2, 2}},
                                       .pooling = LK_BLOCK_AVG_POOL,
                                       .relu = true,
                                       .bias = true,
                                       .f32 = true};
    lk_tensor *w = numbers(LK_SHAPE(s->out, s->in, 3, 3), 3), *bias = numbers(LK_SHAPE(s->out), 4);
    lk_call block = {.op = &lk__op_conv_block, .place = LK_HERE, .n_in = 3, .n_out = 2, .in = {x, w, bias}};
    lk__call_set_attrs(&block, &attrs, sizeof attrs);
    assert_int_equal(lk__call(&block), LK_OK);
    lk_tensor *dy = numbers(lk_tensor_shape(block.out[0]), 5), *saved = block.out[1], *have[2], *want[2];
    block_gradients((lk_tensor *[]){dy, saved, x, w}, &attrs, &have[0], &have[1]);
    block_gradients((lk_tensor *[]){wide(dy), saved, wide(x), wide(w)}, &attrs, &want[0], &want[1]);
    expect_same_bits(have[0], want[0], s->name);
    expect_same_bits(have[1], want[1], s->name);
}

/* Gradients of parameters are those of the f32 operator, without rounding. */
static void f32_gradients(const size *s)
{
    lk_scope_begin();
    const lk_conv2d_opts conv = {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1};
    lk_shape of_w = LK_SHAPE(s->out, s->in, 3, 3);
    lk_tensor *x = numbers(LK_SHAPE(s->images, s->in, s->size, s->size), 1),
              *dy = numbers(LK_SHAPE(s->images, s->out, s->size, s->size), 2), *dbias, *want_dbias;
    lk_tensor *dw = lk__conv2d_weight_grad(LK_HERE, dy, x, of_w, &conv, true, &dbias);
    expect_same_bits(dw, lk__conv2d_weight_grad(LK_HERE, wide(dy), wide(x), of_w, &conv, false, &want_dbias), s->name);
    expect_same_bits(dbias, want_dbias, s->name);
    f32_block_gradients(s, x);
    lk_tensor *rows = lk_flatten(dy), *columns = lk_transpose(lk_flatten(x), 0, 1);
    expect_same_bits(lk__matmul(LK_HERE, columns, rows, true), lk_matmul(wide(columns), wide(rows)), s->name);
    expect_same_bits(lk__sum(LK_HERE, dy, NULL, true), lk_sum(wide(dy), NULL), s->name);
    lk_scope_end();
}

static void gives_f32(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        f32_gradients(&sizes[i]);
}

static void takes_no_elements(void **state)
{
    (void)state;
    lk_scope_begin();
    lk_tensor *x = numbers(LK_SHAPE(0, 3, 4, 4), 1);
    assert_int_equal(lk_tensor_count(lk_relu(x)), 0);
    assert_int_equal(lk_tensor_wait(wide(lk_relu(x))), LK_OK);
    lk_tensor *zero = lk_matmul(numbers(LK_SHAPE(2, 0), 1), numbers(LK_SHAPE(0, 3), 2));
    expect_rounded(zero, lk_zeros(device, LK_F32, LK_SHAPE(2, 3)), "a sum of nothing");
    lk_scope_end();
}

/* Temporaries are freed: a second run needs no more memory than the first. */
static void gives_memory_back(void **state)
{
    (void)state;
    lk_scope_begin();
    lk_tensor *x = numbers(LK_SHAPE(4, 16, 8, 8), 1), *w = numbers(LK_SHAPE(16, 16, 3, 3), 2);
    int64_t now[3], peak;
    for (int i = 0; i < 3; i++) {
        lk_scope_begin();
        assert_int_equal(lk_tensor_wait(lk_conv2d(x, w, NULL, NULL)), LK_OK);
        lk_scope_end();
        assert_int_equal(lk_device_sync(device), LK_OK);
        lk__allocator_stats(device->allocator, &now[i], &peak);
    }
    assert_true(now[1] == now[0] && now[2] == now[0]);
    lk_scope_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_layouts),     cmocka_unit_test(reads_views),       cmocka_unit_test(gives_f32),
        cmocka_unit_test(takes_no_elements), cmocka_unit_test(gives_memory_back),
    };
    return RUN_ON_DEVICE(tests, &device, "cpu:0");
}
