/* Delivers batches in order. They are prepared by worker threads ahead of the caller or, without workers, by the
 * caller.
 *
 * Workers claim batch numbers one after another, at most `depth` past the last delivered one, so until batch b is
 * delivered no other batch uses slot b % depth of `ready`. A batch's content depends on (epoch, b) alone, not on the
 * thread that fills it. */
#include "data/loading/batch.h"

#include "base/float_env.h"
#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "base/thread.h"
#include "core/trace.h"
#include "data/dataset.h"
#include "data/loading/augment.h"
#include "lockstep/dist.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_DEPTH = 4,
    FREELY_HELD = 4, /* batches that the caller may hold in addition to the current one before the pool has to grow */
    MAX_WORKERS = 1024
};

/* A slot of `ready`. */
typedef struct outcome {
    lk_batch *batch;
    lk_status status;
    bool there; /* a worker has finished the batch, or failed */
} outcome;

/* A thread that prepares batches. */
typedef struct worker {
    lk_loader *loader;
    float *scratch; /* this worker's part of loader->scratch, for augmentation */
    pthread_t thread;
} worker;

struct lk_loader {
    lk_dataset *dataset;
    lk_loader_opts opts;
    lk_augmentation augmentation;
    int64_t pixels;
    int64_t read; /* floats at the beginning of a scratch, for an image that a function of the program gives; else 0 */
    int64_t batches;
    lk_batch_pool *pool;
    bool started;

    /* Written by lk_loader_start_at while no worker is busy; workers read them without the mutex. */
    int64_t epoch;
    int64_t *order;

    float *scratch;  /* for all workers, or for the caller's thread if there are none */
    worker *workers; /* [opts.workers] */
    int running;     /* workers that were started */

    pthread_mutex_t mutex;    /* guards the members below */
    pthread_cond_t claimable; /* workers wait for it: a batch may be claimed, or `stopping` is set */
    pthread_cond_t finished;  /* the caller waits for it: a worker has finished a batch */
    bool stopping;
    int busy;          /* workers that fill a batch now */
    int64_t claimed;   /* the next batch to be claimed */
    int64_t delivered; /* the next batch to be delivered */
    outcome *ready;    /* [depth] */
    int64_t failed;    /* the first batch of this epoch that failed; -1: none */
    char error[512];   /* its message */
};

/* Returns the samples of a batch of `count` whose images this process needs. */
static lk_range loader_wanted_images(const lk_loader *loader, int64_t count)
{
    const lk_loader_opts *opts = &loader->opts;
    if (opts->no_images)
        return (lk_range){0, 0};
    if (opts->shards == 0)
        return (lk_range){0, count};
    return (lk_range){lk_part(count, opts->shards, opts->first_shard).begin,
                      lk_part(count, opts->shards, opts->end_shard - 1).end};
}

static lk_status loader_fill_batch(const lk_loader *loader, int64_t index, float *scratch, lk_batch *batch,
                                   const lk_batch_memory *memory)
{
    int64_t first = index * loader->opts.batch_size;
    batch->count = lk__min(lk_dataset_count(loader->dataset) - first, loader->opts.batch_size);
    batch->index = index;
    batch->epoch = loader->epoch;
    lk_range wanted = loader_wanted_images(loader, batch->count);
    const int32_t *labels = lk_dataset_labels(loader->dataset);
    for (int64_t i = 0; i < batch->count; i++) {
        int64_t sample = loader->order[first + i];
        if (i >= wanted.begin && i < wanted.end) {
            lk_dataset_reading reading = {loader->dataset, scratch};
            LK_TRY(lk__augmentation_make(&loader->augmentation, lk__dataset_read, &reading,
                                         lk_dataset_count(loader->dataset), loader->epoch, sample,
                                         scratch + loader->read, memory->images + i * loader->pixels));
        }
        memory->labels[i] = labels[sample];
        memory->indices[i] = sample;
    }
    return LK_OK;
}

static lk_status loader_prepare_batch(const lk_loader *loader, int64_t index, float *scratch, lk_batch **batch)
{
    lk_batch_memory memory;
    int64_t began = lk__trace_begin();
    LK_TRY(lk__batch_pool_take(loader->pool, batch, &memory));
    lk_activity before = lk__activity_begin(LK_ACTIVITY_WORK, "prepare a batch");
    fenv_t callers = lk__float_begin(); /* a worker's is that of the thread that made the loader */
    lk_status status = loader_fill_batch(loader, index, scratch, *batch, &memory);
    lk__float_end(&callers);
    lk__activity_end(before);
    lk__trace_end(LK_TRACE_PREPARE, began, index);
    if (status != LK_OK) {
        lk_batch_release(*batch);
        *batch = NULL;
    }
    return status;
}

static bool loader_may_claim(const lk_loader *loader)
{
    return loader->claimed < loader->batches && loader->claimed < loader->delivered + loader->opts.depth;
}

/* An error message belongs to the thread that set it, so the worker copies it to loader->error for the caller. No batch
 * behind the first one that failed is delivered. */
