#include "train/checkpoint_writer.h"

#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/trace.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { ROOM = 2, KEEP = 3 };

typedef struct job {
    lk__checkpoint_contents contents;
    lk__best best; /* name "": it is not */
    bool queued;
    int64_t number; /* in the order in which they came */
} job;

struct lk__checkpoint_writer {
    char *folder;
    int lock; /* of the folder; -1: none */
    int64_t keep;
    lk__best best; /* the writer's own: what best.json says */
    job jobs[ROOM];
    pthread_t thread;
    bool running;

    pthread_mutex_t mutex; /* guards what follows, and `queued` */
    pthread_cond_t changed;
    bool stopping;
    int64_t numbers;
    lk_error_state last, unsaid; /* of the last one; of those nobody was told of */
    lk_error_state left;         /* of an older one that could not be removed */
    bool said_left;
    bool lost_best; /* one that was to be the best is not there, and nobody was told */
    lk__best kept;  /* a copy of `best` */
};

/* --- the folder --------------------------------------------------------------------------------------------------- */

static lk_status path_of(const lk__checkpoint_writer *w, const char *prefix, int64_t steps, char path[PATH_MAX])
{
    char name[LK_CHECKPOINT_NAME];
    lk__checkpoint_name(steps, name);
    if (snprintf(path, PATH_MAX, "%s/%s%s", w->folder, prefix, name) >= PATH_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", w->folder);
    return LK_OK;
}

static lk_status put_aside(const lk__checkpoint_writer *w, int64_t steps)
{
    char path[PATH_MAX], aside[PATH_MAX];
    LK_TRY(path_of(w, "", steps, path));
    LK_TRY(path_of(w, "damaged-", steps, aside));
    LK_TRY(lk__remove_folder(aside));
    if (rename(path, aside) != 0)
        LK_FAIL(LK_ERR_IO, "%s: cannot be renamed: %s", path, strerror(errno));
    return LK_OK;
}

static lk_status prepare(lk__checkpoint_writer *w, int64_t steps, bool goes_on)
{
    int64_t *found;
    int n;
    LK_TRY(lk__checkpoint_lock(w->folder, &w->lock));
    if (lk__checkpoint_read_best(w->folder, &w->best) != LK_OK)
        lk_error_clear(); /* damaged: the next best takes its place */
    LK_TRY(lk__checkpoint_list(w->folder, &found, &n));
    lk_status status = LK_OK;
    if (n > 0 && found[n - 1] > steps && !goes_on)
        status = lk__fail(LK_ERR_ARGUMENT,
                          "%s: holds checkpoints of another training, after %lld steps: go on from "
                          "them, or name another folder",
                          w->folder, (long long)found[n - 1]);
    for (int i = 0; i < n && status == LK_OK; i++)
        if (found[i] > steps)
            status = put_aside(w, found[i]);
    lk__free(found);
    return status;
}

static lk_status write_job(lk__checkpoint_writer *w, const job *j)
{
    /* Where fewer are kept than by the training before, a full disk has no room until they are gone. */
    if (lk__checkpoint_prune(w->folder, w->keep, w->best.name) != LK_OK)
        lk_error_clear(); /* told of once this one is written */
    LK_TRY(lk__checkpoint_write(w->folder, &j->contents));
    if (*j->best.name) {
        LK_TRY(lk__checkpoint_write_best(w->folder, &j->best));
        w->best = j->best;
    }
    return LK_OK;
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

/* With the mutex. */
static job *oldest(lk__checkpoint_writer *w)
{
    job *found = NULL;
    for (int i = 0; i < ROOM; i++)
        if (w->jobs[i].queued && (!found || w->jobs[i].number < found->number))
            found = &w->jobs[i];
    return found;
}

static void *run(void *argument)
{
    lk__checkpoint_writer *w = argument;
    lk__trace_name_thread(LK_TRACK_LOADER, "checkpoints");
    pthread_mutex_lock(&w->mutex);
    for (job *j; (j = oldest(w)) || !w->stopping;) {
        if (!j) {
            pthread_cond_wait(&w->changed, &w->mutex);
            continue;
        }
        pthread_mutex_unlock(&w->mutex);
        lk_error_clear();
        lk__now(LK_DOING_WORK, "write a checkpoint"); /* whoever waits for it goes on as it does */
        lk_status status = write_job(w, j);
        lk_error_state error = {.status = LK_OK}, left = {.status = LK_OK};
        if (status != LK_OK)
            lk__error_save(&error);
        else if (lk__checkpoint_prune(w->folder, w->keep, w->best.name) != LK_OK)
            lk__error_save(&left);
        lk__now(LK_DOING_NOTHING, "no work");
        pthread_mutex_lock(&w->mutex);
        w->last = error;
        if (status != LK_OK)
            w->unsaid = error;
        if (!w->said_left)
            w->left = left;
        w->lost_best |= *j->best.name && strcmp(w->best.name, j->best.name) != 0;
        w->kept = w->best;
        j->queued = false;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

static lk_status build(lk__checkpoint_writer *w, const char *folder, int64_t steps, bool goes_on, lk_replicas *replicas)
{
    w->folder = lk__strdup(folder);
    if (!w->folder)
        return LK_ERR_MEMORY;
    LK_TRY(prepare(w, steps, goes_on));
    for (int i = 0; i < ROOM; i++)
        LK_TRY(lk__checkpoint_contents_init(&w->jobs[i].contents, replicas));
    int error = pthread_create(&w->thread, NULL, run, w);
    if (error)
        LK_FAIL(LK_ERR_MEMORY, "the thread that writes checkpoints cannot be started: %s", strerror(error));
    w->running = true;
    return LK_OK;
}

lk_status lk__checkpoint_writer_new(const char *folder, int64_t steps, bool goes_on, int64_t keep,
                                    lk_replicas *replicas, lk__checkpoint_writer **writer)
{
    lk__checkpoint_writer *w = lk__calloc(1, sizeof *w);
    *writer = NULL;
    if (!w)
        return LK_ERR_MEMORY;
    w->keep = keep > 0 ? keep : KEEP;
    w->lock = -1;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    lk_status status = build(w, folder, steps, goes_on, replicas);
    if (status == LK_OK)
        *writer = w;
    else
        lk__checkpoint_writer_release(w);
    return status;
}

lk_status lk__checkpoint_writer_name_best(lk__checkpoint_writer *w, const lk__best *best)
{
    if (strcmp(w->best.name, best->name) == 0)
        return LK_OK;
    LK_TRY(lk__checkpoint_write_best(w->folder, best));
    w->best = *best;
    return LK_OK;
}

void lk__checkpoint_writer_warn(lk__checkpoint_writer *w)
{
    pthread_mutex_lock(&w->mutex);
    lk_error_state error = w->unsaid;
    lk_error_state left = w->left;
    bool goes_on = !w->stopping;
    w->unsaid = w->left = (lk_error_state){.status = LK_OK};
    w->said_left |= left.status != LK_OK;
    pthread_mutex_unlock(&w->mutex);
    if (error.status != LK_OK)
        lk__log(LK_LOG_WARNING, "a checkpoint could not be written: %s%s", error.message,
                goes_on ? "; training goes on" : "");
    if (left.status != LK_OK)
        lk__log(LK_LOG_WARNING, "an older checkpoint stays: %s", left.message);
}

void lk__checkpoint_writer_release(lk__checkpoint_writer *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->mutex);
    w->stopping = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    if (w->running)
        pthread_join(w->thread, NULL);
    lk__checkpoint_writer_warn(w);
    for (int i = 0; i < ROOM; i++)
        lk__checkpoint_contents_free(&w->jobs[i].contents);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    lk__checkpoint_unlock(&w->lock);
    lk__free(w->folder);
    lk__free(w);
}

/* --- handing over ------------------------------------------------------------------------------------------------- */

/* With the mutex. */
static job *free_job(lk__checkpoint_writer *w)
{
    for (int i = 0; i < ROOM; i++)
        if (!w->jobs[i].queued)
            return &w->jobs[i];
    return NULL;
}

lk__checkpoint_contents *lk__checkpoint_writer_take(lk__checkpoint_writer *w)
{
    lk__doing before = lk__now_for_a_while(LK_DOING_WAIT, "wait for checkpoints to be written");
    pthread_mutex_lock(&w->mutex);
    job *j;
    while (!(j = free_job(w)))
        pthread_cond_wait(&w->changed, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
    lk__now_again(before);
    return &j->contents;
}

void lk__checkpoint_writer_put(lk__checkpoint_writer *w, lk__checkpoint_contents *contents, const lk__best *best)
{
    job *j = &w->jobs[0];
    while (&j->contents != contents)
        j++;
    j->best = best ? *best : (lk__best){.name = ""};
    pthread_mutex_lock(&w->mutex);
    j->number = w->numbers++;
    j->queued = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

lk_status lk__checkpoint_writer_drain(lk__checkpoint_writer *w)
{
    lk__doing before = lk__now_for_a_while(LK_DOING_WAIT, "wait for checkpoints to be written");
    pthread_mutex_lock(&w->mutex);
    while (oldest(w))
        pthread_cond_wait(&w->changed, &w->mutex);
    lk_error_state last = w->last;
    if (last.status != LK_OK)
        w->unsaid = (lk_error_state){.status = LK_OK};
    pthread_mutex_unlock(&w->mutex);
    lk__now_again(before);
    lk__checkpoint_writer_warn(w);
    return last.status == LK_OK ? LK_OK
                                : lk__fail(last.status, "the last checkpoint could not be written: %s", last.message);
}

bool lk__checkpoint_writer_lost_best(lk__checkpoint_writer *w, lk__best *kept)
{
    pthread_mutex_lock(&w->mutex);
    bool lost = w->lost_best;
    for (int i = 0; i < ROOM; i++)
        lost = lost && !(w->jobs[i].queued && *w->jobs[i].best.name);
    if (lost) {
        *kept = w->kept;
        w->lost_best = false;
    }
    pthread_mutex_unlock(&w->mutex);
    return lost;
}
