/* Tests what programs fuse at the two ends of a small network, relu with pooling and the loss with the casts around it:
 * the bits of the operators. On the GPU that $LOCKSTEP_TEST_DEVICES names, and on a processor. */
#include "program/program.h"

#include "core/tensor.h"
#include "ops/ops.h"
#include "lockstep/autograd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "program/program_testing.h"

enum { IMAGES = 7, SIDE = 11, CHANNELS = 8, POOLED = 4, CLASSES = 10, INPUTS = 3 };
enum { WEIGHTS, DENSE, PARAMETERS, LOSS = PARAMETERS, HITS, OUTPUTS };

typedef struct network {
    lk_tensor *parameters[PARAMETERS];
    lk_dtype dtype;
    bool is_max; /* the pooling */
} network;

static lk_status train(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const network *net = user;
    lk_tape *tape = lk_tape_begin(net->parameters, PARAMETERS);
    if (!tape)
        return lk_error_status();
    lk_tensor *x = lk_conv2d(lk_cast(in[0], net->dtype), lk_cast(net->parameters[WEIGHTS], net->dtype), NULL, NULL);
    const lk_pool2d_opts pool = {.kernel = {2, 2}};
    x = net->is_max ? lk_max_pool2d(lk_relu(x), &pool) : lk_avg_pool2d(lk_relu(x), &pool);
    x = lk_matmul(lk_reshape(x, LK_SHAPE(IMAGES, -1)), lk_cast(net->parameters[DENSE], net->dtype));
    lk_tensor *logits = lk_cast(x, LK_F32);
    out[LOSS] = lk_smoothed_cross_entropy(logits, in[1], 0.1, LK_REDUCTION_SUM);
    out[HITS] = lk_sum(lk_in_top_k(logits, in[1], 1), NULL);
    lk_status status = lk_tape_gradient(tape, out[LOSS], in[2], out);
    lk_tape_release(tape);
    return status;
}

static void make_inputs(lk_device *device, lk_dtype labels, int seed, lk_tensor **in)
{
    int64_t values[IMAGES];
    for (int i = 0; i < IMAGES; i++)
        values[i] = (3 * i + seed) % CLASSES;
    in[0] = numbers(device, LK_SHAPE(IMAGES, 1, SIDE, SIDE), seed);
    in[1] = lk_cast(lk_tensor_from(device, LK_I64, LK_SHAPE(IMAGES), values), labels);
    in[2] = lk_full(device, LK_F32, LK_SCALAR, 1.0 / (1 + seed));
    assert_true(in[1] && in[2]);
}

/* Returns the program whose results had the bits of the operators. */
static lk_program *check_bits(lk_device *device, lk_dtype dtype, lk_dtype labels, bool is_max)
{
    network net = {.dtype = dtype, .is_max = is_max};
    lk_tensor *in[INPUTS];
    net.parameters[WEIGHTS] = numbers(device, LK_SHAPE(CHANNELS, 1, 3, 3), 1);
    net.parameters[DENSE] = numbers(device, LK_SHAPE(CHANNELS * POOLED * POOLED, CLASSES), 2);
    make_inputs(device, labels, 0, in);
    lk_program *program =
        lk_program_record(device, train, &net, in, INPUTS, OUTPUTS, &(lk_program_opts){.fuse = true, .graphs = true});
    if (!program)
        fail_msg("%s", lk_error_message());
    for (int i = 0; i < 3; i++) {
        lk_tensor *have[OUTPUTS], *want[OUTPUTS] = {NULL};
        make_inputs(device, labels, i, in);
        assert_ok(train(&net, in, want));
        assert_ok(lk_program_run(program, in, 0, have));
        for (int j = 0; j < OUTPUTS; j++)
            expect_equal(have[j], want[j]);
    }
    return program;
}

/* Fails unless the loss reads logits of this dtype. */
static void expect_logits(const lk_program *program, lk_dtype dtype)
{
    assert_int_equal(count_of(program, LK_OP_CROSS_ENTROPY_STEP), 1);
    for (int i = 0; i < program->n_calls; i++)
        if (program->calls[i].op->id == LK_OP_CROSS_ENTROPY_STEP)
            assert_int_equal(program->calls[i].in[1]->dtype, dtype);
}

static void gpus_fuse_both_ends(void **state)
{
    (void)state;
    lk_device *device = open_gpu();
    for (int i = 0; i < 8; i++) {
        lk_dtype dtype = i % 4 < 2 ? LK_BF16 : LK_F32;
        bool is_max = i >= 4;
        lk_scope_begin();
        lk_program *program = check_bits(device, dtype, i % 2 ? LK_I64 : LK_I32, is_max);
        expect_logits(program, dtype);
        assert_int_equal(count_of(program, is_max ? LK_OP_RELU_MAX_POOL2D : LK_OP_RELU_AVG_POOL2D), 1);
        assert_int_equal(count_of(program, is_max ? LK_OP_RELU_MAX_POOL2D_GRAD : LK_OP_RELU_AVG_POOL2D_GRAD), 1);
        assert_int_equal(count_of(program, LK_OP_RELU) + count_of(program, LK_OP_RELU_GRAD), 0);
        lk_program_release(program);
        lk_scope_end();
    }
    lk_device_release(device);
}

static void processors_fuse_the_loss_with_casts(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    for (int i = 0; i < 2; i++) {
        lk_dtype dtype = i ? LK_BF16 : LK_F32;
        lk_scope_begin();
        lk_program *program = check_bits(device, dtype, LK_I32, false);
        expect_logits(program, dtype);
        assert_int_equal(count_of(program, LK_OP_RELU_AVG_POOL2D), 0);
        lk_program_release(program);
        lk_scope_end();
    }
    lk_device_release(device);
}

/* Two losses of the same logits, and the gradient of the second. */
static lk_status watch_another_loss(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const double *smoothing = user;
    lk_tensor *const weights = in[0];
    lk_tape *tape = lk_tape_begin(&weights, 1);
    if (!tape)
        return lk_error_status();
    lk_tensor *logits = lk_matmul(in[0], in[0]);
    out[0] = lk_sparse_softmax_cross_entropy(logits, in[1], LK_REDUCTION_SUM);
    out[1] = *smoothing > 0 ? lk_smoothed_cross_entropy(logits, in[1], *smoothing, LK_REDUCTION_SUM)
                            : lk_sparse_softmax_cross_entropy(logits, in[1], LK_REDUCTION_MEAN);
    lk_status status = lk_tape_gradient(tape, out[1], in[2], out + 2);
    lk_tape_release(tape);
    return status;
}

static void gradients_of_another_loss_are_left_alone(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    for (int i = 0; i < 2; i++) {
        double smoothing = 0.1 * i;
        lk_tensor *in[INPUTS], *have[3], *want[3];
        make_inputs(device, LK_I32, i, in);
        in[0] = numbers(device, LK_SHAPE(IMAGES, IMAGES), i);
        in[1] = lk_full(device, LK_I32, LK_SHAPE(IMAGES), 2);
        lk_program *program = lk_program_record(device, watch_another_loss, &smoothing, in, INPUTS, 3, NULL);
        assert_non_null(program);
        assert_ok(watch_another_loss(&smoothing, in, want));
        assert_ok(lk_program_run(program, in, 0, have));
        for (int j = 0; j < 3; j++)
            expect_equal(have[j], want[j]);
        lk_program_release(program);
    }
    lk_scope_end();
    lk_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_fuse_both_ends),
        cmocka_unit_test(processors_fuse_the_loss_with_casts),
        cmocka_unit_test(gradients_of_another_loss_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
