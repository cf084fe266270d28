/* Records of short trainings. */
#include "lockstep/callbacks.h"

#include "base/folder_testing.h"
#include "base/mem_testing.h"
#include "lockstep/checkpoint.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EPOCHS = 3 };

/* checkpoints: the folder to resume from; NULL: none. */
static lk_trainer *new_trainer_from(const char *checkpoints)
{
    lk_train_config config;
    lk_error_clear();
    assert_int_equal(lk_train_defaults(NULL, &config), LK_OK);
    config.data.name = "synthetic";
    config.data.limit_train = 24;
    config.data.limit_val = 40;
    config.batch_size = 8;
    config.epochs = EPOCHS;
    config.devices.spec = "1";
    config.checks.top_k = 3;
    config.checkpoints.dir = checkpoints;
    config.checkpoints.resume = checkpoints != NULL;
    lk_trainer *trainer = lk_trainer_new(&config);
    if (!trainer)
        fail_msg("%s", lk_error_message());
    return trainer;
}

static lk_trainer *new_trainer(void)
{
    return new_trainer_from(NULL);
}

static void train(lk_trainer *trainer)
{
    lk_train_result result;
    if (lk_trainer_fit(trainer, &result) != LK_OK)
        fail_msg("%s", lk_error_message());
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static char *read_file(const char *dir, const char *name, size_t *size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return contents_of(path, size);
}

/* The only event file of the folder. */
static char *read_events(const char *dir, size_t *size)
{
    char name[256] = "";
    DIR *folder = opendir(dir);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strstr(entry->d_name, "tfevents")) {
            assert_string_equal(name, "");
            snprintf(name, sizeof name, "%s", entry->d_name);
        }
    }
    closedir(folder);
    return read_file(dir, name, size);
}

static int count_text(const char *bytes, size_t size, const char *text)
{
    int count = 0;
    for (const char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), text, strlen(text))); at++)
        count++;
    return count;
}

static void check_events(const char *dir)
{
    size_t size;
    char *events = read_events(dir, &size);
    static const char *const every_epoch[] = {"loss/train",
                                              "loss/val",
                                              "accuracy/train",
                                              "accuracy/val",
                                              "top_k/train",
                                              "top_k/val",
                                              "learning_rate",
                                              "images_per_second",
                                              "weights/dense2.weight",
                                              "gradients/dense2.weight",
                                              "weights/dense1.bias",
                                              "gradients/dense1.bias"};
    for (size_t i = 0; i < sizeof every_epoch / sizeof every_epoch[0]; i++)
        if (count_text(events, size, every_epoch[i]) != EPOCHS)
            fail_msg("%s is there %d times", every_epoch[i], count_text(events, size, every_epoch[i]));
    assert_int_equal(count_text(events, size, "steps/loss"), 3 * EPOCHS);
    assert_int_equal(count_text(events, size, "steps/rate"), 3 * EPOCHS);
    assert_int_equal(count_text(events, size, "| batch-size | 8 |"), 1);
    assert_int_equal(count_text(events, size, "| epochs | 3 |"), 1);
    assert_int_equal(count_text(events, size, "| devices in use | cpu:0 |"), 1);
    free(events);
}

static void check_csv(const char *dir)
{
    size_t size;
    char *csv = read_file(dir, "epochs.csv", &size);
    assert_int_equal(count_text(csv, size, "\n"), 1 + EPOCHS);
    assert_int_equal(strncmp(csv, "epoch,step,train_loss,train_accuracy,train_top_k,val_loss,", 58), 0);
    assert_non_null(strstr(csv, "\n1,3,"));
    assert_non_null(strstr(csv, "\n2,6,"));
    assert_non_null(strstr(csv, "\n3,9,"));
    free(csv);
}

static json_t *parse_line(char **text)
{
    char *line = strsep(text, "\n");
    json_error_t error;
    json_t *object = json_loads(line, 0, &error);
    if (!object)
        fail_msg("%s: %s", line, error.text);
    return object;
}

/* Skips the settings of trainings that were resumed. */
static json_t *parse_line_but_settings(char **text)
{
    json_t *line = parse_line(text);
    while (strcmp(json_string_value(json_object_get(line, "event")), "settings") == 0) {
        json_decref(line);
        line = parse_line(text);
    }
    return line;
}

