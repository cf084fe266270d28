#include "data/catalog/locate.h"

#include "base/log.h"
#include "base/status.h"
#include "base/cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A folder that may have the files. */
typedef struct location {
    const char *what; /* for messages */
    bool set;
    char dir[PATH_MAX]; /* …/NAME */
} location;

enum { GIVEN, ENVIRONMENT, CACHE, LOCATIONS };

typedef struct search {
    const lk_catalog_entry *entry;
    const lk_remote_file *files; /* [LK__FILES] */
    location locations[LOCATIONS];
    lk_dataset_files *located;
    bool found[LK__FILES];
    bool refused[LK__FILES]; /* the cache has the file with a wrong content */
} search;

/* Without a `root`, which is then NULL or "", the location counts as not set. */
static lk_status locate_set_location(search *s, int i, const char *what, const char *root)
{
    location *p = &s->locations[i];
    p->what = what;
    p->set = root && *root;
    if (!p->set)
        return LK_OK;
    int length = snprintf(p->dir, sizeof p->dir, "%s/%s", root, s->entry->kind.name);
    if (length < 0 || (size_t)length >= sizeof p->dir)
        LK_FAIL(LK_ERR_IO, "%s: the path is too long", what);
    return LK_OK;
}

static lk_status locate_set_locations(search *s, const lk_dataset_opts *opts)
{
    char cache[PATH_MAX];
    LK_TRY(locate_set_location(s, GIVEN, "the given directory", opts->dir));
    LK_TRY(locate_set_location(s, ENVIRONMENT, "$LOCKSTEP_DATA", getenv("LOCKSTEP_DATA")));
    return locate_set_location(s, CACHE, "the cache", lk__cache_folder(cache) ? cache : NULL);
}

/* Looks for DIR/FILE, then DIR/FILE.gz. A file that exists but cannot be reached is an error. */
static lk_status locate_find_file(search *s, const char *dir, int file)
{
    static const char *const suffixes[] = {"", ".gz"};
    char *path = s->located->path[file];
    s->found[file] = false;
    for (int i = 0; i < 2; i++) {
        struct stat status;
        int length = snprintf(path, PATH_MAX, "%s/%s%s", dir, s->files[file].name, suffixes[i]);
        if (length < 0 || length >= PATH_MAX)
            LK_FAIL(LK_ERR_IO, "%s: the path is too long", dir);
        if (stat(path, &status) == 0) {
            s->found[file] = true;
            return LK_OK;
        }
        if (errno != ENOENT && errno != ENOTDIR)
            LK_FAIL(LK_ERR_IO, "%s: cannot be examined: %s", path, strerror(errno));
    }
    return LK_OK;
}

static lk_status locate_find_pair(search *s, const location *p)
{
    for (int i = 0; i < LK__FILES; i++)
        LK_TRY(locate_find_file(s, p->dir, i));
    if (s->found[LK__IMAGES] == s->found[LK__LABELS] || p == &s->locations[CACHE])
        return LK_OK;
    int there = s->found[LK__IMAGES] ? LK__IMAGES : LK__LABELS;
    LK_FAIL(LK_ERR_IO, "%s is there, but neither %s nor %s.gz is beside it", s->located->path[there],
            s->files[!there].name, s->files[!there].name);
}

static lk_status locate_verify_found(search *s, const location *p, const lk_dataset_opts *opts)
{
    for (int i = 0; i < LK__FILES; i++) {
        lk_fetch_reason reason;
        lk_status status = s->found[i] ? lk__fetch_check(s->located->path[i], &s->files[i], &reason) : LK_OK;
        if (status == LK_OK)
            continue;
        if (status != LK_ERR_FORMAT || p != &s->locations[CACHE] || opts->offline)
            LK_FAIL(status, "%s", reason.text);
        lk__log(LK_LOG_WARNING, "%s: it is downloaded anew", reason.text);
        s->found[i] = false;
        s->refused[i] = true;
    }
    return LK_OK;
}

/* Writes "DIR/fashion-mnist, $LOCKSTEP_DATA (not set), …" */
static void locate_list_locations(const search *s, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = s->locations[GIVEN].set ? GIVEN : ENVIRONMENT; i < LOCATIONS && used < size; i++) {
        const location *p = &s->locations[i];
        int length = snprintf(text + used, size - used, "%s%s%s", used ? ", " : "", p->set ? p->dir : p->what,
                              p->set ? "" : " (not set)");
        used += length > 0 ? (size_t)length : 0;
    }
}

