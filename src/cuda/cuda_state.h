/* What a CUDA device keeps, and what the files that turn calls into launches share. */
#ifndef LK_CUDA_CUDA_STATE_H
#define LK_CUDA_CUDA_STATE_H

#include "core/backend.h"
#include "core/tensor.h"
#include "cuda/cuda_plugin.h"
#include "lockstep/program.h"
#include "lockstep/random.h"

#include <pthread.h>
#include <stdatomic.h>

/* Entry s of the queue is remembered by event s % LK_CUDA_EVENTS, until that is taken for a later one: a wait for an
 * older entry then waits for the oldest that is remembered. */
enum { LK_CUDA_EVENTS = 256, LK_CUDA_BOUNCES = 8, LK_CUDA_BOUNCE_BYTES = 1 << 20 };

/* Of calls that run beside others: see cuda_graph.c. */
typedef struct lk_cuda_branch {
    lk_gpu_stream *stream;
    lk_gpu_event *done;
    bool is_open; /* it has work that the trunk does not wait for yet */
} lk_cuda_branch;

/* What has made it pointless to go on, found beside the streams: set once. */
typedef struct lk_cuda_fault {
    pthread_mutex_t lock;
    _Atomic(lk_status) status; /* LK_OK: none */
    char message[512];
} lk_cuda_fault;

typedef struct lk_cuda {
    const lk_gpu_driver *driver;
    int gpu;
    struct lk_cuda *device; /* of a stream of links: the device that it is beside; else NULL */
    lk_gpu_stream *stream;  /* what the device's thread starts goes there: to the trunk, or to a branch */
    lk_gpu_stream *trunk;
    lk_cuda_branch branches[LK_MAX_BRANCHES]; /* NULL until they are needed */
    lk_gpu_event *fork;                       /* where the trunk stood when branches were begun */
    uint64_t
        *step; /* of the GPU: what calls that a graph keeps take for lk_program_run's step; NULL until one is made */
    bool is_capturing;
    /* Held while a graph is made: what other devices' threads give the trunk must not get into it. */
    pthread_mutex_t capturing;
    lk_gpu_event *events[LK_CUDA_EVENTS];
    _Atomic uint64_t marked; /* entries with an event */

    lk_gpu_event *stamps[LK_STAMPS]; /* timers; NULL until they are needed */
    lk_gpu_event *now;               /* one more */

    /* Copies to the host, on the thread that wants them. */
    pthread_mutex_t reading;
    lk_gpu_stream *reader;
    void *read_bounce; /* pinned, LK_CUDA_BOUNCE_BYTES; so are those below */

    /* Copies from the host, on the device's thread: buffers in turns, each with an event behind the copy out of it. */
    void *write_bounce[LK_CUDA_BOUNCES];
    lk_gpu_event *written[LK_CUDA_BOUNCES];
    int next_bounce;

    lk_gpu_event *followed; /* what another device has read of this one's memory: see bring */

    lk_cuda_fault fault;

    /* Ranks of open links that the device is one of: see cuda_ranks.h. */
    pthread_mutex_t linking;
    struct lk_cuda_membership *memberships;
} lk_cuda;

/* Whoever waits for the stream from here on is told so, whatever it has done. */
void lk__cuda_fail(lk_cuda *cuda, lk_status status, const char *message);
lk_status lk__cuda_check_fault(lk_cuda *cuda);

/* The event that stands for entry `sequence` of its queue, or for a later one. */
lk_gpu_event *lk__cuda_event_of(lk_cuda *cuda, uint64_t sequence);

/* cuda_graph.c: gives back what branches and graphs had; the streams are idle. */
void lk__cuda_graphs_close(lk_cuda *cuda);

/* A stream on `gpu` with its events, and nothing else of what a device keeps. device: as in lk_cuda; it lives as long.
 */
lk_status lk__cuda_stream_new(const lk_gpu_driver *driver, int gpu, lk_cuda *device, lk_cuda **cuda);
void lk__cuda_stream_free(lk_cuda *cuda); /* a device's too. NULL is fine; the stream must be idle */