static void check_json_lines(const char *dir)
{
    size_t size;
    char *lines = read_file(dir, "epochs.jsonl", &size), *rest = lines;
    json_t *settings = parse_line(&rest);
    assert_string_equal(json_string_value(json_object_get(settings, "event")), "settings");
    assert_true(json_real_value(json_object_get(settings, "base-lr")) == 0.2);
    assert_int_equal(json_integer_value(json_object_get(settings, "batch-size")), 8);
    assert_int_equal(json_integer_value(json_object_get(settings, "training samples")), 24);
    assert_true(json_is_false(json_object_get(settings, "nesterov")));
    assert_true(json_is_null(json_object_get(settings, "recipe")));
    assert_true(json_is_null(json_object_get(settings, "target-accuracy")));
    assert_true(json_is_null(json_object_get(settings, "patience")));
    assert_true(json_real_value(json_object_get(settings, "rate in use")) == 0.2);
    assert_string_equal(json_string_value(json_object_get(settings, "model")), "lenet");
    json_decref(settings);
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        json_t *line = parse_line_but_settings(&rest);
        assert_string_equal(json_string_value(json_object_get(line, "event")), "epoch");
        assert_int_equal(json_integer_value(json_object_get(line, "epoch")), epoch);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(line, "train_ledger"), "used_once")), 24);
        assert_true(json_real_value(json_object_get(line, "train_loss")) > 0);
        assert_true(json_is_real(json_object_get(line, "val_top_k")));
        json_decref(line);
    }
    json_t *done = parse_line_but_settings(&rest);
    assert_string_equal(json_string_value(json_object_get(done, "event")), "done");
    assert_true(json_is_null(json_object_get(done, "stopped_by")));
    json_decref(done);
    assert_string_equal(rest, "");
    free(lines);
}

static void leaves_every_record(void **state)
{
    lk_trainer *trainer = new_trainer();
    assert_int_equal(lk_trainer_add(trainer, lk_callback_log_dir(*state)), LK_OK);
    train(trainer);
    lk_trainer_release(trainer);
    check_events(*state);
    check_csv(*state);
    check_json_lines(*state);
}

static lk_status count_epoch(void *self, lk_trainer *trainer, int64_t epoch)
{
    (void)trainer, (void)epoch;
    ++*(int *)self;
    return LK_OK;
}

static double halve_rate(void *user, double epoch, double rate)
{
    (void)user, (void)epoch;
    return rate / 2;
}

/* The settings do not have the function. */
static void says_that_a_rate_was_a_programs(void **state)
{
    for (int own_rate = 0; own_rate < 2; own_rate++) {
        lk_trainer *trainer = new_trainer();
        if (own_rate)
            assert_int_equal(lk_trainer_add(trainer, lk_callback_rate(halve_rate, NULL)), LK_OK);
        assert_int_equal(lk_trainer_add(trainer, lk_callback_log_dir(*state)), LK_OK);
        train(trainer);
        lk_trainer_release(trainer);
        size_t size;
        char *lines = read_file(*state, own_rate ? "epochs-2.jsonl" : "epochs.jsonl", &size);
        assert_int_equal(count_text(lines, size, "\"repeatable\":false"), own_rate);
        free(lines);
    }
}

static void refuses_before_training(void **state)
{
    char path[128];
    snprintf(path, sizeof path, "%s/nowhere/epochs", (char *)*state);
    for (int which = 0; which < 2; which++) {
        int epochs = 0;
        lk_trainer *trainer = new_trainer();
        assert_int_equal(
            lk_trainer_add(trainer, (lk_callback){.name = "count", .epoch_begin = count_epoch, .self = &epochs}),
            LK_OK);
        assert_int_equal(lk_trainer_add(trainer, which ? lk_callback_csv(path) : lk_callback_json_lines(path, NULL)),
                         LK_OK);
        lk_train_result result;
        assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_IO);
        assert_non_null(strstr(lk_error_message(), path));
        assert_int_equal(epochs, 0);
        lk_trainer_release(trainer);
    }
}

static void gives_back_what_a_constructor_said(void **state)
{
    (void)state;
    lk_trainer *trainer = new_trainer();
    assert_int_equal(lk_trainer_add(trainer, lk_callback_stop_at_accuracy(1.5, 1, NULL)), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "1.5"));
    lk_trainer_release(trainer);
    lk_error_clear();
}

