/* Downloads the files of data sets into the cache, once. */
#pragma once

#include "lockstep/data.h"

#define LK__FETCH_MAX_URLS 4

/* A file, identified by its content. The checksum is that of the decoded bytes, so it holds for any compressor. */
typedef struct lk_remote_file {
    const char *name; /* without .gz */
    int64_t bytes;
    uint64_t xxh3_high; /* XXH3-128 */
    uint64_t xxh3_low;
} lk_remote_file;

typedef struct lk_fetch_job {
    const char *base_urls[LK__FETCH_MAX_URLS]; /* the file is BASE/NAME.gz; tried in this order; NULL ends the list */
    const lk_remote_file *file;
    const char *dir; /* made if it is missing */
    bool replace;    /* download also if the file exists: it is wrong */
    lk_data_progress_fn progress;
    void *progress_user;
} lk_fetch_job;

typedef struct lk_fetch_reason {
    char text[640];
    bool is_local; /* the failure is this machine's, such as a full disk: no other address helps */
    bool is_cut;   /* the data end too early, though the transfer did not fail */
} lk_fetch_reason;

/* Checks whether a file, plain or compressed, has the content of `file`. LK_ERR_FORMAT: it has not; also LK_ERR_IO,
 * LK_ERR_MEMORY. `reason` names the file. */
lk_status lk__fetch_check(const char *path, const lk_remote_file *file, lk_fetch_reason *reason);

/* Downloads NAME.gz to DIR/NAME.gz.part, resuming an earlier attempt, decodes it and, if its checksum is right, renames
 * it to DIR/NAME: the file appears completely or not at all. Processes that want the same file wait for each other. On
 * failure `reason` is one line that says what each address gave. Returns LK_OK, LK_ERR_IO, LK_ERR_FORMAT (the download
 * is not the file), LK_ERR_INTERRUPTED, LK_ERR_MEMORY. */
lk_status lk__fetch_file(const lk_fetch_job *job, lk_fetch_reason *reason);
