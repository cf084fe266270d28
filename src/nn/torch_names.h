/* What the variables of the reference models are called in PyTorch, in the programs that the models come from.
 * docs/checkpoints.md has the table. */
#ifndef LK_NN_TORCH_NAMES_H
#define LK_NN_TORCH_NAMES_H

#include "lockstep/nn.h"

typedef struct lk__torch_naming lk__torch_naming;

enum { LK__TORCH_NAME = 64 }; /* of a variable of a reference model */

/* The names in an nn.Sequential (0), and those in Dive into Deep Learning where they are others (1); NULL where the
 * model has none, as one that is no reference model. */
const lk__torch_naming *lk__torch_naming_at(const lk_model *model, int index);

/* Our variable's name there, in `theirs` where it is another one; n NULL: our own. */
const char *lk__torch_name(const lk__torch_naming *n, const char *ours, char theirs[LK__TORCH_NAME]);

/* Whether a variable of that shape here is the transpose of the one there: PyTorch's Linear keeps [units, K], and a
 * dense layer [K, units]. */
bool lk__torch_transposes(const lk__torch_naming *n, const char *ours, lk_shape shape);

/* from [rows, columns], to [columns, rows]; apart. */
void lk__transpose(const float *from, int64_t rows, int64_t columns, float *to);

#endif
