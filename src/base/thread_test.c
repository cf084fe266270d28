#include "base/thread.h"

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
    run(ask_for_two); /* a new thread has a list of its own */
    assert_string_equal(calls, "bna");
}

static void the_list_is_limited(void **state)
{
    (void)state;
    run(ask_for_many);
    assert_true(strlen(calls) > 0);
    assert_int_equal(strspn(calls, "a"), strlen(calls));
}

/* Bytes that a thread needs on its stack. ThreadSanitizer keeps 770 KiB of its own there. */
#ifdef __SANITIZE_THREAD__
enum { FILLED = 128 << 10 };
#else
enum { FILLED = 512 << 10 };
#endif

static void *fill_stack(void *argument)
{
    volatile char bytes[FILLED];
    for (size_t i = 0; i < sizeof bytes; i += 4096)
        bytes[i] = 1;
    return argument;
}

static void stacks_are_large_enough(void **state)
{
    (void)state;
    pthread_attr_t before, small;
    pthread_t thread;
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    assert_int_equal(pthread_getattr_default_np(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 64 << 10), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    assert_int_equal(lk__thread_start(&thread, fill_stack, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    pthread_attr_destroy(&before);
    pthread_attr_destroy(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_comes_first),
        cmocka_unit_test(the_list_is_limited),
        cmocka_unit_test(stacks_are_large_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
