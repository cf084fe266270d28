/* A real worker and a real server, each in a thread, and a chief that forgets them. */
#include "train/parameter_server/ps_testing.h"

#include "lockstep/log.h"

#include <time.h>

enum { SOON = 600 /* tenths of a second: time limit for events that must come */ };

static chief c;

/* --- the worker and the server ------------------------------------------------------------------------------------ */

typedef struct process {
    pthread_t thread;
    lk_train_config config;
    lk_trainer *trainer;
    lk_train_result result;
    lk_status status;
    char message[LK_MESSAGE_BYTES];
} process;

static void *serve(void *argument)
{
    process *p = argument;
    lk_parameter_server *server = lk_parameter_server_new(&p->config);
    p->status = server ? lk_parameter_server_run(server) : lk_error_status();
    snprintf(p->message, sizeof p->message, "%s", lk_error_message());
    lk_parameter_server_release(server);
    return NULL;
}

static void *train(void *argument)
{
    process *p = argument;
    p->trainer = lk_trainer_new(&p->config);
    p->status = p->trainer ? lk_trainer_work(p->trainer, &p->result) : lk_error_status();
    snprintf(p->message, sizeof p->message, "%s", lk_error_message());
    lk_trainer_release(p->trainer);
    return NULL;
}

static void begin(process *p, lk_train_role role)
{
    p->config = settings();
    p->config.devices.strategy = "parameter-server";
    p->config.servers.role = role;
    p->config.servers.coordinator = c.identity.chief_text;
    assert_int_equal(pthread_create(&p->thread, NULL, role == LK_TRAIN_PS ? serve : train, p), 0);
}

static void ends_well(process *p)
{
    pthread_join(p->thread, NULL);
    if (p->status != LK_OK)
        fail_msg("%s", p->message);
}

/* --- the chief ---------------------------------------------------------------------------------------------------- */

/* Every batch is trained once, by any worker. */
static void an_epoch_is_finished(void)
{
    int finished[BATCHES] = {0};
    for (int i = 0; i < BATCHES; i++) {
        lk_ps_finished one = {.index = 0};
        bool any = false;
        for (int looks = 0; looks < SOON && !any; looks++)
            ok(lk__ps_coordinator_next(c.coordinator, 100, &one, &any));
        assert_true(any);
        finished[one.index]++;
    }
    for (int i = 0; i < BATCHES; i++)
        assert_int_equal(finished[i], 1);
    assert_true(lk__ps_coordinator_is_idle(c.coordinator));
}

/* As if all had been silent, and so many processes had come that one more gets the worker's seat. */
static void be_short_of_seats(int64_t worker)
{
    lk_ps_seats *seats = &c.coordinator->seats;
    static uint64_t nonce = 1000;
    pthread_mutex_lock(&c.coordinator->mutex);
    ok(lk__ps_members_tick(c.coordinator, 2 * timeout));
    for (int i = 0; i < seats->n; i++)
        if (seats->seats[i].worker != worker)
            seats->seats[i].silence = 0;
    while (seats->n < LK_PS_SPARE_SEATS) {
        lk_ps_join join = {.devices = 1, .nonce = nonce++, .host = "elsewhere"};
        lk_ps_seat *seat;
        ok(lk__ps_seats_find(seats, &seat));
        lk__ps_seats_keep(seats, seat, &join, timeout);
    }
    pthread_mutex_unlock(&c.coordinator->mutex);
}

/* Its next heartbeat may come before the process that gets its seat. */
static void forget(int64_t worker)
{
    lk_peer *peer;
    ok(lk__peer_open(c.post, &c.identity.chief, NULL, &peer));
    for (uint64_t nonce = 1; seat_of(&c, worker) >= 0; nonce++) {
        lk_ps_join join = {.role = LK_PS_WORKER, .devices = 1, .nonce = nonce, .host = "elsewhere"};
        lk_wire_first first;
        lk_frame frame = lk__wire_first(&first, LK_PS_SEAT, nonce, &join, sizeof join);
        lk_mail *mail;
        be_short_of_seats(worker);
        ok(lk__peer_send(peer, &frame, 1));
        ok(lk__peer_receive(peer, 100 * SOON, &mail));
        assert_non_null(mail);
        lk__mail_release(mail);
    }
    lk__peer_release(peer);
}

