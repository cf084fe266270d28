/* Gradients. While a tape is open it records those of the calling thread's operators that depend on a watched tensor;
 * then it is walked backwards once.
 *
 *     lk_tape *tape = lk_tape_begin(parameters, n);
 *     lk_tensor *loss = …;
 *     lk_tape_gradient(tape, loss, NULL, gradients);     gradients[n]
 *     lk_tape_release(tape); */
#ifndef LOCKSTEP_AUTOGRAD_H
#define LOCKSTEP_AUTOGRAD_H

#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_tape lk_tape;

/* Opens a tape in the calling thread; it watches watched[0 … n) and retains them. A thread has at most one open tape.
 * NULL on failure: LK_ERR_STATE (one is open), LK_ERR_ARGUMENT (a NULL tensor), LK_ERR_MEMORY. */
LK_API lk_tape *lk_tape_begin(lk_tensor *const *watched, int n);

/* Ends recording and sets gradients[i] to d target / d watched[i], a new tensor, or to NULL if the target does not
 * depend on watched[i]. seed: gradient of the target to start with, of its shape and dtype; NULL: ones. A gradient has
 * the dtype of its tensor; where lk_cast has made bf16 of an f32 tensor, the gradients of the result are added up in
 * f32. The walk releases what the tape has recorded, so a tape gives gradients only once. Asynchronous. Errors:
 * LK_ERR_STATE (not this thread's open tape), LK_ERR_ARGUMENT (a NULL tape or target; a target that was not recorded;
 * an operator without a gradient), LK_ERR_SHAPE or LK_ERR_DTYPE (seed), LK_ERR_MEMORY. On failure every gradients[i] is
 * NULL, unless the tape is NULL, when their number is not known. */
LK_API lk_status lk_tape_gradient_at(lk_call_site at, lk_tape *tape, lk_tensor *target, lk_tensor *seed,
                                     lk_tensor **gradients);
#define lk_tape_gradient(...) lk_tape_gradient_at(LK_HERE, __VA_ARGS__)

/* As lk_tape_gradient, with several targets: gives gradients of seeds[0] targets[0] + seeds[1] targets[1] + … . So one
 * tape can hold several shards of a batch, each with watched tensors of its own. seeds, or an entry, NULL: ones. */
LK_API lk_status lk_tape_gradients_at(lk_call_site at, lk_tape *tape, lk_tensor *const *targets,
                                      lk_tensor *const *seeds, int n_targets, lk_tensor **gradients);
#define lk_tape_gradients(...) lk_tape_gradients_at(LK_HERE, __VA_ARGS__)

/* Gives a tensor of floats a gradient of its own: zeros of its shape and dtype on its device, released with the tensor.
 * If it has one, that becomes zeros. A view does not take over the gradient of its base. Asynchronous. Errors:
 * LK_ERR_ARGUMENT (NULL), LK_ERR_DTYPE (integers), LK_ERR_MEMORY. */
LK_API lk_status lk_tensor_attach_grad_at(lk_call_site at, lk_tensor *tensor);
#define lk_tensor_attach_grad(...) lk_tensor_attach_grad_at(LK_HERE, __VA_ARGS__)

/* The gradient that lk_tensor_attach_grad made; borrowed: it is the same tensor as long as `tensor` lives. NULL: none.
 */
LK_API lk_tensor *lk_tensor_grad(const lk_tensor *tensor);

/* As lk_tape_gradient with a seed of ones, but writes the gradients of the watched tensors into those that are attached
 * to them, in place of what these held: zeros where the target does not depend on the tensor. Watched tensors without
 * one get nothing. Asynchronous. Errors: as lk_tape_gradient; then the attached gradients are as before. */
LK_API lk_status lk_tape_backward_at(lk_call_site at, lk_tape *tape, lk_tensor *target);
#define lk_tape_backward(...) lk_tape_backward_at(LK_HERE, __VA_ARGS__)

/* Ends recording, if it has not ended, and frees the tape. Call it in the thread that opened the tape. NULL is fine. */
LK_API void lk_tape_release(lk_tape *tape);

#ifdef __cplusplus
}
#endif

#endif
