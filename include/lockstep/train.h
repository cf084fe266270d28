/* The training loop: a configuration becomes a plan, the plan is carried out. */
#ifndef LOCKSTEP_TRAIN_H
#define LOCKSTEP_TRAIN_H

#include "lockstep/data.h"
#include "lockstep/dist.h"
#include "lockstep/nn.h"
#include "lockstep/optim.h"
#include "lockstep/options.h"
#include "lockstep/tuning.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What was asked for; lk_train_defaults fills it. NULL, 0 and -1 mean "as the model's recipe, the machine or the data
 * say" where the comment says so. Strings are borrowed for the trainer's life. */
typedef struct lk_train_config {
    const char *recipe; /* NULL: none; lk_train_defaults has applied it, but for schedule and lr_steps */
    const char *model;  /* a reference model or a model file */
    const char *data;   /* "auto": fashion-mnist, or synthetic where that cannot be had; else see lk_dataset_open */
    const char *data_dir;
    const char *resize; /* this and what follows: see lk_dataset_opts */
    int64_t channels;   /* 0: the data's */
    double val_split;
    const char *image_shape; /* lk_dataset_opts.shape */
    const char *label_column;
    bool skip_bad;
    const char *data_cache; /* lk_dataset_opts.cache_dir */
    int data_on;            /* enum lk_data_on: which memory the data set is in when a shard begins */
    const char *devices;    /* NULL: the cores there are, at most as many as shards */
    const char *strategy;   /* NULL: one-device for one device, else mirrored */
    const char *pjrt;       /* of tpu: the file of a plug-in; NULL: see lk_pjrt_find */
    const char *storage;    /* of central-storage; NULL: see lk_strategy_set_storage */
    const char *cluster;    /* the file of a cluster's description; NULL: TF_CONFIG's, if it is set */

    /* Of parameter-server: see lockstep/parameter_server.h. */
    int role;                 /* enum lk_train_role */
    int64_t task_index;       /* of a server; -1: 0 */
    int64_t servers;          /* 0: as many as the description of the cluster lists, else 1 */
    const char *coordinator;  /* where the chief listens, "host:port"; NULL: as the description says */
    const char *listen;       /* where a server listens; NULL: likewise, else any port of loopback */
    int64_t max_staleness;    /* -1: no limit */
    const char *snapshot_dir; /* NULL: servers keep no snapshots */
    int64_t snapshot_every;   /* updates; 0: 100 */
    const char *keys;         /* a .key file of lk_make_keys; NULL: none */
    double peer_timeout;      /* seconds of silence after which a process counts as lost; 0: 5 */
    double join_timeout;      /* seconds in which the chief, or its servers, have to be there; 0: 60 */

    int reduce;             /* enum lk_reduce */
    int compress;           /* 1: exchange in bf16, see lk_strategy_set_compression */
    int64_t shards;         /* V; 0: lk_default_shards */
    const char *algorithms; /* "fast", "direct", or the file of a tuning */
    int executor;           /* enum lk_executor */
    int fuse;               /* enum lk_fuse_mode */
    double bucket_mb;       /* gradients that are summed together, in 10^6 bytes; 0: all */
    int graphs;             /* enum lk_graph_mode */
    int64_t branches;       /* shards that a device may compute at a time: see lk_program_branch */
    bool recompute;         /* see lk_program_opts */
    int64_t micro_batch;    /* samples of a shard that run together; 0: all; -1: as is fastest for the model */
    int dtype;              /* enum lk_precision */
    bool tf32;              /* see lk_device_set_tf32 */
    int64_t epochs;         /* 0: the model's recipe's */
    int64_t batch_size;     /* global; 0: the model's recipe's */
    int64_t val_batch_size; /* 0: batch_size */
    int64_t accumulate;     /* batches an update */
    int64_t seed;
    int64_t limit_train; /* -1: all */
    int64_t limit_val;   /* -1: all; 0: no evaluation */
    int64_t workers;

    const char *optimizer; /* "sgd", …; NULL: the model's recipe's */
    double base_lr;        /* 0: the model's recipe's */
    double momentum;       /* -1: 0.9 for lars, else 0 */
    bool nesterov;
    double weight_decay;
    double clip_norm; /* 0: no clipping */
    /* "constant", "step", "cosine"; NULL: "step" with lr_steps, else the recipe's, else the model's recipe's */
    const char *schedule;
    const char *lr_steps; /* "15:0.1,25:0.01"; NULL: the recipe's, else the model's recipe's */
    double min_lr;        /* of cosine */
    double warmup_epochs; /* -1: 5 where scale_lr raises the rate, else 0 */
    bool scale_lr;        /* base_lr times batch / the recipe's batch */
    double label_smoothing;
    int64_t top_k;              /* reported beside accuracy; 0: not */
    int batch_norm;             /* enum lk_batch_norm_mode */
    int64_t precise_batch_norm; /* training batches that fit measures batch-norm's statistics with after an epoch; 0:
                                   none */

    const char *augment; /* see lk_augment_parse; NULL: none */
    int normalize;       /* enum lk_normalize_mode */

    double target_accuracy; /* stop above it; below 0: never */
    double patience;        /* of a target, epochs in a row; -1: 2 */
    int64_t early_stop;     /* stop after so many epochs without a better val loss; 0: never */
    int64_t audit_every;    /* compare replicas after so many steps, and at the end; 0: never */
    int nan_guard;          /* enum lk_nan_guard */
    const char *log_dir;    /* event files, CSV, JSON lines and curves; NULL: none */

    /* See lockstep/checkpoint.h. */
    const char *checkpoint_dir;   /* NULL: none */
    const char *checkpoint_every; /* "100" steps, "5m" minutes, "epoch" */
    int checkpoint_best;          /* enum lk_best_metric */
    int64_t keep;                 /* checkpoints, besides the best */
    bool resume;                  /* goes on from the last checkpoint, where there is one */
    bool override;                /* with other settings, too */
    const char *weights;          /* a safetensors file of initial parameters and buffers; NULL: as the model says */

    bool throughput, total_time, plot, json, ledger; /* what the command prints */

    lk_data_progress_fn data_progress; /* as of lk_dataset_opts, whenever data are opened; NULL: none */
    void *data_progress_user;
} lk_train_config;

