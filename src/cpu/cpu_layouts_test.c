/* Between convolutions nothing is converted: batch-norm, activations, residual sums, dropout and pooling keep the
 * layouts that they find, forward and backward. The prepared calls of a device show every conversion. */
#include "base/status.h"
#include "core/device_testing.h"
#include "core/backend.h"
#include "core/release_testing.h"
#include "core/tensor.h"
#include "cpu/onednn/cpu_state.h"
#include "cpu/isa.h"
#include "lockstep/autograd.h"
#include "lockstep/ops.h"
#include "lockstep/program.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

static lk_tensor *numbers(lk_device *device, lk_shape shape, uint64_t purpose)
{
    lk_tensor *x = lk_uniform(device, LK_F32, shape, -0.5, 0.5, (lk_random_key){.seed = 7, .purpose = purpose});
    assert_non_null(x);
    return x;
}

/* --- a network ---------------------------------------------------------------------------------------------------- */

enum { IMAGES = 4, CHANNELS = 16, SIZE = 8, PARAMETERS = 8 };

typedef struct network {
    lk_tensor *x, *labels, *indices;
    lk_tensor *parameters[PARAMETERS]; /* two convolutions, gamma and beta, a shortcut, … */
    lk_tensor *gradients[PARAMETERS];
    lk_tensor *loss;
} network;

static void make_network(network *net, lk_device *device)
{
    int64_t samples[IMAGES] = {3, 1, 4, 15};
    int32_t labels[IMAGES] = {0, 1, 2, 3};
    const lk_shape shapes[PARAMETERS] = {LK_SHAPE(CHANNELS, 3, 3, 3),        LK_SHAPE(CHANNELS),   LK_SHAPE(CHANNELS),
                                         LK_SHAPE(CHANNELS, CHANNELS, 3, 3), LK_SHAPE(CHANNELS),   LK_SHAPE(CHANNELS),
                                         LK_SHAPE(CHANNELS, CHANNELS, 1, 1), LK_SHAPE(CHANNELS, 5)};
    net->x = numbers(device, LK_SHAPE(IMAGES, 3, SIZE, SIZE), 100);
    net->labels = lk_tensor_from(device, LK_I32, LK_SHAPE(IMAGES), labels);
    net->indices = lk_tensor_from(device, LK_I64, LK_SHAPE(IMAGES), samples);
    for (int i = 0; i < PARAMETERS; i++)
        net->parameters[i] = numbers(device, shapes[i], (uint64_t)i);
}

/* A wide residual block: conv, batch-norm, relu, dropout, conv, batch-norm, + conv, relu, pooling, dense. */
static void train_network(network *net)
{
    lk_conv2d_opts same = {.padding = {1, 1}};
    lk_tensor **p = net->parameters;
    lk_tape *tape = lk_tape_begin(p, PARAMETERS);
    assert_non_null(tape);
    lk_tensor *stem = lk_relu(lk_batch_norm(lk_conv2d(net->x, p[0], NULL, &same), p[1], p[2], 1e-5, NULL));
    lk_tensor *y = lk_dropout(stem, net->indices, 0.25, (lk_random_key){.seed = 1, .purpose = 2});
    y = lk_batch_norm(lk_conv2d(y, p[3], NULL, &same), p[4], p[5], 1e-5, NULL);
    y = lk_relu(lk_add(y, lk_conv2d(stem, p[6], NULL, NULL)));
    y = lk_max_pool2d(y, &(lk_pool2d_opts){.kernel = {2, 2}});
    y = lk_matmul(lk_reshape(lk_global_avg_pool2d(y), LK_SHAPE(IMAGES, CHANNELS)), p[7]);
    net->loss = lk_sparse_softmax_cross_entropy(y, net->labels, LK_REDUCTION_MEAN);
    assert_non_null(net->loss);
    assert_int_equal(lk_tape_gradient(tape, net->loss, NULL, net->gradients), LK_OK);
    lk_tape_release(tape);
}

/* --- conversions -------------------------------------------------------------------------------------------------- */

static bool is_activation(const lk_operand *operand)
{
    return operand->argument == DNNL_ARG_SRC || operand->argument == DNNL_ARG_DST ||
           operand->argument == DNNL_ARG_DIFF_SRC || operand->argument == DNNL_ARG_DIFF_DST;
}