static lk_async_report all_are_back(void)
{
    static const struct timespec look = {.tv_nsec = 100 * 1000000L};
    lk_async_report report = report_of(&c);
    for (int looks = 0; looks < SOON && report.workers_joined <= report.workers_lost; looks++) {
        nanosleep(&look, NULL);
        report = report_of(&c);
    }
    assert_int_equal(report.workers_joined, report.workers_lost + 1);
    return report;
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

/* Between two epochs the worker waits for work; inside one it works. */
static void a_worker_that_was_forgotten_joins_again(void **state)
{
    (void)state;
    process server, worker;
    begin(&server, LK_TRAIN_PS);
    begin(&worker, LK_TRAIN_WORKER);
    an_epoch_is_finished();
    for (int64_t epoch = 1; epoch <= 3; epoch++) {
        if (epoch < 3)
            forget(epoch - 1);
        begin_epoch(&c, epoch);
        if (epoch == 3)
            forget(epoch - 1);
        an_epoch_is_finished();
    }
    lk_async_report report = all_are_back();
    assert_int_equal(report.updates, 4 * BATCHES);
    assert_int_equal(report.handed_out, 4 * BATCHES);
    assert_true(report.workers_lost >= 3);
    assert_int_equal(report.max_staleness, 0); /* there was nobody else */
    lk__ps_coordinator_end(c.coordinator, LK_PS_ENDED, "");
    ends_well(&worker);
    ends_well(&server);
}

static void an_end_is_heard_of_by_whoever_waits(void **state)
{
    static const struct timespec look = {.tv_nsec = 100 * 1000000L};
    (void)state;
    process worker;
    begin(&worker, LK_TRAIN_WORKER);
    for (int looks = 0; looks < SOON && report_of(&c).handed_out == 0; looks++)
        nanosleep(&look, NULL);
    assert_int_equal(report_of(&c).handed_out, 1); /* for which it needs a server */
    lk__ps_coordinator_end(c.coordinator, LK_PS_ENDED, "");
    ends_well(&worker);
    for (int looks = 0; looks < SOON && seat_of(&c, 0) >= 0; looks++)
        nanosleep(&look, NULL);
    assert_int_equal(seat_of(&c, 0), -1); /* it has taken leave */
}

static void who_comes_after_the_end_has_nothing_to_do(void **state)
{
    (void)state;
    process server, worker;
    char expected[LK_MESSAGE_BYTES];
    snprintf(expected, sizeof expected, "the chief at %s has ended training", c.identity.chief_text);
    lk__ps_coordinator_end(c.coordinator, LK_PS_ENDED, "");
    begin(&server, LK_TRAIN_PS);
    begin(&worker, LK_TRAIN_WORKER);
    ends_well(&server);
    pthread_join(worker.thread, NULL);
    assert_null(worker.trainer);
    assert_int_equal(worker.status, LK_ERR_STATE);
    assert_string_equal(worker.message, expected);
}

static void who_comes_after_a_failure_is_refused(void **state)
{
    (void)state;
    process worker;
    lk__ps_coordinator_end(c.coordinator, LK_PS_FAILED, "a full disk");
    begin(&worker, LK_TRAIN_WORKER);
    pthread_join(worker.thread, NULL);
    assert_int_equal(worker.status, LK_ERR_ARGUMENT);
    assert_string_equal(worker.message, "the chief refuses: training has failed: a full disk");
}

static void a_chief_without_memory_still_answers(void **state)
{
    (void)state;
    process worker;
    lk_peer *peer;
    lk_wire_first first;
    lk_ps_join join = {.role = LK_PS_WORKER, .devices = 1, .nonce = 1, .host = "elsewhere"};
    lk_frame frame = lk__wire_first(&first, LK_PS_SEAT, 1, &join, sizeof join);
    lk_ps_finished one;
    bool any;
    lk_status status = LK_OK;
    ok(lk__peer_open(c.post, &c.identity.chief, NULL, &peer));
    lk__mem_fail_at(0);
    ok(lk__peer_send(peer, &frame, 1));
    for (int looks = 0; looks < SOON && status == LK_OK; looks++)
        status = lk__ps_coordinator_next(c.coordinator, 100, &one, &any);
    lk__mem_fail_at(-1);
    lk_error_clear();
    lk__peer_release(peer);
    assert_int_equal(status, LK_ERR_MEMORY);
    lk__ps_coordinator_end(c.coordinator, LK_PS_FAILED, "out of memory");
    begin(&worker, LK_TRAIN_WORKER);
    pthread_join(worker.thread, NULL);
    assert_string_equal(worker.message, "the chief refuses: training has failed: out of memory");
}

static void interrupt_who_joins(void *user, lk_log_level level, const char *message)
{
    process *worker = user;
    (void)level;
    if (strstr(message, "worker 0 of the chief"))
        lk_trainer_interrupt(worker->trainer);
}

/* Answers come sooner here than a waiting worker would check. */
static void an_interrupt_is_heard_by_whoever_never_waits(void **state)
{
    static const struct timespec look = {.tv_nsec = 100 * 1000000L};
    (void)state;
    process server, interrupted, worker;
    begin(&server, LK_TRAIN_PS);
    for (int looks = 0; looks < SOON && !lk__ps_coordinator_has_servers(c.coordinator); looks++)
        nanosleep(&look, NULL);
    assert_true(lk__ps_coordinator_has_servers(c.coordinator));
    lk_log_set(interrupt_who_joins, &interrupted, LK_LOG_INFO);
    begin(&interrupted, LK_TRAIN_WORKER);
    pthread_join(interrupted.thread, NULL);
    lk_log_set(NULL, NULL, LK_LOG_WARNING);
    assert_int_equal(interrupted.status, LK_ERR_INTERRUPTED);
    assert_string_equal(interrupted.message, "worker 0: interrupted");
    assert_int_equal(interrupted.result.steps, 0);
    begin(&worker, LK_TRAIN_WORKER);
    an_epoch_is_finished();
    lk__ps_coordinator_end(c.coordinator, LK_PS_ENDED, "");
    ends_well(&worker);
    ends_well(&server);
}

static int set_up(void **state)
{
    (void)state;
    open_chief(&c);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close_chief(&c);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_worker_that_was_forgotten_joins_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_interrupt_is_heard_by_whoever_never_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_end_is_heard_of_by_whoever_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_comes_after_the_end_has_nothing_to_do, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_comes_after_a_failure_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_chief_without_memory_still_answers, set_up, tear_down),
    };
    if (!has_zmq())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
