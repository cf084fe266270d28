/* Scaling reports: what follows from numbers that are known, files and what is wrong with them, and what a run of some
 * steps leaves. No time is looked at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train/scaling.h"

#include "base/mem.h"
#include "lockstep/callbacks.h"
#include "lockstep/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define assert_ok(expression)                   \
    do {                                        \
        if ((expression) != LK_OK)              \
            fail_msg("%s", lk_error_message()); \
    } while (0)

#define assert_near(have, want) assert_true(fabs((have) - (want)) <= 1e-9 * fabs(want))

static void expect_error(lk_status have, lk_status status, const char *part)
{
    assert_int_equal(have, status);
    if (!strstr(lk_error_message(), part))
        fail_msg("'%s' lacks '%s'", lk_error_message(), part);
    lk_error_clear();
}

/* Two devices: 10 ms of computing each, 1 of it for the update; 2 ms of exchange, half of it hidden. */
static lk_scaling_report known_report(void)
{
    lk_scaling_report r;
    lk__scaling_clear(&r);
    strcpy(r.model, "lenet");
    strcpy(r.data, "synthetic");
    strcpy(r.strategy, "mirrored");
    strcpy(r.dtype, "f32");
    strcpy(r.kind, "cpu");
    strcpy(r.host, "host");
    strcpy(r.slowest_device, "cpu:1");
    r.devices = 2;
    r.processes = 1;
    r.batch_size = 64;
    r.shards = 8;
    r.steps = 20;
    r.images_per_second = 4000;
    r.step_seconds = 0.016;
    r.compute = r.computing = 0.010;
    r.core_share = 1;
    r.update = 0.001;
    r.exchange = 0.001;
    r.slowest = 0.002;
    r.input = 0.001;
    r.other = 0.002;
    r.latency = 1e-4;
    r.bandwidth = 1e9;
    r.messages = 3;
    r.sliced_bytes = 1.6e6;
    r.whole_bytes = 1e5;
    return r;
}

/* --- what follows from numbers ------------------------------------------------------------------------------------ */

static void speedup_is_measured_or_estimated(void **state)
{
    (void)state;
    lk_scaling_report r = known_report();
    lk_speedup s = lk_scaling_speedup(&r);
    assert_false(s.measured);
    assert_near(s.speedup, (0.001 + 2 * 0.009) / 0.016);
    assert_near(s.efficiency, s.speedup / 2);

    r.one_device_images_per_second = 2500;
    s = lk_scaling_speedup(&r);
    assert_true(s.measured);
    assert_near(s.speedup, 1.6);

    r = known_report();
    r.steps = 0;
    assert_true(isnan(lk_scaling_speedup(&r).speedup));
    r = known_report();
    strcpy(r.kind, "cuda"); /* whose operators are recorded one after the other */
    assert_true(isnan(lk_scaling_speedup(&r).efficiency));
    r.devices = 1;
    assert_near(lk_scaling_speedup(&r).speedup, 1.0);
}

static void prediction_is_the_formula(void **state)
{
    (void)state;
    lk_scaling_report r = known_report();
    lk_scaling_prediction p;
    assert_near(lk_scaling_exchange_seconds(&r, 2), 3e-4 + 1e-4 + 1.6e-3);
    assert_near(lk_scaling_exchange_seconds(&r, 8), 7 * 3e-4 + 7e-4 + 2.8e-3);
    assert_true(lk_scaling_exchange_seconds(&r, 1) == 0);

    assert_true(lk_scaling_predict(&r, 2, true, &p)); /* what the run had, but for waits */
    assert_near(p.step_seconds, 0.011);
    assert_near(p.efficiency, 10.0 / 11);
    assert_true(lk_scaling_predict(&r, 8, true, &p));
    assert_near(p.step_seconds, 0.010 + 0.0056 - 0.001);
    assert_near(p.speedup, 8 * 0.010 / 0.0146);

    assert_true(lk_scaling_predict(&r, 8, false, &p)); /* a shard a device */
    assert_near(p.step_seconds, 0.001 + 0.018 / 8 + 0.0046);
    assert_near(p.speedup, 0.019 / p.step_seconds);
    assert_true(lk_scaling_predict(&r, 3, false, &p)); /* one has three shards */
    assert_near(p.step_seconds, 0.001 + 0.018 * 3 / 8 + lk_scaling_exchange_seconds(&r, 3) - 0.001);
    assert_false(lk_scaling_predict(&r, 16, false, &p));
    assert_true(isnan(p.step_seconds));
}

