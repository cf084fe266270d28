/* Traces of short trainings, read back. */
#include "lockstep/callbacks.h"
#include "lockstep/trace.h"
#include "base/folder_testing.h"
#include "train/training_testing.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_EVENTS = 100000, STEPS = 3 };

static const char *path;

static int make_file(void **state)
{
    int result = make_test_dir(state);
    path = in_dir("trace.json");
    return result;
}

static lk_trainer *trainer_on(const char *devices)
{
    lk_train_config config = training_of(8 * STEPS, 0, 8, 2);
    config.epochs = 1;
    config.devices.spec = devices;
    return new_trainer(&config);
}

static json_t *read_trace(void)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    return root;
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* --- a thread's events -------------------------------------------------------------------------------------------- */

typedef struct interval {
    int64_t begin, end; /* nanoseconds */
    const json_t *event;
} interval;

typedef struct thread {
    interval *intervals; /* by beginning; an enclosing one comes first */
    int n;
} thread;

static int64_t nanoseconds(const json_t *event, const char *name)
{
    const json_t *value = json_object_get(event, name);
    assert_true(json_is_number(value));
    return llround(json_number_value(value) * 1000);
}

static int compare(const void *a, const void *b)
{
    const interval *x = a, *y = b;
    if (x->begin != y->begin)
        return (x->begin > y->begin) - (x->begin < y->begin);
    return (x->end < y->end) - (x->end > y->end);
}

/* The number of the first thread with this name. */
static json_int_t number_of(const json_t *root, const char *name)
{
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(text_of(event, "name"), "thread_name") == 0 &&
            strcmp(text_of(json_object_get(event, "args"), "name"), name) == 0)
            return json_integer_value(json_object_get(event, "tid"));
    }
    fail_msg("there is no %s", name);
    return -1;
}

static thread thread_named(const json_t *root, const char *name)
{
    thread t = {.intervals = calloc(MAX_EVENTS, sizeof(interval))};
    json_int_t number = number_of(root, name);
    size_t i;
    json_t *event;
    assert_non_null(t.intervals);
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (json_integer_value(json_object_get(event, "tid")) != number || strcmp(text_of(event, "ph"), "X") != 0)
            continue;
        assert_true(t.n < MAX_EVENTS);
        int64_t begin = nanoseconds(event, "ts");
        t.intervals[t.n++] = (interval){begin, begin + nanoseconds(event, "dur"), event};
    }
    qsort(t.intervals, (size_t)t.n, sizeof *t.intervals, compare);
    return t;
}

static void assert_nested(const thread *t)
{
    enum { DEPTH = 16 };
    int64_t ends[DEPTH];
    int depth = 0;
    for (int i = 0; i < t->n; i++) {
        while (depth > 0 && ends[depth - 1] <= t->intervals[i].begin)
            depth--;
        assert_true(depth < DEPTH && t->intervals[i].begin >= 0);
        if (depth > 0 && t->intervals[i].end > ends[depth - 1])
            fail_msg("%s overlaps what began before it", text_of(t->intervals[i].event, "name"));
        ends[depth++] = t->intervals[i].end;
    }
}

static int count(const thread *t, const char *key, const char *value)
{
    int n = 0;
    for (int i = 0; i < t->n; i++)
        n += strcmp(text_of(t->intervals[i].event, key), value) == 0;
    return n;
}

/* Checks the arguments of a convolution. */
static void assert_convolution(const thread *t)
{
    for (int i = 0; i < t->n; i++) {
        const json_t *event = t->intervals[i].event, *args = json_object_get(event, "args");
        if (strncmp(text_of(event, "name"), "conv", 4) != 0)
            continue;
        const char *input = json_string_value(json_array_get(json_object_get(args, "inputs"), 0));
        assert_true(json_number_value(json_object_get(args, "flops")) > 0);
        assert_string_equal(text_of(event, "cat"), "operator");
        assert_non_null(input);
        assert_memory_equal(input, "f32[4,", 6); /* half a batch */
        assert_true(json_array_size(json_object_get(args, "outputs")) > 0);
        return;
    }
    fail_msg("there is no convolution");
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

static void check_device(const json_t *root, const char *name)
{
    thread t = thread_named(root, name);
    assert_nested(&t);
    assert_convolution(&t);
    assert_true(count(&t, "cat", "exchange") > 0);
    assert_int_equal(count(&t, "cat", "shard sum"), 0); /* one shard a device */
    free(t.intervals);
}

static void two_devices_are_recorded(void **state)
{
    (void)state;
    lk_trainer *trainer = trainer_on("2xcpu");
    lk_train_result result, plain;
    assert_int_equal(lk_trainer_add(trainer, lk_callback_trace(path)), LK_OK);
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_OK);
    lk_trainer_release(trainer);

    json_t *root = read_trace();
    check_device(root, "cpu:0");
    check_device(root, "cpu:1");
    thread caller = thread_named(root, "caller"), loader = thread_named(root, "loader 0");
    assert_nested(&caller);
    assert_nested(&loader);
    assert_int_equal(count(&caller, "name", "push a step"), STEPS);
    assert_int_equal(count(&loader, "name", "prepare a batch"), STEPS);
    free(caller.intervals);
    free(loader.intervals);
    json_decref(root);

    trainer = trainer_on("2xcpu");
    assert_int_equal(lk_trainer_fit(trainer, &plain), LK_OK);
    assert_string_equal(result.digest, plain.digest);
    lk_trainer_release(trainer);
}

