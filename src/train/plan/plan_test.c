/* Plans made from configurations: recipes, defaults, and options that are refused before any work. */
#include "train/trainer.h"

#include "base/status_testing.h"
#include "lockstep/log.h"
#include "train/plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static lk_train_config defaults(const char *recipe)
{
    lk_train_config config;
    lk_error_clear();
    assert_ok(lk_train_defaults(recipe, &config));
    return config;
}

static lk_plan plan_of(const lk_train_config *config)
{
    lk_plan plan = {0};
    assert_ok(lk__plan_numbers(config, config->model, &plan));
    return plan;
}

static double rate_of(const lk_train_config *config, double epoch)
{
    lk_plan plan = plan_of(config);
    return lk_schedule_rate(&plan.schedule, epoch);
}

static void near(double have, double want)
{
    if (fabs(have - want) > 1e-15 * fabs(want))
        fail_msg("%.17g, expected %.17g", have, want);
}

static void refused(const lk_train_config *config, const char *message)
{
    lk_plan plan = {0};
    assert_int_equal(lk__plan_numbers(config, config->model, &plan), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), message);
    lk_error_clear();
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void flags_of_the_lab(void **state)
{
    (void)state;
    char *argv[] = {"--log-dir", "logs", "--batch-size", "64",     "--val-batch-size",  "16",   "--epochs",   "3",
                    "--base-lr", "0.02", "--wd",         "0.0001", "--target-accuracy", "0.82", "--patience", "1"};
    lk_train_config config = defaults("fashion-mnist-wrn");
    assert_ok(lk_options_parse(lk_train_options, LK_TRAIN_OPTION_COUNT, 16, argv, &config, NULL));
    assert_string_equal(config.records.log_dir, "logs");
    assert_int_equal(config.batch_size, 64);
    assert_int_equal(config.val_batch_size, 16);
    assert_int_equal(config.epochs, 3);
    near(config.optimizer.base_lr, 0.02);
    near(config.optimizer.weight_decay, 0.0001);
    near(config.stop.target_accuracy, 0.82);
    near(config.stop.patience, 1);
}

static void names_are_unique(void **state)
{
    (void)state;
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(lk_train_options[i].name, lk_train_options[j].name);
}

static void options_have_groups(void **state)
{
    (void)state;
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT; i++)
        if (!lk_train_options[i].group)
            fail_msg("--%s has no .group, under which help lists it", lk_train_options[i].name);
}

/* A target of 0 is valid, and a negative one means none; patience may be a fraction. */
static void targets(void **state)
{
    (void)state;
    static const struct {
        const char *word, *value;
        double target;
    } given[] = {{"--target-accuracy", "0", 0},
                 {"--target-accuracy", "-1", -1},
                 {"--target-accuracy=-1", NULL, -1},
                 {"--target-accuracy=-0.5", NULL, -0.5}};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        char *argv[] = {(char *)given[i].word, (char *)given[i].value};
        lk_train_config config = defaults("fashion-mnist-wrn");
        assert_ok(
            lk_options_parse(lk_train_options, LK_TRAIN_OPTION_COUNT, given[i].value ? 2 : 1, argv, &config, NULL));
        near(config.stop.target_accuracy, given[i].target);
        near(plan_of(&config).patience, 2);
    }
    char *argv[] = {"--patience", "0.5"};
    lk_train_config config = defaults("fashion-mnist-wrn");
    assert_ok(lk_options_parse(lk_train_options, LK_TRAIN_OPTION_COUNT, 2, argv, &config, NULL));
    near(plan_of(&config).patience, 0.5);
    config.stop.patience = 0;
    near(plan_of(&config).patience, 0);
    config.stop.patience = -0.5;
    refused(&config, "--patience -0.5: must be a number from 0 to 1e+06");
}

/* --- recipes ------------------------------------------------------------------------------------------------------ */

static void every_recipe_makes_a_plan(void **state)
{
    (void)state;
    int count = 0;
    for (const lk_recipe *recipe; (recipe = lk_recipe_at(count)) != NULL; count++) {
        lk_train_config config = defaults(recipe->name);
        lk_plan plan = plan_of(&config);
        assert_string_equal(plan.recipe, recipe->name);
        assert_true(plan.batch_size > 0 && plan.epochs > 0 && plan.schedule.base > 0);
        assert_non_null(recipe->about);
    }
    assert_int_equal(count, 6);
    assert_null(lk_recipe_at(-1));
}

