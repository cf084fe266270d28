#include "core/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "core/backend.h"
#include "core/engine.h"
#include "core/tensor.h"
#include "lockstep/dist.h"
#include "lockstep/ops.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>

static lk_trace *stop(void)
{
    lk_trace *trace = lk_trace_stop();
    if (!trace)
        fail_msg("%s", lk_error_message());
    return trace;
}

static void start(int64_t max_events)
{
    assert_int_equal(lk_trace_start(&(lk_trace_opts){.max_events = max_events}), LK_OK);
}

static const lk_trace_track *track_named(const lk_trace *trace, const char *name)
{
    for (const lk_trace_track *track = trace->tracks; track; track = track->next)
        if (strcmp(track->name, name) == 0)
            return track;
    return NULL;
}

static int count_kind(const lk_trace_track *track, lk_trace_kind kind)
{
    int n = 0;
    for (const lk_trace_chunk *chunk = track ? track->first : NULL; chunk; chunk = chunk->next)
        for (int i = 0; i < chunk->n; i++)
            n += chunk->events[i].kind == kind;
    return n;
}

/* The n-th call of an operator, from 0. */
static const lk_trace_event *call_of(const lk_trace_track *track, const char *name, int n)
{
    for (const lk_trace_chunk *chunk = track ? track->first : NULL; chunk; chunk = chunk->next)
        for (int i = 0; i < chunk->n; i++)
            if (chunk->events[i].problem && strcmp(lk__trace_event_name(&chunk->events[i]), name) == 0 && n-- == 0)
                return &chunk->events[i];
    return NULL;
}

static void start_and_stop_come_in_turns(void **state)
{
    (void)state;
    assert_null(lk_trace_stop());
    assert_int_equal(lk_error_status(), LK_ERR_STATE);
    lk_error_clear();
    assert_int_equal(lk_trace_start(NULL), LK_OK);
    assert_int_equal(lk_trace_start(NULL), LK_ERR_STATE);
    lk_error_clear();
    lk_trace_release(stop());
    assert_int_equal(lk_trace_start(&(lk_trace_opts){.max_events = -1}), LK_ERR_ARGUMENT);
    lk_error_clear();
    lk_trace_release(NULL);
}

static void nothing_is_kept_while_off(void **state)
{
    (void)state;
    assert_int_equal(lk__trace_begin(), 0);
    lk__trace_end(LK_TRACE_PREPARE, 0, 1);
    start(0);
    lk_trace *trace = stop();
    assert_null(trace->tracks);
    lk_trace_release(trace);
}

static void assert_operand(const lk_trace_problem *problem, int i, lk_shape expected)
{
    lk_dtype dtype;
    lk_shape shape;
    assert_true(lk__problem_operand(problem, i, &dtype, &shape));
    assert_int_equal(dtype, LK_F32);
    assert_int_equal(shape.ndim, expected.ndim);
    assert_memory_equal(shape.dim, expected.dim, (size_t)shape.ndim * sizeof *shape.dim);
}

static void calls_have_shapes_and_flops(void **state)
{
    (void)state;
    lk_device *device = lk_device_open("ref");
    assert_non_null(device);
    start(0);
    lk_scope_begin();
    lk_tensor *a = lk_ones(device, LK_F32, LK_SHAPE(3, 4)), *b = lk_ones(device, LK_F32, LK_SHAPE(4, 5));
    lk_tensor *c = lk_matmul(a, b);
    assert_int_equal(lk_tensor_wait(lk_matmul(a, b)), LK_OK);
    lk_scope_end();
    assert_non_null(c);
    assert_int_equal(lk_device_sync(device), LK_OK);
    lk_trace *trace = stop();
    const lk_trace_track *track = track_named(trace, "ref:0");
    assert_non_null(track);
    assert_int_equal(track->kind, LK_TRACK_DEVICE);
    const lk_trace_event *first = call_of(track, "matmul", 0), *second = call_of(track, "matmul", 1);
    assert_non_null(first);
    assert_non_null(second);
    assert_ptr_equal(first->problem, second->problem); /* stored once */
    assert_true(trace->began <= first->begin && first->begin <= first->end && first->end <= second->begin);
    assert_true(second->end <= trace->ended);
    assert_int_equal(first->problem->n_in, 2);
    assert_int_equal(first->problem->n_out, 1);
    assert_operand(first->problem, 0, LK_SHAPE(3, 4));
    assert_operand(first->problem, 1, LK_SHAPE(4, 5));
    assert_operand(first->problem, 2, LK_SHAPE(3, 5));
    assert_true(first->problem->flops == 2.0 * 3 * 4 * 5);
    assert_string_equal(lk__trace_event_category(first), "operator");
    assert_null(call_of(track, "matmul", 2));
    lk_trace_release(trace);
    lk_device_release(device);
}

