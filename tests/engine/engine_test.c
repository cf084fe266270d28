/* The engine's promises, without clocks: a task that waits for a gate holds up a device, so the test can see that other
 * work does not wait for it. */
#include "engine_testing.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- gates -------------------------------------------------------------------------------------------------------- */

static lk_status wait_at_gate(lk_call *call)
{
    sem_t *gate;
    memcpy(&gate, call->attrs.bytes, sizeof gate);
    while (sem_wait(gate) != 0)
        continue;
    return LK_OK;
}

static const lk_op gate_op = {.name = "gate", .id = -1};
static const lk_kernel gate_kernel = {.run = wait_at_gate};

/* Tasks that are pushed to the device from now on wait until `gate` is posted. */
static void close_gate(lk_device *device, sem_t *gate)
{
    assert_int_equal(sem_init(gate, 0, 0), 0);
    lk_call call = {.op = &gate_op, .kernel = &gate_kernel, .device = device};
    memcpy(call.attrs.bytes, &gate, sizeof gate);
    assert_int_equal(lk__engine_push(&call), LK_OK);
}

static void open_gate(sem_t *gate)
{
    assert_int_equal(sem_post(gate), 0);
}

static int64_t memory_now(lk_device *device)
{
    int64_t now, peak;
    lk_device_memory(device, &now, &peak);
    return now;
}

/* --- pushing ------------------------------------------------------------------------------------------------------ */

static void pushing_does_not_wait(void **state)
{
    devices *d = *state;
    sem_t gate;
    close_gate(d->a, &gate);
    lk_tensor *x = number(d->a, 1);
    for (int i = 0; i < 300; i++)
        x = lk_add_scalar(x, 1);
    assert_false(is_complete(x));
    open_gate(&gate);
    assert_true(item(x) == 301);
}

static void only_dependent_calls_wait_for_another_device(void **state)
{
    devices *d = *state;
    sem_t gate;
    lk_tensor *shared = number(d->b, 5);
    close_gate(d->a, &gate);
    lk_tensor *late = lk_add_scalar(lk_copy(shared, d->a), 1);
    lk_tensor *independent = lk_add_scalar(shared, 2);
    assert_true(item(independent) == 7);
    assert_int_equal(lk_device_sync(d->b), LK_OK);
    assert_false(is_complete(late));

    lk_tensor *dependent = lk_mul_scalar(lk_copy(late, d->b), 10);
    assert_false(is_complete(dependent));
    open_gate(&gate);
    assert_true(item(dependent) == 60);
}

static void a_write_waits_for_earlier_reads_on_another_device(void **state)
{
    devices *d = *state;
    sem_t gate;
    lk_tensor *x = number(d->b, 1);
    close_gate(d->a, &gate);
    lk_tensor *before = lk_copy(x, d->a);
    assert_int_equal(lk_copy_into(x, number(d->b, 2)), LK_OK);
    lk_tensor *after = lk_copy(x, d->b);
    assert_false(is_complete(after));
    open_gate(&gate);
    assert_true(item(before) == 1);
    assert_true(item(after) == 2);
}

static void releasing_does_not_wait(void **state)
{
    devices *d = *state;
    sem_t gate;
    lk_tensor *y;
    close_gate(d->a, &gate);
    lk_scope_begin();
    y = lk_tensor_retain(lk_add(number(d->a, 2), number(d->a, 3)));
    lk_scope_end();
    open_gate(&gate);
    assert_true(item(y) == 5);
    lk_tensor_release(y);
}

/* --- run-ahead ---------------------------------------------------------------------------------------------------- */

enum { PUSHES = 100000, MOST_AHEAD = 2048, ELEMENTS = 64 };

typedef struct runner {
    lk_device *device;
    alignas(64) float memory[ELEMENTS];
    _Atomic int pushed, finished;
    int most_ahead;
    lk_status status;
} runner;

static void count_finished(void *user)
{
    atomic_fetch_add(&((runner *)user)->finished, 1);
}

/* Each task reads a wrapped tensor of its own. When the tensor is released, the task is done. */
static void *run_ahead(void *argument)
{
    runner *r = argument;
    lk_scope_begin();
    lk_tensor *sum = lk_zeros(r->device, LK_F32, LK_SHAPE(ELEMENTS));
    for (int i = 0; i < PUSHES && r->status == LK_OK; i++) {
        lk_scope_begin();
        lk_tensor *x = lk_tensor_wrap(r->device, LK_F32, LK_SHAPE(ELEMENTS), r->memory, count_finished, r);
        lk_tensor *y = lk_add(x, sum);
        r->status = lk_copy_into(sum, y);
        lk_scope_end();
        int ahead = atomic_fetch_add(&r->pushed, 1) + 1 - atomic_load(&r->finished);
        r->most_ahead = ahead > r->most_ahead ? ahead : r->most_ahead;
    }
    float elements[ELEMENTS];
    if (r->status == LK_OK)
        r->status = lk_tensor_read(sum, elements, sizeof elements);
    for (int i = 0; i < ELEMENTS; i++)
        if (elements[i] != PUSHES)
            r->status = LK_ERR_STATE;
    lk_scope_end();
    return NULL;
}

