/* The range test of learning rates (Smith, "Cyclical Learning Rates for Training Neural Networks", 2017, section 3.3):
 * trains while the rate grows, and looks where the loss is smallest.
 *
 *     lk_lr_find_result result;
 *     lk_lr_find(&config, &(lk_lr_find_opts){.low = 1e-6, .high = 10, .steps = 100}, &result);
 *     config.optimizer.base_lr = result.suggestion;
 *     lk_lr_find_free(&result); */
#ifndef LOCKSTEP_LR_FIND_H
#define LOCKSTEP_LR_FIND_H

#include "lockstep/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_lr_find_opts {
    double low, high; /* of the rate in the first and in the last update; 0 < low < high */
    int64_t steps;    /* updates, 10 to 1,000,000 */
    /* Called before training; it may add callbacks, and keep the trainer for lk_trainer_interrupt until lk_lr_find is
     * back. NULL: none. */
    lk_status (*begin)(void *user, lk_trainer *trainer);
    void *user;
} lk_lr_find_opts;

typedef struct lk_lr_point {
    double rate;
    double loss;     /* mean training loss of the update's batches, before the update */
    double smoothed; /* the mean of the losses so far, each weighted 0.9 times as much as the next */
} lk_lr_point;

typedef struct lk_lr_find_result {
    lk_lr_point *points; /* [count], one for each update; free them with lk_lr_find_free */
    int64_t count;
    int64_t lowest; /* the point with the smallest smoothed loss */
    bool diverged;  /* the test ended because the smoothed loss was above 4 times the smallest, or not finite */
    /* The rate at which the smoothed loss falls most over opts->steps / 10 updates, before it is lowest; NAN: `reason`
     * says why there is none. */
    double suggestion;
    const char *reason; /* static; NULL: there is a suggestion */
} lk_lr_find_result;

/* Trains the network of `config` from its first weights for up to opts->steps updates, at rates low (high / low)^(i /
 * (steps - 1)), in a trainer of its own: nothing is kept or written but the result. Schedule, evaluation, stopping,
 * checkpoints and records of `config` are left out. Blocks. On failure *result is empty. Errors: LK_ERR_ARGUMENT (opts
 * out of range), LK_ERR_UNSUPPORTED (strategy parameter-server, which takes steps in no order), those of lk_trainer_new
 * and lk_trainer_fit. */
LK_API lk_status lk_lr_find(const lk_train_config *config, const lk_lr_find_opts *opts, lk_lr_find_result *result);

LK_API void lk_lr_find_free(lk_lr_find_result *result);

#ifdef __cplusplus
}
#endif

#endif
