/* The loss and all gradients of a small network with all layers of ResNets, against PyTorch's in float64, with
 * batch-norm over each shard and over the batch, on one device and on two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockstep/autograd.h"
#include "lockstep/dist.h"
#include "lockstep/nn.h"
#include "torch_reference.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 5, SHARDS = 2, CHANNELS = 2, SIZE = 6, CLASSES = 3, IMAGE = CHANNELS * SIZE * SIZE };
enum { PARAMETERS = 12, ELEMENTS = sizeof sync_gradients / sizeof sync_gradients[0] };

static lk_device *devices[2];

static lk_layer *network(void)
{
    const lk_conv2d_layer_opts same = {.same = true}, half = {.stride = 2, .padding = 1}, every_second = {.stride = 2};
    const lk_batch_norm_layer_opts keras = {.epsilon = 1e-3};
    lk_layer *body = LK_SEQUENTIAL(lk_layer_conv2d(8, 3, &half), lk_layer_batch_norm(&keras));
    return LK_SEQUENTIAL(lk_layer_conv2d(4, 3, &same), lk_layer_batch_norm(NULL), lk_layer_activation(LK_RELU),
                         lk_layer_add(body, lk_layer_conv2d(8, 1, &every_second)), lk_layer_activation(LK_RELU),
                         lk_layer_max_pool(2, &(lk_pool_layer_opts){.stride = 1}), lk_layer_global_avg_pool(),
                         lk_layer_dense(CLASSES, NULL));
}

/* The numbers of torch_reference.py's fill(). */
static lk_tensor *filled(lk_device *device, int tensor, lk_shape shape)
{
    float values[ELEMENTS];
    bool gamma = tensor == 2 || tensor == 6;
    int64_t count = 1;
    for (int d = 0; d < shape.ndim; d++)
        count *= shape.dim[d];
    assert_true(count <= ELEMENTS);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(((double)((i * 37 + tensor * 101 + 11) % 64) - 31.5) / 64 + gamma);
    return lk_tensor_from(device, LK_F32, shape, values);
}

static lk_tensor *images(lk_device *device, lk_range samples)
{
    float values[SAMPLES * IMAGE];
    for (int i = 0; i < SAMPLES * IMAGE; i++)
        values[i] = (float)((i * 53 + 7) % 128) / 128;
    return lk_tensor_from(device, LK_F32, LK_SHAPE(samples.end - samples.begin, CHANNELS, SIZE, SIZE),
                          values + samples.begin * IMAGE);
}

static lk_tensor *labels(lk_device *device, lk_range samples)
{
    const int32_t values[SAMPLES] = {0, 1, 2, 0, 1};
    return lk_tensor_from(device, LK_I32, LK_SHAPE(samples.end - samples.begin), values + samples.begin);
}

static lk_status reduce(void *user, lk_tensor *const *parts, lk_tensor **sums, int n)
{
    (void)user;
    return lk_allreduce_recorded(parts, sums, n);
}

typedef struct outcome {
    double loss, gradients[ELEMENTS];
} outcome;

/* Adds up the shards' losses and gradients. */
static void collect(lk_tensor *const *losses, lk_tensor *const *gradients, const lk_model *model, outcome *out)
{
    memset(out, 0, sizeof *out);
    for (int s = 0; s < SHARDS; s++) {
        double loss;
        assert_int_equal(lk_tensor_item(losses[s], &loss), LK_OK);
        out->loss += loss;
        int at = 0;
        for (int i = 0; i < PARAMETERS; i++) {
            float values[ELEMENTS];
            lk_tensor *gradient = gradients[s * PARAMETERS + i];
            int count = (int)lk_tensor_count(gradient);
            assert_true(at + count <= ELEMENTS);
            assert_int_equal(lk_tensor_read(gradient, values, (size_t)count * sizeof values[0]), LK_OK);
            for (int e = 0; e < count; e++)
                out->gradients[at++] += values[e];
        }
        assert_int_equal(at, ELEMENTS);
    }
    assert_int_equal(lk_model_parameter_count(model), PARAMETERS);
}

