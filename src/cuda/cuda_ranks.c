#include "cuda/cuda_ranks.h"

#include "base/mem.h"
#include "base/thread.h"
#include "cuda/cuda_device.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_SECONDS = 60, MOST_SECONDS = 86400, TICK_MS = 50, LEAVING_MS = 5000 };

/* The progress of a stream, as the watching thread's last tick saw it. */
typedef struct progress {
    uint64_t marked;  /* entries given to the stream */
    uint64_t done;    /* entries known to be done */
    uint64_t awaited; /* entry whose end is polled; at most `done`: nothing is in flight */
} progress;

typedef struct lk_cuda_membership {
    lk_cuda_ranks *ranks;
    struct lk_cuda_membership *next;
} membership;

struct lk_cuda_ranks {
    const lk_gpu_driver *driver;
    const lk_gpu_nccl *nccl;
    int n, first, ranks;
    lk_status (*others)(void *user); /* lk_links_opts.others */
    void *user;
    int limit_ms;
    bool are_connected;
    lk_cuda *const *streams; /* [n]; the links' own, not the devices' */
    lk_gpu_comm **comms;     /* [n] */
    membership *memberships; /* [n] */

    /* `launching` is held from a group's begin to its end, and while exchanges are paused. `talking` is held while NCCL
     * is called, and taken after `launching`. There are two, because a thread that has paused exchanges may wait for
     * one that hangs, which the watching thread must be able to abort. */
    pthread_mutex_t launching, talking;

    progress *progress;   /* [n]; used by the watching thread only */
    atomic_int n_pausing; /* threads that wait for an exchange in flight, which may not be marked yet */
    pthread_t thread;
    bool is_watched;
    pthread_mutex_t stopping;
    pthread_cond_t stop;
    bool is_stopped;
};

lk_gpu_comm *lk__cuda_ranks_comm(const lk_cuda_ranks *ranks, int i)
{
    return ranks->comms[i];
}

/* --- aborting exchanges ------------------------------------------------------------------------------------------- */

/* The caller holds `talking`. Records the error before aborting, so that threads that wait for the streams see it. */
static void cuda_ranks_end_exchanges(lk_cuda_ranks *r, lk_status status, const char *message)
{
    for (int i = 0; i < r->n; i++) {
        lk__cuda_fail(r->streams[i], status, message);
        lk__cuda_fail(r->streams[i]->device, status, message);
    }
    for (int i = 0; i < r->n; i++)
        r->nccl->comm_abort(r->comms[i]);
}

/* Fails because `what` has made no progress within the limit. */
static lk_status cuda_ranks_fail_stalled(const lk_cuda_ranks *r, const char *what, const char *advice)
{
    char waiting[256] = "";
    for (int i = 0; i < r->n; i++) {
        size_t used = strlen(waiting);
        snprintf(waiting + used, sizeof waiting - used, "%srank %d on cuda:%d", i ? ", " : "", r->first + i,
                 r->streams[i]->gpu);
    }
    LK_FAIL(LK_ERR_DEVICE,
            "%s has stood still for %d s; of %d ranks, %s %s: %s (LOCKSTEP_EXCHANGE_TIMEOUT sets the seconds)", what,
            r->limit_ms / 1000, r->ranks, waiting, r->n > 1 ? "wait" : "waits", advice);
}

static lk_status cuda_ranks_fail_stalled_exchange(const lk_cuda_ranks *r)
{
    return cuda_ranks_fail_stalled(r, "the exchange between GPUs",
                                   r->n < r->ranks
                                       ? "is the process of every other rank still there, and does its GPU work?"
                                       : "does every GPU still work? see nvidia-smi, and dmesg | grep Xid");
}

static lk_status cuda_ranks_ask_for_others(const lk_cuda_ranks *r)
{
    return r->others ? r->others(r->user) : LK_OK;
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

/* The first error of a communicator; LK_GPU_BUSY if one is not done; otherwise LK_GPU_OK. */
static lk_gpu_status cuda_ranks_check_comms(const lk_cuda_ranks *r)
{
    lk_gpu_status status = LK_GPU_OK;
    for (int i = 0; i < r->n; i++) {
        lk_gpu_status one = r->nccl->comm_check(r->comms[i]);
        if (one != LK_GPU_OK && one != LK_GPU_BUSY)
            return one;
        status = one == LK_GPU_OK ? status : one;
    }
    return status;
}

/* Waits until every rank has reached the end of the group. `ended` is the status of group_end. If a rank has not come
 * after limit_ms, fails as `late` does. */
static lk_status wait_for_ranks(const lk_cuda_ranks *r, lk_gpu_status ended, int64_t limit_ms,
                                lk_status (*late)(const lk_cuda_ranks *ranks))
{
    enum { OFTEN = 1000 };
    int asked = 0;
    if (ended == LK_GPU_OK || ended == LK_GPU_BUSY)
        ended = cuda_ranks_check_comms(r);
    for (int64_t waited = 0; ended == LK_GPU_BUSY; asked++) {
        if (waited >= limit_ms)
            return late(r);
        if (asked >= OFTEN) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            waited++;
            if (waited % TICK_MS == 0)
                LK_TRY(cuda_ranks_ask_for_others(r));
        }
        ended = cuda_ranks_check_comms(r);
    }
    return lk__cuda_check(r->driver, ended);
}

