/* Files of data sets, downloaded once into the cache. */
#ifndef LK_DATA_FETCH_H
#define LK_DATA_FETCH_H

#include "lockstep/data.h"

#define LK__FETCH_MAX_URLS 4

/* A file by its content. The checksum is over the decoded bytes, so it holds for any compressor. */
typedef struct lk__remote_file {
    const char *name; /* without .gz */
    int64_t bytes;
    uint64_t xxh3_high; /* XXH3-128 */
    uint64_t xxh3_low;
} lk__remote_file;

typedef struct lk__fetch_job {
    const char *base_urls[LK__FETCH_MAX_URLS]; /* BASE/NAME.gz; tried in this order; NULL: none */
    const lk__remote_file *file;
    const char *dir; /* made where it is missing */
    bool replace;    /* what is there already is of no use */
    lk_data_progress_fn progress;
    void *progress_user;
} lk__fetch_job;

typedef struct lk__fetch_reason {
    char text[640];
    bool is_here; /* the reason is this machine's, such as a full disk: no other address helps */
    bool is_cut;  /* what came breaks off, though nobody has said so */
} lk__fetch_reason;

/* Whether a file, plain or compressed, is the one that is meant. LK_ERR_FORMAT: it is not; LK_ERR_IO, LK_ERR_MEMORY.
 * `reason` names it. */
lk_status lk__fetch_check(const char *path, const lk__remote_file *file, lk__fetch_reason *reason);

/* Downloads NAME.gz to DIR/NAME.gz.part, going on from what an earlier try left there, decodes it and, when its
 * checksum is right, gives it the name DIR/NAME: the file appears whole or not at all. Processes that want the same
 * file wait for each other. On failure `reason` is one line that says what came of each address. Returns LK_OK,
 * LK_ERR_IO, LK_ERR_FORMAT (what came is not the file), LK_ERR_INTERRUPTED, LK_ERR_MEMORY. */
lk_status lk__fetch_file(const lk__fetch_job *job, lk__fetch_reason *reason);

#endif
