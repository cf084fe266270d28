/* A training that is interrupted at any step and resumed, also on other devices and with another strategy, has the
 * bits, reports and records of one that was not interrupted. */
#include "small_network.h"
#include "base/folder_testing.h"

#include "lockstep/callbacks.h"
#include "lockstep/checkpoint.h"
#include "lockstep/log.h"

#include <math.h>

/* Three epochs of three batches in six shards. The last batch has three samples, so three shards are empty. */
static lk_train_config usual(void)
{
    lk_train_config config = small_training();
    config.epochs = 3;
    config.devices.shards = 6;
    config.optimizer.momentum = 0.9;
    config.optimizer.base_lr = 0.05;
    config.seed = 11;
    config.data.augment = "shift=0.1,flip";
    config.devices.spec = "2xcpu";
    return config;
}

typedef struct breaking {
    int64_t step; /* interrupt after this step of the training; 0: none */
    int64_t eval; /* epoch whose evaluation is interrupted; 0: none */
} breaking;

static lk_status break_at_step(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    breaking *b = self;
    (void)stop;
    if ((report->epoch - 1) * report->steps + report->step == b->step)
        lk_trainer_interrupt(trainer);
    return LK_OK;
}

static lk_status break_in_evaluation(void *self, lk_trainer *trainer, const lk_eval_report *report)
{
    const breaking *b = self;
    if (report->epoch == b->eval && report->step == 1)
        lk_trainer_interrupt(trainer);
    return LK_OK;
}

static void keep_checkpoints(lk_train_config *config, const char *every)
{
    config->checkpoints.dir = test_dir;
    config->checkpoints.every = every;
    config->checkpoints.keep = 2;
}

static void train_until(const lk_train_config *config, breaking b)
{
    lk_train_result result;
    lk_train_config own = *config;
    keep_checkpoints(&own, "2");
    lk_trainer *trainer = small_trainer(&own);
    assert_ok(lk_trainer_add(
        trainer,
        (lk_callback){.name = "break", .step_end = break_at_step, .eval_step = break_in_evaluation, .self = &b}));
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED);
    lk_error_clear();
    lk_trainer_release(trainer);
}

typedef struct kept {
    lk_train_result result;
    lk_epoch_report epochs[MAX_EPOCHS];
} kept;

static lk_status keep_report(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    kept *k = self;
    (void)trainer, (void)stop;
    k->epochs[report->epoch - 1] = *report;
    return LK_OK;
}

/* Reports in `k` of epochs that had ended before stay as they are. */
static void train_to_the_end(const lk_train_config *config, bool resume, kept *k)
{
    lk_train_config own = *config;
    if (resume)
        keep_checkpoints(&own, "epoch");
    own.checkpoints.resume = resume;
    lk_trainer *trainer = small_trainer(&own);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "keep", .epoch_end = keep_report, .self = k}));
    if (lk_trainer_fit(trainer, &k->result) != LK_OK)
        fail_msg("%s", lk_error_message());
    same_replicas(trainer, k->result.digest);
    lk_trainer_release(trainer);
}

static void same_end(const kept *have, const kept *want, const char *what)
{
    if (strcmp(have->result.digest, want->result.digest) != 0 ||
        strcmp(have->result.state_digest, want->result.state_digest) != 0)
        fail_msg("%s: other bits", what);
    assert_int_equal(have->result.steps, want->result.steps);
    assert_int_equal(have->result.epochs, want->result.epochs);
    assert_int_equal(have->result.samples_seen, want->result.samples_seen);
    same_metrics(&have->result.val, &want->result.val);
    for (int e = 0; e < 3; e++) {
        if (have->epochs[e].epoch == 0)
            continue;
        same_metrics(&have->epochs[e].train, &want->epochs[e].train);
        same_metrics(&have->epochs[e].val, &want->epochs[e].val);
        assert_int_equal(have->epochs[e].samples, want->epochs[e].samples);
        assert_int_equal(have->epochs[e].train_ledger.used_once, 67);
        assert_int_equal(have->epochs[e].skipped_steps, want->epochs[e].skipped_steps);
        assert_true(have->epochs[e].rate == want->epochs[e].rate);
    }
}

/* --- at any step, on any devices
 * ---------------------------------------------------------------------------------------- */

