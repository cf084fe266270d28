/* Tests the recorder of tests/cuda_recorder in front of the emulated plug-in: it must report each kind of error, and
 * nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 64, BYTES = COUNT * sizeof(float) };

static const lk_gpu_driver *gpu;
static const char *(*take_report)(void);

/* --- reports ------------------------------------------------------------------------------------------------------ */

static void expect_nothing(void)
{
    const char *report = take_report();
    if (report)
        fail_msg("reported: %s", report);
}

/* Expects one report, which contains all of the texts. */
#define EXPECT(...) expect((const char *const[]){__VA_ARGS__, NULL})

static void expect(const char *const *texts)
{
    const char *report = take_report();
    if (!report)
        fail_msg("not reported: %s", *texts);
    for (; *texts; texts++)
        if (!strstr(report, *texts))
            fail_msg("'%s' is not in '%s'", *texts, report);
    expect_nothing();
}

/* --- the GPUs of a test ------------------------------------------------------------------------------------------- */

typedef struct world {
    lk_gpu_stream *a, *b, *elsewhere; /* two on GPU 0, one on GPU 1 */
    lk_gpu_event *event, *other;
    float *x, *y, *z, *far, *pinned; /* BYTES each: three on GPU 0, one on GPU 1, one of the host */
} world;

static void *allocated(lk_gpu_stream *stream)
{
    void *data;
    assert_int_equal(gpu->alloc(stream, BYTES, &data), LK_GPU_OK);
    return data;
}

static int open_world(void **state)
{
    world *w = calloc(1, sizeof *w);
    void *pinned;
    assert_int_equal(gpu->stream_open(0, NULL, &w->a), LK_GPU_OK);
    assert_int_equal(gpu->stream_open(0, NULL, &w->b), LK_GPU_OK);
    assert_int_equal(gpu->stream_open(1, NULL, &w->elsewhere), LK_GPU_OK);
    assert_int_equal(gpu->event_new(w->a, &w->event), LK_GPU_OK);
    assert_int_equal(gpu->event_new(w->a, &w->other), LK_GPU_OK);
    w->x = allocated(w->a);
    w->y = allocated(w->a);
    w->z = allocated(w->a);
    w->far = allocated(w->elsewhere);
    assert_int_equal(gpu->pinned_alloc(w->a, BYTES, &pinned), LK_GPU_OK);
    w->pinned = pinned;
    *state = w;
    return 0;
}

static void wait_for_all(const world *w)
{
    assert_int_equal(gpu->stream_wait(w->a), LK_GPU_OK);
    assert_int_equal(gpu->stream_wait(w->b), LK_GPU_OK);
    assert_int_equal(gpu->stream_wait(w->elsewhere), LK_GPU_OK);
}

static int close_world(void **state)
{
    world *w = *state;
    wait_for_all(w);
    float *const all[] = {w->x, w->y, w->z};
    for (int i = 0; i < 3; i++)
        gpu->alloc_free(w->a, all[i]);
    gpu->alloc_free(w->elsewhere, w->far);
    gpu->pinned_free(w->a, w->pinned);
    gpu->event_free(w->event);
    gpu->event_free(w->other);
    gpu->stream_close(w->a);
    gpu->stream_close(w->b);
    gpu->stream_close(w->elsewhere);
    free(w);
    expect_nothing();
    return 0;
}

/* Writes x. */
static lk_gpu_status fill(lk_gpu_stream *stream, float *x)
{
    return gpu->fill(stream, &(lk_gpu_fill){.y = x, .dtype = LK_F32, .count = COUNT, .value = 1});
}

/* Reads x, writes y. */
static lk_gpu_status relu(lk_gpu_stream *stream, const float *x, float *y)
{
    return gpu->relu(stream, &(lk_gpu_relu){.x = x, .y = y, .dtype = LK_F32, .count = COUNT});
}

static lk_gpu_status follow(lk_gpu_stream *stream, lk_gpu_stream *other, lk_gpu_event *event)
{
    lk_gpu_status status = gpu->event_record(other, event);
    return status == LK_GPU_OK ? gpu->event_follow(stream, event) : status;
}

/* --- order between streams ---------------------------------------------------------------------------------------- */