/* --- errors in the middle
 * ---------------------------------------------------------------------------------------------- */

static lk_status interrupt(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)stop;
    if (report->epoch == *(int *)self && report->step == 1)
        lk_trainer_interrupt(trainer);
    return LK_OK;
}

static void train_until_interrupted(int epoch, const char *dir)
{
    lk_trainer *trainer = new_trainer();
    assert_int_equal(lk_trainer_add(trainer, (lk_callback){.name = "interrupt", .step_end = interrupt, .self = &epoch}),
                     LK_OK);
    assert_int_equal(lk_trainer_add(trainer, lk_callback_log_dir(dir)), LK_OK);
    lk_train_result result;
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED);
    lk_trainer_release(trainer);
    lk_error_clear();
}

/* All files are valid, and without values there is no picture. */
static void leaves_records_without_an_epoch(void **state)
{
    train_until_interrupted(1, *state);
    size_t size;
    char *csv = read_file(*state, "epochs.csv", &size);
    assert_string_equal(csv, "epoch,step,train_loss,train_accuracy,train_top_k,val_loss,val_accuracy,val_top_k,rate,"
                             "seconds,total_seconds,images_per_second,skipped_steps\n");
    free(csv);
    char *lines = read_file(*state, "epochs.jsonl", &size), *rest = lines;
    json_decref(parse_line(&rest));
    json_t *last = parse_line(&rest);
    assert_string_equal(json_string_value(json_object_get(last, "event")), "stopped");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(last, "partial"), "epoch")), 1);
    assert_string_equal(rest, "");
    json_decref(last);
    free(lines);
    char path[128];
    snprintf(path, sizeof path, "%s/curves.svg", (char *)*state);
    assert_int_equal(access(path, F_OK), -1);
}

static void says_how_an_interrupted_training_ended(void **state)
{
    train_until_interrupted(2, *state);
    size_t size;
    char *lines = read_file(*state, "epochs.jsonl", &size), *rest = lines;
    json_decref(parse_line(&rest));
    json_decref(parse_line(&rest));
    json_t *last = parse_line(&rest);
    assert_string_equal(json_string_value(json_object_get(last, "event")), "stopped");
    assert_string_equal(json_string_value(json_object_get(last, "status")), lk_status_name(LK_ERR_INTERRUPTED));
    assert_int_equal(json_integer_value(json_object_get(last, "epochs")), 1);
    json_t *partial = json_object_get(last, "partial");
    assert_int_equal(json_integer_value(json_object_get(partial, "epoch")), 2);
    assert_in_range(json_integer_value(json_object_get(partial, "step")), 1, 3);
    json_decref(last);
    free(lines);
}

/* Losses that were never a number have no lines and no entries in the legend. */
static void draws_what_was_measured(void **state)
{
    char svg[128];
    snprintf(svg, sizeof svg, "%s/curves.svg", (char *)*state);
    lk_callback callback = lk_callback_curves(svg, NULL);
    lk_trainer *trainer = new_trainer();
    bool stop = false;
    lk_epoch_report report = {.epoch = 1, .train.loss = {NAN, 1}};
    assert_int_equal(callback.epoch_end(callback.self, trainer, &report, &stop), LK_OK);
    assert_int_equal(access(svg, F_OK), -1);
    report = (lk_epoch_report){.epoch = 2, .train.loss = {2.3, 1}, .train.accuracy = {1, 4}};
    assert_int_equal(callback.epoch_end(callback.self, trainer, &report, &stop), LK_OK);
    callback.release(callback.self);
    lk_trainer_release(trainer);
    size_t size;
    char *text = read_file(*state, "curves.svg", &size);
    assert_int_equal(count_text(text, size, ">lenet on synthetic<"), 1);
    assert_int_equal(count_text(text, size, ">training<"), 2); /* a panel each for losses and accuracies */
    assert_int_equal(count_text(text, size, ">validation<"), 0);
    assert_int_equal(count_text(text, size, ">loss<"), 1);
    assert_int_equal(count_text(text, size, ">accuracy<"), 1);
    assert_int_equal(count_text(text, size, "nan"), 0);
    free(text);
}

