/* A trainer carries out a configuration: it trains, evaluates and predicts, and calls callbacks meanwhile.
 *
 *     lk_train_result result;
 *     lk_trainer *trainer = lk_trainer_new(&config);                      (config: lockstep/train_config.h)
 *     if (trainer && lk_trainer_fit(trainer, &result) == LK_OK)
 *         printf("accuracy %.4f\n", lk_mean_value(result.val.accuracy));
 *     else
 *         fprintf(stderr, "%s\n", lk_error_message());
 *     lk_trainer_release(trainer);
 *
 * A trainer is used by one thread at a time; lk_trainer_interrupt may come from any. After an error a trainer can only
 * be asked for its plan, and released. */
#ifndef LOCKSTEP_TRAINER_H
#define LOCKSTEP_TRAINER_H

#include "lockstep/dist.h"
#include "lockstep/nn.h"
#include "lockstep/optim.h"
#include "lockstep/train_config.h"
#include "lockstep/tuning.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_trainer lk_trainer;

/* --- make, train, evaluate, predict ------------------------------------------------------------------------------- */

/* A loss or metric as a sum over samples. count 0: it was not measured. */
typedef struct lk_mean {
    double sum;
    int64_t count;
} lk_mean;

/* sum / count; NaN: the count is 0. */
LK_API double lk_mean_value(lk_mean mean);

typedef struct lk_metrics {
    lk_mean loss;     /* with label smoothing in training, without in an evaluation */
    lk_mean accuracy; /* share of samples whose label is the likeliest class */
    lk_mean top_k;    /* share of samples whose label is among the lk_check_config.top_k likeliest classes */
} lk_metrics;

/* Describes the whole training, including the part before a checkpoint that it resumed from. images_per_second and
 * flops_per_second are of this run alone; seconds and total_seconds leave out earlier calls of this process, but for an
 * epoch that this one goes on with. */
typedef struct lk_train_result {
    int64_t epochs, steps, samples_seen;
    int64_t resumed_steps;    /* those of `steps` before the checkpoint that this run resumed from */
    double seconds;           /* of training, without evaluation */
    double total_seconds;     /* with evaluation */
    double images_per_second; /* without start-up, evaluation and the first epoch; if there is only one epoch, without
                               * its first tenth of steps */
    double flops_per_second;  /* floating-point operations, as operators count them, over the same time */
    lk_metrics val;           /* of the last epoch, or of that whose weights lk_callback_restore_best took back */
    int64_t audits;           /* comparisons of replicas since the trainer was made; all found them equal */
    const char
        *stopped_by; /* name of the callback that ended training early, valid as long as the trainer; NULL: none did */
    char digest[33]; /* see lk_trainer_digest */
    char state_digest[33]; /* see lk_trainer_state_digest */
} lk_train_result;

/* Opens data and devices, and builds the model and its replicas. NULL on failure. Errors: LK_ERR_ARGUMENT (settings
 * that make no sense; the message names the option and what would be right), LK_ERR_FORMAT (the whole training set has
 * no image of a class, unless it is class 0 of labels that begin with 1), LK_ERR_STATE (a worker of strategy
 * parameter-server comes when the chief has ended training), those of model files, data sets and devices.
 * Settings and model files are checked before data are opened, except for what depends on the size of the images. */
LK_API lk_trainer *lk_trainer_new(const lk_train_config *config);

/* As lk_trainer_new, with `model` instead of config->model. Takes the model, also on failure. A NULL model gives NULL
 * and keeps the error. */
LK_API lk_trainer *lk_trainer_new_with(const lk_train_config *config, lk_model *model);
LK_API void lk_trainer_release(lk_trainer *trainer);

/* Trains all epochs. Blocks. *result is set as far as training went, also on failure. Errors: those of operators and
 * callbacks; LK_ERR_INTERRUPTED; LK_ERR_NUMERIC (with LK_NAN_GUARD_STOP; the message names layer or loss, step and
 * samples); LK_ERR_STATE (a sample was not used exactly once in an epoch; an audit found replicas that differ;
 * lk_trainer_run, or a fit that step_end ended, stopped in the middle of an epoch; a callback calls it).
 * When it first trains, it adds the callbacks that the configuration asks for (lockstep/callbacks.h): lk_stop_config,
 * lk_checkpoint_config and lk_record_config. A later call trains the epochs that are left. Callbacks begin anew with
 * each call: early stopping, lr_plateau and restore_best keep what they have counted only in a checkpoint. */
LK_API lk_status lk_trainer_fit(lk_trainer *trainer, lk_train_result *result);

/* Evaluates every validation sample once, and calls eval_step of the callbacks. Blocks. Errors: those of operators and
 * callbacks; LK_ERR_STATE (called from step_end or eval_step), LK_ERR_INTERRUPTED. */