static void resumes_after_any_step(void **state)
{
    (void)state;
    static const breaking places[] = {{.step = 1}, {.step = 2}, {.step = 3}, {.step = 4},
                                      {.eval = 1}, {.eval = 2}, {.step = 9}};
    static const char *const devices[] = {"1xcpu", "3xcpu", "2xcpu"};
    lk_train_config config = usual(), other = config;
    kept whole = {0};
    train_to_the_end(&config, false, &whole);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char what[64];
        kept resumed = {0};
        snprintf(what, sizeof what, "interrupted at step %lld, evaluation %lld", (long long)places[i].step,
                 (long long)places[i].eval);
        train_until(&config, places[i]);
        other.devices.spec = devices[i % 3];
        train_to_the_end(&other, true, &resumed);
        same_end(&resumed, &whole, what);
        empty_test_dir();
    }
}

typedef struct setting {
    const char *what;
    void (*set)(lk_train_config *config);
} setting;

static void accumulates(lk_train_config *c)
{
    c->accumulate = 2;
}

static void syncs(lk_train_config *c)
{
    c->batch_norm.mode = LK_BN_SYNC;
}

static void groups(lk_train_config *c)
{
    c->batch_norm.group = 5;
}

static void measures(lk_train_config *c)
{
    c->batch_norm.precise = 2;
}

static void rounds(lk_train_config *c)
{
    c->execution.dtype = LK_PRECISION_BF16;
}

static void adapts(lk_train_config *c)
{
    c->optimizer.name = "adam";
    c->optimizer.momentum = -1;
    c->optimizer.clip_norm = 0.5;
    c->optimizer.schedule = "cosine";
    c->optimizer.warmup_epochs = 1.5;
}

static void adapts_layers(lk_train_config *c)
{
    c->optimizer.name = "lars";
    c->optimizer.weight_decay = 1e-4;
    c->data.normalize = LK_NORMALIZE_STANDARD;
    c->data.augment = "vflip,rotate=20,contrast=0.2,rand=9,erase=0.5,mixup=0.3";
}

static void averages(lk_train_config *c)
{
    c->optimizer.average = 0.9;
    c->optimizer.class_weights = "balanced";
    c->execution.dtype = LK_PRECISION_AUTO;
}

static void shards_averages(lk_train_config *c)
{
    averages(c);
    adapts(c);
    c->devices.optimizer_state = 1;
}

static void helps(lk_train_config *c)
{
    averages(c);
    c->optimizer.base_lr = 1.2; /* losses grow */
    c->optimizer.lr_plateau = "1:0.5";
    c->stop.restore_best = true;
}

static void runs_eagerly(lk_train_config *c)
{
    c->execution.executor = LK_EXECUTOR_EAGER;
    c->checks.nan_guard = LK_NAN_GUARD_SKIP;
    c->checks.top_k = 3;
}

static void resumes_with_any_setting(void **state)
{
    (void)state;
    static const setting settings[] = {{"accumulate", accumulates}, {"bn sync", syncs},      {"bn group", groups},
                                       {"precise bn", measures},    {"bf16", rounds},        {"adam", adapts},
                                       {"lars", adapts_layers},     {"eager", runs_eagerly}, {"averages", averages},
                                       {"shares", shards_averages}, {"helps", helps}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        lk_train_config config = usual();
        kept whole = {0}, resumed = {0};
        settings[i].set(&config);
        train_to_the_end(&config, false, &whole);
        train_until(&config, (breaking){.step = 4});
        config.devices.spec = "1xcpu";
        train_to_the_end(&config, true, &resumed);
        same_end(&resumed, &whole, settings[i].what);
        empty_test_dir();
    }
}

static void resumes_with_any_strategy(void **state)
{
    (void)state;
    static const char *const strategies[] = {"mirrored", "central-storage", "one-device"};
    lk_train_config config = usual();
    kept whole = {0};
    train_to_the_end(&config, false, &whole);
    for (int from = 0; from < 3; from++) {
        lk_train_config first = config, second = config;
        kept resumed = {0};
        first.devices.strategy = strategies[from];
        second.devices.strategy = strategies[(from + 1) % 3];
        first.devices.spec = from == 2 ? "1xcpu" : "3xcpu";
        second.devices.spec = from == 1 ? "1xcpu" : "2xcpu";
        train_until(&first, (breaking){.step = 5});
        train_to_the_end(&second, true, &resumed);
        same_end(&resumed, &whole, second.devices.strategy);
        empty_test_dir();
    }
}

