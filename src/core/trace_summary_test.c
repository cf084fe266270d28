/* Summaries of recordings whose numbers are all known. */
#include "core/trace.h"

#include "base/mem.h"
#include "base/mem_testing.h"
#include "lockstep/device.h"
#include "core/trace_summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TRACKS = 4 };

/* Times are in milliseconds since the recording began. */
typedef struct made_trace {
    lk_trace trace;
    lk_trace_track tracks[MAX_TRACKS];
    lk_trace_chunk chunks[MAX_TRACKS];
    int n;
} made_trace;

static made_trace made;

static const int64_t origin = 5000000000;
static const lk_op relu = {.name = "relu"}, softmax = {.name = "softmax"};

static void begin_trace(int64_t length)
{
    memset(&made, 0, sizeof made);
    made.trace = (lk_trace){.began = origin, .ended = origin + length * 1000000};
}

static lk_trace_track *add_track(lk_track_kind kind, const char *name)
{
    lk_trace_track *track = &made.tracks[made.n];
    track->kind = kind;
    snprintf(track->name, sizeof track->name, "%s", name);
    track->first = track->last = &made.chunks[made.n++];
    track->next = made.trace.tracks;
    made.trace.tracks = track;
    return track;
}

static void add(lk_trace_track *track, lk_trace_kind kind, int64_t begin, int64_t end)
{
    track->first->events[track->first->n++] =
        (lk_trace_event){.begin = origin + begin * 1000000, .end = origin + end * 1000000, .kind = kind};
}

static void add_call(lk_trace_track *track, const lk_trace_problem *problem, lk_phase phase, int64_t begin, int64_t end)
{
    add(track, LK_TRACE_CALL, begin, end);
    lk_trace_event *event = &track->first->events[track->first->n - 1];
    event->problem = problem;
    event->number = phase;
}

/* A problem with one scalar input and one scalar output, in f32. A track has at most one here. */
static const lk_trace_problem *problem_of(lk_trace_track *track, const lk_op *op, double flops)
{
    lk_trace_problem *problem = lk__calloc(1, sizeof *problem + 2 * sizeof(int64_t));
    assert_non_null(problem);
    *problem = (lk_trace_problem){.op = op, .flops = flops, .n_in = 1, .n_out = 1, .n_words = 2};
    track->buckets[0] = problem;
    track->n_problems = 1;
    return problem;
}

static void free_problems(void)
{
    for (int t = 0; t < made.n; t++)
        lk__free(made.tracks[t].buckets[0]);
}

static lk_trace_summary *summarize(void)
{
    lk_trace_summary *summary = lk_trace_summarize(&made.trace);
    if (!summary)
        fail_msg("%s", lk_error_message());
    return summary;
}

#define assert_ms(seconds, milliseconds) assert_true(fabs((seconds)-1e-3 * (milliseconds)) < 1e-12)

static void assert_adds_up(const lk_trace_device *device)
{
    assert_true(fabs(device->compute + device->shard_sums + device->exchange + device->slowest + device->input +
                     device->other - device->seconds) < 1e-12);
}

static void parts_are_told_apart(void **state)
{
    (void)state;
    begin_trace(100);
    lk_trace_track *device = add_track(LK_TRACK_DEVICE, "cpu:0"), *other = add_track(LK_TRACK_DEVICE, "cpu:1");
    lk_trace_track *caller = add_track(LK_TRACK_CALLER, "caller");
    const lk_trace_problem *problem = problem_of(device, &relu, 0);
    add_call(device, problem, LK_PHASE_COMPUTE, 0, 20);
    add_call(device, problem, LK_PHASE_SHARD_SUM, 20, 25);
    add(device, LK_TRACE_WAIT_DEVICE, 25, 33);
    add_call(device, problem, LK_PHASE_EXCHANGE, 33, 36);
    add(device, LK_TRACE_WAIT_EXCHANGE, 36, 37);
    add(device, LK_TRACE_WAIT_CORE, 37, 40); /* counts as the rest */
    add(device, LK_TRACE_IDLE, 40, 90);
    add(device, LK_TRACE_QUEUED, 95, 95);
    add(other, LK_TRACE_IDLE, 0, 10);
    add(caller, LK_TRACE_WAIT_BATCH, 30, 50); /* 10 of them while there was nothing to do */
    add(caller, LK_TRACE_WAIT_ENTRY, 50, 55);
    add(caller, LK_TRACE_PREPARE, 55, 60);
    add(caller, LK_TRACE_WAIT_RESULT, 80, 100);
    lk_trace_summary *summary = summarize();
    assert_int_equal(summary->n_devices, 2);
    const lk_trace_device *first = &summary->devices[0];
    assert_string_equal(first->name, "cpu:0");
    assert_string_equal(summary->devices[1].name, "cpu:1");
    assert_ms(summary->seconds, 100);
    assert_ms(first->seconds, 100);
    assert_ms(first->compute, 20);
    assert_ms(first->shard_sums, 5);
    assert_ms(first->exchange, 3 + 1);
    assert_ms(first->slowest, 8 + 10);
    assert_ms(first->input, 10 + 5);
    assert_ms(first->other, 38);
    assert_adds_up(first);
    assert_ms(summary->devices[1].other, 100);
    lk_trace_summary_release(summary);
    free_problems();
}

