/* If the loss or a gradient is not finite, every device skips the update, or training ends and names the layer and the
 * samples. */
#include "small_network.h"

#include "base/mem_testing.h"

#include <math.h>
#include <stdlib.h>

static lk_train_config unstable(lk_nan_guard guard)
{
    lk_train_config config = training_of(45, 11, 16, 6); /* batches of 16, 16 and 13 */
    config.checks.nan_guard = guard;
    config.data.workers = 2;
    return config;
}

/* Sets element `index` of variable `name` to `value` and all others to `rest`, on every replica. */
static void fill_but(lk_trainer *trainer, const char *name, int64_t index, float value, float rest)
{
    const lk_model *model = lk_trainer_model(trainer);
    int i = 0;
    while (i < lk_model_variable_count(model) && strcmp(lk_model_variable_name(model, i), name) != 0)
        i++;
    if (i == lk_model_variable_count(model))
        fail_msg("there is no variable %s", name);
    for (int r = 0; r < lk_strategy_num_replicas(lk_trainer_strategy(trainer)); r++) {
        lk_tensor *variable = lk_trainer_variables(trainer, r)[i];
        int64_t count = lk_tensor_count(variable);
        float *values = calloc((size_t)count, sizeof *values);
        assert_non_null(values);
        for (int64_t e = 0; e < count; e++)
            values[e] = e == index ? value : rest;
        assert_ok(lk_tensor_write(variable, values, (size_t)count * sizeof *values));
        free(values);
    }
}

static void fill(lk_trainer *trainer, const char *name, float value)
{
    fill_but(trainer, name, 0, value, value);
}

/* 1, 2, 3 and 5 devices; specs[TWO] has two. $LOCKSTEP_TEST_KIND names another kind than cpu, such as "cuda:0". */
enum { SPECS = 4, TWO = 1 };
static char specs[SPECS][32];

static int name_devices(void **state)
{
    static const int counts[SPECS] = {1, 2, 3, 5};
    const char *kind = getenv("LOCKSTEP_TEST_KIND");
    (void)state;
    for (int s = 0; s < SPECS; s++)
        snprintf(specs[s], sizeof specs[s], "%dx%s", counts[s], kind ? kind : "cpu");
    return 0;
}

typedef lk_trainer *(*make_fn)(const lk_train_config *config);

/* Fits on all devices of `specs`. Each fit must end in LK_ERR_NUMERIC, with the same message and without a change of
 * the variables. Returns the message. */
static const char *stops(lk_train_config config, make_fn make)
{
    static char first[1024];
    for (int s = 0; s < SPECS; s++) {
        char before[33], after[33];
        lk_train_result result;
        config.devices.spec = specs[s];
        lk_trainer *trainer = make(&config);
        assert_ok(lk_trainer_digest(trainer, 0, before));
        assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_NUMERIC);
        assert_int_equal(lk_error_status(), LK_ERR_NUMERIC);
        if (s == 0)
            snprintf(first, sizeof first, "%s", lk_error_message());
        assert_string_equal(first, lk_error_message());
        lk_error_clear();
        assert_ok(lk_trainer_digest(trainer, 0, after));
        assert_string_equal(before, after);
        same_replicas(trainer, after);
        lk_trainer_release(trainer);
    }
    print_message("%s\n", first);
    return first;
}

/* --- what the message names --------------------------------------------------------------------------------------- */

static lk_trainer *with_large_weights(const lk_train_config *config)
{
    lk_trainer *trainer = small_trainer(config);
    fill(trainer, "dense.weight", 3e38F);
    return trainer;
}

static void the_message_names_layer_and_samples(void **state)
{
    (void)state;
    lk_train_config config = unstable(LK_NAN_GUARD_STOP);
    const char *prefix = "epoch 1, step 1: the output of layer dense is not finite, first seen with samples ";
    assert_memory_equal(stops(config, with_large_weights), prefix, strlen(prefix));
    config.batch_norm.mode = LK_BN_SYNC;
    assert_memory_equal(stops(config, with_large_weights), prefix, strlen(prefix));
    config.accumulate = 2;
    const char *message = stops(config, with_large_weights);
    assert_memory_equal(message, prefix, strlen(prefix));
    assert_non_null(strstr(message, " and 11 more of the training set")); /* samples of the first of two batches */
}

static lk_trainer *with_a_weight_that_is_none(const lk_train_config *config)
{
    lk_trainer *trainer = small_trainer(config);
    fill(trainer, "second.batch_norm.weight", NAN);
    return trainer;
}

