/* A server's answers: the list of runs, a page for each, and events that tell what has changed on them. Knows no
 * network. */
#pragma once

#include "report/live/live_runs.h"

enum { LK_LIVE_TOKEN = 65 }; /* 256 bits as hexadecimal digits */

typedef struct lk_live_site {
    lk_live_runs runs;
    bool is_loopback;          /* only programs on this machine can connect */
    const char *host;          /* the name that was given for the machine; NULL: none */
    char token[LK_LIVE_TOKEN]; /* that every request must have; "": none is needed */
    char cookie[32];           /* the name of the cookie that has it */
    char *(*command)(const lk_run *run);
} lk_live_site;

typedef struct lk_live_request {
    const char *method, *path; /* the path without %XX, or with "http://HOST" before it */
    /* Headers and arguments; NULL: not there. */
    const char *host, *authorization, *cookie, *token; /* cookie: the value of the site's */
    const char *since, *last_event;                    /* a version */
} lk_live_request;

typedef struct lk_live_answer {
    int status;
    const char *type;     /* of the body */
    const char *location; /* with status 303; the token is then to be kept as a cookie */
    lk_bytes body;
    /* Events instead of a body. */
    bool is_stream;
    int64_t run; /* number of the run that they are about; 0: the list */
    uint64_t since;
} lk_live_answer;

/* Errors: LK_ERR_MEMORY. Free answer->body in any case. */
lk_status lk__live_site_answer(lk_live_site *site, const lk_live_request *request, lk_live_answer *answer);

/* Appends events about what has changed since version *since, and sets that to the current one. Errors: LK_ERR_MEMORY.
 */
lk_status lk__live_site_events(lk_live_site *site, int64_t run, uint64_t *since, lk_bytes *out);
