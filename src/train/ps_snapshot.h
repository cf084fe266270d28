/* A parameter server's snapshot: all that it needs to go on where it was, in one file that is either the old one or the
 * new one, whole. */
#ifndef LK_TRAIN_PS_SNAPSHOT_H
#define LK_TRAIN_PS_SNAPSHOT_H

#include "train/ps_store.h"

/* Writes it beside `path`, brings it to disk, and renames it. Waits. Errors: LK_ERR_IO, LK_ERR_MEMORY. */
lk_status lk__ps_snapshot_write(ps_store *store, const char *path);

/* A store as it was; *store NULL: there is no such file. Errors: LK_ERR_IO, LK_ERR_FORMAT (damaged, and in what, or of
 * another version), LK_ERR_MEMORY. */
lk_status lk__ps_snapshot_read(const char *path, ps_store **store);

#endif
