/* Serves a lk_live_site by HTTP, with libmicrohttpd. One thread does all: it waits for requests, looks once a second
 * what has changed, and sends that to those who listen. A stream of events whose client is slow is not added to until
 * all was sent. */
#include "lockstep/serve.h"

#include "base/status.h"

#include <stddef.h>

#ifdef LK_HAVE_MICROHTTPD

#include "base/clock.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "report/live/live_listen.h"
#include "report/live/live_site.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

enum { MOST_CONNECTIONS = 256, MOST_STREAMS = 128, IDLE_SECONDS = 30 };

static const double LOOK_EACH = 1, ALIVE_EACH = 15;

/* A stream of events. */
typedef struct stream {
    struct stream *next, *before;
    lk_page_server *server;
    struct MHD_Connection *connection;
    int64_t run;
    uint64_t since;
    lk_bytes text; /* to be sent */
    size_t sent;
    double active; /* when something was sent */
    bool is_suspended;
} stream;

struct lk_page_server {
    lk_live_site site;
    struct MHD_Daemon *daemon;
    char *host, url[512];
    int listening, stop, epoll; /* stop: an eventfd */
    stream *streams;
    int stream_count;
    bool is_ending, lacks_memory;
};

/* --- streams ------------------------------------------------------------------------------------------------------ */

static void server_stream_free(void *cls)
{
    stream *s = cls;
    if (s->before)
        s->before->next = s->next;
    else
        s->server->streams = s->next;
    if (s->next)
        s->next->before = s->before;
    s->server->stream_count--;
    lk__bytes_free(&s->text);
    lk__free(s);
}

static ssize_t server_stream_read(void *cls, uint64_t position, char *buffer, size_t most)
{
    (void)position;
    stream *s = cls;
    size_t size = (size_t)lk__min((int64_t)most, (int64_t)(s->text.size - s->sent));
    if (size > 0) {
        memcpy(buffer, s->text.data + s->sent, size);
        s->sent += size;
        return (ssize_t)size;
    }
    if (s->server->is_ending)
        return MHD_CONTENT_READER_END_OF_STREAM;
    s->is_suspended = true;
    MHD_suspend_connection(s->connection);
    return 0;
}

static void server_stream_wake(stream *s)
{
    if (s->is_suspended)
        MHD_resume_connection(s->connection);
    s->is_suspended = false;
}

/* Adds what has changed, if all was sent. A line that says nothing now and then finds out that a client is gone. */
static lk_status server_stream_feed(stream *s, double now)
{
    if (s->sent < s->text.size)
        return LK_OK;
    lk__bytes_clear(&s->text);
    s->sent = 0;
    LK_TRY(lk__live_site_events(&s->server->site, s->run, &s->since, &s->text));
    if (s->text.size == 0 && now - s->active >= ALIVE_EACH)
        lk__bytes_text(&s->text, ":\n\n");
    LK_TRY(lk__bytes_status(&s->text));
    if (s->text.size > 0) {
        s->active = now;
        server_stream_wake(s);
    }
    return LK_OK;
}

