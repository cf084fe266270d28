/* The settings of a training, the command-line options that set them, and recipes.
 *
 *     lk_train_config config;
 *     lk_train_defaults("lenet", &config);
 *     config.epochs = 3;
 *     config.devices.spec = "2xcpu";
 *     lk_trainer *trainer = lk_trainer_new(&config);     (see lockstep/trainer.h) */
#ifndef LOCKSTEP_TRAIN_CONFIG_H
#define LOCKSTEP_TRAIN_CONFIG_H

#include "lockstep/data.h"
#include "lockstep/options.h"

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- choices ---- */

/* The place where images are augmented and normalized. Both ways give the same bits. */
typedef enum lk_data_on {
    LK_DATA_ON_AUTO,  /* DEVICE if devices have memory of their own, a quarter of what is free takes the data set, and
                       * its images are bytes */
    LK_DATA_ON_HOST,  /* by threads of the loader; batches are then copied to the devices */
    LK_DATA_ON_DEVICE /* by each device for its shards, from a copy of the data set in its memory */
} lk_data_on;

/* The samples whose statistics batch-norm takes together. */
typedef enum lk_batch_norm_mode {
    LK_BN_GROUP, /* those of neighboring shards, as few as have lk_batch_norm_config.group samples; the default */
    LK_BN_SHARD, /* those of each shard */
    LK_BN_SYNC   /* the whole batch */
} lk_batch_norm_mode;

/* Center subtracts the training set's mean of each channel; standard also divides by its standard deviation. */
typedef enum lk_normalize_mode { LK_NORMALIZE_NONE, LK_NORMALIZE_CENTER, LK_NORMALIZE_STANDARD } lk_normalize_mode;

/* Program: a shard's pass is recorded once and replayed. Eager: each operator runs as it is called. */
typedef enum lk_executor { LK_EXECUTOR_PROGRAM, LK_EXECUTOR_EAGER } lk_executor;

/* Lets programs replace several operators by one, or not. */
typedef enum lk_fuse_mode { LK_FUSE_ON, LK_FUSE_OFF } lk_fuse_mode;

/* Lets GPUs run programs as graphs, or not. Both give the same bits. */
typedef enum lk_graph_mode { LK_GRAPHS_ON, LK_GRAPHS_OFF } lk_graph_mode;

/* The dtype that layers compute in: see lk_forward_opts.dtype. */
typedef enum lk_precision {
    LK_PRECISION_F32,
    LK_PRECISION_BF16,
    LK_PRECISION_AUTO /* BF16 where devices multiply it faster than f32: processors with AMX, AMD's with AVX512_BF16,
                       * GPUs of compute capability 8.0 or more, TPUs; else F32. It depends on the kind of device alone,
                       * not on the model or on a timing; lk_plan.dtype is the choice, and records have it */
} lk_precision;

/* The metric that chooses the best checkpoint. */
typedef enum lk_best_metric {
    LK_BEST_AUTO, /* the validation accuracy, or the training loss if there is no evaluation */
    LK_BEST_VAL_ACCURACY,
    LK_BEST_VAL_LOSS,
    LK_BEST_TRAIN_ACCURACY,
    LK_BEST_TRAIN_LOSS,
    LK_BEST_NONE /* no checkpoint is the best */
} lk_best_metric;

/* The reaction to a loss or gradient that is not finite. */
typedef enum lk_nan_guard {
    LK_NAN_GUARD_STOP, /* training ends with LK_ERR_NUMERIC, which names the layer and the samples */
    LK_NAN_GUARD_SKIP, /* the update is left out */
    LK_NAN_GUARD_OFF   /* nothing */
} lk_nan_guard;

/* ---- settings ---- */

/* Members with the comment "enum …" are ints that hold a value of that enum: lk_options_parse sets them. */

