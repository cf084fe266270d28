/* Folders of pictures: a folder a class. */
#ifndef LK_DATA_FOLDER_H
#define LK_DATA_FOLDER_H

#include "data/samples.h"

#include <limits.h>

typedef struct lk__folder_file {
    char *path; /* as it is opened */
    int64_t bytes;
    int64_t modified; /* nanoseconds */
    int32_t label;
} lk__folder_file;

/* Zeroes: nothing. */
typedef struct lk__folder {
    lk__names classes; /* names of the folders, sorted */
    lk__folder_file *files;
    int64_t count, capacity;
    int64_t others; /* files that are no pictures by their names */
    char other[PATH_MAX];
    int64_t loose; /* pictures in no class's folder */
    char first_loose[PATH_MAX];
} lk__folder;

bool lk__is_folder(const char *path);

/* The folders right below `path`, sorted by name; none whose name begins with a dot. Errors: LK_ERR_IO, LK_ERR_MEMORY.
 */
lk_status lk__list_folders(const char *path, lk__names *names);

/* Finds the pictures below `path`, in folders named by folder->classes, which are set; where there are folders of other
 * names that is an error. The files of a class, at any depth, are sorted by their paths; then one of each class follow
 * each other in turn, so that the first of them are of all classes: an order of names alone.
 * Errors: LK_ERR_IO, LK_ERR_FORMAT, LK_ERR_MEMORY. */
lk_status lk__folder_scan(const char *path, lk__folder *folder);

/* Leaves the given files, in their order. */
void lk__folder_select(lk__folder *folder, const int64_t *indices, int64_t count);

void lk__folder_free(lk__folder *folder);

#endif
