/* Measuring what runs a training's problems fastest: see tuning.h. */
#ifndef LOCKSTEP_TUNE_H
#define LOCKSTEP_TUNE_H

#include "lockstep/train.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One problem, and how long its implementations take. */
typedef struct lk_tune_row {
    int index, count; /* from 1, of how many */
    const char *op, *problem;
    int n;                    /* implementations */
    const char *const *names; /* [n]: the built-in choice first */
    const double *seconds;    /* [n]: processor time of one call, the median of the samples */
    int chosen;               /* what the tuning gets; -1 until all are measured */
} lk_tune_row;

typedef struct lk_tune_opts {
    int64_t samples; /* of each time, of which the median counts */
    /* Both are called in the calling thread; false ends it all. NULL: nothing.
     * Before implementation `next` is measured, when row->seconds[0 … next) are set; next == row->n: after the last. */
    bool (*measuring)(void *user, const lk_tune_row *row, int next);
    bool (*comparing)(void *user, int64_t done, int64_t of); /* steps of training, before and after each */
    void *user;
} lk_tune_opts;

typedef struct lk_tune_result {
    lk_tuning *tuning; /* every problem with its choice; a reference. NULL on failure */
    int changed;       /* choices that are not the built-in ones */
    /* Processor time of the devices in a training step, median: with built-in choices, and with the tuning; 0 where
     * nothing runs that has changed, because of what is fused. */
    double built_in, tuned;
} lk_tune_result;

/* Finds the problems of training and evaluation as `config` describes them, and measures every implementation that
 * takes them, with operands of random numbers: on the first device, one after the other. Operands lie as the
 * implementation itself would leave them, but images as they come from the loader; of a fused operator its gradient
 * counts too, and it is compared with the fastest of what it stands for. Another one than the built-in is chosen where
 * it takes at most 0.95 of the time. Then compares whole steps of training, in turns, where the tuning changes what
 * they run. Blocks. config->algorithms counts as "fast". Errors: those of lk_trainer_new and lk_trainer_run;
 * LK_ERR_ARGUMENT (samples < 1); LK_ERR_UNSUPPORTED (devices whose kind has no alternatives), LK_ERR_INTERRUPTED (a
 * function gave false). */
LK_API lk_status lk_tune(const lk_train_config *config, const lk_tune_opts *opts, lk_tune_result *result);

#ifdef __cplusplus
}
#endif

#endif
