/* What the host asks of CUDA, checked without being run: a race detector for streams. A table of driver.h
 * (recorder_table.cpp) stands before that of another plug-in and tells this of every call.
 *
 * An operation is ordered behind what its stream was given before, behind events that the stream follows, and behind
 * what the host had waited for when it gave the operation. How threads of the host tell each other what they have
 * waited for is not to be seen from here: what one has waited for counts for all from then on, as it does on the clock
 * of this run.
 *
 * Two accesses to a byte are reported where one of them writes and nothing orders them. So are:
 * - memory that was freed, that was never allocated, that is of another GPU, or past its end;
 * - memory of a GPU that is freed while a stream of another GPU may still use it. One of the same GPU may, as cudaFree
 *   waits for all that the GPU has been given, and so for what its streams follow. That wait is not counted as one of
 *   the host: nobody promises it;
 * - a GPU on which a kernel of NCCL's may still run when exchanges there are said to be paused (lk_gpu_pauses);
 * - pinned memory that is freed while a copy may still use it, or has changed when a copy out of it is known to be
 * done;
 * - a stream that is closed before what it was given is known to be done;
 * - two threads that give a stream something at once;
 * - what reads something that an operation was to write which has failed. To give more to a GPU that was lost is no
 *   error: it fails as the first did;
 * - of captures: begin without end and the reverse, on another stream or thread; memory and waits of the host in the
 *   thread that captures; events of outside, and those of a capture outside; a side stream that is not joined back;
 * - a graph that is launched when memory that it uses was freed, even if the address is in use again.
 *
 * What CUDA would refuse, and what would destroy memory, is not passed on: it fails with LK_GPU_FAILED. */
#ifndef LK_CUDA_RECORDER_H
#define LK_CUDA_RECORDER_H

#include "recorder_memory.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

struct capture;

struct stream_state {
    size_t number; /* of streams that were opened, in order */
    int gpu;
    uint64_t exchange; /* the tick of what it was given last for NCCL; 0: nothing, or it was aborted */
    vector_clock now;  /* what was given up to here, and what that is ordered behind */
    std::shared_ptr<capture> capturing;
    bool is_taken; /* by a thread that is giving it something */
};

struct event_state {
    vector_clock when;
    uint64_t capture; /* in which it was recorded last; 0: in none */
};

/* Clocks within it count the operations of the capture alone. */
struct capture {
    uint64_t id;
    stream_state *origin;
    std::thread::id thread;
    std::map<stream_state *, vector_clock> branches; /* of every stream that has joined */
    history uses;
};

struct graph_state {
    std::vector<access> uses;
    bool is_whole;         /* every stream was joined back */
    vector_clock launched; /* launches of one graph run one after the other */
};

/* Each function is told of a call before it is passed on, and says whether it may be. Those in the past tense are told
 * of one that has come back without an error. */
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

    /* A thread takes a stream while it gives something; false: another thread has it, which is reported. */
    bool take(const lk_gpu_stream *stream, const char *name);
    void let_go(const lk_gpu_stream *stream);

    bool record(const lk_gpu_stream *stream, const lk_gpu_event *event);
    bool follow(const lk_gpu_stream *stream, const lk_gpu_event *event);
    void forget(const lk_gpu_event *event);

    /* `seen`: what will be done when the wait is over. */
    bool wait_stream(const lk_gpu_stream *stream, vector_clock *seen);
    bool wait_event(const lk_gpu_event *event, vector_clock *seen);
    void waited(const vector_clock &seen);

    bool allocate(const char *name);
    void allocated(const void *data, size_t bytes, int place);
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
    /* What a copy out of pinned memory has to find there when it runs. */
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
    std::vector<int> gpus; /* of each stream that there was */
    std::map<const lk_gpu_event *, event_state> events;
    std::map<const lk_gpu_graph *, graph_state> graphs;
    std::vector<std::shared_ptr<capture>> captures; /* that are going on */
    memory_map memory;
    vector_clock done; /* what the host has waited for */
    std::vector<watched> watches;
    std::set<int> lost_gpus;
    uint64_t last_capture = 0;
    std::atomic<uint64_t> n_operations{0};
};

/* Reports it; the text is what the thread's `refusal` is until it is cleared. Gives false. */
bool refuse(const std::string &line);
extern thread_local std::string refusal;

/* The process's. */
uint64_t recorder_operations(void);
size_t recorder_streams(void);

#endif