static void refused(const lk_train_config *config, const char *message)
{
    lk_error_clear();
    assert_null(lk_trainer_new_with(config, small_network()));
    assert_int_equal(lk_error_status(), LK_ERR_ARGUMENT);
    if (!strstr(lk_error_message(), message))
        fail_msg("'%s' is not in '%s'", message, lk_error_message());
    lk_error_clear();
}

/* An ended training goes on for more epochs, to the bits of one that was that long from its beginning. With a cosine
 * the number of epochs decides the rates before. */
static void goes_on_longer(void **state)
{
    (void)state;
    lk_train_config config = usual(), shorter = config;
    kept whole = {0}, resumed = {0};
    train_to_the_end(&config, false, &whole);
    shorter.epochs = 1;
    train_until(&shorter, (breaking){.step = 2});
    train_to_the_end(&shorter, true, &resumed);
    train_to_the_end(&config, true, &resumed);
    same_end(&resumed, &whole, "longer");
    config.optimizer.schedule = "cosine";
    config.checkpoints.dir = test_dir;
    config.checkpoints.resume = true;
    config.epochs = 5;
    refused(&config, "--epochs was 3 and is 5");
}

/* The checkpoint's shards and batch-norm are kept if none are asked for, whatever the defaults are. A fifth device
 * stays idle. */
static void keeps_how_batches_are_cut(void **state)
{
    (void)state;
    static const char *const specs[] = {"1xcpu", "5xcpu"};
    lk_train_config config = usual();
    kept whole = {0};
    config.devices.shards = 4;
    config.batch_norm.mode = LK_BN_SHARD;
    train_to_the_end(&config, false, &whole);
    for (int i = 0; i < 2; i++) {
        lk_train_config by_default = config;
        kept resumed = {0};
        by_default.devices.shards = 0;
        by_default.batch_norm.mode = LK_BN_GROUP;
        by_default.devices.spec = specs[i];
        train_until(&config, (breaking){.step = 4});
        train_to_the_end(&by_default, true, &resumed);
        same_end(&resumed, &whole, specs[i]);
        empty_test_dir();
    }
}

/* --- what a folder allows ----------------------------------------------------------------------------------------- */

static void refuses_unsuitable_folders_and_settings(void **state)
{
    (void)state;
    lk_train_config config = usual();
    config.checkpoints.resume = true;
    refused(&config, "--checkpoint-dir");
    config.checkpoints.resume = false;
    train_until(&config, (breaking){.step = 4});
    config.checkpoints.dir = test_dir;
    refused(&config, "is not empty; --resume");
    config.checkpoints.every = "5x";
    refused(&config, "--checkpoint-every 5x");
    config.checkpoints.every = "0";
    refused(&config, "--checkpoint-every 0");
    config.checkpoints.every = "0x5m";
    refused(&config, "--checkpoint-every 0x5m");
    config.checkpoints.every = "1.5m";
    config.checkpoints.resume = true;
    config.optimizer.momentum = 0.8;
    config.data.limit_train = 66;
    refused(&config, "--momentum was 0.9 and is 0.8");
    refused(&config, "--limit-train was 67 and is 66");
    config.checkpoints.override = true;
    refused(&config, "cannot be changed in the middle of an epoch");
    config.data.limit_train = 67;
    lk_train_result result;
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_int_equal(result.steps, 9);
    lk_trainer_release(trainer);
    config.data.name = "synthetic";
    config.seed = 12;
    config.optimizer.momentum = 0.9;
    config.checkpoints.override = false;
    refused(&config, "--seed was 11 and is 12");
}

/* A checkpoint callback, without checkpoint_dir in the configuration, is refused if the folder has checkpoints. */
static void overwrites_no_checkpoints(void **state)
{
    (void)state;
    lk_train_config config = usual();
    lk_train_result result;
    train_until(&config, (breaking){.step = 4});
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_add(trainer, lk_callback_checkpoint(test_dir, NULL)));
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "holds checkpoints of another training"));
    lk_error_clear();
    lk_trainer_release(trainer);
    lk_checkpoint *last;
    assert_ok(lk_checkpoint_open(test_dir, LK_CHECKPOINT_LAST, &last));
    assert_true(lk_checkpoint_get_info(last)->steps >= 4);
    lk_checkpoint_release(last);
}

