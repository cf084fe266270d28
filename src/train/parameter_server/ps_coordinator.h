/* The chief's side of the conversation: a thread that lets processes join, hands out batches, takes reports on them,
 * and notices lost processes. The functions below are for the training thread. */
#pragma once

#include "train/parameter_server/ps_client.h"
#include "train/parameter_server/ps_identity.h"
#include "train/parameter_server/ps_worker_records.h"

typedef struct lk_ps_coordinator lk_ps_coordinator;

/* Begins to listen, and sets identity->chief's port to the one it got. post and identity must outlive the coordinator.
 */
lk_status lk__ps_coordinator_open(lk_post *post, lk_ps_identity *identity, lk_ps_coordinator **coordinator);
void lk__ps_coordinator_release(lk_ps_coordinator *coordinator); /* NULL is fine */

/* Data for joining processes. The pointers must stay valid, except `agreement`, which is copied. */
typedef struct lk_ps_training {
    lk_ps_setup setup;  /* of a server, without the fields that differ between servers */
    int64_t most_nodes; /* into which a batch may be cut: a power of two */
    const lk_ps_layout *layout;
    /* Read by lk__ps_coordinator_start: the initial variables, and the optimizer's state after setup.updates updates.
     */
    lk_tensor *const *variables;
    lk_tensor *const *const *state; /* [n_slots][parameters] */
    int n_slots;
    const void *agreement; /* settings that workers must share: see agreement.c */
    size_t agreement_bytes;
} lk_ps_training;

/* Starts the thread, which answers from now on. */
lk_status lk__ps_coordinator_start(lk_ps_coordinator *coordinator, const lk_ps_training *training);

/* An epoch of batches [first, first + count) with batch_size samples each and `samples` in total; the first `done` of
 * them are already over. rates[count] is copied. */
typedef struct lk_ps_epoch {
    int64_t epoch, first, count, done, batch_size, samples;
    const double *rates;
} lk_ps_epoch;

lk_status lk__ps_coordinator_begin(lk_ps_coordinator *coordinator, const lk_ps_epoch *epoch);

/* A batch that every server has applied. */
typedef struct lk_ps_finished {
    int64_t index; /* in its epoch */
    int64_t samples;
    double loss, hits, top_k;
    bool skipped;
} lk_ps_finished;

/* Gets the next finished batch; *any false: none within the time. Errors: those of the training: a
 * worker's result that is not finite (LK_ERR_NUMERIC), a server or all workers lost for good (LK_ERR_BACKEND). */
lk_status lk__ps_coordinator_next(lk_ps_coordinator *coordinator, int milliseconds, lk_ps_finished *finished,
                                  bool *any);

/* While paused no batch is begun; hand-outs that are out are finished. */
void lk__ps_coordinator_pause(lk_ps_coordinator *coordinator, bool paused);

/* Returns whether all batches that were begun are finished and have been returned by lk__ps_coordinator_next: the
 * servers have applied these and no others. */
bool lk__ps_coordinator_is_at_rest(lk_ps_coordinator *coordinator);

/* Begins no new batches. Hand-outs that are out are finished, unless no worker is left for them. */
void lk__ps_coordinator_stop(lk_ps_coordinator *coordinator);

/* Returns whether some hand-outs were dropped because no worker was left. */
bool lk__ps_coordinator_has_dropped(lk_ps_coordinator *coordinator);

/* Returns whether everything handed out is finished and has been returned by lk__ps_coordinator_next. */
bool lk__ps_coordinator_is_idle(lk_ps_coordinator *coordinator);

/* Returns whether all servers are connected. */
bool lk__ps_coordinator_has_servers(lk_ps_coordinator *coordinator);

/* Tells all processes how training ended, and waits until workers have left and servers know. Waits at most ten seconds
 * for processes that do not answer, and logs their names. */
void lk__ps_coordinator_end(lk_ps_coordinator *coordinator, lk_ps_state state, const char *reason);

/* The directory of servers, for the chief's own client. */
lk_ps_directory lk__ps_coordinator_directory(lk_ps_coordinator *coordinator);

/* Lists what workers have reported: see lk__ps_worker_records_list. */
lk_status lk__ps_coordinator_workers(lk_ps_coordinator *coordinator, lk_ps_worker_record **workers, int *n);

/* Fills the report, except lost_updates. */
void lk__ps_coordinator_report(lk_ps_coordinator *coordinator, lk_async_report *report);

/* Records the failure of the training, unless there is one already. The caller holds the mutex. */
void lk__ps_fail(lk_ps_coordinator *c, lk_status status, const char *format, ...) LK_PRINTF(3, 4);