static void nothing_is_predicted_of_what_was_not_measured(void **state)
{
    (void)state;
    lk_scaling_prediction p;
    lk_scaling_report r = known_report();
    r.latency = NAN;
    assert_false(lk_scaling_predict(&r, 4, true, &p));
    r = known_report();
    r.steps = 0;
    r.computing = NAN;
    assert_false(lk_scaling_predict(&r, 4, true, &p));
    r = known_report();
    r.devices = 1;
    assert_false(lk_scaling_predict(&r, 4, true, &p));
    assert_false(lk_scaling_predict(&(lk_scaling_report){.devices = 2}, 0, true, &p));
}

static void runs_are_compared_if_they_are_alike(void **state)
{
    (void)state;
    lk_scaling_report many = known_report(), one = known_report(), other;
    expect_error(lk_scaling_compare(&one, &many), LK_ERR_ARGUMENT, "the first one is on 2 devices");
    one.devices = 1;
    one.images_per_second = 2500;
    other = one;
    strcpy(other.model, "keras-cnn");
    expect_error(lk_scaling_compare(&other, &many), LK_ERR_ARGUMENT, "the model is keras-cnn and lenet");
    other = one;
    other.batch_size = 32;
    expect_error(lk_scaling_compare(&other, &many), LK_ERR_ARGUMENT, "the batch size is 32 and 64");
    other = one;
    other.images_per_second = NAN;
    expect_error(lk_scaling_compare(&other, &many), LK_ERR_ARGUMENT, "of the first one there is no throughput");
    assert_true(isnan(many.one_device_images_per_second));
    assert_ok(lk_scaling_compare(&one, &many));
    assert_near(lk_scaling_speedup(&many).speedup, 1.6);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static int make_dir(void **state)
{
    static char dir[64];
    snprintf(dir, sizeof dir, "/tmp/lockstep-scaling-XXXXXX");
    *state = mkdtemp(dir);
    return *state ? 0 : -1;
}

static int remove_dir(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", (char *)*state);
    return system(command);
}

static const char *in_dir(void **state, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", (char *)*state, name);
    return path;
}

static void write_text(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static size_t read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, size - 1, file);
    text[bytes] = '\0';
    fclose(file);
    return bytes;
}

static void reports_are_read_as_they_were_written(void **state)
{
    lk_scaling_report r = known_report(), read;
    r.latency = 0.1 + 0.2;
    assert_ok(lk_scaling_write(&r, in_dir(state, "scaling.json")));
    assert_ok(lk_scaling_read(in_dir(state, "scaling.json"), &read));
    assert_memory_equal(&read, &r, sizeof r); /* both begin as zeros; what was not measured is the same NAN */
}

static void a_folder_gives_its_last_run(void **state)
{
    lk_scaling_report r = known_report(), read;
    expect_error(lk_scaling_read(*state, &read), LK_ERR_NOT_FOUND, "holds no scaling report");
    expect_error(lk_scaling_read(in_dir(state, "nowhere"), &read), LK_ERR_NOT_FOUND, "no such file or folder");
    for (int run = 1; run <= 10; run++) {
        char name[64];
        snprintf(name, sizeof name, run == 1 ? "scaling.json" : "scaling-%d.json", run);
        r.batch_size = run;
        assert_ok(lk_scaling_write(&r, in_dir(state, name)));
    }
    write_text(in_dir(state, "scaling-11.json~"), "{", 1);
    write_text(in_dir(state, "scaling-x.json"), "{", 1);
    assert_ok(lk_scaling_read(*state, &read));
    assert_int_equal(read.batch_size, 10);
}

