/* --precise-bn computes the statistics of training batches, changes no parameter, and gives the same bits on any number
 * of devices. */
#include "small_network.h"
#include "base/folder_testing.h"

#include "lockstep/ops.h"

#include <math.h>

static lk_train_config settings(int64_t batches)
{
    lk_train_config config = training_of(45, 11, 16, 6); /* batches of 16, 16 and 13 */
    config.optimizer.base_lr = 0.05;
    config.batch_norm.precise = batches;
    return config;
}

static void devices_change_no_bit(void **state)
{
    (void)state;
    for (int mode = LK_BN_SHARD; mode <= LK_BN_SYNC; mode++) {
        lk_train_config config = settings(2);
        config.batch_norm.mode = mode;
        train_on_any_devices(config);
        config.execution.executor = LK_EXECUTOR_EAGER;
        config.devices.spec = "2xcpu";
        lk_train_config unfused = config;
        unfused.execution.executor = LK_EXECUTOR_PROGRAM;
        unfused.execution.fuse = LK_FUSE_OFF;
        outcome eager = train_small(&config), program = train_small(&unfused);
        same(&eager, &program);
    }
}

/* Training does not read running statistics, so they do not change it. */
static void parameters_do_not_change(void **state)
{
    (void)state;
    lk_train_config without = settings(0), with = settings(3);
    lk_trainer *a = small_trainer(&without), *b = small_trainer(&with);
    outcome left = fit(a), measured = fit(b);
    const lk_model *model = lk_trainer_model(a);
    for (int i = 0; i < lk_model_variable_count(model); i++) {
        uint64_t x, y;
        assert_ok(lk_trainer_variable_hash(a, 0, i, &x));
        assert_ok(lk_trainer_variable_hash(b, 0, i, &y));
        bool parameter = i < lk_model_parameter_count(model);
        if ((x == y) != parameter)
            fail_msg("%s is %s", lk_model_variable_name(model, i), parameter ? "another" : "the same");
    }
    same_metrics(&left.epochs[1].train, &measured.epochs[1].train);
    assert_true(left.result.val.loss.sum != measured.result.val.loss.sum);
    lk_trainer_release(a);
    lk_trainer_release(b);
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static double value_of(const lk_trainer *trainer, int variable)
{
    double value;
    assert_ok(lk_tensor_item(lk_trainer_variables(trainer, 0)[variable], &value));
    return value;
}

/* Batch-norm is the first layer, so its input is the images. 64 images in one batch or in four have the same mean; in
 * one batch they have the data's unbiased variance. */
static void statistics_are_those_of_the_data(void **state)
{
    (void)state;
    for (int64_t batch = 16; batch <= 64; batch += 48) {
        lk_train_config config = settings(1000); /* more batches than there are: all of them */
        config.data.limit_train = 64;
        config.batch_size = batch;
        config.devices.shards = 4;
        lk_layer *root = LK_SEQUENTIAL(lk_layer_batch_norm(NULL), lk_layer_flatten(), lk_layer_dense(10, NULL));
        lk_trainer *trainer =
            lk_trainer_new_with(&config, lk_model_build("first", root, (lk_model_input){1, 28, 28, 10}));
        assert_non_null(trainer);
        fit(trainer);
        const lk_dataset *data = lk_trainer_dataset(trainer, LK_SPLIT_TRAIN);
        const uint8_t *pixels = lk_dataset_images(data);
        int64_t n = lk_dataset_count(data) * 28 * 28;
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += pixels[i] / 255.0;
            squares += pixels[i] / 255.0 * (pixels[i] / 255.0);
        }
        double mean = sum / (double)n, variance = (squares - sum * mean) / ((double)n - 1);
        int first_buffer = lk_model_parameter_count(lk_trainer_model(trainer));
        assert_true(fabs(value_of(trainer, first_buffer) - mean) < 1e-6);
        if (batch == 64)
            assert_true(fabs(value_of(trainer, first_buffer + 1) - variance) < 1e-6);
        lk_trainer_release(trainer);
    }
}

/* --- reports ------------------------------------------------------------------------------------------------------ */

typedef struct seen {
    int measured, evaluated;
} seen;

static lk_status count_step(void *self, lk_trainer *trainer, const lk_eval_report *report)
{
    seen *s = self;
    if (report->measures_statistics) {
        lk_metrics metrics;
        expect_error(lk_trainer_evaluate(trainer, &metrics), LK_ERR_STATE,
                     "evaluation: steps of fit are in flight; from epoch_end on it can be asked for");
        lk_error_clear();
        assert_int_equal(report->step, s->measured % 2 + 1);
        assert_int_equal(report->steps, 2);
        assert_int_equal(report->so_far.loss.count, 0);
        assert_int_equal(s->measured / 2, s->evaluated); /* before the evaluation, which has one step */
        s->measured++;
    } else {
        s->evaluated++;
    }
    return LK_OK;
}