static void the_lab(void **state)
{
    (void)state;
    lk_train_config config = defaults("fashion-mnist-wrn");
    lk_plan plan = plan_of(&config);
    assert_string_equal(config.model, "wrn-16-10");
    assert_int_equal(config.data.limit_train, 10000);
    assert_int_equal(plan.batch_size, 32);
    assert_int_equal(plan.val_batch_size, 32);
    assert_int_equal(plan.epochs, 40);
    assert_string_equal(plan.optimizer, "sgd");
    near(plan.optimizer_opts.weight_decay, 5e-6);
    near(config.stop.target_accuracy, 0.85);
    near(plan.patience, 2);
    assert_string_equal(config.records.log_dir, "./logs");
    assert_true(config.records.throughput && config.records.total_time);
    assert_true(plan.augment.horizontal_flip && plan.augment.center && plan.augment.standardize);
    near(plan.augment.width_shift, 0.2);
    near(plan.augment.height_shift, 0.2);
    static const double rates[][2] = {{0, 0.01},    {14.99, 0.01}, {15, 0.001},   {24, 0.001},
                                      {25, 0.0001}, {34, 0.0001},  {35, 0.00001}, {39, 0.00001}};
    for (int i = 0; i < 8; i++)
        near(lk_schedule_rate(&plan.schedule, rates[i][0]), rates[i][1]);
}

static void the_fast_one(void **state)
{
    (void)state;
    lk_train_config config = defaults("fashion-mnist-fast");
    lk_plan plan = plan_of(&config);
    assert_string_equal(config.model, "fast-cnn");
    assert_int_equal(config.data.limit_train, -1);
    assert_int_equal(config.execution.dtype, LK_PRECISION_AUTO);
    assert_int_equal(plan.batch_size, 128);
    assert_int_equal(config.devices.shards, 2);
    assert_int_equal(plan.epochs, 10);
    near(plan.optimizer_opts.momentum, 0.9);
    assert_true(plan.optimizer_opts.nesterov);
    near(plan.optimizer_opts.weight_decay, 5e-4);
    near(config.optimizer.label_smoothing, 0.1);
    assert_true(plan.augment.horizontal_flip && plan.augment.center && plan.augment.standardize);
    assert_int_equal(plan.augment.crop_padding, 1);
    near(lk_schedule_rate(&plan.schedule, 5), 0.05);
    near(lk_schedule_rate(&plan.schedule, 10), 0);
    assert_true(config.stop.target_accuracy < 0); /* it trains all epochs */
    config = defaults(NULL);
    config.model = "fast-cnn"; /* without the recipe, too, it has the rate and schedule, but no augmentation */
    plan = plan_of(&config);
    near(lk_schedule_rate(&plan.schedule, 10), 0);
    assert_false(plan.augment.horizontal_flip);
}

static void the_keras_notebook(void **state)
{
    (void)state;
    lk_train_config config = defaults("keras-mnist");
    lk_plan plan = plan_of(&config);
    assert_string_equal(config.model, "keras-cnn");
    assert_string_equal(config.data.name, "mnist");
    assert_int_equal(plan.optimizer_opts.kind, LK_ADAM);
    assert_int_equal(plan.batch_size, 64);
    assert_int_equal(plan.epochs, 12);
    near(lk_schedule_rate(&plan.schedule, 2.99), 1e-3);
    near(lk_schedule_rate(&plan.schedule, 3), 1e-4);
    near(lk_schedule_rate(&plan.schedule, 7), 1e-5);
}

static void blanks_come_from_the_model(void **state)
{
    (void)state;
    lk_train_config config = defaults(NULL);
    lk_plan plan = plan_of(&config);
    assert_int_equal(plan.batch_size, 256);
    near(plan.schedule.base, 0.2);
    config.model = "keras-cnn";
    plan = plan_of(&config);
    assert_string_equal(plan.optimizer, "adam");
    assert_int_equal(plan.schedule.kind, LK_SCHEDULE_STEP);
    config.model = "mine.lk";
    plan = plan_of(&config);
    assert_string_equal(plan.optimizer, "sgd");
    assert_int_equal(plan.batch_size, 128);
    assert_int_equal(plan.epochs, 10);
    near(plan.schedule.base, 0.1);
    assert_int_equal(plan.schedule.kind, LK_SCHEDULE_CONSTANT);
}