static void damage_is_named(void **state)
{
    static const struct {
        const char *text, *with, *message;
    } cases[] = {
        {"\"steps\":20", "\"steps\":20.5", "scaling.json: steps: must be a whole number from 0"},
        {"\"steps\":20", "\"steps\":-1", "steps: must be a whole number from 0"},
        {"\"devices\":2", "\"devices\":0", "devices: must be at least 1"},
        {"\"shards\":8,", "", "shards is missing"},
        {"\"compute\":0.01", "\"compute\":\"x\"", "compute: must be a number, or null"},
        {"\"kind\":\"cpu\"", "\"kind\":\"a kind of device that has no end\"", "kind: must be a text of less than 16"},
        {"\"kind\":\"cpu\"", "\"kind\":3", "kind: must be a text"},
        {"\"kind\":\"cpu\"", "\"kind\":\"cpu", "line 1, column"},
    };
    char whole[8192], damaged[8192];
    lk_scaling_report r = known_report(), read;
    const char *path = in_dir(state, "scaling.json");
    assert_ok(lk_scaling_write(&r, path));
    size_t bytes = read_text(path, whole, sizeof whole);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = strstr(whole, cases[i].text);
        assert_non_null(at);
        snprintf(damaged, sizeof damaged, "%.*s%s%s", (int)(at - whole), whole, cases[i].with,
                 at + strlen(cases[i].text));
        write_text(path, damaged, strlen(damaged));
        expect_error(lk_scaling_read(path, &read), LK_ERR_FORMAT, cases[i].message);
    }
    for (size_t cut = 0; cut + 1 < bytes; cut += 13) {
        write_text(path, whole, cut);
        expect_error(lk_scaling_read(path, &read), LK_ERR_FORMAT, "scaling.json: line ");
    }
    for (const char *const *text = (const char *const[]){"[]", "[1,2]", "{}", NULL}; *text; text++) {
        write_text(path, *text, strlen(*text));
        expect_error(lk_scaling_read(path, &read), LK_ERR_FORMAT, "model is missing");
    }
}

