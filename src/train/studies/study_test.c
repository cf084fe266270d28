/* Studies: checks before the first run, results, all kinds of ends, JSON and chart. */
#include "train/studies/study.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/io_testing.h"
#include "train/studies/study_statistics.h"
#include "train/training_testing.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Two steps an epoch. */
static lk_train_config tiny(void)
{
    lk_train_config config = training_of(24, 0, 16, 0);
    config.devices.spec = "1xcpu";
    return config;
}

/* Any accuracy above 0 reaches this target in the second epoch. */
static lk_train_config with_target(double target)
{
    lk_train_config config = tiny();
    config.data.limit_val = 100;
    config.epochs = 3;
    config.stop.target_accuracy = target;
    config.stop.patience = 2;
    return config;
}

static lk_study *new_study(const lk_train_config *config, const lk_study_opts *opts)
{
    lk_error_clear();
    lk_study *study = lk_study_new(config, opts);
    if (!study)
        fail_msg("%s", lk_error_message());
    return study;
}

static void near(double have, double want, double tolerance)
{
    if (!(fabs(have - want) <= tolerance * fabs(want)))
        fail_msg("%.17g, expected %.17g", have, want);
}

/* --- statistics --------------------------------------------------------------------------------------------------- */

static void quantiles_of_student_t(void **state)
{
    (void)state;
    /* Tables of the distribution, two-sided. */
    static const struct {
        int df;
        double probability, t;
    } known[] = {
        {1, 0.95, 12.706204736}, {2, 0.95, 4.302652730},   {3, 0.95, 3.182446305},  {4, 0.95, 2.776445105},
        {5, 0.95, 2.570581836},  {9, 0.95, 2.262157163},   {10, 0.95, 2.228138852}, {29, 0.95, 2.045229642},
        {30, 0.95, 2.042272456}, {100, 0.95, 1.983971519}, {1, 0.99, 63.656741163}, {4, 0.99, 4.604094871},
        {10, 0.99, 3.169272673},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        near(lk__student_t(known[i].df, known[i].probability), known[i].t, 1e-9);
    /* Abramowitz and Stegun 26.7.5, from the normal distribution's. */
    const double z = 1.959963984540054, n = 999;
    double first = (pow(z, 3) + z) / (4 * n), second = (5 * pow(z, 5) + 16 * pow(z, 3) + 3 * z) / (96 * n * n);
    near(lk__student_t(999, 0.95), z + first + second, 1e-8);
    assert_true(lk__student_t(7, 0) == 0);
}

static void means_and_their_intervals(void **state)
{
    (void)state;
    const double values[] = {1, 2, 3, 6};
    lk_interval interval = lk__mean_interval(values, 3);
    assert_true(interval.mean == 2);
    near(interval.high - 2, 4.302652730 / sqrt(3), 1e-9);
    near(2 - interval.low, 4.302652730 / sqrt(3), 1e-9);
    interval = lk__mean_interval(values, 4); /* sum of squares 14, so a variance of 14 / 3 */
    assert_true(interval.mean == 3);
    near(interval.high - 3, 3.182446305 * sqrt(14.0 / 3 / 4), 1e-9);
    interval = lk__mean_interval(values + 3, 1);
    assert_true(interval.mean == 6 && interval.low == 6 && interval.high == 6);
    interval = lk__mean_interval(values, 0);
    assert_true(isnan(interval.mean) && isnan(interval.low) && isnan(interval.high));
}

/* --- errors ---------------------------------------------------------------------------------------------- */

static lk_status counting_begin(void *user, const lk_study *study, int run, lk_trainer *trainer)
{
    (void)study, (void)run, (void)trainer;
    ++*(int *)user;
    return LK_OK;
}

static void refuses(const lk_train_config *config, const char *over, lk_measure measure, int64_t seeds,
                    const char *message)
{
    int begun = 0;
    lk_error_clear();
    lk_study *study = lk_study_new(
        config,
        &(lk_study_opts){.over = over, .measure = measure, .seeds = seeds, .begin = counting_begin, .user = &begun});
    assert_null(study);
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), message);
    assert_int_equal(begun, 0);
    lk_error_clear();
}

