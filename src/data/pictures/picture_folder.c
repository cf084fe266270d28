#include "data/pictures/picture_folder.h"

#include "base/mem.h"
#include "base/status.h"
#include "data/names.h"
#include "lockstep/image.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 16 }; /* levels of folders inside a class's folder; links may form cycles */

bool lk__is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static lk_status picture_folder_join_path(char path[PATH_MAX], const char *folder, const char *name)
{
    int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    if (length < 0 || length >= PATH_MAX)
        LK_FAIL(LK_ERR_IO, "%s/%.64s: the path is too long", folder, name);
    return LK_OK;
}

/* --- folders ------------------------------------------------------------------------------------------------------ */

static lk_status picture_folder_read_entries(DIR *stream, const char *path, lk_names *names)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry && errno)
            LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
        if (!entry)
            return LK_OK;
        if (entry->d_name[0] != '.')
            LK_TRY(lk__names_add(names, entry->d_name));
    }
}

/* Sorts the names, so that the data set is the same on every file system. */
static lk_status picture_folder_list_entries(const char *path, lk_names *names)
{
    DIR *stream = opendir(path);
    if (!stream)
        LK_FAIL(LK_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    lk_status status = picture_folder_read_entries(stream, path, names);
    closedir(stream);
    lk__names_sort(names);
    return status;
}

lk_status lk__list_folders(const char *path, lk_names *names)
{
    char inside[PATH_MAX];
    lk_names all = {0};
    lk_status status = picture_folder_list_entries(path, &all);
    for (int64_t i = 0; status == LK_OK && i < all.count; i++) {
        status = picture_folder_join_path(inside, path, all.at[i]);
        if (status == LK_OK && lk__is_folder(inside))
            status = lk__names_add(names, all.at[i]);
    }
    lk__names_free(&all);
    return status;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static int64_t picture_folder_nanoseconds(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

static lk_status picture_folder_add_file(lk_picture_folder *folder, const char *path, const struct stat *status,
                                         int label)
{
    LK_TRY(LK_GROW(folder->files, &folder->capacity, folder->count + 1));
    char *copy = lk__strdup(path);
    if (!copy)
        return LK_ERR_MEMORY;
    folder->files[folder->count++] = (lk_picture_file){
        .path = copy,
        .bytes = status->st_size,
        .modified = picture_folder_nanoseconds(&status->st_mtim),
        .changed = picture_folder_nanoseconds(&status->st_ctim),
        .label = label,
    };
    return LK_OK;
}

static lk_status picture_folder_scan_class(lk_picture_folder *folder, const char *path, int label, int depth);

static lk_status picture_folder_scan_entry(lk_picture_folder *folder, const char *path, int label, int depth)
{
    struct stat status;
    /* A dangling link counts as one broken picture; lstat lets the scan go on. */
    if (stat(path, &status) != 0 && lstat(path, &status) != 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be examined: %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode))
        return picture_folder_scan_class(folder, path, label, depth + 1);
    if (lk_image_is_named(path))
        return picture_folder_add_file(folder, path, &status, label);
    if (folder->others++ == 0)
        snprintf(folder->other, sizeof folder->other, "%s", path);
    return LK_OK;
}

static lk_status picture_folder_scan_names(lk_picture_folder *folder, const char *path, const lk_names *names,
                                           int label, int depth)
{
    char inside[PATH_MAX];
    for (int64_t i = 0; i < names->count; i++) {
        LK_TRY(picture_folder_join_path(inside, path, names->at[i]));
        LK_TRY(picture_folder_scan_entry(folder, inside, label, depth));
    }
    return LK_OK;
}

static lk_status picture_folder_scan_class(lk_picture_folder *folder, const char *path, int label, int depth)
{
    if (depth > MAX_DEPTH)
        LK_FAIL(LK_ERR_FORMAT, "%s: more than %d folders below that of a class", path, MAX_DEPTH);
    lk_names names = {0};
    lk_status status = picture_folder_list_entries(path, &names);
    if (status == LK_OK)
        status = picture_folder_scan_names(folder, path, &names, label, depth);
    lk__names_free(&names);
    return status;
}

/* --- order -------------------------------------------------------------------------------------------------------- */

/* Reorders the files, which are sorted class by class: one file of each class in turn. */
static lk_status picture_folder_interleave(lk_picture_folder *folder)
{
    typedef struct turn {
        int64_t next, end;
    } turn;
    lk_picture_file *mixed = lk__calloc((size_t)folder->count + 1, sizeof *mixed);
    turn *turns = lk__calloc((size_t)folder->classes.count, sizeof *turns);
    if (!mixed || !turns) {
        lk__free(mixed);
        lk__free(turns);
        return LK_ERR_MEMORY;
    }
    int64_t classes = 0, n = 0;
    for (int64_t i = 0; i < folder->count; i++) {
        if (i == 0 || folder->files[i].label != folder->files[i - 1].label)
            turns[classes++].next = i;
        turns[classes - 1].end = i + 1;
    }
    while (n < folder->count) {
        int64_t left = 0;
        for (int64_t i = 0; i < classes; i++) {
            mixed[n++] = folder->files[turns[i].next++];
            if (turns[i].next < turns[i].end)
                turns[left++] = turns[i];
        }
        classes = left;
    }
    lk__free(turns);
    lk__free(folder->files);
    folder->files = mixed;
    folder->capacity = folder->count + 1;
    return LK_OK;
}

static lk_status picture_folder_check_class_count(const char *path, const lk_names *classes)
{
    if (classes->count < 1)
        LK_FAIL(LK_ERR_FORMAT, "%s: no folders in it; expected one for each class, with its pictures", path);
    if (classes->count > LK_MAX_CLASSES)
        LK_FAIL(LK_ERR_FORMAT, "%s: %" PRId64 " folders, expected one for each of at most %d classes", path,
                classes->count, LK_MAX_CLASSES);
    return LK_OK;
}

/* Fails if `path` has a folder that is not one of `classes`. Both lists are sorted. */
static lk_status picture_folder_check_class_names(const char *path, const lk_names *classes)
{
    lk_names there = {0};
    lk_status status = lk__list_folders(path, &there);
    for (int64_t i = 0, c = 0; status == LK_OK && i < there.count; i++) {
        while (c < classes->count && strcmp(classes->at[c], there.at[i]) < 0)
            c++;
        if (c == classes->count || strcmp(classes->at[c], there.at[i]) != 0)
            status = lk__fail(LK_ERR_FORMAT, "%s/%s: the training set has no class of that name", path, there.at[i]);
    }
    lk__names_free(&there);
    return status;
}

static lk_status picture_folder_count_loose(lk_picture_folder *folder, const char *path)
{
    char inside[PATH_MAX];
    lk_names names = {0};
    lk_status status = picture_folder_list_entries(path, &names);
    for (int64_t i = 0; status == LK_OK && i < names.count; i++) {
        if (!lk_image_is_named(names.at[i]))
            continue;
        status = picture_folder_join_path(inside, path, names.at[i]);
        if (status == LK_OK && !lk__is_folder(inside) && folder->loose++ == 0)
            memcpy(folder->first_loose, inside, sizeof inside);
    }
    lk__names_free(&names);
    return status;
}

lk_status lk__picture_folder_scan(const char *path, lk_picture_folder *folder)
{
    char inside[PATH_MAX];
    LK_TRY(picture_folder_check_class_count(path, &folder->classes));
    LK_TRY(picture_folder_check_class_names(path, &folder->classes));
    LK_TRY(picture_folder_count_loose(folder, path));
    for (int label = 0; label < folder->classes.count; label++) {
        LK_TRY(picture_folder_join_path(inside, path, folder->classes.at[label]));
        if (lk__is_folder(inside))
            LK_TRY(picture_folder_scan_class(folder, inside, label, 0));
    }
    if (folder->count == 0)
        LK_FAIL(LK_ERR_FORMAT, "%s: no pictures (.png, .jpg, .jpeg, .pgm, .ppm, .pnm) in its %" PRId64 " folders", path,
                folder->classes.count);
    return picture_folder_interleave(folder);
}

void lk__picture_folder_select(lk_picture_folder *folder, const int64_t *indices, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        lk_picture_file chosen = folder->files[indices[i]];
        folder->files[indices[i]] = folder->files[i];
        folder->files[i] = chosen;
    }
    folder->further = folder->count - count;
    folder->count = count;
}

lk_status lk__picture_folder_add_training(lk_picture_folder *folder, lk_picture_folder *training)
{
    LK_TRY(LK_GROW(folder->files, &folder->capacity, folder->count + training->count));
    memcpy(folder->files + folder->count, training->files, (size_t)training->count * sizeof *training->files);
    folder->further = training->count;
    folder->is_outside = true;
    training->count = 0;
    return LK_OK;
}

void lk__picture_folder_free(lk_picture_folder *folder)
{
    for (int64_t i = 0; i < folder->count + folder->further; i++)
        lk__free(folder->files[i].path);
    lk__free(folder->files);
    lk__names_free(&folder->classes);
    *folder = (lk_picture_folder){0};
}
