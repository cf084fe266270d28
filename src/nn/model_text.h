/* A network that was built in C as the text of a model file. */
#pragma once

#include "nn/model.h"

/* The text so far. Without memory its length is counted. */
typedef struct lk_model_text {
    char *text;
    size_t size, used;
} lk_model_text;

void lk__model_text_put(lk_model_text *out, const char *format, ...) LK_PRINTF(2, 3);

/* Puts the sizes along H and W after `name`, such as " kernel=3x1", or " kernel=3" if they are equal. */
void lk__model_text_put_pair(lk_model_text *out, const char *name, const int64_t pair[2]);

/* Puts a setting, such as " rate=0.5". */
void lk__model_text_put_real(lk_model_text *out, const char *name, double value);
void lk__model_text_put_init(lk_model_text *out, const char *name, lk_init init);

/* Sets *text to the text, which the caller frees with lk__free; NULL if a model file cannot describe the network, as
 * with layers of a program's own. Errors: LK_ERR_MEMORY. */
lk_status lk__model_text_make(const lk_model *model, char **text);