LK_API lk_status lk_trainer_evaluate(lk_trainer *trainer, lk_metrics *metrics);

/* Sets probabilities [count(dataset), classes] to the softmax of the logits of every sample, in order; images are
 * normalized as in training. Blocks. Errors: LK_ERR_SHAPE (images of another size), those of operators. */
LK_API lk_status lk_trainer_predict(lk_trainer *trainer, lk_dataset *dataset, float *probabilities);

/* Ends lk_trainer_fit after the steps in flight and those that an update in progress still needs: it calls train_end
 * and gives LK_ERR_INTERRUPTED. The next lk_trainer_fit or lk_trainer_run goes on from there, except with strategy
 * parameter-server. lk_trainer_run, lk_trainer_evaluate and fit's evaluation end likewise. If none of them is running,
 * the next one ends at once. If an evaluation that an epoch_end hook asked for ends so and the hook gives LK_OK, fit
 * still reports and saves the epoch, then ends too. An LK_ERR_INTERRUPTED that a hook or a data set gives is an error
 * like any other: fit writes no checkpoint after it. Async-signal-safe, any thread. */
LK_API void lk_trainer_interrupt(lk_trainer *trainer);

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* The work of a trainer: the configuration with all defaults filled in. */
typedef struct lk_plan {
    const char *recipe;   /* lk_train_config.recipe; NULL: none */
    const char *model;    /* its name */
    const char *data;     /* name of the data set */
    const char *source;   /* where its samples came from: see lk_dataset_source */
    const char *strategy; /* its name */
    int64_t parameters;   /* elements of all parameters */
    int64_t frozen;       /* elements of those that are not trained */
    int devices;          /* in all processes */
    const char *storage;  /* central-storage: name of the device with the variables; else NULL */
    int process;          /* number of this process, from 0 */
    int processes;        /* that train together */
    int64_t shards, batch_size, val_batch_size, accumulate, epochs;
    int64_t micro_batch;       /* samples of a training shard that run together; 0: all */
    int64_t val_micro_batch;   /* the same for a shard of the evaluation */
    int64_t steps_per_epoch;   /* batches */
    int64_t updates_per_epoch; /* steps_per_epoch / accumulate, rounded up */
    int64_t train_samples, val_samples;
    int64_t classes;       /* of the data set */
    int64_t empty_classes; /* classes without a training sample */
    const char *optimizer; /* its name */
    lk_optimizer_opts optimizer_opts;
    double base_lr;       /* learning rate before scale_lr */
    lk_schedule schedule; /* schedule.base: learning rate after scale_lr */
    double label_smoothing;
    int64_t plateau_epochs; /* of lk_optimizer_config.lr_plateau; 0: the rate does not depend on the loss */
    double plateau_factor;
    const double *class_weights; /* [classes]; NULL: all classes weigh alike */
    int64_t top_k;
    lk_batch_norm_mode batch_norm;
    int64_t batch_norm_group;   /* least samples of a group, for all modes: see lk_batch_norm_config.group */
    int64_t batch_norm_groups;  /* groups that a batch is cut into; 0: each shard is one, or there is no batch-norm */
    int64_t precise_batch_norm; /* lk_batch_norm_config.precise */
    lk_dtype dtype;             /* of the forward and backward pass: LK_F32 or LK_BF16 */
    const char *dtype_reason;   /* static: why LK_PRECISION_AUTO chose it; NULL: it was asked for */
    bool tf32;                  /* f32 products may use TF32: see lk_device_set_tf32 */
    lk_augment_opts augment;    /* with normalization */
    double patience;            /* epochs above the target accuracy, if there is a target */
    uint64_t seed;
    const char *algorithms; /* "fast", "direct", or the file of a tuning */
    const char *transport;  /* see lk_strategy_transport */
    lk_reduce reduce;
    lk_exchange exchange; /* the way of gradients between devices; LK_EXCHANGE_AUTO: there is no choice */
    bool compressed;      /* gradients are exchanged in bf16 */
    /* Hash of everything besides settings and data that the bits depend on: XXH3-64 of the executor, the version of
     * fusion, TF32, NCCL's reduction and bf16 exchange with the number of devices, seeded with lk_tuning_hash of
     * lk_trainer_implementations and with the models of GPUs that differ from the first. */
    uint64_t implementations;
    /* On devices with memory of their own, in bytes, for the device with least to spare: what training is estimated to
     * need, and what is available for it. 0: devices use the process's memory. */
    int64_t memory_needed, memory_there;
    /* Estimate of a step: its floating-point operations, taken as three times those of the forward pass, and the rate
     * at which a device is assumed to do them, 50 GFLOP/s for a core and 5 TFLOP/s for a GPU. */
    double step_flops, assumed_rate;
    bool fell_back;       /* data "auto" became synthetic, because fashion-mnist could not be fetched */
    bool data_on_devices; /* see lk_data_on */
    bool data_too_large;  /* LK_DATA_ON_AUTO chose the host, because the devices' memory does not suffice */
} lk_plan;

