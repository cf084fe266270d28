/* Fused operators give the bits of the separate operators that they replace, in every layout. */
#include "base/status.h"
#include "core/device_testing.h"
#include "core/tensor.h"
#include "lockstep/autograd.h"
#include "lockstep/ops.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

static lk_device *device;

static lk_tensor *numbers(lk_shape shape, double low, double high, uint64_t purpose)
{
    lk_tensor *x = lk_uniform(device, LK_F32, shape, low, high, (lk_random_key){.seed = 7, .purpose = purpose});
    assert_non_null(x);
    return x;
}

static void expect_same_bits(lk_tensor *have, lk_tensor *want, const char *what)
{
    assert_non_null(have);
    assert_non_null(want);
    size_t bytes = (size_t)lk_tensor_count(want) * sizeof(float);
    float *a = malloc(bytes + 1), *b = malloc(bytes + 1);
    assert_true(a && b);
    assert_int_equal(lk_tensor_count(have), lk_tensor_count(want));
    if (lk_tensor_read(have, a, bytes) != LK_OK || lk_tensor_read(want, b, bytes) != LK_OK)
        fail_msg("%s", lk_error_message());
    if (memcmp(a, b, bytes) != 0)
        fail_msg("%s: other bits than of separate operators", what);
    free(a);
    free(b);
}

static void call_fused(lk_call *call, const lk_op *op, int n_in, int n_out, const void *attrs, size_t size)
{
    call->op = op;
    call->place = LK_HERE;
    call->n_in = n_in;
    call->n_out = n_out;
    memcpy(call->attrs.bytes, attrs, size);
    if (lk__call(call) != LK_OK)
        fail_msg("%s", lk_error_message());
}

/* --- batch normalization, residual, relu -------------------------------------------------------------------------- */

enum { X, GAMMA, BETA, RESIDUAL, LEAVES };

/* Convolutions choose layouts: blocks of channels or, for few channels, images in lanes. */
typedef struct block {
    const char *name;
    int64_t images, channels, size;
    bool behind_convolution, residual;
} block;

static const block blocks[] = {
    {"plain", 3, 5, 7, false, true},         {"blocks", 4, 16, 6, true, true},
    {"padded blocks", 2, 20, 5, true, true}, {"images in lanes", 11, 6, 5, true, true},
    {"no residual", 4, 16, 6, true, false},  {"plain, no residual", 2, 9, 3, false, false},
};

static lk_tensor *activation(const block *b, uint64_t purpose)
{
    lk_shape shape = LK_SHAPE(b->images, b->channels, b->size, b->size);
    lk_tensor *x = numbers(shape, -1, 1, purpose);
    lk_tensor *w = numbers(LK_SHAPE(b->channels, b->channels, 3, 3), -1, 1, purpose + 1);
    return b->behind_convolution ? lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.padding = {1, 1}}) : x;
}

static void make_leaves(const block *b, lk_tensor **leaf)
{
    leaf[X] = activation(b, 1);
    leaf[GAMMA] = numbers(LK_SHAPE(b->channels), 0.5, 1.5, 3);
    leaf[BETA] = numbers(LK_SHAPE(b->channels), -1, 1, 4);
    leaf[RESIDUAL] = b->residual ? activation(b, 5) : NULL;
}

static const double epsilon = 1e-5;

static lk_tensor *fused_block(lk_tensor *const *leaf, lk_tensor **sums)
{
    lk_shape x = lk_tensor_shape(leaf[X]);
    lk_batch_norm_attrs attrs = {.count = x.dim[0] * x.dim[2] * x.dim[3], .epsilon = epsilon};
    lk_call call = {.in = {leaf[X], leaf[GAMMA], leaf[BETA], leaf[RESIDUAL]}};
    call_fused(&call, &lk__op_batch_norm_act, 4, 2, &attrs, sizeof attrs);
    *sums = call.out[1];
    return call.out[0];
}

static lk_tensor *separate_block(lk_tensor *const *leaf, lk_tensor **sums)
{
    lk_tensor *y = lk_batch_norm(leaf[X], leaf[GAMMA], leaf[BETA], epsilon, sums);
    return lk_relu(leaf[RESIDUAL] ? lk_add(y, leaf[RESIDUAL]) : y);
}

typedef lk_tensor *(*block_function)(lk_tensor *const *leaf, lk_tensor **sums);

static lk_tensor *train_block(block_function function, const block *b, lk_tensor **leaf, lk_tensor **sums,
                              lk_tensor **gradients)
{
    lk_shape shape = lk_tensor_shape(leaf[X]);
    int n = b->residual ? LEAVES : RESIDUAL;
    lk_tape *tape = lk_tape_begin(leaf, n);
    assert_non_null(tape);
    lk_tensor *y = function(leaf, sums);
    if (lk_tape_gradient(tape, y, numbers(shape, -1, 1, 7), gradients) != LK_OK)
        fail_msg("%s", lk_error_message());
    lk_tape_release(tape);
    return y;
}

static void expect_block(const block *b)
{
    lk_tensor *leaf[LEAVES], *sums[2], *have[LEAVES] = {NULL}, *want[LEAVES] = {NULL};
    lk_scope_begin();
    make_leaves(b, leaf);
    lk_tensor *y = train_block(fused_block, b, leaf, &sums[0], have);
    expect_same_bits(y, train_block(separate_block, b, leaf, &sums[1], want), b->name);
    expect_same_bits(lk_cast(sums[0], LK_F32), lk_cast(sums[1], LK_F32), b->name);
    for (int i = 0; i < LEAVES && want[i]; i++)
        expect_same_bits(have[i], want[i], b->name);
    assert_ptr_equal(y->storage->layout, leaf[X]->storage->layout);
    assert_ptr_equal(have[X]->storage->layout, leaf[X]->storage->layout);
    lk_scope_end();
}

