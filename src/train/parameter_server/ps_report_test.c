/* The chief's report from the times of workers and servers, and a worker's measurements. */
#include "report/scaling_testing.h"

#include "base/mem.h"
#include "core/trace.h"
#include "train/parameter_server/ps_report.h"
#include "train/parameter_server/ps_times.h"
#include "report/scaling_file.h"

enum { WORKERS = 2 };

/* 10 and 30 steps. */
/* clang-format off */
static const lk_ps_worker_record known_workers[WORKERS] = {
    {.worker = 0, .count = 1, .host = "a", .devices = 1,
     .times = {.steps = 10, .samples = 640, .seconds = 0.2, .compute = 0.12, .computing = 0.11, .busiest = 0.11,
               .exchange = 0.03, .stale = 0.02, .input = 0.01, .small = 2e-4, .large = 5e-3}},
    {.worker = 2, .count = 1, .host = "c", .devices = 2,
     .times = {.steps = 30, .samples = 1920, .seconds = 0.9, .compute = 0.6, .computing = 0.29, .busiest = 0.34,
               .exchange = 0.15, .stale = 0.1, .input = 0.05, .small = 3e-4, .large = 8.04e-4 + 6.44e-3}},
};
/* clang-format on */

static lk_scaling_report report_of(const lk_ps_worker_record *workers, int n)
{
    lk_scaling_report r;
    lk__scaling_clear(&r);
    strcpy(r.kind, "cpu");
    lk__ps_put_workers(workers, n, &r);
    return r;
}

static void times_are_means_of_all_steps(void **state)
{
    (void)state;
    lk_scaling_report r = report_of(known_workers, WORKERS);
    assert_int_equal(r.workers, 2);
    assert_int_equal(r.processes, 2);
    assert_int_equal(r.devices, 3);
    assert_int_equal(r.steps, 40);
    assert_near(r.step_samples, 64.0);
    assert_near(r.step_seconds, 1.1 / 40);
    assert_near(r.compute, 0.72 / 40);
    assert_near(r.exchange, 0.18 / 40);
    assert_near(r.slowest, 0.12 / 40);
    assert_near(r.input, 0.06 / 40);
    assert_near(r.other, 0.02 / 40);
    assert_near(r.computing, 0.40 / 40);
    assert_near(r.core_share, 0.45 / 0.72);
    assert_string_equal(r.slowest_device, "worker 2 on c"); /* 0.75 s for 1920, the other one 0.15 s for 640 */
    assert_string_equal(r.worker[0].name, "worker 0 on a");
    assert_string_equal(r.worker[1].name, "worker 2 on c");
    assert_int_equal(r.worker[1].steps, 30);
    assert_near(r.worker[1].step_seconds, 0.03);
    assert_true(r.worker[1].other < 1e-12);
}

static void workers_without_steps_leave_nothing(void **state)
{
    (void)state;
    lk_scaling_report r = report_of(known_workers, 0);
    assert_true(r.workers == 0 && r.steps == 0 && r.devices == 1 && r.processes == 1);
    assert_true(isnan(r.compute) && isnan(r.computing));
    r = report_of(known_workers, 1);
    assert_string_equal(r.slowest_device, "");
    assert_int_equal(r.devices, 1);
}

/* --- workers that joined and left --------------------------------------------------------------------------------- */

static lk_ps_seat seat_of(int64_t worker, int64_t steps)
{
    lk_ps_seat seat = {.state = LK_PS_SEAT_TAKEN, .worker = worker, .devices = 2, .host = "a"};
    seat.times = known_workers[0].times;
    seat.times.steps = steps;
    return seat;
}

static void those_that_have_gone_are_in_the_list(void **state)
{
    (void)state;
    lk_ps_worker_records records = {.n = 0};
    lk_ps_seat there[] = {seat_of(4, 7), seat_of(1, 9), seat_of(-1, 0), seat_of(3, 0)}, gone = seat_of(2, 8);
    lk_ps_seats seats = {.seats = there, .n = 4};
    lk_ps_worker_record *workers;
    int n;
    lk__ps_worker_records_add(&records, &gone);
    lk__ps_worker_records_add(&records, &there[2]);
    assert_ok(lk__ps_worker_records_list(&records, &seats, &workers, &n));
    assert_int_equal(n, 3); /* without workers that have done nothing */
    for (int i = 0; i < 3; i++)
        assert_int_equal(workers[i].worker, i < 2 ? i + 1 : 4);
    assert_int_equal(workers[1].times.steps, 8);
    assert_string_equal(workers[1].host, "a");
    lk__free(workers);
}

static void more_workers_than_are_listed_count(void **state)
{
    (void)state;
    enum { GONE = 1000 };
    lk_ps_worker_records records = {.n = 0};
    lk_ps_seat there = seat_of(GONE, 10);
    lk_ps_seats seats = {.seats = &there, .n = 1};
    lk_ps_worker_record *workers;
    int n;
    for (int i = 0; i < GONE; i++) {
        lk_ps_seat seat = seat_of(i, 10);
        lk__ps_worker_records_add(&records, &seat);
    }
    assert_ok(lk__ps_worker_records_list(&records, &seats, &workers, &n));
    assert_int_equal(n, LK_SCALING_WORKERS + 2);
    lk_scaling_report r = report_of(workers, n);
    lk__free(workers);
    assert_int_equal(r.workers, GONE + 1);
    assert_int_equal(r.devices, 2 * (GONE + 1));
    assert_int_equal(r.steps, 10 * (GONE + 1));
    assert_near(r.step_seconds, 0.02);
    assert_string_equal(r.worker[LK_SCALING_WORKERS - 1].name, "worker 63 on a");
}

