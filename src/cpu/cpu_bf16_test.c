/* Operators on bf16 give the bits of the operators on the widened operands, rounded, in every layout. Kernels for bf16
 * add products in another order, so their results may differ in the last place. */
#include "base/status.h"
#include "core/device_testing.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/isa.h"
#include "cpu/onednn/cpu_state.h"
#include "lockstep/autograd.h"
#include "lockstep/ops.h"
#include "ops/ops.h"
#include "ops/matmul.h"
#include "ops/conv2d.h"
#include "ops/reduce.h"

#include <math.h>
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

static void expect_close(lk_tensor *have, lk_tensor *want, const char *what)
{
    size_t count = (size_t)lk_tensor_count(want);
    float *a = calloc(count + 1, sizeof *a), *b = calloc(count + 1, sizeof *b);
    double last_place = lk_tensor_dtype(have) == LK_BF16 ? 1.0 / 128 : 1e-6;
    assert_true(a && b && lk_tensor_dtype(have) == lk_tensor_dtype(want));
    if (lk_tensor_read(wide(have), a, count * sizeof *a) != LK_OK ||
        lk_tensor_read(wide(want), b, count * sizeof *b) != LK_OK)
        fail_msg("%s", lk_error_message());
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= last_place * fabs((double)b[i]) + 1e-5))
            fail_msg("%s: element %zu is %g, not %g", what, i, (double)a[i], (double)b[i]);
    free(a);
    free(b);
}

/* The result of a convolution or of a product of matrices. */
static void expect_multiplied(lk_tensor *have, lk_tensor *want, const char *what)
{
    if (lk__isa() && lk__isa()->bf16)
        expect_close(have, want, what);
    else
        expect_same_bits(have, want, what);
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
    expect_multiplied(y, lk_cast(lk_conv2d(wide(x), wide(w), wide(bias), &conv), LK_BF16), s->name);
    expect_rounded(r, lk_relu(wide_y), s->name);
    expect_multiplied(z, lk_cast(lk_conv2d(wide(r), wide(again), NULL, &conv), LK_BF16), s->name);
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
    expect_multiplied(lk_matmul(a, transposed), lk_cast(lk_matmul(wide(a), lk_transpose(wide(b), 0, 1)), LK_BF16),
                      "transposed");
    expect_rounded(lk_relu(cut), lk_relu(wide(cut)), "cut out");
    expect_rounded(lk_add(a, repeated), lk_add(wide(a), wide(repeated)), "repeated");
    expect_same_bits(lk_cast(wide(transposed), LK_F64), lk_cast(transposed, LK_F64), "a cast of a transposed view");
    expect_same_bits(lk_cast(wide(repeated), LK_F64), lk_cast(repeated, LK_F64), "a cast of a repeated view");
    lk_scope_end();
}

/* Gives y, dw, dbias and dx of conv_block. */
static void run_block(lk_tensor *const in[3], lk_tensor *dy, const lk_conv_block_attrs *attrs, lk_tensor *out[4])
{
    lk_call block = {.op = &lk__op_conv_block, .place = LK_HERE, .n_in = 3, .n_out = 2, .in = {in[0], in[1], in[2]}};
    lk__call_set_attrs(&block, attrs, sizeof *attrs);
    assert_int_equal(lk__call(&block), LK_OK);
    lk_call back = {
        .op = &lk__op_conv_block_grad, .place = LK_HERE, .n_in = 4, .n_out = 3, .in = {dy, block.out[1], in[0], in[1]}};
    lk__call_set_attrs(&back, attrs, sizeof *attrs);
    assert_int_equal(lk__call(&back), LK_OK);
    out[0] = block.out[0];
    memcpy(out + 1, back.out, 3 * sizeof *out);
}

