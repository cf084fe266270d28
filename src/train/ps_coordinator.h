/* The chief's side of the conversation: a thread that lets processes join, hands out batches, hears what became of
 * them, and notices who has gone. The functions below are for the thread that trains. */
#ifndef LK_TRAIN_PS_COORDINATOR_H
#define LK_TRAIN_PS_COORDINATOR_H

#include "train/ps_client.h"
#include "train/ps_crew.h"
#include "train/ps_place.h"

typedef struct ps_coordinator ps_coordinator;

/* Listens; place->chief's port becomes the one it has. Keeps post and place. */
lk_status lk__ps_coordinator_open(lk_post *post, ps_place *place, ps_coordinator **coordinator);
void lk__ps_coordinator_release(ps_coordinator *coordinator); /* NULL is fine */

/* What it tells those that join. All of it is kept but for `agreement`, which is copied. */
typedef struct ps_training {
    ps_setup setup; /* of a server, but for what is a server's own */
    const ps_layout *layout;
    lk_tensor *const *variables;    /* as they start: read here */
    lk_tensor *const *const *state; /* the optimiser's, after setup.updates, [n_slots][parameters]: likewise */
    int n_slots;
    const void *agreement; /* what workers have to have too: see agreement.c */
    size_t agreement_bytes;
} ps_training;

/* Begins to answer. */
lk_status lk__ps_coordinator_start(ps_coordinator *coordinator, const ps_training *training);

/* An epoch's batches [first, first + count), of batch_size samples, together `samples`, of which the first `done` are
 * over; rates[count] is copied. */
typedef struct ps_epoch {
    int64_t epoch, first, count, done, batch_size, samples;
    const double *rates;
} ps_epoch;

lk_status lk__ps_coordinator_begin(ps_coordinator *coordinator, const ps_epoch *epoch);

/* A batch that every server has. */
typedef struct ps_finished {
    int64_t index; /* in its epoch */
    int64_t samples;
    double loss, hits, top_k;
    bool skipped;
} ps_finished;

/* The next one; *any false: none within the time. Errors: what has gone wrong with the training since, a worker's
 * number that is not finite (LK_ERR_NUMERIC), a server or all workers that are gone for good (LK_ERR_BACKEND). */
lk_status lk__ps_coordinator_next(ps_coordinator *coordinator, int milliseconds, ps_finished *finished, bool *any);

/* While it is paused no batch is begun; what is out comes to its end. */
void lk__ps_coordinator_pause(ps_coordinator *coordinator, bool paused);

/* All batches that were begun are finished, and have been told: servers have these, and no others. */
bool lk__ps_coordinator_is_at_rest(ps_coordinator *coordinator);

/* Nothing new is handed out; what is out comes to its end, unless no worker is left for it. */
void lk__ps_coordinator_stop(ps_coordinator *coordinator);

/* Whether no worker was left for some of what was out. */
bool lk__ps_coordinator_has_dropped(ps_coordinator *coordinator);

/* All that was handed out is finished, and has been told by lk__ps_coordinator_next. */
bool lk__ps_coordinator_is_idle(ps_coordinator *coordinator);

/* Whether all servers are there. */
bool lk__ps_coordinator_has_servers(ps_coordinator *coordinator);

/* Tells all processes how training ended, and waits until workers have left and servers know; for those that do not
 * answer ten seconds at most, and names them. */
void lk__ps_coordinator_end(ps_coordinator *coordinator, ps_state state, const char *reason);

/* Where servers are, for the chief's own client. */
ps_directory lk__ps_coordinator_directory(ps_coordinator *coordinator);

/* lk__ps_crew_list. */
lk_status lk__ps_coordinator_workers(ps_coordinator *coordinator, ps_worked **workers, int *n);

/* All but lost_updates. */
void lk__ps_coordinator_report(ps_coordinator *coordinator, lk_async_report *report);

#endif
