/* Fusion: which operators a program ends up with, and that it computes the same as the separate ones. */
#include "core/backend.h"
#include "cpu/isa.h"
#include "cpu/lanes/lanes.h"
#include "lockstep/autograd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "program/program_testing.h"

enum { IMAGES = 8, CLASSES = 7, MOST_OUT = 16, MOST_NAMES = 64 };

/* --- a program compared with one without fusion ------------------------------------------------------------------- */

typedef struct network {
    lk_program_fn fn;
    lk_tensor *parameters[8];
    int n_parameters, n_out;
    lk_tensor *in[3]; /* images, labels, seed */
} network;

/* Names of operators that must be there, and of some that must be gone; each list ends with NULL. */
typedef struct expectation {
    const char *there[4], *gone[6];
} expectation;

typedef struct names {
    const char *list[MOST_NAMES];
    int n;
} names;

static void note(void *user, const char *op, const char *call)
{
    names *seen = user;
    assert_true(strlen(call) > strlen(op));
    assert_true(seen->n < MOST_NAMES);
    seen->list[seen->n++] = op;
}

static bool is_seen(const names *seen, const char *name)
{
    for (int i = 0; i < seen->n; i++)
        if (strcmp(seen->list[i], name) == 0)
            return true;
    return false;
}

static void expect_names(const lk_program *program, const expectation *e)
{
    names seen = {.n = 0};
    lk_program_visit(program, note, &seen);
    for (int i = 0; i < 4 && e->there[i]; i++)
        if (!is_seen(&seen, e->there[i]))
            fail_msg("there is no %s", e->there[i]);
    for (int i = 0; i < 6 && e->gone[i]; i++)
        if (is_seen(&seen, e->gone[i]))
            fail_msg("%s is still there", e->gone[i]);
}

static void expect_close(lk_tensor *have, lk_tensor *want, double tolerance)
{
    assert_true((have != NULL) == (want != NULL));
    if (!want)
        return;
    assert_int_equal(lk_tensor_dtype(have), lk_tensor_dtype(want));
    int64_t n = lk_tensor_count(want);
    assert_int_equal(lk_tensor_count(have), n);
    double *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * sizeof *b);
    assert_non_null(a);
    assert_non_null(b);
    lk_tensor *wide[] = {lk_cast(have, LK_F64), lk_cast(want, LK_F64)};
    assert_int_equal(lk_tensor_read(wide[0], a, (size_t)n * sizeof *a), LK_OK);
    assert_int_equal(lk_tensor_read(wide[1], b, (size_t)n * sizeof *b), LK_OK);
    for (int64_t i = 0; i < n; i++)
        assert_float_equal(a[i], b[i], tolerance * (1 + (b[i] < 0 ? -b[i] : b[i])));
    free(a);
    free(b);
}

static lk_program *run(network *net, lk_device *device, bool fuse, lk_tensor **out)
{
    lk_program *program =
        lk_program_record(device, net->fn, net, net->in, 3, net->n_out, &(lk_program_opts){.fuse = fuse});
    assert_non_null(program);
    for (int i = 0; i < 2; i++)
        assert_int_equal(lk_program_run(program, net->in, 0, out), LK_OK);
    return program;
}

static void check(network *net, lk_device *device, const expectation *e, double tolerance)
{
    lk_tensor *have[MOST_OUT], *want[MOST_OUT];
    assert_true(net->n_out <= MOST_OUT);
    lk_program *fused = run(net, device, true, have), *unfused = run(net, device, false, want);
    expect_names(fused, e);
    for (int i = 0; i < net->n_out; i++)
        expect_close(have[i], want[i], tolerance);
    lk_program_release(fused);
    lk_program_release(unfused);
}

/* Gradients of the parameters, the loss, the hits. */
static lk_status train(network *net, lk_tensor *const *in, lk_tensor *(*forward)(network *net, lk_tensor *x),
                       lk_tensor **out)
{
    lk_tape *tape = lk_tape_begin(net->parameters, net->n_parameters);
    if (!tape)
        return lk_error_status();
    lk_tensor *logits = forward(net, in[0]), **loss = &out[net->n_parameters];
    loss[0] = lk_smoothed_cross_entropy(logits, in[1], 0.1, LK_REDUCTION_SUM);
    loss[1] = lk_sum(lk_in_top_k(logits, in[1], 1), NULL);
    lk_status status = lk_tape_gradient(tape, loss[0], in[2], out);
    lk_tape_release(tape);
    return status;
}

