/* Examines and decodes many picture files with several threads. */
#pragma once

#include "data/pictures/picture_folder.h"
#include "data/reporter.h"
#include "lockstep/image.h"

/* The result does not depend on the number of threads. */
typedef struct lk_decode_job {
    const lk_picture_file *files;
    int64_t count;
    int threads; /* 0 or 1: only the caller's */
    const lk_data_reporter *reporter;
    char **problems;   /* [count]: why a file cannot be used, freed by the caller; NULL: it can */
    bool unreadable;   /* set by both functions: some file could not be read; the next run may be able to */
    lk_image *headers; /* [count]: written by lk__examine_files */
    lk_image wanted;   /* channels, height and width of every decoded picture: read by lk__decode_files */
    uint8_t *images;   /* [count, wanted] */
} lk_decode_job;

/* Both skip files that have a problem already. Errors: LK_ERR_MEMORY, LK_ERR_INTERRUPTED. */
lk_status lk__examine_files(lk_decode_job *job);
lk_status lk__decode_files(lk_decode_job *job);

/* After lk__examine_files: fails with LK_ERR_FORMAT if files without a problem differ in size; the message gives the
 * range of sizes. */
lk_status lk__check_one_size(const lk_decode_job *job);