static void what_is_given_overrides(void **state)
{
    (void)state;
    lk_train_config config = defaults("keras-mnist");
    config.optimizer.schedule = "cosine";
    config.optimizer.min_lr = 1e-5;
    config.optimizer.name = "lars";
    lk_plan plan = plan_of(&config);
    assert_int_equal(plan.schedule.kind, LK_SCHEDULE_COSINE);
    near(lk_schedule_rate(&plan.schedule, 12), 1e-5);
    near(plan.optimizer_opts.momentum, 0.9);
    assert_true(plan.optimizer_opts.skip_nonfinite && plan.optimizer_opts.sticky);
    config.checks.nan_guard = LK_NAN_GUARD_SKIP;
    plan = plan_of(&config);
    assert_true(plan.optimizer_opts.skip_nonfinite && !plan.optimizer_opts.sticky);
    config.checks.nan_guard = LK_NAN_GUARD_OFF;
    assert_false(plan_of(&config).optimizer_opts.skip_nonfinite);
}

/* Options override the recipe's schedule, and must then be consistent. */
static void schedules_asked_for(void **state)
{
    (void)state;
    lk_train_config config = defaults("lenet"); /* schedule=constant */
    config.optimizer.lr_steps = "1:0.5";
    lk_plan plan = plan_of(&config);
    assert_int_equal(plan.schedule.kind, LK_SCHEDULE_STEP);
    near(lk_schedule_rate(&plan.schedule, 1), 0.1);
    config.optimizer.schedule = "constant";
    refused(&config, "--lr-steps 1:0.5: must be with --schedule step, not --schedule constant");
    config.optimizer.schedule = "cosine";
    refused(&config, "--lr-steps 1:0.5: must be with --schedule step, not --schedule cosine");
    config = defaults("keras-mnist"); /* schedule=step, lr-steps=… */
    config.optimizer.lr_steps = "2:0.5";
    near(rate_of(&config, 3), 5e-4);
    config.optimizer.lr_steps = NULL;
    config.optimizer.schedule = "step";
    near(rate_of(&config, 3), 1e-4);
    config.optimizer.schedule = "constant";
    assert_int_equal(plan_of(&config).schedule.kind, LK_SCHEDULE_CONSTANT);
    config.model = "lenet"; /* --recipe counts, not the model's recipe */
    config.optimizer.schedule = NULL;
    near(rate_of(&config, 3), 1e-4);
    config = defaults("keras-mnist");
    config.optimizer.min_lr = 1e-5;
    refused(&config, "--min-lr 1e-05: must be with --schedule cosine, not --schedule step");
}

/* --scale-lr multiplies by the samples of an update over the recipe's, whatever the devices; warm-up begins at the
 * recipe's own rate. */
static void the_rate_is_scaled(void **state)
{
    (void)state;
    lk_train_config config = defaults(NULL);
    config.optimizer.scale_lr = true;
    config.batch_size = 512;
    config.accumulate = 4;
    config.devices.spec = "1xcpu";
    lk_plan plan = plan_of(&config);
    near(plan.schedule.base, 0.2 * 8);
    near(plan.schedule.warmup_epochs, 5);
    near(lk_schedule_rate(&plan.schedule, 0), 0.2);
    near(lk_schedule_rate(&plan.schedule, 2.5), (0.2 + 1.6) / 2);
    near(lk_schedule_rate(&plan.schedule, 5), 1.6);
    near(plan.base_lr, 0.2);
    config.devices.spec = "7xcpu";
    near(plan_of(&config).schedule.base, 0.2 * 8);
    plan.train_samples = 1024; /* an epoch is one update */
    assert_ok(lk__plan_schedule(&config, config.model, &plan));
    near(plan.schedule.base, 0.2 * 4);
    near(lk_schedule_rate(&plan.schedule, 0), 0.2);
    config.optimizer.warmup_epochs = 0;
    plan = plan_of(&config);
    near(lk_schedule_rate(&plan.schedule, 0), 1.6);
    config = defaults("resnet18");
    config.model = "lenet"; /* the recipe's batch counts, not the model's */
    config.optimizer.scale_lr = true;
    config.batch_size = 128;
    plan = plan_of(&config);
    near(plan.schedule.base, 0.1 / 2);
    near(lk_schedule_rate(&plan.schedule, 0), 0.1 / 2); /* a smaller rate needs no warm-up */
    assert_true(plan.schedule.warmup_epochs == 0);
    config.optimizer.warmup_epochs = 2; /* unless asked for */
    plan = plan_of(&config);
    near(plan.schedule.warmup_epochs, 2);
    near(lk_schedule_rate(&plan.schedule, 1), 0.1 / 4);
    near(lk_schedule_rate(&plan.schedule, 2), 0.1 / 2);
}

