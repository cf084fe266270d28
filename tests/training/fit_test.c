/* lk_trainer_fit: the order of hooks, all ways to end, learning rates, gradients, predictions. */
#include "training.h"
#include "base/folder_testing.h"
#include "lockstep/checkpoint.h"

#include <math.h>

/* --- a callback that notes its calls ------------------------------------------------------------------------------ */

typedef struct notes {
    char text[2048];
    const char *error_in, *stop_in; /* hooks that fail or stop training */
    lk_status status;               /* that train_end got */
    int64_t interrupt_at;           /* interrupt in step_end of this step */
    int64_t evaluated;              /* the epoch of the last eval_step */
    double rates[16], epochs[16];   /* arguments of the rate hook */
    int n_rates;
    int released;
} notes;

static lk_status note(notes *n, const char *hook, int64_t number, bool *stop)
{
    size_t used = strlen(n->text);
    if (number)
        snprintf(n->text + used, sizeof n->text - used, " %s%lld", hook, (long long)number);
    else
        snprintf(n->text + used, sizeof n->text - used, " %s", hook);
    if (stop && n->stop_in && strcmp(n->stop_in, hook) == 0)
        *stop = true;
    return n->error_in && strcmp(n->error_in, hook) == 0 ? LK_ERR_IO : LK_OK;
}

static lk_status on_train_begin(void *self, lk_trainer *trainer)
{
    assert_non_null(lk_trainer_plan(trainer));
    return note(self, "begin", 0, NULL);
}

static lk_status on_epoch_begin(void *self, lk_trainer *trainer, int64_t epoch)
{
    (void)trainer;
    return note(self, "epoch", epoch, NULL);
}

static lk_status on_step_end(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    notes *n = self;
    if (report->step == n->interrupt_at)
        lk_trainer_interrupt(trainer);
    return note(self, "step", report->step, stop);
}

static lk_status on_eval_step(void *self, lk_trainer *trainer, const lk_eval_report *report)
{
    (void)trainer;
    notes *n = self;
    n->evaluated = report->epoch;
    assert_int_equal(report->steps, 2); /* 41 samples in batches of 32 */
    assert_int_equal(report->so_far.loss.count, report->step == 1 ? 32 : 41);
    return note(self, "eval", report->step, NULL);
}

static lk_status on_epoch_end(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)trainer;
    notes *n = self;
    assert_int_equal(n->evaluated, report->epoch);
    assert_true(report->seconds <= report->epoch_seconds);
    assert_true(report->epoch_seconds <= report->total_seconds);
    return note(self, "end-of-epoch", report->epoch, stop);
}

static lk_status on_train_end(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    notes *n = self;
    (void)trainer;
    assert_non_null(result);
    n->status = status;
    return note(self, "end", 0, NULL);
}

static void on_release(void *self)
{
    notes *n = self;
    n->released++;
}

static void add_notes(lk_trainer *trainer, const char *name, notes *n)
{
    lk_callback callback = {.name = name,
                            .train_begin = on_train_begin,
                            .epoch_begin = on_epoch_begin,
                            .step_end = on_step_end,
                            .eval_step = on_eval_step,
                            .epoch_end = on_epoch_end,
                            .train_end = on_train_end,
                            .release = on_release,
                            .self = n};
    assert_ok(lk_trainer_add(trainer, callback));
}

/* 67 samples in batches of 32: three steps an epoch. */
static lk_trainer *trainer_with(notes *n)
{
    lk_train_config config = small_training();
    config.devices.spec = "2xcpu";
    lk_trainer *trainer = new_trainer(&config);
    add_notes(trainer, "notes", n);
    return trainer;
}

/* --- hooks -------------------------------------------------------------------------------------------------------- */