/* Host: threads of the loader prepare images, and batches go to the devices. Device: every device has the data set and
 * prepares its shards' images itself, with the same bits. Auto: device where devices have memory of their own and a
 * quarter of what is left of it takes the data set, else host. */
typedef enum lk_data_on { LK_DATA_ON_AUTO, LK_DATA_ON_HOST, LK_DATA_ON_DEVICE } lk_data_on;
typedef enum lk_batch_norm_mode { LK_BN_SHARD, LK_BN_SYNC } lk_batch_norm_mode;
typedef enum lk_normalize_mode { LK_NORMALIZE_NONE, LK_NORMALIZE_CENTER, LK_NORMALIZE_STANDARD } lk_normalize_mode;
typedef enum lk_executor { LK_EXECUTOR_PROGRAM, LK_EXECUTOR_EAGER } lk_executor;
typedef enum lk_fuse_mode { LK_FUSE_ON, LK_FUSE_OFF } lk_fuse_mode;
typedef enum lk_graph_mode { LK_GRAPHS_ON, LK_GRAPHS_OFF } lk_graph_mode;
typedef enum lk_precision { LK_PRECISION_F32, LK_PRECISION_BF16 } lk_precision; /* see lk_forward_opts.dtype */
/* Auto: the validation accuracy; without an evaluation the training loss. */
typedef enum lk_best_metric {
    LK_BEST_AUTO,
    LK_BEST_VAL_ACCURACY,
    LK_BEST_VAL_LOSS,
    LK_BEST_TRAIN_ACCURACY,
    LK_BEST_TRAIN_LOSS,
    LK_BEST_NONE
} lk_best_metric;
typedef enum lk_nan_guard { LK_NAN_GUARD_STOP, LK_NAN_GUARD_SKIP, LK_NAN_GUARD_OFF } lk_nan_guard;

