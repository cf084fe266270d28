/* The words for layers in a model file. */
#pragma once

#include "nn/model_file.h"

/* Reads a whole number. Errors: LK_ERR_FORMAT; the message names `what` and says what is expected, beginning with
 * `alternative` ("classes or "). */
lk_status lk__model_line_integer(const lk_model_line *line, const char *what, const char *alternative, const char *text,
                                 int64_t low, int64_t high, int64_t *value);

/* Returns the layer that a line describes; NULL on failure. `blocks` lists the words that are not layers, for "did you
 * mean"; it ends with NULL. */
lk_layer *lk__model_line_layer(const lk_model_line *line, const char *const *blocks);