static void f32_block_gradients(const size *s, lk_tensor *x, lk_block_pool pooling)
{
    lk_conv_block_attrs attrs = {.conv = {{1, 1}, {1, 1}, {1, 1}, 1},
                                 .pool = {.kernel = {2, 2}, .stride = {2, 2}},
                                 .pooling = pooling,
                                 .relu = true,
                                 .bias = true,
                                 .input_grad = true,
                                 .f32 = true};
    int64_t side = pooling == LK_BLOCK_NO_POOL ? s->size : s->size / 2;
    lk_tensor *w = numbers(LK_SHAPE(s->out, s->in, 3, 3), 3), *bias = numbers(LK_SHAPE(s->out), 4),
              *dy = numbers(LK_SHAPE(s->images, s->out, side, side), 5), *have[4], *want[4];
    run_block((lk_tensor *[]){x, w, bias}, dy, &attrs, have);
    run_block((lk_tensor *[]){wide(x), wide(w), wide(bias)}, wide(dy), &attrs, want);
    expect_multiplied(have[0], lk_cast(want[0], LK_BF16), s->name);
    expect_multiplied(have[1], want[1], s->name);
    expect_multiplied(have[2], want[2], s->name);
    expect_multiplied(have[3], lk_cast(want[3], LK_BF16), s->name);
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
    expect_multiplied(dw, lk__conv2d_weight_grad(LK_HERE, wide(dy), wide(x), of_w, &conv, false, &want_dbias), s->name);
    expect_same_bits(dbias, want_dbias, s->name);
    lk_tensor *rounded = lk__conv2d_weight_grad(LK_HERE, dy, x, of_w, &conv, false, &dbias);
    expect_multiplied(rounded, lk_cast(dw, LK_BF16), s->name);
    f32_block_gradients(s, x, LK_BLOCK_AVG_POOL);
    f32_block_gradients(s, x, LK_BLOCK_NO_POOL);
    lk_tensor *rows = lk_flatten(dy), *columns = lk_transpose(lk_flatten(x), 0, 1);
    expect_multiplied(lk__matmul(LK_HERE, columns, rows, true), lk_matmul(wide(columns), wide(rows)), s->name);
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

typedef struct dense_size {
    int64_t samples, in, out;
} dense_size;

/* Odd numbers, and parts of tiles, panels and vectors. */
static const dense_size dense_sizes[] = {{1, 1, 1},     {3, 7, 5},     {11, 33, 10}, {32, 785, 40},
                                         {37, 50, 129}, {24, 401, 18}, {33, 1, 2},   {16, 2, 33}};

static lk_tensor *dense_act(lk_tensor *x, lk_tensor *w, lk_tensor *bias)
{
    lk_call call = {.op = &lk__op_dense_act, .place = LK_HERE, .n_in = 3, .n_out = 1, .in = {x, w, bias}};
    lk__call_set_attrs(&call, &(lk_dense_act_attrs){.relu = true}, sizeof(lk_dense_act_attrs));
    assert_int_equal(lk__call(&call), LK_OK);
    return call.out[0];
}

static lk_tensor *samples_of(lk_tensor *x, int64_t begin, int64_t end)
{
    lk_tensor *some = lk_slice(x, 0, begin, end);
    assert_non_null(some);
    return lk_copy(some, device);
}

/* A layer and its gradients, in the products of a training and in those with other strides. */
static void dense_layer(const dense_size *s)
{
    char what[64];
    snprintf(what, sizeof what, "[%d,%d,%d]", (int)s->samples, (int)s->in, (int)s->out);
    lk_scope_begin();
    lk_tensor *x = numbers(LK_SHAPE(s->samples, s->in), 1), *w = numbers(LK_SHAPE(s->in, s->out), 2),
              *bias = numbers(LK_SHAPE(s->out), 3), *dy = numbers(LK_SHAPE(s->samples, s->out), 4);
    lk_tensor *wt = lk_transpose(w, 0, 1), *xt = lk_transpose(x, 0, 1), *dx = lk_matmul(dy, wt),
              *y = dense_act(x, w, bias);
    lk_tensor *wide_wt = lk_transpose(wide(w), 0, 1), *wide_xt = lk_transpose(wide(x), 0, 1);
    expect_multiplied(y, lk_cast(dense_act(wide(x), wide(w), wide(bias)), LK_BF16), what);
    expect_multiplied(dx, lk_cast(lk_matmul(wide(dy), wide_wt), LK_BF16), what);
    expect_multiplied(lk__matmul(LK_HERE, xt, dy, true), lk_matmul(wide_xt, wide(dy)), what);
    expect_multiplied(lk_matmul(xt, dy), lk_cast(lk_matmul(wide_xt, wide(dy)), LK_BF16), what);
    expect_multiplied(lk__matmul(LK_HERE, dy, wt, true), lk_matmul(wide(dy), wide_wt), what);
    expect_multiplied(dense_act(lk_transpose(lk_copy(xt, device), 0, 1), w, bias), y, what);
    for (int64_t n = 1; n < s->samples; n += 5) {
        expect_same_bits(dense_act(samples_of(x, n, s->samples), w, bias), samples_of(y, n, s->samples), what);
        expect_same_bits(lk_matmul(samples_of(dy, 0, n), wt), samples_of(dx, 0, n), what);
    }
    lk_scope_end();
}

static void computes_dense_layers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof dense_sizes / sizeof *dense_sizes; i++)
        dense_layer(&dense_sizes[i]);
}

