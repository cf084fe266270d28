#include "base/cell.h"

#include "base/mem.h"
#include "base/status.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { MANY = 5000 }; /* more than all batches can hold */

static void check_new(const unsigned char *cell)
{
    assert_non_null(cell);
    assert_int_equal((uintptr_t)cell % LK_ALIGNMENT, 0);
    for (int i = 0; i < LK_CELL_BYTES; i++)
        assert_int_equal(cell[i], 0);
}

static void take(unsigned char **cells, int n)
{
    for (int i = 0; i < n; i++) {
        cells[i] = lk__cell_new();
        check_new(cells[i]);
        memset(cells[i], 1 + i % 255, LK_CELL_BYTES);
    }
}

static void give_back(unsigned char **cells, int n)
{
    for (int i = 0; i < n; i++) {
        for (int b = 0; b < LK_CELL_BYTES; b++)
            assert_int_equal(cells[i][b], 1 + i % 255); /* no other owner has it */
        lk__cell_free(cells[i]);
    }
}

static unsigned char *cells[MANY];

static void cells_are_zeroed_and_apart(void **state)
{
    (void)state;
    lk__cell_free(NULL);
    for (int n = 1; n <= MANY; n = 3 * n + 1) {
        take(cells, n);
        give_back(cells, n);
    }
}

static void *give_all_back(void *unused)
{
    (void)unused;
    for (int i = 0; i < MANY; i++)
        lk__cell_free(cells[i]);
    return NULL;
}

/* Like tensors: one thread takes cells, and a device's thread, which may end, frees them. */
static void another_thread_gives_back(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        pthread_t thread;
        take(cells, MANY);
        assert_int_equal(pthread_create(&thread, NULL, give_all_back, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
}

static void *take_and_give_back(void *unused)
{
    (void)unused;
    unsigned char *mine[100];
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 100; i++) {
            mine[i] = lk__cell_new();
            if (!mine[i] || mine[i][0])
                return "not a new cell";
            mine[i][0] = 1;
        }
        for (int i = 0; i < 100; i++)
            lk__cell_free(mine[i]);
    }
    return NULL;
}

static void threads_share_batches(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int t = 0; t < 4; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, take_and_give_back, NULL), 0);
    for (int t = 0; t < 4; t++) {
        void *failure;
        assert_int_equal(pthread_join(threads[t], &failure), 0);
        assert_null(failure);
    }
}

/* Kept cells must not hide the failure that a test injects. */
static void an_injected_failure_reaches_a_cell(void **state)
{
    (void)state;
    lk__cell_free(lk__cell_new());
    lk__mem_fail_at(1);
    void *first = lk__cell_new(), *second = lk__cell_new(), *third = lk__cell_new();
    lk__mem_fail_at(-1);
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    assert_int_equal(lk_error_status(), LK_ERR_MEMORY);
    lk_error_clear();
    lk__cell_free(first);
    lk__cell_free(third);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_zeroed_and_apart),
        cmocka_unit_test(another_thread_gives_back),
        cmocka_unit_test(threads_share_batches),
        cmocka_unit_test(an_injected_failure_reaches_a_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
