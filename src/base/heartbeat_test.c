#include "base/clock.h"
#include "base/heartbeat.h"

#include "lockstep/heartbeat.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* A process that runs `life` and does not return from it. */
typedef struct watched {
    lk_heartbeat *heartbeat;
    pid_t process;
} watched;

static void name_in_environment(int descriptor)
{
    char text[16];
    snprintf(text, sizeof text, "%d", descriptor);
    setenv(LK_HEART_VARIABLE, text, 1);
}

static watched begin(void (*life)(void))
{
    watched w;
    assert_int_equal(lk_heartbeat_new(&w.heartbeat), LK_OK);
    w.process = fork();
    assert_true(w.process >= 0);
    if (w.process == 0) {
        name_in_environment(lk_heartbeat_descriptor(w.heartbeat));
        lk__heartbeat_begin();
        life();
        _exit(0);
    }
    return w;
}

static lk_heart_report look(const watched *w)
{
    lk_heart_report report;
    lk_heartbeat_look(w->heartbeat, w->process, &report);
    return report;
}

enum { SOON = 6000 /* looks before a test gives up */, LOOK = 10 /* ms */ };

/* Looks until the process reaches `operation` in that state. */
static lk_heart_report until(const watched *w, lk_heart_state state, const char *operation)
{
    lk_heart_report report = look(w);
    for (int i = 0; i < SOON && (report.state != state || strcmp(report.operation, operation) != 0); i++) {
        sleep_ms(LOOK);
        report = look(w);
    }
    assert_int_equal(report.state, state);
    assert_string_equal(report.operation, operation);
    return report;
}

static void end(watched *w)
{
    kill(w->process, SIGKILL);
    waitpid(w->process, NULL, 0);
    lk_heartbeat_release(w->heartbeat);
}

/* Waits for progress; it may take a while if other processes have the core. */
static void goes_on(const watched *w)
{
    look(w);
    for (int i = 0; i < SOON; i++) {
        sleep_ms(LOOK);
        if (look(w).silent == 0)
            return;
    }
    fail_msg("there is no progress");
}

/* Expects silence of more than a second. A process with progress is never silent for so long unless others have the
 * core. */
static void stands_still(const watched *w)
{
    look(w);
    for (int i = 0; i < SOON; i++) {
        sleep_ms(LOOK);
        if (look(w).silent > 1)
            return;
    }
    fail_msg("there is progress");
}

/* --- lives -------------------------------------------------------------------------------------------------------- */

static void sleep_in_an_operator(void)
{
    lk__heartbeat_step(7);
    lk__activity_set(LK_ACTIVITY_OPERATOR, "conv2d");
    for (;;)
        pause();
}

static void follow_another(void)
{
    lk__heartbeat_follow();
    sleep_in_an_operator();
}

static void compute_in_one_operator(void)
{
    lk__activity_set(LK_ACTIVITY_OPERATOR, "conv2d");
    for (volatile int i = 0;;)
        i = i + 1;
}

static void poll_for_others(void)
{
    lk__activity_set(LK_ACTIVITY_WAIT_REMOTE, "exchange");
    for (volatile int i = 0;;)
        i = i + 1;
}

static void begin_operators(void)
{
    for (;;) {
        lk__activity_set(LK_ACTIVITY_WAIT, "gpu operator");
        sleep_ms(20);
    }
}

static void read_while_at_work(void)
{
    char byte;
    int zero = open("/dev/zero", O_RDONLY);
    lk__activity_set(LK_ACTIVITY_WORK, "read");
    for (; zero >= 0;) {
        if (read(zero, &byte, 1) != 1)
            _exit(1);
        sleep_ms(20);
    }
}

static void *exchange_in_a_thread(void *unused)
{
    lk__activity_set(LK_ACTIVITY_WAIT_REMOTE, "exchange");
    for (;;)
        pause();
    return unused;
}

static void wait_for_a_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, exchange_in_a_thread, NULL);
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT, "wait for results");
    pthread_join(thread, NULL);
    lk__activity_end(before);
}

static void *one_operator(void *unused)
{
    lk__activity_set(LK_ACTIVITY_OPERATOR, "conv2d");
    return unused;
}

/* Starts more threads than there are slots, one after the other. */
static void start_many_threads(void)
{
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT_REMOTE, "exchange");
    for (int i = 0; i < 2 * LK_HEART_THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, one_operator, NULL) != 0)
            _exit(1);
        pthread_join(thread, NULL);
    }
    lk__activity_end(before);
    lk__activity_begin(LK_ACTIVITY_WAIT, "a name that is longer than there is room for it");
    for (;;)
        pause();
}

