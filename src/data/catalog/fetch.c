#include "data/catalog/fetch.h"

#include "base/heartbeat.h"
#include "base/whole_io.h"
#include "base/cache.h"
#include "data/catalog/http.h"
#include "data/formats/byte_source.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    TRIES = 4,         /* of one address; each resumes where the previous one broke off */
    CHUNK = 64 * 1024, /* bytes decoded at a time */
    POLL_MILLISECONDS = 100,
    STALLED_POLLS = 600,  /* give up on another process's download that has not moved for so long */
    GZIP_OVERHEAD = 65536 /* gzip data are at most this much longer than their content */
};

typedef struct paths {
    char final[PATH_MAX];
    char part[PATH_MAX];    /* the bytes received so far, compressed */
    char decoded[PATH_MAX]; /* renamed to `final` when complete */
    char lock[PATH_MAX];
} paths;

static lk_status LK_PRINTF(3, 4) fetch_problem(lk_fetch_reason *reason, lk_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason->text, sizeof reason->text, format, arguments);
    va_end(arguments);
    return status;
}

#define REFUSE_LOCAL(reason, ...) ((reason)->is_local = true, fetch_problem(reason, LK_ERR_IO, __VA_ARGS__))

static lk_status fetch_name_paths(const lk_fetch_job *job, paths *p, lk_fetch_reason *reason)
{
    /* This is the longest of the paths: if it fits the others fit too. */
    int length = snprintf(p->part, sizeof p->part, "%s/%s.gz.part", job->dir, job->file->name);
    if (length < 0 || (size_t)length >= sizeof p->part)
        return fetch_problem(reason, LK_ERR_IO, "the path %s/%s is too long", job->dir, job->file->name);
    snprintf(p->final, sizeof p->final, "%s/%s", job->dir, job->file->name);
    snprintf(p->decoded, sizeof p->decoded, "%s/%s.tmp", job->dir, job->file->name);
    snprintf(p->lock, sizeof p->lock, "%s/.%s.lock", job->dir, job->file->name);
    return LK_OK;
}

static lk_status fetch_make_folder(const char *dir, lk_fetch_reason *reason)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", dir);
    if (!lk__make_folders(path))
        return fetch_problem(reason, LK_ERR_IO, "the directory %s cannot be made: %s", path, strerror(errno));
    return LK_OK;
}

static int64_t fetch_file_size(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? (int64_t)status.st_size : 0;
}

static lk_data_reporter fetch_reporter(const lk_fetch_job *job)
{
    return (lk_data_reporter){job->progress, job->progress_user, job->file->name};
}

/* Takes the file's lock, and waits while another process downloads it. The system releases a flock when its process
 * ends, so no lock is ever left behind. A process whose download stands still is given up on after a while. */
static lk_status fetch_lock_file(const lk_fetch_job *job, const paths *p, int *fd, lk_fetch_reason *reason)
{
    *fd = open(p->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0)
        return fetch_problem(reason, LK_ERR_IO, "%s cannot be opened: %s", p->lock, strerror(errno));
    int64_t size = -1;
    lk_status status = LK_OK;
    const lk_data_reporter reporter = fetch_reporter(job);
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT_REMOTE, "wait for another's download");
    for (int stalled = 0; flock(*fd, LOCK_EX | LOCK_NB) != 0; stalled++) {
        int error = errno;
        int64_t now = fetch_file_size(p->part);
        if (now != size) {
            stalled = 0;
            lk__heartbeat_beat();
        }
        size = now;
        if (error != EWOULDBLOCK && error != EINTR)
            status = fetch_problem(reason, LK_ERR_IO, "%s cannot be locked: %s", p->lock, strerror(error));
        else if (stalled >= STALLED_POLLS)
            status =
                fetch_problem(reason, LK_ERR_IO, "another process holds %s, and its download does not move", p->lock);
        else if (!lk__report_progress(&reporter, LK_DATA_WAITING, now, 0))
            status = fetch_problem(reason, LK_ERR_INTERRUPTED, "%s: stopped on request", job->file->name);
        if (status != LK_OK)
            break;
        nanosleep(&(struct timespec){.tv_nsec = POLL_MILLISECONDS * 1000000L}, NULL);
    }
    lk__activity_end(before);
    if (status != LK_OK)
        close(*fd);
    return status;
}

/* Quotes the beginning of an answer that is not gzip data: it shows the page of a proxy or a login portal. */
static lk_status fetch_check_gzip(const lk_byte_source *source, const char *url, lk_fetch_reason *reason)
{
    if (source->gzip)
        return LK_OK;
    char beginning[17] = "";
    for (size_t i = 0; i < sizeof beginning - 1 && i < source->size; i++)
        beginning[i] = isprint(source->bytes[i]) ? (char)source->bytes[i] : '.';
    return fetch_problem(reason, LK_ERR_FORMAT, "%s: the answer is not gzip data: begins with '%s'", url, beginning);
}