static void test_a_read_without_order_behind_a_write_is_reported(void **state)
{
    world *w = *state;
    fill(w->a, w->x);
    relu(w->b, w->x, w->y);
    EXPECT("relu on stream", "reads 256 bytes", "fill on stream", "writes 256 bytes", "nothing orders");
}

static void test_a_write_without_order_behind_a_read_is_reported(void **state)
{
    world *w = *state;
    relu(w->a, w->x, w->y);
    fill(w->b, w->x);
    EXPECT("fill on stream", "writes 256 bytes", "relu on stream", "reads 256 bytes");
}

static void test_two_writes_without_order_are_reported(void **state)
{
    world *w = *state;
    fill(w->a, w->x);
    fill(w->b, w->x);
    EXPECT("fill on stream");
}

static void test_an_event_that_was_recorded_too_early_does_not_help(void **state)
{
    world *w = *state;
    assert_int_equal(gpu->event_record(w->a, w->event), LK_GPU_OK);
    fill(w->a, w->x);
    gpu->event_follow(w->b, w->event);
    relu(w->b, w->x, w->y);
    EXPECT("relu on stream", "fill on stream");
}

static void test_an_event_that_is_followed_too_late_does_not_help(void **state)
{
    world *w = *state;
    fill(w->a, w->x);
    relu(w->b, w->x, w->y);
    follow(w->b, w->a, w->event);
    EXPECT("relu on stream", "fill on stream");
}

static void test_one_byte_is_enough(void **state)
{
    world *w = *state;
    assert_int_equal(gpu->copy(w->a, w->y, w->x, 101, LK_GPU_TO_GPU), LK_GPU_OK);
    assert_int_equal(gpu->copy(w->b, (char *)w->y + 100, w->z, 50, LK_GPU_TO_GPU), LK_GPU_OK);
    EXPECT("copy on stream", "writes 50 bytes", "writes 101 bytes");
}

static void test_an_earlier_reader_is_not_forgotten_over_a_later_one(void **state)
{
    world *w = *state;
    relu(w->a, w->x, w->y);
    relu(w->b, w->x, w->z);
    expect_nothing();
    follow(w->elsewhere, w->b, w->event);
    follow(w->b, w->elsewhere, w->other);
    fill(w->b, w->x); /* behind b, not behind a */
    EXPECT("fill on stream", "relu on stream");
}

static void test_what_is_ordered_is_not_reported(void **state)
{
    world *w = *state;
    fill(w->a, w->x);
    follow(w->b, w->a, w->event);
    relu(w->b, w->x, w->y);
    follow(w->elsewhere, w->b, w->event); /* and so behind a */
    gpu->copy_peer(w->elsewhere, w->far, w->a, w->x, BYTES);
    expect_nothing();
    gpu->stream_wait(w->elsewhere);
    fill(w->a, w->x); /* ordered by the host's wait */
    gpu->event_record(w->a, w->other);
    gpu->event_wait(w->other);
    fill(w->b, w->x);
    expect_nothing();
}

static void test_what_does_not_meet_is_not_reported(void **state)
{
    world *w = *state;
    relu(w->a, w->x, w->y);
    relu(w->b, w->x, w->z); /* both read x */
    wait_for_all(w);
    gpu->copy(w->a, w->x, w->y, BYTES / 2, LK_GPU_TO_GPU);
    gpu->copy(w->b, w->x + COUNT / 2, w->y, BYTES / 2, LK_GPU_TO_GPU);
    expect_nothing();
}