static void every_failed_allocation_is_reported(void **state)
{
    lk_scaling_report r = known_report(), read;
    const char *path = in_dir(state, "scaling.json");
    assert_ok(lk_scaling_write(&r, path));
    for (int64_t n = 0;; n++) {
        lk__mem_fail_at(n);
        lk_status written = lk_scaling_write(&r, path), status = lk_scaling_read(path, &read);
        bool failed = lk__mem_allocations() > n;
        lk__mem_fail_at(-1);
        if (!failed)
            break;
        assert_true(written == LK_ERR_MEMORY || status == LK_ERR_MEMORY);
        lk_error_clear();
    }
    assert_ok(lk_scaling_read(path, &read));
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

static lk_trainer *new_trainer(const char *devices, int64_t steps, int64_t epochs)
{
    lk_train_config config;
    lk_error_clear();
    assert_ok(lk_train_defaults(NULL, &config));
    config.data = "synthetic";
    config.limit_train = 8 * steps - 3;
    config.limit_val = 0;
    config.batch_size = 8;
    config.epochs = epochs;
    config.devices = devices;
    config.shards = 2;
    lk_trainer *trainer = lk_trainer_new(&config);
    if (!trainer)
        fail_msg("%s", lk_error_message());
    return trainer;
}

static lk_scaling_report run_with(lk_trainer *trainer, const char *dir)
{
    lk_train_result result;
    assert_ok(lk_trainer_add(trainer, lk_callback_scaling(dir)));
    if (dir)
        assert_ok(lk_trainer_add(trainer, lk_callback_log_dir(dir)));
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_non_null(lk_trainer_scaling(trainer));
    lk_scaling_report report = *lk_trainer_scaling(trainer);
    lk_trainer_release(trainer);
    return report;
}

static void assert_parts(const lk_scaling_report *r)
{
    double sum = r->compute + r->exchange + r->slowest + r->input + r->other;
    assert_true(r->step_seconds > 0 && fabs(sum - r->step_seconds) < 1e-9);
    assert_true(r->compute > 0 && r->exchange >= 0 && r->slowest >= 0 && r->input >= 0 && r->other > -1e-9);
    assert_true(r->core_share > 0 && r->core_share <= 1);
    assert_true(r->computing > 0 && r->computing <= r->compute);
    assert_true(r->update > 0 && r->update < r->computing);
}

static void two_devices_are_measured(void **state)
{
    (void)state;
    lk_scaling_report r = run_with(new_trainer("2xcpu", 12, 1), NULL);
    assert_parts(&r);
    assert_int_equal(r.devices, 2);
    assert_int_equal(r.processes, 1);
    assert_int_equal(r.steps, 12 - 3 - 2);
    assert_int_equal(r.parameters, 129068);
    assert_string_equal(r.kind, "cpu");
    assert_string_equal(r.strategy, "mirrored");
    assert_true(strcmp(r.slowest_device, "cpu:0") == 0 || strcmp(r.slowest_device, "cpu:1") == 0);
    assert_near(r.sliced_bytes, 4.0 * 129068);
    assert_true(r.whole_bytes == 0 && r.messages == 2);
    assert_true(isnan(r.bandwidth) || (r.bandwidth > 0 && r.latency >= 0));
    assert_true(isnan(r.one_device_images_per_second));
}

static void central_storage_is_measured_without_a_model(void **state)
{
    (void)state;
    lk_train_config config;
    assert_ok(lk_train_defaults(NULL, &config));
    config.data = "synthetic";
    config.limit_train = 64;
    config.limit_val = 0;
    config.batch_size = 8;
    config.epochs = 1;
    config.devices = "2xcpu";
    config.strategy = "central-storage";
    lk_trainer *trainer = lk_trainer_new(&config);
    assert_non_null(trainer);
    lk_scaling_report r = run_with(trainer, NULL);
    lk_scaling_prediction p;
    assert_true(r.compute > 0 && r.update == 0 && isnan(r.bandwidth) && isnan(r.latency));
    assert_false(lk_scaling_predict(&r, 4, true, &p));
}

/* The second epoch where there is one; nothing where an epoch is too short. */
static void windows_lie_within_an_epoch(void **state)
{
    (void)state;
    lk_scaling_report r = run_with(new_trainer("2xcpu", 7, 2), NULL);
    assert_int_equal(r.steps, 7 - 3 - 1);
    r = run_with(new_trainer("2xcpu", 30, 1), NULL);
    assert_int_equal(r.steps, 20);
    r = run_with(new_trainer("2xcpu", 6, 1), NULL);
    assert_int_equal(r.steps, 0);
    assert_true(isnan(r.step_seconds) && isnan(r.compute) && isnan(r.update));
    assert_string_equal(r.slowest_device, "");
}

static void another_recording_is_left_alone(void **state)
{
    (void)state;
    assert_ok(lk_trace_start(NULL));
    lk_scaling_report r = run_with(new_trainer("2xcpu", 12, 1), NULL);
    lk_trace *trace = lk_trace_stop();
    assert_non_null(trace);
    lk_trace_release(trace);
    assert_int_equal(r.steps, 0);
    assert_true(isnan(r.compute));
}

static lk_status interrupt(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)self, (void)stop;
    if (report->step == 4) /* within the window */
        lk_trainer_interrupt(trainer);
    return LK_OK;
}

