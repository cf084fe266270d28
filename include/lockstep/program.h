/* Programs: a step that is recorded once and then replayed.
 *
 *     lk_program *program = lk_program_record(device, step, NULL, in, n_in, n_out, NULL);
 *     for (uint64_t i = 0; i < steps; i++)
 *         lk_program_run(program, in, i, out);
 *     lk_program_release(program);
 *
 * Recording calls a function that pushes operators as usual. None of them runs; each is kept with its kernel. Sequences
 * that one kernel can compute are then fused. Every tensor that does not outlive the step gets an offset in one block
 * of memory, which tensors share that are never needed at the same time. A replay is one entry in the device's queue,
 * or one per segment if the program is cut into segments. */
#ifndef LOCKSTEP_PROGRAM_H
#define LOCKSTEP_PROGRAM_H

#include "lockstep/tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_program lk_program;

/* The function that is recorded. It computes out[0 … n_out) from in[0 … n_in) and from variables, tensors of its own
 * that stay in place and were written before. It writes no input. An out[i] that it leaves NULL is absent from every
 * replay. It may depend on shapes but not on values: reading an element fails. */
typedef lk_status (*lk_program_fn)(void *user, lk_tensor *const *in, lk_tensor **out);

typedef struct lk_program_opts {
    bool fuse; /* false: run exactly the operators that were called, with their bits */
    /* Recompute activations in the backward pass, with the same bits, where that lowers the planned memory, instead of
     * keeping them all. Outputs are still written once. */
    bool recompute;
    /* A segment ends when its finished outputs have at least this many bytes; 0: the program is one segment. */
    size_t segment_bytes;
    /* [n_quantities]: instead of segment_bytes, output i is in bucket buckets[i % n_quantities], and a segment ends
     * when it finishes the last output of a bucket, 0, 1, …, and of all before it. The last bucket ends no segment.
     * NULL: no buckets. */
    const int *buckets;
    int n_quantities; /* with buckets: at least 1, and more than any bucket's number */
    /* The last `cuts` outputs, in their order, each end a segment; input n_in - cuts + k must be written before the
     * segment after output n_out - cuts + k is pushed, and is not used before. Devices of a PJRT plug-in run a segment
     * as one module, and know no other segments. */
    int cuts; /* at most n_in and n_out */
    /* This many bytes may hold what kernels compute from variables alone, such as weights in another order, until a
     * variable is written. This saves time if a program is replayed several times between updates. Results do not
     * depend on it. */
    size_t keep_bytes;
    /* Let a GPU run passes that are alike (lk_program_branch) with one launch for all of them where it can. It then
     * keeps the tensors of all passes at the same time, and needs more memory. Results do not depend on it. */
    bool merge;
    /* Let a GPU run each segment as one CUDA graph, from the second replay on. Results do not depend on it. */
    bool graphs;
} lk_program_opts;

/* Records `fn` on `device`, in the calling thread, and compiles it. like[i] has the shape and dtype of in[i]; its
 * elements do not matter. opts NULL: fused, one segment. NULL on failure. Errors: those of `fn`; LK_ERR_DEVICE (an
 * operator on another device), LK_ERR_ARGUMENT (an input is NULL or written, cuts or a bucket out of range),
 * LK_ERR_STATE (it cannot be cut as opts.cuts asks), LK_ERR_MEMORY. */
LK_API lk_program *lk_program_record(lk_device *device, lk_program_fn fn, void *user, lk_tensor *const *like, int n_in,
                                     int n_out, const lk_program_opts *opts);

/* For the function that is recorded: puts the operators that it calls next into branch `branch`, 1 … LK_MAX_BRANCHES,
 * or into none (0, as at the beginning). Branches must not need each other's results. Operators in no branch wait for
 * all that were called before them, and operators in a branch wait for those in none. Each call begins a pass, with
 * forward and backward parts of its own for lk_program_opts.recompute. GPUs run branches concurrently. Results do not
 * depend on branches, but the memory does: branches do not share theirs. Does nothing outside of recording. */
enum { LK_MAX_BRANCHES = 16 };
LK_API void lk_program_branch(int branch);

/* Replays the program. in[i]: of the recorded shape and dtype, without gaps, and no variable that the program writes.
 * out[i]: new tensors, which belong to the open scope, or NULL where absent. `step` replaces lk_random_key.epoch of
 * dropout; lk_uniform and lk_normal keep theirs. Asynchronous. Errors: LK_ERR_SHAPE, LK_ERR_DTYPE, LK_ERR_ARGUMENT,
 * LK_ERR_DEVICE (inputs), LK_ERR_MEMORY. */
LK_API lk_status lk_program_run(lk_program *program, lk_tensor *const *in, uint64_t step, lk_tensor **out);

/* --- advanced: segments ------------------------------------------------------------------------------------------- */

/* A replay that is pushed segment by segment, so that work on the first outputs can be pushed before the last ones are
 * computed:
 *
 *     lk_program_begin(program, in, step, out, &replay);
 *     while (lk_replay_segments_left(replay) > 0) {
 *         lk_replay_push(replay, &ready, &n_ready);
 *         … use out[ready[0 … n_ready)] …
 *     }
 *     lk_replay_end(replay);
 *
 * Other work may be pushed to the device between segments, even replays of other programs, which then take their memory
 * from the allocator. One thread at a time uses a replay. */
typedef struct lk_replay lk_replay;

/* As lk_program_run, but pushes nothing: an out[i] may be used once a segment has finished it. Errors also:
 * LK_ERR_STATE (another replay of the program has segments left to push). On failure *replay is NULL. */
LK_API lk_status lk_program_begin(lk_program *program, lk_tensor *const *in, uint64_t step, lk_tensor **out,
                                  lk_replay **replay);

LK_API int lk_replay_segments_left(const lk_replay *replay);

/* Pushes the next segment, and sets ready[0 … n_ready) to the outputs that it finishes, valid as long as the program.
 * Every output comes once; absent ones come with the first segment. Errors: LK_ERR_MEMORY, LK_ERR_STATE (no segment is
 * left, or the device was released); then nothing was pushed. */
LK_API lk_status lk_replay_push(lk_replay *replay, const int **ready, int *n_ready);

/* Ends the replay. Segments that were not pushed never run, and their outputs are never written. NULL is fine. */
LK_API void lk_replay_end(lk_replay *replay);

/* Replays in flight keep what they need. NULL is fine. */
LK_API void lk_program_release(lk_program *program);

/* Calls visit(user, …) for each operator of the program, in order, with its name and a line with its arguments. The
 * texts are valid during the call. */
LK_API void lk_program_visit(const lk_program *program, void (*visit)(void *user, const char *op, const char *call),
                             void *user);

/* Bytes of the tensors inside a program. */
typedef struct lk_program_memory {
    int64_t planned;     /* the block that they share */
    int64_t peak;        /* needed at the same time: no plan can be smaller */
    int64_t sum;         /* without sharing */
    int64_t kept;        /* in addition: see lk_program_opts.keep_bytes */
    int calls, segments; /* number of operators, and of segments */
} lk_program_memory;

/* Sets *memory, which is known once the program has run, or, on a GPU, when it is recorded. Waits for replays in
 * flight. Errors: those of lk_device_sync, LK_ERR_STATE (it is not known yet). */
LK_API lk_status lk_program_get_memory(lk_program *program, lk_program_memory *memory);

#ifdef __cplusplus
}
#endif

#endif
