#include "report/live/live_site.h"

#include "base/minmax.h"
#include "base/status.h"
#include "report/live/live_row.h"
#include "report/page_frame.h"
#include "report/page_html.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MOST_ROWS = 2000, MOST_HOST = 256 };

/* --- who may ask -------------------------------------------------------------------------------------------------- */

/* Takes as long for a token that is wrong at its beginning as for one that is wrong at its end. */
static bool site_is_token(const lk_live_site *site, const char *given)
{
    unsigned differs = 0;
    size_t length = given ? strlen(given) : 0;
    for (size_t i = 0; i < LK_LIVE_TOKEN - 1; i++)
        differs |= (unsigned)(unsigned char)site->token[i] ^ (i < length ? (unsigned)(unsigned char)given[i] : 256U);
    return differs == 0 && length == LK_LIVE_TOKEN - 1;
}

static bool site_has_token(const lk_live_site *site, const lk_live_request *request)
{
    static const char bearer[] = "Bearer ";
    const char *given = request->authorization;
    bool is_bearer = given && strncasecmp(given, bearer, sizeof bearer - 1) == 0;
    return !*site->token || site_is_token(site, request->cookie) || site_is_token(site, request->token) ||
           (is_bearer && site_is_token(site, given + sizeof bearer - 1));
}

/* Copies the host of "host:port" or "[address]:port"; the port may be missing. */
static bool site_read_host(const char *header, bool is_bracketed, char host[MOST_HOST])
{
    const char *begin = header + is_bracketed;
    size_t length = strcspn(begin, is_bracketed ? "]" : ":");
    const char *rest = begin + length;
    if (length == 0 || length >= MOST_HOST || (is_bracketed && *rest++ != ']'))
        return false;
    memcpy(host, begin, length);
    host[length] = '\0';
    return *rest == '\0' || (*rest == ':' && rest[1 + strspn(rest + 1, "0123456789")] == '\0');
}

/* A page of another site can ask for this one under a name of its own, which it lets stand for our address (DNS
 * rebinding), and read what comes. Its name is then in the request. An address cannot be redirected so. */
