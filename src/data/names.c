#include "base/mem.h"
#include "data/samples.h"

#include <stdlib.h>
#include <string.h>

lk_status lk__names_add(lk__names *names, const char *name)
{
    if (names->count == names->capacity) {
        int64_t capacity = names->capacity ? 2 * names->capacity : 16;
        char **grown = lk__realloc(names->at, (size_t)capacity, sizeof *grown);
        if (!grown)
            return LK_ERR_MEMORY;
        names->at = grown;
        names->capacity = capacity;
    }
    char *copy = lk__strdup(name);
    if (!copy)
        return LK_ERR_MEMORY;
    names->at[names->count++] = copy;
    return LK_OK;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void lk__names_sort(lk__names *names)
{
    if (names->count > 1)
        qsort(names->at, (size_t)names->count, sizeof *names->at, compare);
}

void lk__names_free(lk__names *names)
{
    for (int64_t i = 0; i < names->count; i++)
        lk__free(names->at[i]);
    lk__free(names->at);
    *names = (lk__names){0};
}
