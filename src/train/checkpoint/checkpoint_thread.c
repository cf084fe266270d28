#include "train/checkpoint/checkpoint_thread.h"

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/trace.h"
#include "io/durable.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/checkpoint_write.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { BUFFERS = 2, KEEP = 3 };

typedef struct job {
    lk_checkpoint_contents contents;
    lk_best best; /* name "": this one is not the best */
    bool queued;
    int64_t number; /* jobs are written in this order */
} job;

struct lk_checkpoint_thread {
    char *folder;
    int lock; /* the folder's; -1: none */
    int64_t keep;
    bool reuses;           /* files of old checkpoints */
    char spare[PATH_MAX];  /* the folder of such files; "": there are none */
    int64_t first_written; /* the first checkpoint that the thread wrote, by its steps; -1: none */
    lk_best best;          /* the contents of best.json; only the thread uses it after the first put */
    job jobs[BUFFERS];
    pthread_t thread;
    bool running;

    pthread_mutex_t mutex; /* guards the members below, and the jobs' `queued` */
    pthread_cond_t changed;
    bool stopping;
    int64_t next_number;
    lk_error_state last;       /* of the last checkpoint */
    lk_error_state unreported; /* the last failure that has not been reported to a caller */
    lk_error_state unremoved;  /* an old checkpoint could not be removed */
    bool warned_unremoved;     /* `unremoved` was logged; it is logged only once */
    bool lost_best;            /* a new best could not be written, and no caller knows yet */
    lk_best kept;              /* a copy of `best` for callers */
};

/* --- the folder --------------------------------------------------------------------------------------------------- */

