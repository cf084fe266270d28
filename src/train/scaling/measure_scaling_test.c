/* The scaling report of a short run. No time is checked. */
#include "report/scaling_testing.h"
#include "base/mem_testing.h"

#include "lockstep/callbacks.h"
#include "lockstep/trace.h"
#include "report/scaling_file.h"
#include "train/scaling/scaling_exchange.h"

static lk_train_config short_run(const char *devices, int64_t steps, int64_t epochs)
{
    lk_train_config config;
    lk_error_clear();
    assert_ok(lk_train_defaults(NULL, &config));
    config.data.name = "synthetic";
    config.data.limit_train = 8 * steps - 3;
    config.data.limit_val = 0;
    config.batch_size = 8;
    config.epochs = epochs;
    config.devices.spec = devices;
    config.devices.shards = 2;
    return config;
}

static lk_trainer *new_trainer(const char *devices, int64_t steps, int64_t epochs)
{
    lk_train_config config = short_run(devices, steps, epochs);
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

static void gathered_slices_are_counted(void **state)
{
    (void)state;
    lk_train_config config = short_run("2xcpu", 12, 1);
    config.devices.optimizer_state = 1;
    lk_trainer *trainer = lk_trainer_new(&config);
    if (!trainer)
        fail_msg("%s", lk_error_message());
    lk_scaling_report r = run_with(trainer, NULL);
    assert_near(r.sliced_bytes, 6.0 * 129068);
    assert_true(r.whole_bytes == 0 && r.messages == 3);
}

static lk_trainer *new_central_trainer(const char *devices, const char *storage)
{
    lk_train_config config = short_run(devices, 12, 1);
    config.devices.strategy = "central-storage";
    config.devices.storage = storage;
    lk_trainer *trainer = lk_trainer_new(&config);
    if (!trainer)
        fail_msg("%s", lk_error_message());
    return trainer;
}

/* If the first device stores, it makes the update, which is part of its own time. */
static void stored_variables_are_measured(void **state)
{
    (void)state;
    lk_scaling_prediction p;
    lk_scaling_report r = run_with(new_central_trainer("2xcpu:0", NULL), NULL);
    double sum = r.compute + r.exchange + r.slowest + r.input + r.other;
    assert_true(fabs(sum - r.step_seconds) < 1e-9);
    assert_true(r.update > 0 && r.computing > r.compute * r.core_share && r.update < r.computing);
    assert_string_equal(r.strategy, "central-storage");
    assert_string_equal(r.storage, "cpu:0");
    assert_int_equal(r.storing_devices, 0);
    assert_near(r.sliced_bytes, 4.0 * 129068);
    assert_near(r.whole_bytes, 4.0 * 129068);
    assert_int_equal(r.messages, 3);
    assert_true(isnan(r.bandwidth) || (r.bandwidth > 0 && r.latency >= 0 && lk_scaling_predict(&r, 4, true, &p)));

    r = run_with(new_central_trainer("2xcpu:0", "cpu:1"), NULL);
    assert_true(r.update > 0 && r.computing > r.compute * r.core_share);
    assert_string_equal(r.storage, "cpu:1");
    assert_int_equal(r.devices, 2);
    assert_int_equal(r.storing_devices, 1);
    assert_near(r.whole_bytes, 8.0 * 129068);
    assert_true(r.sliced_bytes == 0 && r.messages == 2);
}

/* The formula's times for rows of 64 KiB and 2 MiB, with 10 us a message and 1 GB/s, give these numbers back. */
static void times_give_latency_and_bandwidth(void **state)
{
    (void)state;
    struct {
        lk_trainer *trainer;
        double messages, bytes, others; /* from one of two devices to its peers */
    } cases[] = {
        {new_trainer("2xcpu:0", 12, 1), 2, 1, 1},
        {new_central_trainer("2xcpu:0", NULL), 3, 2, 1},
        {new_central_trainer("2xcpu:0", "cpu:1"), 4, 4, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double small = 1e-5 * cases[i].messages + 1e-9 * cases[i].bytes * 65536,
               large = 1e-5 * cases[i].messages + 1e-9 * cases[i].bytes * 2097152;
        lk_scaling_report r;
        lk__scaling_clear(&r);
        r.devices = 2;
        r.storing_devices = cases[i].others > 1;
        r.message_share = 1;
        lk__put_exchange(cases[i].trainer, small, large, &r);
        assert_near(r.latency, 1e-5);
        assert_near(r.bandwidth, 1e9);
        lk__put_exchange(cases[i].trainer, small, small, &r); /* equal times change nothing */
        assert_near(r.bandwidth, 1e9);
        lk__put_exchange(cases[i].trainer, small / 1e3, large, &r);
        assert_true(r.latency == 0);
        assert_near(r.bandwidth, cases[i].bytes * 2097152 / large);
        lk_trainer_release(cases[i].trainer);
    }
}

/* The window is in the second epoch if there is one; there is none if epochs are too short. */
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
    (void)stop;
    if (report->step == *(const int *)self)
        lk_trainer_interrupt(trainer);
    return LK_OK;
}

static void an_interrupt_ends_the_recording(void **state)
{
    (void)state;
    lk_train_result result;
    int step = 4; /* inside the window */
    lk_trainer *trainer = new_trainer("2xcpu", 12, 1);
    assert_ok(lk_trainer_add(trainer, lk_callback_scaling(NULL)));
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "interrupt", .step_end = interrupt, .self = &step}));
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED);
    lk_error_clear();
    assert_null(lk_trainer_scaling(trainer));
    assert_ok(lk_trace_start(NULL));
    lk_trace_release(lk_trace_stop());
    lk_trainer_release(trainer);
}

