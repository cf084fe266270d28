/* Hand-outs: which worker computes what. A hand-out is a batch, or a part of a shared batch, given to a worker. Each
 * batch of an epoch is handed out exactly once while no worker is lost; the hand-outs of a lost worker are handed out
 * again. Deciding who may go on also keeps the promise on staleness.
 *
 * The staleness of a push is the number of updates applied to a variable between the worker's pull and its push. With a
 * limit S >= 1 a worker must be granted its push. A hand-out is `behind` by the pushes granted since it was handed out,
 * plus those granted before and not yet finished. A push is granted if it puts no other hand-out behind by more than S,
 * and if the remaining ones can still finish, the one furthest behind first: sorted that way, number k (from 0) is
 * behind by at most S - k. A batch is handed out only if that also holds with it. So the hand-out furthest behind can
 * always go on, and nobody waits forever (compare the stale synchronous parallel model: Ho et al., NIPS 2013).
 *
 * With S = 0 there is one batch at a time. Workers share it by the nodes of the tree over its shards. */
#pragma once

#include "lockstep/dist.h"

#include <stdbool.h>

enum { LK_NO_STALENESS_LIMIT = -1 };

typedef struct lk_handout {
    int64_t batch;
    lk_range node; /* its shards; all of them unless S = 0 */
    bool granted;  /* the worker may push without asking */
} lk_handout;

typedef struct lk_handout_counts {
    int64_t handed_out; /* handed out for the first time */
    int64_t again;      /* handed out again, because a worker was lost or could not push */
    int64_t repeated;   /* finished although already finished before */
} lk_handout_counts;

typedef struct lk_handouts lk_handouts;

/* Batches of `shards` shards. max_staleness: S, or LK_NO_STALENESS_LIMIT. Errors: LK_ERR_MEMORY. */
lk_status lk__handouts_new(int64_t shards, int64_t max_staleness, lk_handouts **handouts);
void lk__handouts_release(lk_handouts *handouts);

/* Starts an epoch of batches [first, first + count). Forgets everything left of an earlier one. */
void lk__handouts_start(lk_handouts *handouts, int64_t first, int64_t count);

/* While paused no batch is begun. Batches begun before are still finished, by other workers if they are given back. */
void lk__handouts_pause(lk_handouts *handouts, bool paused);

/* Returns whether all batches that were begun are finished. These are then the first ones of the epoch. */
bool lk__handouts_are_at_rest(const lk_handouts *handouts);

/* Begins no new batches from now on. Those already begun are still finished. */
void lk__handouts_stop(lk_handouts *handouts);

/* Forgets the hand-outs that wait to be handed out again. Returns how many there were. */
int lk__handouts_drop(lk_handouts *handouts);

typedef enum lk_take {
    LK_TAKEN,
    LK_TAKE_HELD_BACK, /* not now, because of max_staleness: others must push first */
    LK_TAKE_TOO_SMALL, /* all nodes of the batch wait, and have fewer shards than the worker has devices */
    LK_TAKE_NONE       /* not now: nothing is left to hand out */
} lk_take;

/* Hands something out to a worker that has nothing. worker: its number, not negative. devices: how many it has; a node
 * has at least as many shards. nodes: the number of nodes into which a shared batch is cut, a power of two. After
 * LK_TAKE_TOO_SMALL handout->batch is set. Errors: LK_ERR_MEMORY. */
lk_status lk__handouts_take(lk_handouts *handouts, int64_t worker, int64_t devices, int64_t nodes, lk_handout *handout,
                            lk_take *take);

/* Forgets the nodes of a shared batch, finished or not, and has the batch handed out as a whole. Returns false, and
 * does nothing, if the batch is finished, has not begun, or is not cut. */
bool lk__handouts_join(lk_handouts *handouts, int64_t batch);

typedef enum lk_grant { LK_GRANTED, LK_GRANT_LATER, LK_GRANT_NEVER } lk_grant;

/* Asks whether the worker may push this batch. LK_GRANT_NEVER: the batch is no longer this worker's; it must forget it.
 */
lk_grant lk__handouts_grant(lk_handouts *handouts, int64_t worker, int64_t batch);

typedef enum lk_finish {
    LK_FINISHED_PART,  /* other nodes of its batch are not finished */
    LK_FINISHED_BATCH, /* the batch is complete with it */
    LK_FINISHED_BEFORE /* someone else had already finished it */
} lk_finish;

/* Records that the hand-out has been pushed, even if another worker holds it by now. */
lk_finish lk__handouts_finish(lk_handouts *handouts, int64_t batch, lk_range node);

/* Takes all hand-outs back from a worker, to be handed out again. Returns how many there were. */
int lk__handouts_give_back(lk_handouts *handouts, int64_t worker);

/* Returns whether all batches of the epoch, or those begun before the stop, are finished. */
bool lk__handouts_are_finished(const lk_handouts *handouts);

lk_handout_counts lk__handouts_counts(const lk_handouts *handouts);
