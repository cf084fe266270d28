/* Who works on what: batches of an epoch are handed out to workers, each exactly once while no worker is lost; what a
 * lost one had is handed out again. It also keeps the promise on staleness, by whom it lets go on.
 *
 * Staleness of a push: updates that were applied to a variable between the worker's pull and its push. With a limit of
 * S >= 1 a worker has to be granted its push. A hand-out is `behind` by the pushes granted since it was handed out, and
 * by those that were granted then and not finished. A push is granted where no other hand-out comes to more than S by
 * it, and where those that remain can still finish, the one furthest behind first: sorted so, number k is behind by at
 * most S - k. A hand-out is made where that holds with it. So the one furthest behind can always go on, and nobody
 * waits for ever (compare the stale synchronous parallel model: Ho et al., NIPS 2013).
 *
 * With S = 0 there is one batch at a time, and workers share it: nodes of the tree over its shards. */
#ifndef LK_DIST_HANDOUTS_H
#define LK_DIST_HANDOUTS_H

#include "lockstep/dist.h"

#include <stdbool.h>

enum { LK_NO_STALENESS_LIMIT = -1 };

typedef struct lk_handout {
    int64_t batch;
    lk_range node; /* shards of it; without S = 0 all */
    bool granted;  /* it may be pushed without asking */
} lk_handout;

typedef struct lk_handout_counts {
    int64_t handed_out; /* the first time */
    int64_t again;      /* once more, because a worker was lost or could not push it */
    int64_t repeated;   /* finished when they had been finished before */
} lk_handout_counts;

typedef struct lk_handouts lk_handouts;

/* Batches of `shards` shards. max_staleness: S, or LK_NO_STALENESS_LIMIT. Errors: LK_ERR_MEMORY. */
lk_status lk__handouts_new(int64_t shards, int64_t max_staleness, lk_handouts **handouts);
void lk__handouts_release(lk_handouts *handouts);

/* An epoch of batches [first, first + count); nothing of another one is left. */
void lk__handouts_start(lk_handouts *handouts, int64_t first, int64_t count);

/* While it is paused no batch is begun; those that were are finished, by others where they are given back. */
void lk__handouts_pause(lk_handouts *handouts, bool paused);

/* Whether all batches that were begun are finished: they are the first ones of the epoch. */
bool lk__handouts_are_at_rest(const lk_handouts *handouts);

/* No new batches from now on; those that were begun are still to be finished. */
void lk__handouts_stop(lk_handouts *handouts);

/* Forgets what waits to be handed out again. Gives how many those were. */
int lk__handouts_drop(lk_handouts *handouts);

typedef enum lk_take {
    LK_TAKEN,
    LK_TAKE_HELD_BACK, /* not now, because of max_staleness: others have to push first */
    LK_TAKE_NONE       /* not now: there is nothing that nobody has */
} lk_take;

/* Something for a worker, which has nothing. worker: its number, not below 0. nodes: into how many a batch that workers
 * share is cut, a power of two. Errors: LK_ERR_MEMORY. */
lk_status lk__handouts_take(lk_handouts *handouts, int64_t worker, int64_t nodes, lk_handout *handout, lk_take *take);

typedef enum lk_grant { LK_GRANTED, LK_GRANT_LATER, LK_GRANT_NEVER } lk_grant;

/* May the worker push this? Never: it is no longer the worker's, who is to forget it. */
lk_grant lk__handouts_grant(lk_handouts *handouts, int64_t worker, int64_t batch);

typedef enum lk_finish {
    LK_FINISHED_PART,  /* other nodes of its batch are not finished */
    LK_FINISHED_BATCH, /* the batch is complete with it */
    LK_FINISHED_BEFORE /* it had been finished already, by somebody else */
} lk_finish;

/* It has been pushed, whoever it belongs to by now. */
lk_finish lk__handouts_finish(lk_handouts *handouts, int64_t batch, lk_range node);

/* What the worker has is to be handed out again. Gives how many those were. */
int lk__handouts_give_back(lk_handouts *handouts, int64_t worker);

/* Whether all batches of the epoch, or those handed out before the stop, are finished. */
bool lk__handouts_are_finished(const lk_handouts *handouts);

lk_handout_counts lk__handouts_counts(const lk_handouts *handouts);

#endif