/* --- invalid options ---------------------------------------------------------------------------------------------- */

static void bad_values(void **state)
{
    (void)state;
    lk_train_config config = defaults(NULL);
    config.stop.target_accuracy = 1.2;
    refused(&config, "--target-accuracy 1.2: must be a number from -1 to 1");
    config = defaults(NULL);
    config.optimizer.weight_decay = -0.1;
    refused(&config, "--wd -0.1: must be a number from 0 to 1000");
    config = defaults(NULL);
    config.optimizer.base_lr = NAN;
    refused(&config, "--base-lr nan: must be a number from 1e-12 to 1e+06");
    config = defaults(NULL);
    config.accumulate = 0;
    refused(&config, "--accumulate 0: must be an integer from 1 to 1000000");
    config = defaults(NULL);
    config.batch_norm.mode = 7;
    refused(&config, "--bn: 7 is none of its 3 choices");
    config = defaults(NULL);
    config.model = NULL;
    refused(&config, "--model: a name is needed");
}

static void bad_names(void **state)
{
    (void)state;
    lk_train_config config = defaults(NULL);
    config.optimizer.name = "adagrad";
    refused(&config, "--optimizer adagrad: must be sgd, adam, adamw or lars");
    config = defaults(NULL);
    config.optimizer.schedule = "linear";
    refused(&config, "--schedule linear: must be constant, step or cosine");
    assert_int_equal(lk_train_defaults("keras-mnits", &config), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(),
                        "--recipe keras-mnits: there is none of that name; did you mean keras-mnist?");
    lk_error_clear();
    assert_int_equal(lk_train_defaults("gan", &config), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "--recipe gan: there is none of that name: lenet, keras-mnist, "
                                            "custom-training, resnet18, fashion-mnist-wrn, fashion-mnist-fast");
    lk_error_clear();
}

static void bad_combinations(void **state)
{
    (void)state;
    lk_train_config config = defaults(NULL);
    config.optimizer.schedule = "step";
    refused(&config, "--schedule step: --lr-steps must say when, as in 15:0.1,25:0.01");
    config = defaults(NULL);
    config.optimizer.nesterov = true;
    refused(&config, "--nesterov: must be with --optimizer sgd and a --momentum above 0");
    config = defaults("keras-mnist");
    config.optimizer.momentum = 0.9;
    refused(&config, "--momentum: adam has none; it is for sgd and lars");
    config = defaults(NULL);
    config.optimizer.schedule = "cosine";
    config.optimizer.min_lr = 0.3;
    refused(&config, "--min-lr 0.3: must be at most the rate to begin with, 0.2");
    lk_plan plan = {0};
    config = defaults(NULL);
    config.data.augment = "flap";
    assert_int_equal(lk__plan_numbers(&config, config.model, &plan), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "flap"));
    lk_error_clear();
    config = defaults("fashion-mnist-wrn");
    config.data.limit_val = 0;
    refused(&config, "--target-accuracy 0.85: needs an evaluation, and --limit-val 0 leaves it out (--target-accuracy "
                     "-1: no target)");
    config.stop.target_accuracy = 0;
    refused(&config, "--target-accuracy 0: needs an evaluation, and --limit-val 0 leaves it out (--target-accuracy -1: "
                     "no target)");
    config.stop.target_accuracy = -1;
    plan_of(&config);
    config.stop.patience = 3;
    refused(&config, "--patience 3: must be with --target-accuracy");
    config.stop.patience = -1;
    config.stop.early_stop = 2;
    refused(&config, "--early-stop 2: needs an evaluation, and --limit-val 0 leaves it out");
    config = defaults(NULL);
    config.optimizer.lr_steps = "15;0.1";
    assert_int_equal(lk__plan_numbers(&config, config.model, &plan), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "15;0.1"));
    lk_error_clear();
    config.optimizer.base_lr = 0.5;
    config.optimizer.lr_steps = "15:0.1,60:1e40";
    assert_int_equal(lk__plan_numbers(&config, config.model, &plan), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "--lr-steps: factor 1e+40 makes a rate of 5e+39; it must be finite in f32");
    lk_error_clear();
}

