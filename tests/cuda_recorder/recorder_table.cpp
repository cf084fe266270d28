/* The table of driver.h that reports every call to the recorder, and passes it on to the plug-in that
 * $LOCKSTEP_CUDA_RECORDED names. A new entry of driver.def does not compile before it has a function here, or is listed
 * among the entries that are not recorded. */
#include "recorder.h"
#include "recorder_report.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <list>
#include <map>
#include <mutex>

static const lk_gpu_driver *inner;
static recorder &recorded = *new recorder; /* never destroyed: other threads may still run when the process ends */

uint64_t recorder_operations(void)
{
    return recorded.operations();
}

size_t recorder_streams(void)
{
    return recorded.streams_opened();
}

/* --- passing on --------------------------------------------------------------------------------------------------- */

static const char *error_text(void)
{
    return refusal.empty() ? inner->error() : refusal.c_str();
}

template <typename Call> static lk_gpu_status pass(bool is_allowed, Call call)
{
    if (!is_allowed)
        return LK_GPU_FAILED;
    refusal.clear();
    return call();
}

/* Holds a stream while the calling thread gives it work. */
class turn
{
  public:
    turn(const lk_gpu_stream *stream_, const char *name) : stream(stream_), has_taken(recorded.take(stream_, name))
    {
    }
    ~turn()
    {
        if (has_taken)
            recorded.let_go(stream);
    }

  private:
    const lk_gpu_stream *stream;
    bool has_taken;
};

static lk_gpu_status noted(const lk_gpu_stream *stream, lk_gpu_status status)
{
    if (status == LK_GPU_LOST)
        recorded.lost(stream);
    return status;
}

template <typename Call>
static lk_gpu_status give(lk_gpu_stream *stream, const char *name, const operands &list, Call call)
{
    turn turn(stream, name);
    lk_gpu_status status = noted(stream, pass(recorded.give(stream, name, list), call));
    if (status == LK_GPU_LOST || status == LK_GPU_FAILED)
        recorded.failed(list);
    return status;
}

/* An entry that is passed on without being recorded. */
template <auto Entry> struct untold;
template <typename Result, typename... Arguments, Result (*lk_gpu_driver::*Entry)(Arguments...)> struct untold<Entry> {
    static Result call(Arguments... arguments)
    {
        refusal.clear();
        return (inner->*Entry)(arguments...);
    }
};

static constexpr auto count = untold<&lk_gpu_driver::count>::call;
static constexpr auto describe = untold<&lk_gpu_driver::describe>::call;
static constexpr auto path_between = untold<&lk_gpu_driver::path_between>::call;
static constexpr auto versions = untold<&lk_gpu_driver::versions>::call;
static constexpr auto keep_plans = untold<&lk_gpu_driver::keep_plans>::call;
static constexpr auto range = untold<&lk_gpu_driver::range>::call;
static constexpr auto stream_use = untold<&lk_gpu_driver::stream_use>::call;
static constexpr auto event_new = untold<&lk_gpu_driver::event_new>::call;
static constexpr auto event_query = untold<&lk_gpu_driver::event_query>::call;
static constexpr auto timer_new = untold<&lk_gpu_driver::timer_new>::call;
static constexpr auto elapsed = untold<&lk_gpu_driver::elapsed>::call;
static constexpr auto memory_left = untold<&lk_gpu_driver::memory_left>::call;

/* --- streams and events ------------------------------------------------------------------------------------------- */

/* The pauses of a stream and its branches. Never freed. */
struct recorded_pauses {
    lk_gpu_pauses inner;
    int gpu;
};

static void begin_pause(void *user, bool until_idle)
{
    const recorded_pauses *p = (const recorded_pauses *)user;
    p->inner.begin(p->inner.user, until_idle);
    if (until_idle)
        recorded.paused(p->gpu);
}

static void end_pause(void *user)
{
    const recorded_pauses *p = (const recorded_pauses *)user;
    p->inner.end(p->inner.user);
}

