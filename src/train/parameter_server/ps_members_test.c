/* A chief with simulated workers, which come and go, are lost, come back, and send messages too late. */
#include "train/parameter_server/ps_testing.h"

enum { SOON = 60000 /* ms: time limit for an answer that must come */ };

/* All workers are simulated over one connection. */
static chief c;
static lk_peer *peer;
static uint64_t nonces, numbers;

/* --- what workers say --------------------------------------------------------------------------------------------- */

static uint64_t say(int kind, const void *body, size_t bytes)
{
    lk_wire_first first;
    lk_frame frames[] = {lk__wire_first(&first, kind, ++numbers, body, bytes),
                         {c.coordinator->agreement, c.coordinator->training.agreement_bytes}};
    ok(lk__peer_send(peer, frames, kind == LK_PS_JOIN ? 2 : 1));
    return numbers;
}

static void hear(uint64_t number, int kind, void *answer, size_t bytes)
{
    lk_wire_header header;
    lk_mail *mail;
    ok(lk__peer_receive(peer, SOON, &mail));
    assert_non_null(mail);
    ok(lk__wire_header(mail, &header));
    assert_int_equal(header.number, number);
    ok(lk__wire_body(mail, kind, "answer", answer, bytes, 0, 1));
    lk__mail_release(mail);
}

static void take_seat(uint64_t nonce)
{
    lk_ps_join join = {.role = LK_PS_WORKER, .devices = 1, .nonce = nonce, .host = "here"};
    lk_ps_seated seated;
    hear(say(LK_PS_SEAT, &join, sizeof join), LK_PS_SEATED, &seated, sizeof seated);
}

/* Returns the worker's number. */
static int64_t join(uint64_t nonce)
{
    lk_ps_join join = {.role = LK_PS_WORKER, .devices = 1, .nonce = nonce, .host = "here"};
    lk_ps_welcome welcome;
    hear(say(LK_PS_JOIN, &join, sizeof join), LK_PS_WELCOME, &welcome, sizeof welcome);
    assert_int_equal(welcome.run, RUN);
    return welcome.worker;
}

static void beat(int64_t worker)
{
    lk_ps_beat beat = {.role = LK_PS_WORKER, .id = worker, .run = RUN};
    lk_ps_pulse pulse;
    hear(say(LK_PS_BEAT, &beat, sizeof beat), LK_PS_PULSE, &pulse, sizeof pulse);
    assert_int_equal(pulse.state, LK_PS_RUNNING);
}

static int64_t begin_worker(void)
{
    int64_t worker = join(++nonces);
    beat(worker);
    return worker;
}

static void leave(int64_t worker)
{
    lk_ps_ask ask = {.worker = worker, .run = RUN};
    hear(say(LK_PS_LEAVE, &ask, sizeof ask), LK_PS_FAREWELL, &ask, sizeof ask);
}

static lk_ps_work nothing_of(int64_t worker)
{
    return (lk_ps_work){.worker = worker, .outcome = LK_PS_NOTHING, .run = RUN};
}

static lk_ps_work done_by(int64_t worker, int64_t batch)
{
    return (lk_ps_work){.worker = worker,
                        .outcome = LK_PS_DONE,
                        .batch = batch,
                        .end_shard = SHARDS,
                        .samples = BATCH_SIZE,
                        .run = RUN};
}

static lk_ps_task work(lk_ps_work report)
{
    lk_ps_task task;
    hear(say(LK_PS_WORK, &report, sizeof report), LK_PS_TASK, &task, sizeof task);
    return task;
}

static lk_ps_answer ask(int64_t worker, int64_t batch)
{
    lk_ps_ask ask = {.worker = worker, .batch = batch, .run = RUN};
    lk_ps_answer answer;
    hear(say(LK_PS_ASK, &ask, sizeof ask), LK_PS_ANSWER, &answer, sizeof answer);
    return answer;
}

/* --- what the chief knows ----------------------------------------------------------------------------------------- */

static int seats_of(void)
{
    pthread_mutex_lock(&c.coordinator->mutex);
    int n = c.coordinator->seats.n;
    pthread_mutex_unlock(&c.coordinator->mutex);
    return n;
}