static void waits_for_exchanges_are_cut_at_marks(void **state)
{
    (void)state;
    double seconds[4];
    const int64_t marks[] = {origin + 10000000, origin + 20000000, origin + 30000000};
    begin_trace(100);
    lk_trace_track *second = add_track(LK_TRACK_DEVICE, "cpu:1"), *caller = add_track(LK_TRACK_CALLER, "caller");
    lk_trace_track *device = add_track(LK_TRACK_DEVICE, "cpu:0");
    add(caller, LK_TRACE_WAIT_EXCHANGE, 0, 50);
    add(device, LK_TRACE_WAIT_EXCHANGE, 1, 3);
    add(device, LK_TRACE_WAIT_DEVICE, 3, 9);
    add(device, LK_TRACE_WAIT_EXCHANGE, 9, 24);
    add(device, LK_TRACE_WAIT_EXCHANGE, 30, 41);
    add(second, LK_TRACE_WAIT_EXCHANGE, 10, 20);
    assert_int_equal(lk__trace_exchange_waits(&made.trace, 0, marks, 3, seconds), LK_OK);
    assert_ms(seconds[0], 3);
    assert_ms(seconds[1], 10);
    assert_ms(seconds[2], 4);
    assert_ms(seconds[3], 11);
    assert_int_equal(lk__trace_exchange_waits(&made.trace, 1, marks, 2, seconds), LK_OK);
    assert_ms(seconds[0], 0);
    assert_ms(seconds[1], 10);
    assert_ms(seconds[2], 0);
    assert_int_equal(lk__trace_exchange_waits(&made.trace, 0, NULL, 0, seconds), LK_OK);
    assert_ms(seconds[0], 28);
    lk__mem_fail_at(0);
    assert_int_equal(lk__trace_exchange_waits(&made.trace, 0, marks, 3, seconds), LK_ERR_MEMORY);
    lk__mem_fail_at(-1);
    lk_error_clear();
}

/* With a single device, none is the slowest. */
static void one_device_waits_for_none(void **state)
{
    (void)state;
    begin_trace(10);
    lk_trace_track *device = add_track(LK_TRACK_DEVICE, "cpu:0"), *caller = add_track(LK_TRACK_CALLER, "caller");
    add(device, LK_TRACE_IDLE, 0, 10);
    add(caller, LK_TRACE_WAIT_RESULT, 0, 10);
    lk_trace_summary *summary = summarize();
    assert_ms(summary->devices[0].slowest, 0);
    assert_ms(summary->devices[0].other, 10);
    lk_trace_summary_release(summary);
}

/* A program's time is that of its calls plus the time between them. */
static void what_encloses_is_counted_once(void **state)
{
    (void)state;
    begin_trace(30);
    lk_trace_track *device = add_track(LK_TRACK_DEVICE, "cpu:0");
    const lk_trace_problem *problem = problem_of(device, &relu, 0);
    add_call(device, problem, LK_PHASE_COMPUTE, 1, 4);
    add_call(device, problem, LK_PHASE_COMPUTE, 6, 7); /* inside the next one */
    add_call(device, problem, LK_PHASE_COMPUTE, 5, 10);
    add(device, LK_TRACE_PROGRAM, 0, 12);
    add_call(device, problem, LK_PHASE_COMPUTE, 20, 21);
    lk_trace_summary *summary = summarize();
    assert_ms(summary->devices[0].compute, 12 + 1);
    assert_ms(summary->devices[0].other, 17);
    assert_int_equal(summary->n_operators, 1);
    assert_int_equal(summary->operators[0].calls, 4);
    assert_ms(summary->operators[0].seconds, 3 + 5 + 1);
    lk_trace_summary_release(summary);
    free_problems();
}

