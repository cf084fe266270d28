/* A parameter server's snapshot: all it needs to resume, in one file that is always either the old version or the new
 * one, complete. */
#pragma once

#include "train/parameter_server/ps_store.h"

/* Writes a new file next to `path`, flushes it to disk, and renames it. Waits. Errors: LK_ERR_IO, LK_ERR_MEMORY. */
lk_status lk__ps_snapshot_write(lk_ps_store *store, const char *path);

/* Restores a store; *store NULL: there is no such file. Errors: LK_ERR_IO, LK_ERR_FORMAT (damaged, and where, or of
 * another version), LK_ERR_MEMORY. */
lk_status lk__ps_snapshot_read(const char *path, lk_ps_store **store);