/* An epoch of which no update counts has no measure of training. */
static void lines_have_what_was_not_measured(void **state)
{
    char path[128];
    snprintf(path, sizeof path, "%s/lines", (char *)*state);
    lk_callback callback = lk_callback_json_lines(path, NULL);
    lk_trainer *trainer = new_trainer();
    bool stop = false;
    lk_epoch_report report = {.epoch = 1, .val = {.loss = {2, 4}, .accuracy = {1, 4}, .top_k = {3, 4}}};
    assert_int_equal(callback.train_begin(callback.self, trainer), LK_OK);
    assert_int_equal(callback.epoch_end(callback.self, trainer, &report, &stop), LK_OK);
    callback.release(callback.self);
    lk_trainer_release(trainer);
    size_t size;
    char *lines = read_file(*state, "lines", &size), *rest = lines;
    json_t *line = parse_line(&rest);
    assert_true(json_is_null(json_object_get(line, "train_top_k")));
    assert_true(json_real_value(json_object_get(line, "val_top_k")) == 0.75);
    json_decref(line);
    free(lines);
}

static lk_status interrupt_evaluation(void *self, lk_trainer *trainer, const lk_eval_report *report)
{
    if (report->epoch == *(int *)self)
        lk_trainer_interrupt(trainer);
    return LK_OK;
}

/* epoch 0: train to the end. */
static void go_on_until_evaluation(int epoch, const char *dir)
{
    char checkpoints[128];
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", dir);
    lk_trainer *trainer = new_trainer_from(checkpoints);
    lk_callback interrupts = {.name = "interrupt", .eval_step = interrupt_evaluation, .self = &epoch};
    assert_int_equal(lk_trainer_add(trainer, interrupts), LK_OK);
    assert_int_equal(lk_trainer_add(trainer, lk_callback_log_dir(dir)), LK_OK);
    lk_train_result result;
    assert_int_equal(lk_trainer_fit(trainer, &result), epoch ? LK_ERR_INTERRUPTED : LK_OK);
    lk_trainer_release(trainer);
    lk_error_clear();
}

/* Compares histograms of gradients too; a run that is resumed only to evaluate has no gradients. */
static void leaves_every_record_of_what_goes_on(void **state)
{
    char whole[128];
    size_t size, whole_size;
    snprintf(whole, sizeof whole, "%s/whole", (char *)*state);
    go_on_until_evaluation(0, whole);
    free(read_events(whole, &whole_size));
    go_on_until_evaluation(1, *state);
    go_on_until_evaluation(2, *state);
    go_on_until_evaluation(2, *state);
    go_on_until_evaluation(EPOCHS, *state);
    go_on_until_evaluation(0, *state);
    check_events(*state);
    free(read_events(*state, &size));
    assert_int_equal(size, whole_size);
    check_csv(*state);
    check_json_lines(*state);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* The trainer is built before, so only allocations in the records' hooks fail. */
static void unwinds_without_memory(void **state)
{
    lk_trainer *trainer = new_trainer();
    assert_int_equal(lk_wait_all(), LK_OK);
    lk_epoch_report report = {.epoch = 1, .train.loss = {1, 1}, .val.loss = {1, 1}};
    lk_train_result result = {.epochs = 1};
    bool stop = false;
    failing f = fail_every(1);
    do {
        char dir[128];
        snprintf(dir, sizeof dir, "%s/%lld", (char *)*state, (long long)f.n);
        lk_callback callback = lk_callback_log_dir(dir);
        assert_non_null(callback.name);
        fail_next(&f);
        lk_status status = callback.train_begin(callback.self, trainer);
        if (status == LK_OK)
            status = callback.epoch_end(callback.self, trainer, &report, &stop);
        if (status == LK_OK)
            status = callback.train_end(callback.self, trainer, &result, LK_OK);
        stop_failing_with(&f, status);
        callback.release(callback.self);
    } while (f.reached);
    lk_trainer_release(trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(leaves_every_record),
        FOLDER_TEST(says_that_a_rate_was_a_programs),
        FOLDER_TEST(refuses_before_training),
        cmocka_unit_test(gives_back_what_a_constructor_said),
        FOLDER_TEST(leaves_records_without_an_epoch),
        FOLDER_TEST(draws_what_was_measured),
        FOLDER_TEST(lines_have_what_was_not_measured),
        FOLDER_TEST(says_how_an_interrupted_training_ended),
        FOLDER_TEST(leaves_every_record_of_what_goes_on),
        FOLDER_TEST(unwinds_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
