/* Files that are on disk, whole, when they have their names: written beside their place, brought to disk, renamed, and
 * the folder brought to disk too, since a new name is there only once its folder is.
 *
 * For tests of programs that are killed while they write, $LOCKSTEP_CHECKPOINT_SLOW is a number of milliseconds that
 * each piece of 64 KiB, and each of these steps, takes longer. */
#ifndef LK_IO_DURABLE_H
#define LK_IO_DURABLE_H

#include "lockstep/status.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* A file that is being written; zeroed is closed. */
typedef struct lk__durable_file {
    int fd;
    char *path;
    int64_t bytes;
    void *hash; /* XXH3_state_t */
} lk__durable_file;

/* A new file, or one that is emptied. Errors: LK_ERR_IO, LK_ERR_MEMORY. */
lk_status lk__durable_open(lk__durable_file *file, const char *path);
lk_status lk__durable_put(lk__durable_file *file, const void *data, size_t bytes);

/* Brings it to disk and closes it; *hash: XXH3-64 of all its bytes. */
lk_status lk__durable_finish(lk__durable_file *file, uint64_t *hash);

/* Closes it as it is; nothing where it is closed. */
void lk__durable_abandon(lk__durable_file *file);

/* Brings to disk which names a folder has. */
lk_status lk__sync_folder(const char *folder);

/* Where what is to be `path` is written until it is whole. Errors: LK_ERR_ARGUMENT (too long a path). */
lk_status lk__durable_beside(const char *path, char beside[PATH_MAX]);

/* Of a file that is closed and on disk: status LK_OK gives it the name `to`, and brings that to disk; any other removes
 * it and is given back. Errors: LK_ERR_IO. */
lk_status lk__durable_rename(const char *from, const char *to, lk_status status);

/* A new file in the place of `path`, or what was there. Errors: LK_ERR_IO, LK_ERR_ARGUMENT (too long a path). */
lk_status lk__durable_write(const char *path, const void *data, size_t bytes);

/* Gives the folder `from` the name `to`, beside it, and brings that to disk; a folder that has this name already has
 * the name `from` afterwards, at no time none. Where the file system cannot have two change places its name begins with
 * LK_REPLACED for a moment, or until lk__durable_take_back. *swapped: it was so. Errors: LK_ERR_IO. */
#define LK_REPLACED ".replaced-"
lk_status lk__durable_rename_folder(const char *from, const char *to, int *swapped);

/* A folder that was to be replaced has its name again where no other has it: who replaced it was killed. */
void lk__durable_take_back(const char *path);

/* Removes a folder of files; what is not there counts as removed, of a link the link alone goes, and one that holds a
 * folder stays as it is. Errors: LK_ERR_IO. */
lk_status lk__remove_folder(const char *folder);

/* Whether that can be done. Errors: LK_ERR_IO (it holds a folder). */
lk_status lk__check_removable(const char *folder);

#endif
