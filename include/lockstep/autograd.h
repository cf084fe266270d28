/* Gradients by a tape: while one is open, the calling thread's operators that depend on a watched tensor are recorded;
 * the tape is then walked backwards once. */
#ifndef LOCKSTEP_AUTOGRAD_H
#define LOCKSTEP_AUTOGRAD_H

#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_tape lk_tape;

/* Opens a tape in the calling thread that watches watched[0 … n), which the tape retains. One tape at a time is open in
 * a thread. NULL on failure: LK_ERR_STATE (one is open), LK_ERR_ARGUMENT (a NULL tensor), LK_ERR_MEMORY. */
LK_API lk_tape *lk_tape_begin(lk_tensor *const *watched, int n);

/* Ends recording and sets gradients[i] to d target / d watched[i], a new tensor, or to NULL where the target does not
 * depend on watched[i]. The tape is used up: what it recorded is released as it is walked. Asynchronous.
 * Gradients have the dtype of their tensor; of what lk_cast makes of f32 in bf16, on the way, they are added up in f32.
 * seed: what the walk starts with, of the target's shape and dtype; NULL: ones.
 * Errors: LK_ERR_STATE (not this thread's open tape), LK_ERR_ARGUMENT (a NULL tape or target; the target was not
 * recorded; an operator on the way has no gradient), LK_ERR_SHAPE or LK_ERR_DTYPE (seed), LK_ERR_MEMORY. On failure
 * every gradients[i] is NULL, but for a NULL tape, which knows of none. */
LK_API lk_status lk_tape_gradient_at(lk_place at, lk_tape *tape, lk_tensor *target, lk_tensor *seed,
                                     lk_tensor **gradients);
#define lk_tape_gradient(...) lk_tape_gradient_at(LK_HERE, __VA_ARGS__)

/* The same with several targets, walked back together: gradients of seeds[0] targets[0] + seeds[1] targets[1] + …. One
 * tape can so hold the shards of a batch, each with tensors of its own to watch. seeds NULL, or an entry: ones. */
LK_API lk_status lk_tape_gradients_at(lk_place at, lk_tape *tape, lk_tensor *const *targets, lk_tensor *const *seeds,
                                      int n_targets, lk_tensor **gradients);
#define lk_tape_gradients(...) lk_tape_gradients_at(LK_HERE, __VA_ARGS__)

/* Ends recording if it has not ended, and frees the tape; in the thread that opened it. NULL is fine. */
LK_API void lk_tape_release(lk_tape *tape);

#ifdef __cplusplus
}
#endif

#endif
