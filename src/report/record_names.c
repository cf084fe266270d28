#include "report/record_names.h"

#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int lk__record_number(const char *name, const char *stem, const char *extension)
{
    char *end;
    size_t length = strlen(stem);
    if (strncmp(name, stem, length) != 0)
        return 0;
    if (strcmp(name + length, extension) == 0)
        return 1;
    if (name[length] != '-' || name[length + 1] < '1' || name[length + 1] > '9')
        return 0;
    long number = strtol(name + length + 1, &end, 10);
    return strcmp(end, extension) == 0 && number > 1 && number < INT32_MAX ? (int)number : 0;
}

lk_status lk__record_path(const char *folder, const char *stem, const char *extension, int number, char path[PATH_MAX])
{
    int length = number == 1 ? snprintf(path, PATH_MAX, "%s/%s%s", folder, stem, extension)
                             : snprintf(path, PATH_MAX, "%s/%s-%d%s", folder, stem, number, extension);
    if (length >= PATH_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", folder);
    return LK_OK;
}

lk_status lk__record_names_last(const char *folder, const char *stem, const char *extension, int before, int *last)
{
    DIR *entries = opendir(folder);
    *last = 0;
    if (!entries)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(entries));) {
        int number = lk__record_number(entry->d_name, stem, extension);
        if (number > *last && number < before)
            *last = number;
    }
    closedir(entries);
    return LK_OK;
}