/* The window is in the steps that are left of the epoch, or in the next epoch if they are too few. */
static void a_training_resumed_within_an_epoch_is_measured(void **state)
{
    (void)state;
    for (int epochs = 1; epochs <= 2; epochs++) {
        lk_train_config config = short_run("2xcpu", 30, epochs);
        lk_train_result result;
        int step = 8;
        char dir[32];
        snprintf(dir, sizeof dir, "kept-%d", epochs);
        config.checkpoints.dir = in_dir(dir);
        lk_trainer *trainer = lk_trainer_new(&config);
        assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "interrupt", .step_end = interrupt, .self = &step}));
        assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED);
        lk_error_clear();
        lk_trainer_release(trainer);
        config.checkpoints.resume = true;
        trainer = lk_trainer_new(&config);
        assert_non_null(trainer);
        lk_scaling_report r = run_with(trainer, NULL);
        assert_in_range(r.steps, epochs == 1 ? 10 : 20, epochs == 1 ? 17 : 20);
    }
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
    put_bytes(in_dir("scaling-7.json"), "{", 1); /* is ignored */
    lk_scaling_report many = run_with(new_trainer("2xcpu", 12, 1), *state);
    assert_true(many.one_device_images_per_second == one.images_per_second);
    assert_true(lk_scaling_speedup(&many).measured);
    assert_ok(lk_scaling_read(in_dir("scaling-2.json"), &read));
    assert_memory_equal(&read, &many, sizeof many);

    many = run_with(new_trainer("2xcpu", 11, 1), NULL);
    assert_false(lk_scaling_speedup(&many).measured);
}

/* Allocations fail while the exchange is timed and the report is made. */
static lk_status fail_from_here(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status)
{
    (void)trainer, (void)result;
    failing *f = *(failing **)self;
    if (f)
        fail_next(f);
    return status;
}

static void failed_allocations_of_a_run_are_reported(void **state)
{
    (void)state;
    failing f = fail_every(1), *from_here = NULL;
    lk_train_result result;
    lk_trainer *trainer = new_trainer("2xcpu", 7, 1);
    assert_ok(lk_trainer_add(trainer, (lk_callback){.name = "fail", .train_end = fail_from_here, .self = &from_here}));
    assert_ok(lk_trainer_add(trainer, lk_callback_scaling(NULL)));
    assert_ok(lk_trainer_fit(trainer, &result));
    assert_non_null(lk_trainer_scaling(trainer));
    from_here = &f;
    do /* without an epoch to train */
        stop_failing_with(&f, lk_trainer_fit(trainer, &result));
    while (f.reached);
    assert_non_null(lk_trainer_scaling(trainer));
    lk_trainer_release(trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_devices_are_measured),
        cmocka_unit_test(gathered_slices_are_counted),
        cmocka_unit_test(stored_variables_are_measured),
        cmocka_unit_test(times_give_latency_and_bandwidth),
        cmocka_unit_test(windows_lie_within_an_epoch),
        cmocka_unit_test(another_recording_is_left_alone),
        cmocka_unit_test(an_interrupt_ends_the_recording),
        cmocka_unit_test(results_are_the_same_with_a_report),
        cmocka_unit_test(failed_allocations_of_a_run_are_reported),
        FOLDER_TEST(a_training_resumed_within_an_epoch_is_measured),
        FOLDER_TEST(a_run_on_one_device_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
