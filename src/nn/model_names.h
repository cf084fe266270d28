/* The paths of a model's layers. */
#pragma once

#include "nn/model.h"

/* Returns "prefix.name", or "name" if the prefix is empty, followed by `number` if that is 2 or more. The caller frees
 * it. NULL: no memory. */
char *lk__join_path(const char *prefix, const char *name, int number);

/* Gives every layer its path. Errors: LK_ERR_FORMAT for a model file, else LK_ERR_ARGUMENT (a name used twice, layers
 * nested too deep). */
lk_status lk__model_name_layers(lk_model *model);
