#include "base/quote.h"

#include <stdio.h>
#include <string.h>

const char *lk__quote(const char *text, char quoted[LK_QUOTED])
{
    size_t length = strlen(text), shown = length < LK_QUOTED - 4 ? length : LK_QUOTED - 4;
    for (size_t i = 0; i < shown; i++)
        quoted[i] = (char)(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
    snprintf(quoted + shown, LK_QUOTED - shown, "%s", shown < length ? "..." : "");
    return quoted;
}
