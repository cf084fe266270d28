/* One pass over a loader: fit's, an evaluation's, or steps alone. The caller's thread runs at most LK_RUN_AHEAD steps
 * ahead of the devices: it then waits for the oldest step's metrics, which it wants anyway. */
#ifndef LK_TRAIN_PASS_H
#define LK_TRAIN_PASS_H

#include "train/trainer.h"

typedef struct lk__pass {
    lk_loader *loader;
    lk_ledger *ledger;
    lk_status (*push)(lk_trainer *trainer, lk_batch *batch);
    /* What is done with a step's metrics as they arrive; NULL: nothing. */
    lk_status (*taken)(void *user, const struct lk__pass *p, const lk__pending_step *step,
                       const lk__step_metrics *metrics, const char **stopped_by);
    void *user;
    lk_metrics so_far, before_update;      /* before_update: so_far as it was before the update at hand */
    int64_t first;                         /* the epoch's batch that it begins with: others are through */
    int64_t taken_steps, samples, skipped; /* of the epoch */
    double began, rate;                    /* began: as if nothing had been in between; rate: of the last step taken */
    double entered;                        /* when it began itself */
    int64_t pushed;                        /* the epoch's batches that are pushed */
    bool evaluates;                        /* an evaluation follows */
    bool ended;                            /* the last batch of the loader was pushed */
    bool warned;
    const char *stopped_by;
} lk__pass;

/* In seconds, on a clock that only goes forward. */
double lk__seconds(void);

/* Begins an epoch where the trainer stands in it: at its first batch, or in the middle of it. */
lk_status lk__pass_start(lk_trainer *trainer, lk__pass *p, int64_t epoch, bool training);

/* Has the pass know what was found of the epoch so far. */
void lk__pass_take_up(const lk_trainer *trainer, lk__pass *p);

/* Pushes the next step; takes the oldest one. */
lk_status lk__pass_push(lk_trainer *trainer, lk__pass *p);
lk_status lk__pass_take(lk_trainer *trainer, lk__pass *p, bool training);

/* All of it. Ends early, but with all of its steps taken, where a callback or an interrupt says so. */
lk_status lk__pass_run(lk_trainer *trainer, lk__pass *p, int64_t epoch, bool training);

/* A pass would take the metrics of steps that another one has under way for its own. */
lk_status lk__check_no_pass(const lk_trainer *trainer, const char *what);

/* The rate of the batch's update, which is that of its first batch. hooks: callbacks may change it. */
double lk__rate_of_batch(lk_trainer *trainer, const lk_batch *batch, bool hooks);

#endif