static void make_inputs(network *net, lk_device *device, int64_t channels, int64_t size)
{
    int32_t labels[IMAGES];
    for (int i = 0; i < IMAGES; i++)
        labels[i] = i % CLASSES;
    net->in[0] = numbers(device, LK_SHAPE(IMAGES, channels, size, size), 11);
    net->in[1] = lk_tensor_from(device, LK_I32, LK_SHAPE(IMAGES), labels);
    net->in[2] = lk_full(device, LK_F32, LK_SCALAR, 1.0 / IMAGES);
}

/* --- conv_block, dense_act, cross_entropy_step -------------------------------------------------------------------- */

static lk_tensor *small_forward(network *net, lk_tensor *x)
{
    lk_tensor *const *p = net->parameters;
    x = lk_max_pool2d(lk_relu(lk_conv2d(x, p[0], p[1], NULL)), &(lk_pool2d_opts){.kernel = {2, 2}});
    x = lk_avg_pool2d(lk_relu(lk_conv2d(x, p[2], p[3], NULL)), &(lk_pool2d_opts){.kernel = {2, 2}});
    x = lk_relu(lk_add(lk_matmul(lk_reshape(x, LK_SHAPE(IMAGES, 9 * 4)), p[4]), p[5]));
    return lk_add(lk_matmul(x, p[6]), p[7]);
}

static lk_status train_small(void *user, lk_tensor *const *in, lk_tensor **out)
{
    return train(user, in, small_forward, out);
}

static lk_status evaluate_small(void *user, lk_tensor *const *in, lk_tensor **out)
{
    out[0] = small_forward(user, in[0]);
    return lk_error_status();
}

/* 13x13 → 11x11, 5x5 → 4x4 with a column that is not read, 2x2. */
static network small_network(lk_device *device)
{
    network net = {.fn = train_small, .n_parameters = 8, .n_out = 10};
    net.parameters[0] = numbers(device, LK_SHAPE(5, 1, 3, 3), 1);
    net.parameters[1] = numbers(device, LK_SHAPE(5), 2);
    net.parameters[2] = numbers(device, LK_SHAPE(9, 5, 2, 2), 3);
    net.parameters[3] = numbers(device, LK_SHAPE(9), 4);
    net.parameters[4] = numbers(device, LK_SHAPE(9 * 4, 12), 5);
    net.parameters[5] = numbers(device, LK_SHAPE(12), 6);
    net.parameters[6] = numbers(device, LK_SHAPE(12, CLASSES), 7);
    net.parameters[7] = numbers(device, LK_SHAPE(CLASSES), 8);
    make_inputs(&net, device, 1, 13);
    return net;
}

static void small_networks_are_fused(void **state)
{
    (void)state;
    if (!lk__lanes(LK_F32)) {
        print_message("SKIP: this processor has no AVX2\n");
        skip();
    }
    const expectation training = {{"conv_block", "conv_block_grad", "dense_act", "cross_entropy_step"},
                                  {"conv2d", "max_pool2d", "avg_pool2d_grad", "relu", "add", "in_top_k"}},
                      evaluation = {{"conv_block", "dense_act"}, {"conv2d", "relu", "max_pool2d", "add"}};
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    network net = small_network(device);
    check(&net, device, &training, 1e-5);
    net.fn = evaluate_small;
    net.n_out = 1;
    check(&net, device, &evaluation, 1e-5);
    lk_scope_end();
    lk_device_release(device);
}

/* Channels that fill blocks: only the first convolution stays as it was. One uses Winograd's algorithm, one does not,
 * one comes before a pooling; all results equal those of the separate operators. */
