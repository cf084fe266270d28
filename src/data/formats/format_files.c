#include "data/formats/format_files.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool format_file_is_regular(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

bool lk__find_file(const char *folder, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s.gz", folder, name) >= PATH_MAX)
        return false;
    path[strlen(path) - 3] = '\0';
    if (format_file_is_regular(path))
        return true;
    strcat(path, ".gz");
    return format_file_is_regular(path);
}

lk_status lk__no_test_set(const char *path, const char *expected)
{
    LK_FAIL(
        LK_ERR_ARGUMENT,
        "%s has no validation set: expected %s; use --val-split 0.1 to hold out a tenth of each class, --limit-val 0 "
        "to train without one, or --split train to evaluate the training set",
        path, expected);
}
