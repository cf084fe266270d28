#include "data/pictures/weighted_semaphore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

enum { MOST = 100, THREADS = 4, TIMES = 2000 };

static lk_weighted_semaphore semaphore = LK__SEMAPHORE(MOST);
static _Atomic int64_t inside;
static _Atomic bool too_many;

static void *acquire_and_release(void *argument)
{
    int64_t amount = *(const int64_t *)argument;
    for (int i = 0; i < TIMES; i++) {
        lk__semaphore_acquire(&semaphore, amount);
        int64_t together = atomic_fetch_add(&inside, amount) + amount;
        if (together > MOST && together != amount)
            atomic_store(&too_many, true);
        atomic_fetch_sub(&inside, amount);
        lk__semaphore_release(&semaphore, amount);
    }
    return NULL;
}

/* An amount above `most` is granted alone. */
static void bounds_the_total(void **state)
{
    (void)state;
    static int64_t amounts[THREADS] = {30, 60, 55, MOST + 1};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, acquire_and_release, &amounts[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_false(atomic_load(&too_many));
    assert_int_equal(semaphore.held, 0);
}

/* 40 are held, so 60 more need not wait. */
static void lets_in_what_fits(void **state)
{
    (void)state;
    lk__semaphore_acquire(&semaphore, 40);
    lk__semaphore_acquire(&semaphore, 60);
    assert_int_equal(semaphore.held, MOST);
    lk__semaphore_release(&semaphore, 40);
    lk__semaphore_release(&semaphore, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_the_total),
        cmocka_unit_test(lets_in_what_fits),
    };
    return cmocka_run_group_tests_name("semaphore", tests, NULL, NULL);
}