/* The flags of `lockstep train`, with offsets into lk_train_config. */
LK_API extern const lk_option lk_train_options[];
enum { LK_TRAIN_OPTION_COUNT = 84 };

/* A recipe is a named list of settings for these options: what one of the project's sources trains. */
typedef struct lk_recipe {
    const char *name, *about;
    const char *const *settings; /* "batch-size=32", …, NULL */
} lk_recipe;

/* NULL past the end. */
LK_API const lk_recipe *lk_recipe_at(int index);

/* The table's defaults and environment, then the settings of `recipe` (NULL: none) but for its schedule and lr_steps,
 * which stay NULL: config->recipe stands for them, so that one of them may be set without the other. Errors:
 * LK_ERR_ARGUMENT (unknown recipe, with the nearest name). */
LK_API lk_status lk_train_defaults(const char *recipe, lk_train_config *config);

/* How lk_dataset_open finds the data that a configuration names, all of them. Borrows its strings. */
LK_API lk_dataset_opts lk_train_dataset_opts(const lk_train_config *config);

/* What will be done: the configuration with every blank filled in. */
typedef struct lk_plan {
    const char *recipe;                           /* NULL: none */
    const char *model, *data, *source, *strategy; /* source: where the samples came from */
    int64_t parameters;                           /* elements */
    int devices;                                  /* of all processes */
    const char *storage;                          /* of central-storage: the device's name; else NULL */
    int process, processes;                       /* which one this is, and how many there are */
    int64_t shards, batch_size, val_batch_size, accumulate, epochs;
    int64_t micro_batch;       /* samples of a training shard that run together; 0: all */
    int64_t val_micro_batch;   /* the same of an evaluation's shard */
    int64_t steps_per_epoch;   /* batches */
    int64_t updates_per_epoch; /* ceil(steps / accumulate) */
    int64_t train_samples, val_samples;
    int64_t classes, empty_classes; /* empty: without a training sample */
    const char *optimizer;
    lk_optimizer_opts optimizer_opts;
    double base_lr;       /* asked for, or the recipe's */
    lk_schedule schedule; /* base: with scale_lr applied */
    double label_smoothing;
    int64_t top_k;
    lk_batch_norm_mode batch_norm;
    int64_t precise_batch_norm;
    lk_dtype dtype; /* of the forward and backward pass: LK_F32 or LK_BF16 */
    bool tf32;      /* of f32 products, see lk_device_set_tf32 */
    lk_augment_opts augment;
    double patience; /* of the target, if there is one */
    uint64_t seed;
    const char *algorithms; /* "fast", "direct", or the file of a tuning */
    const char *transport;  /* lk_strategy_transport */
    lk_reduce reduce;
    bool compressed; /* the exchange */
    /* XXH3-64 of the executor, the version of fusion, TF32, and NCCL's reduction with the number of devices, seeded
     * with lk_tuning_hash of lk_trainer_implementations, and where GPUs differ with those that differ from the first.
     */
    uint64_t implementations;
    /* Of a device with memory of its own, bytes: what training is estimated to take there, and what there is for it;
     * the worst of them. 0: devices have none. */
    int64_t memory_needed, memory_there;
    bool fell_back;                       /* data "auto": fashion-mnist was not to be had */
    bool data_on_devices, data_too_large; /* see lk_data_on; too large: what kept `auto` from it */
} lk_plan;

/* What training makes of `asked`, lk_train_config.micro_batch, for shards of up to `shard` samples: *size samples run
 * together, 0: all. Errors: LK_ERR_ARGUMENT (a model with batch-norm; more than 128 pieces). */
LK_API lk_status lk_plan_micro_batch(const lk_model *model, int64_t shard, int64_t asked, int64_t *size);

