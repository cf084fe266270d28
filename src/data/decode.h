/* Many pictures decoded by several threads. */
#ifndef LK_DATA_DECODE_H
#define LK_DATA_DECODE_H

#include "data/folder.h"
#include "data/opening.h"
#include "lockstep/image.h"

/* What is not wanted of the files themselves is 0: sizes, channels. problems[count]: why a file cannot be used, freed
 * by the caller; NULL: it can. The bytes do not depend on the threads. */
typedef struct lk__decode_job {
    const lk__folder_file *files;
    int64_t count;
    int threads; /* 0 and 1: the caller's */
    const lk__opening *opening;
    char **problems;
    bool unreadable;   /* written by both: some file could not be read, which may be otherwise tomorrow */
    lk_image *headers; /* [count]: written by lk__examine_files */
    lk_image wanted;   /* channels, height and width of all: read by lk__decode_files */
    uint8_t *images;   /* [count, wanted] */
} lk__decode_job;

/* Both leave out what has a problem already. Errors: LK_ERR_MEMORY, LK_ERR_INTERRUPTED. */
lk_status lk__examine_files(lk__decode_job *job);
lk_status lk__decode_files(lk__decode_job *job);

/* Of what was examined: LK_ERR_FORMAT where files without a problem have several sizes; the message has their range. */
lk_status lk__check_one_size(const lk__decode_job *job);

#endif
