/* Threads that wait for host links run their entries: each entry runs once, in order, with the arithmetic modes of a
 * device's thread, whoever runs it. */
#include "dist/transports/host_links.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "lockstep/lockstep.h"

#include <fenv.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ENTRIES = 4000, WAITERS = 3 };

typedef struct links {
    lk_device *device, *links;
    lk_tensor *tensor; /* every entry writes it */
    atomic_int run, released, by_waiters;
    atomic_bool is_wrong;
} links;

typedef struct entry {
    lk_task task;
    links *of;
    int number;
    bool fails;
} entry;

static _Thread_local bool is_waiter;

static lk_status entry_run(lk_task *task)
{
    const entry *e = (const entry *)task;
    if (atomic_fetch_add(&e->of->run, 1) != e->number || fegetround() != FE_TONEAREST)
        atomic_store(&e->of->is_wrong, true);
    atomic_fetch_add(&e->of->by_waiters, is_waiter);
    if (e->fails)
        LK_FAIL(LK_ERR_BACKEND, "entry %d", e->number);
    return LK_OK;
}

static void entry_release(lk_task *task)
{
    entry *e = (entry *)task;
    atomic_fetch_add(&e->of->released, 1);
    free(e);
}

static void push(links *l, int number, bool fails)
{
    entry *e = calloc(1, sizeof *e);
    assert_non_null(e);
    *e = (entry){.of = l, .number = number, .fails = fails};
    e->task = (lk_task){
        .device = l->links, .writes = &l->tensor->storage, .n_writes = 1, .run = entry_run, .release = entry_release};
    assert_int_equal(lk__engine_push_task(&e->task), LK_OK);
}

static int open_links(void **state)
{
    links *l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->device = lk_device_open("ref:0");
    assert_non_null(l->device);
    lk_links_opts opts = {.table = &lk__host_links, .devices = &l->device, .n = 1, .ranks = 1};
    assert_int_equal(lk__links_open(&opts, &l->links), LK_OK);
    float zero = 0;
    l->tensor = lk_tensor_from(l->device, LK_F32, LK_SHAPE(1), &zero);
    assert_non_null(l->tensor);
    *state = l;
    return 0;
}

static int close_links(void **state)
{
    links *l = *state;
    lk_tensor_release(l->tensor);
    lk_device_release(l->links);
    lk_device_release(l->device);
    free(l);
    return 0;
}

/* The caller pushes an entry and waits for it, as after a short exchange. Its own rounding stays. */
static void a_waiting_caller_runs_entries(void **state)
{
    links *l = *state;
    is_waiter = true;
    assert_int_equal(fesetround(FE_UPWARD), 0);
    for (int i = 0; i < ENTRIES && atomic_load(&l->by_waiters) == 0; i++) {
        push(l, atomic_load(&l->run), false);
        assert_int_equal(lk_tensor_wait(l->tensor), LK_OK);
        assert_int_equal(fegetround(), FE_UPWARD);
    }
    fesetround(FE_TONEAREST);
    assert_false(atomic_load(&l->is_wrong));
    assert_true(atomic_load(&l->by_waiters) > 0);
}

static void *wait_often(void *argument)
{
    links *l = argument;
    is_waiter = true;
    while (atomic_load(&l->run) < ENTRIES)
        if (lk_tensor_wait(l->tensor) != LK_OK)
            atomic_store(&l->is_wrong, true);
    return NULL;
}

static void several_threads_wait(void **state)
{
    links *l = *state;
    pthread_t threads[WAITERS];
    for (int t = 0; t < WAITERS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, wait_often, l), 0);
    for (int i = 0; i < ENTRIES; i++)
        push(l, i, false);
    for (int t = 0; t < WAITERS; t++)
        assert_int_equal(pthread_join(threads[t], NULL), 0);
    assert_int_equal(lk_tensor_wait(l->tensor), LK_OK);
    assert_false(atomic_load(&l->is_wrong));
    assert_int_equal(atomic_load(&l->released), ENTRIES);
}

/* A device's thread waits for the links too, and the links for the device. */
static void a_device_waits(void **state)
{
    links *l = *state;
    for (int i = 0; i < ENTRIES; i++) {
        push(l, i, false);
        lk_scope_begin();
        assert_non_null(lk_relu(l->tensor));
        lk_scope_end();
    }
    assert_int_equal(lk_device_sync(l->device), LK_OK);
    assert_int_equal(lk_tensor_wait(l->tensor), LK_OK);
    assert_false(atomic_load(&l->is_wrong));
    assert_int_equal(atomic_load(&l->released), ENTRIES);
}

static void nobody_waits(void **state)
{
    links *l = *state;
    for (int i = 0; i < ENTRIES; i++)
        push(l, i, false);
    lk_device_release(l->links); /* ends the thread once everything has run */
    l->links = NULL;
    assert_int_equal(atomic_load(&l->released), ENTRIES);
    assert_false(atomic_load(&l->is_wrong));
}

/* The caller's own error is not lost when it runs an entry, and it learns of the entry's. */
static void an_entry_fails(void **state)
{
    links *l = *state;
    push(l, 0, true);
    assert_int_equal(lk_tensor_wait(l->tensor), LK_ERR_BACKEND);
    assert_string_equal(lk_error_message(), "entry 0");
    lk_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_waiting_caller_runs_entries, open_links, close_links),
        cmocka_unit_test_setup_teardown(several_threads_wait, open_links, close_links),
        cmocka_unit_test_setup_teardown(a_device_waits, open_links, close_links),
        cmocka_unit_test_setup_teardown(nobody_waits, open_links, close_links),
        cmocka_unit_test_setup_teardown(an_entry_fails, open_links, close_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
