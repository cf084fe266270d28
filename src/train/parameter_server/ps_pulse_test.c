/* Heartbeats to a simulated chief. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train/parameter_server/ps_pulse.h"

#include "base/status.h"
#include "lockstep/build.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SOON = 60000 /* ms: time limit for messages that must come */, LOOK = 10 };

static void ok(lk_status status)
{
    if (status != LK_OK)
        fail_msg("%s", lk_error_message());
}

/* --- the chief ---------------------------------------------------------------------------------------------------- */

static lk_post *post;
static lk_service *chief;
static lk_ps_identity identity;
static lk_ps_pulse_thread *pulse;

/* Answers one heartbeat. */
static void answer(lk_ps_state state, const char *reason)
{
    lk_mail *mail;
    lk_wire_first first;
    lk_ps_pulse said = {.state = state};
    ok(lk__service_receive(chief, SOON, &mail));
    assert_non_null(mail);
    lk_frame frames[] = {lk__wire_first(&first, LK_PS_PULSE, 0, &said, sizeof said), {reason, strlen(reason)}};
    ok(lk__service_reply(chief, mail, frames, 2));
    lk__mail_release(mail);
}

static void until_lost(void)
{
    for (int waited = 0; waited < SOON && !lk__ps_pulse_is_lost(pulse); waited += LOOK)
        nanosleep(&(struct timespec){.tv_nsec = LOOK * 1000000L}, NULL);
    assert_true(lk__ps_pulse_is_lost(pulse));
}

static void until_said(lk_ps_state state)
{
    for (int waited = 0; waited < SOON && lk__ps_pulse_state(pulse) != state; waited += LOOK)
        nanosleep(&(struct timespec){.tv_nsec = LOOK * 1000000L}, NULL);
    assert_int_equal(lk__ps_pulse_state(pulse), state);
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

static void a_chief_that_falls_silent_is_lost(void **state)
{
    (void)state;
    until_lost();
    assert_int_equal(lk__ps_pulse_check(pulse), LK_ERR_BACKEND);
    assert_non_null(strstr(lk_error_message(), "has not answered for 0.2 s"));
    lk_error_clear();
    for (int answers = 0; answers < SOON / LOOK && lk__ps_pulse_check(pulse) != LK_OK; answers++) {
        lk_error_clear();
        answer(LK_PS_RUNNING, "");
    }
    assert_int_equal(lk_error_status(), LK_OK);
}

/* A process that is busy for long learns of the end later, after the chief has gone. */
static void one_that_has_ended_may_go(void **state)
{
    (void)state;
    answer(LK_PS_ENDED, "");
    until_said(LK_PS_ENDED);
    until_lost();
    ok(lk__ps_pulse_check(pulse));
}

static void one_that_has_failed_is_quoted_when_it_has_gone(void **state)
{
    (void)state;
    answer(LK_PS_FAILED, "no luck");
    until_said(LK_PS_FAILED);
    until_lost();
    assert_int_equal(lk__ps_pulse_check(pulse), LK_ERR_BACKEND);
    assert_string_equal(lk_error_message(), "the chief has ended training: no luck");
    lk_error_clear();
}

/* --- main --------------------------------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    (void)state;
    lk_ps_beat beat = {.role = LK_PS_WORKER};
    identity = (lk_ps_identity){.timeout = 0.2, .chief = {.numeric = "127.0.0.1", .is_loopback = true}};
    ok(lk__post_open(NULL, &post));
    ok(lk__service_open(post, &identity.chief, &chief));
    identity.chief.port = lk__service_port(chief);
    lk__address_print(&identity.chief, identity.chief_text);
    ok(lk__ps_pulse_start(post, &identity, &beat, &pulse));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lk__ps_pulse_stop(pulse);
    lk__service_release(chief);
    lk__post_release(post);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_chief_that_falls_silent_is_lost),
        TEST(one_that_has_ended_may_go),
        TEST(one_that_has_failed_is_quoted_when_it_has_gone),
    };
    if (!lk_build_has("ZeroMQ")) {
        puts("SKIP: this build has no ZeroMQ");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
