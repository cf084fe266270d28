/* Model files (docs/model-files.md): model_file.c reads lines and blocks, model_words.c the words for layers. */
#ifndef LK_NN_MODEL_FILE_H
#define LK_NN_MODEL_FILE_H

#include "nn/model.h"

enum { LK_MODEL_LINE_WORDS = 16 };

/* "conv1: conv2d 64 kernel=3": name "conv1" (NULL: none), word "conv2d", two arguments. */
typedef struct lk_model_line {
    const char *file;
    int number; /* from 1 */
    lk_model_input input;
    char *name, *word;
    char *arguments[LK_MODEL_LINE_WORDS];
    int n_arguments;
} lk_model_line;

/* "FILE:LINE: …" with LK_ERR_FORMAT, which it gives back. */
lk_status lk__model_line_fail(const lk_model_line *line, const char *format, ...) LK_PRINTF(2, 3);

/* A whole number. Errors: LK_ERR_FORMAT naming `what`, and as expected too what else could stand there: "classes or ".
 */
lk_status lk__model_line_integer(const lk_model_line *line, const char *what, const char *alternative, const char *text,
                                 int64_t low, int64_t high, int64_t *value);

/* The layer that a line describes. `blocks`: NULL-terminated words that are no layers, for "did you mean". */
lk_layer *lk__model_line_layer(const lk_model_line *line, const char *const *blocks);

#endif