/* After an error a trainer can only be asked for its plan, and released. */
typedef struct lk_trainer lk_trainer;

/* Opens data and devices, builds the model and its replicas. Errors: LK_ERR_ARGUMENT for a configuration that makes no
 * sense, with the flag and what would be right, and what a model file reports: before data are looked for, but for what
 * depends on the size of the images; LK_ERR_FORMAT where the whole training set has no image of a class, but for
 * class 0 of labels that begin with 1; else what data and devices report. */
LK_API lk_trainer *lk_trainer_new(const lk_train_config *config);

/* The same with a model of one's own, taken (also on failure), instead of config->model. NULL gives NULL, and the error
 * that there is stays. */
LK_API lk_trainer *lk_trainer_new_with(const lk_train_config *config, lk_model *model);
LK_API void lk_trainer_release(lk_trainer *trainer);

/* Valid as long as the trainer. */
LK_API const lk_plan *lk_trainer_plan(const lk_trainer *trainer);
LK_API const lk_train_config *lk_trainer_config(const lk_trainer *trainer);
LK_API lk_strategy *lk_trainer_strategy(const lk_trainer *trainer);
LK_API const lk_model *lk_trainer_model(const lk_trainer *trainer);
LK_API const lk_dataset *lk_trainer_dataset(const lk_trainer *trainer, lk_split split); /* NULL: no evaluation */
LK_API lk_tensor *const *lk_trainer_variables(const lk_trainer *trainer, int replica);  /* borrowed */

/* What runs every problem of training and evaluation that has alternatives, whether a tuning or the built-in choice
 * said so: the same for any number of devices. As a tuning it repeats these choices. Valid as long as the trainer. */
LK_API const lk_tuning *lk_trainer_implementations(const lk_trainer *trainer);

/* The gradients of the last update before clipping, of the mean loss of the whole batch, on replica 0's device: one a
 * parameter, borrowed until the next update; NULL before the first, also of a training that goes on. */
LK_API lk_tensor *const *lk_trainer_gradients(const lk_trainer *trainer);

/* A loss or a metric on its way: a sum, and how many samples it is over. Means are taken once, at the end. */
typedef struct lk_mean {
    double sum;
    int64_t count;
} lk_mean;

typedef struct lk_metrics {
    /* count 0: there was none. The loss is of the labels as they are in an evaluation, smoothed ones in training. */
    lk_mean loss, accuracy, top_k;
} lk_metrics;

typedef struct lk_step_report {
    int64_t epoch, step, steps; /* from 1; step within the epoch, of `steps` */
    int64_t samples;            /* trained on in this epoch so far, those of skipped steps too */
    lk_metrics batch;           /* of this step */
    lk_metrics so_far;          /* of the epoch, without skipped steps */
    double rate;
    double seconds; /* of training, of the epoch so far */
    /* The update that this step ends was skipped: its loss or gradients were not finite. With accumulation so_far then
     * goes back to what it was before the update's first step. */
    bool skipped;
} lk_step_report;

typedef struct lk_eval_report {
    int64_t epoch;       /* epochs trained so far: within fit the one that is evaluated, from 1 */
    int64_t step, steps; /* from 1 */
    lk_metrics so_far;   /* of this evaluation */
    double seconds;      /* since it began */
    /* Batch-norm's statistics are measured, before fit evaluates: see lk_train_config.precise_batch_norm. Steps are
     * batches, and there are no metrics. */
    bool measures_statistics;
} lk_eval_report;

typedef struct lk_epoch_report {
    int64_t epoch;         /* from 1 */
    int64_t steps;         /* since the beginning of training */
    int64_t samples;       /* trained on in this epoch, those of skipped steps too */
    lk_metrics train, val; /* train: without skipped steps */
    double rate;           /* of the epoch's last step */
    double seconds;        /* training alone */
    double epoch_seconds;  /* since epoch_begin, evaluation included */
    double total_seconds;  /* since fit began, evaluation included */
    double images_per_second;
    int64_t skipped_steps; /* all steps of the updates that were skipped */
    lk_ledger_report train_ledger, val_ledger;
} lk_epoch_report;

