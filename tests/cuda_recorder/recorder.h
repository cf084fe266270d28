/* A race detector for streams: checks the host's calls of CUDA without looking at their execution. A table of driver.h
 * (recorder_table.cpp) stands before that of another plug-in, and reports every call to this recorder.
 *
 * An operation is ordered behind its stream's earlier operations, behind the events that the stream follows, and behind
 * everything for which the host had waited when it queued the operation. The recorder does not see how threads of the
 * host synchronize. So a wait of one thread counts for all threads from then on, even if in another run a thread could
 * have come before the wait.
 *
 * It reports two accesses to the same byte if one of them writes and nothing orders them. It also reports:
 * - access to memory that was freed, was never allocated, or belongs to another GPU, and access past the end;
 * - a GPU's memory that is freed while a stream of another GPU may still use it. A stream of the same GPU may, because
 *   cudaFree waits for all work of the GPU, and so for what its streams follow. That wait does not count as one of the
 *   host, because CUDA does not promise it;
 * - exchanges that are reported as paused (lk_gpu_pauses) on a GPU where an NCCL kernel may still run;
 * - pinned memory that is freed while a copy may still use it, or that changed before a copy out of it was known to be
 *   done;
 * - a stream that is closed before its work is known to be done;
 * - two threads that give work to a stream at once;
 * - reads of data that a failed operation was to write. To give more work to a lost GPU is not an error: it fails as
 *   the first call did;
 * - in captures: a begin on a stream that is captured already; an end without a begin, or on another stream or thread
 *   than the begin; allocations and waits of the host in the thread that captures; a captured stream that follows an
 *   event from outside; use of an event of a capture that has ended; a side stream that is not joined;
 * - a launch of a graph that uses memory which was freed, even if the address was allocated again.
 *
 * Calls that CUDA would refuse, or that would destroy memory, are not passed on: they fail with LK_GPU_FAILED. */
#pragma once

#include "recorder_memory.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

struct capture;

struct stream_state {
    size_t number; /* in the order in which streams were opened */
    int gpu;
    uint64_t exchange; /* tick of its last NCCL operation; 0: none, or it was aborted */
    vector_clock now;  /* its operations so far, and those behind which they are ordered */
    std::shared_ptr<capture> capturing;
    bool is_taken; /* a thread is giving it work */
};

struct event_state {
    vector_clock when;
    uint64_t capture; /* id of the capture in which it was recorded last; 0: none */
};

/* The clocks in a capture count its own operations only. */
struct capture {
    uint64_t id;
    stream_state *origin;
    std::thread::id thread;
    std::map<stream_state *, vector_clock> branches; /* for every stream that has joined */
    history uses;
};

struct graph_state {
    std::vector<access> uses;
    bool is_whole;         /* every stream was joined */
    vector_clock launched; /* launches of one graph run one after the other */
};

/* Functions in the present tense are called before a call is passed on, and return false if it must not be passed on.
 * Functions in the past tense are called after a call that succeeded. */
class recorder
{
  public:
    void opened(const lk_gpu_stream *stream, int gpu);
    bool close(const lk_gpu_stream *stream);

    /* Kernels, copies. */
    bool give(const lk_gpu_stream *stream, const char *name, const operands &list);
    void failed(const operands &list);
    void lost(const lk_gpu_stream *stream);
    void exchanges(const lk_gpu_stream *stream, bool is_aborted);
    void paused(int gpu);

    /* A thread takes a stream while it gives it work. False: another thread has it, which is reported. */
    bool take(const lk_gpu_stream *stream, const char *name);
    void let_go(const lk_gpu_stream *stream);

    bool record(const lk_gpu_stream *stream, const lk_gpu_event *event);
    bool follow(const lk_gpu_stream *stream, const lk_gpu_event *event);
    void forget(const lk_gpu_event *event);

    /* *seen is the work that will be done when the wait is over. */
    bool wait_stream(const lk_gpu_stream *stream, vector_clock *seen);
    bool wait_event(const lk_gpu_event *event, vector_clock *seen);
    void waited(const vector_clock &seen);

    bool allocate(const char *name);
    void allocated(const void *data, size_t bytes, int owner);
    bool free(const void *data, bool is_pinned);

    bool begin_capture(const lk_gpu_stream *stream);
    bool end_capture(const lk_gpu_stream *stream, graph_state *graph);
    void captured(const lk_gpu_graph *graph, graph_state &&state);
    bool launch(const lk_gpu_stream *stream, const lk_gpu_graph *graph);
    void forget(const lk_gpu_graph *graph);

    int gpu_of(const lk_gpu_stream *stream);

    uint64_t operations() const
    {
        return n_operations;
    }
    size_t streams_opened() const
    {
        return gpus.size();
    }

  private:
    /* The data that a copy out of pinned memory must find there when it runs. */
    struct watched {
        access copy;
        uint64_t digest;
    };

    stream_state *find(const lk_gpu_stream *stream, const char *name);
    bool resolve(const stream_state &s, const char *name, const operand &o, std::pair<block *, access> *use);
    void commit(stream_state &s, std::vector<std::pair<block *, access>> &uses);
    bool check_not_capturing(const char *name);
    bool is_joined(const capture &c);
    std::string stream_name(size_t number) const;
    std::string text_of(const access &a) const;

    std::mutex lock;
    std::map<const lk_gpu_stream *, std::unique_ptr<stream_state>> streams;
    std::vector<int> gpus; /* [stream number], also for closed streams */
    std::map<const lk_gpu_event *, event_state> events;
    std::map<const lk_gpu_graph *, graph_state> graphs;
    std::vector<std::shared_ptr<capture>> captures; /* those that have not ended */
    memory_map memory;
    vector_clock done; /* the work for which the host has waited */
    std::vector<watched> watches;
    std::set<int> lost_gpus;
    uint64_t last_capture = 0;
    std::atomic<uint64_t> n_operations{0};
};

/* Reports a line, and keeps it as the thread's error message until `refusal` is cleared. Returns false. */
bool refuse(const std::string &line);
extern thread_local std::string refusal;

/* Totals of the process. */
uint64_t recorder_operations(void);
size_t recorder_streams(void);