static bool site_is_asked_by_name(const lk_live_site *site, const char *header)
{
    char host[MOST_HOST], own[MOST_HOST] = "";
    struct in_addr v4;
    struct in6_addr v6;
    bool is_bracketed = header && *header == '[';
    if (!header || !site_read_host(header, is_bracketed, host))
        return false;
    if (is_bracketed)
        return inet_pton(AF_INET6, host, &v6) == 1 && (!site->is_loopback || IN6_IS_ADDR_LOOPBACK(&v6));
    if (inet_pton(AF_INET, host, &v4) == 1)
        return !site->is_loopback || ntohl(v4.s_addr) >> 24 == 127;
    if (strcasecmp(host, "localhost") == 0)
        return true;
    return !site->is_loopback && ((site->host && strcasecmp(host, site->host) == 0) ||
                                  (gethostname(own, sizeof own - 1) == 0 && *own && strcasecmp(host, own) == 0));
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

static void site_put_about(const lk_live_runs *runs, lk_bytes *out)
{
    int64_t training = 0;
    while (training < runs->count && runs->at[training]->trains)
        training++;
    lk__html_text(out, runs->folder);
    lk__bytes_format(out, " · %lld run%s", (long long)runs->count, runs->count == 1 ? "" : "s");
    if (training > 0)
        lk__bytes_format(out, ", %lld of them train%s", (long long)training, training == 1 ? "s" : "");
}

static void site_put_rows(const lk_live_runs *runs, lk_bytes *out)
{
    int64_t shown = lk__min(runs->count, MOST_ROWS), left_out = runs->count - shown + runs->left_out;
    lk__bytes_text(out, "<tbody id=\"runs\">\n");
    for (int64_t i = 0; i < shown; i++) {
        if (runs->at[i]->row.size > 0)
            lk__bytes_text(out, (const char *)runs->at[i]->row.data);
        lk__bytes_char(out, '\n');
    }
    if (left_out > 0)
        lk__bytes_format(out, "<tr><td colspan=\"9\">… and %lld older ones: serve a folder below</td></tr>\n",
                         (long long)left_out);
    lk__bytes_text(out, "</tbody>\n");
}

static void site_put_note(const lk_live_runs *runs, lk_bytes *out)
{
    lk__bytes_text(out, "<div id=\"note\">");
    if (runs->problem) {
        lk__bytes_text(out, "<p class=\"note\">");
        lk__html_text(out, runs->problem);
        lk__bytes_text(out, "</p>");
    } else if (runs->count == 0) {
        lk__bytes_text(out, "<p>There are no runs yet: <code>lockstep train --log-dir FOLDER</code> leaves them, in a "
                            "folder below this one.</p>");
    }
    lk__bytes_text(out, "</div>\n");
}

static lk_status site_put_list(const lk_live_runs *runs, lk_bytes *out)
{
    lk_bytes about = {0};
    char events[64];
    snprintf(events, sizeof events, "/events?since=%llu", (unsigned long long)runs->version);
    site_put_about(runs, &about);
    lk__bytes_char(&about, '\0');
    lk_status status = lk__bytes_status(&about);
    if (status == LK_OK) {
        const lk_page_frame frame = {
            .title = "Runs", .about = (const char *)about.data, .is_served = true, .events = events};
        lk__page_begin(out, &frame);
        lk__bytes_text(out, "<section>\n");
        site_put_note(runs, out);
        lk__bytes_text(out, "<div class=\"scroll\" tabindex=\"0\"><table class=\"runs\">\n");
        lk__live_put_columns(out);
        site_put_rows(runs, out);
        lk__bytes_text(out, "</table></div></section>\n");
        lk__page_end(out, &frame);
    }
    lk__bytes_free(&about);
    return status;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

/* Writes an event. version: the one that the client has with it; 0: it needs a later event too. data: HTML; NULL:
 * none. */
static void site_put_event(uint64_t version, const char *name, const lk_bytes *data, lk_bytes *out)
{
    size_t begin = 0, size = data ? data->size : 0;
    lk__bytes_format(out, "event: %s\n", name);
    if (version > 0)
        lk__bytes_format(out, "id: %llu\n", (unsigned long long)version);
    while (data && begin < size) {
        const unsigned char *stop = memchr(data->data + begin, '\n', size - begin);
        size_t end = stop ? (size_t)(stop - data->data) : size;
        lk__bytes_text(out, "data: ");
        for (size_t i = begin; i < end; i++) /* a CR would end the line too */
            lk__bytes_char(out, (char)(data->data[i] == '\r' ? ' ' : data->data[i]));
        lk__bytes_char(out, '\n');
        begin = end + 1;
    }
    lk__bytes_text(out, size ? "\n" : "data: \n\n");
}

static lk_status site_put_list_events(const lk_live_runs *runs, uint64_t since, lk_bytes *out)
{
    lk_bytes head = {0}, part = {0};
    if (runs->list_changed > since) {
        lk__bytes_text(&head, "<p class=\"sub\" id=\"about\">");
        site_put_about(runs, &head);
        lk__bytes_text(&head, "</p>\n");
        site_put_note(runs, &head);
        site_put_rows(runs, &part); /* an event of their own: behind other elements a browser drops rows */
    } else {
        for (int64_t i = 0; i < runs->count && i < MOST_ROWS; i++)
            if (runs->at[i]->row_changed > since) {
                lk__bytes_text(&part, (const char *)runs->at[i]->row.data);
                lk__bytes_char(&part, '\n');
            }
    }
    lk_status status = lk__bytes_status(&head);
    if (status == LK_OK)
        status = lk__bytes_status(&part);
    if (status == LK_OK && head.size > 0)
        site_put_event(0, "part", &head, out);
    if (status == LK_OK && part.size > 0)
        site_put_event(runs->version, "part", &part, out);
    lk__bytes_free(&head);
    lk__bytes_free(&part);
    return status;
}

static void site_put_address(const lk_live_run *run, uint64_t version, char events[LK_PAGE_EVENTS])
{
    lk_bytes path = {0};
    lk__live_put_path(&path, run->name);
    snprintf(events, LK_PAGE_EVENTS, "/events/%.*s?since=%llu", (int)path.size, (const char *)path.data,
             (unsigned long long)version);
    lk__bytes_free(&path);
}

/* Makes the page of a run, or only its progress. */
static lk_status site_put_run(lk_live_site *site, const lk_live_run *run, bool is_whole, lk_bytes *out)
{
    char events[LK_PAGE_EVENTS];
    char *command = is_whole && site->command ? site->command(run->run) : NULL;
    const lk_page_live live = {&run->steps, run->problem, events, site->runs.folder};
    const lk_page_run shown = {run->run, run->title, command};
    site_put_address(run, site->runs.version, events);
    lk_status status = is_whole ? lk__page_make(&shown, &live, out) : lk__page_make_progress(&shown, &live, out);
    free(command);
    return status;
}

static lk_status site_put_run_events(lk_live_site *site, int64_t number, uint64_t since, lk_bytes *out)
{
    lk_live_run *run = lk__live_runs_numbered(&site->runs, number);
    if (run)
        LK_TRY(lk__live_run_watch(&site->runs, run));
    if (!run || run->state_changed > since) {
        site_put_event(site->runs.version, "reload", NULL, out);
        return LK_OK;
    }
    if (run->changed <= since || !run->run)
        return LK_OK;
    if (run->progress_version < run->changed) { /* made once for all who look at it */
        lk__bytes_free(&run->progress);
        run->progress = (lk_bytes){0};
        LK_TRY(site_put_run(site, run, false, &run->progress));
        run->progress_version = site->runs.version;
    }
    site_put_event(site->runs.version, "part", &run->progress, out);
    return LK_OK;
}

lk_status lk__live_site_events(lk_live_site *site, int64_t run, uint64_t *since, lk_bytes *out)
{
    lk_status status =
        run ? site_put_run_events(site, run, *since, out) : site_put_list_events(&site->runs, *since, out);
    *since = site->runs.version;
    return status == LK_OK ? lk__bytes_status(out) : status;
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static lk_status site_say(lk_live_answer *answer, int status, const char *text)
{
    answer->status = status;
    answer->type = "text/plain; charset=utf-8";
    lk__bytes_text(&answer->body, text);
    lk__bytes_char(&answer->body, '\n');
    return lk__bytes_status(&answer->body);
}

static uint64_t site_version(const lk_live_request *request)
{
    const char *text = request->last_event ? request->last_event : request->since;
    return text ? strtoull(text, NULL, 10) : 0;
}

static lk_status site_answer_stream(lk_live_site *site, const lk_live_request *request, const lk_live_run *run,
                                    lk_live_answer *answer)
{
    answer->is_stream = true;
    answer->type = "text/event-stream";
    answer->run = run ? run->number : 0;
    answer->since = site_version(request);
    if (answer->since > site->runs.version)
        answer->since = 0;
    return LK_OK;
}

static lk_status site_answer_run(lk_live_site *site, lk_live_run *run, lk_live_answer *answer)
{
    LK_TRY(lk__live_run_watch(&site->runs, run));
    if (run->run)
        return site_put_run(site, run, true, &answer->body);
    return site_say(answer, 422, run->problem ? run->problem : "the run cannot be read");
}

/* Finds the run of a path such as "/run/NAME". Only names of runs that the walk found are known, so no other path is
 * ever opened. */
static lk_live_run *site_find_run(const lk_live_site *site, const char *path, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(path, prefix, length) == 0 ? lk__live_runs_find(&site->runs, path + length) : NULL;
}

/* Splits a target such as "http://localhost:7007/run/a", which proxies send: its host counts, and not the header's (RFC
 * 9112, 3.2.2). False: the host is too long. */
static bool site_take_target(lk_live_request *request, char host[MOST_HOST])
{
    static const char scheme[] = "http://";
    if (strncasecmp(request->path, scheme, sizeof scheme - 1) != 0)
        return true;
    const char *begin = request->path + sizeof scheme - 1;
    size_t length = strcspn(begin, "/");
    if (length >= MOST_HOST)
        return false;
    memcpy(host, begin, length);
    host[length] = '\0';
    request->host = host;
    request->path = begin[length] ? begin + length : "/";
    return true;
}

static lk_status site_answer_path(lk_live_site *site, const lk_live_request *request, lk_live_answer *answer)
{
    const char *path = request->path;
    lk_live_run *run;
    if (strcmp(path, "/") == 0)
        return site_put_list(&site->runs, &answer->body);
    if (strcmp(path, "/page.css") == 0) {
        answer->type = "text/css; charset=utf-8";
        lk__page_put_style(&answer->body, true);
    } else if (strcmp(path, "/page.js") == 0) {
        answer->type = "text/javascript; charset=utf-8";
        lk__page_put_script(&answer->body, true);
    } else if (strcmp(path, "/events") == 0) {
        return site_answer_stream(site, request, NULL, answer);
    } else if ((run = site_find_run(site, path, "/events/"))) {
        return site_answer_stream(site, request, run, answer);
    } else if ((run = site_find_run(site, path, "/run/"))) {
        return site_answer_run(site, run, answer);
    } else {
        return site_say(answer, 404,
                        "There is no such page. A run may have been removed; / lists those that are there.");
    }
    return LK_OK;
}

lk_status lk__live_site_answer(lk_live_site *site, const lk_live_request *asked, lk_live_answer *answer)
{
    char host[MOST_HOST];
    lk_live_request taken = *asked, *request = &taken;
    *answer = (lk_live_answer){.status = 200, .type = "text/html; charset=utf-8"};
    if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0)
        return site_say(answer, 405, "Only GET and HEAD: nothing can be changed here.");
    if (!site_take_target(request, host) || !site_is_asked_by_name(site, request->host))
        return site_say(answer, 403,
                        "The request names another host: open the address that lockstep serve has printed.");
    if (!site_has_token(site, request))
        return site_say(answer, 401,
                        "The token is missing or wrong: open the address that lockstep serve has printed.");
    if (request->token && *site->token && site_is_token(site, request->token)) {
        answer->status = 303; /* without the token, which would stay in the history */
        answer->location = "/";
        return LK_OK;
    }
    lk_status status = site_answer_path(site, request, answer);
    return status == LK_OK ? lk__bytes_status(&answer->body) : status;
}