/* Of all of the training, also where it went on from a checkpoint; but throughput is of this run, where it trained. */
typedef struct lk_train_result {
    int64_t epochs, steps, samples_seen;
    double seconds; /* training alone */
    double total_seconds;
    /* Without start-up, evaluation and the first epoch; of a single epoch, without its first tenth of steps. */
    double images_per_second;
    double flops_per_second; /* the same, in the operators' floating-point operations */
    lk_metrics val;          /* of the last epoch */
    int64_t audits;          /* how often replicas were compared since the trainer was made, and were equal */
    const char *stopped_by;  /* the callback that ended training before its last epoch; NULL: none */
    char digest[33];
    char state_digest[33]; /* of the optimiser's state too: lk_trainer_state_digest */
} lk_train_result;

/* A moment at which nothing is under way: variables and the optimiser's state are those after the update that is the
 * last, and training can go on from here. */
typedef struct lk_rest_report {
    int64_t epoch, batch, steps;      /* epoch from 1, and so many batches of it are through */
    const lk_epoch_report *epoch_end; /* where an epoch has ended, evaluation and every epoch_end included; else NULL */
    bool ends;                        /* training ends here by itself */
    bool interrupted;
} lk_rest_report;

/* What a callback remembers from one run to the next: names of its own, with numbers or a text each. */
typedef struct lk_state lk_state;

/* In `save`. A name once: twice fails the checkpoint with LK_ERR_ARGUMENT. Whether memory sufficed is asked by who
 * called. */
LK_API void lk_state_set(lk_state *state, const char *name, const double *values, int64_t n);
LK_API void lk_state_set_text(lk_state *state, const char *name, const char *text);

/* In `resume`. Reads up to n numbers; gives how many there are, -1: nothing of that name. */
LK_API int64_t lk_state_get(const lk_state *state, const char *name, double *values, int64_t n);
LK_API const char *lk_state_get_text(const lk_state *state, const char *name); /* borrowed; NULL: there is none */

/* --- callbacks --------------------------------------------------------------------------------------------------- */

/* Hooks into fit, called in the order in which callbacks were added, in fit's thread. Any may be NULL. An error ends
 * training, or the evaluation, with that error. *stop ends it in good order: from epoch_end after this epoch; from
 * step_end after the steps that are under way, without evaluation unless they end the epoch. */
typedef struct lk_callback {
    const char *name; /* static; what lk_train_result.stopped_by says */
    lk_status (*train_begin)(void *self, lk_trainer *trainer);
    lk_status (*epoch_begin)(void *self, lk_trainer *trainer, int64_t epoch); /* from 1 */
    /* The rate for the next update, instead of `rate`; `epoch` is a fraction from 0. */
    double (*rate)(void *self, lk_trainer *trainer, double epoch, double rate);
    /* When a step's metrics have arrived: up to two steps after it was pushed. */
    lk_status (*step_end)(void *self, lk_trainer *trainer, const lk_step_report *report, bool *stop);
    /* The same of an evaluation's steps: fit's, between an epoch's last step and its epoch_end, and those that
     * lk_trainer_evaluate is asked for. */
    lk_status (*eval_step)(void *self, lk_trainer *trainer, const lk_eval_report *report);
    lk_status (*epoch_end)(void *self, lk_trainer *trainer, const lk_epoch_report *report, bool *stop);
    /* Asked after the push of an update that does not end an epoch, `steps` after the beginning of training: whether
     * all steps are to be waited for, and rest to be called. */
    bool (*wants_rest)(void *self, lk_trainer *trainer, int64_t steps);
    /* Then, and without being asked after every epoch_end, where a callback has ended training in the middle of an
     * epoch, and where an interrupt has. */
    lk_status (*rest)(void *self, lk_trainer *trainer, const lk_rest_report *report);
    /* For checkpoints: what has to be remembered; and, before train_begin of a training that goes on from one, what
     * was. Not called where the checkpoint has nothing under the callback's name. */
    lk_status (*save)(void *self, lk_trainer *trainer, lk_state *state);
    lk_status (*resume)(void *self, lk_trainer *trainer, const lk_state *state);
    /* However training ended; `status` says how. Not called where train_begin was not, or failed. */
    lk_status (*train_end)(void *self, lk_trainer *trainer, const lk_train_result *result, lk_status status);
    void (*release)(void *self);
    void *self;
} lk_callback;