static void bad_values(void **state)
{
    (void)state;
    static const struct {
        const char *over, *message;
    } cases[] = {
        {NULL, "--over : must be an option and its values, as in batch-size=8,16,32"},
        {"batch-size", "--over batch-size: must be an option and its values, as in batch-size=8,16,32"},
        {"=8", "--over =8: must be an option and its values, as in batch-size=8,16,32"},
        {"batch-size=", "--over batch-size=: must be an option and its values, as in batch-size=8,16,32"},
        {"batch-size=8,", "--over batch-size: value 2 is empty"},
        {"batchsize=8", "unknown option '--batchsize': did you mean '--batch-size'?"},
        {"batch-size=8,x", "--batch-size x: must be an integer from 1 to 16777216"},
        {"batch-size=8,16,08", "--over batch-size: 08 is given twice"},
        {"base-lr=0.1,1e-1", "--over base-lr: 1e-1 is given twice"},
        {"model=lenet,lenet", "--over model: lenet is given twice"},
        {"seed=0,1", "--over seed: every value is trained with --seeds seeds; vary something else"},
        {"recipe=lenet", "--over recipe: a recipe is many settings; vary one of them"},
        {"keep=1,2", "--over keep: changes what is shown or kept, not the training"},
        {"log-dir=a,b", "--over log-dir: changes what is shown or kept, not the training"},
        {"patience=1,2", "--over patience: has no effect on throughput"},
        {"shards=8,17", "--over shards=17: --shards 17: must be at most the batch size, 16"},
        {"optimizer=sgd,sdg", "--over optimizer=sdg: --optimizer sdg: must be sgd, adam, adamw or lars"},
        {"top-k=10,11", "--over top-k=11: --top-k 11: there are 10 classes"},
        {"strategy=mirrored,ring",
         "--over strategy=ring: unknown strategy 'ring': one-device, mirrored, central-storage, multi-worker, "
         "parameter-server, tpu"},
    };
    lk_train_config config = tiny();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuses(&config, cases[i].over, LK_MEASURE_THROUGHPUT, 1, cases[i].message);
}

static void too_many_values(void **state)
{
    (void)state;
    lk_train_config config = tiny();
    char over[1024] = "batch-size=";
    for (int i = 1; i <= LK_STUDY_MAX_VALUES + 1; i++)
        snprintf(over + strlen(over), sizeof over - strlen(over), "%s%d", i > 1 ? "," : "", i);
    refuses(&config, over, LK_MEASURE_THROUGHPUT, 1, "--over batch-size: more than 100 values");
}

