/* Texts that are built up piece by piece. */
#pragma once

#include <stdio.h>
#include <string.h>

/* Appends `more` to `text`, a buffer of `size` bytes; the end that does not fit is cut. */
static inline void lk__text_append(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s", more);
}