/* Takes callback.self, also on failure. A callback without a name is what a constructor gives that failed: its error is
 * given back. */
LK_API lk_status lk_trainer_add(lk_trainer *trainer, lk_callback callback);

/* Ends training after the steps that are under way: train_end is called, fit gives LK_ERR_INTERRUPTED. lk_trainer_run
 * and an evaluation end likewise. Where none of them is at work, the next one ends at once. Async-signal-safe. */
LK_API void lk_trainer_interrupt(lk_trainer *trainer);

/* --- fit, evaluate, predict -------------------------------------------------------------------------------------- */

/* Trains all epochs. Blocks. Errors: those of operators and callbacks, LK_ERR_STATE if a sample was not used exactly
 * once in an epoch, where an audit finds replicas that differ, or lk_trainer_run, or a fit that step_end ended, stopped
 * in the middle of one, LK_ERR_INTERRUPTED, LK_ERR_NUMERIC (nan_guard stop: the message names layer or loss, step,
 * samples). *result is set as far as it goes. */
LK_API lk_status lk_trainer_fit(lk_trainer *trainer, lk_train_result *result);

/* Trains `steps` further steps, epoch after epoch, without evaluation or callbacks. Blocks. Errors also: LK_ERR_STATE
 * (from a step_end or eval_step, where steps are under way), LK_ERR_INTERRUPTED, after which it can go on. */
LK_API lk_status lk_trainer_run(lk_trainer *trainer, int64_t steps);

/* Counts every validation sample once, and calls eval_step of the trainer's callbacks. Blocks. Errors also:
 * LK_ERR_STATE (from a step_end or eval_step), LK_ERR_INTERRUPTED. */
LK_API lk_status lk_trainer_evaluate(lk_trainer *trainer, lk_metrics *metrics);

/* probabilities [count(dataset), classes]: softmax of the logits of every sample, in order, normalised as in training.
 * Blocks. Errors: LK_ERR_SHAPE (images of another size). */
LK_API lk_status lk_trainer_predict(lk_trainer *trainer, lk_dataset *dataset, float *probabilities);

/* XXH3-128, in 32 hexadecimal digits, over all parameters and buffers in the order of their names (plain row-major,
 * little-endian f32) of one replica. Waits. Errors: LK_ERR_ARGUMENT (no such replica). */
LK_API lk_status lk_trainer_digest(lk_trainer *trainer, int replica, char digest[33]);

/* Of replica 0's parameters and buffers in the order of their names, then what the optimiser remembers of each
 * parameter, in the same order, then how many updates it has made (64 bits, little-endian): XXH3-128. */
LK_API lk_status lk_trainer_state_digest(lk_trainer *trainer, char digest[33]);

/* As lk_trainer_digest of variable `index` alone, XXH3-64. Errors: LK_ERR_ARGUMENT (no such replica or variable). */
LK_API lk_status lk_trainer_variable_hash(lk_trainer *trainer, int replica, int index, uint64_t *hash);

/* --- a loop of one's own ----------------------------------------------------------------------------------------- */

/* The variables of a model, and an optimiser for them, where the strategy has them, on every device or on one: what
 * lk_trainer trains, for loops written by hand; a loop may have several. */
typedef struct lk_replicas lk_replicas;

/* Keeps the strategy and the model: both have to live as long. opts NULL: no optimiser (lk_replicas_apply is then an
 * error). */
