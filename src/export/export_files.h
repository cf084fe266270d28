/* The files of one export. Each is written under a unique temporary name in its folder. When all are on disk they are
 * renamed. A failure leaves the old files as they were, and two exports to one path do not mix. */
#pragma once

#include "io/bytes.h"
#include "lockstep/status.h"

#include <limits.h>
#include <stdbool.h>

enum { LK__EXPORT_FILES = 3 };

typedef struct lk_export_file {
    char path[PATH_MAX], temporary[PATH_MAX];
    bool has_exchanged, is_new; /* how it got its name */
} lk_export_file;

/* Zeroed: no files. */
typedef struct lk_export_files {
    int n;
    lk_export_file at[LK__EXPORT_FILES];
} lk_export_files;

/* Creates an empty file *temporary, which is to become `path`, or the target if `path` is a link. *temporary points
 * into `files`. Errors: LK_ERR_IO (also if `path` exists and is not a file), LK_ERR_ARGUMENT (the path is too long). */
lk_status lk__export_begin(lk_export_files *files, const char *path, const char **temporary);

/* Adds a file with these contents and flushes it to disk. Errors: also those of `bytes`. */
lk_status lk__export_put(lk_export_files *files, const char *path, const lk_bytes *bytes);

/* If `status` is LK_OK, renames the files in the order in which they were added; all are on disk by then. If one cannot
 * be renamed, those before it get their old contents back. With another `status` removes the files and returns it. If
 * only the flush of the folder fails (LK_ERR_IO), the new files stay. */
lk_status lk__export_end(lk_export_files *files, lk_status status);

/* Like lk__export_begin and lk__export_end, for a folder. Nothing is replaced: `path` must not exist. */
lk_status lk__export_begin_folder(const char *path, lk_export_file *folder);
lk_status lk__export_end_folder(const lk_export_file *folder, lk_status status);