static int conversions_in(const lk_prepared *prepared)
{
    int n = strcmp(prepared->op, "convert") == 0;
    for (int i = 0; i < prepared->n_operands; i++)
        if (strncmp(prepared->op, "conv2d", 6) == 0 && is_activation(&prepared->operands[i]))
            n += prepared->operands[i].reorder != NULL;
    return n;
}

static int conversions_on(lk_device *device)
{
    int n = 0;
    const lk_cpu *cpu = device->state;
    assert_int_equal(lk_device_sync(device), LK_OK);
    for (int i = 0; i < LK_CPU_BUCKETS; i++)
        for (const lk_prepared *prepared = cpu->buckets[i]; prepared; prepared = prepared->next)
            n += conversions_in(prepared);
    return n;
}

/* The images that enter the network may be converted; the pooled activations are, to become a matrix, and their
 * gradient may be. The pooling itself keeps its layout. */
static void a_network_converts_at_its_ends_only(void **state)
{
    (void)state;
    network net;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    make_network(&net, device);
    train_network(&net);
    int conversions = conversions_on(device);
    if (conversions > 3)
        fail_msg("%d conversions; 3 at the ends are fine", conversions);
    lk_scope_end();
    lk_device_release(device);
}

static void gradients_agree_with_the_reference(void **state)
{
    (void)state;
    network have, want;
    lk_device *cpu = open_device("cpu"), *ref = open_device("ref");
    lk_scope_begin();
    make_network(&have, cpu);
    make_network(&want, ref);
    train_network(&have);
    train_network(&want);
    for (int i = 0; i < PARAMETERS; i++) {
        float a[CHANNELS * CHANNELS * 9], b[CHANNELS * CHANNELS * 9];
        size_t bytes = (size_t)lk_tensor_count(have.gradients[i]) * sizeof(float);
        assert_int_equal(lk_tensor_read(have.gradients[i], a, bytes), LK_OK);
        assert_int_equal(lk_tensor_read(want.gradients[i], b, bytes), LK_OK);
        for (int64_t j = 0; j < lk_tensor_count(have.gradients[i]); j++)
            assert_float_equal(a[j], b[j], 1e-5);
    }
    lk_scope_end();
    lk_device_release(cpu);
    lk_device_release(ref);
}

/* --- layouts, one by one ------------------------------------------------------------------------------------------ */

static const void *layout_of(lk_tensor *x)
{
    assert_int_equal(lk_tensor_wait(x), LK_OK);
    return x->storage->layout;
}

static void outputs_take_over_the_layout(void **state)
{
    (void)state;
    int64_t samples[2] = {0, 1};
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *x =
        lk_conv2d(numbers(device, LK_SHAPE(2, 8, 6, 6), 1), numbers(device, LK_SHAPE(20, 8, 3, 3), 2), NULL, NULL);
    lk_tensor *plain = numbers(device, LK_SHAPE(2, 20, 4, 4), 3);
    lk_tensor *gamma = numbers(device, LK_SHAPE(20), 4), *beta = numbers(device, LK_SHAPE(20), 5);
    lk_tensor *indices = lk_tensor_from(device, LK_I64, LK_SHAPE(2), samples), *sums;
    const void *layout = layout_of(x);
    assert_non_null(layout);
    assert_ptr_equal(layout_of(lk_batch_norm(x, gamma, beta, 1e-5, &sums)), layout);
    assert_ptr_equal(layout_of(lk_batch_norm_with(x, gamma, beta, lk_channel_sums(x), 32, 1e-5)), layout);
    assert_ptr_equal(layout_of(lk_batch_norm_inference(x, gamma, beta, beta, lk_mul(beta, beta), 1e-5)), layout);
    assert_ptr_equal(layout_of(lk_group_norm(x, gamma, beta, &(lk_group_norm_opts){.groups = 4})), layout);
    assert_ptr_equal(layout_of(lk_dropout(x, indices, 0.5, (lk_random_key){0})), layout);
    assert_ptr_equal(layout_of(lk_dropout(x, indices, 0, (lk_random_key){0})), layout);
    assert_ptr_equal(layout_of(lk_gelu(x)), layout);
    assert_ptr_equal(layout_of(lk_add(x, x)), layout);
    assert_ptr_equal(layout_of(lk_sub(plain, x)), layout);
    assert_ptr_equal(layout_of(lk_mul(x, plain)), layout);
    assert_null(layout_of(lk_add(plain, plain)));
    assert_null(layout_of(sums));
    lk_scope_end();
    lk_device_release(device);
}

