/* Downloads over HTTP. Only http.c includes libcurl; in a build without it (LK_HAVE_CURL not defined) every download
 * fails with a reason. */
#pragma once

#include "data/reporter.h"

typedef struct lk_http_request {
    const char *url;
    int fd;         /* open for writing, at `offset` */
    int64_t offset; /* bytes that the file has already: only the rest is requested */
    int64_t limit;  /* the download fails beyond this size of the file */
    lk_data_reporter reporter;
} lk_http_request;

typedef struct lk_http_answer {
    bool discard;     /* failed, and the bytes received so far are useless: retry from offset 0, or not at all */
    bool is_local;    /* failed, because the bytes could not be written */
    char reason[256]; /* why the download failed */
} lk_http_answer;

extern const bool lk__http_available;

/* Never hangs: it limits the time to connect, and gives up a transfer that hardly moves. Returns LK_OK, LK_ERR_IO,
 * LK_ERR_INTERRUPTED (the reporter asked to stop); bytes received before a failure stay written. An offset at or beyond
 * the end of the remote file (HTTP status 416) counts as success. */
lk_status lk__http_get(const lk_http_request *request, lk_http_answer *answer);