static void bad_seeds_and_targets(void **state)
{
    (void)state;
    lk_train_config config = tiny();
    refuses(&config, "batch-size=8", LK_MEASURE_THROUGHPUT, 0, "--seeds 0: must be an integer from 1 to 1000");
    refuses(&config, "batch-size=8", LK_MEASURE_THROUGHPUT, 1001, "--seeds 1001: must be an integer from 1 to 1000");
    config.seed = INT64_MAX - 1;
    refuses(&config, "batch-size=8", LK_MEASURE_THROUGHPUT, 3,
            "--seed 9223372036854775806: there are no 3 seeds from there on");
    config = with_target(-1);
    refuses(&config, "batch-size=8", LK_MEASURE_TIME_TO_ACCURACY, 1,
            "time to accuracy: a --target from 0 to 1 is missing");
    config = with_target(1.5);
    refuses(&config, "batch-size=8", LK_MEASURE_TIME_TO_ACCURACY, 1,
            "--over batch-size=8: --target-accuracy 1.5: must be a number from -1 to 1");
    config = with_target(0.5);
    refuses(&config, "limit-val=10,0", LK_MEASURE_TIME_TO_ACCURACY, 1,
            "--limit-val 0: time to accuracy needs an evaluation");
    config = tiny();
    refuses(&config, "epochs=2,1", LK_MEASURE_THROUGHPUT, 1,
            "--epochs 1: must be at least 2: throughput leaves out the first epoch");
    config = with_target(0.5);
    config.data.name = NULL;
    refuses(&config, "batch-size=8", LK_MEASURE_TIME_TO_ACCURACY, 1, "--over batch-size=8: --data: a name is needed");
    config = tiny();
    config.model = NULL;
    refuses(&config, "devices=1xcpu,2xcpu", LK_MEASURE_THROUGHPUT, 1,
            "--over devices=1xcpu: --model: a name is needed");
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* The result of a plain training. */
static void train_alone(const lk_train_config *config, char digest[33])
{
    lk_train_result result;
    lk_trainer *trainer = lk_trainer_new(config);
    if (!trainer)
        fail_msg("%s", lk_error_message());
    assert_ok(lk_trainer_fit(trainer, &result));
    memcpy(digest, result.digest, 33);
    lk_trainer_release(trainer);
}

static void throughput(void **state)
{
    (void)state;
    static const int64_t batch_sizes[] = {8, 16};
    int begun = 0;
    lk_train_config config = tiny();
    config.seed = 3;
    lk_study *study = new_study(
        &config, &(lk_study_opts){.over = "batch-size=8,16", .seeds = 2, .begin = counting_begin, .user = &begun});
    assert_string_equal(lk_study_setting(study), "batch-size");
    assert_int_equal(lk_study_get_measure(study), LK_MEASURE_THROUGHPUT);
    assert_int_equal(lk_study_row_count(study), 2);
    assert_int_equal(lk_study_run_count(study), 4);
    assert_false(lk_study_complete(study));
    assert_string_equal(lk_study_row_at(study, 0).note, "not run (2 of 2)");
    assert_ok(lk_study_train(study));
    assert_true(lk_study_complete(study));
    assert_int_equal(begun, 4);
    double sums[2] = {0};
    for (int i = 0; i < 4; i++) {
        const lk_study_run *run = lk_study_run_at(study, i);
        lk_train_config alone = config;
        char digest[33];
        assert_int_equal(run->value, i % 2);
        assert_int_equal(run->seed, 3 + i / 2);
        assert_true(run->ended);
        assert_int_equal(run->status, LK_OK);
        assert_null(run->message);
        assert_int_equal(run->batch_size, batch_sizes[run->value]);
        assert_int_equal(run->devices, 1);
        alone.batch_size = run->batch_size;
        alone.seed = run->seed;
        train_alone(&alone, digest);
        assert_string_equal(run->result.digest, digest);
        sums[run->value] += run->result.images_per_second;
    }
    for (int v = 0; v < 2; v++) {
        lk_study_row row = lk_study_row_at(study, v);
        assert_string_equal(row.value, v == 0 ? "8" : "16");
        assert_int_equal(row.counted, 2);
        near(row.mean, sums[v] / 2, 1e-12);
        assert_true(row.low < row.mean && row.mean < row.high);
        assert_true(isnan(row.epochs) && isnan(row.val_accuracy));
        assert_string_equal(row.note, "");
    }
    assert_ok(lk_study_train(study)); /* all runs have ended already */
    assert_int_equal(begun, 4);
    lk_study_release(study);
}

static void one_seed_has_no_interval(void **state)
{
    (void)state;
    lk_train_config config = tiny();
    config.checkpoints.dir = "/"; /* left out: it is not empty */
    lk_study *study = new_study(&config, &(lk_study_opts){.over = "bucket-mb=1,4", .seeds = 1});
    assert_ok(lk_study_train(study));
    lk_study_row row = lk_study_row_at(study, 0);
    assert_true(row.mean > 0 && row.low == row.mean && row.high == row.mean);
    lk_study_release(study);
}

/* The shards are those of the most devices, so the results are the same. */
static void devices(void **state)
{
    (void)state;
    lk_train_config config = tiny();
    lk_study *study = new_study(&config, &(lk_study_opts){.over = "devices=1xcpu;cpu:0,cpu:1,cpu:2", .seeds = 1});
    assert_ok(lk_study_train(study));
    const lk_study_run *one = lk_study_run_at(study, 0), *three = lk_study_run_at(study, 1);
    assert_int_equal(one->devices, 1);
    assert_int_equal(three->devices, 3);
    assert_int_equal(one->shards, 4);
    assert_int_equal(three->shards, 4);
    assert_string_equal(one->result.digest, three->result.digest);
    assert_null(json_object_get(study->settings, "devices in use"));
    assert_int_equal(json_integer_value(json_object_get(study->settings, "shards")), 4);
    lk_study_release(study);

    config.recipe = "fashion-mnist-wrn"; /* whose batches have 32 samples; those of LeNet's recipe have 256 */
    config.batch_size = 0;
    study = new_study(&config, &(lk_study_opts){.over = "devices=1xcpu,2xcpu", .seeds = 1});
    assert_int_equal(json_integer_value(json_object_get(study->settings, "shards")), lk_default_shards(32));
    lk_study_release(study);
}

/* Only the batch size varies: without a choice of devices a batch with enough shards gets as many devices as the
 * largest one; a smaller batch cannot. */
static void devices_that_stay_the_same(void **state)
{
    (void)state;
    int cores = lk_device_available("cpu");
    lk_train_config config = tiny();
    config.devices.spec = NULL;
    config.data.limit_train = 128;
    lk_study *study = new_study(&config, &(lk_study_opts){.over = "batch-size=128,64,1", .seeds = 1});
    assert_ok(lk_study_train(study));
    assert_int_equal(lk_study_row_at(study, 0).devices, cores < 4 ? cores : 4);
    assert_int_equal(lk_study_row_at(study, 1).devices, cores < 2 ? cores : 2);
    assert_int_equal(lk_study_row_at(study, 2).devices, 1);
    assert_int_equal(lk_study_row_at(study, 0).shards, 4);
    assert_int_equal(lk_study_row_at(study, 1).shards, 2);
    assert_int_equal(lk_study_row_at(study, 2).shards, 1);
    lk_study_release(study);
    config.devices.shards = 3;
    study = new_study(&config, &(lk_study_opts){.over = "batch-size=128,8", .seeds = 1});
    assert_ok(lk_study_train(study));
    for (int v = 0; v < 2; v++) {
        assert_int_equal(lk_study_row_at(study, v).devices, cores < 3 ? cores : 3);
        assert_int_equal(lk_study_row_at(study, v).shards, 3);
    }
    lk_study_release(study);
}

static void time_to_accuracy(void **state)
{
    (void)state;
    lk_train_config config = with_target(0);
    lk_study *study = new_study(
        &config, &(lk_study_opts){.over = "target-accuracy=0,1", .measure = LK_MEASURE_TIME_TO_ACCURACY, .seeds = 2});
    assert_ok(lk_study_train(study));
    double sum = 0;
    for (int i = 0; i < 4; i += 2) {
        const lk_study_run *run = lk_study_run_at(study, i);
        assert_true(run->reached);
        assert_int_equal(run->epochs_to_accuracy, 2);
        assert_int_equal(run->result.epochs, 2);
        assert_string_equal(run->result.stopped_by, "stop at accuracy");
        assert_true(run->seconds_to_accuracy > run->result.seconds); /* it includes evaluation */
        assert_true(run->seconds_to_accuracy <= run->result.total_seconds);
        sum += run->seconds_to_accuracy;
        run = lk_study_run_at(study, i + 1);
        assert_false(run->reached);
        assert_true(isnan(run->seconds_to_accuracy));
        assert_int_equal(run->result.epochs, 3);
    }
    lk_study_row row = lk_study_row_at(study, 0);
    assert_int_equal(row.counted, 2);
    near(row.mean, sum / 2, 1e-12);
    assert_true(row.epochs == 2 && row.val_accuracy > 0);
    assert_string_equal(row.note, "");
    row = lk_study_row_at(study, 1);
    assert_int_equal(row.counted, 0);
    assert_int_equal(row.not_reached, 2);
    assert_true(isnan(row.mean) && isnan(row.low) && isnan(row.epochs) && row.val_accuracy > 0);
    assert_string_equal(row.note, "not reached (2 of 2)");
    lk_study_release(study);
}

/* --- runs that end otherwise -------------------------------------------------------------------------------------- */

/* The events of runs, in `begin` or in the first step. */
typedef struct plot {
    lk_study *study;
    int fails, stops, interrupted, interrupted_after; /* runs, or -1 */
    int begun, ended;
    lk_status outside; /* the thread's error while `end` is called */
} plot;

static lk_status stop_early(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)self, (void)trainer, (void)report;
    *stop = true;
    return LK_OK;
}

