/* Tests the passes that GPUs fuse with batch-norm, in blocks like those of a WideResNet: the bits of the operators. On
 * the GPU that $LOCKSTEP_TEST_DEVICES names, and on a processor, which keeps the operators. */
#include "program/program.h"

#include "core/tensor.h"
#include "ops/ops.h"
#include "lockstep/autograd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "program/program_testing.h"

enum { IMAGES = 6, CHANNELS = 16, BLOCKS = 2, OF_A_BLOCK = 8, OF_SHORTCUT = 2, INPUTS = 2 };
enum { SHORTCUT = BLOCKS * OF_A_BLOCK, HEAD = SHORTCUT + OF_SHORTCUT };
enum { PARAMETERS = HEAD + OF_SHORTCUT, OUTPUTS = PARAMETERS + 1 };

/* Each block has weights, bias, gamma and beta of two layers. The weights and biases of the shortcut and of the head,
 * which is behind max pooling, follow. */
typedef struct network {
    lk_tensor *parameters[PARAMETERS];
    lk_dtype dtype;
    uint64_t step;
} network;

static network make_network(lk_device *device, lk_dtype dtype, int64_t channels)
{
    network net = {.dtype = dtype};
    for (int i = 0; i < PARAMETERS; i++) {
        int64_t kernel = i < SHORTCUT ? 3 : 1;
        bool weights = i < SHORTCUT ? i % 4 == 0 : i % 2 == 0;
        net.parameters[i] =
            numbers(device, weights ? LK_SHAPE(channels, channels, kernel, kernel) : LK_SHAPE(channels), i);
    }
    return net;
}

static lk_tensor *convolve(const network *net, lk_tensor *x, int at)
{
    lk_tensor *const *p = net->parameters + at;
    int64_t padding = lk_tensor_shape(p[0]).dim[2] / 2;
    return lk_conv2d(x, lk_cast(p[0], net->dtype), lk_cast(p[1], net->dtype),
                     &(lk_conv2d_opts){.padding = {padding, padding}});
}

static lk_tensor *normalize(const network *net, lk_tensor *x, int at)
{
    return lk_relu(lk_batch_norm(x, net->parameters[at], net->parameters[at + 1], 1e-3, NULL));
}

static lk_tensor *block(const network *net, lk_tensor *x, lk_tensor *indices, int at)
{
    lk_tensor *y = normalize(net, convolve(net, x, at), at + 2);
    y = lk_dropout(y, indices, 0.3, (lk_random_key){.seed = 1, .purpose = 1 + (uint64_t)at, .epoch = net->step});
    return normalize(net, convolve(net, y, at + 4), at + 6);
}

static lk_status train(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const network *net = user;
    lk_tape *tape = lk_tape_begin(net->parameters, PARAMETERS);
    if (!tape)
        return lk_error_status();
    lk_tensor *x = lk_cast(in[0], net->dtype);
    x = lk_add(block(net, x, in[1], 0), convolve(net, x, SHORTCUT));
    x = lk_max_pool2d(lk_add(block(net, x, in[1], OF_A_BLOCK), x), &(lk_pool2d_opts){.kernel = {2, 2}});
    x = lk_add(convolve(net, x, HEAD), x);
    out[PARAMETERS] = lk_sum(lk_mul(x, x), NULL);
    lk_status status = lk_tape_gradient(tape, out[PARAMETERS], NULL, out);
    lk_tape_release(tape);
    return status;
}

/* As in a ResNet, relu comes after the sum with the shortcut. In bf16 the fused operator rounds less often. */
static lk_tensor *relu_last_block(const network *net, lk_tensor *x, lk_tensor *shortcut, int at)
{
    lk_tensor *const *p = net->parameters + at;
    lk_tensor *y = convolve(net, normalize(net, convolve(net, x, at), at + 2), at + 4);
    return lk_relu(lk_add(lk_batch_norm(y, p[6], p[7], 1e-3, NULL), shortcut));
}

static lk_status train_with_relu_last(void *user, lk_tensor *const *in, lk_tensor **out)
{
    const network *net = user;
    lk_tape *tape = lk_tape_begin(net->parameters, PARAMETERS);
    if (!tape)
        return lk_error_status();
    lk_tensor *x = lk_cast(in[0], net->dtype);
    x = relu_last_block(net, x, convolve(net, x, SHORTCUT), 0);
    x = relu_last_block(net, x, x, OF_A_BLOCK);
    x = lk_add(convolve(net, x, HEAD), x);
    out[PARAMETERS] = lk_sum(lk_mul(x, x), NULL);
    lk_status status = lk_tape_gradient(tape, out[PARAMETERS], NULL, out);
    lk_tape_release(tape);
    return status;
}

