#include "report/live/live_runs.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "io/append_file.h"
#include "report/live/live_row.h"
#include "report/run_records.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const double WATCHED = 10, MOST_SECONDS = 0.05, WALK_EACH = 2, WALK_SHARE = 20;

/* --- a run -------------------------------------------------------------------------------------------------------- */

static void live_run_forget(lk_live_run *run)
{
    lk_run_release(run->run);
    run->run = NULL;
    lk__step_records_free(&run->steps);
}

static void live_run_free(lk_live_run *run)
{
    live_run_forget(run);
    lk__bytes_free(&run->row);
    lk__bytes_free(&run->progress);
    LK_FREE_ALL(run->path, run->title, run->problem, run);
}

static lk_live_file live_file_look(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return (lk_live_file){0};
    return (lk_live_file){about.st_dev, about.st_ino, about.st_size,
                          about.st_mtim.tv_sec * INT64_C(1000000000) + about.st_mtim.tv_nsec};
}

static bool live_file_is(lk_live_file a, lk_live_file b)
{
    return a.device == b.device && a.inode == b.inode && a.size == b.size && a.modified == b.modified;
}

/* Keeps the thread's error as the run's problem and clears it, unless it is a lack of memory. */
static lk_status live_run_set_problem(lk_live_run *run)
{
    if (lk_error_status() == LK_ERR_MEMORY)
        return LK_ERR_MEMORY;
    run->problem = lk__strdup(lk_error_message());
    if (run->problem)
        lk_error_clear();
    return run->problem ? LK_OK : LK_ERR_MEMORY;
}

static lk_status live_run_read_steps(const lk_live_runs *runs, lk_live_run *run)
{
    char path[PATH_MAX];
    bool found = lk__page_find_file(run->run, runs->folder, &LK_PAGE_STEPS, path);
    run->step_file = found ? live_file_look(path) : (lk_live_file){0};
    lk_status status = found ? lk__step_records_read(path, &run->steps) : lk_error_status();
    if (status == LK_OK)
        return LK_OK;
    lk__step_records_free(&run->steps);
    if (status != LK_ERR_NOT_FOUND)
        return live_run_set_problem(run);
    lk_error_clear();
    return LK_OK;
}

static lk_status live_run_read_files(lk_live_runs *runs, lk_live_run *run)
{
    lk__free(run->problem);
    run->problem = NULL;
    run->epochs = live_file_look(run->path);
    lk_status status = lk__page_check_inside(runs->folder, run->path);
    if (status == LK_OK)
        status = run->run ? lk__run_follow(run->run) : lk_run_read(run->path, &run->run);
    if (status == LK_OK)
        return run->run->trains || run->watched_until > runs->now ? live_run_read_steps(runs, run) : LK_OK;
    live_run_forget(run);
    return live_run_set_problem(run);
}

/* Reads the run's files and makes its row anew. */
static lk_status live_run_refresh(lk_live_runs *runs, lk_live_run *run)
{
    lk_bytes row = {0};
    run->is_stale = false;
    LK_TRY(live_run_read_files(runs, run));
    bool trains = run->run && run->run->trains;
    const char *state = run->run ? lk__page_state(run->run) : "damaged";
    bool is_other = !run->state || strcmp(state, run->state) != 0;
    if (!trains || !run->trains)
        run->time = run->epochs.modified;
    run->trains = trains;
    run->state = state;
    lk__live_put_row(&row, run);
    lk__bytes_char(&row, '\0');
    if (row.failed) {
        lk__bytes_free(&row);
        return LK_ERR_MEMORY;
    }
    bool is_other_row = row.size != run->row.size || memcmp(row.data, run->row.data, row.size) != 0;
    lk__bytes_free(&run->row);
    run->row = row;
    run->changed = runs->version;
    run->row_changed = is_other_row ? runs->version : run->row_changed;
    run->state_changed = is_other ? runs->version : run->state_changed;
    runs->list_changed = is_other ? runs->version : runs->list_changed;
    return LK_OK;
}

/* Looks whether there is something to read for a run that is kept. */
static bool live_run_has_changed(const lk_live_runs *runs, const lk_live_run *run)
{
    char path[PATH_MAX];
    if (!live_file_is(live_file_look(run->path), run->epochs) ||
        (!run->run->finished && lk__append_is_held(run->path) != run->trains))
        return true;
    bool found = lk__page_find_file(run->run, runs->folder, &LK_PAGE_STEPS, path);
    lk_error_clear();
    return !live_file_is(found ? live_file_look(path) : (lk_live_file){0}, run->step_file);
}