/* Padding must stay 0. sigmoid and softplus would make other numbers of it, so they take over layouts without padding
 * only. */
static void padding_stays_zero(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *weights = numbers(device, LK_SHAPE(16, 8, 3, 3), 1);
    lk_tensor *full = lk_conv2d(numbers(device, LK_SHAPE(16, 8, 6, 6), 2), weights, NULL, NULL);
    lk_tensor *padded = lk_conv2d(numbers(device, LK_SHAPE(2, 8, 6, 6), 3), lk_slice(weights, 0, 0, 13), NULL, NULL);
    assert_non_null(layout_of(full));
    assert_ptr_equal(layout_of(lk_sigmoid(full)), layout_of(full));
    assert_ptr_equal(layout_of(lk_softplus(full)), layout_of(full));
    assert_non_null(layout_of(padded));
    assert_null(layout_of(lk_sigmoid(padded)));
    assert_null(layout_of(lk_softplus(padded)));
    assert_ptr_equal(layout_of(lk_tanh(padded)), layout_of(padded));
    lk_scope_end();
    lk_device_release(device);
}

/* --- sums of two tensors ------------------------------------------------------------------------------------------ */

/* Sums into a view with gaps, in place, onto itself, repeated and transposed. */
static lk_tensor *sums_of_views(lk_device *device)
{
    lk_tensor *a = numbers(device, LK_SHAPE(6, 7), 1), *b = numbers(device, LK_SHAPE(7, 6), 2);
    lk_tensor *row = numbers(device, LK_SHAPE(7), 3), *y = lk_add(a, lk_transpose(b, 0, 1));
    y = lk_mul(lk_sub(y, row), lk_expand(row, LK_SHAPE(6, 7)));
    lk_tensor *columns = lk_slice(y, 1, 2, 5);
    assert_int_equal(lk_add_into(columns, columns, lk_slice(a, 1, 0, 3)), LK_OK);
    assert_int_equal(lk_add_into(y, y, y), LK_OK);
    lk_tensor *rows = lk_slice(y, 0, 1, 4);
    assert_int_equal(lk_add_into(rows, rows, lk_slice(a, 0, 3, 6)), LK_OK);
    lk_tensor *none = lk_slice(y, 0, 2, 2);
    assert_int_equal(lk_add_into(none, none, lk_slice(a, 0, 0, 0)), LK_OK);
    return y;
}