lk_status lk__cuda_ranks_begin(lk_cuda_ranks *r)
{
    pthread_mutex_lock(&r->launching);
    pthread_mutex_lock(&r->talking);
    lk_status status = lk__cuda_check_fault(r->streams[0]);
    if (status == LK_OK)
        status = lk__cuda_check(r->driver, r->nccl->group_begin());
    if (status == LK_OK)
        return LK_OK;
    pthread_mutex_unlock(&r->talking);
    pthread_mutex_unlock(&r->launching);
    return status;
}

/* If the group fails everything is aborted: a part of it that was started would wait for the rest forever. */
lk_status lk__cuda_ranks_end(lk_cuda_ranks *r)
{
    lk_status status = wait_for_ranks(r, r->nccl->group_end(), r->limit_ms, cuda_ranks_fail_stalled_exchange);
    if (status != LK_OK)
        cuda_ranks_end_exchanges(r, status, lk_error_message());
    pthread_mutex_unlock(&r->talking);
    pthread_mutex_unlock(&r->launching);
    return status;
}

/* --- the watching thread ------------------------------------------------------------------------------------------ */

/* Polls stream i. Sets *waits if it had work in flight, and *has_moved if it got or finished any since the last poll.
 */
static lk_gpu_status cuda_ranks_poll_stream(lk_cuda_ranks *r, int i, bool *waits, bool *has_moved)
{
    progress *p = &r->progress[i];
    uint64_t marked = atomic_load_explicit(&r->streams[i]->marked, memory_order_acquire);
    *has_moved |= marked != p->marked;
    p->marked = marked;
    if (p->awaited <= p->done)
        p->awaited = marked;
    if (p->awaited <= p->done)
        return LK_GPU_OK;
    lk_gpu_status status = r->driver->event_query(lk__cuda_event_of(r->streams[i], p->awaited));
    *waits = true;
    if (status == LK_GPU_BUSY)
        return LK_GPU_OK;
    *has_moved = true;
    p->done = p->awaited;
    return status;
}

/* Looks for an error of NCCL or of a GPU. While another thread is in a group, that thread checks the communicators. */
static lk_status cuda_ranks_look_for_errors(lk_cuda_ranks *r, bool *waits, bool *has_moved)
{
    for (int i = 0; i < r->n; i++)
        LK_TRY(lk__cuda_check(r->driver, cuda_ranks_poll_stream(r, i, waits, has_moved)));
    if (pthread_mutex_trylock(&r->talking) != 0)
        return LK_OK;
    lk_status status = lk__cuda_check_fault(r->streams[0]);
    lk_gpu_status found = status == LK_OK ? cuda_ranks_check_comms(r) : LK_GPU_OK;
    if (found != LK_GPU_OK && found != LK_GPU_BUSY)
        status = lk__cuda_check(r->driver, found);
    pthread_mutex_unlock(&r->talking);
    return status;
}

/* False: an exchange was aborted, and there is nothing left to watch. *still is the number of ms in which nothing has
 * moved. It is counted in ticks instead of read from a clock, so that it leaves out time when the process was stopped.
 */
static bool cuda_ranks_watch_once(lk_cuda_ranks *r, int *still)
{
    bool waits = false, has_moved = false;
    lk_error_clear();
    lk_status status = cuda_ranks_look_for_errors(r, &waits, &has_moved);
    waits |= atomic_load(&r->n_pausing) > 0;
    *still = waits && !has_moved ? *still + TICK_MS : 0;
    if (status == LK_OK && *still > TICK_MS)
        status = cuda_ranks_ask_for_others(r);
    if (status == LK_OK && *still >= r->limit_ms)
        status = cuda_ranks_fail_stalled_exchange(r);
    if (status == LK_OK)
        return true;
    pthread_mutex_lock(&r->talking);
    if (lk__cuda_check_fault(r->streams[0]) == LK_OK)
        cuda_ranks_end_exchanges(r, status, lk_error_message());
    pthread_mutex_unlock(&r->talking);
    return false;
}

