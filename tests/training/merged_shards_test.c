/* Shards of a network of dense layers are merged on a CPU device, which changes no bits: neither compared with
 * operators that run one by one, nor with other numbers of devices, nor when a run is resumed. */
#include "training.h"

#include "core/backend.h"
#include "ops/ops.h"
#include "train/trainer.h"

static lk_trainer *dense_trainer(const lk_train_config *config)
{
    lk_dense_layer_opts no_bias = {.no_bias = true};
    lk_layer *root = LK_SEQUENTIAL(lk_layer_flatten(), lk_layer_dense(24, NULL), lk_layer_activation(LK_RELU),
                                   lk_layer_dropout(0.25), lk_layer_dense(20, &no_bias), lk_layer_activation(LK_TANH),
                                   lk_layer_dense(10, NULL));
    lk_error_clear();
    return checked_trainer(lk_trainer_new_with(config, lk_model_build("dense", root, (lk_model_input){1, 28, 28, 10})));
}

/* Batches of 32, 32 and 21; the shards of the last have two sizes. */
static lk_train_config settings(lk_precision dtype)
{
    lk_train_config config = training_of(85, 11, 32, 8);
    config.optimizer.base_lr = 0.05;
    config.execution.dtype = dtype;
    return config;
}

static lk_status build_gate(lk_layer_builder *builder, const void *config, lk_shape in, lk_shape *out)
{
    (void)builder, (void)config;
    *out = LK_SHAPE(1, in.dim[1] / 2);
    return LK_OK;
}

/* The first half of the features times the sigmoid of the others. */
static lk_tensor *forward_gate(lk_layer_call *call, const void *config, lk_tensor *x)
{
    int64_t n = lk_tensor_shape(x).dim[1] / 2;
    (void)call, (void)config;
    return lk_mul(lk_slice(x, 1, 0, n), lk_sigmoid(lk_slice(x, 1, n, 2 * n)));
}

static lk_trainer *gated_trainer(const lk_train_config *config)
{
    static const lk_layer_table gate = {.kind = "gate", .build = build_gate, .forward = forward_gate};
    lk_layer *root = LK_SEQUENTIAL(lk_layer_flatten(), lk_layer_dense(24, NULL), lk_layer_new(&gate, NULL, 0, NULL, 0),
                                   lk_layer_dense(10, NULL));
    lk_error_clear();
    return checked_trainer(lk_trainer_new_with(config, lk_model_build("gated", root, (lk_model_input){1, 28, 28, 10})));
}

static outcome train_on(lk_train_config config, const char *devices)
{
    config.devices.spec = devices;
    return fit_replicas(dense_trainer(&config));
}

/* Eight devices have one shard each, so they merge nothing. */
static outcome expect_equal_bits(lk_train_config config)
{
    static const char *const specs[] = {"1xcpu", "2xcpu", "3xcpu", "5xcpu"};
    outcome want = train_on(config, "8xcpu");
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        outcome have = train_on(config, specs[s]);
        same(&want, &have);
    }
    return want;
}

static void merging_changes_no_bits(void **state)
{
    (void)state;
    lk_train_config config = settings(LK_PRECISION_F32);
    outcome merged = expect_equal_bits(config);
    config.execution.executor = LK_EXECUTOR_EAGER;
    outcome eager = train_on(config, "1xcpu");
    same(&merged, &eager);
    config = settings(LK_PRECISION_F32);
    config.optimizer.label_smoothing = 0.1;
    config.accumulate = 2;
    expect_equal_bits(config);
    config = settings(LK_PRECISION_F32);
    config.execution.fuse = LK_FUSE_OFF;
    config.execution.recompute = true;
    config.data.memory = LK_DATA_ON_DEVICE;
    config.optimizer.name = "adam";
    expect_equal_bits(config);
}

static void merging_changes_no_bits_in_bf16(void **state)
{
    (void)state;
    expect_equal_bits(settings(LK_PRECISION_BF16));
}

/* The gradients of slices are written into zeros, which each shard has. */
static void layers_that_slice_have_equal_bits(void **state)
{
    (void)state;
    lk_train_config config = settings(LK_PRECISION_F32);
    config.devices.spec = "8xcpu";
    outcome want = fit_replicas(gated_trainer(&config));
    config.devices.spec = "1xcpu";
    outcome have = fit_replicas(gated_trainer(&config));
    same(&want, &have);
    config.devices.spec = "2xcpu";
    have = fit_replicas(gated_trainer(&config));
    same(&want, &have);
}

/* One device merges eight shards of 69 or 70 samples three at a time. */
static void large_batches_are_merged_in_runs(void **state)
{
    (void)state;
    for (lk_precision dtype = LK_PRECISION_F32; dtype <= LK_PRECISION_BF16; dtype++) {
        lk_train_config config = settings(dtype);
        config.data.limit_train = 1200;
        config.batch_size = 559;
        expect_equal_bits(config);
    }
}

static void devices_with_one_shard_merge_nothing(void **state)
{
    (void)state;
    static const char *const specs[] = {"1xcpu", "4xcpu", "8xcpu"};
    for (int s = 0; s < 3; s++) {
        lk_train_config config = settings(LK_PRECISION_F32);
        config.devices.spec = specs[s];
        lk_trainer *trainer = dense_trainer(&config);
        const lk_backend *backend = trainer->devices[0]->backend;
        bool can = backend->stays_apart && backend->stays_apart(&(lk_call){.op = &lk__op_matmul}) != LK_APART_NEVER;
        assert_int_equal(trainer->programs.merges, can && s < 2);
        lk_trainer_release(trainer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merging_changes_no_bits),
        cmocka_unit_test(merging_changes_no_bits_in_bf16),
        cmocka_unit_test(layers_that_slice_have_equal_bits),
        cmocka_unit_test(large_batches_are_merged_in_runs),
        cmocka_unit_test(devices_with_one_shard_merge_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