static void loader_keep_error(lk_loader *loader, int64_t index)
{
    if (loader->failed < 0 || index < loader->failed) {
        loader->failed = index;
        snprintf(loader->error, sizeof loader->error, "%s", lk_error_message());
    }
    lk_error_clear();
}

static void *loader_run_worker(void *argument)
{
    const worker *self = argument;
    lk_loader *loader = self->loader;
    char name[32];
    snprintf(name, sizeof name, "loader %d", (int)(self - loader->workers));
    lk__trace_name_thread(LK_TRACK_LOADER, name);
    pthread_mutex_lock(&loader->mutex);
    while (!loader->stopping) {
        if (!loader_may_claim(loader)) {
            pthread_cond_wait(&loader->claimable, &loader->mutex);
            continue;
        }
        int64_t index = loader->claimed++;
        loader->busy++;
        pthread_mutex_unlock(&loader->mutex);
        outcome done = {.there = true};
        done.status = loader_prepare_batch(loader, index, self->scratch, &done.batch);
        pthread_mutex_lock(&loader->mutex);
        if (done.status != LK_OK)
            loader_keep_error(loader, index);
        loader->busy--;
        loader->ready[index % loader->opts.depth] = done;
        pthread_cond_signal(&loader->finished);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* Waits until no worker is busy, and drops the batches that are ready. */
static void loader_quiesce_workers(lk_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    loader->claimed = loader->batches;
    while (loader->busy > 0)
        pthread_cond_wait(&loader->finished, &loader->mutex);
    for (int i = 0; i < loader->opts.depth; i++) {
        lk_batch_release(loader->ready[i].batch);
        loader->ready[i] = (outcome){0};
    }
    loader->failed = -1;
    pthread_mutex_unlock(&loader->mutex);
}

/* Returns the floats of a worker's scratch: whole cache lines, so that no two workers write to the same line. */
static int64_t loader_scratch_size(const lk_loader *loader)
{
    const int64_t line = LK_ALIGNMENT / (int64_t)sizeof(float);
    return (loader->read + lk__augmentation_scratch(&loader->augmentation) + line - 1) / line * line;
}

static lk_status loader_make_scratch(lk_loader *loader)
{
    int threads = loader->opts.workers ? loader->opts.workers : 1;
    size_t bytes;
    if (!lk__mul_size((size_t)loader_scratch_size(loader), (size_t)threads * sizeof(float), &bytes))
        LK_FAIL(LK_ERR_MEMORY, "out of memory: what augmentation works in exceeds the address space");
    loader->scratch = lk__alloc_aligned(bytes);
    return loader->scratch ? LK_OK : LK_ERR_MEMORY;
}

static lk_status loader_start_workers(lk_loader *loader)
{
    loader->workers = lk__calloc((size_t)loader->opts.workers, sizeof *loader->workers);
    if (!loader->workers)
        return LK_ERR_MEMORY;
    for (; loader->running < loader->opts.workers; loader->running++) {
        worker *w = &loader->workers[loader->running];
        w->loader = loader;
        w->scratch = loader->scratch + loader->running * loader_scratch_size(loader);
        int error = lk__thread_start(&w->thread, loader_run_worker, w);
        if (error)
            LK_FAIL(LK_ERR_MEMORY, "loader worker %d of %d cannot be started: %s", loader->running,
                    loader->opts.workers, strerror(error));
    }
    return LK_OK;
}

static lk_status loader_check_opts(const lk_loader_opts *opts)
{
    if (opts->batch_size < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "batch size %" PRId64 ": expected at least 1", opts->batch_size);
    if (opts->workers < 0 || opts->workers > MAX_WORKERS)
        LK_FAIL(LK_ERR_ARGUMENT, "%d loader workers: expected 0 to %d", opts->workers, MAX_WORKERS);
    if (opts->shards < 0 || (opts->shards > 0 && (opts->first_shard < 0 || opts->first_shard >= opts->end_shard ||
                                                  opts->end_shard > opts->shards)))
        LK_FAIL(LK_ERR_ARGUMENT, "shards %" PRId64 " to %" PRId64 " of %" PRId64 ": expected some of them",
                opts->first_shard, opts->end_shard, opts->shards);
    if (opts->depth < 0 || opts->depth > MAX_WORKERS)
        LK_FAIL(LK_ERR_ARGUMENT, "loader depth %d: expected 0 to %d", opts->depth, MAX_WORKERS);
    return LK_OK;
}

static lk_status loader_init(lk_loader *loader)
{
    lk_loader_opts *opts = &loader->opts;
    int64_t count = lk_dataset_count(loader->dataset);
    if (opts->batch_size > count)
        opts->batch_size = count;
    if (opts->depth == 0)
        opts->depth = DEFAULT_DEPTH;
    if (opts->depth < opts->workers)
        opts->depth = opts->workers;
    loader->pixels = lk__dataset_image_values(loader->dataset);
    loader->read = lk__dataset_reads(loader->dataset) ? loader->pixels : 0;
    loader->batches = (count - 1) / opts->batch_size + 1;
    loader->claimed = loader->batches;
    LK_TRY(lk__augmentation_init(loader->dataset, opts->seed, !opts->evaluation, opts->augment, opts->moments,
                                 &loader->augmentation));
    opts->augment = NULL; /* the caller's; copied above */
    opts->moments = NULL;
    LK_TRY(loader_make_scratch(loader));
    loader->order = lk__calloc((size_t)count, sizeof *loader->order);
    loader->ready = lk__calloc((size_t)opts->depth, sizeof *loader->ready);
    if (!loader->order || !loader->ready)
        return LK_ERR_MEMORY;
    int stock = FREELY_HELD + 1 + (opts->workers ? opts->depth : 0);
    LK_TRY(lk__batch_pool_new(opts->batch_size, opts->no_images ? 0 : loader->pixels, stock, &loader->pool));
    return opts->workers ? loader_start_workers(loader) : LK_OK;
}

lk_status lk_loader_new(lk_dataset *dataset, const lk_loader_opts *opts, lk_loader **loader)
{
    *loader = NULL;
    LK_TRY(loader_check_opts(opts));
    lk_loader *l = lk__calloc(1, sizeof *l);
    if (!l)
        return LK_ERR_MEMORY;
    l->dataset = lk_dataset_retain(dataset);
    l->opts = *opts;
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->claimable, NULL);
    pthread_cond_init(&l->finished, NULL);
    lk_status status = loader_init(l);
    if (status != LK_OK) {
        lk_loader_release(l);
        return status;
    }
    *loader = l;
    return LK_OK;
}

void lk_loader_release(lk_loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->mutex);
    loader->stopping = true;
    pthread_cond_broadcast(&loader->claimable);
    pthread_mutex_unlock(&loader->mutex);
    for (int i = 0; i < loader->running; i++)
        pthread_join(loader->workers[i].thread, NULL);
    if (loader->ready)
        loader_quiesce_workers(loader);
    lk__batch_pool_release(loader->pool);
    pthread_cond_destroy(&loader->finished);
    pthread_cond_destroy(&loader->claimable);
    pthread_mutex_destroy(&loader->mutex);
    lk__free(loader->workers);
    lk__free_aligned(loader->scratch);
    lk__augmentation_free(&loader->augmentation);
    lk__free(loader->ready);
    lk__free(loader->order);
    lk_dataset_release(loader->dataset);
    lk__free(loader);
}