/* True: the thread must end. */
static bool cuda_ranks_sleep_a_tick(lk_cuda_ranks *r)
{
    struct timespec until = lk__deadline_after(TICK_MS);
    pthread_mutex_lock(&r->stopping);
    while (!r->is_stopped && pthread_cond_timedwait(&r->stop, &r->stopping, &until) != ETIMEDOUT)
        continue;
    bool is_stopped = r->is_stopped;
    pthread_mutex_unlock(&r->stopping);
    return is_stopped;
}

static void *cuda_ranks_run_watching(void *argument)
{
    lk_cuda_ranks *r = argument;
    int still = 0;
    while (!cuda_ranks_sleep_a_tick(r) && cuda_ranks_watch_once(r, &still))
        continue;
    lk_error_clear();
    return NULL;
}

static lk_status cuda_ranks_start_watching(lk_cuda_ranks *r)
{
    int failed = lk__thread_start(&r->thread, cuda_ranks_run_watching, r);
    if (failed)
        LK_FAIL(LK_ERR_DEVICE, "links between GPUs: no thread could be started: %s", strerror(failed));
    r->is_watched = true;
    return LK_OK;
}

static void cuda_ranks_stop_watching(lk_cuda_ranks *r)
{
    if (!r->is_watched)
        return;
    pthread_mutex_lock(&r->stopping);
    r->is_stopped = true;
    pthread_cond_signal(&r->stop);
    pthread_mutex_unlock(&r->stopping);
    pthread_join(r->thread, NULL);
}

/* --- pausing ------------------------------------------------------------------------------------------------------ */

/* Held while links add themselves to the lists of their devices, so that all devices list them in the same order, which
 * is the order of locking. */
static pthread_mutex_t entering = PTHREAD_MUTEX_INITIALIZER;

static void cuda_ranks_enter_devices(lk_cuda_ranks *r)
{
    pthread_mutex_lock(&entering);
    for (int i = 0; i < r->n; i++) {
        lk_cuda *device = r->streams[i]->device;
        pthread_mutex_lock(&device->linking);
        r->memberships[i] = (membership){r, device->memberships};
        device->memberships = &r->memberships[i];
        pthread_mutex_unlock(&device->linking);
    }
    pthread_mutex_unlock(&entering);
}

static void cuda_ranks_leave_devices(lk_cuda_ranks *r)
{
    for (int i = 0; i < r->n; i++) {
        lk_cuda *device = r->streams[i]->device;
        pthread_mutex_lock(&device->linking);
        for (membership **link = &device->memberships; *link; link = &(*link)->next) {
            if (*link != &r->memberships[i])
                continue;
            *link = (*link)->next;
            break;
        }
        pthread_mutex_unlock(&device->linking);
    }
}

/* The waits cannot hang: an exchange in flight ends, or the watching thread aborts it. */
void lk__cuda_pause_exchanges(lk_cuda *cuda, bool until_idle)
{
    pthread_mutex_lock(&cuda->linking);
    for (const membership *m = cuda->memberships; m; m = m->next) {
        const lk_cuda_ranks *r = m->ranks;
        pthread_mutex_lock(&m->ranks->launching);
        atomic_fetch_add(&m->ranks->n_pausing, 1);
        for (int i = 0; until_idle && i < r->n; i++)
            r->driver->stream_wait(r->streams[i]->trunk);
        atomic_fetch_sub(&m->ranks->n_pausing, 1);
    }
}