/* Two streams take turns for a long time, and the host never waits. */
static void test_long_runs_are_followed(void **state)
{
    world *w = *state;
    for (int i = 0; i < 2000; i++) {
        relu(w->a, w->x, w->y);
        follow(w->b, w->a, w->event);
        relu(w->b, w->y, w->x);
        follow(w->a, w->b, w->other);
    }
    expect_nothing();
    fill(w->b, w->x);
    expect_nothing();
    fill(w->a, w->y);
    fill(w->a, w->x);
    EXPECT("fill on stream", "fill on stream");
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void test_memory_that_is_not_there_is_reported(void **state)
{
    world *w = *state;
    float *gone = allocated(w->a), local[COUNT];
    gpu->alloc_free(w->a, gone);
    expect_nothing();
    assert_int_equal(fill(w->a, gone), LK_GPU_FAILED);
    EXPECT("memory that was freed", "fill on stream", "writes 256 bytes");
    assert_non_null(strstr(gpu->error(), "memory that was freed"));
    assert_int_equal(relu(w->a, local, w->x), LK_GPU_FAILED);
    EXPECT("never allocated", "reads 256 bytes");
    assert_int_equal(fill(w->a, NULL), LK_GPU_FAILED);
    EXPECT("never allocated");
    assert_int_equal(fill(w->a, w->x + 1), LK_GPU_FAILED);
    EXPECT("4 bytes past the end of 256");
    assert_int_equal(fill(w->elsewhere, w->x), LK_GPU_FAILED);
    EXPECT("memory of GPU 0 where it must be memory of GPU 1");
    assert_int_equal(fill(w->a, w->pinned), LK_GPU_FAILED);
    EXPECT("pinned memory where it must be memory of GPU 0");
    assert_int_equal(gpu->copy(w->a, w->x, local, BYTES, LK_GPU_FROM_HOST), LK_GPU_FAILED);
    EXPECT("never allocated");
    assert_int_equal(gpu->copy(w->a, w->pinned, w->x, BYTES, LK_GPU_FROM_HOST), LK_GPU_FAILED);
    EXPECT("memory of GPU 0 where it must be pinned memory");
    assert_int_equal(gpu->copy_peer(w->elsewhere, w->far, w->elsewhere, w->x, BYTES), LK_GPU_FAILED);
    EXPECT("memory of GPU 0 where it must be memory of GPU 1");
}

static void test_views_are_as_long_as_their_strides_say(void **state)
{
    world *w = *state;
    lk_gpu_convert transpose = {.y = {w->y, LK_F32, {8, 1}}, .x = {w->x, LK_F32, {1, 8}}, .ndim = 2, .dim = {8, 8}};
    assert_int_equal(gpu->convert(w->a, &transpose), LK_GPU_OK);
    expect_nothing();
    transpose.x.stride[1] = 9;
    assert_int_equal(gpu->convert(w->a, &transpose), LK_GPU_FAILED);
    EXPECT("28 bytes past the end of 256");
    transpose.dim[0] = 0;
    assert_int_equal(gpu->convert(w->a, &transpose), LK_GPU_OK);
    transpose.dim[0] = 8;
    transpose.x.stride[1] = 0; /* one column, repeated */
    transpose.x.data = w->x + COUNT - 8;
    assert_int_equal(gpu->convert(w->a, &transpose), LK_GPU_OK);
    expect_nothing();
}

static void test_optional_operands_may_be_missing(void **state)
{
    world *w = *state;
    lk_gpu_momentum_update update = {.w = w->x, .g = w->y, .count = COUNT};
    assert_int_equal(gpu->momentum_update(w->a, &update), LK_GPU_OK);
    expect_nothing();
    update.control.skip = w->z + COUNT;
    assert_int_equal(gpu->momentum_update(w->a, &update), LK_GPU_FAILED);
    EXPECT("momentum_update on stream", "reads 4 bytes");
    update.control.skip = NULL;
    update.g = NULL;
    assert_int_equal(gpu->momentum_update(w->a, &update), LK_GPU_FAILED);
    EXPECT("momentum_update on stream", "reads 256 bytes", "never allocated");
}

static void test_what_is_freed_must_be_allocated_so(void **state)
{
    world *w = *state;
    float *once = allocated(w->a);
    gpu->alloc_free(w->a, NULL);
    gpu->pinned_free(w->a, NULL);
    gpu->alloc_free(w->a, once);
    expect_nothing();
    gpu->alloc_free(w->a, once);
    EXPECT("free of", "not allocated so");
    gpu->alloc_free(w->a, w->x + 1);
    EXPECT("free of", "not allocated so");
    gpu->alloc_free(w->a, w->pinned);
    EXPECT("free of", "not allocated so");
    gpu->pinned_free(w->a, w->x);
    EXPECT("pinned_free of", "not allocated so");
}

/* cudaFree waits for the work of its GPU, but not for that of another one. */
static void test_memory_that_another_gpu_uses_must_not_be_freed(void **state)
{
    world *w = *state;
    lk_gpu_event *event;
    float *near = allocated(w->a);
    assert_int_equal(gpu->event_new(w->elsewhere, &event), LK_GPU_OK);
    assert_int_equal(gpu->stream_use(w->a), LK_GPU_OK);
    fill(w->b, near);
    gpu->alloc_free(w->a, near);
    expect_nothing();
    near = allocated(w->a);
    gpu->copy_peer(w->elsewhere, w->far, w->a, near, BYTES);
    gpu->alloc_free(w->a, near);
    EXPECT("free of", "may still be in use", "copy_peer");
    follow(w->b, w->elsewhere, event); /* then a stream of the GPU waits for it */
    gpu->alloc_free(w->a, near);
    expect_nothing();
    gpu->event_free(event);
}

static void test_pinned_memory_must_not_be_freed_under_a_copy(void **state)
{
    world *w = *state;
    void *pinned;
    assert_int_equal(gpu->pinned_alloc(w->a, BYTES, &pinned), LK_GPU_OK);
    gpu->copy(w->a, w->x, pinned, BYTES, LK_GPU_FROM_HOST);
    gpu->pinned_free(w->a, pinned);
    EXPECT("pinned_free of", "may still be in use", "copy on stream");
    gpu->stream_wait(w->a);
    gpu->pinned_free(w->a, pinned);
    expect_nothing();
}

static void test_pinned_memory_must_stay_as_it_is_until_it_is_copied(void **state)
{
    world *w = *state;
    w->pinned[0] = 1;
    gpu->copy(w->a, w->x, w->pinned, BYTES, LK_GPU_FROM_HOST);
    gpu->event_record(w->a, w->event);
    w->pinned[COUNT - 1] = 2;
    gpu->event_wait(w->event);
    EXPECT("copy on stream", "which the host has changed");
    gpu->copy(w->a, w->x, w->pinned, BYTES, LK_GPU_FROM_HOST);
    gpu->event_record(w->a, w->event);
    gpu->event_wait(w->event);
    w->pinned[COUNT - 1] = 3;
    gpu->stream_wait(w->a);
    expect_nothing();
}

static void test_pinned_memory_is_ordered_as_other_memory_is(void **state)
{
    world *w = *state;
    gpu->copy(w->a, w->pinned, w->x, BYTES, LK_GPU_TO_HOST);
    gpu->copy(w->b, w->y, w->pinned, BYTES, LK_GPU_FROM_HOST);
    const char *report = take_report();
    assert_non_null(report);
    assert_non_null(strstr(report, "nothing orders it"));
    gpu->stream_wait(w->a);
    gpu->stream_wait(w->b);
    while (take_report()) /* whether a changed content is reported too depends on what it was */
        continue;
}

static void test_a_stream_is_closed_when_it_is_idle(void **state)
{
    world *w = *state;
    lk_gpu_stream *stream;
    assert_int_equal(gpu->stream_open(0, NULL, &stream), LK_GPU_OK);
    fill(stream, w->x);
    gpu->stream_close(stream);
    EXPECT("is closed before");
    assert_int_equal(fill(stream, w->x), LK_GPU_FAILED);
    EXPECT("fill on a stream that is not open");
    assert_int_equal(gpu->stream_open(0, NULL, &stream), LK_GPU_OK);
    fill(stream, w->y);
    gpu->stream_wait(stream);
    gpu->stream_close(stream);
    gpu->stream_close(NULL);
    expect_nothing();
    fill(w->a, w->x);
    EXPECT("fill on stream", "nothing orders it behind"); /* no wait for the first one */
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

typedef struct giver {
    lk_gpu_stream *stream;
    float *x;
    _Atomic bool *is_over;
} giver;

static void *give_until_over(void *self)
{
    giver *g = self;
    while (!atomic_load(g->is_over))
        fill(g->stream, g->x);
    return NULL;
}

/* Gives `stream` work, while another thread gives some to `other`, until there is a report or n calls were made. */
static int calls_until_report(const world *w, lk_gpu_stream *stream, lk_gpu_stream *other, int n)
{
    _Atomic bool is_over = false;
    giver g = {other, w->x, &is_over};
    pthread_t thread;
    int calls = 0;
    assert_int_equal(pthread_create(&thread, NULL, give_until_over, &g), 0);
    for (const char *report = NULL; !report && calls < n; calls++) {
        fill(stream, w->y);
        report = take_report();
        if (report)
            assert_non_null(strstr(report, "while another thread"));
    }
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    while (take_report())
        continue;
    return calls;
}

static void test_two_threads_must_not_give_a_stream_work_at_once(void **state)
{
    world *w = *state;
    enum { MANY = 10000000, FEW = 2000 };
    assert_true(calls_until_report(w, w->a, w->a, MANY) < MANY);
    wait_for_all(w);
    assert_int_equal(calls_until_report(w, w->a, w->b, FEW), FEW);
}

/* --- captures ----------------------------------------------------------------------------------------------------- */

static void begin(lk_gpu_stream *stream)
{
    assert_int_equal(gpu->capture_begin(stream), LK_GPU_OK);
}

static lk_gpu_graph *end(lk_gpu_stream *stream)
{
    lk_gpu_graph *graph = NULL;
    assert_int_equal(gpu->capture_end(stream, &graph), LK_GPU_OK);
    return graph;
}

static void test_captures_begin_and_end_once(void **state)
{
    world *w = *state;
    lk_gpu_graph *graph;
    assert_int_equal(gpu->capture_end(w->a, &graph), LK_GPU_FAILED);
    EXPECT("capture_end on stream", "no capture began");
    begin(w->a);
    assert_int_equal(gpu->capture_begin(w->a), LK_GPU_FAILED);
    EXPECT("capture_begin on stream", "captured already");
    assert_int_equal(gpu->capture_end(w->b, &graph), LK_GPU_FAILED);
    EXPECT("capture_end on stream", "no capture began");
    gpu->graph_free(end(w->a));
    expect_nothing();
}

static void *end_elsewhere(void *stream)
{
    lk_gpu_graph *graph;
    assert_int_equal(gpu->capture_end(stream, &graph), LK_GPU_FAILED);
    return NULL;
}

static void test_a_capture_ends_in_its_thread(void **state)
{
    world *w = *state;
    pthread_t thread;
    begin(w->a);
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, w->a), 0);
    pthread_join(thread, NULL);
    EXPECT("in another thread");
    gpu->graph_free(end(w->a));
    expect_nothing();
}

