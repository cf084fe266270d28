/* Packed caches: what a folder of pictures was decoded to, in one file that is mapped.
 *
 * A page with the header, then images [count,C,H,W] and a byte for each file that the key was made of: 1 where its
 * picture is among the images. Numbers are the machine's own. */
#ifndef LK_DATA_PACKED_FILE_H
#define LK_DATA_PACKED_FILE_H

#include "data/opening.h"
#include "data/samples.h"

#include <limits.h>

/* What the file depends on: paths, sizes and times of pictures, and settings. */
typedef struct lk__packed_key {
    uint64_t high, low;
} lk__packed_key;

typedef struct lk__packed {
    char path[PATH_MAX];    /* of the finished file */
    char written[PATH_MAX]; /* of the one that is being written */
    int lock;               /* held by one process at a time; -1: none */
    int fd;                 /* of `written`; -1: none */
    uint8_t *bytes;         /* mapped: NULL before lk__packed_begin */
    size_t size;
    const lk__opening *opening;
} lk__packed;

/* All that takes long may end with LK_ERR_INTERRUPTED. */

/* Sets path to FOLDER/NAME.pack, makes the folder and waits for whoever writes that file now. After a failure there is
 * nothing to close, and the file, if there is one, can still be read. `problem`, of 512 bytes, says why. `opening` is
 * borrowed until lk__packed_close. Errors: LK_ERR_IO. */
lk_status lk__packed_lock(lk__packed *pack, const char *folder, const char *name, const lk__opening *opening,
                          char *problem);

/* What was packed under this key of so many files: samples without labels and names, and kept[files].
 * LK_ERR_NOT_FOUND where there is none, LK_ERR_STATE where it is of another key, LK_ERR_FORMAT where it is damaged; no
 * message. */
lk_status lk__packed_read(const lk__packed *pack, const lk__packed_key *key, int64_t files, lk__samples *samples,
                          uint8_t *kept);

/* Makes room on the disk for all files' pictures of the sizes in `samples`, and maps it: images are written there.
 * What killed processes have left half-written in the folder is removed. Errors: LK_ERR_IO, with the reason in
 * `problem`. */
lk_status lk__packed_begin(lk__packed *pack, const lk__samples *sizes, int64_t files, uint8_t **images, char *problem);

/* Writes the rest, syncs, and gives the file its name; `samples` has its mapping then. The images are those of kept
 * files, moved together. Errors: LK_ERR_IO, with the reason in `problem`: the images are still there, mapped, and given
 * to `samples` all the same. */
lk_status lk__packed_finish(lk__packed *pack, const lk__packed_key *key, int64_t files, const uint8_t *kept,
                            lk__samples *samples, char *problem);

/* Removes what was begun and not finished, and lets others have the file. */
void lk__packed_close(lk__packed *pack);

#endif