LK_API lk_replicas *lk_replicas_new(lk_strategy *strategy, const lk_model *model, const lk_optimizer_opts *opts,
                                    uint64_t seed);
LK_API void lk_replicas_release(lk_replicas *replicas);

/* The variables on replica's device: the model's parameters, then its buffers. Borrowed. With central-storage they are
 * for reading: what the storing device has, as of the last update. */
LK_API lk_tensor *const *lk_replicas_variables(const lk_replicas *replicas, int replica);
/* That of replica's own variables, or of the storing device's. NULL: there is none. Borrowed. */
LK_API lk_optimizer *lk_replicas_optimizer(const lk_replicas *replicas, int replica);

/* Updates every replica, or what one device stores: sums[replica * stride + i], as lk_shard_sum_finish gives them,
 * holds at i = 0 the model's gradients and after them its batch-norm statistics, over `samples` samples. Asynchronous.
 */
LK_API lk_status lk_replicas_apply(lk_replicas *replicas, lk_tensor *const *sums, int stride, int64_t samples,
                                   double rate);

/* As lk_trainer_digest. Errors: LK_ERR_ARGUMENT (no such replica). */
LK_API lk_status lk_replicas_digest(lk_replicas *replicas, int replica, char digest[33]);

/* One shard of a batch, for the function that computes it. All borrowed; the tensors lie over the batch's own memory.
 */
typedef struct lk_shard {
    int replica;
    int64_t index, shards; /* which of how many */
    int64_t global_batch;  /* samples in the whole batch */
    lk_device *device;
    lk_tensor *images;  /* f32 [N, C, H, W]; NULL of a batch without images */
    lk_tensor *labels;  /* i32 [N]; likewise */
    lk_tensor *indices; /* i64 [N]: the samples' numbers in the data set */
} lk_shard;

/* values[0 … n): what is to be summed over shards, borrowed from the open scope; entries are NULL before. */
typedef lk_status (*lk_shard_fn)(void *user, const lk_shard *shard, lk_tensor **values);

/* Calls `fn` for every shard of the batch that has samples, in a scope, and sums up what it gives: sums[replica * n +
 * i] as lk_shard_sum_finish, one reference each. `dataset`: where the batch is from. Asynchronous. */
LK_API lk_status lk_run_shards(lk_shard_sum *sum, int n, const lk_dataset *dataset, lk_batch *batch, lk_shard_fn fn,
                               void *user, lk_tensor **sums);

/* --- verification of contract 1 ---------------------------------------------------------------------------------- */

typedef struct lk_verify_run {
    const char *devices; /* the spec, of lk_verify_opts.specs */
    int device_count;
    char digest[33];
    const lk_plan *plan; /* valid during the call; so are: */
    const lk_tuning *implementations;
} lk_verify_run;

typedef struct lk_verify_opts {
    const char *const *specs; /* device specs to compare, the first is what the others are compared with */
    int count;
    int64_t steps;
    /* Called after each step, from 1, of the run on `devices`; false ends the comparison. NULL: nothing. */
    bool (*step_done)(void *user, const char *devices, int64_t step);
    /* Called after each run; NULL: nothing. */
    void (*run_done)(void *user, const lk_verify_run *run);
    void *user;
} lk_verify_opts;

typedef struct lk_verify_result {
    bool identical;
    int64_t shards;
    /* Where not: the first step (from 1) after which a tensor differs, which one, and on which run and replica. */
    int64_t step;
    char tensor[128];
    int run, replica;
} lk_verify_result;

/* Trains the same for `steps` steps on each of the device specs and compares every variable of every replica after
 * every step, bit for bit. V is config->shards, or what the largest needs. Errors: those of lk_trainer_new and
 * lk_trainer_run, LK_ERR_INTERRUPTED (step_done gave false). */
LK_API lk_status lk_verify(const lk_train_config *config, const lk_verify_opts *opts, lk_verify_result *result);

#ifdef __cplusplus
}
#endif

#endif
