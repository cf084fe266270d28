/* Asks a server of pages. The first byte says whether it is on loopback and whether it wants a token; the lines of the
 * rest are the parts of the request. */
#include "fuzz.h"

#include "report/live/live_site.h"

#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { METHOD, PATH, HOST, AUTHORIZATION, COOKIE, TOKEN, SINCE, LAST_EVENT, PARTS };

static const char token[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
static const char *const pages[] = {"/", "/page.css", "/page.js", "/run/a b/epochs.jsonl"};
static char folder[64], run[96], records[128];
static lk_live_site site;

static void end(void)
{
    lk__live_runs_free(&site.runs);
    remove(records);
    rmdir(run);
    rmdir(folder);
}

static void begin(void)
{
    snprintf(folder, sizeof folder, "%s/lockstep-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(folder));
    snprintf(run, sizeof run, "%s/a b", folder);
    snprintf(records, sizeof records, "%s/epochs.jsonl", run);
    FUZZ_CHECK(mkdir(run, 0700) == 0);
    FILE *file = fopen(records, "w");
    FUZZ_CHECK(file && fputs("{\"event\":\"settings\",\"model\":\"<script>\"}\n", file) >= 0 && fclose(file) == 0);
    FUZZ_CHECK(lk__live_runs_open(&site.runs, folder) == LK_OK && lk__live_runs_look(&site.runs) == LK_OK);
    atexit(end);
}

/* Cuts the text into lines; those that it lacks are NULL. */
static void cut(char *text, const char *parts[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        parts[i] = text;
        char *stop = text ? strchr(text, '\n') : NULL;
        if (stop)
            *stop = '\0';
        text = stop ? stop + 1 : NULL;
    }
}

static bool ends_in_token(const char *text)
{
    size_t length = text ? strlen(text) : 0;
    return text && length >= strlen(token) && strcmp(text + length - strlen(token), token) == 0;
}

static bool is_page(const char *path)
{
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (strcmp(path, pages[i]) == 0)
            return true;
    return false;
}

/* The host of a target such as http://HOST/path counts, and not the header's. */
static void split_target(const char *parts[PARTS])
{
    static const char scheme[] = "http://";
    static char host[1 << 16];
    if (strncasecmp(parts[PATH], scheme, sizeof scheme - 1) != 0)
        return;
    const char *begin = parts[PATH] + sizeof scheme - 1;
    int length = (int)strcspn(begin, "/");
    snprintf(host, sizeof host, "%.*s", length, begin);
    parts[HOST] = host;
    parts[PATH] = begin[length] ? begin + length : "/";
}

static void check(const char *const parts[PARTS], lk_live_answer *answer)
{
    bool may_ask = strcmp(parts[METHOD], "GET") == 0 || strcmp(parts[METHOD], "HEAD") == 0;
    FUZZ_CHECK(may_ask == (answer->status != 405));
    if (answer->status == 405 || answer->status == 403)
        return;
    const char *host = parts[HOST];
    FUZZ_CHECK(host && (!site.is_loopback || strncasecmp(host, "localhost", 9) == 0 || strncmp(host, "127.", 4) == 0 ||
                        strstr(host, ":")));
    bool has_token = ends_in_token(parts[AUTHORIZATION]) || ends_in_token(parts[COOKIE]) || ends_in_token(parts[TOKEN]);
    FUZZ_CHECK(!*site.token || answer->status == 401 || has_token);
    if (answer->is_stream)
        FUZZ_CHECK(answer->status == 200 && answer->since <= site.runs.version);
    else
        FUZZ_CHECK(answer->status == 401 || answer->status == 303 || is_page(parts[PATH]) == (answer->status == 200));
    lk__bytes_char(&answer->body, '\0');
    FUZZ_CHECK(!strstr((const char *)answer->body.data, "<script>"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *parts[PARTS];
    lk_live_answer answer;
    if (size < 1)
        return 0;
    if (!*folder)
        begin();
    char *text = calloc(size, 1);
    FUZZ_CHECK(text);
    memcpy(text, data + 1, size - 1);
    cut(text, parts);
    site.is_loopback = data[0] & 1;
    memcpy(site.token, data[0] & 2 ? token : "", data[0] & 2 ? sizeof token : 1);
    const lk_live_request request = {.method = parts[METHOD],
                                     .path = parts[PATH] ? parts[PATH] : "",
                                     .host = parts[HOST],
                                     .authorization = parts[AUTHORIZATION],
                                     .cookie = parts[COOKIE],
                                     .token = parts[TOKEN],
                                     .since = parts[SINCE],
                                     .last_event = parts[LAST_EVENT]};
    parts[PATH] = request.path;
    FUZZ_CHECK(lk__live_site_answer(&site, &request, &answer) == LK_OK);
    split_target(parts);
    check(parts, &answer);
    if (answer.is_stream) {
        lk_bytes out = {0};
        FUZZ_CHECK(lk__live_site_events(&site, answer.run, &answer.since, &out) == LK_OK);
        lk__bytes_free(&out);
    }
    lk__bytes_free(&answer.body);
    free(text);
    return 0;
}