/* Stops as soon as there is more than the expected length, however much a hostile answer would decode to. */
static lk_status fetch_decode(const lk_fetch_job *job, lk_byte_source *source, const char *url, int fd,
                              lk_fetch_reason *reason)
{
    uint8_t chunk[CHUNK];
    int64_t total = 0;
    for (;;) {
        size_t got;
        lk_status status = lk__byte_source_read(source, chunk, sizeof chunk, &got);
        reason->is_cut = source->cut;
        if (status != LK_OK)
            return fetch_problem(reason, status, "%s: %s", url, source->problem);
        total += (int64_t)got;
        if (total > job->file->bytes || (got == 0 && total < job->file->bytes))
            return fetch_problem(reason, LK_ERR_FORMAT, "%s: decodes to %s%lld bytes, expected %lld", url,
                                 got ? "more than " : "", (long long)(got ? job->file->bytes : total),
                                 (long long)job->file->bytes);
        if (got == 0)
            return LK_OK;
        int error = lk__write_whole(fd, chunk, (size_t)got);
        if (error)
            return REFUSE_LOCAL(reason, "%s/%s cannot be written: %s", job->dir, job->file->name, strerror(error));
    }
}

static lk_status fetch_compare_sum(const lk_remote_file *file, XXH128_hash_t sum, const char *name,
                                   lk_fetch_reason *reason)
{
    if (sum.high64 == file->xxh3_high && sum.low64 == file->xxh3_low)
        return LK_OK;
    return fetch_problem(reason, LK_ERR_FORMAT,
                         "%s: checksum XXH3-128 %016llx%016llx of the content, expected %016llx%016llx", name,
                         (unsigned long long)sum.high64, (unsigned long long)sum.low64,
                         (unsigned long long)file->xxh3_high, (unsigned long long)file->xxh3_low);
}