/* --- servers ------------------------------------------------------------------------------------------------------ */

/* 1,000 and 600 elements; 10 running statistics and their sums with the first. */
static lk_ps_layout known_layout(void)
{
    lk_ps_layout layout = {.placement = {.servers = 2}};
    layout.placement.elements[0] = 1000;
    layout.placement.elements[1] = 600;
    layout.placement.extra[0] = 10;
    return layout;
}

static void servers_are_what_they_move_and_apply(void **state)
{
    (void)state;
    lk_ps_layout layout = known_layout();
    lk_scaling_report r = report_of(known_workers, WORKERS);
    lk__ps_put_servers(known_workers, WORKERS, &layout, (const double[]){0.002, 0.003}, -1, &r);
    assert_int_equal(r.servers, 2);
    assert_true(isnan(r.max_staleness) && r.sliced_bytes == 0);
    assert_near(r.whole_bytes, 4040.0 + 4080 + 2400 + 2400);
    assert_near(r.server_bytes, 4040.0 + 4080);
    assert_near(r.update, 0.005);
    assert_near(r.server_update, 0.003);
    assert_near(r.computing, 0.010 + 0.005);
    assert_int_equal(r.messages, 6);
    assert_near(r.latency, 1e-4); /* the first worker's, whose pull was faster */
    assert_near(r.bandwidth, 6440 / (5e-3 - 2e-4));

    r = report_of(known_workers, WORKERS);
    lk__ps_put_servers(known_workers, WORKERS, &layout, (const double[]){0.002, NAN}, 3, &r);
    assert_true(isnan(r.update) && isnan(r.server_update) && isnan(r.computing));
    assert_near(r.max_staleness, 3.0);
    assert_int_equal(r.messages, 8);
    lk_ps_worker_record alike = known_workers[0]; /* whose full pulls took no longer than empty ones */
    alike.times.large = alike.times.small;
    r = report_of(&alike, 1);
    lk__ps_put_servers(&alike, 1, &layout, (const double[]){NAN, 0.002}, 0, &r);
    assert_true(isnan(r.update) && isnan(r.latency) && isnan(r.bandwidth) && r.max_staleness == 0);
    assert_int_equal(r.messages, 6);
}

/* --- a worker's watch --------------------------------------------------------------------------------------------- */

static lk_ps_watch waiting_for(int64_t milliseconds)
{
    lk_ps_watch watch = {.mark = lk__nanoseconds() - milliseconds * 1000000};
    return watch;
}

static void what_the_chief_says_is_part_of_the_wait(void **state)
{
    (void)state;
    lk_ps_watch w = waiting_for(1000);
    lk__ps_watch_waited(&w, &(lk_ps_task){.held_back = 0.3, .between = 0.2});
    assert_near(w.step.stale, 0.3);
    assert_true(w.step.input >= 0.499999);
    assert_near(w.step.seconds, w.step.stale + w.step.input);

    w = waiting_for(10); /* the chief's clock is another one */
    lk__ps_watch_waited(&w, &(lk_ps_task){.held_back = 60, .between = 60});
    assert_true(w.step.stale >= 0.00999 && w.step.stale < 60 && w.step.input == 0);
    assert_near(w.step.seconds, w.step.stale);
}

static void the_first_steps_do_not_count(void **state)
{
    (void)state;
    lk_ps_watch w = {.mark = 0};
    for (int step = 1; step <= 8; step++) {
        w.step = (lk_ps_times){.seconds = 1, .compute = 0.5, .computing = 0.4, .busiest = 0.45, .exchange = 0.25};
        lk__ps_watch_end_step(&w, step == 7 ? 0 : 64);
    }
    assert_int_equal(w.times.steps, 2);
    assert_int_equal(w.times.samples, 128);
    assert_near(w.times.seconds, 3.0); /* dropped work took its time too */
    assert_near(w.times.compute, 1.5);
    assert_near(w.times.computing, 1.2);
    assert_near(w.times.busiest, 1.35);
    assert_near(w.times.exchange, 0.75);
    assert_true(w.step.seconds == 0);

    w.times.small = 1e-4;
    lk__ps_watch_restart(&w); /* the steps that count have already been reported */
    assert_true(w.times.steps == 0 && w.times.seconds == 0 && w.times.small == 1e-4);
}

static void times_that_cannot_be_are_refused(void **state)
{
    (void)state;
    lk_ps_times t = known_workers[0].times;
    assert_ok(lk__ps_times_check(&t));
    t.stale = -1;
    expect_failure(lk__ps_times_check(&t), LK_ERR_FORMAT, "work: times of 10 steps that no worker can have");
    t = known_workers[0].times;
    t.large = NAN;
    expect_failure(lk__ps_times_check(&t), LK_ERR_FORMAT, "no worker can have");
    t = known_workers[0].times;
    t.samples = -1;
    expect_failure(lk__ps_times_check(&t), LK_ERR_FORMAT, "no worker can have");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_means_of_all_steps),
        cmocka_unit_test(workers_without_steps_leave_nothing),
        cmocka_unit_test(those_that_have_gone_are_in_the_list),
        cmocka_unit_test(more_workers_than_are_listed_count),
        cmocka_unit_test(servers_are_what_they_move_and_apply),
        cmocka_unit_test(what_the_chief_says_is_part_of_the_wait),
        cmocka_unit_test(the_first_steps_do_not_count),
        cmocka_unit_test(times_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