/* The samples, and how images are prepared: see lk_dataset_opts. */
typedef struct lk_data_config {
    const char *name; /* for lk_dataset_open; "auto": fashion-mnist, or synthetic if that cannot be fetched */
    /* Data sets of the program's own, to train on instead of `name`, and to validate on; val_set NULL: no evaluation.
     * val_set must not have more classes. The trainer keeps references. Settings that say how files are read (limits,
     * val_split, resize, channels, image_shape, label_column, skip_bad) are then errors. If several processes train,
     * each must give equal sets. */
    lk_dataset *train_set, *val_set;
    const char *dir;     /* folder that is searched first; NULL: none */
    int64_t limit_train; /* train on the first limit_train samples; -1: all */
    int64_t limit_val;   /* evaluate on the first limit_val samples; -1: all; 0: no evaluation */
    double val_split;    /* share of each class of the training set to validate on; 0: the data's own validation set */
    const char *augment; /* see lk_augment_parse; NULL: none */
    int normalize;       /* enum lk_normalize_mode */
    const char *resize;  /* "HxW" in pixels, for pictures of several sizes too; NULL: as the data are */
    int64_t channels;    /* 1: gray; 3: color; 0: as the data are */
    int64_t workers;     /* threads that prepare batches ahead; 0: the thread that trains does it */
    int memory;          /* enum lk_data_on */
    const char *image_shape;      /* of CSV: lk_dataset_opts.shape; NULL: as the header says */
    const char *label_column;     /* of CSV: lk_dataset_opts.label_column; NULL: found by name */
    bool skip_bad;                /* leave out samples that cannot be used, with a warning; else they are an error */
    const char *cache_dir;        /* for decoded pictures: lk_dataset_opts.cache_dir; NULL: the default */
    lk_data_progress_fn progress; /* called while data are opened; NULL: none */
    void *progress_user;          /* its first argument */
} lk_data_config;

/* The devices that train, the shards of a batch, and the exchange of gradients. */
typedef struct lk_device_config {
    const char *spec;     /* for lk_devices_open; NULL: all cores, but at most as many as shards, and
                             LK_MAX_DEVICES; with strategy tpu all devices of the plug-in */
    const char *strategy; /* for lk_strategy_new; NULL: one-device for one device, else mirrored */
    int64_t shards;       /* V, which the bits depend on; 0: lk_default_shards */
    double bucket_mb;     /* gradients that are summed together, in units of 10^6 bytes; 0: all, after backward; between
                             processes at most 4.2 */
    int reduce;           /* enum lk_reduce */
    int exchange;         /* enum lk_exchange */
    int compress;         /* 1: exchange gradients in bf16, see lk_strategy_set_compression; 0: in f32 */
    const char *storage;  /* central-storage: the device with the variables; NULL: see lk_strategy_set_storage */
    int optimizer_state;  /* 1: each device has only its slice's, see lk_strategy_set_sharded; 0: each has all */
    const char *cluster;  /* file that describes a cluster, as TF_CONFIG does; NULL: $TF_CONFIG, if it is set */
    const char *pjrt;     /* for lk_pjrt_use; NULL: the plug-in that the environment names, if any */
} lk_device_config;

/* A process of strategy parameter-server: see lockstep/parameter_server.h. Where "the description" of the cluster is
 * mentioned, it is that of devices.cluster. */
typedef struct lk_server_config {
    int role;                 /* enum lk_train_role; auto: as the description says */
    int64_t task_index;       /* number of this server, from 0; -1: as the description says, else 0 */
    int64_t count;            /* number of servers; 0: as the description says, else 1 */
    const char *coordinator;  /* address of the chief, "host:port"; NULL: as the description says, else, for the chief,
                               * any port of loopback */
    const char *listen;       /* address of this server; NULL: as the description says, else any port of loopback */
    int64_t max_staleness;    /* most updates between a worker's pull and its push; -1: no limit */
    const char *snapshot_dir; /* folder for snapshots of this server; NULL: it keeps none */
    int64_t snapshot_every;   /* updates between two snapshots; 0: 100 */
    const char *keys;         /* a .key file of lk_make_keys; NULL: connections are not encrypted */
    double peer_timeout;      /* seconds of silence after which a process counts as lost; 0: 5 */
    double join_timeout;      /* seconds to wait for the chief, and for servers that are not there; 0: 60 */
} lk_server_config;

