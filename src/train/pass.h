/* One pass over a loader: an epoch of fit, an evaluation, or single steps. The caller's thread runs at most
 * LK_RUN_AHEAD steps ahead of the devices, then waits for the oldest step's metrics, which it needs anyway. */
#pragma once

#include "base/clock.h"
#include "train/trainer.h"

typedef struct lk_pass {
    /* Set by the caller: */
    lk_loader *loader;
    lk_ledger *ledger;
    lk_status (*push)(lk_trainer *trainer, lk_batch *batch); /* pushes a step over the batch */
    /* Called with a step's metrics when they arrive; may set *stopped_by, and the pass then ends. NULL: not called. */
    lk_status (*taken)(void *user, const struct lk_pass *p, const lk_pending_step *step, const lk_step_metrics *metrics,
                       const char **stopped_by);
    void *user;
    bool evaluates; /* training of an epoch, which an evaluation follows */

    /* This pass: */
    lk_epoch_totals totals;
    double began;           /* the epoch, as if it had not been interrupted */
    double entered;         /* when the pass began */
    int64_t first;          /* the batch that it begins with; earlier ones are done */
    int64_t pushed;         /* batches of the epoch that have been pushed */
    bool ended;             /* the last batch of the loader was pushed */
    int64_t stop_at;        /* with stopped_by: batches to push at least, unless the pass ends before */
    bool warned;            /* true: the log has a warning of a number that is not finite */
    const char *stopped_by; /* the callback that asked to stop; NULL: none */
} lk_pass;

/* Sets the totals and starts the loader: at the trainer's position if this is the training of the epoch that it is in,
 * else at the epoch's first batch. */
lk_status lk__pass_start(lk_trainer *trainer, lk_pass *p, int64_t epoch, bool training);

/* Push the next step; wait for the metrics of the oldest one in flight. */
lk_status lk__pass_push(lk_trainer *trainer, lk_pass *p);
lk_status lk__pass_take(lk_trainer *trainer, lk_pass *p, bool training);

/* Runs a whole pass. It ends early, after taking all of its steps, if a callback or an interrupt asks for it. */
lk_status lk__pass_run(lk_trainer *trainer, lk_pass *p, int64_t epoch, bool training);

/* Fails with LK_ERR_STATE if a pass has steps in flight: another pass would take their metrics for its own. */
lk_status lk__check_no_pass(const lk_trainer *trainer, const char *what);

/* The rate of the update that the batch is part of, set by the update's first batch. with_callbacks:
 * callbacks may change it. */
double lk__rate_of_batch(lk_trainer *trainer, const lk_batch *batch, bool with_callbacks);