static void what_the_data_say_no_to(void **state)
{
    (void)state;
    lk_train_config config = defaults(NULL);
    config.data.name = "synthetic";
    config.data.limit_train = 10;
    config.data.limit_val = 10;
    config.batch_size = 10;
    config.checks.top_k = 11;
    assert_null(lk_trainer_new(&config));
    assert_string_equal(lk_error_message(), "--top-k 11: there are 10 classes");
    lk_error_clear();
    config.checks.top_k = 0;
    config.data.augment = "flip,crop=28";
    assert_null(lk_trainer_new(&config));
    assert_string_equal(lk_error_message(), "--augment crop=28: expected 0 to 27 for images of 28x28");
    lk_error_clear();
    config.data.augment = NULL;
    config.data.name = "nope";
    assert_null(lk_trainer_new(&config));
    assert_string_equal(lk_error_message(),
                        "--data nope: must be one of fashion-mnist, mnist, synthetic, auto, or the path of a folder "
                        "or file");
    lk_error_clear();
    config.data.name = "synthetic";
    lk_model *model = lk_model_new("lenet", (lk_model_input){3, 32, 32, 10});
    assert_non_null(model);
    assert_null(lk_trainer_new_with(&config, model));
    assert_string_equal(lk_error_message(),
                        "model lenet is for images of 3x32x32 in 10 classes, the data are 1x28x28 in 10");
    lk_error_clear();
}

static void hear(void *user, lk_log_level level, const char *message)
{
    assert_int_equal(level, LK_LOG_WARNING);
    snprintf(user, 256, "%s", message);
}

static void what_the_data_say_to_limits(void **state)
{
    (void)state;
    char warning[256] = "";
    lk_log_set(hear, warning, LK_LOG_WARNING);
    lk_train_config config = defaults(NULL);
    config.data.name = "synthetic";
    config.data.limit_train = 7;
    config.data.limit_val = 10;
    config.batch_size = 3;
    config.accumulate = 2;
    config.optimizer.warmup_epochs = 1;
    lk_trainer *trainer = lk_trainer_new(&config);
    assert_non_null(trainer);
    const lk_plan *plan = lk_trainer_plan(trainer);
    assert_int_equal(plan->classes, 10);
    assert_int_equal(plan->empty_classes, 3);
    assert_string_equal(warning, "3 of 10 classes have no training image, and will not be learned: --limit-train 7 is "
                                 "too small");
    *warning = '\0';
    near(lk_schedule_rate(&plan->schedule, 0), 0.2 / 2); /* two updates an epoch */
    near(lk_schedule_rate(&plan->schedule, 0.5), 0.2);
    lk_trainer_release(trainer);
    config.data.limit_train = 10;
    trainer = lk_trainer_new(&config);
    assert_non_null(trainer);
    assert_int_equal(lk_trainer_plan(trainer)->empty_classes, 0);
    assert_string_equal(warning, "");
    lk_log_set(NULL, NULL, LK_LOG_WARNING);
    lk_trainer_release(trainer);
}

/* No data are opened for a model that cannot be built. */
static void a_bad_model_file_comes_before_data(void **state)
{
    (void)state;
    lk_train_config config = defaults(NULL);
    config.data.name = "nowhere";
    config.model = "not/there.lk";
    assert_null(lk_trainer_new(&config));
    assert_non_null(strstr(lk_error_message(), "not/there.lk"));
    lk_error_clear();
}

/* A NULL model must not be replaced by the configuration's. */
static void a_model_that_could_not_be_built(void **state)
{
    (void)state;
    lk_train_config config = defaults(NULL);
    config.data.name = "synthetic";
    assert_null(lk_trainer_new_with(&config, NULL));
    assert_string_equal(lk_error_message(), "trainer: a NULL model");
    lk_error_clear();
    assert_null(lk_trainer_new_with(&config, lk_model_new("lenot", (lk_model_input){1, 28, 28, 10})));
    assert_non_null(strstr(lk_error_message(), "lenot"));
    lk_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_of_the_lab),
        cmocka_unit_test(targets),
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(options_have_groups),
        cmocka_unit_test(every_recipe_makes_a_plan),
        cmocka_unit_test(the_lab),
        cmocka_unit_test(the_fast_one),
        cmocka_unit_test(the_keras_notebook),
        cmocka_unit_test(blanks_come_from_the_model),
        cmocka_unit_test(what_is_given_overrides),
        cmocka_unit_test(schedules_asked_for),
        cmocka_unit_test(the_rate_is_scaled),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(bad_names),
        cmocka_unit_test(bad_combinations),
        cmocka_unit_test(what_the_data_say_no_to),
        cmocka_unit_test(what_the_data_say_to_limits),
        cmocka_unit_test(a_bad_model_file_comes_before_data),
        cmocka_unit_test(a_model_that_could_not_be_built),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