static lk_tensor *blocks_forward(network *net, lk_tensor *x)
{
    lk_tensor *const *p = net->parameters;
    lk_conv2d_opts same = {.padding = {1, 1}}, halved = {.stride = {2, 2}, .padding = {1, 1}};
    x = lk_relu(lk_conv2d(x, p[0], NULL, &same));
    x = lk_relu(lk_conv2d(x, p[1], p[2], &same));
    x = lk_relu(lk_conv2d(x, p[3], p[4], &halved));
    x = lk_max_pool2d(lk_relu(lk_conv2d(x, p[5], NULL, &same)), &(lk_pool2d_opts){.kernel = {2, 2}});
    return lk_matmul(lk_reshape(x, LK_SHAPE(IMAGES, 16 * 4 * 4)), p[6]);
}

static lk_status train_blocks(void *user, lk_tensor *const *in, lk_tensor **out)
{
    return train(user, in, blocks_forward, out);
}

static void convolutions_in_blocks_are_fused_with_relu(void **state)
{
    (void)state;
    if (!lk__isa() || lk__isa()->width != 8) {
        print_message("SKIP: not with this instruction set\n");
        skip();
    }
    const expectation e = {{"conv2d", "conv_block", "conv_block_grad", "max_pool2d"}, {"conv2d_input_grad"}};
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    network net = {.fn = train_blocks, .n_parameters = 7, .n_out = 9};
    net.parameters[0] = numbers(device, LK_SHAPE(16, 3, 3, 3), 1);
    net.parameters[1] = numbers(device, LK_SHAPE(16, 16, 3, 3), 2);
    net.parameters[2] = numbers(device, LK_SHAPE(16), 3);
    net.parameters[3] = numbers(device, LK_SHAPE(24, 16, 3, 3), 4);
    net.parameters[4] = numbers(device, LK_SHAPE(24), 5);
    net.parameters[5] = numbers(device, LK_SHAPE(16, 24, 3, 3), 6);
    net.parameters[6] = numbers(device, LK_SHAPE(16 * 4 * 4, CLASSES), 7);
    make_inputs(&net, device, 3, 16);
    check(&net, device, &e, 0);
    lk_scope_end();
    lk_device_release(device);
}

/* The bias is made between the product and the sum. */
static lk_status late_bias(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const network *net = user;
    lk_tensor *y = lk_matmul(lk_reshape(in[0], LK_SHAPE(IMAGES, 9 * 4)), net->parameters[0]);
    y = lk_add(y, lk_mul_scalar(net->parameters[1], 2));
    out[0] = lk_relu(y);
    out[1] = lk_matmul(out[0], lk_transpose(net->parameters[0], 0, 1));
    return lk_error_status();
}

static void late_biases_are_fused(void **state)
{
    (void)state;
    const expectation e = {{"dense_act", "mul", "matmul"}, {"add", "relu"}};
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    network net = {.fn = late_bias, .n_parameters = 2, .n_out = 2};
    net.parameters[0] = numbers(device, LK_SHAPE(9 * 4, 12), 1);
    net.parameters[1] = numbers(device, LK_SHAPE(12), 2);
    make_inputs(&net, device, 4, 3);
    check(&net, device, &e, 1e-5);
    lk_scope_end();
    lk_device_release(device);
}

/* Hits of some samples, or among some classes, are not those that cross_entropy_step counts. */
static lk_status train_with_some_hits(void *user, lk_tensor *const *in, lk_tensor **out)
{
    network *net = user;
    lk_tape *tape = lk_tape_begin(net->parameters, net->n_parameters);
    if (!tape)
        return lk_error_status();
    lk_tensor *logits = lk_matmul(lk_flatten(in[0]), net->parameters[0]);
    out[1] = lk_smoothed_cross_entropy(logits, in[1], 0.1, LK_REDUCTION_SUM);
    out[2] = lk_sum(lk_slice(lk_in_top_k(logits, in[1], 2 * CLASSES), 0, 1, IMAGES), NULL);
    out[3] = lk_sum(lk_in_top_k(lk_slice(logits, 1, 0, CLASSES), in[1], 1), NULL);
    lk_status status = lk_tape_gradient(tape, out[1], in[2], out);
    lk_tape_release(tape);
    return status;
}

