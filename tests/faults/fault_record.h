/* A log of what a run changes in the folder $LOCKSTEP_FAULT_ROOT, an absolute path without symbolic links, for
 * power_loss.c. $LOCKSTEP_FAULT_LOG names the file. A line for each change:
 *
 *     create PATH             a new file               mkdir PATH
 *     truncate PATH SIZE                               rename PATH TO
 *     write PATH OFFSET SIZE  and then SIZE bytes      exchange PATH TO
 *     sync PATH               a file or a folder       unlink PATH, rmdir PATH
 *
 * Paths are relative to the root, "." is the root. They must have no spaces. Changes through shared mappings and stdio
 * are not recorded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Locks the log, so that it has the order of the changes; unlock it after the change. False: nothing is recorded. */
bool fault_record_lock(void);
void fault_record_unlock(void);

/* The caller holds the lock, and the change has been made. Paths outside the root are ignored. */
void fault_record(const char *change, const char *path, const char *to);
void fault_record_truncate(int fd, long size);
void fault_record_write(int fd, const void *data, size_t size, long offset);
void fault_record_sync(int fd);