static void sums_of_views_have_the_references_bits(void **state)
{
    (void)state;
    float have[42], want[42];
    lk_device *cpu = open_device("cpu"), *ref = open_device("ref");
    lk_scope_begin();
    assert_int_equal(lk_tensor_read(sums_of_views(cpu), have, sizeof have), LK_OK);
    assert_int_equal(lk_tensor_read(sums_of_views(ref), want, sizeof want), LK_OK);
    assert_memory_equal(have, want, sizeof have);
    lk_scope_end();
    lk_device_release(cpu);
    lk_device_release(ref);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

typedef struct expected_name {
    const char *op, *problem, *prefix;
    int seen;
} expected_name;

static void look_for(void *user, const char *op, const char *problem, const char *implementation)
{
    for (expected_name *e = user; e->op; e++)
        if (strcmp(op, e->op) == 0 && strcmp(problem, e->problem) == 0) {
            if (strncmp(implementation, e->prefix, strlen(e->prefix)) != 0)
                fail_msg("%s (%s) runs on %s, not %s", op, problem, implementation, e->prefix);
            e->seen++;
        }
}

/* Returns how the name of the algorithm begins that runs if Winograd's does not. With wide vectors, or without any,
 * oneDNN runs, under any name. */
static const char *direct_name(void)
{
    return lk__isa() && lk__isa()->width == 8 ? "direct:" : "";
}

static void implementations_are_listed(void **state)
{
    (void)state;
    const char *shape = "f32 x[4,16,8,8]";
    /* 16 channels are one block of wide vectors, too few for Winograd's algorithm. */
    const char *own = lk__isa() && lk__isa()->width == 8 ? "winograd:" : "";
    expected_name names[] = {{"batch_norm", shape, "channels", 0},
                             {"batch_norm_grad", shape, "channels", 0},
                             {"dropout", shape, "streams", 0},
                             {"add", "f32 [4,16,8,8]", "elements", 0},
                             {"conv2d", "f32 x[4,16,8,8] w[16,16,3,3] stride 1x1 padding 1x1 dilation 1x1", own, 0},
                             {NULL, NULL, NULL, 0}};
    network net;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    make_network(&net, device);
    train_network(&net);
    assert_int_equal(lk_device_implementations(device, look_for, names), LK_OK);
    for (const expected_name *e = names; e->op; e++)
        if (e->seen != 1)
            fail_msg("%s (%s) is listed %d times", e->op, e->problem, e->seen);
    lk_scope_end();
    lk_device_release(device);
}

/* Runs a convolution of 32 images of 6x8 pixels by 3x3, and its gradients; prefixes in the order of the names below. */
static void expect_algorithms(lk_algorithms algorithms, int64_t channels, int64_t padding,
                              const char *const prefixes[3])
{
    char problem[128];
    snprintf(problem, sizeof problem, "f32 x[32,%lld,6,8] w[%lld,%lld,3,3] stride 1x1 padding %lldx%lld dilation 1x1",
             (long long)channels, (long long)channels, (long long)channels, (long long)padding, (long long)padding);
    expected_name names[] = {{"conv2d", problem, prefixes[0], 0},
                             {"conv2d_input_grad", problem, prefixes[1], 0},
                             {"conv2d_weight_grad", problem, prefixes[2], 0},
                             {NULL, NULL, NULL, 0}};
    lk_conv2d_opts opts = {.padding = {padding, padding}};
    lk_device *device = open_device("cpu");
    lk_device_set_algorithms(device, algorithms);
    lk_scope_begin();
    lk_tensor *operands[] = {numbers(device, LK_SHAPE(32, channels, 6, 8), 1),
                             numbers(device, LK_SHAPE(channels, channels, 3, 3), 2)};
    lk_tensor *gradients[2];
    lk_tape *tape = lk_tape_begin(operands, 2);
    lk_tensor *y = lk_conv2d(operands[0], operands[1], NULL, &opts);
    lk_tensor *dy = numbers(device, LK_SHAPE(32, channels, 4 + 2 * padding, 6 + 2 * padding), 3);
    assert_int_equal(lk_tape_gradient(tape, y, dy, gradients), LK_OK);
    lk_tape_release(tape);
    assert_int_equal(lk_device_implementations(device, look_for, names), LK_OK);
    for (const expected_name *e = names; e->op; e++)
        if (e->seen != 1)
            fail_msg("%s (%s) by %s is listed %d times", e->op, e->problem, e->prefix, e->seen);
    lk_scope_end();
    lk_device_release(device);
}

/* Six rows of eight columns, or four of six, fill three quarters of their tiles. */
static void algorithms_are_those_allowed(void **state)
{
    (void)state;
    if (!lk__isa()) {
        print_message("SKIP: this processor does not have AVX2\n");
        skip();
    }
    const char *const blocks[] = {"winograd:", "winograd:", "winograd:"};
    const char *const direct[] = {direct_name(), direct_name(), direct_name()};
    const char *const lanes[] = {"lanes-winograd:", "lanes-winograd:", "lanes:"};
    const char *const direct_lanes[] = {"lanes:", "lanes:", "lanes:"};
    expect_algorithms(LK_ALGORITHMS_FAST, 32, 1, blocks);
    expect_algorithms(LK_ALGORITHMS_DIRECT, 32, 1, direct);
    expect_algorithms(LK_ALGORITHMS_FAST, 20, 0, lanes);
    expect_algorithms(LK_ALGORITHMS_DIRECT, 20, 0, direct_lanes);
}

/* --- arguments ---------------------------------------------------------------------------------------------------- */

static void a_sample_out_of_range_is_named(void **state)
{
    (void)state;
    int64_t samples[2] = {1, -7};
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *indices = lk_tensor_from(device, LK_I64, LK_SHAPE(2), samples);
    lk_tensor *y = lk_dropout(numbers(device, LK_SHAPE(2, 3), 1), indices, 0.5, (lk_random_key){0});
    assert_int_equal(lk_tensor_wait(y), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "index -7 of sample 1"));
    lk_error_clear();
    lk_scope_end();
    lk_device_release(device);
}