static void release_sums(lk_tensor *const *sums, lk_shard_sum *sum, lk_strategy *strategy, lk_device *const *devices)
{
    lk_tensor_release(sums[0]);
    lk_tensor_release(sums[1]);
    lk_shard_sum_release(sum);
    lk_strategy_release(strategy);
    lk_scope_end();
    lk_devices_release(devices, 2);
}

/* A task of a shard sum is pushed in the sum's phase, and keeps that phase on the device's thread. */
static void reductions_have_phases(void **state)
{
    (void)state;
    lk_device *devices[2];
    int count;
    assert_int_equal(lk_devices_open("2xref", devices, 2, &count), LK_OK);
    start(0);
    lk_scope_begin();
    lk_strategy *strategy = lk_strategy_new("mirrored", devices, 2);
    lk_shard_sum *sum = lk_shard_sum_new(strategy, 4, 1);
    assert_non_null(sum);
    for (int64_t shard = 0; shard < 4; shard++) {
        lk_tensor *value = lk_ones(devices[shard / 2], LK_F32, LK_SHAPE(7));
        assert_int_equal(lk_shard_sum_add(sum, shard, &value), LK_OK);
    }
    lk_tensor *sums[2];
    assert_int_equal(lk_shard_sum_finish(sum, sums), LK_OK);
    assert_int_equal(lk_wait_all(), LK_OK);
    lk_trace *trace = stop();
    const lk_trace_track *first = track_named(trace, "ref:0"), *second = track_named(trace, "ref:1");
    assert_string_equal(lk__trace_event_category(call_of(first, "full", 0)), "operator");
    assert_string_equal(lk__trace_event_category(call_of(first, "tree sum", 0)), "shard sum");
    assert_string_equal(lk__trace_event_category(call_of(first, "tree sum", 1)), "exchange");
    assert_string_equal(lk__trace_event_category(call_of(second, "tree sum", 0)), "shard sum");
    assert_string_equal(lk__trace_event_category(call_of(second, "tree sum", 1)), "exchange");
    assert_int_equal(lk__phase_current(), LK_PHASE_COMPUTE);
    lk_trace_release(trace);
    release_sums(sums, sum, strategy, devices);
}

/* --- waits for an exchange ---------------------------------------------------------------------------------------- */

static sem_t gate;

static lk_status wait_at_gate(lk_task *task)
{
    (void)task;
    sem_wait(&gate);
    return LK_OK;
}

static void let_go(lk_task *task)
{
    (void)task;
}

/* Returns a sum over two devices, each of which has added a large tensor. */
static lk_shard_sum *add_large_values(lk_strategy *strategy, lk_device *const *devices)
{
    lk_shard_sum *sum = lk_shard_sum_new(strategy, 2, 1);
    assert_non_null(sum);
    for (int64_t shard = 0; shard < 2; shard++) {
        lk_tensor *value = lk_ones(devices[shard], LK_F32, LK_SHAPE(1 << 16));
        assert_int_equal(lk_shard_sum_add(sum, shard, &value), LK_OK);
    }
    return sum;
}

