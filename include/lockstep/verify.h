/* Checks that different sets of devices give the same bits.
 *
 *     const char *const specs[] = {"1xcpu", "2xcpu"};
 *     lk_verify(&config, &(lk_verify_opts){.specs = specs, .count = 2, .steps = 20}, &result);
 *     … result.identical … */
#ifndef LOCKSTEP_VERIFY_H
#define LOCKSTEP_VERIFY_H

#include "lockstep/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A run on one set of devices. */
typedef struct lk_verify_run {
    const char *devices; /* its spec, one of lk_verify_opts.specs */
    int device_count;
    char digest[33];                  /* see lk_trainer_digest */
    const lk_plan *plan;              /* valid during the call */
    const lk_tuning *implementations; /* see lk_trainer_implementations; valid during the call */
} lk_verify_run;

typedef struct lk_verify_opts {
    const char *const *specs; /* [count]: for lk_devices_open; the others are compared with the first */
    int count;
    int64_t steps; /* to train on each */
    /* Called after each step, from 1, of the run on `devices`. False ends the comparison. NULL: none. */
    bool (*step_done)(void *user, const char *devices, int64_t step);
    /* Called after each run. NULL: none. */
    void (*run_done)(void *user, const lk_verify_run *run);
    void *user;
} lk_verify_opts;

typedef struct lk_verify_result {
    bool identical;   /* false: members below say where the first difference is */
    int64_t shards;   /* of all runs */
    int64_t step;     /* after which a variable differs, from 1 */
    char tensor[128]; /* the name of the variable */
    int run;          /* position in specs */
    int replica;
} lk_verify_result;

/* Trains `config` for opts->steps steps on each set of devices, and compares every variable of every replica bit for
 * bit after every step. All runs have config->devices.shards shards, or as many as the largest set needs. Evaluation
 * and checkpoints of `config` are left out. Blocks. If it fails before the first run, *result is zeros. Errors:
 * LK_ERR_ARGUMENT (count below 2, steps below 1), those of lk_trainer_new and lk_trainer_run, LK_ERR_INTERRUPTED
 * (step_done gave false). */
LK_API lk_status lk_verify(const lk_train_config *config, const lk_verify_opts *opts, lk_verify_result *result);

#ifdef __cplusplus
}
#endif

#endif