/* Resuming a finished training trains no step and changes no report. */
static void a_finished_training_stays_as_it_is(void **state)
{
    (void)state;
    lk_train_config config = usual();
    kept whole = {0}, again = {0};
    train_to_the_end(&config, true, &whole); /* the folder is empty: the training begins */
    lk_checkpoint *last, *best;
    assert_ok(lk_checkpoint_open(test_dir, LK_CHECKPOINT_LAST, &last));
    assert_true(lk_checkpoint_get_info(last)->finished && lk_checkpoint_get_info(last)->epoch == 3);
    assert_ok(lk_checkpoint_open(test_dir, LK_CHECKPOINT_BEST, &best));
    assert_string_equal(lk_checkpoint_get_info(best)->metric, "val_accuracy");
    int64_t epoch = lk_checkpoint_get_info(best)->epoch;
    double accuracy = lk_mean_value(whole.epochs[epoch - 1].val.accuracy);
    assert_true(lk_checkpoint_get_info(best)->best == accuracy);
    for (int e = 0; e < 3; e++)
        assert_true(lk_mean_value(whole.epochs[e].val.accuracy) <= accuracy);
    lk_checkpoint_release(last);
    lk_checkpoint_release(best);
    train_to_the_end(&config, true, &again);
    same_end(&again, &whole, "again");
    assert_int_equal(again.epochs[2].epoch, 0);
    assert_true(again.result.seconds == whole.result.seconds);
}

static lk_train_result train_with_stops(bool resume, int64_t until, int64_t *epochs)
{
    lk_train_config config = usual();
    lk_train_result result;
    breaking b = {.step = until};
    config.epochs = 4;
    config.optimizer.base_lr = 1e-6; /* so small that nothing improves */
    if (until || resume)
        keep_checkpoints(&config, "epoch");
    config.checkpoints.resume = resume;
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "break", .step_end = break_at_step, .self = &b}));
    assert_ok(lk_trainer_add(trainer, lk_callback_stop_on_plateau(2, 0.5, NULL)));
    assert_ok(lk_trainer_add(trainer, lk_callback_stop_at_accuracy(0, 9, NULL)));
    lk_status status = lk_trainer_fit(trainer, &result);
    assert_int_equal(status, until ? LK_ERR_INTERRUPTED : LK_OK);
    lk_error_clear();
    *epochs = result.epochs;
    lk_trainer_release(trainer);
    return result;
}

/* The stop on a plateau counts an epoch from before the interrupt. */
static void callbacks_keep_their_state(void **state)
{
    (void)state;
    int64_t whole, epochs;
    lk_train_result want = train_with_stops(false, 0, &whole);
    assert_string_equal(want.stopped_by, "stop on plateau");
    assert_int_equal(whole, 3);
    train_with_stops(false, 7, &epochs);
    assert_int_equal(epochs, 2);
    lk_train_result have = train_with_stops(true, 0, &epochs);
    assert_int_equal(epochs, whole);
    assert_string_equal(have.digest, want.digest);
    have = train_with_stops(true, 0, &epochs);
    assert_int_equal(epochs, whole);
    assert_string_equal(have.state_digest, want.state_digest);
}

typedef struct own_number {
    double saved, read;
} own_number;

static lk_status save_own_number(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const own_number *number = self;
    lk_state_set(state, "number", &number->saved, 1);
    return LK_OK;
}

static lk_status read_own_number(void *self, lk_trainer *trainer, const lk_state *state)
{
    (void)trainer;
    own_number *number = self;
    assert_int_equal(lk_state_get(state, "number", &number->read, 1), 1);
    return LK_OK;
}

