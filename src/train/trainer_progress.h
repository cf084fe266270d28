/* The progress of a trainer: the steps in flight, the update in progress, and the position to resume from. */
#pragma once

#include "lockstep/train.h"

#include <stdatomic.h>

/* Steps that may be in flight before the caller waits for the oldest one's metrics. */
enum { LK_RUN_AHEAD = 2 };

/* An update covers batches [first, first + batches) of an epoch. */
typedef struct lk_update {
    int64_t epoch;  /* from 0 */
    int64_t number; /* since the beginning of training, from 0; the key of dropout */
    int64_t first, batches;
    int64_t samples;
    double rate;
} lk_update;

/* The questions that processes vote on in each step. */
enum { LK_VOTE_END, LK_VOTE_REST, LK_VOTES };

/* A step that was pushed and whose metrics have not been read. One reference to each tensor; they are scalars, but
 * for results and votes. */
typedef struct lk_pending_step {
    lk_tensor *results; /* f32, 1-D: loss, hits, top_k and skipped, as far as there are any, to be read by one copy;
                           NULL: each is a tensor of its own. If set, these are NULL */
    lk_tensor *loss, *hits;
    lk_tensor *top_k;   /* NULL: not asked for */
    lk_tensor *votes;   /* [LK_VOTES]: sums of the votes to end training here and to rest; NULL: one process */
    lk_tensor *skipped; /* 1 if the update was skipped; NULL: no update in this step, or no guard */
    int64_t count;      /* samples */
    int64_t batch;      /* in the epoch, from 0 */
    lk_update update;   /* the update that the step is part of */
} lk_pending_step;

/* The values read from a pending step. */
typedef struct lk_step_metrics {
    lk_metrics metrics;
    bool skipped;         /* the update was skipped */
    bool votes[LK_VOTES]; /* a process voted for it */
} lk_step_metrics;

/* An epoch so far, with the steps before the position that training resumed from. */
typedef struct lk_epoch_totals {
    lk_metrics so_far, before_update;      /* before_update: so_far before the current update */
    int64_t taken_steps, samples, skipped; /* skipped: steps of skipped updates */
    double rate;                           /* of the last step */
} lk_epoch_totals;

/* The position behind the last finished update, from which training can resume. */
typedef struct lk_position {
    int64_t epoch, batch; /* from 0: the next batch; `batch` is past the last one between an epoch's training and its
                             evaluation */
    int64_t steps, updates, samples_seen; /* since the beginning of training */
    int64_t samples;                      /* of the epoch; the members below are of the epoch too */
    lk_metrics so_far;                    /* as in lk_step_report */
    int64_t skipped;
    double rate, seconds;
} lk_position;

typedef struct lk_trainer_progress {
    lk_pending_step pending[LK_RUN_AHEAD]; /* the steps in flight, oldest first */
    int n_pending;
    lk_update update;       /* the update in progress */
    int64_t steps, updates; /* pushed since the beginning of training */
    int64_t audits;         /* audits that found no difference */
    int64_t epoch;          /* the epoch of the next batch, from 0 */
    lk_position position;
    lk_epoch_totals totals;  /* with the steps of an update that is still open */
    bool epoch_open;         /* an epoch has begun and not ended */
    bool in_pass;            /* fit or an evaluation has steps in flight */
    bool averaged;           /* the variables hold their averages, as in an evaluation */
    bool at_rest;            /* nothing is in flight, and all callbacks have seen `position` */
    atomic_bool interrupted; /* lk_trainer_interrupt was called in this process */
    bool voted_to_end;       /* the processes have voted to end */
    bool taken_back;         /* at its end fit took back the weights of an earlier epoch */
    bool wants_rest;         /* this process votes to rest */
    bool voted_to_rest;      /* a process voted for it, and all know that */
} lk_trainer_progress;

/* Appends a step over `batch` to the steps in flight, with a reference to each of replica 0's metrics[], unless metrics
 * is NULL. The caller sets the rest. */
lk_pending_step *lk__pending_append(lk_trainer *trainer, lk_tensor *const *metrics, const lk_batch *batch);

/* Waits for the oldest step in flight, reads its metrics and removes it. The tensors of *step are NULL. */
lk_status lk__pending_take(lk_trainer *trainer, lk_pending_step *step, lk_step_metrics *metrics);

/* Drops all steps in flight without waiting for their metrics. */
void lk__pending_drop(lk_trainer *trainer);