/* The execution of a step on a device. */
typedef struct lk_execution_config {
    int dtype;              /* enum lk_precision */
    bool tf32;              /* let GPUs multiply in TF32: see lk_device_set_tf32 */
    const char *algorithms; /* "fast", "direct" (see lk_algorithms), or the file of a tuning */
    int executor;           /* enum lk_executor */
    int fuse;               /* enum lk_fuse_mode */
    int graphs;             /* enum lk_graph_mode */
    int64_t branches;       /* most shards that a GPU computes at the same time: see lk_program_branch; 0: it merges
                             * their passes (lk_program_opts) if there is memory for it, else 4 */
    bool recompute;         /* recompute activations in backward to save memory: see lk_program_opts */
    int64_t micro_batch;    /* samples of a shard that run together, which the bits depend on; 0: all; -1: 16 if that is
                             * faster for the model, else all */
} lk_execution_config;

/* The optimizer and the learning rate: see lockstep/optim.h. */
typedef struct lk_optimizer_config {
    const char *name;       /* "sgd", "adam", "adamw" or "lars"; NULL: the recipe's */
    double base_lr;         /* learning rate; 0: the recipe's */
    double momentum;        /* of sgd and lars; -1: 0.9 for lars, else 0 */
    bool nesterov;          /* for sgd with a momentum above 0 */
    double weight_decay;    /* 0: none */
    double clip_norm;       /* the norm of all gradients together is scaled down to it; 0: no clipping */
    const char *schedule;   /* "constant", "step" or "cosine"; NULL: "step" if lr_steps are set, else the recipe's */
    const char *lr_steps;   /* of step: "15:0.1,25:0.01", see lk_schedule_parse_steps; NULL: the recipe's */
    double min_lr;          /* of cosine: the rate at the end */
    double warmup_epochs;   /* may be a fraction; -1: 5 if scale_lr raises the rate, else 0 */
    bool scale_lr;          /* multiply base_lr by (samples in an update) / (the recipe's batch size) */
    double label_smoothing; /* see lk_smoothed_cross_entropy; 0: none */
    /* The factors of the samples' training loss by class: "balanced", (samples) / ((classes with samples) * (samples of
     * the class)) over the training set; or "3:2,shirt:0.5", classes by number or name, 1 for the others. The sum is
     * still divided by the number of samples, as in Keras. NULL: none. */
    const char *class_weights;
    /* "3:0.5": the rate is multiplied by 0.5 after 3 epochs in a row without a smaller validation loss, as
     * lk_callback_rate_on_plateau does; NULL: never. */
    const char *lr_plateau;
    double average; /* lk_optimizer_opts.average: evaluation, prediction and checkpoints use the average; 0: none */
} lk_optimizer_config;

typedef struct lk_batch_norm_config {
    int mode; /* enum lk_batch_norm_mode */
    /* Least samples of a group; 0: 32. A batch is cut in two, and each half again, along the tree over its shards, as
     * long as both halves have so many. */
    int64_t group;
    int64_t precise; /* after each epoch the running statistics become means over this many training batches; 0: they
                      * stay as training left them */
} lk_batch_norm_config;

/* When training ends before its last epoch. */
typedef struct lk_stop_config {
    double target_accuracy; /* validation accuracy to exceed; below 0: no target */
    double patience;        /* epochs in a row above the target, rounded up; -1: 2 */
    int64_t early_stop;     /* stop after this many epochs without a smaller validation loss; 0: never */
    bool restore_best;      /* at the end take back the variables of the epoch with the smallest validation loss */
    FILE *stream;           /* gets a line that says so when training ends early; NULL: none */
} lk_stop_config;

/* Checks while training runs. */
typedef struct lk_check_config {
    int64_t audit_every; /* compare all replicas every audit_every steps, and at the end; 0: never */
    int nan_guard;       /* enum lk_nan_guard */
    int64_t top_k;       /* also report how often the label is among the k likeliest classes; 0: do not */
} lk_check_config;