static lk_status locate_not_found(const search *s, const char *why)
{
    char list[400];
    locate_list_locations(s, list, sizeof list);
    LK_FAIL(LK_ERR_NOT_FOUND, "data set %s: no %s[.gz] and %s[.gz] in %s; %s", s->entry->kind.name,
            s->files[LK__IMAGES].name, s->files[LK__LABELS].name, list, why);
}

/* Logs a download when its first bytes arrive: one that cannot begin ends in an error message instead. */
typedef struct announced_progress {
    const search *search;
    const lk_dataset_opts *opts;
    bool announced;
} announced_progress;

static bool locate_log_download(void *user, const lk_data_progress *progress)
{
    announced_progress *a = user;
    if (!a->announced && progress->work == LK_DATA_DOWNLOADING && progress->done > 0) {
        lk__log(LK_LOG_INFO, "downloading %s of data set %s into %s", progress->name, a->search->entry->kind.name,
                a->search->locations[CACHE].dir);
        a->announced = true;
    }
    return !a->opts->progress || a->opts->progress(a->opts->progress_user, progress);
}

static lk_status locate_fetch_missing(search *s, const lk_dataset_opts *opts)
{
    const location *cache = &s->locations[CACHE];
    char mirror[1024];
    if (opts->mirror &&
        snprintf(mirror, sizeof mirror, "%s/%s", opts->mirror, s->entry->kind.name) >= (int)sizeof mirror)
        LK_FAIL(LK_ERR_ARGUMENT, "mirror %.64s…: longer than %zu characters", opts->mirror, sizeof mirror);
    for (int i = 0; i < LK__FILES; i++) {
        if (s->found[i])
            continue;
        announced_progress progress = {.search = s, .opts = opts};
        int n = 0;
        lk_fetch_job job = {
            .file = &s->files[i],
            .dir = cache->dir,
            .replace = s->refused[i],
            .progress = locate_log_download,
            .progress_user = &progress,
        };
        if (opts->mirror && *opts->mirror)
            job.base_urls[n++] = mirror;
        for (int url = 0; url < LK__FETCH_MAX_URLS && s->entry->base_urls[url] && n < LK__FETCH_MAX_URLS; url++)
            job.base_urls[n++] = s->entry->base_urls[url];
        lk_fetch_reason reason;
        lk_status status = lk__fetch_file(&job, &reason);
        if (status == LK_ERR_MEMORY || status == LK_ERR_INTERRUPTED)
            LK_FAIL(status, "data set %s: %s", s->entry->kind.name, reason.text);
        if (status != LK_OK)
            return locate_not_found(s, reason.text);
        LK_TRY(locate_find_file(s, cache->dir, i));
    }
    return LK_OK;
}

/* The files were found in location `found`. */
static void locate_warn_of_missing(const search *s, int found, const lk_dataset_opts *opts)
{
    const char *const roots[CACHE] = {opts->dir, getenv("LOCKSTEP_DATA")};
    struct stat status;
    for (int i = 0; i < found; i++)
        if (roots[i] && *roots[i] && stat(roots[i], &status) != 0)
            lk__log(LK_LOG_WARNING, "%s, %s, does not exist: taking %s", s->locations[i].what, roots[i],
                    s->located->path[LK__IMAGES]);
}

lk_status lk__dataset_find_files(const lk_catalog_entry *entry, lk_split split, const lk_dataset_opts *opts,
                                 lk_dataset_files *files)
{
    search s = {.entry = entry, .files = entry->files[split], .located = files};
    LK_TRY(locate_set_locations(&s, opts));
    for (int i = 0; i < LOCATIONS; i++) {
        if (!s.locations[i].set)
            continue;
        LK_TRY(locate_find_pair(&s, &s.locations[i]));
        if (opts->verify)
            LK_TRY(locate_verify_found(&s, &s.locations[i], opts));
        if (s.found[LK__IMAGES] && s.found[LK__LABELS]) {
            locate_warn_of_missing(&s, i, opts);
            return LK_OK;
        }
    }
    if (opts->offline)
        return locate_not_found(&s, "downloading is switched off");
    if (!s.locations[CACHE].set)
        return locate_not_found(&s, "without HOME or XDG_CACHE_HOME there is nowhere to download it to");
    return locate_fetch_missing(&s, opts);
}