static struct MHD_Response *server_stream_begin(lk_page_server *server, struct MHD_Connection *connection,
                                                const lk_live_answer *answer)
{
    stream *s = lk__calloc(1, sizeof *s);
    if (!s)
        return NULL;
    *s = (stream){.next = server->streams,
                  .server = server,
                  .connection = connection,
                  .run = answer->run,
                  .since = answer->since,
                  .active = lk__seconds()};
    lk__bytes_text(&s->text, "retry: 2000\n\n"); /* milliseconds until a client connects again */
    if (s->next)
        s->next->before = s;
    server->streams = s;
    server->stream_count++;
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 1 << 16, server_stream_read, s, server_stream_free);
    if (!response)
        server_stream_free(s);
    return response;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static void server_add_headers(const lk_page_server *server, struct MHD_Response *response,
                               const lk_live_answer *answer)
{
    static const char *const always[][2] = {
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src data:; "
         "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cache-Control", "no-store"},
    };
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        MHD_add_response_header(response, always[i][0], always[i][1]);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
    if (answer->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (answer->status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (answer->location) {
        char cookie[sizeof server->site.cookie + LK_LIVE_TOKEN + 64];
        snprintf(cookie, sizeof cookie, "%s=%s; Path=/; HttpOnly; SameSite=Strict", server->site.cookie,
                 server->site.token);
        MHD_add_response_header(response, MHD_HTTP_HEADER_LOCATION, answer->location);
        MHD_add_response_header(response, MHD_HTTP_HEADER_SET_COOKIE, cookie);
    }
}

static struct MHD_Response *server_make_response(lk_page_server *server, struct MHD_Connection *connection,
                                                 const lk_live_request *request, lk_live_answer *answer)
{
    static const char busy[] = "Too many pages are open.\n";
    if (lk__live_site_answer(&server->site, request, answer) != LK_OK) {
        server->lacks_memory = true;
        return NULL;
    }
    if (answer->is_stream && server->stream_count >= MOST_STREAMS) {
        *answer = (lk_live_answer){.status = MHD_HTTP_SERVICE_UNAVAILABLE, .type = "text/plain"};
        return MHD_create_response_from_buffer(sizeof busy - 1, (void *)(uintptr_t)busy, MHD_RESPMEM_PERSISTENT);
    }
    if (answer->is_stream)
        return server_stream_begin(server, connection, answer);
    return MHD_create_response_from_buffer(answer->body.size, answer->body.data, MHD_RESPMEM_MUST_COPY);
}

static enum MHD_Result server_take(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                                   const char *version, const char *data, size_t *size, void **user)
{
    (void)version, (void)data;
    static char has_headers;
    lk_page_server *server = cls;
    bool may_ask = strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    if (may_ask && !*user) { /* an answer to the first call, before the end of the request, closes the connection */
        *user = &has_headers;
        return MHD_YES;
    }
    if (may_ask && *size > 0) { /* a body that nobody needs: there is no answer before its end */
        *size = 0;
        return MHD_YES;
    }
    lk_live_answer answer = {0};
    const lk_live_request request = {
        .method = method,
        .path = url,
        .host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST),
        .authorization = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION),
        .cookie = MHD_lookup_connection_value(connection, MHD_COOKIE_KIND, server->site.cookie),
        .token = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "token"),
        .since = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "since"),
        .last_event = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Last-Event-ID"),
    };
    struct MHD_Response *response = server_make_response(server, connection, &request, &answer);
    enum MHD_Result result = MHD_NO; /* closes the connection */
    if (response) {
        server_add_headers(server, response, &answer);
        result = MHD_queue_response(connection, (unsigned)answer.status, response);
        MHD_destroy_response(response);
    }
    lk__bytes_free(&answer.body);
    return result;
}

/* Leaves an address with %00 as it is, which would otherwise end there. */
static size_t server_unescape(void *cls, struct MHD_Connection *connection, char *text)
{
    (void)cls, (void)connection;
    return strstr(text, "%00") ? strlen(text) : MHD_http_unescape(text);
}

/* Messages of the library are about single connections, which others may break as they like. */
static void server_drop_message(void *cls, const char *format, va_list arguments)
{
    (void)cls, (void)format, (void)arguments;
}

/* --- the server --------------------------------------------------------------------------------------------------- */

