/* Tunings: the implementation that runs each problem.
 *
 * Some operators have several implementations, such as convolutions with Winograd's algorithm. A problem is an operator
 * with its shapes and options. The built-in choice depends on the problem, the instruction set and versions of
 * libraries. A tuning lists choices that replace it; problems that it does not list keep the built-in one, except that
 * a convolution and relu without pooling are not fused. Implementations round differently, so a tuning is one of the
 * settings that identify a run. On GPUs a tuning names the engines that cuDNN must take for convolutions, and the
 * algorithms that cuBLASLt must take for products; training with one that the library does not have is refused.
 *
 *     lk_tuning *tuning = lk_tuning_read("tuned.txt");
 *     lk_device_set_tuning(device, tuning);               (or lk_train_config.execution.algorithms = "tuned.txt")
 *     lk_tuning_release(tuning);
 *
 * The first line of a file says what choices depend on besides the problem. Then each line is a problem with its
 * choice; empty lines and lines that begin with '#' are ignored:
 *
 *     lockstep 0.1.0, device cpu, instruction set avx2, oneDNN 2.6.3
 *     conv2d f32 x[32,64,28,28] w[64,64,3,3] stride 1x1 padding 1x1 dilation 1x1 = winograd:avx2 */
#ifndef LOCKSTEP_TUNING_H
#define LOCKSTEP_TUNING_H

#include "lockstep/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an empty tuning for devices of a kind on this machine, with one reference. NULL on failure: LK_ERR_ARGUMENT (no
 * such kind), LK_ERR_MEMORY. */
LK_API lk_tuning *lk_tuning_new(const char *kind);
LK_API lk_tuning *lk_tuning_retain(lk_tuning *tuning);
LK_API void lk_tuning_release(lk_tuning *tuning); /* NULL is fine */

/* Adds a choice, or replaces that for the same problem. problem: in the form of lk_tuning_visit. Errors:
 * LK_ERR_ARGUMENT (no such problem; no such implementation, or one that does not take the problem; the message lists
 * those that do), LK_ERR_MEMORY. Libraries of GPUs are asked for an implementation only when it is to run. */
LK_API lk_status lk_tuning_set(lk_tuning *tuning, const char *op, const char *problem, const char *implementation);

/* Calls visit(user, …) for each choice, in the order of the texts. */
LK_API void lk_tuning_visit(const lk_tuning *tuning, lk_implementation_fn visit, void *user);

/* The number of choices. */
LK_API int lk_tuning_count(const lk_tuning *tuning);

/* The choices depend on the problem and on this: "lockstep 0.1.0, device cpu, instruction set avx2, oneDNN 2.6.3".
 * Valid as long as the tuning. */
LK_API const char *lk_tuning_machine(const lk_tuning *tuning);

/* XXH3-64 of the lines of lk_tuning_write, each seeded with the hash of those before: equal for equal choices on equal
 * machines. */
LK_API uint64_t lk_tuning_hash(const lk_tuning *tuning);

/* Reads a file; gives one reference. NULL on failure: LK_ERR_IO; LK_ERR_FORMAT (a tuning for another machine or
 * version, which the message names; a line that is not a choice, or that lk_tuning_set refuses, with its number; a
 * zero byte), LK_ERR_MEMORY. */
LK_API lk_tuning *lk_tuning_read(const char *path);

/* Writes a file, which is replaced as a whole. Errors: LK_ERR_IO, LK_ERR_ARGUMENT (a path that is too long),
 * LK_ERR_MEMORY. */
LK_API lk_status lk_tuning_write(const lk_tuning *tuning, const char *path);

#ifdef __cplusplus
}
#endif

#endif