static lk_status interrupt_step(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)trainer, (void)report, (void)stop;
    lk_study_interrupt(((plot *)self)->study);
    return LK_OK;
}

static lk_status begin(void *user, const lk_study *study, int run, lk_trainer *trainer)
{
    plot *p = user;
    assert_ptr_equal(study, p->study);
    p->begun++;
    if (run == p->fails)
        LK_FAIL(LK_ERR_IO, "no such luck");
    if (run == p->stops)
        return lk_trainer_add(trainer, (lk_callback){.name = "early", .epoch_end = stop_early});
    if (run == p->interrupted)
        return lk_trainer_add(trainer, (lk_callback){.name = "interrupt", .step_end = interrupt_step, .self = p});
    return LK_OK;
}

static void end(void *user, const lk_study *study, int run)
{
    plot *p = user;
    p->ended++;
    p->outside = lk_error_status();
    assert_int_equal(lk_study_run_at(study, run)->ended, run != p->interrupted);
    if (run == p->interrupted_after)
        lk_study_interrupt(p->study);
}

static lk_study *plotted(plot *p, const lk_train_config *config, const char *over, lk_measure measure, int64_t seeds)
{
    p->study = new_study(
        config,
        &(lk_study_opts){.over = over, .measure = measure, .seeds = seeds, .begin = begin, .end = end, .user = p});
    return p->study;
}