static void hooks_are_called_in_order(void **state)
{
    (void)state;
    notes a = {0}, b = {0};
    lk_train_result result;
    lk_trainer *trainer = trainer_with(&a);
    add_notes(trainer, "second", &b);
    assert_ok(lk_trainer_fit(trainer, &result));
    lk_trainer_release(trainer);
    const char *expected = " begin epoch1 step1 step2 step3 eval1 eval2 end-of-epoch1"
                           " epoch2 step1 step2 step3 eval1 eval2 end-of-epoch2 end";
    assert_string_equal(a.text, expected);
    assert_string_equal(b.text, expected);
    assert_int_equal(a.released + b.released, 2);
    assert_int_equal(a.status, LK_OK);
}

static void an_error_in_a_hook_ends_training(void **state)
{
    (void)state;
    static const struct {
        const char *hook, *text;
    } cases[] = {{"epoch", " begin epoch1 end"},
                 {"step", " begin epoch1 step1 end"},
                 {"eval", " begin epoch1 step1 step2 step3 eval1 end"},
                 {"end-of-epoch", " begin epoch1 step1 step2 step3 eval1 eval2 end-of-epoch1 end"},
                 {"begin", " begin"}};
    for (int i = 0; i < 5; i++) {
        notes first = {0}, n = {.error_in = cases[i].hook};
        lk_train_result result;
        lk_trainer *trainer = trainer_with(&first);
        add_notes(trainer, "failing", &n);
        assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_IO);
        assert_non_null(strstr(lk_error_message(), "callback failing: its ")); /* the hook says nothing itself */
        lk_trainer_release(trainer);
        assert_string_equal(n.text, cases[i].text);
        assert_int_equal(first.status, LK_ERR_IO); /* train_end follows train_begin, whatever happens */
        assert_int_equal(n.released, 1);
        lk_error_clear();
    }
}

static lk_status interrupt(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)self, (void)report, (void)stop;
    lk_trainer_interrupt(trainer);
    return LK_OK;
}

static lk_status fail_at_rest(void *self, lk_trainer *trainer, const lk_rest_report *report)
{
    (void)self, (void)trainer;
    return report->interrupted ? LK_ERR_IO : LK_OK;
}

/* A checkpoint that cannot be written after an interrupt, for example. */
static void an_error_after_an_interrupt_is_the_result(void **state)
{
    (void)state;
    notes n = {0};
    lk_train_result result;
    lk_trainer *trainer = trainer_with(&n);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "interrupting", .step_end = interrupt}));
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "saving", .rest = fail_at_rest}));
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_IO);
    assert_string_equal(lk_error_message(), "callback saving: its rest failed: input/output error");
    assert_int_equal(n.status, LK_ERR_IO);
    lk_trainer_release(trainer);
    lk_error_clear();
}

/* Adds callbacks, which moves the list of them. */
static lk_status add_more_and_stop(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)report;
    for (int i = 0; i < 20; i++)
        assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "more", .self = self}));
    *stop = true;
    return LK_OK;
}

/* The result describes the whole training, whoever trained its parts. */
static void a_second_fit_goes_on(void **state)
{
    (void)state;
    notes n = {0};
    lk_train_result result;
    lk_trainer *trainer = trainer_with(&n);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "stopping", .epoch_end = add_more_and_stop}));
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_string_equal(result.stopped_by, "stopping");
    assert_int_equal(result.epochs, 1);
    assert_int_equal(result.steps, 3);
    int64_t samples = result.samples_seen;
    for (int i = 0; i < 2; i++) { /* the second time nothing is left */
        assert_ok(lk_trainer_fit(trainer, &result));
        assert_int_equal(result.epochs, 2);
        assert_int_equal(result.steps, 6);
        assert_int_equal(result.samples_seen, 2 * samples);
    }
    lk_trainer_release(trainer);
}

static void an_error_at_the_end_is_the_result(void **state)
{
    (void)state;
    notes n = {.error_in = "end"}, after = {0};
    lk_train_result result;
    lk_trainer *trainer = trainer_with(&n);
    add_notes(trainer, "after", &after);
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_IO);
    lk_trainer_release(trainer);
    assert_int_equal(after.status, LK_OK);
    assert_int_equal(result.epochs, 2);
    lk_error_clear();
}

