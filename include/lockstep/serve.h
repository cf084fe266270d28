/* A server of pages that show the runs below a folder and follow those that train: see docs/report.md. It needs a
 * build with libmicrohttpd. Nothing can be changed through it.
 *
 *     lk_page_server *server;
 *     lk_page_server_new("logs", NULL, &server);
 *     printf("open %s\n", lk_page_server_url(server));
 *     lk_page_server_run(server);
 *     lk_page_server_release(server); */
#ifndef LOCKSTEP_SERVE_H
#define LOCKSTEP_SERVE_H

#include "lockstep/runs.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_serve_opts {
    const char *host; /* name or address of this machine; NULL: 127.0.0.1. With another than a loopback address every
                       * request needs the token that is in the URL. */
    int port;         /* 0 … 65535; 0: any free one */
    /* Gives the command that repeats a run, for its page; freed with free(). It may return NULL. NULL: none is shown.
     */
    char *(*command)(const lk_run *run);
} lk_serve_opts;

typedef struct lk_page_server lk_page_server;

/* Listens, from now on; lk_page_server_run answers. opts: NULL means defaults. Errors: LK_ERR_ARGUMENT (port),
 * LK_ERR_NOT_FOUND (no such folder, or the host does not resolve), LK_ERR_IO (the folder cannot be read; the port is in
 * use; the host is not of this machine), LK_ERR_UNSUPPORTED (a build without libmicrohttpd), LK_ERR_MEMORY. */
LK_API lk_status lk_page_server_new(const char *folder, const lk_serve_opts *opts, lk_page_server **server);

/* The address to open, with the token if there is one. Valid as long as the server. */
LK_API const char *lk_page_server_url(const lk_page_server *server);

/* Answers requests on the calling thread until lk_page_server_stop is called. A folder that cannot be read any more is
 * a warning (lk_log_set); its runs are shown again once it can. Errors: LK_ERR_MEMORY, LK_ERR_IO. */
LK_API lk_status lk_page_server_run(lk_page_server *server);

/* Ends lk_page_server_run, also one that begins later. Any thread and signal handlers may call it. */
LK_API void lk_page_server_stop(lk_page_server *server);
LK_API void lk_page_server_release(lk_page_server *server); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#endif