static void step(const lk_model *model, int k, bool sync, double smoothing, outcome *out)
{
    lk_tensor *variables[SHARDS][PARAMETERS + 4], *watched[SHARDS * PARAMETERS], *gradients[SHARDS * PARAMETERS];
    lk_tensor *x[SHARDS], *target[SHARDS], *logits[SHARDS], *losses[SHARDS];
    lk_tensor *const *of_shard[SHARDS];
    lk_scope_begin();
    for (int s = 0; s < SHARDS; s++) {
        lk_device *device = devices[s % k];
        lk_range samples = lk_part(SAMPLES, SHARDS, s);
        x[s] = images(device, samples);
        target[s] = labels(device, samples);
        for (int i = 0; i < lk_model_variable_count(model); i++)
            variables[s][i] = filled(device, i, lk_model_variable_shape(model, i));
        memcpy(watched + s * PARAMETERS, variables[s], PARAMETERS * sizeof watched[0]);
        of_shard[s] = variables[s];
    }
    int64_t samples[SHARDS];
    for (int s = 0; s < SHARDS; s++)
        samples[s] = SAMPLES;
    lk_forward_opts opts = {.training = true, .sync = sync ? reduce : NULL, .group_samples = samples};
    lk_tape *tape = lk_tape_begin(watched, SHARDS * PARAMETERS);
    if (lk_model_forward_shards(model, SHARDS, of_shard, x, &opts, logits) != LK_OK)
        fail_msg("%s", lk_error_message());
    for (int s = 0; s < SHARDS; s++)
        losses[s] =
            lk_average_loss(lk_smoothed_cross_entropy(logits[s], target[s], smoothing, LK_REDUCTION_NONE), SAMPLES);
    if (lk_tape_gradients(tape, losses, NULL, SHARDS, gradients) != LK_OK)
        fail_msg("%s", lk_error_message());
    lk_tape_release(tape);
    collect(losses, gradients, model, out);
    lk_scope_end();
}

/* f32 rounds to a few parts in 10^7, which batch-norm's division enlarges. */
static void compare(bool sync, double smoothing, double loss, const double *gradients)
{
    lk_model *model = lk_model_build("small", network(), (lk_model_input){CHANNELS, SIZE, SIZE, CLASSES});
    if (!model)
        fail_msg("%s", lk_error_message());
    outcome one, two;
    step(model, 1, sync, smoothing, &one);
    step(model, 2, sync, smoothing, &two);
    assert_memory_equal(&one, &two, sizeof one);
    if (!(fabs(one.loss - loss) <= 1e-6 * loss))
        fail_msg("loss %.9g, PyTorch %.9g", one.loss, loss);
    for (int i = 0; i < ELEMENTS; i++)
        if (!(fabs(one.gradients[i] - gradients[i]) <= 2e-6))
            fail_msg("gradient element %d is %.9g, PyTorch %.9g", i, one.gradients[i], gradients[i]);
    lk_model_release(model);
}

static void batch_norm_over_the_batch_agrees(void **state)
{
    (void)state;
    compare(true, 0, sync_loss, sync_gradients);
}

static void batch_norm_over_each_shard_agrees(void **state)
{
    (void)state;
    compare(false, 0, shard_loss, shard_gradients);
}

static void smoothed_labels_agree(void **state)
{
    (void)state;
    compare(true, 0.1, smooth_loss, smooth_gradients);
}

static int open_devices(void **state)
{
    (void)state;
    devices[0] = lk_device_open("cpu:0");
    devices[1] = lk_device_open("cpu:1");
    return devices[0] && devices[1] ? 0 : -1;
}

static int close_devices(void **state)
{
    (void)state;
    lk_devices_release(devices, 2);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_norm_over_the_batch_agrees),
        cmocka_unit_test(batch_norm_over_each_shard_agrees),
        cmocka_unit_test(smoothed_labels_agree),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
