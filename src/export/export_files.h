/* The files of one export. Each is written beside its place under a name that nothing has yet, and all get their names
 * when all are on disk: what fails before leaves what was there, and two exports to one place do not mix. */
#ifndef LK_EXPORT_EXPORT_FILES_H
#define LK_EXPORT_EXPORT_FILES_H

#include "io/bytes.h"
#include "lockstep/status.h"

#include <limits.h>

enum { LK__EXPORT_FILES = 3 };

typedef struct lk__export_file {
    char place[PATH_MAX], beside[PATH_MAX];
} lk__export_file;

/* Zeroed: none. */
typedef struct lk__export_files {
    int n;
    lk__export_file at[LK__EXPORT_FILES];
} lk__export_files;

/* An empty file, *beside, for what is to be `path`, or where that leads if it is a link. Errors: LK_ERR_IO (also:
 * something else than a file is there), LK_ERR_ARGUMENT (too long a path). */
lk_status lk__export_begin(lk__export_files *files, const char *path, const char **beside);

/* The same with its contents. Errors: also those of `bytes`. */
lk_status lk__export_put(lk__export_files *files, const char *path, const lk__bytes *bytes);

/* LK_OK: gives the files, which are on disk, their names, in their order. Any other status removes them and is given
 * back. */
lk_status lk__export_end(lk__export_files *files, lk_status status);

/* Likewise a folder: one is made, and gets its name with what is in it. It takes the place of nothing. */
lk_status lk__export_begin_folder(const char *path, lk__export_file *folder);
lk_status lk__export_end_folder(const lk__export_file *folder, lk_status status);

#endif
