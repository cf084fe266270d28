/* --precise-bn: statistics are those of the training batches, parameters stay, and no number of devices changes a bit.
 */
#include "small_network.h"

#include <math.h>

static lk_train_config settings(int64_t batches)
{
    lk_train_config config = small_training();
    config.limit_train = 45; /* batches of 16, 16 and 13 */
    config.limit_val = 11;
    config.batch_size = 16;
    config.shards = 6;
    config.base_lr = 0.05;
    config.precise_batch_norm = batches;
    return config;
}

static void on_any_devices(void **state)
{
    (void)state;
    static const char *const specs[] = {"1xcpu", "2xcpu", "3xcpu", "5xcpu"};
    for (int mode = LK_BN_SHARD; mode <= LK_BN_SYNC; mode++) {
        outcome first;
        for (int s = 0; s < 4; s++) {
            lk_train_config config = settings(2);
            config.batch_norm = mode;
            config.devices = specs[s];
            config.workers = s % 3;
            outcome out = train_small(&config);
            if (s == 0)
                first = out;
            else
                same(&first, &out);
        }
        lk_train_config config = settings(2);
        config.batch_norm = mode;
        config.executor = LK_EXECUTOR_EAGER;
        config.devices = "2xcpu";
        lk_train_config unfused = config;
        unfused.executor = LK_EXECUTOR_PROGRAM;
        unfused.fuse = LK_FUSE_OFF;
        outcome eager = train_small(&config), program = train_small(&unfused);
        same(&eager, &program);
    }
}

/* Training never reads running statistics, so it goes on as it would have. */
static void parameters_stay(void **state)
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

/* Batch-norm comes first, so its input is the images: 64 of them in one batch or in four have the same mean, and in one
 * the data's unbiased variance. */
static void statistics_of_the_data(void **state)
{
    (void)state;
    for (int64_t batch = 16; batch <= 64; batch += 48) {
        lk_train_config config = settings(1000); /* more than there are: all */
        config.limit_train = 64;
        config.batch_size = batch;
        config.shards = 4;
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
    (void)trainer;
    if (report->measures_statistics) {
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

/* An epoch whose statistics are of fewer batches than were asked for is no result, evaluated or not. */
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
        config.limit_val = limit_val;
        config.epochs = 1;
        lk_trainer *trainer = small_trainer(&config);
        assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "interrupt", .eval_step = interrupt_measuring}));
        lk_train_result result;
        expect_error(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED,
                     "batch-norm's statistics: interrupted after 1 of 3 batches");
        lk_trainer_release(trainer);
    }
}

/* Nothing to measure. */
static void without_batch_norm(void **state)
{
    (void)state;
    lk_train_config without = small_training(), with = small_training();
    with.precise_batch_norm = 5;
    outcome a = train(&without), b = train(&with);
    same(&a, &b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_any_devices),
        cmocka_unit_test(parameters_stay),
        cmocka_unit_test(statistics_of_the_data),
        cmocka_unit_test(steps_are_reported),
        cmocka_unit_test(an_interrupt_ends_measuring),
        cmocka_unit_test(without_batch_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