static lk_status checkpoint_thread_rename_damaged(const lk_checkpoint_thread *w, int64_t steps)
{
    char path[PATH_MAX], damaged[PATH_MAX], name[LK_CHECKPOINT_NAME];
    lk__checkpoint_name(steps, name);
    LK_TRY(lk__checkpoint_path(w->folder, name, path));
    LK_TRY(lk__checkpoint_prefixed_path(w->folder, "damaged-", name, damaged));
    LK_TRY(lk__remove_folder(damaged));
    if (rename(path, damaged) != 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be renamed: %s", path, strerror(errno));
    return LK_OK;
}

static lk_status checkpoint_thread_prepare_folder(lk_checkpoint_thread *w, int64_t steps, bool resuming)
{
    int64_t *found;
    int n;
    if (w->lock < 0)
        LK_TRY(lk__checkpoint_lock(w->folder, &w->lock));
    if (lk__checkpoint_read_best(w->folder, &w->best) != LK_OK)
        lk_error_clear(); /* best.json is damaged: the next best replaces it */
    LK_TRY(lk__checkpoint_list(w->folder, &found, &n));
    lk_status status = LK_OK;
    if (n > 0 && found[n - 1] > steps && !resuming)
        status = lk__fail(LK_ERR_ARGUMENT,
                          "%s: holds checkpoints of another training, after %lld steps: go on from "
                          "them, or name another folder",
                          w->folder, (long long)found[n - 1]);
    for (int i = 0; i < n && status == LK_OK; i++)
        if (found[i] > steps)
            status = checkpoint_thread_rename_damaged(w, found[i]);
    lk__free(found);
    return status;
}

/* Makes the oldest checkpoint the spare one, if it is no longer kept and this thread wrote it: an earlier one may still
 * be read, and may have other files. */
static lk_status checkpoint_thread_set_aside(lk_checkpoint_thread *w)
{
    char name[LK_CHECKPOINT_NAME], path[PATH_MAX];
    int64_t *found;
    int n;
    LK_TRY(lk__checkpoint_list(w->folder, &found, &n));
    int64_t oldest = n > w->keep ? found[0] : -1;
    lk__free(found);
    if (w->first_written < 0 || oldest < w->first_written)
        return LK_OK;
    lk__checkpoint_name(oldest, name);
    LK_TRY(lk__checkpoint_path(w->folder, name, path));
    LK_TRY(lk__checkpoint_path(w->folder, LK_SPARE, w->spare));
    if (rename(path, w->spare) != 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be renamed: %s", path, strerror(errno));
    return LK_OK;
}

static lk_status checkpoint_thread_remove_old(lk_checkpoint_thread *w)
{
    if (w->reuses)
        LK_TRY(checkpoint_thread_set_aside(w));
    return lk__checkpoint_prune(w->folder, w->keep, w->best.name);
}

static lk_status checkpoint_thread_write_job(lk_checkpoint_thread *w, const job *j)
{
    /* Prune first: if an earlier training kept more checkpoints, a full disk has no space until they are removed. */
    if (lk__checkpoint_prune(w->folder, w->keep, w->best.name) != LK_OK)
        lk_error_clear(); /* reported by the prune after this checkpoint is written */
    LK_TRY(lk__checkpoint_write(w->folder, &j->contents, *w->spare ? w->spare : NULL));
    w->first_written = w->first_written < 0 ? j->contents.steps : w->first_written;
    if (*j->best.name) {
        LK_TRY(lk__checkpoint_write_best(w->folder, &j->best));
        w->best = j->best;
    }
    return LK_OK;
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

/* The caller holds the mutex. */
static job *checkpoint_thread_oldest_job(lk_checkpoint_thread *w)
{
    job *found = NULL;
    for (int i = 0; i < BUFFERS; i++)
        if (w->jobs[i].queued && (!found || w->jobs[i].number < found->number))
            found = &w->jobs[i];
    return found;
}

static void *checkpoint_thread_run(void *argument)
{
    lk_checkpoint_thread *w = argument;
    lk__trace_name_thread(LK_TRACK_LOADER, "checkpoints");
    pthread_mutex_lock(&w->mutex);
    for (job *j; (j = checkpoint_thread_oldest_job(w)) || !w->stopping;) {
        if (!j) {
            pthread_cond_wait(&w->changed, &w->mutex);
            continue;
        }
        pthread_mutex_unlock(&w->mutex);
        lk_error_clear();
        /* A wait for this thread then counts as progress. */
        lk__activity_set(LK_ACTIVITY_WORK, "write a checkpoint");
        lk_status status = checkpoint_thread_write_job(w, j);
        lk_error_state error = {.status = LK_OK}, unremoved = {.status = LK_OK};
        if (status != LK_OK)
            lk__error_save(&error);
        else if (checkpoint_thread_remove_old(w) != LK_OK)
            lk__error_save(&unremoved);
        lk__activity_set(LK_ACTIVITY_NONE, "no work");
        pthread_mutex_lock(&w->mutex);
        w->last = error;
        if (status != LK_OK)
            w->unreported = error;
        if (!w->warned_unremoved)
            w->unremoved = unremoved;
        w->lost_best |= *j->best.name && strcmp(w->best.name, j->best.name) != 0;
        w->kept = w->best;
        j->queued = false;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

static lk_status checkpoint_thread_start(lk_checkpoint_thread *w, const char *folder, int64_t steps, bool resuming,
                                         lk_replicas *replicas)
{
    w->folder = lk__strdup(folder);
    if (!w->folder)
        return LK_ERR_MEMORY;
    LK_TRY(checkpoint_thread_prepare_folder(w, steps, resuming));
    for (int i = 0; i < BUFFERS; i++)
        LK_TRY(lk__checkpoint_contents_init(&w->jobs[i].contents, replicas));
    int error = lk__thread_start(&w->thread, checkpoint_thread_run, w);
    if (error)
        LK_FAIL(LK_ERR_MEMORY, "the thread that writes checkpoints cannot be started: %s", strerror(error));
    w->running = true;
    return LK_OK;
}

lk_status lk__checkpoint_thread_new(const char *folder, int64_t steps, bool resuming, int64_t keep,
                                    lk_replicas *replicas, int *lock, lk_checkpoint_thread **thread)
{
    lk_checkpoint_thread *w = lk__calloc(1, sizeof *w);
    *thread = NULL;
    if (!w) {
        lk__checkpoint_unlock(lock);
        return LK_ERR_MEMORY;
    }
    w->keep = keep > 0 ? keep : KEEP;
    w->lock = *lock;
    *lock = w->first_written = -1;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    lk_status status = checkpoint_thread_start(w, folder, steps, resuming, replicas);
    if (status == LK_OK)
        *thread = w;
    else
        lk__checkpoint_thread_release(w);
    return status;
}

lk_status lk__checkpoint_thread_name_best(lk_checkpoint_thread *w, const lk_best *best)
{
    if (strcmp(w->best.name, best->name) == 0)
        return LK_OK;
    LK_TRY(lk__checkpoint_write_best(w->folder, best));
    w->best = *best;
    return LK_OK;
}

void lk__checkpoint_thread_reuse(lk_checkpoint_thread *w)
{
    w->reuses = true;
}

void lk__checkpoint_thread_warn(lk_checkpoint_thread *w)
{
    pthread_mutex_lock(&w->mutex);
    lk_error_state error = w->unreported, unremoved = w->unremoved;
    bool goes_on = !w->stopping;
    w->unreported = w->unremoved = (lk_error_state){.status = LK_OK};
    w->warned_unremoved |= unremoved.status != LK_OK;
    pthread_mutex_unlock(&w->mutex);
    if (error.status != LK_OK)
        lk__log(LK_LOG_WARNING, "a checkpoint could not be written: %s%s", error.message,
                goes_on ? "; training goes on" : "");
    if (unremoved.status != LK_OK)
        lk__log(LK_LOG_WARNING, "an older checkpoint stays: %s", unremoved.message);
}

void lk__checkpoint_thread_release(lk_checkpoint_thread *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->mutex);
    w->stopping = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    if (w->running)
        pthread_join(w->thread, NULL);
    lk__checkpoint_thread_warn(w);
    for (int i = 0; i < BUFFERS; i++)
        lk__checkpoint_contents_free(&w->jobs[i].contents);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    lk__checkpoint_unlock(&w->lock);
    lk__free(w->folder);
    lk__free(w);
}

/* --- callers ------------------------------------------------------------------------------------------------------ */

/* The caller holds the mutex. */
static job *checkpoint_thread_unused_job(lk_checkpoint_thread *w)
{
    for (int i = 0; i < BUFFERS; i++)
        if (!w->jobs[i].queued)
            return &w->jobs[i];
    return NULL;
}

lk_checkpoint_contents *lk__checkpoint_thread_take(lk_checkpoint_thread *w)
{
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT, "wait for checkpoints to be written");
    pthread_mutex_lock(&w->mutex);
    job *j;
    while (!(j = checkpoint_thread_unused_job(w)))
        pthread_cond_wait(&w->changed, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
    lk__activity_end(before);
    return &j->contents;
}

void lk__checkpoint_thread_put(lk_checkpoint_thread *w, lk_checkpoint_contents *contents, const lk_best *best)
{
    job *j = &w->jobs[0];
    while (&j->contents != contents)
        j++;
    j->best = best ? *best : (lk_best){.name = ""};
    pthread_mutex_lock(&w->mutex);
    j->number = w->next_number++;
    j->queued = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

lk_status lk__checkpoint_thread_drain(lk_checkpoint_thread *w)
{
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT, "wait for checkpoints to be written");
    pthread_mutex_lock(&w->mutex);
    while (checkpoint_thread_oldest_job(w))
        pthread_cond_wait(&w->changed, &w->mutex);
    lk_error_state last = w->last;
    if (last.status != LK_OK)
        w->unreported = (lk_error_state){.status = LK_OK};
    pthread_mutex_unlock(&w->mutex);
    lk__activity_end(before);
    lk__checkpoint_thread_warn(w);
    return last.status == LK_OK ? LK_OK
                                : lk__fail(last.status, "the last checkpoint could not be written: %s", last.message);
}

bool lk__checkpoint_thread_lost_best(lk_checkpoint_thread *w, lk_best *kept)
{
    pthread_mutex_lock(&w->mutex);
    bool lost = w->lost_best;
    for (int i = 0; i < BUFFERS; i++)
        lost = lost && !(w->jobs[i].queued && *w->jobs[i].best.name);
    if (lost) {
        *kept = w->kept;
        w->lost_best = false;
    }
    pthread_mutex_unlock(&w->mutex);
    return lost;
}