/* A parent is in the state of one that waits for a disk until its child of vfork runs a program or ends. */
static void wait_as_for_a_disk(void)
{
    lk__activity_set(LK_ACTIVITY_WORK, "write a checkpoint");
    if (vfork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

static void says_what_a_silent_process_is_at(void **state)
{
    (void)state;
    watched w = begin(sleep_in_an_operator);
    lk_heart_report report = until(&w, LK_HEART_WORKS, "conv2d");
    assert_int_equal(report.step, 7);
    stands_still(&w);
    end(&w);
}

static void counts_computing_as_progress(void **state)
{
    (void)state;
    watched w = begin(compute_in_one_operator);
    until(&w, LK_HEART_WORKS, "conv2d");
    goes_on(&w);
    kill(w.process, SIGSTOP);
    until(&w, LK_HEART_STOPPED, "conv2d");
    stands_still(&w);
    kill(w.process, SIGCONT);
    until(&w, LK_HEART_WORKS, "conv2d");
    goes_on(&w);
    end(&w);
}

/* Watches one life from begin to end. */
static void watch_life(void (*life)(void), lk_heart_state state, const char *operation, void (*check)(const watched *w))
{
    watched w = begin(life);
    until(&w, state, operation);
    check(&w);
    end(&w);
}

static void counts_operators_and_reading_as_progress(void **state)
{
    (void)state;
    watch_life(begin_operators, LK_HEART_WAITS, "gpu operator", goes_on);
    watch_life(read_while_at_work, LK_HEART_WORKS, "read", goes_on);
}

static void counts_no_waiting_as_progress(void **state)
{
    (void)state;
    watch_life(poll_for_others, LK_HEART_WAITS_FOR_OTHERS, "exchange", stands_still);
    watch_life(wait_for_a_thread, LK_HEART_WAITS_FOR_OTHERS, "exchange", stands_still);
}

#ifndef __SANITIZE_THREAD__ /* which replaces vfork by fork */
static bool is_in_state(pid_t process, char state)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    return strrchr(text, ')')[2] == state;
}

static void is_patient_with_disks(void **state)
{
    (void)state;
    watched w = begin(wait_as_for_a_disk);
    until(&w, LK_HEART_WORKS, "write a checkpoint");
    for (int i = 0; i < SOON && !is_in_state(w.process, 'D'); i++)
        sleep_ms(LOOK);
    double before = look(&w).silent, began = lk__seconds(), now = began;
    double silent = before;
    for (; now < began + 1; now = lk__seconds()) {
        sleep_ms(LOOK);
        silent = look(&w).silent;
    }
    assert_true(silent > before);
    assert_true(silent - before < (now - began) / 2);
    end(&w);
}
#endif

static void keeps_what_a_killed_process_was_at(void **state)
{
    (void)state;
    watched w = begin(sleep_in_an_operator);
    until(&w, LK_HEART_WORKS, "conv2d");
    kill(w.process, SIGKILL);
    waitpid(w.process, NULL, 0);
    lk_heart_report report = look(&w);
    assert_int_equal(report.state, LK_HEART_GONE);
    assert_int_equal(report.step, 7);
    assert_string_equal(report.operation, "conv2d");
    lk_heartbeat_release(w.heartbeat);
}

static void slots_of_ended_threads_are_reused(void **state)
{
    (void)state;
    watched w = begin(start_many_threads);
    until(&w, LK_HEART_WAITS, "a name that is longer than there is roo");
    end(&w);
}

static void says_that_it_follows_another(void **state)
{
    (void)state;
    watched w = begin(sleep_in_an_operator);
    assert_false(until(&w, LK_HEART_WORKS, "conv2d").follows);
    end(&w);
    w = begin(follow_another);
    assert_true(until(&w, LK_HEART_WORKS, "conv2d").follows);
    end(&w);
}

/* Each case has a process of its own, since a process opens its heartbeat once. */
static bool is_ignored(const char *text)
{
    int status = 0;
    pid_t process = fork();
    if (process == 0) {
        setenv(LK_HEART_VARIABLE, text, 1);
        lk__heartbeat_begin();
        lk__activity_set(LK_ACTIVITY_WORK, "work");
        _exit(atomic_load(&lk__heart_of_process) != NULL);
    }
    waitpid(process, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void ignores_what_is_no_heartbeat(void **state)
{
    (void)state;
    char number[16];
    lk_heartbeat *heartbeat;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), sizeof(lk_heart)), 0);
    snprintf(number, sizeof number, "%d", fileno(file));
    assert_true(is_ignored(number));
    assert_true(is_ignored(""));
    assert_true(is_ignored("-1"));
    assert_true(is_ignored("0x"));
    assert_true(is_ignored("99999999999999999999"));
    fclose(file);
    assert_int_equal(lk_heartbeat_new(&heartbeat), LK_OK);
    snprintf(number, sizeof number, "%d", lk_heartbeat_descriptor(heartbeat));
    assert_false(is_ignored(number));
    lk_heartbeat_release(heartbeat);
    lk_heartbeat_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_a_silent_process_is_at),
        cmocka_unit_test(counts_computing_as_progress),
        cmocka_unit_test(counts_operators_and_reading_as_progress),
        cmocka_unit_test(counts_no_waiting_as_progress),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(is_patient_with_disks),
#endif
        cmocka_unit_test(keeps_what_a_killed_process_was_at),
        cmocka_unit_test(slots_of_ended_threads_are_reused),
        cmocka_unit_test(says_that_it_follows_another),
        cmocka_unit_test(ignores_what_is_no_heartbeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
