#include "base/thread_end.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static char calls[16];

static void note(char c)
{
    calls[strlen(calls)] = c;
}

static void again(void)
{
    note('n');
}

static void first(void)
{
    note('a');
}

/* A function registered while the thread ends is called too. */
static void second(void)
{
    note('b');
    lk__at_thread_end(again);
}

static void *ask_for_two(void *unused)
{
    (void)unused;
    return lk__at_thread_end(first) && lk__at_thread_end(second) ? calls : NULL;
}

static void *ask_for_many(void *unused)
{
    (void)unused;
    int n = 0;
    while (n < 100 && lk__at_thread_end(first))
        n++;
    return n > 0 && n < (int)sizeof calls ? calls : NULL;
}

static void run(void *(*thread_main)(void *))
{
    pthread_t thread;
    void *good;
    memset(calls, 0, sizeof calls);
    assert_int_equal(pthread_create(&thread, NULL, thread_main, NULL), 0);
    assert_int_equal(pthread_join(thread, &good), 0);
    assert_non_null(good);
}

static void the_last_comes_first(void **state)
{
    (void)state;
    run(ask_for_two);
    assert_string_equal(calls, "bna");
    run(ask_for_two); /* another thread */
    assert_string_equal(calls, "bna");
}

static void the_list_is_limited(void **state)
{
    (void)state;
    run(ask_for_many);
    assert_true(strlen(calls) > 0);
    assert_int_equal(strspn(calls, "a"), strlen(calls));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_comes_first),
        cmocka_unit_test(the_list_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
