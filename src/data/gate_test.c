#include "data/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

enum { MOST = 100, THREADS = 4, TIMES = 2000 };

static lk__gate gate = LK__GATE(MOST);
static _Atomic int64_t inside;
static _Atomic bool too_many;

static void *go_through(void *argument)
{
    int64_t amount = *(const int64_t *)argument;
    for (int i = 0; i < TIMES; i++) {
        lk__gate_enter(&gate, amount);
        int64_t together = atomic_fetch_add(&inside, amount) + amount;
        if (together > MOST && together != amount)
            atomic_store(&too_many, true);
        atomic_fetch_sub(&inside, amount);
        lk__gate_leave(&gate, amount);
    }
    return NULL;
}

/* What is more than `most` by itself goes in alone. */
static void bounds_what_is_inside(void **state)
{
    (void)state;
    static int64_t amounts[THREADS] = {30, 60, 55, MOST + 1};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, go_through, &amounts[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_false(atomic_load(&too_many));
    assert_int_equal(gate.inside, 0);
}

/* 40 are in, so 60 more need not wait. */
static void lets_in_what_fits(void **state)
{
    (void)state;
    lk__gate_enter(&gate, 40);
    lk__gate_enter(&gate, 60);
    assert_int_equal(gate.inside, MOST);
    lk__gate_leave(&gate, 40);
    lk__gate_leave(&gate, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_what_is_inside),
        cmocka_unit_test(lets_in_what_fits),
    };
    return cmocka_run_group_tests_name("gate", tests, NULL, NULL);
}
