/* A real chief, in a thread, with a simulated worker and server. */
#include "train/parameter_server/ps_testing.h"

#include "lockstep/log.h"
#include "train/plan/agreement.h"

enum { SOON = 60000 /* ms: time limit for messages that must come */, STEPS = BATCHES };

static char chief_text[64];
static lk_trainer *trainer;
static lk_status status;
static lk_post *post;
static lk_peer *peer;
static lk_service *service;
static uint64_t run, numbers;
static int64_t worker;

/* --- the chief ---------------------------------------------------------------------------------------------------- */

static void note_address(void *user, lk_log_level level, const char *message)
{
    (void)user, (void)level;
    sscanf(message, "the chief listens at %63s", chief_text);
}

static void open_trainer(void)
{
    lk_train_config config = settings();
    config.devices.strategy = "parameter-server";
    config.servers.role = LK_TRAIN_CHIEF;
    config.servers.count = 1;
    config.epochs = 1;
    config.servers.peer_timeout = 4; /* s: a process that is silent for this long is so on purpose */
    config.servers.join_timeout = 3600;
    lk_log_set(note_address, NULL, LK_LOG_INFO);
    trainer = lk_trainer_new(&config);
    if (!trainer)
        fail_msg("%s", lk_error_message());
    lk_log_set(NULL, NULL, LK_LOG_WARNING);
}

static void *fit(void *argument)
{
    lk_train_result result;
    status = lk_trainer_fit(trainer, &result);
    lk_error_clear();
    return argument;
}

/* --- the worker and the server ------------------------------------------------------------------------------------ */

static void say(int kind, const void *body, size_t bytes, lk_frame more)
{
    lk_wire_first first;
    lk_frame frames[] = {lk__wire_first(&first, kind, ++numbers, body, bytes), more};
    ok(lk__peer_send(peer, frames, more.data ? 2 : 1));
}

/* The answer to the last message; its frames are ignored. */
static void hear(int kind, void *answer, size_t bytes)
{
    lk_wire_header header = {.number = 0};
    lk_mail *mail = NULL;
    while (header.number != numbers) {
        lk__mail_release(mail);
        ok(lk__peer_receive(peer, SOON, &mail));
        assert_non_null(mail);
        ok(lk__wire_header(mail, &header));
    }
    ok(lk__wire_body(mail, kind, "answer", answer, bytes, 0, LK_MAX_FRAMES - 1));
    lk__mail_release(mail);
}

static void beat(lk_ps_role role, int64_t id)
{
    lk_ps_beat body = {.role = role, .id = id, .incarnation = role == LK_PS_SERVER, .run = run};
    lk_ps_pulse pulse;
    say(LK_PS_BEAT, &body, sizeof body, (lk_frame){NULL, 0});
    hear(LK_PS_PULSE, &pulse, sizeof pulse);
}

static void join_worker(void)
{
    lk_ps_join body = {.role = LK_PS_WORKER, .devices = 1, .nonce = 1, .host = "here"};
    lk_ps_welcome welcome;
    void *fields;
    size_t bytes;
    ok(lk__agreement_list(trainer, &fields, &bytes));
    say(LK_PS_JOIN, &body, sizeof body, (lk_frame){fields, bytes});
    hear(LK_PS_WELCOME, &welcome, sizeof welcome);
    lk__free(fields);
    worker = welcome.worker;
    run = welcome.run;
}

static void join_server(void)
{
    lk_ps_join body = {.role = LK_PS_SERVER, .nonce = 2, .host = "here"};
    lk_ps_setup setup;
    snprintf(body.address, sizeof body.address, "127.0.0.1:%d", lk__service_port(service));
    say(LK_PS_JOIN, &body, sizeof body, (lk_frame){NULL, 0});
    hear(LK_PS_SETUP, &setup, sizeof setup);
}

/* Reports all steps as done. */
static void work(void)
{
    lk_ps_work report = {.worker = worker, .outcome = LK_PS_NOTHING, .run = run};
    for (int i = 0; i < STEPS; i++) {
        lk_ps_task task;
        beat(LK_PS_WORKER, worker);
        beat(LK_PS_SERVER, 0);
        say(LK_PS_WORK, &report, sizeof report, (lk_frame){NULL, 0});
        hear(LK_PS_TASK, &task, sizeof task);
        assert_int_equal(task.state, LK_PS_RUNNING);
        report = (lk_ps_work){.worker = worker,
                              .outcome = LK_PS_DONE,
                              .batch = task.batch,
                              .first_shard = task.first_shard,
                              .end_shard = task.end_shard,
                              .samples = BATCH_SIZE,
                              .run = run};
    }
    say(LK_PS_WORK, &report, sizeof report, (lk_frame){NULL, 0});
}

static void until_asked(void)
{
    lk_mail *mail = NULL;
    for (int looks = 0; looks < SOON / 20 && !mail; looks++) {
        beat(LK_PS_SERVER, 0);
        ok(lk__service_receive(service, 20, &mail));
    }
    assert_non_null(mail);
    lk__mail_release(mail);
}

/* --- the test ----------------------------------------------------------------------------------------------------- */

/* The server falls silent while the chief waits for its variables. */
static void an_interrupt_ends_the_wait_for_a_server(void **state)
{
    (void)state;
    pthread_t thread;
    lk_address address = {.numeric = "127.0.0.1", .is_loopback = true};
    open_trainer();
    ok(lk__post_open(NULL, &post));
    ok(lk__service_open(post, &address, &service));
    assert_int_equal(sscanf(chief_text, "127.0.0.1:%d", &address.port), 1);
    ok(lk__peer_open(post, &address, NULL, &peer));
    assert_int_equal(pthread_create(&thread, NULL, fit, NULL), 0);
    join_worker();
    join_server();
    work();
    until_asked();
    lk_trainer_interrupt(trainer);
    pthread_join(thread, NULL);
    assert_int_equal(status, LK_ERR_INTERRUPTED);
    lk_trainer_release(trainer);
    lk__peer_release(peer);
    lk__service_release(service);
    lk__post_release(post);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interrupt_ends_the_wait_for_a_server),
    };
    if (!has_zmq())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