static lk_status interrupt(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop)
{
    (void)self, (void)report, (void)stop;
    lk_trainer_interrupt(trainer);
    return LK_OK;
}

static void interrupted_trainings_are_recorded(void **state)
{
    (void)state;
    lk_trainer *trainer = trainer_on("1xcpu");
    lk_train_result result;
    assert_int_equal(lk_trainer_add(trainer, lk_callback_trace(path)), LK_OK);
    assert_int_equal(lk_trainer_add(trainer, (lk_callback){.name = "interrupt", .step_end = interrupt}), LK_OK);
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_INTERRUPTED);
    lk_error_clear();
    lk_trainer_release(trainer);
    json_t *root = read_trace();
    thread t = thread_named(root, "cpu:0");
    assert_nested(&t);
    assert_convolution(&t);
    free(t.intervals);
    json_decref(root);
}

static void one_recording_at_a_time(void **state)
{
    (void)state;
    lk_trainer *trainer = trainer_on("1xcpu");
    lk_train_result result;
    assert_int_equal(lk_trainer_add(trainer, lk_callback_trace(path)), LK_OK);
    assert_int_equal(lk_trace_start(NULL), LK_OK);
    assert_int_equal(lk_trainer_fit(trainer, &result), LK_ERR_STATE);
    lk_error_clear();
    lk_trace_release(lk_trace_stop());
    lk_trainer_release(trainer);
    json_decref(read_trace()); /* without events */
}

static void the_file_is_tried_at_once(void **state)
{
    (void)state;
    lk_trainer *trainer = trainer_on("1xcpu");
    assert_int_equal(lk_trainer_add(trainer, lk_callback_trace("/nowhere/trace.json")), LK_ERR_IO);
    assert_non_null(strstr(lk_error_message(), "/nowhere/trace.json"));
    lk_error_clear();
    lk_trainer_release(trainer);
}

/* The parts of a device's time add up to it, and none is negative. */
static void the_parts_are_the_whole(void **state)
{
    (void)state;
    lk_trainer *trainer = trainer_on("2xcpu");
    assert_int_equal(lk_trace_start(NULL), LK_OK);
    assert_int_equal(lk_trainer_run(trainer, 4), LK_OK);
    assert_int_equal(lk_wait_all(), LK_OK);
    lk_trace *trace = lk_trace_stop();
    assert_non_null(trace);
    lk_trace_summary *summary = lk_trace_summarize(trace);
    assert_non_null(summary);
    assert_int_equal(summary->n_devices, 2);
    double operators = 0, calls = 0;
    for (int i = 0; i < summary->n_operators; i++)
        operators += summary->operators[i].seconds;
    for (int d = 0; d < 2; d++) {
        const lk_trace_device *device = &summary->devices[d];
        double parts[] = {device->compute, device->shard_sums, device->exchange,
                          device->slowest, device->input,      device->other};
        double sum = 0;
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            assert_true(parts[i] >= 0);
            sum += parts[i];
        }
        assert_true(fabs(sum - device->seconds) < 1e-9);
        assert_true(device->seconds == summary->seconds && device->compute > 0);
        calls += device->compute + device->shard_sums + device->exchange;
    }
    assert_true(operators > 0 && operators <= calls + 1e-9); /* programs and waits are in `calls` too */
    lk_trace_summary_release(summary);
    lk_trace_release(trace);
    lk_trainer_release(trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_devices_are_recorded), cmocka_unit_test(interrupted_trainings_are_recorded),
        cmocka_unit_test(one_recording_at_a_time),  cmocka_unit_test(the_file_is_tried_at_once),
        cmocka_unit_test(the_parts_are_the_whole),
    };
    return cmocka_run_group_tests(tests, make_file, remove_test_dir);
}