/* --- the folder --------------------------------------------------------------------------------------------------- */

static int live_runs_compare_paths(const void *a, const void *b)
{
    return strcmp((*(lk_live_run *const *)a)->path, (*(lk_live_run *const *)b)->path);
}

static int live_runs_find_path(const void *path, const void *run)
{
    return strcmp(path, (*(lk_live_run *const *)run)->path);
}

/* Those that train first, then the newest first. */
static int live_runs_compare(const void *a, const void *b)
{
    const lk_live_run *x = *(lk_live_run *const *)a, *y = *(lk_live_run *const *)b;
    if (x->trains != y->trains)
        return x->trains ? -1 : 1;
    if (x->time != y->time)
        return x->time > y->time ? -1 : 1;
    return strcmp(x->path, y->path);
}

static char *live_run_make_title(const char *name)
{
    static const char first[] = "epochs.jsonl";
    char *title = lk__strdup(strcmp(name, first) == 0 || !*name ? "." : name);
    size_t length = title ? strlen(title) : 0, end = sizeof first - 1;
    if (length > end + 1 && strcmp(title + length - end, first) == 0 && title[length - end - 1] == '/')
        title[length - end - 1] = '\0';
    return title;
}

static lk_status live_runs_add(lk_live_runs *runs, const char *path)
{
    int64_t n = runs->count;
    size_t folder = strlen(runs->folder);
    if (n == LK_LIVE_RUNS) {
        runs->left_out++;
        return LK_OK;
    }
    LK_TRY(LK_GROW(runs->at, &runs->capacity, n + 1));
    LK_TRY(LK_GROW(runs->by_path, &runs->paths_capacity, n + 1));
    lk_live_run *run = lk__calloc(1, sizeof *run);
    const char *name = path + lk__min((int64_t)strlen(path), (int64_t)folder + 1);
    if (!run || !(run->path = lk__strdup(path)) || !(run->title = live_run_make_title(name))) {
        if (run)
            live_run_free(run);
        return LK_ERR_MEMORY;
    }
    run->name = run->path + (name - path);
    run->number = runs->next_number++;
    run->rank = -1;
    run->is_seen = run->is_stale = true;
    runs->at[n] = runs->by_path[n] = run;
    runs->count++;
    return LK_OK;
}

typedef struct walk {
    lk_live_runs *runs;
    int64_t known; /* runs sorted by path, before this walk */
} walk;

static lk_status live_runs_visit(void *user, const char *path)
{
    const walk *w = user;
    lk_live_run **found =
        w->known ? bsearch(path, w->runs->by_path, (size_t)w->known, sizeof *w->runs->by_path, live_runs_find_path)
                 : NULL;
    if (!found)
        return live_runs_add(w->runs, path);
    lk_live_run *run = *found;
    run->is_seen = true;
    if (run->run) /* live_run_has_changed looks at it more often */
        return LK_OK;
    run->is_stale |= !live_file_is(live_file_look(path), run->epochs);
    return LK_OK;
}

/* Takes runs out of the list that the walk has not seen. */
static void live_runs_drop(lk_live_runs *runs)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < runs->count; i++)
        if (runs->by_path[i]->is_seen)
            runs->by_path[kept++] = runs->by_path[i];
        else
            live_run_free(runs->by_path[i]);
    if (kept != runs->count)
        runs->list_changed = runs->version;
    runs->count = kept;
    if (kept > 0)
        memcpy(runs->at, runs->by_path, (size_t)kept * sizeof *runs->at);
}

static lk_status live_runs_set_problem(lk_live_runs *runs, lk_status status)
{
    if (status == LK_ERR_MEMORY)
        return status;
    bool is_same = (status == LK_OK) == !runs->problem;
    lk__free(runs->problem);
    runs->problem = NULL;
    if (!is_same)
        runs->list_changed = runs->version;
    if (status == LK_OK)
        return LK_OK;
    runs->problem = lk__strdup(lk_error_message());
    lk_error_clear();
    if (!runs->problem)
        return LK_ERR_MEMORY;
    if (!is_same)
        lk__log(LK_LOG_WARNING, "%s; no runs are shown until it can", runs->problem);
    return LK_OK;
}