static void a_callback_stops_after_an_epoch(void **state)
{
    (void)state;
    notes n = {.stop_in = "end-of-epoch"};
    lk_train_result result;
    lk_trainer *trainer = trainer_with(&n);
    assert_ok(lk_trainer_fit(trainer, &result));
    lk_trainer_release(trainer);
    assert_string_equal(n.text, " begin epoch1 step1 step2 step3 eval1 eval2 end-of-epoch1 end");
    assert_string_equal(result.stopped_by, "notes");
    assert_int_equal(result.epochs, 1);
    assert_int_equal(result.val.accuracy.count, 41);

    lk_train_config config = small_training();
    config.epochs = 1;
    config.devices.spec = "2xcpu";
    trainer = new_trainer(&config);
    assert_string_equal(fit(trainer).result.digest, result.digest);
    lk_trainer_release(trainer);
}

static bool want_rest(void *self, lk_trainer *trainer, int64_t steps)
{
    (void)self, (void)trainer, (void)steps;
    return true;
}

/* The next step was already in flight, so it is done too; also if fit rests after every step. */
static void a_callback_stops_after_a_step(void **state)
{
    (void)state;
    lk_train_result results[2];
    for (int rests = 0; rests < 2; rests++) {
        notes n = {.stop_in = "step"};
        lk_train_result *result = &results[rests];
        lk_trainer *trainer = trainer_with(&n);
        if (rests)
            assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "resting", .wants_rest = want_rest}));
        assert_ok(lk_trainer_fit(trainer, result));
        assert_string_equal(n.text, " begin epoch1 step1 step2 end");
        assert_string_equal(result->stopped_by, "notes");
        assert_int_equal(result->epochs, 0);
        assert_int_equal(result->steps, 2);
        assert_int_equal(result->val.accuracy.count, 0);
        assert_string_equal(result->digest, results[0].digest);
        assert_int_equal(strlen(result->digest), 32);
        lk_trainer_release(trainer);
    }
}

static void an_interrupt_ends_training_properly(void **state)
{
    (void)state;
    notes n = {.interrupt_at = 1};
    lk_train_result result;
    lk_trainer *trainer = trainer_with(&n);
    expect_error(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED, "training: interrupted in epoch 1 after step 2");
    assert_string_equal(n.text, " begin epoch1 step1 step2 end");
    assert_int_equal(n.status, LK_ERR_INTERRUPTED);
    assert_int_equal(result.steps, 2);
    assert_int_equal(strlen(result.digest), 32);
    lk_trainer_release(trainer);
}

static void an_evaluation_can_be_interrupted(void **state)
{
    (void)state;
    notes n = {0};
    lk_metrics metrics;
    lk_trainer *trainer = trainer_with(&n);
    lk_trainer_interrupt(trainer);
    expect_error(lk_trainer_evaluate(trainer, &metrics), LK_ERR_INTERRUPTED, "evaluation: interrupted after 0 samples");
    assert_ok(lk_trainer_evaluate(trainer, &metrics));
    assert_int_equal(metrics.loss.count, 41);
    assert_string_equal(n.text, " eval1 eval2");
    assert_int_equal(n.evaluated, 0);
    lk_trainer_release(trainer);
}

/* The interrupt is then used up: fit continues where the steps ended. */
static void an_interrupt_ends_steps_without_hooks(void **state)
{
    (void)state;
    char digest[33];
    notes n = {0};
    lk_train_result result;
    lk_trainer *trainer = trainer_with(&n);
    lk_trainer_interrupt(trainer);
    expect_error(lk_trainer_run(trainer, 3), LK_ERR_INTERRUPTED, "training: interrupted after 0 of 3 steps");
    assert_ok(lk_trainer_run(trainer, 3));
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_int_equal(result.steps, 6);
    lk_trainer_release(trainer);

    trainer = trainer_with(&n);
    assert_ok(lk_trainer_run(trainer, 6));
    assert_ok(lk_trainer_digest(trainer, 0, digest));
    assert_string_equal(result.digest, digest);
    lk_trainer_release(trainer);
}