static void steps_are_reported(void **state)
{
    (void)state;
    seen s = {0};
    lk_train_config config = settings(2);
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "count", .eval_step = count_step, .self = &s}));
    lk_train_result result;
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_int_equal(s.measured, 4);
    assert_int_equal(s.evaluated, 2);
    lk_trainer_release(trainer);
}

/* If measuring is interrupted, the epoch is no result, because its statistics are of too few batches. */
static lk_status interrupt_measuring(void *self, lk_trainer *trainer, const lk_eval_report *report)
{
    (void)self;
    if (report->measures_statistics && report->step == 1)
        lk_trainer_interrupt(trainer);
    return LK_OK;
}

static void an_interrupt_ends_measuring(void **state)
{
    (void)state;
    for (int64_t limit_val = 0; limit_val <= 11; limit_val += 11) {
        lk_train_config config = settings(3);
        config.data.limit_val = limit_val;
        config.epochs = 1;
        lk_trainer *trainer = small_trainer(&config);
        assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "interrupt", .eval_step = interrupt_measuring}));
        lk_train_result result;
        expect_error(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED,
                     "batch-norm's statistics: interrupted after 1 of 3 batches");
        lk_trainer_release(trainer);
    }
}

static lk_trainer *trainer_with_masks(const lk_train_config *config)
{
    lk_layer *root =
        LK_SEQUENTIAL(lk_layer_dropout(0.5), lk_layer_batch_norm(NULL), lk_layer_flatten(), lk_layer_dense(10, NULL));
    return checked_trainer(lk_trainer_new_with(config, lk_model_build("masks", root, (lk_model_input){1, 28, 28, 10})));
}

static lk_status interrupt_the_evaluation(void *self, lk_trainer *trainer, const lk_eval_report *report)
{
    (void)self;
    if (!report->measures_statistics && report->epoch == 2)
        lk_trainer_interrupt(trainer);
    return LK_OK;
}

/* A training that goes on behind an epoch's last update measures with that update's dropout. */
static void a_resumed_training_measures_the_same(void **state)
{
    (void)state;
    lk_train_result whole, resumed;
    lk_train_config config = settings(2);
    config.val_batch_size = 2; /* an evaluation of several steps can be interrupted */
    lk_trainer *trainer = trainer_with_masks(&config);
    assert_ok(lk_trainer_fit(trainer, &whole));
    lk_trainer_release(trainer);

    config.checkpoints.dir = test_dir;
    trainer = trainer_with_masks(&config);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "interrupt", .eval_step = interrupt_the_evaluation}));
    assert_int_equal(lk_trainer_fit(trainer, &resumed), LK_ERR_INTERRUPTED);
    lk_error_clear();
    lk_trainer_release(trainer);
    config.checkpoints.resume = true;
    trainer = trainer_with_masks(&config);
    assert_ok(lk_trainer_fit(trainer, &resumed));
    lk_trainer_release(trainer);
    assert_string_equal(resumed.state_digest, whole.state_digest);
    same_metrics(&resumed.val, &whole.val);
}

/* An error of the program's own work on the device is left to the program. */
static void the_error_of_others_is_theirs(void **state)
{
    (void)state;
    const int64_t index = 7;
    lk_train_result result;
    lk_train_config config = settings(2);
    lk_trainer *trainer = small_trainer(&config);
    lk_device *device = lk_device_open("cpu:0");
    const float one = 1;
    lk_tensor *table = lk_tensor_from(device, LK_F32, LK_SHAPE(1), &one);
    lk_tensor *indices = lk_tensor_from(device, LK_I64, LK_SHAPE(1), &index);
    lk_tensor *bad = lk_gather(table, indices);
    assert_non_null(bad);
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_int_equal(lk_tensor_wait(bad), LK_ERR_ARGUMENT);
    lk_error_clear();
    lk_tensor_release(bad);
    lk_tensor_release(indices);
    lk_tensor_release(table);
    lk_device_release(device);
    lk_trainer_release(trainer);
}

/* There is nothing to measure. */
static void without_batch_norm_nothing_changes(void **state)
{
    (void)state;
    lk_train_config without = small_training(), with = small_training();
    with.batch_norm.precise = 5;
    outcome a = train(&without), b = train(&with);
    same(&a, &b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_change_no_bit),
        cmocka_unit_test(parameters_do_not_change),
        cmocka_unit_test(statistics_are_those_of_the_data),
        cmocka_unit_test(steps_are_reported),
        cmocka_unit_test(an_interrupt_ends_measuring),
        FOLDER_TEST(a_resumed_training_measures_the_same),
        cmocka_unit_test(the_error_of_others_is_theirs),
        cmocka_unit_test(without_batch_norm_nothing_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