static void an_interrupt_ends_the_recording(void **state)
{
    (void)state;
    lk_train_result result;
    lk_trainer *trainer = new_trainer("2xcpu", 12, 1);
    assert_ok(lk_trainer_add(trainer, lk_callback_scaling(NULL)));
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "interrupt", .step_end = interrupt}));
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED);
    lk_error_clear();
    assert_null(lk_trainer_scaling(trainer));
    assert_ok(lk_trace_start(NULL));
    lk_trace_release(lk_trace_stop());
    lk_trainer_release(trainer);
}

static void results_are_the_same_with_a_report(void **state)
{
    (void)state;
    lk_train_result with, without;
    lk_trainer *trainer = new_trainer("2xcpu", 12, 1);
    assert_ok(lk_trainer_fit(trainer, &without));
    lk_trainer_release(trainer);
    trainer = new_trainer("2xcpu", 12, 1);
    assert_ok(lk_trainer_add(trainer, lk_callback_scaling(NULL)));
    assert_ok(lk_trainer_fit(trainer, &with));
    lk_trainer_release(trainer);
    assert_string_equal(with.digest, without.digest);
}

static void a_run_on_one_device_is_found(void **state)
{
    lk_scaling_report one = run_with(new_trainer("1xcpu", 12, 1), *state), read;
    assert_int_equal(one.devices, 1);
    assert_string_equal(one.slowest_device, "");
    assert_near(lk_scaling_speedup(&one).speedup, 1.0);
    write_text(in_dir(state, "scaling-7.json"), "{", 1); /* is passed over */
    lk_scaling_report many = run_with(new_trainer("2xcpu", 12, 1), *state);
    assert_true(many.one_device_images_per_second == one.images_per_second);
    assert_true(lk_scaling_speedup(&many).measured);
    assert_ok(lk_scaling_read(in_dir(state, "scaling-2.json"), &read));
    assert_memory_equal(&read, &many, sizeof many);

    many = run_with(new_trainer("2xcpu", 11, 1), NULL);
    assert_false(lk_scaling_speedup(&many).measured);
}

/* Where the exchange is timed and the report is made. */
static lk_status fail_from_here(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)result;
    lk__mem_fail_at(*(int64_t *)self);
    return status;
}

static void failed_allocations_of_a_run_are_reported(void **state)
{
    (void)state;
    int64_t n = -1;
    lk_train_result result;
    lk_trainer *trainer = new_trainer("2xcpu", 7, 1);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "fail", .train_end = fail_from_here, .self = &n}));
    assert_ok(lk_trainer_add(trainer, lk_callback_scaling(NULL)));
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_non_null(lk_trainer_scaling(trainer));
    for (n = 0;; n++) { /* without an epoch to train */
        lk_status status = lk_trainer_fit(trainer, &result);
        bool failed = lk__mem_allocations() > n;
        lk__mem_fail_at(-1);
        if (!failed)
            break;
        assert_int_equal(status, LK_ERR_MEMORY);
        lk_error_clear();
    }
    assert_non_null(lk_trainer_scaling(trainer));
    lk_trainer_release(trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(speedup_is_measured_or_estimated),
        cmocka_unit_test(prediction_is_the_formula),
        cmocka_unit_test(nothing_is_predicted_of_what_was_not_measured),
        cmocka_unit_test(runs_are_compared_if_they_are_alike),
        cmocka_unit_test_setup_teardown(reports_are_read_as_they_were_written, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_folder_gives_its_last_run, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(damage_is_named, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(every_failed_allocation_is_reported, make_dir, remove_dir),
        cmocka_unit_test(two_devices_are_measured),
        cmocka_unit_test(central_storage_is_measured_without_a_model),
        cmocka_unit_test(windows_lie_within_an_epoch),
        cmocka_unit_test(another_recording_is_left_alone),
        cmocka_unit_test(an_interrupt_ends_the_recording),
        cmocka_unit_test(results_are_the_same_with_a_report),
        cmocka_unit_test(failed_allocations_of_a_run_are_reported),
        cmocka_unit_test_setup_teardown(a_run_on_one_device_is_found, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