static lk_status train_in_an_evaluation(void *self, lk_trainer *trainer, const lk_eval_report *report)
{
    (void)report;
    int *calls = self;
    lk_train_result result;
    expect_error(lk_trainer_fit(trainer, &result), LK_ERR_STATE,
                 "training: steps of fit are in flight; from epoch_end on it can be asked for");
    ++*calls;
    return LK_OK;
}

static void training_inside_an_evaluation_is_refused(void **state)
{
    (void)state;
    notes n = {0};
    int calls = 0;
    lk_metrics metrics;
    lk_trainer *trainer = trainer_with(&n);
    assert_ok(lk_trainer_add(trainer,
                             (lk_callback){.name = "training", .eval_step = train_in_an_evaluation, .self = &calls}));
    assert_ok(lk_trainer_evaluate(trainer, &metrics));
    assert_int_equal(calls, 2);
    lk_trainer_release(trainer);
}

static lk_status evaluate_in_a_step(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)self, (void)report, (void)stop;
    lk_metrics metrics;
    expect_error(lk_trainer_evaluate(trainer, &metrics), LK_ERR_STATE,
                 "evaluation: steps of fit are in flight; from epoch_end on it can be asked for");
    lk_error_clear();
    expect_error(lk_trainer_run(trainer, 1), LK_ERR_STATE,
                 "training steps: a callback cannot take steps of the training that calls it");
    lk_error_clear();
    lk_train_result result;
    expect_error(lk_trainer_fit(trainer, &result), LK_ERR_STATE,
                 "training: a callback cannot begin the training that calls it");
    lk_error_clear();
    return LK_OK;
}

static lk_status evaluate_after_an_epoch(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)stop;
    lk_metrics *metrics = self;
    assert_int_equal(report->train.loss.count, 67);
    return lk_trainer_evaluate(trainer, metrics);
}

static void an_evaluation_inside_an_epoch_is_refused(void **state)
{
    (void)state;
    notes n = {0};
    lk_metrics metrics = {0};
    lk_train_result result;
    lk_trainer *trainer = trainer_with(&n);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "evaluating",
                                                    .step_end = evaluate_in_a_step,
                                                    .epoch_end = evaluate_after_an_epoch,
                                                    .self = &metrics}));
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_int_equal(metrics.loss.count, 41);
    lk_trainer_release(trainer);
}

static void a_missing_variable_has_no_hash(void **state)
{
    (void)state;
    notes n = {0};
    uint64_t hash;
    lk_trainer *trainer = trainer_with(&n);
    expect_error(lk_trainer_variable_hash(trainer, 2, 0, &hash), LK_ERR_ARGUMENT,
                 "variable hash: there is no replica 2");
    lk_error_clear();
    expect_error(lk_trainer_variable_hash(trainer, 0, 8, &hash), LK_ERR_ARGUMENT,
                 "variable hash: there is no variable 8; there are 8");
    lk_trainer_release(trainer);
}

static void fit_in_the_middle_of_an_epoch_is_refused(void **state)
{
    (void)state;
    notes n = {0};
    lk_train_result result;
    lk_trainer *trainer = trainer_with(&n);
    assert_ok(lk_trainer_run(trainer, 2));
    expect_error(lk_trainer_fit(trainer, &result), LK_ERR_STATE,
                 "training: an epoch was left half way; lk_trainer_run has to end it first");
    assert_string_equal(n.text, "");
    assert_ok(lk_trainer_run(trainer, 1)); /* the third and last of its steps */
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_int_equal(result.epochs, 2);
    assert_int_equal(result.steps, 6);
    lk_trainer_release(trainer);
}