static const lk_gpu_pauses *record_pauses(int gpu, const lk_gpu_pauses *pauses, lk_gpu_pauses *told)
{
    static std::list<recorded_pauses> &all = *new std::list<recorded_pauses>;
    static std::mutex all_lock;
    if (!pauses)
        return nullptr;
    std::lock_guard<std::mutex> guard(all_lock);
    all.push_back({*pauses, gpu});
    *told = {begin_pause, end_pause, &all.back()};
    return told;
}

static lk_gpu_status stream_open(int gpu, const lk_gpu_pauses *pauses, lk_gpu_stream **stream)
{
    lk_gpu_pauses told;
    lk_gpu_status status =
        pass(true, [&]() { return inner->stream_open(gpu, record_pauses(gpu, pauses, &told), stream); });
    if (status == LK_GPU_OK)
        recorded.opened(*stream, gpu);
    return status;
}

static lk_gpu_status stream_open_branch(lk_gpu_stream *first, lk_gpu_stream **stream)
{
    lk_gpu_status status = pass(true, [&]() { return inner->stream_open_branch(first, stream); });
    if (status == LK_GPU_OK)
        recorded.opened(*stream, recorded.gpu_of(first));
    return status;
}

static void stream_close(lk_gpu_stream *stream)
{
    if (stream && recorded.close(stream))
        inner->stream_close(stream);
}

static lk_gpu_status stream_wait(lk_gpu_stream *stream)
{
    vector_clock seen;
    lk_gpu_status status = pass(recorded.wait_stream(stream, &seen), [&]() { return inner->stream_wait(stream); });
    if (status == LK_GPU_OK)
        recorded.waited(seen);
    return noted(stream, status);
}

static void event_free(lk_gpu_event *event)
{
    recorded.forget(event);
    inner->event_free(event);
}

static lk_gpu_status event_record(lk_gpu_stream *stream, lk_gpu_event *event)
{
    turn turn(stream, "event_record");
    return noted(stream, pass(recorded.record(stream, event), [&]() { return inner->event_record(stream, event); }));
}

/* Takes no turn, because another device's thread may make a stream wait: see driver.h. */
static lk_gpu_status event_follow(lk_gpu_stream *stream, lk_gpu_event *event)
{
    return noted(stream, pass(recorded.follow(stream, event), [&]() { return inner->event_follow(stream, event); }));
}

