/* The names that the reference models' variables have in PyTorch, in the programs that the models come from.
 * docs/checkpoints.md has the table. */
#pragma once

#include "lockstep/nn.h"

typedef struct lk_torch_naming lk_torch_naming;

enum { LK__TORCH_NAME = 64 }; /* bytes of a name of a reference model's variable */

/* Index 0: the names in an nn.Sequential. Index 1: the names in Dive into Deep Learning, if they differ. NULL if the
 * model has none, as for a model that is no reference model. */
const lk_torch_naming *lk__torch_naming_at(const lk_model *model, int index);

/* The PyTorch name of our variable: `theirs` if it differs from ours, else `ours`. n NULL: our own name. */
const char *lk__torch_name(const lk_torch_naming *n, const char *ours, char theirs[LK__TORCH_NAME]);

/* Returns whether a variable of this shape is the transpose of PyTorch's: Linear keeps [units, K], and a dense layer
 * [K, units]. */
bool lk__torch_transposes(const lk_torch_naming *n, const char *ours, lk_shape shape);

/* Copies from [rows, columns] to [columns, rows]. The two must not overlap. */
void lk__transpose(const float *from, int64_t rows, int64_t columns, float *to);