/* Names that are equal, that differ only after many characters, or that look like another's second one. */
static void callbacks_of_like_names_keep_apart(void **state)
{
    (void)state;
    enum { N = 5, LONG = 70 };
    char lengthy[2][LONG + 1] = {0};
    memset(lengthy[0], 'x', LONG);
    memcpy(lengthy[1], lengthy[0], LONG);
    lengthy[1][LONG - 1] = 'y';
    const char *const names[N] = {"a", "a", "a 2", lengthy[0], lengthy[1]};
    own_number numbers[N] = {0};
    for (int resumes = 0; resumes < 2; resumes++) {
        lk_train_config config = usual();
        lk_train_result result;
        keep_checkpoints(&config, "epoch");
        config.checkpoints.resume = resumes;
        lk_trainer *trainer = small_trainer(&config);
        for (int i = 0; i < N; i++) {
            numbers[i].saved = i + 1;
            assert_ok(lk_trainer_add(trainer, (lk_callback){.name = names[i],
                                                            .save = save_own_number,
                                                            .resume = read_own_number,
                                                            .self = &numbers[i]}));
        }
        assert_ok(lk_trainer_fit(trainer, &result));
        lk_trainer_release(trainer);
    }
    for (int i = 0; i < N; i++)
        assert_true(numbers[i].read == i + 1);
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    const lk_checkpoint_opts wrong[] = {{.every_steps = -1}, {.every_minutes = -1}, {.every_minutes = NAN},
                                        {.keep = -1},        {.best = -1},          {.best = LK_BEST_NONE + 1}};
    lk_train_config config = usual();
    lk_trainer *trainer = small_trainer(&config);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(lk_trainer_add(trainer, lk_callback_checkpoint(test_dir, &wrong[i])), LK_ERR_ARGUMENT);
        lk_error_clear();
    }
    lk_trainer_release(trainer);
}

static lk_status save_a_name_twice(void *self, lk_trainer *trainer, lk_state *state)
{
    (void)trainer;
    const double *value = self;
    lk_state_set(state, "patience", value, 1);
    lk_state_set(state, "patience", value, 1);
    return LK_OK;
}

/* A checkpoint with two values of one name could not be read again. */
static void a_name_given_twice_is_refused(void **state)
{
    (void)state;
    double value = 1;
    lk_train_config config = usual();
    lk_train_result result;
    keep_checkpoints(&config, "2");
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "twice", .save = save_a_name_twice, .self = &value}));
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "patience"));
    lk_error_clear();
    lk_trainer_release(trainer);
}

/* The training is interrupted at every step, again and again. */
static void resumes_again_and_again(void **state)
{
    (void)state;
    lk_train_config config = usual();
    kept whole = {0}, resumed = {0};
    train_to_the_end(&config, false, &whole);
    for (int64_t step = 1; step < 9; step++) {
        breaking b = {.step = step};
        lk_train_result result;
        lk_train_config own = config;
        keep_checkpoints(&own, "100");
        own.checkpoints.resume = true;
        lk_trainer *trainer = small_trainer(&own);
        assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "break", .step_end = break_at_step, .self = &b}));
        lk_status status = lk_trainer_fit(trainer, &result);
        assert_true(status == LK_ERR_INTERRUPTED || status == LK_OK);
        lk_error_clear();
        lk_trainer_release(trainer);
    }
    train_to_the_end(&config, true, &resumed);
    same_end(&resumed, &whole, "again and again");
}

/* Steps by lk_trainer_run, without fit, continue from a checkpoint. */
static void steps_without_fit_resume(void **state)
{
    (void)state;
    lk_train_config config = usual();
    char want[33], have[33];
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 4));
    assert_ok(lk_trainer_save(trainer, test_dir));
    assert_ok(lk_trainer_run(trainer, 4));
    assert_ok(lk_trainer_state_digest(trainer, want));
    lk_trainer_release(trainer);
    config.checkpoints.dir = test_dir;
    config.checkpoints.resume = true;
    config.devices.spec = "1xcpu";
    trainer = small_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 4));
    assert_ok(lk_trainer_state_digest(trainer, have));
    assert_string_equal(have, want);
    lk_trainer_release(trainer);
}

/* Pieces of lk_trainer_run that cut an update lose none of its samples. */
static void pieces_of_an_update_are_counted(void **state)
{
    (void)state;
    lk_train_config config = usual();
    kept whole = {0}, have = {0};
    config.accumulate = 2;
    train_to_the_end(&config, false, &whole);
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 1));
    assert_ok(lk_trainer_run(trainer, 1));
    assert_ok(lk_trainer_save(trainer, test_dir));
    lk_trainer_release(trainer);
    train_to_the_end(&config, true, &have);
    same_end(&have, &whole, "steps in pieces");
    assert_int_equal(have.epochs[0].epoch, 1);
}