static lk_status live_runs_walk(lk_live_runs *runs)
{
    walk w = {runs, runs->count};
    for (int64_t i = 0; i < runs->count; i++)
        runs->by_path[i]->is_seen = false;
    runs->left_out = 0;
    lk_status status = lk_runs_visit(runs->folder, live_runs_visit, &w);
    if (status == LK_ERR_MEMORY) /* some of the folder was not visited */
        for (int64_t i = 0; i < runs->count; i++)
            runs->by_path[i]->is_seen = true;
    live_runs_drop(runs);
    if (runs->count > 0)
        qsort(runs->by_path, (size_t)runs->count, sizeof *runs->by_path, live_runs_compare_paths);
    return live_runs_set_problem(runs, status);
}

static void live_runs_sort(lk_live_runs *runs)
{
    if (runs->count > 0)
        qsort(runs->at, (size_t)runs->count, sizeof *runs->at, live_runs_compare);
    for (int64_t i = 0; i < runs->count; i++) {
        if (runs->at[i]->rank != i)
            runs->list_changed = runs->version;
        runs->at[i]->rank = i;
    }
}

static lk_status live_runs_read(lk_live_runs *runs)
{
    lk_status status = LK_OK;
    double end = runs->now + MOST_SECONDS;
    runs->has_more = false;
    for (int64_t i = 0; i < runs->count && status == LK_OK; i++) {
        lk_live_run *run = runs->at[i];
        if (!run->is_stale && run->run)
            run->is_stale = live_run_has_changed(runs, run);
        if (run->is_stale && lk__seconds() < end)
            status = live_run_refresh(runs, run);
        else if (run->is_stale)
            runs->has_more = true;
        if (run->run && !run->trains && run->watched_until <= runs->now)
            live_run_forget(run);
    }
    return status;
}

lk_status lk__live_runs_open(lk_live_runs *runs, const char *folder)
{
    char *real = realpath(folder, NULL);
    *runs = (lk_live_runs){.version = (uint64_t)time(NULL) << 24, .next_number = 1};
    if (!real)
        LK_FAIL(errno == ENOENT ? LK_ERR_NOT_FOUND : LK_ERR_IO, "%s: cannot be read: %s", folder, strerror(errno));
    runs->folder = lk__strdup(real);
    free(real);
    if (!runs->folder)
        return LK_ERR_MEMORY;
    DIR *entries = opendir(runs->folder);
    if (!entries)
        LK_FAIL(LK_ERR_IO, "%s: cannot be read: %s", folder, strerror(errno));
    closedir(entries);
    return LK_OK;
}

void lk__live_runs_free(lk_live_runs *runs)
{
    for (int64_t i = 0; i < runs->count; i++)
        live_run_free(runs->by_path[i]);
    LK_FREE_ALL(runs->at, runs->by_path, runs->folder, runs->problem);
    *runs = (lk_live_runs){0};
}

lk_status lk__live_runs_look(lk_live_runs *runs)
{
    lk_status status = LK_OK;
    runs->now = lk__seconds();
    runs->version++;
    if (runs->now >= runs->next_walk) {
        status = live_runs_walk(runs);
        double end = lk__seconds(), pause = WALK_SHARE * (end - runs->now);
        runs->next_walk = end + (pause > WALK_EACH ? pause : WALK_EACH);
        runs->now = end;
    }
    if (status == LK_OK)
        status = live_runs_read(runs);
    live_runs_sort(runs);
    return status;
}

lk_live_run *lk__live_runs_find(const lk_live_runs *runs, const char *name)
{
    for (int64_t i = 0; i < runs->count; i++)
        if (strcmp(runs->at[i]->name, name) == 0)
            return runs->at[i];
    return NULL;
}

lk_live_run *lk__live_runs_numbered(const lk_live_runs *runs, int64_t number)
{
    for (int64_t i = 0; i < runs->count; i++)
        if (runs->at[i]->number == number)
            return runs->at[i];
    return NULL;
}

lk_status lk__live_run_watch(lk_live_runs *runs, lk_live_run *run)
{
    bool has_steps = run->run && (run->trains || run->watched_until > runs->now);
    run->watched_until = lk__seconds() + WATCHED;
    if (has_steps)
        return LK_OK;
    runs->version++;
    return live_run_refresh(runs, run);
}
