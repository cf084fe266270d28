#include "nn/name_patterns.h"

#include <string.h>

bool lk__name_pattern_next(const char **list, lk_name_pattern *pattern)
{
    *list += strspn(*list, ",");
    *pattern = (lk_name_pattern){*list, (int)strcspn(*list, ",")};
    *list += pattern->length;
    return pattern->length > 0;
}

/* When characters do not fit, the last '*' takes one more, so the time is at most the product of the lengths. */
static bool name_pattern_fits_length(lk_name_pattern p, const char *name, int length)
{
    int at = 0, star = -1, after = 0; /* star: position of the last '*'; after: where the name goes on behind it */
    for (int i = 0; i < length;) {
        if (at < p.length && p.text[at] == '*') {
            star = at++;
            after = i;
        } else if (at < p.length && (p.text[at] == '?' || p.text[at] == name[i])) {
            at++;
            i++;
        } else if (star >= 0) {
            at = star + 1;
            i = ++after;
        } else {
            return false;
        }
    }
    while (at < p.length && p.text[at] == '*')
        at++;
    return at == p.length;
}

bool lk__name_pattern_fits(lk_name_pattern pattern, const char *name)
{
    int length = (int)strlen(name);
    for (int end = length; end > 0; end--)
        if ((end == length || name[end] == '.') && name_pattern_fits_length(pattern, name, end))
            return true;
    return false;
}

bool lk__name_patterns_fit(const char *list, const char *name)
{
    lk_name_pattern pattern;
    while (list && lk__name_pattern_next(&list, &pattern))
        if (lk__name_pattern_fits(pattern, name))
            return true;
    return false;
}