/* The streams that are the queue of `device`: one, or those of links. *n: how many. */
lk_cuda *const *lk__cuda_streams_of(lk_device *device, int *n);

/* --- launching ---------------------------------------------------------------------------------------------------- */

static inline lk_cuda *lk__cuda_of(const lk_call *call)
{
    return call->device->state;
}

/* LK_CUDA_LAUNCH(call, relu, .x = …, .y = …): starts the kernel and gives its status. */
#define LK_CUDA_LAUNCH(call, kernel, ...)     \
    lk__cuda_check(lk__cuda_of(call)->driver, \
                   lk__cuda_of(call)->driver->kernel(lk__cuda_of(call)->stream, &(lk_gpu_##kernel){__VA_ARGS__}))

/* --- operands ----------------------------------------------------------------------------------------------------- */

/* The layout of images that are not plain: channels-last. One object, with nothing in it. */
extern const char lk__cuda_channels_last[];

/* Temporaries while a call is turned into launches. What is given back may be taken at once, for whatever is launched
 * later also runs later. As in ref/, a failure is kept until the end. */
enum { LK_CUDA_MAX_SCRATCH = 20 };
typedef struct lk_cuda_scratch {
    const lk_call *call;
    lk_block *blocks[LK_CUDA_MAX_SCRATCH];
    int n;
    void *out[LK_MAX_OUTPUTS]; /* what an output is copied from in the end; NULL: it was written where it is */
    const void *out_layout[LK_MAX_OUTPUTS];
    lk_status status;
} lk_cuda_scratch;

/* NULL after this or an earlier failure. */
void *lk__cuda_new(lk_cuda_scratch *scratch, size_t bytes);

/* x's elements in row-major order: where they are, or in a temporary. NULL for x NULL, and after a failure. */
void *lk__cuda_plain(lk_cuda_scratch *scratch, const lk_tensor *x);

/* The same for images [N, C, H, W], or anything [N, C, …], in channels-last order. */
void *lk__cuda_images(lk_cuda_scratch *scratch, const lk_tensor *x);

/* The same in the order of `layout`, NULL or lk__cuda_channels_last. */
void *lk__cuda_as(lk_cuda_scratch *scratch, const lk_tensor *x, const void *layout);

/* Where to write out[i] in row-major order; NULL where there is no such output, and after a failure. What the output
 * cannot be written as, because it is a view with gaps, or of a layout that the call does not leave to its kernel, is a
 * temporary, from which lk__cuda_end makes the output. */
void *lk__cuda_out(lk_cuda_scratch *scratch, int i);

/* The same for images in channels-last order, and in the order of `layout`. */
void *lk__cuda_out_images(lk_cuda_scratch *scratch, int i);
void *lk__cuda_out_as(lk_cuda_scratch *scratch, int i, const void *layout);

/* The order that suits all of the call's first n inputs and its output best, where any is as good to the kernel:
 * channels-last if one of them is and the output may be. */
const void *lk__cuda_common_layout(const lk_call *call, int n);

/* Writes the outputs that have temporaries, gives back all temporaries, and gives the first failure; `launched` is the
 * status of the kernel itself, or LK_OK where it was not started because of a failure before. */
lk_status lk__cuda_end(lk_cuda_scratch *scratch, lk_status launched);

/* --- random numbers ----------------------------------------------------------------------------------------------- */

lk_gpu_philox lk__cuda_philox(const lk_random_key *key);

/* Of an operator with set_step: in a graph the key's epoch is that of the launch. */
lk_gpu_philox lk__cuda_philox_of_step(const lk_call *call, const lk_random_key *key);

/* --- conversions -------------------------------------------------------------------------------------------------- */

/* Strides of the elements of shape `shape`, in the logical order of axes, where they lie in `layout`. */
void lk__cuda_strides(lk_shape shape, const void *layout, int64_t *strides);

/* Starts y = x: any dtypes, one shape. */
lk_status lk__cuda_convert(const lk_call *call, lk_shape shape, lk_gpu_view y, lk_gpu_view x);

/* x as it lies. */
lk_gpu_view lk__cuda_view(const lk_tensor *x);

#endif