void lk__cuda_resume_exchanges(lk_cuda *cuda)
{
    for (const membership *m = cuda->memberships; m; m = m->next)
        pthread_mutex_unlock(&m->ranks->launching);
    pthread_mutex_unlock(&cuda->linking);
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

/* Reads the limit in seconds. It must be longer than anything that one rank does alone while others wait, such as
 * writing a checkpoint. */
static lk_status cuda_ranks_read_limit(int *ms)
{
    const char *text = getenv("LOCKSTEP_EXCHANGE_TIMEOUT");
    char *end;
    *ms = DEFAULT_SECONDS * 1000;
    if (!text || !*text)
        return LK_OK;
    long seconds = strtol(text, &end, 10);
    if (*end || seconds < 1 || seconds > MOST_SECONDS)
        LK_FAIL(LK_ERR_ARGUMENT, "LOCKSTEP_EXCHANGE_TIMEOUT=%s: whole seconds from 1 to %d are possible", text,
                MOST_SECONDS);
    *ms = (int)seconds * 1000;
    return LK_OK;
}

static lk_status ranks_are_missing(const lk_cuda_ranks *r)
{
    return cuda_ranks_fail_stalled(r, "connecting GPUs",
                                   "was every other rank started, with the same number of ranks?");
}

/* Connects all ranks of this process in one group: waiting for one rank before naming the next would never end. Without
 * opts->id all ranks are in this process, so none can be missing, and NCCL itself may wait, which is cheaper. */
static lk_status connect_ranks(lk_cuda_ranks *r, const lk_links_opts *opts)
{
    lk_gpu_comm_id id;
    if (opts->id)
        memcpy(&id, opts->id, sizeof id);
    else
        LK_TRY(lk__cuda_check(r->driver, r->nccl->new_id(&id)));
    lk_gpu_status status = r->nccl->group_begin();
    for (int i = 0; i < r->n && status == LK_GPU_OK; i++)
        status = r->nccl->comm_new(&id, r->first + i, r->ranks, !opts->id, r->streams[i]->trunk, &r->comms[i]);
    lk_gpu_status ended = r->nccl->group_end();
    if (status != LK_GPU_OK)
        return lk__cuda_check(r->driver, status);
    return ended == LK_GPU_BUSY ? wait_for_ranks(r, ended, r->limit_ms, ranks_are_missing)
                                : lk__cuda_check(r->driver, ended);
}

static lk_status open_ranks(lk_cuda_ranks *r, const lk_links_opts *opts)
{
    r->comms = lk__calloc((size_t)opts->n, sizeof(lk_gpu_comm *));
    r->memberships = lk__calloc((size_t)opts->n, sizeof *r->memberships);
    r->progress = lk__calloc((size_t)opts->n, sizeof *r->progress);
    if (!r->comms || !r->memberships || !r->progress)
        return LK_ERR_MEMORY;
    r->n = opts->n;
    LK_TRY(cuda_ranks_read_limit(&r->limit_ms));
    LK_TRY(connect_ranks(r, opts));
    r->are_connected = true;
    LK_TRY(cuda_ranks_start_watching(r));
    cuda_ranks_enter_devices(r);
    return LK_OK;
}

static void cuda_ranks_init_locks(lk_cuda_ranks *r)
{
    pthread_mutex_init(&r->launching, NULL);
    pthread_mutex_init(&r->talking, NULL);
    pthread_mutex_init(&r->stopping, NULL);
    lk__condition_init(&r->stop);
}

lk_status lk__cuda_ranks_new(const lk_gpu_nccl *nccl, const lk_links_opts *opts, lk_cuda *const *streams,
                             lk_cuda_ranks **ranks)
{
    lk_cuda_ranks *r = lk__calloc(1, sizeof *r);
    if (!r)
        return LK_ERR_MEMORY;
    r->driver = streams[0]->driver;
    r->nccl = nccl;
    r->first = opts->first;
    r->ranks = opts->ranks;
    r->others = opts->others;
    r->user = opts->user;
    r->streams = streams;
    cuda_ranks_init_locks(r);
    lk_status status = open_ranks(r, opts);
    if (status == LK_OK)
        *ranks = r;
    else
        lk__cuda_ranks_free(r);
    return status;
}

static lk_status cuda_ranks_is_left_alone(const lk_cuda_ranks *r)
{
    (void)r;
    return LK_ERR_DEVICE;
}

static lk_status cuda_ranks_finalize_comms(const lk_cuda_ranks *r)
{
    lk_gpu_status status = r->nccl->group_begin();
    for (int i = 0; i < r->n && status == LK_GPU_OK; i++)
        status = r->nccl->comm_finalize(r->comms[i]);
    lk_gpu_status ended = r->nccl->group_end();
    return wait_for_ranks(r, status == LK_GPU_OK ? ended : status, r->limit_ms < LEAVING_MS ? r->limit_ms : LEAVING_MS,
                          cuda_ranks_is_left_alone);
}

/* Finalizes the communicators together with the ranks of other processes. All exchanges are done, so a failure loses
 * nothing, and is ignored: another process may have ended with an error. Communicators left behind are aborted
 * by comm_free. */
static void leave_ranks(const lk_cuda_ranks *r)
{
    lk_error_state before;
    if (!r->are_connected)
        return;
    lk__error_save(&before);
    if (lk__cuda_check_fault(r->streams[0]) == LK_OK)
        cuda_ranks_finalize_comms(r);
    lk__error_restore(&before);
}

void lk__cuda_ranks_free(lk_cuda_ranks *r)
{
    if (!r)
        return;
    cuda_ranks_leave_devices(r);
    cuda_ranks_stop_watching(r);
    leave_ranks(r);
    for (int i = 0; i < r->n; i++)
        r->nccl->comm_free(r->comms[i]);
    pthread_mutex_destroy(&r->launching);
    pthread_mutex_destroy(&r->talking);
    pthread_mutex_destroy(&r->stopping);
    pthread_cond_destroy(&r->stop);
    lk__free(r->progress);
    lk__free(r->memberships);
    lk__free(r->comms);
    lk__free(r);
}
