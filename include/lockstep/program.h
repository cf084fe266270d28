/* Programs: a step, recorded once and then replayed.
 *
 * Recording calls a function that pushes operators as usual; none of them runs, but each is kept, with the kernel that
 * it would run on. Sequences of operators that one kernel does at once are then fused. Every tensor that does not
 * outlive the step gets a place in one block of memory, shared by tensors that are never needed together. A replay is
 * one entry in the device's queue. */
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
} lk_program_opts;

/* Records fn on `device`, in the calling thread, and compiles it. like[i]: what in[i] will be, in shape and dtype; its
 * elements do not matter. opts NULL: fused. Errors: what fn gives; LK_ERR_DEVICE (an operator on another device),
 * LK_ERR_MEMORY. */
LK_API lk_program *lk_program_record(lk_device *device, lk_program_fn fn, void *user, lk_tensor *const *like, int n_in,
                                     int n_out, const lk_program_opts *opts);

/* Runs it on inputs of the recorded shapes and dtypes, dense ones; out[i]: new tensors, adopted by the open scope, or
 * NULL where absent. `step` takes the place of lk_random_key.epoch in random operators such as dropout. Asynchronous.
 * Errors: LK_ERR_SHAPE, LK_ERR_DTYPE, LK_ERR_ARGUMENT (inputs), LK_ERR_MEMORY. */
LK_API lk_status lk_program_run(lk_program *program, lk_tensor *const *in, uint64_t step, lk_tensor **out);

/* Replays under way keep what they need. NULL is fine. */
LK_API void lk_program_release(lk_program *program);

/* Calls visit(user, …) for each operator of the program in their order: its name, and a line with its arguments. The
 * texts are valid during the call. */
LK_API void lk_program_visit(const lk_program *program, void (*visit)(void *user, const char *op, const char *call),
                             void *user);

/* Bytes of the tensors inside the program, known once it has run: of the plan, at the moment when most is needed, and
 * without any sharing. Waits for replays under way. */
typedef struct lk_program_memory {
    int64_t planned, peak, sum;
    int calls; /* operators */
} lk_program_memory;

LK_API lk_status lk_program_get_memory(lk_program *program, lk_program_memory *memory);

#ifdef __cplusplus
}
#endif

#endif
