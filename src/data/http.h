/* Downloads over HTTP. The only file that knows libcurl is http.c; without it (LK_HAVE_CURL not defined) every download
 * fails with a reason. */
#ifndef LK_DATA_HTTP_H
#define LK_DATA_HTTP_H

#include "data/opening.h"

typedef struct lk__http_request {
    const char *url;
    int fd;         /* open for writing, at `offset` */
    int64_t offset; /* bytes that are there already: only the rest is asked for */
    int64_t limit;  /* more bytes than this in all are refused */
    lk__opening opening;
} lk__http_request;

typedef struct lk__http_answer {
    bool discard;     /* failed, and what has arrived is of no use: begin again with offset 0, or not at all */
    bool is_here;     /* failed, for what came could not be written */
    char reason[256]; /* of a failure */
} lk__http_answer;

extern const bool lk__http_available;

/* Never hangs: connecting is limited in time, and so is a transfer that hardly moves.
 * Returns LK_OK, LK_ERR_IO, LK_ERR_INTERRUPTED (progress said so); bytes that arrived before a failure stay written. An
 * offset that the file does not reach beyond (416) counts as success. */
lk_status lk__http_get(const lk__http_request *request, lk__http_answer *answer);

#endif
