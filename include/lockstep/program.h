/* Programs: a step, recorded once and then replayed.
 *
 * Recording calls a function that pushes operators as usual; none of them runs, but each is kept, with the kernel that
 * it would run on. Sequences of operators that one kernel does at once are then fused. Every tensor that does not
 * outlive the step gets a place in one block of memory, shared by tensors that are never needed together. A replay is
 * one entry in the device's queue, or one for each segment where a program is cut into several. */
#ifndef LOCKSTEP_PROGRAM_H
#define LOCKSTEP_PROGRAM_H

#include "lockstep/tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_program lk_program;

/* Makes out[0 … n_out) from in[0 … n_in), and from tensors of its own that stay where they are, such as variables. An
 * out[i] that it leaves NULL is absent from every replay. What it does may depend on shapes, not on values: reading an
 * element fails. */
typedef lk_status (*lk_program_fn)(void *user, lk_tensor *const *in, lk_tensor **out);

typedef struct lk_program_opts {
    bool fuse; /* false: exactly the operators that were called, with the bits that they give by themselves */
    /* What backward needs of forward is not all kept: some of it is made a second time, to the same bits, where that
     * lowers the memory planned. Outputs are still written once. */
    bool recompute;
    /* A segment ends where the outputs that it has finished have at least so many bytes; 0: all is one segment. */
    size_t segment_bytes;
    /* So many bytes may be kept of what kernels make of variables alone, weights in their own order for instance, until
     * a variable is written: worth it where a program is replayed several times in between. No result depends on it. */
    size_t keep_bytes;
    /* From the second replay on, a device that can (a GPU) is given each segment as one graph, whose calls it starts by
     * itself. No result depends on it. */
    bool graphs;
} lk_program_opts;

/* Records fn on `device`, in the calling thread, and compiles it. like[i]: what in[i] will be, in shape and dtype; its
 * elements do not matter. opts NULL: fused, one segment. Errors: what fn gives; LK_ERR_DEVICE (an operator on another
 * device), LK_ERR_MEMORY. */
LK_API lk_program *lk_program_record(lk_device *device, lk_program_fn fn, void *user, lk_tensor *const *like, int n_in,
                                     int n_out, const lk_program_opts *opts);

/* For the function that is being recorded: what it calls next is in branch `branch`, 1 to LK_MAX_BRANCHES, or in none
 * (0, which is where it begins). Branches do not need each other's results; what is in none waits for all that was
 * called before it, and what is in a branch for what was in none. Where it is called a pass begins, with a forward and
 * a backward part of its own for lk_program_opts.recompute. A device that can runs branches beside each other; no
 * result depends on it, but the memory does: what lies in one branch lies apart from what the others need. Nothing
 * happens where nothing is recorded. */
enum { LK_MAX_BRANCHES = 16 };
LK_API void lk_program_branch(int branch);

/* Runs it on inputs of the recorded shapes and dtypes, dense ones; out[i]: new tensors, adopted by the open scope, or
 * NULL where absent. `step` takes the place of lk_random_key.epoch in random operators such as dropout. Asynchronous.
 * Errors: LK_ERR_SHAPE, LK_ERR_DTYPE, LK_ERR_ARGUMENT (inputs), LK_ERR_MEMORY. */
LK_API lk_status lk_program_run(lk_program *program, lk_tensor *const *in, uint64_t step, lk_tensor **out);

/* A replay that is pushed segment by segment, so that what depends on the first outputs can be pushed before the last
 * ones are computed:
 *
 *     lk_program_begin(program, in, step, out, &replay);
 *     while (lk_replay_segments_left(replay) > 0) {
 *         lk_replay_push(replay, &ready, &n_ready);
 *         … use out[ready[0 … n_ready)] …
 *     }
 *     lk_replay_end(replay);
 *
 * Other work may be pushed to the device between segments, other programs' replays included (one that runs while
 * another replay is half done takes its memory from the allocator). A replay is used by one thread at a time. */
typedef struct lk_replay lk_replay;

/* As lk_program_run, but nothing is pushed yet: no out[i] may be used before a segment has finished it. Errors: also
 * LK_ERR_STATE, where another replay of the program has segments left to push; *replay is NULL then. */
LK_API lk_status lk_program_begin(lk_program *program, lk_tensor *const *in, uint64_t step, lk_tensor **out,
                                  lk_replay **replay);

LK_API int lk_replay_segments_left(const lk_replay *replay);

/* Pushes the next segment. ready[0 … n_ready): the outputs that it finishes, valid as long as the program; those that
 * are absent come with the first segment. Every output comes once. Errors: LK_ERR_MEMORY, LK_ERR_STATE (none is left,
 * the device was released); the segment was then not pushed. */
LK_API lk_status lk_replay_push(lk_replay *replay, const int **ready, int *n_ready);

/* Lets go of it. Segments that were not pushed never run, and their outputs are never written. NULL is fine. */
LK_API void lk_replay_end(lk_replay *replay);

/* Replays under way keep what they need. NULL is fine. */
LK_API void lk_program_release(lk_program *program);

/* Calls visit(user, …) for each operator of the program in their order: its name, and a line with its arguments. The
 * texts are valid during the call. */
LK_API void lk_program_visit(const lk_program *program, void (*visit)(void *user, const char *op, const char *call),
                             void *user);

/* Bytes of the tensors inside the program, known once it has run, or, on a GPU, at once: of the plan, at the moment
 * when most is needed, and without any sharing. Waits for replays under way. */
typedef struct lk_program_memory {
    int64_t planned, peak, sum;
    int64_t kept;        /* see lk_program_opts.keep_bytes */
    int calls, segments; /* calls: operators */
} lk_program_memory;

LK_API lk_status lk_program_get_memory(lk_program *program, lk_program_memory *memory);

#ifdef __cplusplus
}
#endif

#endif
