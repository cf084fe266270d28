/* The state of a CUDA device, and of a call that is turned into launches. */
#pragma once

#include "core/backend.h"
#include "core/tensor.h"
#include "cuda/cuda_plugin.h"
#include "lockstep/program.h"
#include "lockstep/random.h"

#include <pthread.h>
#include <stdatomic.h>

/* Event s % LK_CUDA_EVENTS is recorded behind entry s of the queue, until a later entry reuses it. lk__cuda_event_of
 * gives a later entry's event for an entry that has lost its own. */
enum { LK_CUDA_EVENTS = 256, LK_CUDA_BOUNCES = 8, LK_CUDA_BOUNCE_BYTES = 1 << 20 };

/* A stream for calls that run in parallel with those of other branches: see cuda_graph.c. */
typedef struct lk_cuda_branch {
    lk_gpu_stream *stream;
    lk_gpu_event *done;
    bool is_open; /* it has work that the trunk does not wait for yet */
} lk_cuda_branch;

/* An error of an exchange between GPUs, which the stream does not report itself: every later wait for the stream
 * returns it. Set once. */
typedef struct lk_cuda_fault {
    pthread_mutex_t lock;
    _Atomic(lk_status) status; /* LK_OK: none */
    char message[512];
} lk_cuda_fault;

typedef struct lk_cuda {
    const lk_gpu_driver *driver;
    int gpu;
    struct lk_cuda *device; /* for a stream of links: the device on whose GPU it is; NULL for a device */
    lk_gpu_stream *stream;  /* the device's thread starts work there: the trunk, or a branch's stream */
    lk_gpu_stream *trunk;
    lk_cuda_branch branches[LK_MAX_BRANCHES]; /* their streams are NULL until they are needed */
    lk_gpu_event *fork;                       /* recorded on the trunk when a branch is forked */
    uint64_t *step;   /* in the GPU's memory: the step of graphs, see lk_graphs.copy; NULL until there is one */
    bool is_together; /* between lk_graphs.together(true) and (false): see cuda_together.h */
    lk_gpu_array_sums sums;
    lk_gpu_running_statistics running;
    bool is_capturing;
    /* Held while a graph is captured, so that no work that other devices' threads give the trunk gets into it. */
    pthread_mutex_t capturing;
    lk_gpu_event *events[LK_CUDA_EVENTS];
    _Atomic uint64_t marked; /* the last entry behind which an event was recorded */

    lk_gpu_event *stamps[LK_STAMPS]; /* timers; NULL until they are needed */
    lk_gpu_event *now;               /* one more timer */

    /* Copies to the host, made by the thread that reads. */
    pthread_mutex_t reading;
    lk_gpu_stream *reader;
    void *read_bounce; /* pinned, LK_CUDA_BOUNCE_BYTES, as are those below */

    /* Copies from the host, made by the device's thread. The buffers are used in turn; each has an event recorded
     * behind the copy out of it. */
    void *write_bounce[LK_CUDA_BOUNCES];
    lk_gpu_event *written[LK_CUDA_BOUNCES];
    int next_bounce;

    lk_gpu_event *followed; /* recorded behind work for which other streams wait: a copy, a join of links */

    lk_cuda_fault fault;

    /* The open links that this device is part of: see cuda_ranks.c. */
    pthread_mutex_t linking;
    struct lk_cuda_membership *memberships;
} lk_cuda;

/* --- launching ---------------------------------------------------------------------------------------------------- */

static inline lk_cuda *lk__cuda_of(const lk_call *call)
{
    return call->device->state;
}

/* LK_CUDA_LAUNCH(call, relu, .x = …, .y = …) launches the plug-in's kernel `relu` and gives its status. */
#define LK_CUDA_LAUNCH(call, kernel, ...)     \
    lk__cuda_check(lk__cuda_of(call)->driver, \
                   lk__cuda_of(call)->driver->kernel(lk__cuda_of(call)->stream, &(lk_gpu_##kernel){__VA_ARGS__}))

/* The problems that a call solves at once: see lk_gpu_parts. Its tensors have those of all parts. */
static inline int64_t lk__cuda_parts(const lk_call *call)
{
    return lk_gpu_parts(call->parts);
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

/* Temporaries of a call while it is turned into launches. They may be freed before the launches have run: only later
 * launches can get their memory, and a stream runs its launches in order. As in ref/, the first failure is kept until
 * the end. */
enum { LK_CUDA_MAX_SCRATCH = 20 };
typedef struct lk_cuda_scratch {
    const lk_call *call;
    lk_block *blocks[LK_CUDA_MAX_SCRATCH];
    int n;
    void *out[LK_MAX_OUTPUTS]; /* temporary from which lk__cuda_end writes the output; NULL: the kernel writes it */
    const void *out_layout[LK_MAX_OUTPUTS];
    lk_status status;
} lk_cuda_scratch;