static lk_status stop_in_second_epoch(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)self, (void)trainer;
    *stop = report->epoch == 2;
    return LK_OK;
}

/* Both results describe the whole training. */
static void a_second_fit_after_a_resume_goes_on(void **state)
{
    (void)state;
    lk_train_result first, second;
    lk_train_config config = usual();
    keep_checkpoints(&config, "epoch");
    train_until(&config, (breaking){.eval = 1});
    config.checkpoints.resume = true;
    lk_trainer *trainer = small_trainer(&config);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "stop", .epoch_end = stop_in_second_epoch}));
    assert_ok(lk_trainer_fit(trainer, &first));
    assert_int_equal(first.epochs, 2);
    assert_int_equal(first.steps, 6);
    assert_true(first.resumed_steps > 0);
    assert_ok(lk_trainer_fit(trainer, &second));
    assert_int_equal(second.epochs, 3);
    assert_int_equal(second.steps, 9);
    assert_int_equal(second.resumed_steps, first.resumed_steps);
    lk_trainer_release(trainer);
}

typedef struct sight {
    int64_t at;   /* interrupt after this step; 0: none */
    int seen[16]; /* how often a step was reported */
} sight;

static lk_status see_step(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    sight *s = self;
    (void)stop;
    s->seen[report->step]++;
    if (report->step == s->at)
        lk_trainer_interrupt(trainer);
    return LK_OK;
}

/* An interrupt lets the update that has begun end, so that no step is reported twice. */
static void no_step_is_reported_twice(void **state)
{
    (void)state;
    sight s = {.at = 6};
    lk_train_result result;
    lk_train_config config = usual();
    config.batch_size = 8;
    config.accumulate = 5;
    config.epochs = 1;
    keep_checkpoints(&config, "epoch");
    for (int round = 0; round < 2; round++) {
        lk_trainer *trainer = small_trainer(&config);
        assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "see", .step_end = see_step, .self = &s}));
        assert_int_equal(lk_trainer_fit(trainer, &result), round == 0 ? LK_ERR_INTERRUPTED : LK_OK);
        lk_error_clear();
        lk_trainer_release(trainer);
        config.checkpoints.resume = true;
        s.at = 0;
    }
    for (int step = 1; step <= 9; step++)
        assert_int_equal(s.seen[step], 1);
}

static lk_status give_an_interrupt(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)self, (void)trainer, (void)stop;
    return report->epoch == 2 ? LK_ERR_INTERRUPTED : LK_OK;
}

static lk_status interrupt_own_evaluation(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    const bool *tells = self;
    lk_metrics metrics;
    (void)stop;
    if (report->epoch == 2)
        lk_trainer_interrupt(trainer);
    lk_status status = lk_trainer_evaluate(trainer, &metrics);
    assert_int_equal(status, report->epoch == 2 ? LK_ERR_INTERRUPTED : LK_OK);
    if (*tells)
        return status;
    lk_error_clear();
    return LK_OK;
}

/* After a hook's LK_ERR_INTERRUPTED no checkpoint is written: steps may be in flight, and other callbacks may have seen
 * the end of an epoch. A hook that keeps the end of its evaluation to itself lets fit end by the interrupt. */