static void test_the_thread_that_captures_neither_allocates_nor_waits(void **state)
{
    world *w = *state;
    void *data;
    gpu->event_record(w->b, w->event);
    begin(w->a);
    assert_int_equal(gpu->alloc(w->a, BYTES, &data), LK_GPU_FAILED);
    EXPECT("alloc while");
    assert_int_equal(gpu->pinned_alloc(w->a, BYTES, &data), LK_GPU_FAILED);
    EXPECT("pinned_alloc while");
    gpu->alloc_free(w->a, w->x);
    EXPECT("free while");
    gpu->pinned_free(w->a, w->pinned);
    EXPECT("pinned_free while");
    assert_int_equal(gpu->stream_wait(w->b), LK_GPU_FAILED);
    EXPECT("a wait for a stream while");
    assert_int_equal(gpu->event_wait(w->event), LK_GPU_FAILED);
    EXPECT("a wait for an event while");
    assert_int_equal(gpu->event_follow(w->a, w->event), LK_GPU_FAILED);
    EXPECT("follows an event from outside");
    gpu->event_record(w->a, w->event);
    gpu->graph_free(end(w->a));
    assert_int_equal(gpu->event_wait(w->event), LK_GPU_FAILED);
    EXPECT("a wait for an event that was recorded in a capture");
    assert_int_equal(gpu->event_follow(w->b, w->event), LK_GPU_FAILED);
    EXPECT("follows an event of a capture that has ended");
}