/* --- rates -------------------------------------------------------------------------------------------------------- */

static double no_rate(void *self, lk_trainer *trainer, double epoch, double rate)
{
    notes *n = self;
    (void)trainer;
    n->epochs[n->n_rates] = epoch;
    n->rates[n->n_rates++] = rate;
    return 0;
}

static lk_status rate_is_zero(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)self;
    (void)trainer;
    (void)stop;
    assert_true(report->rate == 0);
    return LK_OK;
}

static void a_hook_gives_the_rate(void **state)
{
    (void)state;
    char before[33];
    notes n = {0};
    lk_train_result result;
    lk_train_config config = small_training();
    config.optimizer.lr_steps = "1:0.25";
    config.devices.spec = "2xcpu";
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_digest(trainer, 0, before));
    assert_ok(
        lk_trainer_add(trainer, (lk_callback){.name = "still", .rate = no_rate, .step_end = rate_is_zero, .self = &n}));
    assert_ok(lk_trainer_fit(trainer, &result));
    lk_trainer_release(trainer);
    assert_string_equal(result.digest, before);
    assert_int_equal(n.n_rates, 6);
    for (int i = 0; i < 6; i++) {
        assert_true(fabs(n.epochs[i] - i / 3.0) < 1e-12);
        assert_true(n.rates[i] == (i < 3 ? 0.2 : 0.2 * 0.25));
    }
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* With plain SGD an update subtracts the rate times the gradient that lk_trainer_gradients gives. */
static void gradients_are_those_of_the_last_update(void **state)
{
    (void)state;
    lk_train_config config = small_training();
    config.devices.spec = "2xcpu";
    config.optimizer.base_lr = 0.5;
    lk_trainer *trainer = new_trainer(&config);
    lk_tensor *bias = lk_trainer_variables(trainer, 0)[1];
    float before[20], after[20], gradient[20];
    assert_int_equal(lk_tensor_count(bias), 20);
    assert_null(lk_trainer_gradients(trainer));
    assert_ok(lk_tensor_read(bias, before, sizeof before));
    assert_ok(lk_trainer_run(trainer, 1));
    assert_ok(lk_tensor_read(bias, after, sizeof after));
    assert_ok(lk_tensor_read(lk_trainer_gradients(trainer)[1], gradient, sizeof gradient));
    double largest = 0;
    for (int i = 0; i < 20; i++) {
        largest = fmax(largest, fabs((double)gradient[i]));
        assert_true(fabs((double)(before[i] - after[i]) - 0.5 * (double)gradient[i]) <=
                    1e-6 * fabs((double)gradient[i]));
    }
    assert_true(largest > 0);
    lk_trainer_release(trainer);
}

/* --- predictions -------------------------------------------------------------------------------------------------- */

enum { PREDICTED = 41, CLASSES = 10 };

static void predict(const char *devices, float *probabilities, lk_metrics *metrics, lk_dataset *dataset)
{
    lk_train_config config = small_training();
    config.data.limit_train = 256;
    config.devices.spec = devices;
    config.devices.shards = 4;
    config.val_batch_size = 15;
    config.data.normalize = LK_NORMALIZE_STANDARD;
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_run(trainer, 8));
    assert_ok(lk_trainer_predict(trainer, dataset, probabilities));
    assert_ok(lk_trainer_evaluate(trainer, metrics));
    lk_trainer_release(trainer);
}

