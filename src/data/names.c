#include "data/names.h"

#include "base/mem.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

lk_status lk__names_add(lk_names *names, const char *name)
{
    LK_TRY(LK_GROW(names->at, &names->capacity, names->count + 1));
    char *copy = lk__strdup(name);
    if (!copy)
        return LK_ERR_MEMORY;
    names->at[names->count++] = copy;
    return LK_OK;
}

static int names_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void lk__names_sort(lk_names *names)
{
    if (names->count > 1)
        qsort(names->at, (size_t)names->count, sizeof *names->at, names_compare);
}

void lk__names_free(lk_names *names)
{
    for (int64_t i = 0; i < names->count; i++)
        lk__free(names->at[i]);
    lk__free(names->at);
    *names = (lk_names){0};
}