/* All of these are valid as long as the trainer. */
LK_API const lk_plan *lk_trainer_plan(const lk_trainer *trainer);
LK_API const lk_train_config *lk_trainer_config(const lk_trainer *trainer);
LK_API lk_strategy *lk_trainer_strategy(const lk_trainer *trainer);
LK_API const lk_model *lk_trainer_model(const lk_trainer *trainer);
LK_API const lk_dataset *lk_trainer_dataset(const lk_trainer *trainer, lk_split split); /* NULL: no evaluation */

/* The variables of a replica: parameters, then buffers. Borrowed. */
LK_API lk_tensor *const *lk_trainer_variables(const lk_trainer *trainer, int replica);

/* --- digests ------------------------------------------------------------------------------------------------------ */

/* Writes 32 hexadecimal digits: XXH3-128 over all parameters and buffers of a replica in the order of their names, as
 * row-major little-endian f32. Equal digests mean equal bits. Waits. Errors: LK_ERR_ARGUMENT (no such replica). */
LK_API lk_status lk_trainer_digest(lk_trainer *trainer, int replica, char digest[33]);

/* Writes 32 hexadecimal digits: XXH3-128 over replica 0's parameters and buffers as above, then over the optimizer's
 * state of each parameter in the same order, then over the number of its updates (64 bits, little-endian). Waits.
 * If processes divide the optimizer's state among themselves, all have to call it. */
LK_API lk_status lk_trainer_state_digest(lk_trainer *trainer, char digest[33]);

/* XXH3-64 of variable `index` of a replica. Waits. Errors: LK_ERR_ARGUMENT (no such replica or variable). */
LK_API lk_status lk_trainer_variable_hash(lk_trainer *trainer, int replica, int index, uint64_t *hash);

/* --- reports to callbacks ----------------------------------------------------------------------------------------- */

/* A training step. */
typedef struct lk_step_report {
    int64_t epoch;     /* from 1 */
    int64_t step;      /* in this epoch, from 1 */
    int64_t steps;     /* that this epoch has */
    int64_t total;     /* steps since the beginning of training, with this one */
    int64_t samples;   /* trained on so far in this epoch, including those of skipped steps */
    lk_metrics batch;  /* of this step */
    lk_metrics so_far; /* of this epoch, without skipped steps */
    double rate;       /* learning rate */
    double seconds;    /* of training so far in this epoch */
    bool skipped; /* the update that this step completes was skipped, because its loss or gradients were not finite;
                   * with accumulation, so_far is then what it was before the update's first step */
} lk_step_report;

/* A step of an evaluation, or of measuring batch-norm's statistics. */
typedef struct lk_eval_report {
    int64_t epoch;            /* epochs trained so far; in fit, the epoch that is evaluated, from 1 */
    int64_t step;             /* from 1 */
    int64_t steps;            /* that the evaluation has */
    lk_metrics so_far;        /* of this evaluation */
    double seconds;           /* since it began */
    bool measures_statistics; /* steps are training batches over which fit measures batch-norm's statistics before it
                               * evaluates (lk_batch_norm_config.precise); there are no metrics */
} lk_eval_report;

typedef struct lk_epoch_report {
    int64_t epoch;            /* from 1 */
    int64_t steps;            /* since the beginning of training */
    int64_t samples;          /* trained on in this epoch, including those of skipped steps */
    lk_metrics train, val;    /* train: without skipped steps; val: counts are 0 without an evaluation */
    double rate;              /* learning rate of the epoch's last step */
    double seconds;           /* of training */
    double epoch_seconds;     /* since epoch_begin, with evaluation */
    double total_seconds;     /* since fit began, with evaluation */
    double images_per_second; /* of training */
    int64_t skipped_steps;    /* all steps of updates that were skipped */
    lk_ledger_report train_ledger, val_ledger;
} lk_epoch_report;

/* A moment at which no step is in flight: variables and the optimizer's state are those after the last update, and a
 * checkpoint can be written. */
typedef struct lk_rest_report {
    int64_t epoch;                    /* from 1 */
    int64_t batch;                    /* batches of this epoch that are over */
    int64_t steps;                    /* since the beginning of training */
    const lk_epoch_report *epoch_end; /* set after an epoch, its evaluation and every epoch_end; else NULL */
    bool before_evaluation;           /* the epoch's steps are over, and its evaluation and epoch_end come next */
    bool ends;                        /* training ends here without an interrupt */
    bool interrupted;                 /* training ends here by an interrupt */
} lk_rest_report;

/* Values that a callback keeps in a checkpoint, under names of its own. */
typedef struct lk_state lk_state;

