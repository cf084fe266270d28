/* Model files (docs/model-files.md): model_file.c reads lines and blocks, model_words.c the words for layers. */
#pragma once

#include "nn/model.h"

enum { LK_MODEL_LINE_WORDS = 16 };

/* A line in words. "conv1: conv2d 64 kernel=3" has the name "conv1" (NULL: none), the word "conv2d" and two
 * arguments. */
enum { LK_ANY_CLASSES = -1 };

typedef struct lk_model_line {
    const char *file;
    int number;      /* from 1 */
    int64_t classes; /* 0: the network has none; LK_ANY_CLASSES: their number is unknown, and "classes" stands for 1 */
    char *name, *word;
    char *arguments[LK_MODEL_LINE_WORDS];
    int n_arguments;
} lk_model_line;

/* Sets *yes to whether the setting `what` is "yes"; anything but yes and no is an error. */
lk_status lk__model_line_yes(const lk_model_line *line, const char *what, const char *text, bool *yes);

/* Fails with "FILE:LINE: …" and LK_ERR_FORMAT, which it returns. */
lk_status lk__model_line_fail(const lk_model_line *line, const char *format, ...) LK_PRINTF(2, 3);

/* Reads a model file and returns its root layer, or NULL with the error set. `given`: the text, if it was read already;
 * NULL: the file is read. classes: as in lk_model_line. *text: a copy of the text, which the caller frees; NULL on
 * failure. */
lk_layer *lk__model_file_read(const char *path, const char *given, int64_t classes, char **text);