static void run_ahead_is_bounded(void **state)
{
    devices *d = *state;
    static runner r;
    r = (runner){.device = d->a};
    for (int i = 0; i < ELEMENTS; i++)
        r.memory[i] = 1;
    sem_t gate;
    pthread_t thread;
    close_gate(d->a, &gate);
    assert_int_equal(pthread_create(&thread, NULL, run_ahead, &r), 0);
    /* The runner pushes this many tasks although none has run. Then it reaches the bound, if there is one. */
    while (atomic_load(&r.pushed) < 128)
        sched_yield();
    for (int i = 0; i < 2000; i++)
        sched_yield();
    open_gate(&gate);
    assert_int_equal(pthread_join(thread, NULL), 0);

    assert_int_equal(r.status, LK_OK);
    assert_true(r.most_ahead >= 128 && r.most_ahead <= MOST_AHEAD);
    assert_int_equal(lk_wait_all(), LK_OK);
    assert_int_equal(atomic_load(&r.finished), PUSHES);
    int64_t now, peak;
    lk_device_memory(d->a, &now, &peak);
    assert_true(peak <= 8 * (int64_t)sizeof r.memory);
}

/* --- released devices --------------------------------------------------------------------------------------------- */

static void tensors_outlive_their_device(void **state)
{
    (void)state;
    lk_device *device = lk_device_open("ref");
    lk_tensor *x = lk_tensor_retain(lk_add_scalar(lk_arange(device, LK_F32, 3, 0, 1), 0.5));
    lk_device_release(device);

    float elements[3];
    assert_int_equal(lk_tensor_read(x, elements, sizeof elements), LK_OK);
    assert_true(elements[0] == 0.5f && elements[1] == 1.5f && elements[2] == 2.5f);
    assert_null(lk_add_scalar(x, 1));
    assert_int_equal(lk_error_status(), LK_ERR_STATE);
    assert_non_null(strstr(lk_error_message(), "ref:0"));
    lk_error_clear();
    assert_int_equal(lk_add_into(x, x, x), LK_ERR_STATE);
    lk_error_clear();
    assert_int_equal(lk_tensor_wait(x), LK_OK);
    lk_tensor_release(x);
}

static void a_release_waits_for_pushed_tasks(void **state)
{
    devices *d = *state;
    sem_t gate;
    close_gate(d->a, &gate);
    lk_device *other = lk_device_open("ref:2");
    lk_tensor *x = lk_copy(number(d->a, 3), other);
    open_gate(&gate);
    lk_device_release(other);
    assert_true(is_complete(x));
    assert_true(item(x) == 3);
}

static void tensors_that_others_read_outlive_their_device(void **state)
{
    devices *d = *state;
    sem_t gate;
    close_gate(d->a, &gate);
    lk_device *other = lk_device_open("ref:2");
    lk_tensor *x = lk_copy(number(other, 4), d->a);
    lk_device_release(other);
    assert_false(is_complete(x));
    open_gate(&gate);
    assert_true(item(x) == 4);
}

static void *push_until_refused(void *argument)
{
    lk_tensor *x = argument;
    lk_status status;
    do
        status = lk_add_into(x, x, x);
    while (status == LK_OK);
    bool refused = status == LK_ERR_STATE;
    lk_error_clear();
    return refused && lk_tensor_wait(x) == LK_OK ? argument : NULL;
}

static void a_device_may_be_released_while_another_thread_pushes(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        void *succeeded;
        lk_device *device = lk_device_open("ref");
        lk_tensor *x = lk_tensor_retain(number(device, 0));
        assert_int_equal(pthread_create(&thread, NULL, push_until_refused, x), 0);
        for (int k = 0; k < i; k++)
            sched_yield();
        lk_device_release(device);
        assert_int_equal(pthread_join(thread, &succeeded), 0);
        assert_non_null(succeeded);
        lk_tensor_release(x);
    }
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void count(void *user)
{
    atomic_fetch_add((_Atomic int *)user, 1);
}

static void wrapped_memory_is_released_once_after_its_last_use(void **state)
{
    devices *d = *state;
    alignas(64) float memory[16] = {1, 2, 3, 4};
    _Atomic int released = 0;
    sem_t gate;
    lk_scope_begin();
    lk_tensor *x = lk_tensor_wrap(d->a, LK_F32, LK_SHAPE(16), memory, count, &released);
    assert_non_null(x);
    close_gate(d->b, &gate);
    lk_tensor *copy = lk_tensor_retain(lk_copy(lk_slice(x, 0, 0, 4), d->b));
    lk_scope_end();
    assert_int_equal(lk_device_sync(d->a), LK_OK);
    assert_int_equal(atomic_load(&released), 0);

    open_gate(&gate);
    float elements[4];
    assert_int_equal(lk_tensor_read(copy, elements, sizeof elements), LK_OK);
    assert_memory_equal(elements, memory, sizeof elements);
    assert_int_equal(atomic_load(&released), 1);
    lk_tensor_release(copy);
    assert_int_equal(lk_wait_all(), LK_OK);
    assert_int_equal(atomic_load(&released), 1);
    sem_destroy(&gate);
}