static void predictions_agree_with_the_evaluation(void **state)
{
    (void)state;
    float one[PREDICTED * CLASSES], three[PREDICTED * CLASSES];
    lk_metrics metrics;
    lk_dataset *dataset;
    int hits = 0;
    double loss = 0;
    assert_ok(lk_dataset_open("synthetic", LK_SPLIT_TEST, &(lk_dataset_opts){.limit = PREDICTED}, &dataset));
    predict("1xcpu", one, &metrics, dataset);
    predict("3xcpu", three, &metrics, dataset);
    assert_memory_equal(one, three, sizeof one);
    for (int i = 0; i < PREDICTED; i++) {
        const float *p = one + i * CLASSES;
        int best = 0, label = lk_dataset_labels(dataset)[i];
        double sum = 0;
        for (int c = 0; c < CLASSES; c++) {
            best = p[c] > p[best] ? c : best;
            sum += (double)p[c];
        }
        assert_true(fabs(sum - 1) < 1e-5);
        hits += best == label;
        loss -= log((double)p[label]);
    }
    assert_int_equal(hits, (int)metrics.accuracy.sum);
    assert_true(fabs(loss - metrics.loss.sum) < 1e-4 * loss);
    lk_dataset_release(dataset);
}

typedef struct two_predictions {
    lk_dataset *dataset;
    float in_a_step[PREDICTED * CLASSES], after[PREDICTED * CLASSES];
} two_predictions;

static lk_status predict_in_a_step(void *self, lk_trainer *trainer, const lk_eval_report *report)
{
    (void)report;
    two_predictions *p = self;
    return lk_trainer_predict(trainer, p->dataset, p->in_a_step);
}

static lk_status predict_after(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop)
{
    (void)report, (void)stop;
    two_predictions *p = self;
    assert_ok(lk_trainer_predict(trainer, p->dataset, p->after));
    assert_memory_equal(p->in_a_step, p->after, sizeof p->after);
    return LK_OK;
}

/* Both are of the averages. */
static void predictions_in_an_evaluation_are_those_after_it(void **state)
{
    (void)state;
    static two_predictions p;
    lk_train_result result;
    assert_ok(lk_dataset_open("synthetic", LK_SPLIT_TEST, &(lk_dataset_opts){.limit = PREDICTED}, &p.dataset));
    lk_train_config config = small_training();
    config.optimizer.average = 0.9;
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_add(
        trainer,
        (lk_callback){.name = "predicting", .eval_step = predict_in_a_step, .epoch_end = predict_after, .self = &p}));
    assert_ok(lk_trainer_fit(trainer, &result));
    lk_trainer_release(trainer);
    lk_dataset_release(p.dataset);
}

static void images_of_another_size_are_refused(void **state)
{
    (void)state;
    static const unsigned char images[16 + 6] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3},
                                           labels[8 + 1] = {0, 0, 8, 1, 0, 0, 0, 1};
    char images_path[80], labels_path[80], message[512];
    float probabilities[CLASSES];
    notes n = {0};
    lk_dataset *dataset;
    snprintf(images_path, sizeof images_path, "%s/images", test_dir);
    snprintf(labels_path, sizeof labels_path, "%s/labels", test_dir);
    put_bytes(images_path, images, sizeof images);
    put_bytes(labels_path, labels, sizeof labels);
    assert_ok(lk_dataset_open_idx(images_path, labels_path, 10, 0, &dataset));
    lk_trainer *trainer = trainer_with(&n);
    snprintf(message, sizeof message, "%s: images of 1x2x3, expected 1x28x28 as in %s", images_path,
             lk_dataset_source(lk_trainer_dataset(trainer, LK_SPLIT_TRAIN)));
    expect_error(lk_trainer_predict(trainer, dataset, probabilities), LK_ERR_SHAPE, message);
    lk_trainer_release(trainer);
    lk_dataset_release(dataset);
}

/* --- what the configuration asks for ------------------------------------------------------------------------------ */

static bool test_dir_has(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", test_dir, name);
    return access(path, F_OK) == 0;
}

