/* Speedups and predictions with parameter servers, by the formulas of docs/scaling.md. */
#include "report/scaling_testing.h"

/* Two workers with a device each, which need 9 ms for a batch and 1 ms for an update; one server. A step's six messages
 * take 0.6 ms, its bytes 2 ms. So a step alone takes 9 + 0.6 + 2 + 1 ms and occupies the server for 3 ms. */
static lk_scaling_report report_of_workers(void)
{
    lk_scaling_report r = known_report();
    strcpy(r.strategy, "parameter-server");
    r.workers = r.processes = 2;
    r.servers = 1;
    r.images_per_second = 5000;
    r.step_samples = 64;
    r.messages = 6;
    r.sliced_bytes = 0;
    r.whole_bytes = r.server_bytes = 2e6;
    r.server_update = r.update;
    return r;
}

static void assert_step(const lk_scaling_report *r, int64_t workers, double milliseconds)
{
    lk_scaling_prediction p;
    assert_true(lk_scaling_predict(r, workers, true, &p));
    assert_near(p.step_seconds, 1e-3 * milliseconds);
    assert_near(p.speedup, (double)workers * 10 / milliseconds);
    assert_near(p.efficiency, 10 / milliseconds);
}

static void servers_limit_workers(void **state)
{
    (void)state;
    lk_scaling_report r = report_of_workers();
    lk_scaling_prediction p;
    assert_near(lk_scaling_most_updates(&r), 1000.0 / 3);
    assert_near(lk_scaling_exchange_seconds(&r, 1), 3.6e-3);
    assert_near(lk_scaling_exchange_seconds(&r, 4), 3.6e-3);
    assert_near(lk_scaling_exchange_seconds(&r, 8), 15e-3);
    assert_step(&r, 1, 12.6);
    assert_step(&r, 4, 12.6);
    assert_step(&r, 8, 24);
    assert_step(&r, 1024, 3072);
    assert_false(lk_scaling_predict(&r, 4, false, &p)); /* each worker has a batch of its own */

    r.servers = 2; /* each holds half of the variables */
    r.server_bytes = 1e6;
    r.server_update = 0.0005;
    assert_near(lk_scaling_most_updates(&r), 1000 / 1.5);
    assert_step(&r, 8, 12.1);
    assert_step(&r, 16, 24);
}

static void staleness_limits_workers(void **state)
{
    (void)state;
    lk_scaling_report r = report_of_workers();
    r.max_staleness = 1; /* two workers at a time */
    assert_step(&r, 2, 12.6);
    assert_step(&r, 4, 25.2);
    assert_step(&r, 8, 50.4);
    r.max_staleness = 15;
    assert_step(&r, 8, 24);
    assert_step(&r, 64, 192); /* the server is the bottleneck */
}

static void workers_share_batches_without_staleness(void **state)
{
    (void)state;
    lk_scaling_report r = report_of_workers();
    lk_scaling_prediction p;
    r.max_staleness = 0;
    r.step_samples = 32; /* half a batch of 64 in 8 shards: 18 ms of computing for the batch */
    assert_true(isnan(lk_scaling_most_updates(&r)));
    assert_near(lk_scaling_exchange_seconds(&r, 2), 5.6e-3);
    assert_step(&r, 2, 14.6);
    assert_step(&r, 4, 18.6);
    assert_true(lk_scaling_predict(&r, 2, false, &p));
    assert_near(p.step_seconds, 14.6e-3);
    assert_near(p.speedup, 19 / 14.6);
    assert_true(lk_scaling_predict(&r, 3, false, &p)); /* one worker has three shards */
    assert_near(p.step_seconds, 6.75e-3 + 7.6e-3);
    assert_true(lk_scaling_predict(&r, 8, false, &p));
    assert_near(p.step_seconds, 2.25e-3 + 17.6e-3);
    assert_false(lk_scaling_predict(&r, 16, false, &p));
}

static void speedup_is_over_one_device(void **state)
{
    (void)state;
    lk_scaling_report r = report_of_workers();
    lk_speedup s = lk_scaling_speedup(&r); /* one device needs 10 ms for 64 samples */
    assert_false(s.measured);
    assert_near(s.speedup, 5000 / 6400.0);
    assert_near(s.efficiency, s.speedup / 2);
    r.devices = 4; /* two a worker: one device would take 19 ms */
    assert_near(lk_scaling_speedup(&r).speedup, 5000 * 0.019 / 64);
    r.devices = r.workers = 1;
    assert_near(lk_scaling_speedup(&r).speedup, 5000 / 6400.0);
    r.step_samples = 32;
    assert_near(lk_scaling_speedup(&r).speedup, 5000 * 0.019 / 64);
    r.one_device_images_per_second = 4000;
    assert_near(lk_scaling_speedup(&r).speedup, 1.25);
    assert_true(lk_scaling_speedup(&r).measured);
}

static void nothing_follows_from_what_was_not_measured(void **state)
{
    (void)state;
    lk_scaling_prediction p;
    lk_scaling_report r = report_of_workers();
    r.latency = r.bandwidth = NAN;
    assert_false(lk_scaling_predict(&r, 4, true, &p));
    assert_true(isnan(p.step_seconds) && isnan(lk_scaling_exchange_seconds(&r, 4)));
    r = report_of_workers();
    r.computing = r.update = r.server_update = NAN;
    assert_false(lk_scaling_predict(&r, 4, true, &p));
    assert_true(isnan(lk_scaling_speedup(&r).speedup) && isnan(lk_scaling_most_updates(&r)));
    r = report_of_workers();
    r.computing = NAN;
    assert_false(lk_scaling_predict(&r, 1024, true, &p));
    r = report_of_workers();
    r.steps = 0;
    assert_false(lk_scaling_predict(&r, 4, true, &p));
    assert_false(lk_scaling_predict(&r, 0, true, &p));
}

static void one_device_has_no_server(void **state)
{
    (void)state;
    lk_scaling_report one = report_of_workers(), many = report_of_workers();
    one.devices = one.workers = 1;
    expect_failure(lk_scaling_compare(&one, &many), LK_ERR_ARGUMENT, "the first one is with a parameter server");
    one.servers = one.workers = 0;
    assert_ok(lk_scaling_compare(&one, &many));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(servers_limit_workers),
        cmocka_unit_test(staleness_limits_workers),
        cmocka_unit_test(workers_share_batches_without_staleness),
        cmocka_unit_test(speedup_is_over_one_device),
        cmocka_unit_test(nothing_follows_from_what_was_not_measured),
        cmocka_unit_test(one_device_has_no_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