static void wrapped_memory_is_the_tensor(void **state)
{
    devices *d = *state;
    alignas(64) float memory[16] = {1, 2};
    _Atomic int released = 0;
    lk_scope_begin();
    lk_tensor *x = lk_tensor_wrap(d->a, LK_F32, LK_SHAPE(16), memory, count, &released);
    assert_int_equal(lk_add_into(x, x, x), LK_OK);
    assert_int_equal(lk_tensor_wait(x), LK_OK);
    assert_true(memory[0] == 2 && memory[1] == 4);
    assert_int_equal(memory_now(d->a), 0);
    lk_scope_end();
    assert_int_equal(atomic_load(&released), 1);

    assert_null(lk_tensor_wrap(d->a, LK_F32, LK_SHAPE(-1), memory, count, &released));
    lk_error_clear();
    assert_null(lk_tensor_wrap(d->a, LK_F32, LK_SHAPE(1), (char *)memory + 1, count, &released));
    assert_non_null(strstr(lk_error_message(), "not aligned to elements of 4 bytes"));
    lk_error_clear();
    assert_null(lk_tensor_wrap(NULL, LK_F32, LK_SHAPE(1), memory, count, &released));
    assert_string_equal(lk_error_message(), "tensor: the device is NULL");
    lk_error_clear();
    assert_int_equal(atomic_load(&released), 1);

    assert_null(lk_tensor_new(NULL, LK_F32, LK_SHAPE(1)));
    assert_string_equal(lk_error_message(), "tensor: the device is NULL");
    lk_error_clear();
    assert_null(lk_tensor_from(NULL, LK_F32, LK_SHAPE(1), memory));
    assert_string_equal(lk_error_message(), "tensor: the device is NULL");
    lk_error_clear();
}

static void scopes_release_their_tensors(void **state)
{
    devices *d = *state;
    lk_scope_begin();
    lk_tensor *outer = lk_zeros(d->a, LK_F32, LK_SHAPE(100));
    lk_scope_begin();
    lk_tensor *kept = lk_tensor_retain(lk_add_scalar(outer, 1));
    for (int i = 0; i < 500; i++)
        assert_non_null(lk_add_scalar(outer, i));
    assert_int_equal(lk_wait_all(), LK_OK);
    assert_true(memory_now(d->a) >= 502 * 400);
    lk_scope_end();
    assert_true(memory_now(d->a) >= 2 * 400 && memory_now(d->a) < 4 * 400);
    lk_scope_end();
    assert_true(memory_now(d->a) >= 400 && memory_now(d->a) < 2 * 400);
    float elements[100];
    assert_int_equal(lk_tensor_read(kept, elements, sizeof elements), LK_OK);
    assert_true(elements[99] == 1);
    lk_tensor_release(kept);
    assert_int_equal(memory_now(d->a), 0);
}

static void *make_in_own_scope(void *argument)
{
    lk_scope_begin();
    lk_tensor *x = lk_zeros(argument, LK_F32, LK_SHAPE(10));
    lk_status status = lk_tensor_wait(x);
    lk_scope_end();
    return status == LK_OK ? argument : NULL;
}

static void scopes_belong_to_their_thread(void **state)
{
    devices *d = *state;
    pthread_t thread;
    void *succeeded;
    lk_scope_begin();
    lk_tensor *x = number(d->a, 6);
    assert_int_equal(pthread_create(&thread, NULL, make_in_own_scope, d->a), 0);
    assert_int_equal(pthread_join(thread, &succeeded), 0);
    assert_non_null(succeeded);
    assert_true(item(x) == 6);
    lk_scope_end();
    assert_int_equal(memory_now(d->a), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pushing_does_not_wait),
        TEST(only_dependent_calls_wait_for_another_device),
        TEST(a_write_waits_for_earlier_reads_on_another_device),
        TEST(releasing_does_not_wait),
        TEST(run_ahead_is_bounded),
        TEST(tensors_outlive_their_device),
        TEST(a_release_waits_for_pushed_tasks),
        TEST(tensors_that_others_read_outlive_their_device),
        TEST(a_device_may_be_released_while_another_thread_pushes),
        TEST(wrapped_memory_is_released_once_after_its_last_use),
        TEST(wrapped_memory_is_the_tensor),
        TEST(scopes_release_their_tensors),
        TEST(scopes_belong_to_their_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