static lk_status fetch_check_sum(const lk_remote_file *file, int fd, const char *url, lk_fetch_reason *reason)
{
    void *bytes = mmap(NULL, (size_t)file->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return REFUSE_LOCAL(reason, "%s cannot be mapped into memory: %s", file->name, strerror(errno));
    XXH128_hash_t sum = XXH3_128bits(bytes, (size_t)file->bytes);
    munmap(bytes, (size_t)file->bytes);
    return fetch_compare_sum(file, sum, url, reason);
}

static lk_status fetch_hash_content(lk_byte_source *source, XXH3_state_t *state, const char *path,
                                    lk_fetch_reason *reason)
{
    uint8_t chunk[CHUNK];
    for (size_t got = 1; got;) {
        lk_status status = lk__byte_source_read(source, chunk, sizeof chunk, &got);
        if (status != LK_OK)
            return fetch_problem(reason, status, "%s: %s", path, source->problem);
        XXH3_128bits_update(state, chunk, got);
    }
    return LK_OK;
}

lk_status lk__fetch_check(const char *path, const lk_remote_file *file, lk_fetch_reason *reason)
{
    lk_byte_source source;
    lk_status status = lk__byte_source_open(path, &source);
    if (status != LK_OK)
        return fetch_problem(reason, status, "%s: %s", path, source.problem);
    XXH3_state_t *state = XXH3_createState();
    if (state) {
        XXH3_128bits_reset(state);
        status = fetch_hash_content(&source, state, path, reason);
    } else {
        status = fetch_problem(reason, LK_ERR_MEMORY, "out of memory");
    }
    if (status == LK_OK)
        status = fetch_compare_sum(file, XXH3_128bits_digest(state), path, reason);
    XXH3_freeState(state);
    lk__byte_source_close(&source);
    return status;
}

static lk_status fetch_decode_verified(const lk_fetch_job *job, const paths *p, const char *url, int fd,
                                       lk_fetch_reason *reason)
{
    lk_byte_source source;
    lk_status status = lk__byte_source_open(p->part, &source);
    if (status != LK_OK)
        return fetch_problem(reason, status, "%s: %s", p->part, source.problem);
    status = fetch_check_gzip(&source, url, reason);
    if (status == LK_OK)
        status = fetch_decode(job, &source, url, fd, reason);
    lk__byte_source_close(&source);
    if (status == LK_OK)
        status = fetch_check_sum(job->file, fd, url, reason);
    if (status == LK_OK && fsync(fd) != 0)
        status = REFUSE_LOCAL(reason, "%s cannot be written: %s", p->decoded, strerror(errno));
    return status;
}

static lk_status fetch_install(const lk_fetch_job *job, const paths *p, const char *url, lk_fetch_reason *reason)
{
    int fd = open(p->decoded, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return REFUSE_LOCAL(reason, "%s cannot be opened: %s", p->decoded, strerror(errno));
    lk_status status = fetch_decode_verified(job, p, url, fd, reason);
    close(fd);
    if (status == LK_OK && rename(p->decoded, p->final) != 0)
        status = REFUSE_LOCAL(reason, "%s cannot be renamed to %s: %s", p->decoded, p->final, strerror(errno));
    if (status != LK_OK) {
        unlink(p->decoded);
        return status;
    }
    lk__cache_sync(job->dir);
    unlink(p->part);
    return LK_OK;
}

/* Sends one request, appends the answer to the part and, if it is complete, installs the file. *retry: another request
 * may succeed. */
static lk_status fetch_request_once(const lk_fetch_job *job, const paths *p, const char *url, bool *retry,
                                    lk_fetch_reason *reason)
{
    *retry = reason->is_cut = false;
    int fd = open(p->part, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return REFUSE_LOCAL(reason, "%s cannot be opened: %s", p->part, strerror(errno));
    int64_t offset = fetch_file_size(p->part);
    lk_http_request get = {
        .url = url,
        .fd = fd,
        .offset = offset,
        .limit = job->file->bytes + GZIP_OVERHEAD,
        .reporter = fetch_reporter(job),
    };
    lk_http_answer answer;
    lk_status status = lk__http_get(&get, &answer);
    close(fd);
    if (status != LK_OK) {
        if (answer.is_local)
            (void)REFUSE_LOCAL(reason, "%s %s", p->part, answer.reason);
        else
            fetch_problem(reason, status, "%s: %s", url, answer.reason);
        *retry = status == LK_ERR_IO && !answer.is_local &&
                 (answer.discard ? offset > 0 : fetch_file_size(p->part) > offset);
        if (answer.discard || fetch_file_size(p->part) == 0)
            unlink(p->part);
        return status;
    }
    status = fetch_install(job, p, url, reason);
    if (status == LK_ERR_FORMAT && reason->is_cut && fetch_file_size(p->part) > offset) {
        /* The server did not send the file's length, so a broken connection looked like the end. */
        *retry = true;
    } else if (status == LK_ERR_FORMAT) {
        /* The part of an earlier attempt may be the beginning of another file: begin again without it. */
        unlink(p->part);
        *retry = offset > 0;
    }
    return status;
}

static lk_status fetch_from(const lk_fetch_job *job, const paths *p, const char *base, lk_fetch_reason *reason)
{
    char url[1024];
    int length = snprintf(url, sizeof url, "%s/%s.gz", base, job->file->name);
    if (length < 0 || (size_t)length >= sizeof url)
        return fetch_problem(reason, LK_ERR_IO, "the address %s/%s.gz is too long", base, job->file->name);
    lk_status status = LK_ERR_IO;
    bool retry = true;
    for (int i = 0; i < TRIES && retry; i++) {
        status = fetch_request_once(job, p, url, &retry, reason);
        if (status == LK_OK)
            return LK_OK;
    }
    return status;
}

static void fetch_append_reason(lk_fetch_reason *reason, const char *text)
{
    size_t used = strlen(reason->text);
    snprintf(reason->text + used, sizeof reason->text - used, "; %s", text);
}

static lk_status fetch_locked(const lk_fetch_job *job, const paths *p, lk_fetch_reason *reason)
{
    if (!job->replace && access(p->final, F_OK) == 0)
        return LK_OK; /* downloaded by the process that held the lock */
    lk_status status = fetch_problem(reason, LK_ERR_IO, "no address is known for %s", job->file->name);
    for (int i = 0; i < LK__FETCH_MAX_URLS && job->base_urls[i]; i++) {
        lk_fetch_reason last = {.is_local = false};
        status = fetch_from(job, p, job->base_urls[i], &last);
        if (i == 0 || last.is_local || status == LK_ERR_INTERRUPTED)
            *reason = last;
        else
            fetch_append_reason(reason, last.text);
        if (status == LK_OK || status == LK_ERR_INTERRUPTED || status == LK_ERR_MEMORY || last.is_local)
            return status;
    }
    return status;
}

lk_status lk__fetch_file(const lk_fetch_job *job, lk_fetch_reason *reason)
{
    paths p;
    int fd;
    *reason = (lk_fetch_reason){.is_local = false};
    if (!lk__http_available)
        return fetch_problem(reason, LK_ERR_IO, "this build has no libcurl and cannot download; put %s.gz into %s",
                             job->file->name, job->dir);
    lk_status status = fetch_name_paths(job, &p, reason);
    if (status == LK_OK)
        status = fetch_make_folder(job->dir, reason);
    if (status == LK_OK)
        status = fetch_lock_file(job, &p, &fd, reason);
    if (status != LK_OK)
        return status;
    status = fetch_locked(job, &p, reason);
    close(fd);
    return status;
}