static lk_gpu_status event_wait(lk_gpu_event *event)
{
    vector_clock seen;
    lk_gpu_status status = pass(recorded.wait_event(event, &seen), [&]() { return inner->event_wait(event); });
    if (status == LK_GPU_OK)
        recorded.waited(seen);
    return status;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static lk_gpu_status alloc(lk_gpu_stream *stream, size_t bytes, void **data)
{
    lk_gpu_status status = pass(recorded.allocate("alloc"), [&]() { return inner->alloc(stream, bytes, data); });
    if (status == LK_GPU_OK)
        recorded.allocated(*data, bytes, recorded.gpu_of(stream));
    return noted(stream, status);
}

static void alloc_free(lk_gpu_stream *stream, void *data)
{
    if (recorded.free(data, false))
        inner->alloc_free(stream, data);
}

static lk_gpu_status pinned_alloc(lk_gpu_stream *stream, size_t bytes, void **data)
{
    lk_gpu_status status =
        pass(recorded.allocate("pinned_alloc"), [&]() { return inner->pinned_alloc(stream, bytes, data); });
    if (status == LK_GPU_OK)
        recorded.allocated(*data, bytes, PINNED);
    return noted(stream, status);
}

static void pinned_free(lk_gpu_stream *stream, void *data)
{
    if (recorded.free(data, true))
        inner->pinned_free(stream, data);
}

static lk_gpu_status copy(lk_gpu_stream *stream, void *to, const void *from, size_t bytes, lk_gpu_direction direction)
{
    int gpu = recorded.gpu_of(stream);
    operands list(gpu);
    list.at(direction == LK_GPU_FROM_HOST ? PINNED : gpu).reads(from, (int64_t)bytes);
    list.at(direction == LK_GPU_TO_HOST ? PINNED : gpu).writes(to, (int64_t)bytes);
    return give(stream, "copy", list, [&]() { return inner->copy(stream, to, from, bytes, direction); });
}

static lk_gpu_status copy_peer(lk_gpu_stream *stream, void *to, lk_gpu_stream *other, const void *from, size_t bytes)
{
    operands list(recorded.gpu_of(other));
    list.reads(from, (int64_t)bytes);
    list.at(recorded.gpu_of(stream)).writes(to, (int64_t)bytes);
    return give(stream, "copy_peer", list, [&]() { return inner->copy_peer(stream, to, other, from, bytes); });
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

static lk_gpu_status capture_begin(lk_gpu_stream *stream)
{
    turn turn(stream, "capture_begin");
    return noted(stream, pass(recorded.begin_capture(stream), [&]() { return inner->capture_begin(stream); }));
}

static lk_gpu_status capture_end(lk_gpu_stream *stream, lk_gpu_graph **graph)
{
    graph_state state = {};
    turn turn(stream, "capture_end");
    lk_gpu_status status =
        pass(recorded.end_capture(stream, &state), [&]() { return inner->capture_end(stream, graph); });
    if (status != LK_GPU_OK)
        return noted(stream, status);
    if (state.is_whole) {
        recorded.captured(*graph, std::move(state));
        return LK_GPU_OK;
    }
    inner->graph_free(*graph);
    refusal = "cuda recorder: a stream that was captured is not joined back";
    return LK_GPU_FAILED;
}

static lk_gpu_status graph_launch(lk_gpu_stream *stream, lk_gpu_graph *graph)
{
    turn turn(stream, "graph_launch");
    return noted(stream, pass(recorded.launch(stream, graph), [&]() { return inner->graph_launch(stream, graph); }));
}

static void graph_free(lk_gpu_graph *graph)
{
    recorded.forget(graph);
    inner->graph_free(graph);
}

/* --- choices of libraries ----------------------------------------------------------------------------------------- */

static lk_gpu_status choose(lk_gpu_stream *stream, lk_gpu_choice *choice)
{
    turn turn(stream, "choose");
    return noted(stream, pass(true, [&]() { return inner->choose(stream, choice); }));
}

static lk_gpu_status engines(lk_gpu_stream *stream, const lk_gpu_choice *choice, lk_gpu_name *names, int most, int *n)
{
    turn turn(stream, "engines");
    return noted(stream, pass(true, [&]() { return inner->engines(stream, choice, names, most, n); }));
}

static void choices(lk_gpu_stream *stream, void (*visit)(void *user, const lk_gpu_choice *choice), void *user)
{
    turn turn(stream, "choices");
    inner->choices(stream, visit, user);
}

/* --- NCCL --------------------------------------------------------------------------------------------------------- */

/* A rank uses only its own GPU's memory. A receive is not counted as ordered behind the other rank's send. */
struct comm_state {
    lk_gpu_stream *stream;
    int ranks;
};
static std::map<const lk_gpu_comm *, comm_state> comms;
static std::mutex comms_lock;

static comm_state state_of(const lk_gpu_comm *comm)
{
    std::lock_guard<std::mutex> guard(comms_lock);
    return comms[comm];
}

static lk_gpu_status comm_new(const lk_gpu_comm_id *id, int rank, int ranks, bool waits, lk_gpu_stream *stream,
                              lk_gpu_comm **comm)
{
    lk_gpu_status status = pass(recorded.allocate("comm_new"),
                                [&]() { return inner->nccl()->comm_new(id, rank, ranks, waits, stream, comm); });
    std::lock_guard<std::mutex> guard(comms_lock);
    if (*comm)
        comms[*comm] = {stream, ranks};
    return noted(stream, status);
}

static void comm_abort(lk_gpu_comm *comm)
{
    inner->nccl()->comm_abort(comm);
    recorded.exchanges(state_of(comm).stream, true);
}

template <typename Call>
static lk_gpu_status take_part(const lk_gpu_comm *comm, const char *name, const float *x, int64_t read, const float *y,
                               int64_t written, Call call)
{
    lk_gpu_stream *stream = state_of(comm).stream;
    operands list(recorded.gpu_of(stream));
    list.reads(x, read * (int64_t)sizeof *x);
    list.writes(y, written * (int64_t)sizeof *y);
    lk_gpu_status status = give(stream, name, list, call);
    if (status == LK_GPU_OK)
        recorded.exchanges(stream, false);
    return status;
}

static lk_gpu_status send(lk_gpu_comm *comm, const float *x, int64_t count, int to)
{
    return take_part(comm, "send", x, count, x, 0, [&]() { return inner->nccl()->send(comm, x, count, to); });
}

static lk_gpu_status receive(lk_gpu_comm *comm, float *x, int64_t count, int from)
{
    return take_part(comm, "receive", x, 0, x, count, [&]() { return inner->nccl()->receive(comm, x, count, from); });
}

static lk_gpu_status all_gather(lk_gpu_comm *comm, const float *x, float *y, int64_t count)
{
    return take_part(comm, "all_gather", x, count, y, count * state_of(comm).ranks,
                     [&]() { return inner->nccl()->all_gather(comm, x, y, count); });
}

static lk_gpu_status all_reduce(lk_gpu_comm *comm, float *x, int64_t count)
{
    return take_part(comm, "all_reduce", x, count, x, count,
                     [&]() { return inner->nccl()->all_reduce(comm, x, count); });
}

static const lk_gpu_nccl *nccl(void)
{
    const lk_gpu_nccl *found = inner->nccl();
    if (!found)
        return nullptr;
    static const lk_gpu_nccl table = {found->version,
                                      found->new_id,
                                      found->group_begin,
                                      found->group_end,
                                      comm_new,
                                      found->comm_finalize,
                                      found->comm_free,
                                      found->comm_check,
                                      comm_abort,
                                      send,
                                      receive,
                                      all_gather,
                                      all_reduce};
    return &table;
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

#define LK_GPU_KERNEL(name)                                                                 \
    static lk_gpu_status name(lk_gpu_stream *stream, const lk_gpu_##name *arguments)        \
    {                                                                                       \
        operands list(recorded.gpu_of(stream));                                             \
        operands_of(*arguments, list);                                                      \
        return give(stream, #name, list, [&]() { return inner->name(stream, arguments); }); \
    }
#include "cuda/kernels.def"
#undef LK_GPU_KERNEL

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const lk_gpu_driver table = {
    LK_GPU_INTERFACE, sizeof(lk_gpu_driver),
    error_text,
#define LK_GPU_ENTRY(result, name, ...) name,
#include "cuda/driver.def"
#undef LK_GPU_ENTRY
    choose,           engines,
    choices,          nccl,
#define LK_GPU_KERNEL(name) name,
#include "cuda/kernels.def"
#undef LK_GPU_KERNEL
};

static const lk_gpu_driver *open_inner(void)
{
    const char *path = getenv("LOCKSTEP_CUDA_RECORDED");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    void *symbol = library ? dlsym(library, LK_GPU_DRIVER_SYMBOL) : nullptr;
    const lk_gpu_driver *found = symbol ? ((lk_gpu_driver_fn)symbol)() : nullptr;
    if (found && found->interface == LK_GPU_INTERFACE && found->size == sizeof *found)
        return found;
    fprintf(stderr, "cuda recorder: LOCKSTEP_CUDA_RECORDED=%s: no plug-in of this version\n", path ? path : "");
    return nullptr;
}

extern "C" __attribute__((visibility("default"))) const lk_gpu_driver *lk_gpu_driver_table(void)
{
    inner = open_inner();
    return inner ? &table : nullptr;
}
