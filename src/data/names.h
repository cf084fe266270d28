/* Lists of strings, such as the names of classes or of files. A list owns its strings. */
#pragma once

#include "data/samples.h"

/* Appends a copy of `name`. Errors: LK_ERR_MEMORY. */
lk_status lk__names_add(lk_names *names, const char *name);
void lk__names_sort(lk_names *names); /* in the order of strcmp */
void lk__names_free(lk_names *names);