static void test_side_streams_are_joined_back(void **state)
{
    world *w = *state;
    lk_gpu_graph *graph;
    begin(w->a);
    fill(w->a, w->x);
    assert_int_equal(follow(w->b, w->a, w->event), LK_GPU_OK);
    relu(w->b, w->x, w->y);
    assert_int_equal(gpu->event_record(w->b, w->other), LK_GPU_OK);
    relu(w->b, w->x, w->z); /* behind the event */
    gpu->event_follow(w->a, w->other);
    assert_int_equal(gpu->capture_end(w->a, &graph), LK_GPU_FAILED);
    EXPECT("does not follow what stream");

    begin(w->a);
    follow(w->b, w->a, w->event);
    relu(w->b, w->x, w->y);
    relu(w->a, w->x, w->z);
    follow(w->a, w->b, w->other);
    fill(w->a, w->y);
    gpu->graph_free(end(w->a));
    expect_nothing();
}

static void test_branches_of_a_capture_are_ordered_as_streams_are(void **state)
{
    world *w = *state;
    begin(w->a);
    follow(w->b, w->a, w->event);
    fill(w->a, w->x);
    relu(w->b, w->x, w->y);
    follow(w->a, w->b, w->other);
    gpu->graph_free(end(w->a));
    EXPECT("relu on stream", "fill on stream", "nothing orders it behind");
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

/* y = relu(x) */
static lk_gpu_graph *captured_relu(const world *w, const float *x, float *y)
{
    begin(w->a);
    relu(w->a, x, y);
    return end(w->a);
}

static void test_a_graph_is_ordered_where_it_is_launched(void **state)
{
    world *w = *state;
    lk_gpu_graph *graph = captured_relu(w, w->x, w->y);
    fill(w->b, w->x); /* the graph has not run */
    expect_nothing();
    assert_int_equal(gpu->graph_launch(w->a, graph), LK_GPU_OK);
    EXPECT("relu on stream", "reads 256 bytes", "fill on stream");
    wait_for_all(w);
    fill(w->b, w->x);
    follow(w->a, w->b, w->event);
    assert_int_equal(gpu->graph_launch(w->a, graph), LK_GPU_OK);
    follow(w->b, w->a, w->event);
    relu(w->b, w->y, w->z);
    expect_nothing();
    assert_int_equal(gpu->graph_launch(w->a, graph), LK_GPU_OK);
    EXPECT("relu on stream", "writes 256 bytes", "nothing orders it behind");
    wait_for_all(w);
    gpu->graph_free(graph);
    assert_int_equal(gpu->graph_launch(w->a, graph), LK_GPU_FAILED);
    EXPECT("graph_launch of a graph that is not there");
}

static void test_a_graph_keeps_the_memory_that_it_was_captured_with(void **state)
{
    world *w = *state;
    float *old = allocated(w->a);
    lk_gpu_graph *graph = captured_relu(w, old, w->y);
    assert_int_equal(gpu->graph_launch(w->a, graph), LK_GPU_OK);
    expect_nothing();
    gpu->alloc_free(w->a, old);
    float *new = allocated(w->a); /* most likely where the old one was */
    assert_int_equal(gpu->graph_launch(w->a, graph), LK_GPU_FAILED);
    EXPECT("graph_launch: ", "relu on stream", "freed since it was captured");
    gpu->graph_free(graph);
    gpu->stream_wait(w->a);
    gpu->alloc_free(w->a, new);
}

static void test_a_graph_copies_out_of_pinned_memory_at_each_launch(void **state)
{
    world *w = *state;
    begin(w->a);
    gpu->copy(w->a, w->x, w->pinned, BYTES, LK_GPU_FROM_HOST);
    lk_gpu_graph *graph = end(w->a);
    for (int i = 0; i < 3; i++) {
        w->pinned[0] = (float)i;
        assert_int_equal(gpu->graph_launch(w->a, graph), LK_GPU_OK);
        gpu->stream_wait(w->a);
    }
    expect_nothing();
    gpu->graph_launch(w->a, graph);
    w->pinned[0] = -1;
    gpu->stream_wait(w->a);
    EXPECT("which the host has changed");
    gpu->graph_free(graph);
}

/* --- failures ----------------------------------------------------------------------------------------------------- */

/* Data that a failed operation was to write must not be read before another one has written it. */
static void test_what_a_failed_operation_was_to_write_is_not_read(void **state)
{
    world *w = *state;
    fill(w->a, w->x);
    fill(w->a, w->y);
    gpu->stream_wait(w->a);
    setenv("LOCKSTEP_EMULATED_LOST", "0", 1);
    assert_int_equal(relu(w->a, w->x, w->y), LK_GPU_LOST);
    assert_non_null(strstr(gpu->error(), "unspecified launch failure"));
    assert_int_equal(gpu->stream_wait(w->a), LK_GPU_LOST);
    assert_int_equal(gpu->event_record(w->a, w->event), LK_GPU_LOST);
    assert_int_equal(relu(w->a, w->x, w->z), LK_GPU_LOST);
    expect_nothing();
    relu(w->a, w->y, w->z);
    EXPECT("relu on stream", "reads 256 bytes", "has failed was to write");
    unsetenv("LOCKSTEP_EMULATED_LOST");
    gpu->copy(w->a, w->y, w->x, BYTES / 2, LK_GPU_TO_GPU);
    gpu->copy(w->a, w->x, w->y, BYTES / 2, LK_GPU_TO_GPU);
    expect_nothing();
    gpu->copy(w->a, w->x, w->y, BYTES / 2 + 1, LK_GPU_TO_GPU);
    EXPECT("copy on stream", "has failed was to write");
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* The exit status of a process that succeeds, apart from the recorder's reports. */
static int status_with(bool is_wrong)
{
    fflush(NULL);
    pid_t child = fork();
    int status;
    assert_true(child >= 0);
    if (child == 0) {
        if (is_wrong)
            gpu->alloc_free(NULL, &status);
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_a_report_is_the_process_failure(void **state)
{
    (void)state;
    assert_int_equal(status_with(false), 0);
    assert_int_equal(status_with(true), 3);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static bool open_recorder(void)
{
    const char *path = getenv("LOCKSTEP_CUDA_PLUGIN"), *recorded = getenv("LOCKSTEP_CUDA_RECORDED");
    void *library = path && recorded ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    lk_gpu_driver_fn table;
    if (!library)
        return false;
    *(void **)&table = dlsym(library, LK_GPU_DRIVER_SYMBOL);
    *(void **)&take_report = dlsym(library, "lk_gpu_recorder_report");
    gpu = table && take_report ? table() : NULL;
    return gpu;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_read_without_order_behind_a_write_is_reported),
        TEST(test_a_write_without_order_behind_a_read_is_reported),
        TEST(test_two_writes_without_order_are_reported),
        TEST(test_an_event_that_was_recorded_too_early_does_not_help),
        TEST(test_an_event_that_is_followed_too_late_does_not_help),
        TEST(test_one_byte_is_enough),
        TEST(test_an_earlier_reader_is_not_forgotten_over_a_later_one),
        TEST(test_what_is_ordered_is_not_reported),
        TEST(test_what_does_not_meet_is_not_reported),
        TEST(test_long_runs_are_followed),
        TEST(test_memory_that_is_not_there_is_reported),
        TEST(test_views_are_as_long_as_their_strides_say),
        TEST(test_optional_operands_may_be_missing),
        TEST(test_what_is_freed_must_be_allocated_so),
        TEST(test_memory_that_another_gpu_uses_must_not_be_freed),
        TEST(test_pinned_memory_must_not_be_freed_under_a_copy),
        TEST(test_pinned_memory_must_stay_as_it_is_until_it_is_copied),
        TEST(test_pinned_memory_is_ordered_as_other_memory_is),
        TEST(test_a_stream_is_closed_when_it_is_idle),
        TEST(test_two_threads_must_not_give_a_stream_work_at_once),
        TEST(test_captures_begin_and_end_once),
        TEST(test_a_capture_ends_in_its_thread),
        TEST(test_the_thread_that_captures_neither_allocates_nor_waits),
        TEST(test_side_streams_are_joined_back),
        TEST(test_branches_of_a_capture_are_ordered_as_streams_are),
        TEST(test_a_graph_is_ordered_where_it_is_launched),
        TEST(test_a_graph_keeps_the_memory_that_it_was_captured_with),
        TEST(test_a_graph_copies_out_of_pinned_memory_at_each_launch),
        cmocka_unit_test(test_a_report_is_the_process_failure),
        TEST(test_what_a_failed_operation_was_to_write_is_not_read), /* last, because the recorder then counts GPU 0 as
                                                                        lost */
    };
    if (!open_recorder()) {
        printf("SKIP: there is no recorder over an emulated plug-in: it takes a C++ compiler\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
