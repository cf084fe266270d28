/* Patterns of variables' names: "dense*,block1", as --freeze and --weights-skip take them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct lk_name_pattern {
    const char *text; /* not terminated */
    int length;
} lk_name_pattern;

/* Takes the next pattern off a list with commas. False: there is none left. */
bool lk__name_pattern_next(const char **list, lk_name_pattern *pattern);

/* Returns whether the pattern fits the whole name, or a beginning of it that ends before a dot: that of a layer above.
 * '*' stands for any characters, dots too, and '?' for one. */
bool lk__name_pattern_fits(lk_name_pattern pattern, const char *name);

/* Returns whether any pattern of the list fits. list NULL: none does. */
bool lk__name_patterns_fit(const char *list, const char *name);
