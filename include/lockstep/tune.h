/* Measures which implementations are fastest for a training, and makes a tuning of them (lockstep/tuning.h).
 *
 *     lk_tune_result result;
 *     lk_tune(&config, &(lk_tune_opts){.samples = 5}, &result);
 *     lk_tuning_write(result.tuning, "tuned.txt");
 *     lk_tuning_release(result.tuning); */
#ifndef LOCKSTEP_TUNE_H
#define LOCKSTEP_TUNE_H

#include "lockstep/train.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A problem, and the times of its implementations. */
typedef struct lk_tune_row {
    int index, count;         /* number of the problem, from 1, and of all problems */
    const char *op, *problem; /* as for lk_tuning_set */
    int n;                    /* implementations */
    const char *const *names; /* [n]: the built-in choice first */
    const double *seconds;    /* [n]: median time of a call: processor time, or on GPUs time that passes */
    int chosen;               /* the one for the tuning; -1: not all are measured yet */
} lk_tune_row;

typedef struct lk_tune_opts {
    int64_t samples; /* times to measure each implementation, of which the median counts; at least 1 */
    /* Called in the calling thread before implementation `next` is measured, when row->seconds[0 … next) are set, and
     * after the last one, with next == row->n. False ends lk_tune. NULL: none. */
    bool (*measuring)(void *user, const lk_tune_row *row, int next);
    /* Likewise before and after each step when whole steps are compared. False ends lk_tune. NULL: none. */
    bool (*comparing)(void *user, int64_t done, int64_t of);
    void *user;
} lk_tune_opts;

typedef struct lk_tune_result {
    lk_tuning *tuning; /* a choice for every problem; the caller's reference. NULL on failure */
    int changed;       /* number of choices that differ from the built-in ones */
    /* Median processor time of the devices in a training step, in seconds, with built-in choices and with the tuning.
     * 0: the tuning changes nothing that training runs, because those operators are fused. */
    double built_in, tuned;
    bool elapsed; /* these are times that passed: a GPU's work takes no processor time */
} lk_tune_result;

/* Finds the problems of the training and evaluation that `config` describes, and measures every implementation of them
 * on the first device, one after the other, with random operands. Operands have the layout that the implementation
 * itself would give its results; images have that of the loader. The time of a fused operator includes its gradient,
 * and it is compared with the fastest of the operators that it replaces. An implementation is chosen over the built-in
 * one if it takes at most 0.95 of its time. If that changes what training runs, whole steps are then compared, in
 * turns. On GPUs a time is what passes until the device has done the work of many calls, which includes starting it.
 * Blocks. config->execution.algorithms counts as "fast", and checkpoints of `config` are left out.
 * Errors: those of lk_trainer_new and lk_trainer_run; LK_ERR_ARGUMENT (samples < 1); LK_ERR_UNSUPPORTED (a kind of
 * device without alternatives), LK_ERR_INTERRUPTED (a function gave false). */
LK_API lk_status lk_tune(const lk_train_config *config, const lk_tune_opts *opts, lk_tune_result *result);

#ifdef __cplusplus
}
#endif

#endif