lk_status lk_loader_start_at(lk_loader *loader, int64_t epoch, int64_t first_batch)
{
    if (first_batch < 0 || first_batch > loader->batches)
        LK_FAIL(LK_ERR_ARGUMENT, "first batch %" PRId64 ": expected 0 to %" PRId64, first_batch, loader->batches);
    if (loader->started && loader->epoch == epoch && loader->delivered == first_batch)
        return LK_OK; /* already started there: keep the batches that are prepared */
    loader_quiesce_workers(loader);
    loader->started = false;
    LK_TRY(lk_sample_order(lk_dataset_count(loader->dataset), loader->opts.seed, epoch, loader->opts.shuffle,
                           loader->order));
    loader->epoch = epoch;
    loader->started = true;
    pthread_mutex_lock(&loader->mutex);
    loader->claimed = first_batch;
    loader->delivered = first_batch;
    pthread_cond_broadcast(&loader->claimable);
    pthread_mutex_unlock(&loader->mutex);
    return LK_OK;
}

lk_status lk_loader_start(lk_loader *loader, int64_t epoch)
{
    return lk_loader_start_at(loader, epoch, 0);
}

static outcome loader_take_next_batch(lk_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    outcome *slot = &loader->ready[loader->delivered % loader->opts.depth];
    if (!slot->there) {
        int64_t began = lk__trace_begin();
        lk_activity before = lk__activity_begin(LK_ACTIVITY_WAIT, "wait for a batch");
        while (!slot->there)
            pthread_cond_wait(&loader->finished, &loader->mutex);
        lk__activity_end(before);
        lk__trace_end(LK_TRACE_WAIT_BATCH, began, loader->delivered);
    }
    outcome done = *slot;
    *slot = (outcome){0};
    loader->delivered++;
    pthread_cond_signal(&loader->claimable);
    pthread_mutex_unlock(&loader->mutex);
    return done;
}

lk_status lk_loader_next(lk_loader *loader, lk_batch **batch)
{
    *batch = NULL;
    if (!loader->started)
        LK_FAIL(LK_ERR_STATE, "lk_loader_next before lk_loader_start");
    if (loader->delivered == loader->batches)
        return LK_OK;
    outcome done = {0};
    if (loader->opts.workers) {
        done = loader_take_next_batch(loader);
        if (done.status != LK_OK)
            lk__fail(done.status, "%s", loader->error);
    } else {
        done.status = loader_prepare_batch(loader, loader->delivered++, loader->scratch, &done.batch);
    }
    if (done.status != LK_OK) {
        loader->started = false;
        return done.status;
    }
    *batch = done.batch;
    return LK_OK;
}

int64_t lk_loader_batches(const lk_loader *loader)
{
    return loader->batches;
}