/* Nothing but the configuration is given, and the trainer stops, keeps records and writes checkpoints. */
static void the_configuration_is_carried_out(void **state)
{
    (void)state;
    char logs[128], checkpoints[128];
    lk_train_result result;
    lk_checkpoint *last;
    lk_train_config config = small_training();
    snprintf(logs, sizeof logs, "%s/logs", test_dir);
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", test_dir);
    config.epochs = 9;
    config.stop.target_accuracy = 0;
    config.stop.patience = 2;
    config.stop.stream = tmpfile();
    config.records.log_dir = logs;
    config.checkpoints.dir = checkpoints;
    config.checkpoints.every = "1";
    config.optimizer.base_lr = 1e-3;
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_fit(trainer, &result));
    lk_trainer_release(trainer);
    assert_string_equal(result.stopped_by, "stop at accuracy");
    assert_int_equal(result.epochs, 2);
    assert_true(ftell(config.stop.stream) > 0);
    fclose(config.stop.stream);
    assert_true(test_dir_has("logs/epochs.csv") && test_dir_has("logs/epochs.jsonl"));
    assert_ok(lk_checkpoint_open(checkpoints, LK_CHECKPOINT_LAST, &last));
    assert_int_equal(lk_checkpoint_get_info(last)->steps, result.steps);
    lk_checkpoint_release(last);
}

static void an_early_stop_ends_training(void **state)
{
    (void)state;
    lk_train_result result;
    lk_train_config config = small_training();
    config.epochs = 9;
    config.stop.early_stop = 1;
    config.optimizer.base_lr = 1e-9; /* so small that nothing improves */
    lk_trainer *trainer = new_trainer(&config);
    assert_ok(lk_trainer_fit(trainer, &result));
    lk_trainer_release(trainer);
    assert_string_equal(result.stopped_by, "stop on plateau");
    assert_true(result.epochs < 9);
}

/* Each epoch's validation loss is larger than the one before it. */
static void the_best_weights_are_taken_back(void **state)
{
    (void)state;
    for (int average = 0; average < 2; average++) {
        lk_train_config config = small_training();
        config.epochs = 3;
        config.optimizer.base_lr = 0.8;
        config.optimizer.average = average ? 0.5 : 0;
        config.stop.restore_best = true;
        lk_trainer *trainer = new_trainer(&config);
        outcome out = fit(trainer);
        lk_metrics val;
        assert_ok(lk_trainer_evaluate(trainer, &val));
        double best = INFINITY;
        for (int e = 0; e < 3; e++)
            best = fmin(best, out.epochs[e].val.loss.sum);
        assert_true(val.loss.sum == best);
        assert_true(out.result.val.loss.sum == best && out.result.val.accuracy.sum == val.accuracy.sum);
        assert_true(out.epochs[2].val.loss.sum > best);
        lk_trainer_release(trainer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_are_called_in_order),
        cmocka_unit_test(an_error_in_a_hook_ends_training),
        cmocka_unit_test(an_error_at_the_end_is_the_result),
        cmocka_unit_test(an_error_after_an_interrupt_is_the_result),
        cmocka_unit_test(a_second_fit_goes_on),
        cmocka_unit_test(a_callback_stops_after_an_epoch),
        cmocka_unit_test(a_callback_stops_after_a_step),
        cmocka_unit_test(an_interrupt_ends_training_properly),
        cmocka_unit_test(an_evaluation_can_be_interrupted),
        cmocka_unit_test(an_interrupt_ends_steps_without_hooks),
        cmocka_unit_test(training_inside_an_evaluation_is_refused),
        cmocka_unit_test(an_evaluation_inside_an_epoch_is_refused),
        cmocka_unit_test(a_missing_variable_has_no_hash),
        cmocka_unit_test(fit_in_the_middle_of_an_epoch_is_refused),
        cmocka_unit_test(a_hook_gives_the_rate),
        cmocka_unit_test(gradients_are_those_of_the_last_update),
        cmocka_unit_test(predictions_agree_with_the_evaluation),
        cmocka_unit_test(predictions_in_an_evaluation_are_those_after_it),
        FOLDER_TEST(images_of_another_size_are_refused),
        FOLDER_TEST(the_configuration_is_carried_out),
        cmocka_unit_test(an_early_stop_ends_training),
        cmocka_unit_test(the_best_weights_are_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