static void the_message_names_the_first_layer(void **state)
{
    (void)state;
    const char *prefix = "epoch 1, step 1: the output of layer second.batch_norm is not finite, first seen "
                         "with samples ";
    const char *message = stops(unstable(LK_NAN_GUARD_STOP), with_a_weight_that_is_none);
    assert_memory_equal(message, prefix, strlen(prefix));
    assert_non_null(strstr(message, " and 11 more of the training set")); /* the batch has 16 samples */
}

static lk_trainer *with_layers_in_a_row(const lk_train_config *config)
{
    lk_layer *root = LK_SEQUENTIAL(
        lk_layer_flatten(), lk_layer_named("a", lk_layer_dense(4, NULL)), lk_layer_named("b", lk_layer_dense(4, NULL)),
        lk_layer_named("c", lk_layer_dense(4, NULL)), lk_layer_named("d", lk_layer_dense(10, NULL)));
    lk_model *model = lk_model_build("row", root, (lk_model_input){1, 28, 28, 10});
    assert_non_null(model);
    lk_trainer *trainer = lk_trainer_new_with(config, model);
    assert_non_null(trainer);
    return trainer;
}

/* A tiny weight is followed by two large ones: the output is moderate, but the gradient of the first layer contains
 * only the large ones. */
static lk_trainer *with_steep_layers(const lk_train_config *config)
{
    lk_trainer *trainer = with_layers_in_a_row(config);
    fill(trainer, "a.weight", 2e-38F);
    fill(trainer, "b.weight", 3e19F);
    fill(trainer, "c.weight", 3e19F);
    return trainer;
}

static void the_message_names_the_gradient(void **state)
{
    (void)state;
    const char *prefix = "epoch 1, step 1: the gradient of a.";
    assert_memory_equal(stops(unstable(LK_NAN_GUARD_STOP), with_steep_layers), prefix, strlen(prefix));
}

/* With these biases the loss of samples of every class but the first is 6e38, more than a float holds; its gradient, a
 * difference of probabilities, is finite. */
static lk_trainer *with_logits_far_apart(const lk_train_config *config)
{
    lk_trainer *trainer = small_trainer(config);
    fill_but(trainer, "dense.bias", 0, 3e38F, -3e38F);
    return trainer;
}

static void the_message_names_the_loss(void **state)
{
    (void)state;
    lk_train_config config = unstable(LK_NAN_GUARD_STOP);
    const char *prefix = "epoch 1, step 1: the loss is not finite, first seen with samples ";
    assert_memory_equal(stops(config, with_logits_far_apart), prefix, strlen(prefix));
    config.batch_norm.mode = LK_BN_SYNC;
    config.optimizer.label_smoothing = 0.1;
    assert_memory_equal(stops(config, with_logits_far_apart), prefix, strlen(prefix));
    config.accumulate = 2;
    assert_memory_equal(stops(config, with_logits_far_apart), prefix, strlen(prefix));
}

/* The samples' losses are finite, and not their products with the weights of their classes. */
static void the_message_names_the_weighted_loss(void **state)
{
    (void)state;
    lk_train_config config = unstable(LK_NAN_GUARD_STOP);
    const char *prefix = "epoch 1, step 1: the loss is not finite, first seen with sample";
    config.optimizer.class_weights = "0:3e38";
    assert_memory_equal(stops(config, small_trainer), prefix, strlen(prefix));
}

static lk_trainer *with_impossible_classes(const lk_train_config *config)
{
    lk_trainer *trainer = small_trainer(config);
    fill_but(trainer, "dense.bias", 0, 0, -INFINITY);
    return trainer;
}

static void the_message_names_the_layer_not_the_loss(void **state)
{
    (void)state;
    const char *prefix = "epoch 1, step 1: the output of layer dense is not finite, first seen with samples ";
    assert_memory_equal(stops(unstable(LK_NAN_GUARD_STOP), with_impossible_classes), prefix, strlen(prefix));
}

/* A loss of 3e38 for each sample that is not of the first class. */
static lk_trainer *with_large_losses(const lk_train_config *config)
{
    lk_trainer *trainer = small_trainer(config);
    fill_but(trainer, "dense.bias", 0, 3e38F, 0);
    return trainer;
}

static void the_message_names_the_sum_of_losses(void **state)
{
    (void)state;
    const char *prefix = "epoch 1, step 1: each sample's loss and each shard's gradients are finite, their sums are ";
    assert_memory_equal(stops(unstable(LK_NAN_GUARD_STOP), with_large_losses), prefix, strlen(prefix));
}