static void is_finished(int64_t index)
{
    lk_ps_finished finished;
    bool any;
    ok(lk__ps_coordinator_next(c.coordinator, 0, &finished, &any));
    assert_true(any);
    assert_int_equal(finished.index, index);
}

static void nothing_is_finished(void)
{
    lk_ps_finished finished;
    bool any;
    ok(lk__ps_coordinator_next(c.coordinator, 0, &finished, &any));
    assert_false(any);
}

/* All workers but one are silent for long enough to be lost. */
static void lose_all_but(int64_t worker)
{
    for (int i = 0; i < 2; i++) {
        beat(worker);
        let_time_pass(&c, 0.9 * timeout);
    }
}

/* Processes ask for a seat and send nothing more, until the limit of seats neither free nor taken is reached. */
static void fill_spare_seats(int n)
{
    for (int i = 0; i < n; i++)
        take_seat(++nonces);
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

static void seats_are_used_again(void **state)
{
    enum { MANY = 300 };
    (void)state;
    int64_t worker = begin_worker();
    assert_int_equal(work(nothing_of(worker)).index, 0);
    for (int i = 0; i < MANY; i++)
        leave(begin_worker());
    assert_int_equal(seats_of(), 2);
    for (int i = 0; i < MANY; i++) {
        take_seat(++nonces);
        join(++nonces); /* and sends nothing under its number */
    }
    for (int i = 0; i < MANY; i++) {
        int64_t lost = begin_worker();
        assert_int_equal(work(nothing_of(lost)).index, 1);
        lose_all_but(worker);
    }
    assert_true(seats_of() <= 2 + LK_PS_SPARE_SEATS);
    lk_async_report report = report_of(&c);
    assert_int_equal(report.workers_joined, 1 + MANY + MANY);
    assert_int_equal(report.workers_lost, MANY);
    assert_int_equal(report.handed_out, 2);
    assert_int_equal(report.handed_again, MANY - 1);
    assert_int_equal(work(done_by(worker, 0)).index, 1); /* what the last one had */
    is_finished(0);
}

static void late_messages_are_not_the_next_ones(void **state)
{
    (void)state;
    int64_t stays = begin_worker(), late = begin_worker();
    int identity = seat_of(&c, late);
    assert_int_equal(work(nothing_of(late)).index, 0);
    lose_all_but(stays);
    fill_spare_seats(LK_PS_SPARE_SEATS - 1);
    assert_int_equal(seat_of(&c, late), identity);
    int64_t next = begin_worker();
    assert_int_equal(seat_of(&c, next), identity);
    assert_int_equal(work(nothing_of(next)).index, 0);

    beat(late);
    assert_int_equal(work(done_by(late, 0)).state, LK_PS_FORGOTTEN);
    lk_ps_answer answer = ask(late, 0);
    assert_int_equal(answer.state, LK_PS_FORGOTTEN);
    assert_false(answer.granted);
    leave(late);
    nothing_is_finished();
    assert_true(ask(next, 0).granted);
    lk_async_report report = report_of(&c);
    assert_int_equal(report.workers_joined, 3);
    assert_int_equal(report.workers_lost, 1);
    assert_int_equal(report.handed_again, 1);

    /* It joins again and repeats its report: the servers have the batch, whoever holds it. */
    int64_t again = begin_worker();
    assert_int_equal(again, next + 1);
    assert_int_equal(work(done_by(again, 0)).index, 1);
    is_finished(0);
    assert_int_equal(work(done_by(next, 0)).index, 2);
    nothing_is_finished();
    report = report_of(&c);
    assert_int_equal(report.workers_joined, 4);
    assert_int_equal(report.updates, 1);
    assert_int_equal(report.handed_out, 3);
}

/* A request that was repeated, because a connection was lost, may arrive after the worker's next one. */
static void a_late_request_gets_no_hand_out(void **state)
{
    (void)state;
    int64_t worker = begin_worker();
    lk_ps_work nothing = nothing_of(worker);
    assert_int_equal(work(nothing).index, 0);
    uint64_t question = numbers;
    assert_int_equal(work(done_by(worker, 0)).index, 1);
    numbers = question - 1;
    say(LK_PS_WORK, &nothing, sizeof nothing);
    numbers = question + 1;
    assert_int_equal(work(done_by(worker, 1)).index, 2);
    assert_int_equal(report_of(&c).handed_out, 3);
}

static void one_that_was_lost_is_back_while_its_seat_is(void **state)
{
    (void)state;
    int64_t stays = begin_worker(), lost = begin_worker();
    lose_all_but(stays);
    fill_spare_seats(LK_PS_SPARE_SEATS - 1);
    beat(lost);
    assert_int_equal(work(nothing_of(lost)).state, LK_PS_RUNNING);
    lk_async_report report = report_of(&c);
    assert_int_equal(report.workers_joined, 3);
    assert_int_equal(report.workers_lost, 1);
}

static void one_that_waits_is_told_to_join_again(void **state)
{
    (void)state;
    lk_ps_task task;
    int64_t stays = begin_worker(), waits = begin_worker();
    for (int64_t b = 0; b < BATCHES; b++) /* nobody reports them */
        assert_int_equal(work(nothing_of(stays)).index, b);
    lk_ps_work report = nothing_of(waits);
    uint64_t question = say(LK_PS_WORK, &report, sizeof report);
    lose_all_but(stays);
    fill_spare_seats(LK_PS_SPARE_SEATS - 1);
    lk_ps_join join = {.role = LK_PS_WORKER, .devices = 1, .nonce = ++nonces, .host = "here"};
    say(LK_PS_SEAT, &join, sizeof join);
    hear(question, LK_PS_TASK, &task, sizeof task); /* before the new one's answer */
    assert_int_equal(task.state, LK_PS_FORGOTTEN);
}

static void a_late_request_to_join_brings_nobody(void **state)
{
    (void)state;
    int64_t worker = begin_worker(), stays = begin_worker();
    leave(worker);
    join(1); /* as the first one did */
    lose_all_but(stays);
    lk_async_report report = report_of(&c);
    assert_int_equal(report.workers_joined, 2);
    assert_int_equal(report.workers_lost, 0);
}

/* For hand-outs that are out when a pause begins: servers have all of them, or it is reported that no worker was left
 * to finish them. */
static void a_pause_waits_for_what_is_out(void **state)
{
    (void)state;
    lk_ps_task task;
    lk_ps_finished finished;
    bool any;
    int64_t worker = begin_worker(), other = begin_worker();
    assert_int_equal(work(nothing_of(worker)).index, 0);
    assert_int_equal(work(nothing_of(other)).index, 1);
    lk__ps_coordinator_pause(c.coordinator, true);
    leave(other);
    lk_ps_work report = done_by(worker, 0);
    hear(say(LK_PS_WORK, &report, sizeof report), LK_PS_TASK, &task, sizeof task);
    assert_int_equal(task.index, 1); /* which the other one had */
    is_finished(0);
    assert_false(lk__ps_coordinator_is_at_rest(c.coordinator));
    report = done_by(worker, 1);
    uint64_t question = say(LK_PS_WORK, &report, sizeof report);
    ok(lk__ps_coordinator_next(c.coordinator, SOON, &finished, &any));
    assert_true(any);
    assert_true(lk__ps_coordinator_is_at_rest(c.coordinator));
    assert_false(lk__ps_coordinator_is_idle(c.coordinator));
    lk__ps_coordinator_pause(c.coordinator, false);
    hear(question, LK_PS_TASK, &task, sizeof task);
    assert_int_equal(task.index, 2);

    lk__ps_coordinator_stop(c.coordinator);
    leave(worker);
    let_time_pass(&c, 0.1);
    assert_true(lk__ps_coordinator_is_idle(c.coordinator));
    assert_true(lk__ps_coordinator_has_dropped(c.coordinator));
    begin_epoch(&c, 1);
    assert_false(lk__ps_coordinator_has_dropped(c.coordinator));
}

/* --- main --------------------------------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    (void)state;
    open_chief(&c);
    ok(lk__peer_open(c.post, &c.identity.chief, NULL, &peer));
    nonces = numbers = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lk__peer_release(peer);
    close_chief(&c);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(seats_are_used_again),
        TEST(late_messages_are_not_the_next_ones),
        TEST(a_late_request_gets_no_hand_out),
        TEST(one_that_was_lost_is_back_while_its_seat_is),
        TEST(one_that_waits_is_told_to_join_again),
        TEST(a_late_request_to_join_brings_nobody),
        TEST(a_pause_waits_for_what_is_out),
    };
    if (!has_zmq())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