static void hits_of_views_are_left_alone(void **state)
{
    (void)state;
    const expectation e = {{"cross_entropy_step", "in_top_k", "sum"}, {NULL}};
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    network net = {.fn = train_with_some_hits, .n_parameters = 1, .n_out = 4};
    net.parameters[0] = numbers(device, LK_SHAPE(9 * 4, 2 * CLASSES), 1);
    make_inputs(&net, device, 4, 3);
    check(&net, device, &e, 1e-5);
    lk_scope_end();
    lk_device_release(device);
}

/* --- batch_norm_act ----------------------------------------------------------------------------------------------- */

enum { CHANNELS = 16 };

/* A norm with relu, one with a residual, and one whose result has another reader too. */
static lk_tensor *residual_forward(network *net, lk_tensor *x, lk_tensor **sums)
{
    lk_tensor *const *p = net->parameters;
    lk_conv2d_opts same = {.padding = {1, 1}};
    lk_tensor *stem = lk_relu(lk_batch_norm(lk_conv2d(x, p[0], NULL, &same), p[1], p[2], 1e-5, &sums[0]));
    lk_tensor *y = lk_batch_norm(lk_conv2d(stem, p[3], NULL, &same), p[4], p[5], 1e-5, &sums[1]);
    y = lk_relu(lk_add(y, stem));
    lk_tensor *last = lk_batch_norm(y, p[1], p[2], 1e-5, NULL);
    return lk_add(lk_relu(last), last);
}

static lk_tensor *logits_of(network *net, lk_tensor *y)
{
    y = lk_reshape(lk_global_avg_pool2d(y), LK_SHAPE(IMAGES, CHANNELS));
    return lk_matmul(y, net->parameters[6]);
}

static lk_tensor *sums[2];

static lk_tensor *residual_logits(network *net, lk_tensor *x)
{
    return logits_of(net, residual_forward(net, x, sums));
}

static lk_status train_residual(void *user, lk_tensor *const *in, lk_tensor **out)
{
    network *net = user;
    lk_status status = train(net, in, residual_logits, out);
    out[net->n_parameters + 2] = sums[0];
    out[net->n_parameters + 3] = sums[1];
    return status;
}

static void batch_norms_are_fused(void **state)
{
    (void)state;
    const expectation training = {{"batch_norm_act", "batch_norm_act_grad", "batch_norm", "relu"}, {NULL}};
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    network net = {.fn = train_residual, .n_parameters = 7, .n_out = 11};
    net.parameters[0] = numbers(device, LK_SHAPE(CHANNELS, 3, 3, 3), 1);
    net.parameters[1] = numbers(device, LK_SHAPE(CHANNELS), 2);
    net.parameters[2] = numbers(device, LK_SHAPE(CHANNELS), 3);
    net.parameters[3] = numbers(device, LK_SHAPE(CHANNELS, CHANNELS, 3, 3), 4);
    net.parameters[4] = numbers(device, LK_SHAPE(CHANNELS), 5);
    net.parameters[5] = numbers(device, LK_SHAPE(CHANNELS), 6);
    net.parameters[6] = numbers(device, LK_SHAPE(CHANNELS, CLASSES), 7);
    make_inputs(&net, device, 3, 9);
    check(&net, device, &training, 1e-5);
    lk_scope_end();
    lk_device_release(device);
}

/* The oracle's kernels are not fast: on its device only the loss is fused. */
static void the_reference_is_left_alone(void **state)
{
    (void)state;
    const expectation training = {{"conv2d", "relu", "max_pool2d", "avg_pool2d_grad"},
                                  {"conv_block", "conv_block_grad", "dense_act", "batch_norm_act"}};
    lk_device *device = open_device("ref");
    lk_scope_begin();
    network net = small_network(device);
    check(&net, device, &training, 0);
    lk_scope_end();
    lk_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_networks_are_fused), cmocka_unit_test(convolutions_in_blocks_are_fused_with_relu),
        cmocka_unit_test(late_biases_are_fused),    cmocka_unit_test(hits_of_views_are_left_alone),
        cmocka_unit_test(batch_norms_are_fused),    cmocka_unit_test(the_reference_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
