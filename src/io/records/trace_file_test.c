/* Traces are written and read back with a JSON library. */
#include "io/io_testing.h"

#include "base/mem_testing.h"
#include "core/trace.h"
#include "lockstep/ops.h"

#include <jansson.h>

static json_t *read_trace(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    assert_true(json_is_array(json_object_get(root, "traceEvents")));
    return root;
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* The n-th event with this name, from 0; borrowed. */
static json_t *event_named(const json_t *root, const char *name, int n)
{
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(text_of(event, "name"), name) == 0 && n-- == 0)
            return event;
    }
    return NULL;
}

static lk_trace *record_matmul(int times)
{
    lk_device *device = lk_device_open("ref");
    assert_non_null(device);
    assert_int_equal(lk_trace_start(NULL), LK_OK);
    lk_scope_begin();
    lk_tensor *a = lk_ones(device, LK_F32, LK_SHAPE(3, 4)), *b = lk_ones(device, LK_F32, LK_SHAPE(4, 5));
    for (int i = 0; i < times; i++)
        lk_matmul(a, b);
    assert_int_equal(lk_device_sync(device), LK_OK);
    lk_scope_end();
    lk__trace_end(LK_TRACE_PREPARE, lk__trace_begin(), 17);
    lk_trace *trace = lk_trace_stop();
    assert_non_null(trace);
    lk_device_release(device);
    return trace;
}

static void operators_are_written(void **state)
{
    (void)state;
    lk_trace *trace = record_matmul(2);
    assert_int_equal(lk_trace_write(trace, in_dir("trace.json")), LK_OK);
    assert_int_equal(files_in_dir(test_dir), 1);
    lk_trace_release(trace);
    json_t *root = read_trace(in_dir("trace.json"));
    const json_t *event = event_named(root, "matmul", 1), *args = json_object_get(event, "args");
    assert_non_null(args);
    assert_null(event_named(root, "matmul", 2));
    assert_string_equal(text_of(event, "ph"), "X");
    assert_string_equal(text_of(event, "cat"), "operator");
    assert_true(json_number_value(json_object_get(args, "flops")) == 120);
    const json_t *inputs = json_object_get(args, "inputs"), *outputs = json_object_get(args, "outputs");
    assert_int_equal(json_array_size(inputs), 2);
    assert_string_equal(json_string_value(json_array_get(inputs, 0)), "f32[3,4]");
    assert_string_equal(json_string_value(json_array_get(inputs, 1)), "f32[4,5]");
    assert_string_equal(json_string_value(json_array_get(outputs, 0)), "f32[3,5]");
    const json_t *before = event_named(root, "matmul", 0);
    double ts = json_number_value(json_object_get(before, "ts")),
           dur = json_number_value(json_object_get(before, "dur"));
    assert_true(ts >= 0 && dur >= 0 && ts + dur <= json_number_value(json_object_get(event, "ts")) + 0.0015);
    const json_t *batch = json_object_get(event_named(root, "prepare a batch", 0), "args");
    assert_int_equal(json_integer_value(json_object_get(batch, "batch")), 17);
    const json_t *device = event_named(root, "thread_name", 0);
    assert_string_equal(text_of(json_object_get(device, "args"), "name"), "ref:0");
    assert_int_equal(json_integer_value(json_object_get(device, "tid")),
                     json_integer_value(json_object_get(event, "tid")));
    json_decref(root);
}

/* More than one write. */
static void long_recordings_are_whole(void **state)
{
    (void)state;
    enum { TIMES = 20000 };
    lk_trace *trace = record_matmul(TIMES);
    assert_int_equal(lk_trace_write(trace, in_dir("long.json")), LK_OK);
    lk_trace_release(trace);
    json_t *root = read_trace(in_dir("long.json"));
    assert_non_null(event_named(root, "matmul", TIMES - 1));
    assert_null(event_named(root, "matmul", TIMES));
    json_decref(root);
}

static void an_empty_recording_can_be_read(void **state)
{
    (void)state;
    assert_int_equal(lk_trace_write(NULL, in_dir("empty.json")), LK_OK);
    json_t *root = read_trace(in_dir("empty.json"));
    assert_non_null(event_named(root, "process_name", 0));
    json_decref(root);
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    assert_int_equal(lk_trace_write(NULL, in_dir("pipe")), LK_OK); /* although nobody reads it */
}

static void expect_io_error(const char *path, const char *part)
{
    assert_int_equal(lk_trace_write(NULL, path), LK_ERR_IO);
    if (!strstr(lk_error_message(), part))
        fail_msg("'%s' lacks '%s'", lk_error_message(), part);
    lk_error_clear();
}

static void what_cannot_be_written_is_said(void **state)
{
    (void)state;
    int files = files_in_dir(test_dir);
    expect_io_error("", "without a name");
    expect_io_error(in_dir("missing/trace.json"), "missing/trace.json");
    expect_io_error(test_dir, test_dir);
    if (access("/dev/full", W_OK) == 0)
        expect_io_error("/dev/full", "/dev/full");
    assert_int_equal(files_in_dir(test_dir), files);
}

/* A failed write leaves the old file as it was. */
static void no_memory_leaves_the_file(void **state)
{
    (void)state;
    put_file(in_dir("kept.json"), "kept");
    lk_trace *trace = record_matmul(1);
    failing f = fail_every(1);
    while (fail_next(&f)) {
        stop_failing_with(&f, lk_trace_write(trace, in_dir("kept.json")));
        if (f.reached)
            assert_contents(in_dir("kept.json"), "kept");
    }
    assert_true(f.n >= 4);
    lk_trace_release(trace);
    json_decref(read_trace(in_dir("kept.json")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators_are_written),          cmocka_unit_test(long_recordings_are_whole),
        cmocka_unit_test(an_empty_recording_can_be_read), cmocka_unit_test(what_cannot_be_written_is_said),
        cmocka_unit_test(no_memory_leaves_the_file),
    };
    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