/* For `save`: stores n numbers, or a text. Copied. A name that is set twice fails the checkpoint with LK_ERR_ARGUMENT;
 * a lack of memory fails it too, so callers need not check. */
LK_API void lk_state_set(lk_state *state, const char *name, const double *values, int64_t n);
LK_API void lk_state_set_text(lk_state *state, const char *name, const char *text);

/* For `resume`: reads up to n numbers and gives how many are stored; -1: none of that name. */
LK_API int64_t lk_state_get(const lk_state *state, const char *name, double *values, int64_t n);

/* For `resume`: a stored text, borrowed; NULL: none of that name. */
LK_API const char *lk_state_get_text(const lk_state *state, const char *name);

/* --- callbacks ---------------------------------------------------------------------------------------------------- */

/* Hooks of lk_trainer_fit. They are called in fit's thread, for each callback in the order in which callbacks were
 * added; any may be NULL. A hook that gives an error ends training, or the evaluation, with that error. Setting *stop
 * ends training without an error: from epoch_end after this epoch; from step_end after the next step and those that its
 * update still needs (with strategy parameter-server, after those handed out), and without an evaluation unless they
 * complete the epoch. */
typedef struct lk_callback {
    const char *name; /* static; for lk_train_result.stopped_by, and for checkpoints */
    lk_status (*train_begin)(void *self, lk_trainer *trainer);
    lk_status (*epoch_begin)(void *self, lk_trainer *trainer, int64_t epoch); /* epoch: from 1 */
    /* Gives the learning rate of the next update in place of `rate`. epoch: a fraction, from 0. */
    double (*rate)(void *self, lk_trainer *trainer, double epoch, double rate);
    /* Called when the metrics of a step have arrived, up to two steps after it was pushed. */
    lk_status (*step_end)(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop);
    /* Called after each step of an evaluation: fit's, between the epoch's last step_end and its epoch_end, and that of
     * lk_trainer_evaluate. */
    lk_status (*eval_step)(void *self, lk_trainer *trainer, const lk_eval_report *report);
    lk_status (*epoch_end)(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop);
    /* Asked after each pushed update, `steps` steps after the beginning of training: true has fit wait for all steps
     * and call `rest`. Must be the same in every process, which would otherwise not end at the same step after an
     * interrupt. */
    bool (*wants_rest)(void *self, lk_trainer *trainer, int64_t steps);
    /* Called if wants_rest gave true; and, without asking, after every epoch_end, and where a callback or an interrupt
     * has ended training in the middle of an epoch. */
    lk_status (*rest)(void *self, lk_trainer *trainer, const lk_rest_report *report);
    /* Called when a checkpoint is written, to store what the callback needs to go on. */
    lk_status (*save)(void *self, lk_trainer *trainer, lk_state *state);
    /* Called before train_begin if training resumes from a checkpoint that has something under the callback's name. */
    lk_status (*resume)(void *self, lk_trainer *trainer, const lk_state *state);
    /* Called however training ended, with its status, if train_begin was called and succeeded. */
    lk_status (*train_end)(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status);
    void (*release)(void *self); /* frees `self` */
    void *self;                  /* the first argument of every hook */
} lk_callback;

/* Adds a callback and takes callback.self, also on failure. A callback without a name comes from a constructor that
 * failed: its error is given. Errors: that one, LK_ERR_MEMORY. */
LK_API lk_status lk_trainer_add(lk_trainer *trainer, lk_callback callback);

/* --- advanced ----------------------------------------------------------------------------------------------------- */

/* Trains `steps` more steps, over ends of epochs, without evaluation and callbacks. Blocks. Errors: those of
 * lk_trainer_fit; LK_ERR_STATE (called from a callback of lk_trainer_fit); after LK_ERR_INTERRUPTED it can be called
 * again. */
LK_API lk_status lk_trainer_run(lk_trainer *trainer, int64_t steps);

/* The gradients of the last update, before clipping, of the mean loss over the whole batch: one tensor per parameter,
 * on replica 0's device. Borrowed until the next update. NULL before this run's first update. */
LK_API lk_tensor *const *lk_trainer_gradients(const lk_trainer *trainer);

/* The implementation that runs each problem of training and evaluation that has several, chosen by a tuning or built
 * in; the same for any number of devices. Used as a tuning, it repeats these choices. Valid as long as the trainer. */
LK_API const lk_tuning *lk_trainer_implementations(const lk_trainer *trainer);

/* Sets *size to the number of samples that training runs together, in shards of up to `shard` samples, for a setting
 * `asked` of lk_execution_config.micro_batch; 0: all of a shard. Errors: LK_ERR_ARGUMENT (the model has batch-norm; a
 * shard would have more than 128 pieces). */
LK_API lk_status lk_plan_micro_batch(const lk_model *model, int64_t shard, int64_t asked, int64_t *size);

#ifdef __cplusplus
}
#endif

#endif