static lk_status server_make_token(lk_live_site *site)
{
    unsigned char bytes[(LK_LIVE_TOKEN - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        LK_FAIL(LK_ERR_IO, "no random token can be made: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(site->token + 2 * i, 3, "%02x", (unsigned)bytes[i]);
    return LK_OK;
}

static lk_status server_start(lk_page_server *server, int port)
{
    lk_cluster_address named = {.port = port};
    lk_address address;
    char text[LK_ADDRESS_TEXT];
    if (port < 0 || port > UINT16_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "--port %d: must be from 0, which takes any free one, to %d", port, UINT16_MAX);
    if (strlen(server->host) >= sizeof named.host)
        LK_FAIL(LK_ERR_NOT_FOUND, "--host: '%.60s…' is no name of a host", server->host);
    memcpy(named.host, server->host, strlen(server->host) + 1);
    LK_TRY(lk__address_resolve("--host", &named, &address));
    LK_TRY(lk__live_listen(&address, &server->listening));
    server->site.is_loopback = address.is_loopback;
    if (!address.is_loopback)
        LK_TRY(server_make_token(&server->site));
    snprintf(server->site.cookie, sizeof server->site.cookie, "lockstep-%d", address.port);
    if (address.is_unspecified) /* all of this machine's */
        gethostname(address.numeric, sizeof address.numeric - 1);
    address.is_ipv6 = strchr(address.numeric, ':');
    lk__address_print(&address, text);
    snprintf(server->url, sizeof server->url, "http://%s/%s%s", text, *server->site.token ? "?token=" : "",
             server->site.token);
    server->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->daemon = server->stop < 0
                         ? NULL
                         : MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
                                            server_take, server, MHD_OPTION_EXTERNAL_LOGGER, server_drop_message, NULL,
                                            MHD_OPTION_UNESCAPE_CALLBACK, server_unescape, NULL,
                                            MHD_OPTION_LISTEN_SOCKET, server->listening, MHD_OPTION_CONNECTION_LIMIT,
                                            (unsigned)MOST_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                                            (unsigned)IDLE_SECONDS, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        server->daemon ? MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info)
        LK_FAIL(LK_ERR_IO, "%s: libmicrohttpd cannot serve there: %s", text, strerror(errno));
    server->epoll = info->epoll_fd;
    return LK_OK;
}

lk_status lk_page_server_new(const char *folder, const lk_serve_opts *opts, lk_page_server **server)
{
    const lk_serve_opts defaults = {0};
    opts = opts ? opts : &defaults;
    lk_page_server *s = *server = lk__calloc(1, sizeof *s);
    if (!s)
        return LK_ERR_MEMORY;
    s->listening = s->stop = -1;
    s->site.command = opts->command;
    s->site.host = s->host = lk__strdup(opts->host ? opts->host : "127.0.0.1");
    lk_status status = s->host ? lk__live_runs_open(&s->site.runs, folder) : LK_ERR_MEMORY;
    if (status == LK_OK)
        status = lk__live_runs_look(&s->site.runs); /* so that the first page has runs */
    if (status == LK_OK)
        status = server_start(s, opts->port);
    if (status != LK_OK) {
        lk_page_server_release(s);
        *server = NULL;
    }
    return status;
}

const char *lk_page_server_url(const lk_page_server *server)
{
    return server->url;
}

/* Waits for a request, a call of lk_page_server_stop, or the next look. Returns whether to go on. */
static bool server_wait(const lk_page_server *server, double until)
{
    struct pollfd files[2] = {{.fd = server->stop, .events = POLLIN}, {.fd = server->epoll, .events = POLLIN}};
    MHD_UNSIGNED_LONG_LONG wanted;
    double left = server->site.runs.has_more ? 0 : 1000 * (until - lk__seconds());
    if (MHD_get_timeout(server->daemon, &wanted) == MHD_YES && (double)wanted < left)
        left = (double)wanted;
    poll(files, 2, left > 0 ? (int)left + 1 : 0);
    return !(files[0].revents & POLLIN);
}

lk_status lk_page_server_run(lk_page_server *server)
{
    lk_status status = LK_OK;
    for (double next = 0; status == LK_OK && server_wait(server, next);) {
        double now = lk__seconds();
        if (MHD_run(server->daemon) != MHD_YES)
            status = lk__fail(LK_ERR_IO, "%s: libmicrohttpd cannot go on: %s", server->url, strerror(errno));
        if (server->lacks_memory)
            status = LK_ERR_MEMORY;
        if (status != LK_OK || (now < next && !server->site.runs.has_more))
            continue;
        status = lk__live_runs_look(&server->site.runs);
        for (stream *s = server->streams; s && status == LK_OK; s = s->next)
            status = server_stream_feed(s, now);
        next = now + LOOK_EACH;
    }
    return status;
}

void lk_page_server_stop(lk_page_server *server)
{
    int saved = errno;
    (void)!write(server->stop, &(uint64_t){1}, sizeof(uint64_t));
    errno = saved;
}

void lk_page_server_release(lk_page_server *server)
{
    if (!server)
        return;
    server->is_ending = true;
    for (stream *s = server->streams; s; s = s->next) /* no connection may be suspended when the daemon stops */
        server_stream_wake(s);
    if (server->daemon) {
        /* Let the streams end whole, of clients that read what they are sent. */
        for (int i = 0; i < 50 && server->streams; i++) {
            MHD_run(server->daemon);
            poll(&(struct pollfd){.fd = server->epoll, .events = POLLIN}, 1, 10);
        }
        MHD_stop_daemon(server->daemon); /* closes the socket */
    } else if (server->listening >= 0) {
        close(server->listening);
    }
    if (server->stop >= 0)
        close(server->stop);
    lk__live_runs_free(&server->site.runs);
    LK_FREE_ALL(server->host, server);
}

#else

struct lk_page_server {
    char nothing;
};

lk_status lk_page_server_new(const char *folder, const lk_serve_opts *opts, lk_page_server **server)
{
    (void)folder, (void)opts;
    *server = NULL;
    LK_FAIL(LK_ERR_UNSUPPORTED, "this build has no libmicrohttpd, which serves pages: install libmicrohttpd-dev and "
                                "build again, or write a page by lockstep report --html");
}

const char *lk_page_server_url(const lk_page_server *server)
{
    (void)server;
    return NULL;
}

lk_status lk_page_server_run(lk_page_server *server)
{
    (void)server;
    return LK_OK;
}

void lk_page_server_stop(lk_page_server *server)
{
    (void)server;
}

void lk_page_server_release(lk_page_server *server)
{
    (void)server;
}

#endif