static void a_run_that_fails(void **state)
{
    (void)state;
    plot p = {.fails = 1, .stops = -1, .interrupted = -1, .interrupted_after = -1};
    lk_train_config config = tiny();
    lk_study *study = plotted(&p, &config, "batch-size=8,16", LK_MEASURE_THROUGHPUT, 2);
    assert_ok(lk_study_train(study));
    assert_int_equal(p.begun, 4);
    assert_int_equal(p.ended, 4);
    assert_int_equal(p.outside, LK_OK);
    assert_int_equal(lk_error_status(), LK_OK);
    const lk_study_run *run = lk_study_run_at(study, 1);
    assert_int_equal(run->status, LK_ERR_IO);
    assert_string_equal(run->message, "no such luck");
    assert_string_equal(lk_study_row_at(study, 0).note, "");
    lk_study_row row = lk_study_row_at(study, 1);
    assert_int_equal(row.counted, 1);
    assert_int_equal(row.failed, 1);
    assert_string_equal(row.note, "failed (1 of 2)");
    assert_true(row.mean == lk_study_run_at(study, 3)->result.images_per_second && row.low == row.high);
    lk_study_release(study);
}

static void a_run_that_stops_in_its_first_epoch(void **state)
{
    (void)state;
    plot p = {.fails = -1, .stops = 0, .interrupted = -1, .interrupted_after = -1};
    lk_train_config config = tiny();
    lk_study *study = plotted(&p, &config, "batch-size=8", LK_MEASURE_THROUGHPUT, 1);
    assert_ok(lk_study_train(study));
    assert_int_equal(lk_study_run_at(study, 0)->status, LK_ERR_STATE);
    assert_string_equal(lk_study_run_at(study, 0)->message,
                        "the run ended in its first epoch, which throughput leaves out");
    lk_study_release(study);
}

