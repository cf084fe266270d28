/* Files that survive a crash: under its final name a file is always complete and on disk. It is written under a
 * temporary name, flushed with fsync and renamed, and then its folder is flushed too, because a rename lasts only once
 * the folder is on disk.
 *
 * Tests that kill a program while it writes set $LOCKSTEP_CHECKPOINT_SLOW. Then every 64 KiB and each of these steps
 * take that many milliseconds longer. */
#pragma once

#include "lockstep/status.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file that is being written. A zeroed one is closed. */
typedef struct lk_durable_file {
    int fd;
    char *path;
    int64_t bytes;
    void *hash; /* XXH3_state_t */
} lk_durable_file;

/* Creates the file, or overwrites it: until it is finished, its old bytes may follow. Errors: LK_ERR_IO, LK_ERR_MEMORY.
 */
lk_status lk__durable_open(lk_durable_file *file, const char *path);
lk_status lk__durable_put(lk_durable_file *file, const void *data, size_t bytes);

/* Flushes the file to disk and closes it. *hash: XXH3-64 of all its bytes. Errors: LK_ERR_IO. */
lk_status lk__durable_finish(lk_durable_file *file, uint64_t *hash);

/* Writes a whole file under its own name, which is not replaced atomically: open, put, finish. */
lk_status lk__durable_create(const char *path, const void *data, size_t bytes, uint64_t *hash);

/* Closes the file as it is. Does nothing if it is closed. */
void lk__durable_abandon(lk_durable_file *file);

/* Flushes a folder's list of names to disk, unless the file system cannot do that. Errors: LK_ERR_IO. */
lk_status lk__sync_folder(const char *folder);

/* The same of the folder that `path` lies in. */
lk_status lk__sync_parent(const char *path);

/* Makes the temporary name, "PATH.tmp", that a file has until it is complete. Errors: LK_ERR_ARGUMENT (the path is too
 * long). */
lk_status lk__durable_temporary(const char *path, char temporary[PATH_MAX]);

/* Gives the file `from` the permissions of the file `to`, which it is to replace, if there is one. A file system
 * without permissions is no error. */
void lk__keep_mode(const char *from, const char *to);

/* Ends the writing of the file `from`, which is closed and on disk. With status LK_OK it is renamed to `to`, whose
 * permissions it takes, and the rename is flushed to disk; with any other status it is removed and that status
 * returned. Errors: LK_ERR_IO. */
lk_status lk__durable_rename(const char *from, const char *to, lk_status status);

/* Finds the file that a new one for `path` replaces: `path` itself or, if that is a link, the link's target. Errors:
 * LK_ERR_IO (there is something else than a file, or the link leads nowhere), LK_ERR_ARGUMENT (the path is too long).
 */
lk_status lk__durable_target(const char *path, char target[PATH_MAX]);

/* Opens a pipe or another stream for writing alone: a writer that is its own reader would never learn that nobody
 * reads. Does not wait for a reader. Returns -1, with errno set, on failure. */
int lk__stream_open(const char *path);

/* If `path` is neither a file nor a folder but, say, a pipe or a terminal, writes the bytes into it and sets
 * *is_stream. Does not wait for a pipe's reader. Errors: LK_ERR_IO. */
lk_status lk__write_stream(const char *path, const void *data, size_t bytes, bool *is_stream);

/* Writes a whole file, replacing an existing one or, if `path` is a link, its target; or writes into a stream. On
 * failure the old file stays. Errors: LK_ERR_IO, LK_ERR_MEMORY, LK_ERR_ARGUMENT (the path is too long). */
lk_status lk__durable_write(const char *path, const void *data, size_t bytes);

/* Renames the folder `from` to `to`, in the same parent folder, and flushes the rename to disk. If `to` exists, the two
 * exchange their names and *swapped is set to true. A file system that cannot exchange names atomically gives the old
 * folder a name that begins with LK_REPLACED for a moment; if the program is killed at that moment,
 * lk__durable_restore gives it its name back. Errors: LK_ERR_IO. */
#define LK_REPLACED ".replaced-"
lk_status lk__durable_rename_folder(const char *from, const char *to, bool *swapped);

/* Renames a folder back to `path` if a killed program left it under its LK_REPLACED name and `path` does not exist. */
void lk__durable_restore(const char *path);

/* Removes a folder of files. A missing folder counts as removed; of a symbolic link only the link is removed; a folder
 * that holds a folder stays as it is. Errors: LK_ERR_IO. */
lk_status lk__remove_folder(const char *folder);

/* Checks that lk__remove_folder would find no folder inside. Errors: LK_ERR_IO (there is one). */
lk_status lk__check_removable(const char *folder);
