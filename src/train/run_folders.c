/* Files of records in a folder and those in it. */
#include "base/status.h"
#include "data/samples.h"
#include "lockstep/runs.h"
#include "train/run_records.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEEP = 8 };

typedef struct visiting {
    lk_status (*visit)(void *user, const char *path);
    void *user;
} visiting;

static lk_status visit_folder(const visiting *v, const char *folder, int depth);

/* Files of records before folders; runs by their numbers, not as texts. */
static int by_name(const void *a, const void *b)
{
    const char *left = *(char *const *)a, *right = *(char *const *)b;
    int x = lk__record_number(left, "epochs", ".jsonl"), y = lk__record_number(right, "epochs", ".jsonl");
    if (x != y)
        return x && y ? (x > y) - (x < y) : x ? -1 : 1;
    return strcmp(left, right);
}

static lk_status list_folder(const char *folder, lk__names *names)
{
    lk_status status = LK_OK;
    DIR *entries = opendir(folder);
    if (!entries)
        LK_FAIL(errno == ENOENT ? LK_ERR_NOT_FOUND : LK_ERR_IO, "%s: cannot be read: %s", folder, strerror(errno));
    for (struct dirent *entry; status == LK_OK && (entry = readdir(entries));)
        if (entry->d_name[0] != '.')
            status = lk__names_add(names, entry->d_name);
    closedir(entries);
    if (names->count > 0)
        qsort(names->at, (size_t)names->count, sizeof *names->at, by_name);
    return status;
}

/* Links to folders are not followed: they might lead round in circles. */
static lk_status visit_entry(const visiting *v, const char *folder, const char *name, int depth)
{
    char path[PATH_MAX];
    struct stat about;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || lstat(path, &about) != 0)
        return LK_OK;
    if (S_ISREG(about.st_mode) && lk__record_number(name, "epochs", ".jsonl") > 0)
        return v->visit(v->user, path);
    return S_ISDIR(about.st_mode) && depth < DEEP ? visit_folder(v, path, depth + 1) : LK_OK;
}

static lk_status visit_folder(const visiting *v, const char *folder, int depth)
{
    lk__names names = {0};
    lk_status status = list_folder(folder, &names);
    if (depth > 0 && (status == LK_ERR_IO || status == LK_ERR_NOT_FOUND)) {
        lk_error_clear();
        lk__names_free(&names);
        return status == LK_ERR_IO ? v->visit(v->user, folder) : LK_OK; /* not found: it has just gone */
    }
    for (int64_t i = 0; status == LK_OK && i < names.count; i++)
        status = visit_entry(v, folder, names.at[i], depth);
    lk__names_free(&names);
    return status;
}

lk_status lk_runs_visit(const char *folder, lk_status (*visit)(void *user, const char *path), void *user)
{
    char top[PATH_MAX];
    size_t length = strlen(folder);
    if (length == 0 || length >= sizeof top)
        LK_FAIL(LK_ERR_ARGUMENT, "'%.60s': must be the path of a folder", folder);
    memcpy(top, folder, length + 1);
    while (length > 1 && top[length - 1] == '/')
        top[--length] = '\0';
    return visit_folder(&(visiting){visit, user}, top, 0);
}
