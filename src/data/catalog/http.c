#include "data/catalog/http.h"

#include "base/heartbeat.h"
#include "base/whole_io.h"

#include <stdio.h>

#ifdef LK_HAVE_CURL

#include <curl/curl.h>
#include <pthread.h>
#include <string.h>

enum { CONNECT_SECONDS = 10, STALL_SECONDS = 20, STALL_BYTES_PER_SECOND = 500, MAX_REDIRECTS = 5 };

const bool lk__http_available = true;

typedef struct transfer {
    const lk_http_request *request;
    int64_t received;
    int write_error;
    bool too_long;
    bool stopped;
} transfer;

static size_t http_receive(char *bytes, size_t size, size_t count, void *user)
{
    transfer *t = user;
    size_t total = size * count;
    if ((int64_t)total > t->request->limit - t->request->offset - t->received) {
        t->too_long = true;
        return 0;
    }
    t->write_error = lk__write_whole(t->request->fd, bytes, total);
    if (t->write_error)
        return 0;
    t->received += (int64_t)total;
    return total;
}

static int http_report(void *user, curl_off_t total, curl_off_t now, curl_off_t upload_total, curl_off_t upload_now)
{
    (void)upload_total, (void)upload_now;
    transfer *t = user;
    const lk_http_request *request = t->request;
    lk__heartbeat_beat(); /* beats also while nothing arrives: libcurl ends a transfer that stalls */
    int64_t whole = total ? request->offset + total : 0;
    t->stopped = !lk__report_progress(&request->reporter, LK_DATA_DOWNLOADING, request->offset + now, whole);
    return t->stopped;
}

static CURLcode global_result;

static void http_global_init(void)
{
    global_result = curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void http_configure(CURL *curl, transfer *t, char *error)
{
    curl_easy_setopt(curl, CURLOPT_URL, t->request->url);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "lockstep");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    bool secure = strncmp(t->request->url, "https:", 6) == 0;
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS,
                     secure ? (long)CURLPROTO_HTTPS : (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES_PER_SECOND);
    curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)t->request->offset);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, http_receive);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, http_report);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
}

/* Status 416: the file does not reach beyond the offset. libcurl reports it as success, but not always if the answer
 * has the file's length, which RFC 9110 asks for. */
static bool http_is_complete(CURL *curl, const transfer *t, CURLcode result)
{
    long code = 0;
    return result == CURLE_HTTP_RETURNED_ERROR && t->request->offset > 0 &&
           curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code) == CURLE_OK && code == 416;
}

static lk_status http_explain(const transfer *t, CURLcode result, const char *error, lk_http_answer *answer)
{
    if (result == CURLE_OK)
        return LK_OK;
    if (t->stopped) {
        snprintf(answer->reason, sizeof answer->reason, "stopped on request");
        return LK_ERR_INTERRUPTED;
    }
    answer->discard = t->too_long || result == CURLE_RANGE_ERROR;
    answer->is_local = t->write_error != 0;
    if (t->too_long)
        snprintf(answer->reason, sizeof answer->reason, "sends more than the %lld bytes expected at most",
                 (long long)t->request->limit);
    else if (t->write_error)
        snprintf(answer->reason, sizeof answer->reason, "cannot be written: %s", strerror(t->write_error));
    else
        snprintf(answer->reason, sizeof answer->reason, "%s", error[0] ? error : curl_easy_strerror(result));
    return LK_ERR_IO;
}

lk_status lk__http_get(const lk_http_request *request, lk_http_answer *answer)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *answer = (lk_http_answer){0};
    pthread_once(&once, http_global_init);
    CURL *curl = global_result == CURLE_OK ? curl_easy_init() : NULL;
    if (!curl) {
        snprintf(answer->reason, sizeof answer->reason, "libcurl cannot be initialized");
        return LK_ERR_IO;
    }
    char error[CURL_ERROR_SIZE] = "";
    transfer t = {.request = request};
    http_configure(curl, &t, error);
    CURLcode result = curl_easy_perform(curl);
    if (http_is_complete(curl, &t, result))
        result = CURLE_OK;
    curl_easy_cleanup(curl);
    return http_explain(&t, result, error, answer);
}

#else

const bool lk__http_available = false;

lk_status lk__http_get(const lk_http_request *request, lk_http_answer *answer)
{
    (void)request;
    *answer = (lk_http_answer){0};
    snprintf(answer->reason, sizeof answer->reason, "this build has no libcurl and cannot download");
    return LK_ERR_IO;
}

#endif
