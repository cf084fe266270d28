/* Tunings: which implementation runs which problem.
 *
 * Some operators have several implementations for the same shapes, such as convolutions with Winograd's algorithm. The
 * built-in choice among them is a function of operator, shapes and options ("the problem"), instruction set and
 * versions of the libraries. A tuning lists choices that are used instead; problems that it does not list keep the
 * built-in one, but a convolution and relu without pooling are not fused. Implementations round differently, so a
 * tuning belongs to what identifies a run. On devices of kind cuda libraries choose for themselves: a tuning then lists
 * what they have chosen, and training with it is refused where they choose otherwise.
 *
 * In a file the first line says what the choices depend on besides the problem; then there is a problem a line, and
 * empty lines and lines that begin with '#' do not count:
 *
 *     lockstep 0.1.0, device cpu, instruction set avx2, oneDNN 2.6.3
 *     conv2d f32 x[32,64,28,28] w[64,64,3,3] stride 1x1 padding 1x1 dilation 1x1 = winograd:avx2 */
#ifndef LOCKSTEP_TUNING_H
#define LOCKSTEP_TUNING_H

#include "lockstep/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An empty one for devices of that kind on this machine. Errors: LK_ERR_ARGUMENT (no such kind), LK_ERR_MEMORY. */
LK_API lk_tuning *lk_tuning_new(const char *kind);
LK_API lk_tuning *lk_tuning_retain(lk_tuning *tuning);
LK_API void lk_tuning_release(lk_tuning *tuning); /* NULL is fine */

/* Adds a choice; replaces one for the same problem. `problem` as lk_tuning_visit gives it. Errors: LK_ERR_ARGUMENT (no
 * such problem; no such implementation, or one that does not take the problem, with those that do), LK_ERR_MEMORY. */
LK_API lk_status lk_tuning_set(lk_tuning *tuning, const char *op, const char *problem, const char *implementation);

/* Calls visit(user, …) for each choice, in the order of the texts. */
LK_API void lk_tuning_visit(const lk_tuning *tuning, lk_implementation_fn visit, void *user);

LK_API int lk_tuning_count(const lk_tuning *tuning);

/* What its choices depend on besides the problem: "lockstep 0.1.0, device cpu, instruction set avx2, oneDNN 2.6.3". */
LK_API const char *lk_tuning_machine(const lk_tuning *tuning);

/* XXH3-64, the lines of lk_tuning_write one after the other, each seeded with the hash before: equal for equal choices
 * on equal machines. */
LK_API uint64_t lk_tuning_hash(const lk_tuning *tuning);

/* Reads a file. Errors: LK_ERR_IO; LK_ERR_FORMAT (of another machine or version, which is named; a line that is no
 * choice, or one that lk_tuning_set refuses, with its number), LK_ERR_MEMORY. */
LK_API lk_tuning *lk_tuning_read(const char *path);

/* Writes a file, or replaces it as a whole. Errors: LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_tuning_write(const lk_tuning *tuning, const char *path);

#ifdef __cplusplus
}
#endif

#endif
