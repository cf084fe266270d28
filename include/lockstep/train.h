/* The training loop: a configuration becomes a plan, the plan is carried out. */
#ifndef LOCKSTEP_TRAIN_H
#define LOCKSTEP_TRAIN_H

#include "lockstep/data.h"
#include "lockstep/dist.h"
#include "lockstep/nn.h"
#include "lockstep/options.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What was asked for; lk_options_defaults(lk_train_options, …) fills it. NULL, 0 and -1 mean "as the model's recipe,
 * the machine or the data say" where the comment says so. Strings are borrowed for the trainer's life. */
typedef struct lk_train_config {
    const char *model;
    const char *data; /* "auto": fashion-mnist, or synthetic where that cannot be had */
    const char *data_dir;
    const char *devices;  /* NULL: the cores there are, at most as many as shards */
    const char *strategy; /* NULL: one-device for one device, else mirrored */
    int64_t shards;       /* V; 0: lk_default_shards */
    int64_t epochs;       /* 0: the recipe's */
    int64_t batch_size;   /* global; 0: the recipe's */
    double base_lr;       /* 0: the recipe's */
    int64_t seed;
    int64_t limit_train; /* -1: all */
    int64_t limit_val;   /* -1: all; 0: no evaluation */
    int64_t workers;
    bool json, ledger; /* what the command prints */
} lk_train_config;

/* The flags of `lockstep train`, with offsets into lk_train_config. */
LK_API extern const lk_option lk_train_options[];
enum { LK_TRAIN_OPTION_COUNT = 15 };

/* What will be done: the configuration with every blank filled in. */
typedef struct lk_plan {
    const char *model, *data, *source, *strategy; /* source: where the samples came from */
    int64_t parameters;                           /* elements */
    int devices;
    int64_t shards, batch_size, epochs, steps_per_epoch;
    int64_t train_samples, val_samples;
    double learning_rate;
    uint64_t seed;
    bool fell_back; /* data "auto": fashion-mnist was not to be had */
} lk_plan;

/* After an error a trainer can only be asked for its plan, and released. */
typedef struct lk_trainer lk_trainer;

/* Opens data and devices, builds the model and its replicas. Errors: LK_ERR_ARGUMENT for a configuration that makes no
 * sense, with the flag and what would be right; else what data and devices report. */
LK_API lk_trainer *lk_trainer_new(const lk_train_config *config);
LK_API void lk_trainer_release(lk_trainer *trainer);

/* Valid as long as the trainer. */
LK_API const lk_plan *lk_trainer_plan(const lk_trainer *trainer);
LK_API lk_strategy *lk_trainer_strategy(const lk_trainer *trainer);

/* A loss or a metric on its way: a sum, and how many samples it is over. Means are taken once, at the end. */
typedef struct lk_mean {
    double sum;
    int64_t count;
} lk_mean;

typedef struct lk_step_report {
    int64_t epoch, step, steps; /* from 1; step within the epoch, of `steps` */
    lk_mean loss, accuracy;     /* of the epoch so far */
    double seconds;             /* of training, of the epoch so far */
} lk_step_report;

typedef struct lk_epoch_report {
    int64_t epoch; /* from 1 */
    lk_mean train_loss, train_accuracy;
    lk_mean val_loss, val_accuracy; /* count 0: there was no evaluation */
    double seconds;                 /* training alone */
    double images_per_second;
    lk_ledger_report train_ledger, val_ledger;
} lk_epoch_report;

typedef struct lk_train_callbacks {
    void (*step)(void *user, const lk_step_report *report);   /* NULL: none */
    bool (*epoch)(void *user, const lk_epoch_report *report); /* false: stop here, with LK_ERR_INTERRUPTED */
    void *user;
} lk_train_callbacks;

typedef struct lk_train_result {
    int64_t steps, samples_seen;
    double seconds; /* training alone */
    /* Without start-up, evaluation and the first epoch; of a single epoch, without its first tenth of steps. */
    double images_per_second;
    double flops_per_second; /* the same, in the operators' floating-point operations */
    lk_mean val_accuracy;    /* of the last epoch */
    char digest[33];
} lk_train_result;

/* Trains all epochs. Blocks. `callbacks` may be NULL. Errors: those of operators, LK_ERR_STATE if a sample was not used
 * exactly once in an epoch or lk_trainer_run stopped in the middle of one, LK_ERR_INTERRUPTED where a callback said so.
 */
LK_API lk_status lk_trainer_fit(lk_trainer *trainer, const lk_train_callbacks *callbacks, lk_train_result *result);

/* Trains `steps` further steps, epoch after epoch, without evaluation. Blocks. */
LK_API lk_status lk_trainer_run(lk_trainer *trainer, int64_t steps);

/* Counts every validation sample once. Blocks. */
LK_API lk_status lk_trainer_evaluate(lk_trainer *trainer, lk_mean *loss, lk_mean *accuracy);

/* XXH3-128, in 32 hexadecimal digits, over all parameters and buffers in the order of their names (plain row-major,
 * little-endian f32) of one replica. Waits. */
LK_API lk_status lk_trainer_digest(lk_trainer *trainer, int replica, char digest[33]);

/* The same of parameter `index` alone, XXH3-64. */
LK_API lk_status lk_trainer_parameter_hash(lk_trainer *trainer, int replica, int index, uint64_t *hash);
LK_API int lk_trainer_parameter_count(const lk_trainer *trainer);
LK_API const char *lk_trainer_parameter_name(const lk_trainer *trainer, int index);

/* --- verification of contract 1 ---------------------------------------------------------------------------------- */

typedef struct lk_verify_run {
    const char *devices; /* the spec, of lk_verify_opts.specs */
    int device_count;
    char digest[33];
    const lk_plan *plan; /* valid during the call */
} lk_verify_run;

typedef struct lk_verify_opts {
    const char *const *specs; /* device specs to compare, the first is what the others are compared with */
    int count;
    int64_t steps;
    /* Called after each run. */
    void (*run_done)(void *user, const lk_verify_run *run);
    void *user;
} lk_verify_opts;

typedef struct lk_verify_result {
    bool identical;
    int64_t shards;
    /* Where not: the first step (from 1) after which a tensor differs, which one, and on which run and replica. */
    int64_t step;
    const char *tensor; /* static */
    int run, replica;
} lk_verify_result;

/* Trains the same for `steps` steps on each of the device specs and compares every parameter of every replica after
 * every step, bit for bit. V is config->shards, or what the largest needs. */
LK_API lk_status lk_verify(const lk_train_config *config, const lk_verify_opts *opts, lk_verify_result *result);

#ifdef __cplusplus
}
#endif

#endif
