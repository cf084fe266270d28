/* Packed caches: the decoded pictures of a folder in one file, which later runs map into memory.
 *
 * The file is a page with the header, then images [count,C,H,W], then one byte for each picture file: 1 if its picture
 * is among the images. Numbers are in the machine's own byte order. */
#pragma once

#include "data/reporter.h"
#include "data/samples.h"

#include <limits.h>

/* A hash of everything that the content depends on: paths, sizes and times of the picture files, and settings. */
typedef struct lk_packed_key {
    uint64_t high, low;
} lk_packed_key;

typedef struct lk_packed_file {
    char path[PATH_MAX];    /* the finished file */
    char written[PATH_MAX]; /* the file while it is being written */
    int lock;               /* lock file, held by one process at a time; -1: not open */
    int fd;                 /* `written`; -1: not open */
    uint8_t *bytes;         /* mapping of `written`; NULL before lk__packed_begin */
    size_t size;
    const lk_data_reporter *reporter;
} lk_packed_file;

/* All functions below that may take long report progress, and may fail with LK_ERR_INTERRUPTED. */

/* Sets pack->path to FOLDER/NAME.pack, makes the folder and takes the file's lock; waits while another process writes
 * the file. After a failure there is nothing to close, and an existing file can still be read. `problem`, of 512 bytes,
 * gets the reason. `reporter` is borrowed until lk__packed_close. Errors: LK_ERR_IO. */
lk_status lk__packed_lock(lk_packed_file *pack, const char *folder, const char *name, const lk_data_reporter *reporter,
                          char *problem);

/* Maps the file: `samples` gets the images, without labels and names, and kept[files] the marks. Returns, without a
 * message, LK_ERR_NOT_FOUND if there is no file, LK_ERR_STATE if it has another key, LK_ERR_FORMAT if it is damaged. */
lk_status lk__packed_read(const lk_packed_file *pack, const lk_packed_key *key, int64_t files, lk_samples *samples,
                          uint8_t *kept);

/* Begins a new file: reserves disk space for the pictures of all files, of the sizes in `sizes`, and maps it; the
 * caller writes the images to *images. Removes files that killed processes have left half-written in the folder.
 * Errors: LK_ERR_IO, with the reason in `problem`. */
lk_status lk__packed_begin(lk_packed_file *pack, const lk_samples *sizes, int64_t files, uint8_t **images,
                           char *problem);

/* Writes header and marks, syncs, and renames the file to pack->path. The caller has moved the images of the kept files
 * together. `samples` gets the mapping, also after LK_ERR_IO: then the images are still in memory, but not stored.
 * Errors: LK_ERR_IO, with the reason in `problem`. */
lk_status lk__packed_finish(lk_packed_file *pack, const lk_packed_key *key, int64_t files, const uint8_t *kept,
                            lk_samples *samples, char *problem);

/* Instead of lk__packed_finish: `samples` gets the mapping, and the file is not stored. */
void lk__packed_keep_in_memory(lk_packed_file *pack, lk_samples *samples);

/* Removes a file that was begun but not finished, and releases the lock. */
void lk__packed_close(lk_packed_file *pack);