/* See lockstep/checkpoint.h. lk_trainer_fit writes checkpoints. */
typedef struct lk_checkpoint_config {
    const char *dir;     /* folder for checkpoints; NULL: none are written */
    const char *every;   /* "100" steps, "5m" minutes or "epoch": see lk_checkpoint_parse_every */
    int best;            /* enum lk_best_metric */
    int64_t keep;        /* number of the newest checkpoints to keep, in addition to the best */
    bool resume;         /* go on from the last checkpoint in `dir`, if there is one */
    bool override;       /* resume even if settings differ from the checkpoint's */
    const char *weights; /* safetensors file of initial parameters and buffers; NULL: as the model initializes them */
    const char
        *weights_skip; /* variables that `weights` leaves as they are: see lk_replicas_load_weights; NULL: none */
} lk_checkpoint_config;

/* Records and output of lk_trainer_fit: see lockstep/callbacks.h. Lines go to standard output or, with json, to
 * standard error. If several processes train, the first one writes and prints. */
typedef struct lk_record_config {
    const char *log_dir; /* folder for event files, CSV, JSON lines and curves; NULL: none */
    bool throughput;     /* print images per second after every epoch */
    bool total_time;     /* print the training time so far after every epoch */
    bool plot;           /* draw curves in the terminal */
    bool json;           /* print JSON lines on standard output */
    bool ledger;         /* JSON lines say how often samples were used */
} lk_record_config;

/* The settings of a training. lk_train_defaults fills them; a program then changes what it wants to change. "The
 * recipe" is the one that `recipe` names, else the one that trains the model; for a model without a recipe it means SGD
 * at 0.1, batches of 128 and 10 epochs at a constant rate. Strings are borrowed as long as the trainer lives. */
typedef struct lk_train_config {
    const char *recipe; /* NULL: none; lk_train_defaults has applied its settings, except for schedule and lr_steps */
    const char *model;  /* a reference model or a model file: see lk_model_new */
    const char *freeze; /* parameters that are not trained: see lk_model_freeze; NULL: all are trained */
    int64_t epochs;     /* passes over the training set; 0: the recipe's */
    int64_t batch_size; /* samples in a step, over all devices; 0: the recipe's */
    int64_t val_batch_size; /* samples in a step of the evaluation; 0: batch_size */
    int64_t accumulate;     /* batches whose gradients make one update, at least 1 */
    int64_t seed;           /* of initial weights, order, augmentation and dropout */

    lk_data_config data;
    lk_device_config devices;
    lk_optimizer_config optimizer;
    lk_execution_config execution;
    lk_batch_norm_config batch_norm;
    lk_stop_config stop;
    lk_check_config checks;
    lk_checkpoint_config checkpoints;
    lk_record_config records;
    lk_server_config servers;
} lk_train_config;

/* Sets *config to the defaults of lk_train_options and their environment variables, then to the settings of `recipe`
 * (NULL: none). Its schedule and lr_steps stay NULL, which stands for the recipe's, so that one of them can be set
 * without the other. Errors: LK_ERR_ARGUMENT (unknown recipe; the message names the nearest one). */
LK_API lk_status lk_train_defaults(const char *recipe, lk_train_config *config);

/* ---- recipes and options ---- */

/* A recipe is a named list of settings: those of one of the trainings that this project reproduces. */
typedef struct lk_recipe {
    const char *name, *about;
    const char *const *settings; /* "batch-size=32", …, then NULL: names and values of lk_train_options */
} lk_recipe;

/* NULL past the end. Static. */
LK_API const lk_recipe *lk_recipe_at(int index);

/* The options of `lockstep train`, with offsets into lk_train_config: for lk_options_parse and lk_options_set. */
LK_API extern const lk_option lk_train_options[];
enum { LK_TRAIN_OPTION_COUNT = 93 };

/* The options with which lk_dataset_open opens the data of a configuration, without its limits. Borrows the strings. */
LK_API lk_dataset_opts lk_train_dataset_opts(const lk_train_config *config);

#ifdef __cplusplus
}
#endif

#endif