static void make_inputs(lk_device *device, int64_t channels, int64_t side, int seed, lk_tensor **in)
{
    int64_t indices[IMAGES];
    for (int i = 0; i < IMAGES; i++)
        indices[i] = 100 * seed + i;
    in[0] = numbers(device, LK_SHAPE(IMAGES, channels, side, side), seed);
    in[1] = lk_tensor_from(device, LK_I64, LK_SHAPE(IMAGES), indices);
}

/* The sides make images whose number of pixels is, and is not, a multiple of four; 13 channels are no packs. */
static lk_program *check_bits(lk_device *device, lk_program_fn step, lk_dtype dtype, int64_t channels, int64_t side)
{
    network net = make_network(device, dtype, channels);
    lk_tensor *in[INPUTS];
    make_inputs(device, channels, side, 0, in);
    lk_program *program =
        lk_program_record(device, step, &net, in, INPUTS, OUTPUTS, &(lk_program_opts){.fuse = true, .graphs = true});
    if (!program)
        fail_msg("%s", lk_error_message());
    for (int i = 0; i < 3; i++) {
        lk_tensor *have[OUTPUTS], *want[OUTPUTS] = {NULL};
        net.step = (uint64_t)i << 31;
        make_inputs(device, channels, side, i, in);
        assert_ok(step(&net, in, want));
        assert_ok(lk_program_run(program, in, net.step, have));
        for (int j = 0; j < OUTPUTS; j++)
            expect_equal(have[j], want[j]);
    }
    return program;
}

static void gpus_fuse_everything_around_a_norm(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{CHANNELS, 6}, {CHANNELS, 5}, {13, 6}, {13, 5}};
    lk_device *device = open_gpu();
    for (int i = 0; i < 8; i++) {
        lk_scope_begin();
        lk_program *program = check_bits(device, train, i < 4 ? LK_BF16 : LK_F32, sizes[i % 4][0], sizes[i % 4][1]);
        assert_int_equal(count_of(program, LK_OP_BATCH_NORM_DROP), BLOCKS);
        assert_int_equal(count_of(program, LK_OP_BATCH_NORM_DROP_GRAD), BLOCKS);
        assert_int_equal(count_of(program, LK_OP_BATCH_NORM_ACT), 1);
        assert_int_equal(count_of(program, LK_OP_BATCH_NORM_ACT_GRAD), 1);
        assert_int_equal(count_of(program, LK_OP_BATCH_NORM_POOL), 1);
        assert_int_equal(count_of(program, LK_OP_BATCH_NORM_POOL_GRAD), 1);
        static const int gone[] = {LK_OP_BATCH_NORM, LK_OP_BATCH_NORM_GRAD, LK_OP_RELU,           LK_OP_RELU_GRAD,
                                   LK_OP_DROPOUT,    LK_OP_MAX_POOL2D,      LK_OP_MAX_POOL2D_GRAD};
        for (size_t k = 0; k < sizeof gone / sizeof *gone; k++)
            assert_int_equal(count_of(program, gone[k]), 0);
        assert_int_equal(count_of(program, LK_OP_ADD), 2); /* the head, and the gradient of its square */
        int biases = 0;
        for (int k = 0; k < program->n_calls; k++) {
            const lk_call *call = &program->calls[k];
            biases += call->op->id == LK_OP_CONV2D_WEIGHT_GRAD && call->n_out == 2;
        }
        assert_int_equal(biases, 1); /* that of the head too */
        lk_program_release(program);
        lk_scope_end();
    }
    lk_device_release(device);
}

static void gpus_fuse_sums_before_relu(void **state)
{
    (void)state;
    lk_device *device = open_gpu();
    lk_scope_begin();
    lk_program *program = check_bits(device, train_with_relu_last, LK_F32, CHANNELS, 6);
    assert_int_equal(count_of(program, LK_OP_BATCH_NORM_ACT_GRAD), 2 * BLOCKS);
    assert_int_equal(count_of(program, LK_OP_RELU_GRAD), 0);
    assert_int_equal(count_of(program, LK_OP_ADD), 2); /* the head, and the gradient of its square */
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

static void processors_keep_dropout_and_last_sums(void **state)
{
    (void)state;
    lk_device *device = open_device("cpu");
    lk_scope_begin();
    network net = make_network(device, LK_F32, CHANNELS);
    lk_tensor *in[INPUTS];
    make_inputs(device, CHANNELS, 6, 0, in);
    lk_program *program = lk_program_record(device, train, &net, in, INPUTS, OUTPUTS, &(lk_program_opts){.fuse = true});
    assert_non_null(program);
    assert_int_equal(count_of(program, LK_OP_DROPOUT), 2 * BLOCKS);
    assert_int_equal(count_of(program, LK_OP_BATCH_NORM_DROP), 0);
    assert_true(count_of(program, LK_OP_ADD) > 2);
    lk_program_release(program);
    lk_scope_end();
    lk_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_fuse_everything_around_a_norm),
        cmocka_unit_test(gpus_fuse_sums_before_relu),
        cmocka_unit_test(processors_keep_dropout_and_last_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