static const lk_trace_event *last_program_of(const lk_trace_track *track, lk_phase phase)
{
    const lk_trace_event *last = NULL;
    for (const lk_trace_chunk *chunk = track ? track->first : NULL; chunk; chunk = chunk->next)
        for (int i = 0; i < chunk->n; i++)
            if (chunk->events[i].kind == LK_TRACE_PROGRAM && chunk->events[i].number == phase)
                last = &chunk->events[i];
    return last;
}

/* The first device is done before the second one begins to exchange; the wait until then does not count as a wait for
 * the exchange. */
static void what_comes_before_an_exchange_is_not_waited_for_as_one(void **state)
{
    (void)state;
    lk_device *devices[2];
    int count;
    sem_init(&gate, 0, 0);
    assert_int_equal(lk_devices_open("2xref", devices, 2, &count), LK_OK);
    lk_scope_begin();
    lk_strategy *strategy = lk_strategy_new("mirrored", devices, 2);
    lk_shard_sum *sum = add_large_values(strategy, devices);
    assert_int_equal(lk_wait_all(), LK_OK);
    start(0);
    lk_task closed = {.device = devices[1], .run = wait_at_gate, .release = let_go};
    assert_int_equal(lk__engine_push_task(&closed), LK_OK);
    lk_event first_entry = lk__queue_last(devices[0]->queue);
    first_entry.sequence++;
    lk_tensor *sums[2];
    assert_int_equal(lk_shard_sum_finish(sum, sums), LK_OK);
    lk__event_wait(first_entry); /* the next event is a wait */
    sem_post(&gate);
    assert_int_equal(lk_wait_all(), LK_OK);
    lk_trace *trace = stop();
    const lk_trace_track *first = track_named(trace, "ref:0"), *second = track_named(trace, "ref:1");
    const lk_trace_event *before = last_program_of(second, LK_PHASE_COMPUTE);
    assert_non_null(before);
    assert_non_null(last_program_of(second, LK_PHASE_EXCHANGE));
    for (const lk_trace_chunk *chunk = first->first; chunk; chunk = chunk->next)
        for (int i = 0; i < chunk->n; i++)
            if (chunk->events[i].kind == LK_TRACE_WAIT_EXCHANGE)
                assert_true(chunk->events[i].begin >= before->end);
    lk_trace_release(trace);
    release_sums(sums, sum, strategy, devices);
    sem_destroy(&gate);
}

/* --- the limit on events ------------------------------------------------------------------------------------------ */

static void what_does_not_fit_is_counted(void **state)
{
    (void)state;
    start(1); /* one chunk */
    for (int i = 0; i < LK_TRACE_CHUNK + 10; i++)
        lk__trace_end(LK_TRACE_PREPARE, lk__trace_begin(), i);
    lk_trace *trace = stop();
    assert_int_equal(lk_trace_dropped(trace), 10);
    assert_int_equal(count_kind(trace->tracks, LK_TRACE_PREPARE), LK_TRACE_CHUNK);
    assert_int_equal(trace->tracks->first->events[LK_TRACE_CHUNK - 1].number, LK_TRACE_CHUNK - 1);
    lk_trace_release(trace);
}

static void what_began_before_counts_from_the_beginning(void **state)
{
    (void)state;
    int64_t before = lk__trace_begin();
    assert_int_equal(before, 0);
    start(0);
    lk__trace_end(LK_TRACE_WAIT_BATCH, before, 0);
    lk_trace *trace = stop();
    assert_int_equal(trace->tracks->first->events[0].begin, trace->began);
    lk_trace_release(trace);
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

enum { THREADS = 4, EVENTS = 5000 };

static void *record_some(void *argument)
{
    lk__trace_name_thread(LK_TRACK_LOADER, argument);
    for (int i = 0; i < EVENTS; i++)
        lk__trace_end(LK_TRACE_PREPARE, lk__trace_begin(), i);
    return NULL;
}

static void threads_that_ended_are_kept(void **state)
{
    (void)state;
    static char names[THREADS][8] = {"one", "two", "three", "four"};
    pthread_t threads[THREADS];
    start(0);
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, record_some, names[t]), 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    lk_trace *trace = stop();
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(count_kind(track_named(trace, names[t]), LK_TRACE_PREPARE), EVENTS);
    assert_int_equal(lk_trace_dropped(trace), 0);
    lk_trace_release(trace);
}

