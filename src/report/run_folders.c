/* Finds the record files in a folder and in the folders inside it. */
#include "base/status.h"
#include "data/names.h"
#include "lockstep/runs.h"
#include "report/record_names.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_DEPTH = 8 };

typedef struct visiting {
    lk_status (*visit)(void *user, const char *path);
    void *user;
} visiting;

static lk_status run_folders_visit(const visiting *v, const char *folder, int depth);

/* Sorts record files before other names, and runs by number rather than as text. */
static int run_folders_compare_names(const void *a, const void *b)
{
    const char *left = *(char *const *)a, *right = *(char *const *)b;
    int x = lk__record_number(left, "epochs", ".jsonl"), y = lk__record_number(right, "epochs", ".jsonl");
    if (x != y)
        return x && y ? (x > y) - (x < y) : x ? -1 : 1;
    return strcmp(left, right);
}

static lk_status run_folders_list_names(const char *folder, lk_names *names)
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
        qsort(names->at, (size_t)names->count, sizeof *names->at, run_folders_compare_names);
    return status;
}

/* Does not follow links to folders, which could form a cycle. */
static lk_status run_folders_visit_entry(const visiting *v, const char *folder, const char *name, int depth)
{
    char path[PATH_MAX];
    struct stat about;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || lstat(path, &about) != 0)
        return LK_OK;
    if (S_ISREG(about.st_mode) && lk__record_number(name, "epochs", ".jsonl") > 0)
        return v->visit(v->user, path);
    return S_ISDIR(about.st_mode) && depth < MOST_DEPTH ? run_folders_visit(v, path, depth + 1) : LK_OK;
}

static lk_status run_folders_visit(const visiting *v, const char *folder, int depth)
{
    lk_names names = {0};
    lk_status status = run_folders_list_names(folder, &names);
    if (depth > 0 && (status == LK_ERR_IO || status == LK_ERR_NOT_FOUND)) {
        lk_error_clear();
        lk__names_free(&names);
        return status == LK_ERR_IO ? v->visit(v->user, folder) : LK_OK; /* not found: it has just been removed */
    }
    for (int64_t i = 0; status == LK_OK && i < names.count; i++)
        status = run_folders_visit_entry(v, folder, names.at[i], depth);
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
    return run_folders_visit(&(visiting){visit, user}, top, 0);
}