/* Reading an activation leaves its layout alone, so later results keep their bits. */
static void reading_changes_nothing(void **state)
{
    (void)state;
    enum { ELEMENTS = 16 * CHANNELS * 9 * 9 };
    static float seen[ELEMENTS];
    double sums[2][2 * CHANNELS];
    lk_device *device = open_device("cpu:0");
    lk_scope_begin();
    for (int look = 0; look < 2; look++) {
        lk_tensor *x = numbers(device, LK_SHAPE(16, CHANNELS, 9, 9), 1),
                  *w = numbers(device, LK_SHAPE(CHANNELS, CHANNELS, 3, 3), 2);
        lk_tensor *y = lk_conv2d(x, w, NULL, &(lk_conv2d_opts){.padding = {1, 1}});
        assert_int_equal(lk_tensor_wait(y), LK_OK);
        const void *layout = y->storage->layout;
        if (look) {
            assert_int_equal(lk_tensor_read(y, seen, sizeof seen), LK_OK);
            assert_ptr_equal(y->storage->layout, layout);
        }
        assert_int_equal(lk_tensor_read(lk_channel_sums(y), sums[look], sizeof sums[look]), LK_OK);
    }
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
    lk_scope_end();
    lk_device_release(device);
}

/* The device's state is for one thread at a time. */
static void reading_waits_for_a_device_that_is_released(void **state)
{
    (void)state;
    enum { ELEMENTS = 16 * CHANNELS * 9 * 9 };
    static float before[ELEMENTS], after[ELEMENTS];
    slow_release release;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *y =
        lk_conv2d(numbers(device, LK_SHAPE(16, CHANNELS, 9, 9), 1),
                  numbers(device, LK_SHAPE(CHANNELS, CHANNELS, 3, 3), 2), NULL, &(lk_conv2d_opts){.padding = {1, 1}});
    assert_non_null(layout_of(y));
    assert_int_equal(lk_tensor_read(y, before, sizeof before), LK_OK);
    hold_up(&release, device);
    begin_release(&release);
    assert_int_equal(lk_tensor_read(y, after, sizeof after), LK_OK);
    assert_true(atomic_load(&release.has_run));
    assert_memory_equal(before, after, sizeof before);
    end_release(&release);
    assert_int_equal(lk_tensor_write(y, before, sizeof before), LK_OK);
    lk_scope_end();
}

/* The read is no part of the program. */
static lk_status read_while_recording(void *user, lk_tensor *const *in, lk_tensor **out)
{
    float seen[CHANNELS * 4];
    LK_TRY(lk_tensor_read(user, seen, sizeof seen));
    out[0] = lk_add_scalar(in[0], seen[0]);
    return lk_error_status();
}

static void tensors_are_read_while_a_program_is_recorded(void **state)
{
    (void)state;
    float seen[CHANNELS * 4], sum;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    lk_tensor *y = lk_conv2d(numbers(device, LK_SHAPE(1, CHANNELS, 4, 4), 1),
                             numbers(device, LK_SHAPE(CHANNELS, CHANNELS, 3, 3), 2), NULL, NULL);
    assert_non_null(layout_of(y));
    lk_tensor *in[] = {lk_zeros(device, LK_F32, LK_SHAPE(1))}, *out[1];
    lk_program *program = lk_program_record(device, read_while_recording, y, in, 1, 1, NULL);
    assert_non_null(program);
    assert_int_equal(lk_program_run(program, in, 0, out), LK_OK);
    assert_int_equal(lk_tensor_read(out[0], &sum, sizeof sum), LK_OK);
    assert_int_equal(lk_tensor_read(y, seen, sizeof seen), LK_OK);
    assert_float_equal(sum, seen[0], 0);
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_network_converts_at_its_ends_only),
        cmocka_unit_test(gradients_agree_with_the_reference),
        cmocka_unit_test(outputs_take_over_the_layout),
        cmocka_unit_test(padding_stays_zero),
        cmocka_unit_test(sums_of_views_have_the_references_bits),
        cmocka_unit_test(reading_changes_nothing),
        cmocka_unit_test(reading_waits_for_a_device_that_is_released),
        cmocka_unit_test(tensors_are_read_while_a_program_is_recorded),
        cmocka_unit_test(implementations_are_listed),
        cmocka_unit_test(algorithms_are_those_allowed),
        cmocka_unit_test(a_sample_out_of_range_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