static void record_at_exit(void *argument)
{
    lk__trace_end(LK_TRACE_PREPARE, lk__trace_begin(), *(int *)argument);
}

static void *record_and_set(void *argument)
{
    static int value;
    lk__trace_name_thread(LK_TRACK_LOADER, "leaving");
    record_at_exit(&value); /* makes the recorder's key, and so its destructor runs first */
    pthread_setspecific(*(pthread_key_t *)argument, &value);
    return NULL;
}

/* A destructor of the program's may record after the thread's recorder is gone. */
static void threads_record_while_they_end(void **state)
{
    (void)state;
    pthread_t thread;
    pthread_key_t key;
    start(0);
    record_at_exit(&(int){0});
    assert_int_equal(pthread_key_create(&key, record_at_exit), 0);
    assert_int_equal(pthread_create(&thread, NULL, record_and_set, &key), 0);
    pthread_join(thread, NULL);
    pthread_key_delete(key);
    lk_trace *trace = stop();
    assert_int_equal(count_kind(track_named(trace, "leaving"), LK_TRACE_PREPARE), 1);
    lk_trace_release(trace);
}

/* Recordings begin and end while other threads record: none of their events is lost or shows up in the next
 * recording. */
static void starting_and_stopping_is_no_race(void **state)
{
    (void)state;
    static char name[] = "worker";
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, record_some, name), 0);
    for (int i = 0; i < 50; i++) {
        start(0);
        lk_trace *trace = stop();
        for (const lk_trace_track *track = trace->tracks; track; track = track->next)
            for (const lk_trace_chunk *chunk = track->first; chunk; chunk = chunk->next)
                for (int e = 0; e < chunk->n; e++)
                    assert_true(trace->began <= chunk->events[e].begin && chunk->events[e].end <= trace->ended);
        lk_trace_release(trace);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* An event without memory is dropped; that is no error of its thread. */
static void no_memory_drops_events(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 2; n++) { /* fails the allocation of the track, then that of its first chunk */
        start(0);
        lk__mem_fail_at(n);
        lk__trace_end(LK_TRACE_PREPARE, lk__trace_begin(), 1);
        lk__mem_fail_at(-1);
        assert_int_equal(lk_error_status(), LK_OK);
        lk__trace_end(LK_TRACE_PREPARE, lk__trace_begin(), 2);
        lk_trace *trace = stop();
        assert_int_equal(lk_trace_dropped(trace), 1);
        assert_int_equal(count_kind(trace->tracks, LK_TRACE_PREPARE), 1);
        lk_trace_release(trace);
    }
    lk__mem_fail_at(0);
    assert_int_equal(lk_trace_start(NULL), LK_ERR_MEMORY);
    lk__mem_fail_at(-1);
    lk_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(start_and_stop_come_in_turns),
        cmocka_unit_test(nothing_is_kept_while_off),
        cmocka_unit_test(calls_have_shapes_and_flops),
        cmocka_unit_test(reductions_have_phases),
        cmocka_unit_test(what_comes_before_an_exchange_is_not_waited_for_as_one),
        cmocka_unit_test(what_does_not_fit_is_counted),
        cmocka_unit_test(what_began_before_counts_from_the_beginning),
        cmocka_unit_test(threads_that_ended_are_kept),
        cmocka_unit_test(threads_record_while_they_end),
        cmocka_unit_test(starting_and_stopping_is_no_race),
        cmocka_unit_test(no_memory_drops_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