static void too_large_a_rate_ends_training(void **state)
{
    (void)state;
    char first[1024] = "";
    lk_train_config config = unstable(LK_NAN_GUARD_STOP);
    config.optimizer.base_lr = 1e6;
    config.epochs = 4;
    for (int s = 0; s < SPECS; s++) {
        config.devices.spec = specs[s];
        lk_trainer *trainer = with_layers_in_a_row(&config);
        assert_int_equal(lk_trainer_run(trainer, 12), LK_ERR_NUMERIC);
        if (s == 0)
            snprintf(first, sizeof first, "%s", lk_error_message());
        assert_string_equal(first, lk_error_message());
        lk_error_clear();
        lk_trainer_release(trainer);
    }
    print_message("%s\n", first);
    assert_non_null(strstr(first, "is not finite"));
}

/* The search for the layer ends in the message or in LK_ERR_MEMORY, and nothing leaks. */
static void allocations_may_fail_during_the_search(void **state)
{
    (void)state;
    int found = 0, out = 0;
    lk_train_config config = unstable(LK_NAN_GUARD_STOP);
    config.devices.spec = specs[TWO];
    config.batch_norm.mode = LK_BN_SYNC;
    failing f = fail_every(97);
    do {
        lk_train_result result;
        lk_trainer *trainer = with_steep_layers(&config);
        fail_next(&f);
        lk_status status = lk_trainer_fit(trainer, &result);
        stop_failing(&f);
        assert_true(status == LK_ERR_NUMERIC || status == LK_ERR_MEMORY);
        found += status == LK_ERR_NUMERIC;
        out += status == LK_ERR_MEMORY;
        lk_trainer_release(trainer);
        lk_error_clear();
    } while (f.reached);
    print_message("memory ran out %d times\n", out);
    assert_true(out > 5 && found >= 1);
}

/* --- skipping and going on ---------------------------------------------------------------------------------------- */

static void skipped_updates_change_nothing(void **state)
{
    (void)state;
    for (int s = 0; s < SPECS; s++) {
        char before[33];
        lk_train_config config = unstable(LK_NAN_GUARD_SKIP);
        config.devices.spec = specs[s];
        lk_trainer *trainer = with_large_weights(&config);
        assert_ok(lk_trainer_digest(trainer, 0, before));
        outcome out = {.batch_size = 16, .train_samples = 45};
        assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "keep", .epoch_end = keep_epoch, .self = &out}));
        assert_ok(lk_trainer_fit(trainer, &out.result));
        assert_string_equal(out.result.digest, before); /* running statistics included */
        same_replicas(trainer, before);
        assert_int_equal(out.epochs[0].skipped_steps, 3);
        assert_int_equal(out.epochs[0].train.loss.count, 0);
        assert_int_equal(out.epochs[0].samples, 45);
        assert_int_equal(out.result.samples_seen, 90);
        lk_trainer_release(trainer);
    }
}

static int64_t skipped_steps(lk_trainer *trainer)
{
    outcome out = {.batch_size = 16, .train_samples = 17};
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "keep", .epoch_end = keep_epoch, .self = &out}));
    assert_ok(lk_trainer_fit(trainer, &out.result));
    return out.epochs[0].skipped_steps;
}

/* The second batch of each update is one sample. With one of these biases its loss is 0, and only the first batch's
 * loss is not finite. */
static void the_loss_of_every_batch_counts(void **state)
{
    (void)state;
    lk_train_config config = unstable(LK_NAN_GUARD_SKIP);
    config.data.limit_train = 17;
    config.data.limit_val = 0;
    config.accumulate = 2;
    config.epochs = 1;
    for (int s = 0; s < SPECS; s++) {
        for (int64_t class = 0; class < 10; class ++) {
            char before[33], after[33];
            config.devices.spec = specs[s];
            lk_trainer *trainer = small_trainer(&config);
            fill_but(trainer, "dense.bias", class, 3e38F, -3e38F);
            assert_ok(lk_trainer_digest(trainer, 0, before));
            assert_int_equal(skipped_steps(trainer), 2);
            assert_ok(lk_trainer_digest(trainer, 0, after));
            assert_string_equal(after, before);
            same_replicas(trainer, before);
            lk_trainer_release(trainer);
        }
    }
}

/* Changes weights after step 1, when step 2 is in flight. */
typedef struct change {
    float weight;
    int64_t counts[3]; /* samples in the epoch's loss after each step */
    bool skipped[3];
} change;

static lk_status change_weights(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)stop;
    change *c = self;
    if (report->step == 1)
        fill(trainer, "dense.weight", c->weight);
    assert_true(isfinite(report->so_far.loss.sum));
    c->counts[report->step - 1] = report->so_far.loss.count;
    c->skipped[report->step - 1] = report->skipped;
    return LK_OK;
}