static void some_reach_the_target(void **state)
{
    (void)state;
    plot p = {.fails = -1, .stops = 0, .interrupted = -1, .interrupted_after = -1};
    lk_train_config config = with_target(0);
    lk_study *study = plotted(&p, &config, "batch-size=16", LK_MEASURE_TIME_TO_ACCURACY, 2);
    assert_ok(lk_study_train(study));
    lk_study_row row = lk_study_row_at(study, 0);
    assert_false(lk_study_run_at(study, 0)->reached);
    assert_int_equal(row.counted, 1);
    assert_int_equal(row.not_reached, 1);
    assert_true(row.mean == lk_study_run_at(study, 1)->seconds_to_accuracy);
    assert_string_equal(row.note, "not reached (1 of 2)");
    lk_study_release(study);
}

static void expect_interrupted(lk_study *study, const char *message)
{
    assert_int_equal(lk_study_train(study), LK_ERR_INTERRUPTED);
    assert_int_equal(lk_error_status(), LK_ERR_INTERRUPTED);
    assert_string_equal(lk_error_message(), message);
    lk_error_clear();
    assert_false(lk_study_complete(study));
}

static void an_interrupt_and_what_is_left(void **state)
{
    (void)state;
    plot p = {.fails = -1, .stops = -1, .interrupted = 1, .interrupted_after = -1};
    lk_train_config config = tiny();
    lk_study *study = plotted(&p, &config, "batch-size=8,16", LK_MEASURE_THROUGHPUT, 2);
    expect_interrupted(study, "study: interrupted after 1 of 4 runs");
    assert_int_equal(p.ended, 2);
    assert_string_equal(lk_study_row_at(study, 0).note, "not run (1 of 2)");
    assert_string_equal(lk_study_row_at(study, 1).note, "not run (2 of 2)");
    p.interrupted = -1;
    p.interrupted_after = 2; /* between two runs */
    expect_interrupted(study, "study: interrupted after 3 of 4 runs");
    lk_study_interrupt(study); /* before the next run */
    expect_interrupted(study, "study: interrupted after 3 of 4 runs");
    assert_ok(lk_study_train(study));
    assert_int_equal(p.begun, 5);
    for (int v = 0; v < 2; v++)
        assert_int_equal(lk_study_row_at(study, v).counted, 2);
    lk_study_release(study);
}