static void a_block_has_the_bits_of_its_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        expect_block(&blocks[i]);
}

static void expect_inference(const block *b)
{
    lk_tensor *leaf[LEAVES];
    lk_batch_norm_attrs attrs = {.epsilon = epsilon};
    lk_scope_begin();
    make_leaves(b, leaf);
    lk_tensor *mean = numbers(LK_SHAPE(b->channels), -1, 1, 8), *variance = numbers(LK_SHAPE(b->channels), 0.1, 2, 9);
    lk_call call = {.in = {leaf[X], leaf[GAMMA], leaf[BETA], mean, variance, leaf[RESIDUAL]}};
    call_fused(&call, &lk__op_batch_norm_inference_act, 6, 1, &attrs, sizeof attrs);
    lk_tensor *y = lk_batch_norm_inference(leaf[X], leaf[GAMMA], leaf[BETA], mean, variance, epsilon);
    expect_same_bits(call.out[0], lk_relu(b->residual ? lk_add(y, leaf[RESIDUAL]) : y), b->name);
    lk_scope_end();
}

static void so_it_has_with_given_moments(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        expect_inference(&blocks[i]);
}

/* --- dense layers ------------------------------------------------------------------------------------------------- */

typedef struct dense {
    int64_t samples, features, units;
    bool bias, relu;
} dense;

static lk_tensor *fused_dense(const dense *d, lk_tensor *const *in)
{
    lk_dense_act_attrs attrs = {.relu = d->relu};
    lk_call call = {.in = {in[0], in[1], in[2]}};
    call_fused(&call, &lk__op_dense_act, 3, 1, &attrs, sizeof attrs);
    return call.out[0];
}

static lk_tensor *separate_dense(const dense *d, lk_tensor *const *in)
{
    lk_tensor *y = lk_matmul(in[0], in[1]);
    y = d->bias ? lk_add(y, in[2]) : y;
    return d->relu ? lk_relu(y) : y;
}

static void expect_dense(const dense *d)
{
    lk_scope_begin();
    lk_tensor *in[] = {numbers(LK_SHAPE(d->samples, d->features), -1, 1, 1),
                       numbers(LK_SHAPE(d->features, d->units), -1, 1, 2),
                       d->bias ? lk_slice(numbers(LK_SHAPE(d->units + 3), -1, 1, 3), 0, 3, d->units + 3) : NULL};
    lk_tensor *seed = numbers(LK_SHAPE(d->samples, d->units), -1, 1, 4), *have[3] = {NULL}, *want[3] = {NULL};
    int n = d->bias ? 3 : 2;
    lk_tape *tape = lk_tape_begin(in, n);
    lk_tensor *y = fused_dense(d, in);
    assert_int_equal(lk_tape_gradient(tape, y, seed, have), LK_OK);
    lk_tape_release(tape);
    tape = lk_tape_begin(in, n);
    lk_tensor *z = separate_dense(d, in);
    assert_int_equal(lk_tape_gradient(tape, z, seed, want), LK_OK);
    lk_tape_release(tape);
    expect_same_bits(y, z, "dense_act");
    for (int i = 0; i < n; i++)
        expect_same_bits(have[i], want[i], "gradient of dense_act");
    lk_scope_end();
}

static void a_dense_layer_has_the_bits_of_its_parts(void **state)
{
    (void)state;
    const dense layers[] = {
        {33, 80, 50, true, true}, {7, 512, 10, true, false}, {5, 3, 9, false, true}, {1, 1, 1, true, true}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        expect_dense(&layers[i]);
}

/* --- softmax, cross-entropy, its gradient, hits ------------------------------------------------------------------- */

static void expect_step(int64_t samples, int64_t classes, double smoothing, int k)
{
    lk_scope_begin();
    lk_tensor *logits = numbers(LK_SHAPE(samples, classes), -9, 9, 1), *dloss = numbers(LK_SCALAR, 0.001, 0.1, 2);
    lk_tensor *labels = lk_argmax(numbers(LK_SHAPE(samples, classes), 0, 1, 3), 1), *gradient;
    lk_cross_entropy_step_attrs attrs = {.smoothing = smoothing, .k = k};
    lk_call call = {.in = {dloss, logits, labels}};
    call_fused(&call, &lk__op_cross_entropy_step, 3, 3, &attrs, sizeof attrs);
    lk_tape *tape = lk_tape_begin(&logits, 1);
    lk_tensor *loss = lk_smoothed_cross_entropy(logits, labels, smoothing, LK_REDUCTION_SUM);
    assert_int_equal(lk_tape_gradient(tape, loss, dloss, &gradient), LK_OK);
    lk_tape_release(tape);
    expect_same_bits(call.out[0], loss, "loss");
    expect_same_bits(call.out[1], gradient, "gradient of the loss");
    expect_same_bits(call.out[2], lk_sum(lk_in_top_k(logits, labels, k), NULL), "hits");
    lk_scope_end();
}

static void a_step_has_the_bits_of_loss_and_gradient(void **state)
{
    (void)state;
    expect_step(32, 10, 0, 1);
    expect_step(17, 10, 0.1, 3);
    expect_step(1, 1, 0, 1);
    expect_step(3, 1000, 0.1, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_has_the_bits_of_its_parts),
        cmocka_unit_test(so_it_has_with_given_moments),
        cmocka_unit_test(a_dense_layer_has_the_bits_of_its_parts),
        cmocka_unit_test(a_step_has_the_bits_of_loss_and_gradient),
    };
    return RUN_ON_DEVICE(tests, &device, "cpu");
}
