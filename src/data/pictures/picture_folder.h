/* Finds the picture files of a data set that has one folder for each class. */
#pragma once

#include "data/samples.h"

#include <limits.h>

typedef struct lk_picture_file {
    char *path;
    int64_t bytes;
    int64_t modified; /* nanoseconds */
    int64_t changed;  /* the same of the file's status, which no program can set back */
    int32_t label;
} lk_picture_file;

/* The files of one split. Zeroes are an empty one. */
typedef struct lk_picture_folder {
    lk_names classes; /* names of the classes' folders, sorted */
    lk_picture_file *files;
    int64_t count, capacity;
    int64_t further; /* files behind these: pictures of the training set that are not of the split */
    bool is_outside; /* the files of the split are not of the training set */
    int64_t others;  /* files whose names are not those of pictures */
    char other[PATH_MAX];
    int64_t loose; /* pictures outside the classes' folders */
    char first_loose[PATH_MAX];
} lk_picture_folder;

bool lk__is_folder(const char *path);

/* Lists the folders directly inside `path`, sorted by name, without those whose name begins with a dot.
 * Errors: LK_ERR_IO, LK_ERR_MEMORY. */
lk_status lk__list_folders(const char *path, lk_names *names);

/* Finds the pictures inside `path`, in the folders named by folder->classes, which the caller has set; a folder of
 * another name is an error. The files of a class, at any depth, are sorted by their paths; then the classes take turns,
 * one file each, so that the first files cover all classes. The order depends on names alone.
 * Errors: LK_ERR_IO, LK_ERR_FORMAT, LK_ERR_MEMORY. */
lk_status lk__picture_folder_scan(const char *path, lk_picture_folder *folder);

/* Moves the files whose indices are not given behind the others. `indices` are ascending. */
void lk__picture_folder_select(lk_picture_folder *folder, const int64_t *indices, int64_t count);

/* Moves the files of `training` behind those of `folder`, which are then outside of the training set.
 * Errors: LK_ERR_MEMORY. */
lk_status lk__picture_folder_add_training(lk_picture_folder *folder, lk_picture_folder *training);

void lk__picture_folder_free(lk_picture_folder *folder);