static void *interrupt_again_and_again(void *study)
{
    for (int i = 0; i < 100; i++) {
        lk_study_interrupt(study);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return NULL;
}

static void interrupts_from_another_thread(void **state)
{
    (void)state;
    pthread_t thread;
    lk_train_config config = tiny();
    lk_study *study = new_study(&config, &(lk_study_opts){.over = "batch-size=8,16", .seeds = 1});
    assert_int_equal(pthread_create(&thread, NULL, interrupt_again_and_again, study), 0);
    lk_status status;
    while ((status = lk_study_train(study)) == LK_ERR_INTERRUPTED)
        lk_error_clear();
    assert_int_equal(status, LK_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(lk_study_complete(study));
    lk_study_release(study);
}

/* --- JSON and chart ----------------------------------------------------------------------------------------------- */

static json_t *load(const lk_study *study)
{
    char *text = lk_study_json(study);
    assert_non_null(text);
    json_error_t error;
    json_t *object = json_loads(text, 0, &error);
    if (!object)
        fail_msg("line %d: %s", error.line, error.text);
    lk_free(text);
    return object;
}

static const json_t *member(const json_t *array, size_t index, const char *name)
{
    const json_t *value = json_object_get(json_array_get(array, index), name);
    if (!value)
        fail_msg("no %s", name);
    return value;
}

static void json_of_time_to_accuracy(void **state)
{
    (void)state;
    plot p = {.fails = 1, .stops = 0, .interrupted = 3, .interrupted_after = -1};
    lk_train_config config = with_target(0);
    lk_study *study = plotted(&p, &config, "batch-size=8,16", LK_MEASURE_TIME_TO_ACCURACY, 2);
    expect_interrupted(study, "study: interrupted after 3 of 4 runs");
    json_t *object = load(study);
    const json_t *rows = json_object_get(object, "rows"), *runs = json_object_get(object, "runs");
    const json_t *settings = json_object_get(object, "settings");
    assert_string_equal(json_string_value(json_object_get(object, "over")), "batch-size");
    assert_string_equal(json_string_value(json_object_get(object, "measure")), "time-to-accuracy");
    assert_true(json_is_false(json_object_get(object, "complete")));
    assert_true(json_number_value(json_object_get(object, "target")) == 0);
    assert_true(json_number_value(json_object_get(object, "patience")) == 2);
    assert_string_equal(json_string_value(json_object_get(settings, "model")), "lenet");
    assert_string_equal(json_string_value(json_object_get(settings, "data")), "synthetic");
    assert_int_equal(json_integer_value(json_object_get(settings, "limit-train")), 24);
    assert_true(json_real_value(json_object_get(settings, "base-lr")) == 0.2);
    assert_true(json_is_false(json_object_get(settings, "nesterov")));
    assert_true(json_is_null(json_object_get(settings, "recipe")));
    assert_null(json_object_get(settings, "seed"));
    assert_null(json_object_get(settings, "batch-size"));
    assert_null(json_object_get(settings, "val-batch-size"));
    assert_null(json_object_get(settings, "batches an epoch"));
    assert_int_equal(json_integer_value(json_object_get(settings, "shards")), 1);
    assert_string_equal(json_string_value(json_object_get(settings, "devices in use")), "cpu:0");
    assert_int_equal(json_array_size(rows), 2);
    assert_int_equal(json_array_size(runs), 4);
    assert_string_equal(json_string_value(member(rows, 0, "note")), "not reached (1 of 2)");
    near(json_real_value(member(rows, 0, "mean")), lk_study_run_at(study, 2)->seconds_to_accuracy, 1e-14);
    assert_true(json_is_null(member(rows, 0, "low")) && json_is_null(member(rows, 0, "high")));
    assert_string_equal(json_string_value(member(rows, 1, "note")), "failed (1 of 2), not run (1 of 2)");
    assert_true(json_is_null(member(rows, 1, "mean")));
    assert_true(json_is_false(member(runs, 0, "reached")) && json_is_null(member(runs, 0, "seconds_to_accuracy")));
    assert_string_equal(json_string_value(member(runs, 1, "status")), lk_status_name(LK_ERR_IO));
    assert_string_equal(json_string_value(member(runs, 1, "message")), "no such luck");
    assert_true(json_is_null(member(runs, 1, "digest")) && json_is_null(member(runs, 1, "reached")));
    assert_string_equal(json_string_value(member(runs, 2, "status")), "ok");
    assert_int_equal(json_integer_value(member(runs, 2, "epochs_to_accuracy")), 2);
    assert_int_equal(json_integer_value(member(runs, 2, "seed")), 1);
    assert_string_equal(json_string_value(member(runs, 2, "digest")), lk_study_run_at(study, 2)->result.digest);
    assert_string_equal(json_string_value(member(runs, 3, "status")), "not run");
    json_decref(object);
    lk_study_release(study);
}

static void contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not there", part);
}

static void files(void **state)
{
    (void)state;
    const char *json = in_dir("study.json"), *svg = in_dir("study.svg");
    lk_train_config config = with_target(0);
    plot p = {.fails = -1, .stops = 1, .interrupted = -1, .interrupted_after = -1};
    lk_study *study = plotted(&p, &config, "base-lr=0.1,0.2", LK_MEASURE_TIME_TO_ACCURACY, 1);
    assert_ok(lk_study_train(study));
    assert_ok(lk_study_write_json(study, json));
    assert_ok(lk_study_write_chart(study, svg));
    char *text = contents_of(json, NULL), *same = lk_study_json(study), *chart = contents_of(svg, NULL);
    assert_string_equal(text, same);
    contains(chart, "lenet on synthetic<");
    contains(chart, "base lr");
    contains(chart, "time to accuracy 0 (s)");
    contains(chart, "not reached (1 of 1)");
    free(text);
    free(chart);
    lk_free(same);
    assert_int_equal(lk_study_write_chart(study, "study.gif"), LK_ERR_ARGUMENT);
    lk_error_clear();
    lk_study_release(study);
    assert_int_equal(files_in_dir(test_dir), 2);
}

/* Throughputs of 1 and 100 images a second have an interval of 50.5 ± 629. */
static void an_interval_is_drawn_down_to_0(void **state)
{
    (void)state;
    const char *svg = in_dir("study.svg");
    lk_train_config config = tiny();
    lk_study *study = new_study(&config, &(lk_study_opts){.over = "batch-size=8", .seeds = 2});
    for (int speed = 1; speed <= 91; speed += 90) {
        for (int i = 0; i < 2; i++) {
            study->runs[i].ended = true;
            study->runs[i].result.images_per_second = i == 0 ? speed : 100;
        }
        lk_study_row row = lk_study_row_at(study, 0);
        assert_ok(lk_study_write_chart(study, svg));
        char *chart = contents_of(svg, NULL);
        assert_true((row.low < 0) == (speed == 1));
        assert_true((strstr(chart, "mean and 95% interval of 2 seeds, cut at 0<") != NULL) == (speed == 1));
        contains(chart, "mean and 95% interval of 2 seeds");
        free(chart);
    }
    lk_study_release(study);
}

/* --- allocations that fail ---------------------------------------------------------------------------------------- */

/* False if the study could not be made. */
static bool study_failing_at(int64_t n, int64_t *allocations)
{
    lk_train_config config = tiny();
    lk_error_clear();
    lk__mem_fail_at(n);
    lk_study *study = lk_study_new(&config, &(lk_study_opts){.over = "batch-size=16", .seeds = 1});
    if (!study) {
        lk__mem_fail_at(-1);
        assert_int_equal(lk_error_status(), LK_ERR_MEMORY);
        lk_error_clear();
        return false;
    }
    assert_ok(lk_study_train(study));
    *allocations = lk__mem_allocations();
    lk__mem_fail_at(-1);
    lk_status status = lk_study_run_at(study, 0)->status;
    assert_true(status == LK_OK || status == LK_ERR_MEMORY);
    lk_study_release(study);
    return status == LK_OK;
}

static void failing_allocations(void **state)
{
    (void)state;
    int64_t allocations = 0, failures = 0;
    assert_true(study_failing_at(INT64_MAX, &allocations));
    int64_t all = allocations, stride = 1 + all / 40;
    for (int64_t n = 0; n < all; n += n < 4 ? 1 : stride)
        failures += !study_failing_at(n, &allocations);
    print_message("%lld allocations, every %lld of them refused: %lld studies or runs failed\n", (long long)all,
                  (long long)stride, (long long)failures);
    assert_true(failures > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_of_student_t),
        cmocka_unit_test(means_and_their_intervals),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(too_many_values),
        cmocka_unit_test(bad_seeds_and_targets),
        cmocka_unit_test(throughput),
        cmocka_unit_test(one_seed_has_no_interval),
        cmocka_unit_test(devices),
        cmocka_unit_test(devices_that_stay_the_same),
        cmocka_unit_test(time_to_accuracy),
        cmocka_unit_test(a_run_that_fails),
        cmocka_unit_test(a_run_that_stops_in_its_first_epoch),
        cmocka_unit_test(some_reach_the_target),
        cmocka_unit_test(an_interrupt_and_what_is_left),
        cmocka_unit_test(interrupts_from_another_thread),
        cmocka_unit_test(json_of_time_to_accuracy),
        FOLDER_TEST(files),
        FOLDER_TEST(an_interval_is_drawn_down_to_0),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