static void operators_are_added_up_over_devices(void **state)
{
    (void)state;
    begin_trace(30);
    lk_trace_track *one = add_track(LK_TRACK_DEVICE, "cpu:1"), *two = add_track(LK_TRACK_DEVICE, "cpu:0"),
                   *three = add_track(LK_TRACK_DEVICE, "cpu:10");
    const lk_trace_problem *problem = problem_of(one, &relu, 7);
    add_call(one, problem, LK_PHASE_COMPUTE, 0, 2);
    add_call(one, problem, LK_PHASE_EXCHANGE, 2, 12);
    add_call(two, problem_of(two, &relu, 7), LK_PHASE_COMPUTE, 3, 4);
    add_call(three, problem_of(three, &softmax, 0), LK_PHASE_COMPUTE, 3, 9);
    lk_trace_summary *summary = summarize();
    assert_int_equal(summary->n_operators, 3);
    assert_string_equal(summary->operators[0].name, "relu");
    assert_string_equal(summary->operators[0].category, "exchange");
    assert_string_equal(summary->operators[1].name, "softmax");
    assert_string_equal(summary->operators[2].name, "relu");
    assert_string_equal(summary->operators[2].category, "operator");
    assert_string_equal(summary->operators[2].problem, "f32[] -> f32[]");
    assert_int_equal(summary->operators[2].calls, 2);
    assert_ms(summary->operators[2].seconds, 3);
    assert_true(summary->operators[2].flops == 14);
    assert_true(summary->operators[2].bytes == 2 * 8);
    assert_string_equal(summary->devices[0].name, "cpu:0");
    assert_string_equal(summary->devices[1].name, "cpu:1");
    assert_string_equal(summary->devices[2].name, "cpu:10");
    lk_trace_summary_release(summary);
    free_problems();
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    begin_trace(30);
    lk_trace_track *device = add_track(LK_TRACK_DEVICE, "cpu:0"), *caller = add_track(LK_TRACK_CALLER, "caller");
    add_call(device, problem_of(device, &relu, 7), LK_PHASE_COMPUTE, 0, 2);
    add(caller, LK_TRACE_WAIT_BATCH, 0, 1);
    failing f = fail_every(1);
    while (fail_next(&f)) {
        lk_trace_summary *summary = lk_trace_summarize(&made.trace);
        stop_failing_with(&f, lk_error_status());
        assert_true((summary == NULL) == f.reached);
        lk_trace_summary_release(summary);
    }
    assert_true(f.n >= 8);
    free_problems();
}

/* Returns the bytes of a call of `op` that takes 100 elements and makes 10. */
static double bytes_of_ten(const lk_op *op)
{
    begin_trace(30);
    lk_trace_track *device = add_track(LK_TRACK_DEVICE, "cpu:0");
    lk_trace_problem *problem = lk__calloc(1, sizeof *problem + 4 * sizeof(int64_t));
    assert_non_null(problem);
    *problem = (lk_trace_problem){.op = op, .n_in = 1, .n_out = 1, .n_words = 4};
    const int64_t one_axis = LK_F32 * (LK_MAX_DIMS + 1) + 1, words[] = {one_axis, 100, one_axis, 10};
    memcpy(problem->words, words, sizeof words);
    device->buckets[0] = problem;
    device->n_problems = 1;
    add_call(device, problem, LK_PHASE_COMPUTE, 0, 2);
    lk_trace_summary *summary = summarize();
    double bytes = summary->operators[0].bytes;
    lk_trace_summary_release(summary);
    free_problems();
    return bytes;
}

static void an_operator_that_picks_reads_no_more_than_it_writes(void **state)
{
    (void)state;
    static const lk_op all = {.name = "sum"}, some = {.name = "gather", .flags = LK_OP_PICKS};
    assert_true(bytes_of_ten(&all) == 110 * 4);
    assert_true(bytes_of_ten(&some) == 20 * 4);
}

static void devices_are_probed(void **state)
{
    (void)state;
    static const char *const kinds[] = {"cpu", "ref"};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        lk_device *device = lk_device_open(kinds[kind]);
        double flops, bytes;
        assert_int_equal(lk_device_measure_copy(device, &bytes), LK_OK);
        assert_true(bytes == 0);
        assert_int_equal(lk_device_measure_peak(device, LK_I32, &flops), LK_ERR_DTYPE);
        lk_error_clear();
        assert_int_equal(lk_device_measure_peak(device, LK_F32, &flops), LK_OK);
        assert_true(isfinite(flops) && flops > 0);
        double before, after;
        assert_int_equal(lk_device_processor_seconds(device, &before), LK_OK);
        assert_int_equal(lk_device_measure_peak(device, LK_BF16, &flops), LK_OK);
        assert_int_equal(lk_device_processor_seconds(device, &after), LK_OK);
        assert_true(0 < before && before < after);
        lk_device_release(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_told_apart),
        cmocka_unit_test(waits_for_exchanges_are_cut_at_marks),
        cmocka_unit_test(one_device_waits_for_none),
        cmocka_unit_test(what_encloses_is_counted_once),
        cmocka_unit_test(operators_are_added_up_over_devices),
        cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test(an_operator_that_picks_reads_no_more_than_it_writes),
        cmocka_unit_test(devices_are_probed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