static void the_interrupt_of_a_hook_saves_nothing(void **state)
{
    (void)state;
    bool yes = true, no = false;
    const struct {
        lk_callback callback;
        int64_t saved; /* steps of the last checkpoint */
    } cases[] = {{{.name = "in a step", .step_end = give_an_interrupt}, 3},
                 {{.name = "in its evaluation", .epoch_end = interrupt_own_evaluation, .self = &yes}, 3},
                 {{.name = "in silence", .epoch_end = interrupt_own_evaluation, .self = &no}, 6}};
    lk_train_config config = usual(), own = config;
    kept whole = {0};
    lk_train_result result;
    lk_checkpoint *last;
    keep_checkpoints(&own, "epoch");
    train_to_the_end(&config, false, &whole);
    for (int i = 0; i < 3; i++) {
        kept have = {0};
        lk_trainer *trainer = small_trainer(&own);
        assert_ok(lk_trainer_add(trainer, cases[i].callback));
        assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED);
        lk_error_clear();
        if (i == 0)
            expect_error(lk_trainer_save(trainer, test_dir), LK_ERR_STATE,
                         "checkpoint: an error has ended training while steps were in flight");
        lk_trainer_release(trainer);
        assert_ok(lk_checkpoint_open(test_dir, LK_CHECKPOINT_LAST, &last));
        assert_int_equal(lk_checkpoint_get_info(last)->steps, cases[i].saved);
        lk_checkpoint_release(last);
        train_to_the_end(&config, true, &have);
        same_end(&have, &whole, cases[i].callback.name);
        empty_test_dir();
    }
}

/* Fit continues from checkpoints that steps without fit, or a callback, have saved. */
static lk_status save_in_rest(void *self, lk_trainer *trainer, const lk_rest_report *report)
{
    const int64_t *steps = self;
    return report->steps == *steps ? lk_trainer_save(trainer, test_dir) : LK_OK;
}

static bool want_rest_at(void *self, lk_trainer *trainer, int64_t steps)
{
    (void)trainer;
    return steps == *(const int64_t *)self;
}

static lk_status save_at_the_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)stop;
    return report->epoch == *(const int64_t *)self ? lk_trainer_save(trainer, test_dir) : LK_OK;
}

static void fit_resumes_from_any_save(void **state)
{
    (void)state;
    lk_train_config config = usual(), resumed = config;
    kept whole = {0}, have = {0};
    lk_train_result result;
    resumed.devices.spec = "1xcpu";
    train_to_the_end(&config, false, &whole);
    for (int64_t steps = 3; steps < 6; steps++) {
        lk_trainer *trainer = small_trainer(&config);
        assert_ok(lk_trainer_run(trainer, steps));
        assert_ok(lk_trainer_save(trainer, test_dir));
        lk_trainer_release(trainer);
        memset(&have, 0, sizeof have);
        train_to_the_end(&resumed, true, &have);
        same_end(&have, &whole, "steps without fit");
        assert_int_equal(have.epochs[1].epoch, 2);
        empty_test_dir();
    }
    int64_t step = 5, epoch = 2;
    lk_callback savers[] = {
        {.name = "in rest", .wants_rest = want_rest_at, .rest = save_in_rest, .self = &step},
        {.name = "at the end", .epoch_end = save_at_the_end, .self = &epoch},
    };
    for (int i = 0; i < 2; i++) {
        lk_trainer *trainer = small_trainer(&config);
        assert_ok(lk_trainer_add(trainer, savers[i]));
        assert_ok(lk_trainer_fit(trainer, &result));
        lk_trainer_release(trainer);
        memset(&have, 0, sizeof have);
        train_to_the_end(&resumed, true, &have);
        same_end(&have, &whole, savers[i].name);
        assert_int_equal(have.epochs[1].epoch, 2);
        empty_test_dir();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(resumes_after_any_step),
        FOLDER_TEST(resumes_with_any_setting),
        FOLDER_TEST(resumes_with_any_strategy),
        FOLDER_TEST(goes_on_longer),
        FOLDER_TEST(keeps_how_batches_are_cut),
        FOLDER_TEST(refuses_unsuitable_folders_and_settings),
        FOLDER_TEST(overwrites_no_checkpoints),
        FOLDER_TEST(a_finished_training_stays_as_it_is),
        FOLDER_TEST(callbacks_keep_their_state),
        FOLDER_TEST(a_name_given_twice_is_refused),
        FOLDER_TEST(callbacks_of_like_names_keep_apart),
        FOLDER_TEST(options_out_of_range_are_refused),
        FOLDER_TEST(resumes_again_and_again),
        FOLDER_TEST(steps_without_fit_resume),
        FOLDER_TEST(pieces_of_an_update_are_counted),
        FOLDER_TEST(a_second_fit_after_a_resume_goes_on),
        FOLDER_TEST(no_step_is_reported_twice),
        FOLDER_TEST(the_interrupt_of_a_hook_saves_nothing),
        FOLDER_TEST(fit_resumes_from_any_save),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
