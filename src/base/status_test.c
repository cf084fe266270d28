#include "base/status.h"

#include "base/log.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int prepare(void **state)
{
    (void)state;
    lk_error_clear();
    return 0;
}

static lk_status fails(int line)
{
    LK_FAIL(LK_ERR_FORMAT, "labels.gz: line %d is not a label", line);
}

static lk_status passes_on(int line)
{
    LK_TRY(fails(line));
    return LK_OK;
}

static lk_status unwinds(bool *unwound)
{
    lk_status status;
    LK_TRY_GOTO(fails(3));
    return LK_OK;
fail:
    *unwound = true;
    return status;
}

static void test_the_message_is_made_once(void **state)
{
    (void)state;
    assert_int_equal(lk_error_status(), LK_OK);
    assert_string_equal(lk_error_message(), "");
    assert_int_equal(passes_on(7), LK_ERR_FORMAT);
    assert_int_equal(lk_error_status(), LK_ERR_FORMAT);
    assert_string_equal(lk_error_message(), "labels.gz: line 7 is not a label");
}

static void test_the_first_error_stays(void **state)
{
    (void)state;
    fails(1);
    assert_int_equal(lk__fail(LK_ERR_STATE, "an echo"), LK_ERR_STATE);
    assert_int_equal(lk_error_status(), LK_ERR_FORMAT);
    assert_string_equal(lk_error_message(), "labels.gz: line 1 is not a label");
    lk_error_clear();
    assert_int_equal(lk_error_status(), LK_OK);
    fails(2);
    assert_string_equal(lk_error_message(), "labels.gz: line 2 is not a label");
}

static void test_unwinding(void **state)
{
    (void)state;
    bool unwound = false;
    assert_int_equal(unwinds(&unwound), LK_ERR_FORMAT);
    assert_true(unwound);
}

static void *status_of_this_thread(void *unused)
{
    (void)unused;
    return (void *)(uintptr_t)lk_error_status();
}

static void test_errors_belong_to_a_thread(void **state)
{
    (void)state;
    fails(1);
    pthread_t thread;
    void *status = (void *)(uintptr_t)LK_STATUS_COUNT;
    assert_int_equal(pthread_create(&thread, NULL, status_of_this_thread, NULL), 0);
    pthread_join(thread, &status);
    assert_int_equal((uintptr_t)status, LK_OK);
    assert_int_equal(lk_error_status(), LK_ERR_FORMAT);
}

static void test_a_long_message_is_cut(void **state)
{
    (void)state;
    char name[4000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    lk__fail(LK_ERR_IO, "%s: no such file", name);
    assert_in_range(strlen(lk_error_message()), 500, 1500);
}

static void test_every_status_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < LK_STATUS_COUNT; i++) {
        for (int j = 0; j < i; j++)
            assert_string_not_equal(lk_status_name((lk_status)i), lk_status_name((lk_status)j));
    }
    assert_string_equal(lk_status_name((lk_status)-1), "unknown status");
    assert_string_equal(lk_status_name(LK_STATUS_COUNT), "unknown status");
}

typedef struct heard {
    int count;
    lk_log_level level;
    char text[64];
} heard;

static void hear(void *user, lk_log_level level, const char *message)
{
    heard *log = user;
    log->count++;
    log->level = level;
    strncpy(log->text, message, sizeof log->text - 1);
}

static void test_log_goes_to_the_handler(void **state)
{
    (void)state;
    heard log = {0};
    lk__log(LK_LOG_WARNING, "nobody hears this");
    lk_log_set(hear, &log, LK_LOG_INFO);
    lk__log(LK_LOG_DEBUG, "below the level");
    assert_int_equal(log.count, 0);
    lk__log(LK_LOG_WARNING, "%d devices on %d cores", 4, 2);
    lk_log_set(NULL, NULL, LK_LOG_DEBUG);
    lk__log(LK_LOG_WARNING, "nobody hears this");
    assert_int_equal(log.count, 1);
    assert_int_equal(log.level, LK_LOG_WARNING);
    assert_string_equal(log.text, "4 devices on 2 cores");
}

static void hear_and_cause_another(void *user, lk_log_level level, const char *message)
{
    hear(user, level, message);
    lk__log(level, "caused by the handler");
}

static void test_a_handler_may_cause_messages(void **state)
{
    (void)state;
    heard log = {0};
    lk_log_set(hear_and_cause_another, &log, LK_LOG_INFO);
    lk__log(LK_LOG_WARNING, "first");
    lk__log(LK_LOG_WARNING, "second");
    lk_log_set(NULL, NULL, LK_LOG_DEBUG);
    assert_int_equal(log.count, 2);
    assert_string_equal(log.text, "second");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_message_is_made_once, prepare),
        cmocka_unit_test_setup(test_the_first_error_stays, prepare),
        cmocka_unit_test_setup(test_unwinding, prepare),
        cmocka_unit_test_setup(test_errors_belong_to_a_thread, prepare),
        cmocka_unit_test_setup(test_a_long_message_is_cut, prepare),
        cmocka_unit_test_setup(test_every_status_has_a_name, prepare),
        cmocka_unit_test_setup(test_log_goes_to_the_handler, prepare),
        cmocka_unit_test_setup(test_a_handler_may_cause_messages, prepare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