static void fit_with_change(const char *devices, int64_t accumulate, bool well_first, change *c, lk_epoch_report *epoch)
{
    lk_train_config config = unstable(LK_NAN_GUARD_SKIP);
    config.accumulate = accumulate;
    config.epochs = 1;
    config.data.limit_val = 0;
    config.devices.spec = devices;
    lk_trainer *trainer = well_first ? small_trainer(&config) : with_large_weights(&config);
    outcome out = {0};
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "change", .step_end = change_weights, .self = c}));
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "keep", .epoch_end = keep_epoch, .self = &out}));
    assert_ok(lk_trainer_fit(trainer, &out.result));
    lk_trainer_release(trainer);
    *epoch = out.epochs[0];
}

/* Metrics leave out all batches of a skipped update, whichever batch caused the skip. */
static void a_skipped_update_is_left_out_as_a_whole(void **state)
{
    (void)state;
    for (int s = 0; s < SPECS; s++) {
        lk_epoch_report epoch;
        change worse = {.weight = 3e38F}, better = {.weight = 0.01F};
        fit_with_change(specs[s], 3, true, &worse, &epoch); /* two good steps and a bad one */
        assert_int_equal(epoch.skipped_steps, 3);
        assert_int_equal(epoch.train.loss.count, 0);
        assert_int_equal(epoch.train.accuracy.count, 0);
        assert_int_equal(epoch.samples, 45);
        assert_int_equal(worse.counts[0], 16);
        assert_int_equal(worse.counts[1], 32);
        assert_int_equal(worse.counts[2], 0);
        assert_true(worse.skipped[2] && !worse.skipped[0] && !worse.skipped[1]);

        fit_with_change(specs[s], 2, false, &better, &epoch); /* the third batch is an update of its own */
        assert_int_equal(epoch.skipped_steps, 2);
        assert_int_equal(epoch.train.loss.count, 13);
        assert_int_equal(better.counts[1], 0);
        assert_int_equal(better.counts[2], 13);
        assert_true(better.skipped[1] && !better.skipped[2]);
    }
}

static lk_status mend_weights(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)self;
    (void)stop;
    if (report->epoch == 1)
        fill(trainer, "dense.weight", 0.01F);
    return LK_OK;
}

static void training_continues_after_a_skip(void **state)
{
    (void)state;
    char first[33] = "";
    for (int s = 0; s < SPECS; s++) {
        lk_train_config config = unstable(LK_NAN_GUARD_SKIP);
        config.devices.spec = specs[s];
        config.optimizer.name = "adam";
        lk_trainer *trainer = with_large_weights(&config);
        outcome out = {.batch_size = 16, .train_samples = 45};
        assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "mend", .epoch_end = mend_weights}));
        assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "keep", .epoch_end = keep_epoch, .self = &out}));
        assert_ok(lk_trainer_fit(trainer, &out.result));
        assert_int_equal(out.epochs[0].skipped_steps, 3);
        assert_int_equal(out.epochs[1].skipped_steps, 0);
        assert_int_equal(out.epochs[1].train.loss.count, 45);
        assert_true(isfinite(out.epochs[1].train.loss.sum));
        if (s == 0)
            memcpy(first, out.result.digest, sizeof first);
        assert_string_equal(out.result.digest, first);
        lk_trainer_release(trainer);
    }
}

static void without_a_guard_training_continues(void **state)
{
    (void)state;
    char before[33];
    lk_train_result result;
    lk_train_config config = unstable(LK_NAN_GUARD_OFF);
    config.devices.spec = specs[TWO];
    lk_trainer *trainer = with_large_weights(&config);
    assert_ok(lk_trainer_digest(trainer, 0, before));
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_string_not_equal(result.digest, before);
    assert_false(isfinite(result.val.loss.sum));
    lk_trainer_release(trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_message_names_layer_and_samples),
        cmocka_unit_test(the_message_names_the_first_layer),
        cmocka_unit_test(the_message_names_the_gradient),
        cmocka_unit_test(the_message_names_the_loss),
        cmocka_unit_test(the_message_names_the_weighted_loss),
        cmocka_unit_test(the_message_names_the_layer_not_the_loss),
        cmocka_unit_test(the_message_names_the_sum_of_losses),
        cmocka_unit_test(too_large_a_rate_ends_training),
        cmocka_unit_test(allocations_may_fail_during_the_search),
        cmocka_unit_test(skipped_updates_change_nothing),
        cmocka_unit_test(the_loss_of_every_batch_counts),
        cmocka_unit_test(a_skipped_update_is_left_out_as_a_whole),
        cmocka_unit_test(training_continues_after_a_skip),
        cmocka_unit_test(without_a_guard_training_continues),
    };
    return cmocka_run_group_tests(tests, name_devices, NULL);
}