static void skip_without_kernels(void)
{
    if (lk__isa() && lk__isa()->bf16)
        return;
    print_message("SKIP: the instruction set has no kernels for bf16\n");
    skip();
}

static void dense_layers_need_no_stand_ins(void **state)
{
    (void)state;
    skip_without_kernels();
    lk_device *fresh = open_device("cpu:0"), *shared = device;
    device = fresh;
    lk_scope_begin();
    lk_tensor *x = numbers(LK_SHAPE(9, 40), 1), *w = numbers(LK_SHAPE(40, 30), 2), *bias = numbers(LK_SHAPE(30), 3),
              *gradients[3];
    lk_tape *tape = lk_tape_begin((lk_tensor *[]){x, w, bias}, 3);
    lk_tensor *y = dense_act(x, w, bias);
    assert_int_equal(lk_tape_gradient(tape, y, y, gradients), LK_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(lk_tensor_wait(gradients[i]), LK_OK);
    assert_int_equal(((const lk_cpu *)fresh->state)->wide_bytes, 0);
    lk_tape_release(tape);
    lk_scope_end();
    device = shared;
    lk_device_release(fresh);
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

/* With kernels for bf16, convolutions hand on bf16 in layouts: nothing is widened after the first has read plain x. The
 * buffer for stand-ins grows to the largest size needed so far, and later tensors are larger than x. */
static void convolutions_need_no_stand_ins(void **state)
{
    (void)state;
    skip_without_kernels();
    lk_scope_begin();
    lk_device *fresh = open_device("cpu:0"), *shared = device;
    const lk_conv2d_opts conv = {.padding = {1, 1}}, stride = {.stride = {2, 2}};
    device = fresh;
    lk_tensor *x = numbers(LK_SHAPE(2, 16, 9, 9), 1), *w[3], *y[4] = {x}, *dw[3];
    const lk_cpu *cpu = fresh->state;
    for (int i = 0; i < 3; i++)
        w[i] = numbers(LK_SHAPE(32 << i, i == 0 ? 16 : 16 << i, 3, 3), (uint64_t)i + 2);
    lk_tape *tape = lk_tape_begin(w, 3);
    y[1] = lk_conv2d(x, w[0], NULL, &conv);
    assert_int_equal(lk_tensor_wait(y[1]), LK_OK);
    size_t bytes = cpu->wide_bytes;
    assert_true(bytes < (size_t)lk_tensor_count(y[1]) * 2 * sizeof(float));
    y[2] = lk_conv2d(y[1], w[1], NULL, &conv);
    y[3] = lk_conv2d(y[2], w[2], NULL, &stride);
    assert_int_equal(lk_tape_gradient(tape, y[3], y[3], dw), LK_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(lk_tensor_wait(dw[i]), LK_OK);
    assert_int_equal(cpu->wide_bytes, bytes);
    lk_tape_release(tape);
    lk_scope_end();
    device = shared;
    lk_device_release(fresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_layouts),
        cmocka_unit_test(reads_views),
        cmocka_unit_test(gives_f32),
        cmocka_unit_test(takes_no_elements),
        cmocka_unit_test(gives_memory_back),
        cmocka_unit_test(convolutions_need_no_stand_ins),
        cmocka_unit_test(computes_dense_layers),
        cmocka_unit_test(dense_layers_need_no_stand_ins),
    };
    return RUN_ON_DEVICE(tests, &device, "cpu:0");
}
