/* Checkpoints: the state of a training in a folder, from which training can resume and programs can load the network.
 *
 *     config.checkpoints.dir = "runs/a";                                     lk_trainer_fit writes them there
 *     config.checkpoints.resume = true;                                      lk_trainer_new goes on from the last one
 *     lk_checkpoint_open_model("runs/a", LK_CHECKPOINT_BEST, &checkpoint);   opens one, for lockstep/predict.h
 *
 * A checkpoint folder holds a folder for each checkpoint, such as checkpoint-00000120 after 120 steps, and best.json,
 * which names the best one. A checkpoint holds model.safetensors (parameters and buffers), optimizer.safetensors,
 * state.json, implementations (a tuning), model.lk (a model file, unless the network is a reference model or has layers
 * of a program's own), and manifest.json with the size and XXH3-64 of each file; see docs/checkpoints.md. A checkpoint
 * gets its name once it is on disk as a whole, so it is never incomplete. */
#ifndef LOCKSTEP_CHECKPOINT_H
#define LOCKSTEP_CHECKPOINT_H

#include "lockstep/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- reading ------------------------------------------------------------------------------------------------------ */

typedef enum lk_checkpoint_which { LK_CHECKPOINT_LAST, LK_CHECKPOINT_BEST } lk_checkpoint_which;

typedef struct lk_checkpoint lk_checkpoint;

typedef struct lk_checkpoint_setting {
    const char *name;  /* an option of lk_train_options, or any other */
    const char *value; /* as by lk_options_text; "": not set */
} lk_checkpoint_setting;

/* The description of a checkpoint. NULL and 0: not known, because the loop that wrote it did not say. */
typedef struct lk_checkpoint_info {
    const char *folder; /* of the checkpoint itself */
    const char *model;  /* name of a reference model, path of a model file as it was given, or lk_model_build's name */
    const char *model_file; /* path of the model file in the checkpoint; NULL: there is none */
    const char *data;       /* name of the data set */
    int64_t channels, height, width, classes;
    const char *const *class_names; /* [classes]; NULL: classes have no names */
    /* Normalization of bytes / 255: center subtracts mean[c]; standardize then divides by deviation[c] + 1e-6. mean,
     * deviation: [channels]; NULL: neither is done. */
    bool center, standardize;
    const double *mean, *deviation;
    lk_dtype dtype; /* of the forward pass: LK_F32 or LK_BF16 */
    uint64_t seed;
    int64_t epoch; /* complete epochs, with their evaluations */
    int64_t batch; /* complete batches of an incomplete epoch; 0: there is none */
    int64_t steps, updates, samples_seen;
    bool finished;      /* training was complete */
    const char *metric; /* that chooses the best checkpoint: "val_accuracy", …; NULL: there is no best yet */
    double best;        /* the best value of the metric so far */
    int64_t best_epoch; /* its epoch */
    const lk_checkpoint_setting *settings; /* [n_settings] */
    int n_settings;
} lk_checkpoint_info;

/* Opens the last or the best checkpoint in a folder, or, as the last, the checkpoint that `folder` itself is. Reads it
 * whole and checks it against its manifest. If the last one is damaged, a warning says so and the one before it is
 * opened; if a running training removes the one that is being read, a later one is opened. Errors: LK_ERR_NOT_FOUND (no
 * such folder, or no checkpoint in it), LK_ERR_FORMAT (all are damaged; the message is about the newest),
 * LK_ERR_ARGUMENT (the best one of a folder that is itself a checkpoint), LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_checkpoint_open(const char *folder, lk_checkpoint_which which, lk_checkpoint **checkpoint);

/* As lk_checkpoint_open, but faster, for programs that only use the network: does not read the optimizer's state, which
 * may be twice as large, and checks only the size of its file. */
LK_API lk_status lk_checkpoint_open_model(const char *folder, lk_checkpoint_which which, lk_checkpoint **checkpoint);

LK_API void lk_checkpoint_release(lk_checkpoint *checkpoint); /* NULL is fine */

/* Valid as long as the checkpoint. */
LK_API const lk_checkpoint_info *lk_checkpoint_get_info(const lk_checkpoint *checkpoint);

/* The value of a setting; NULL: there is none of that name. Valid as long as the checkpoint. */
LK_API const char *lk_checkpoint_get_setting(const lk_checkpoint *checkpoint, const char *name);

/* Builds the model again, for the same images; its variables are those of the checkpoint, in the same order. Release it
 * with lk_model_release. NULL on failure. Errors: LK_ERR_UNSUPPORTED (a network with layers of a program's own, or
 * larger than a model file may be, which only that program can build: lk_predictor_new_with), LK_ERR_FORMAT (its
 * variables differ from the checkpoint's). */
LK_API lk_model *lk_checkpoint_model(const lk_checkpoint *checkpoint);

/* The number of variables: parameters, then buffers. */
LK_API int lk_checkpoint_variable_count(const lk_checkpoint *checkpoint);

/* The elements of a variable in row-major order, borrowed; NULL past the end. Sets *name and *shape unless these are
 * NULL. */
LK_API const float *lk_checkpoint_variable(const lk_checkpoint *checkpoint, int index, const char **name,
                                           lk_shape *shape);

/* Sets variables[i] to a new tensor on the device for each variable. On failure every entry is NULL. Asynchronous. */
LK_API lk_status lk_checkpoint_load(const lk_checkpoint *checkpoint, lk_device *device, lk_tensor **variables);

/* --- while fit trains --------------------------------------------------------------------------------------------- */

/* Zeroes are the defaults: a checkpoint after every epoch, of which the newest three and the best are kept. */
typedef struct lk_checkpoint_opts {
    int64_t every_steps;  /* steps between checkpoints; 0: see every_minutes */
    double every_minutes; /* minutes between checkpoints; if both are 0, there is one after every epoch */
    int64_t keep;         /* number of the newest checkpoints to keep, in addition to the best; 0: 3 */
    lk_best_metric best;  /* metric that chooses the best */
} lk_checkpoint_opts;

/* Reads "500" (steps), "5m" (minutes) or "epoch" into every_steps and every_minutes. text NULL: "epoch". Errors:
 * LK_ERR_ARGUMENT. */
LK_API lk_status lk_checkpoint_parse_every(const char *text, lk_checkpoint_opts *opts);

/* Writes checkpoints to `folder`, which is made if it is missing: as often as opts say (NULL: zeroes), when training
 * begins and ends, when it is interrupted, and after an epoch that is the best so far. They are taken between two
 * updates, so with accumulation one may come some batches late, and they hold what other callbacks save. Training waits
 * only while variables and the optimizer's state are copied to host memory, which holds two checkpoints; a thread
 * writes them. Every one of several processes adds this callback with the same options, so that all wait at the same
 * steps; the first one writes.
 *
 * If a checkpoint cannot be written, a warning says so and earlier ones stay as they are; if it was the last one of a
 * training without another error, fit gives its error at the end. Errors when training begins: LK_ERR_IO,
 * LK_ERR_ARGUMENT (a validation metric without an evaluation; a folder with checkpoints of another training, or that is
 * itself one), LK_ERR_STATE (another program writes there). Errors of the constructor: LK_ERR_ARGUMENT (options out of
 * range), LK_ERR_MEMORY. */
LK_API lk_callback lk_callback_checkpoint(const char *folder, const lk_checkpoint_opts *opts);

/* --- elastic training --------------------------------------------------------------------------------------------- */

/* A process of several (multi-worker) started with this variable belongs to an elastic training, whose processes may be
 * started again in other numbers. It names a folder of the job on every machine, usually in /dev/shm. lk_trainer_new
 * goes on from the newest checkpoint there, unless that of lk_train_config.checkpoints is newer; a process whose
 * machine lacks it gets a copy from another. */
#define LK_MEMORY_VARIABLE "LOCKSTEP_MEMORY"

/* Set if the processes have changed since training began, or since the last change that was recorded: "4 TEXT", the
 * number of processes before, and why they changed. Records tell it. */
#define LK_WORLD_VARIABLE "LOCKSTEP_WORLD"

/* Keeps a checkpoint in that folder when training begins, after every update, and after every epoch's evaluation, so
 * that what one process has finished is not lost with another. Every process adds it, after all other callbacks: each
 * saves the state of the first one's callbacks. A thread writes while training goes on. An update is finished once a
 * process has written it. Errors when training begins: LK_ERR_IO, LK_ERR_STATE. Errors of the constructor:
 * LK_ERR_MEMORY. */
LK_API lk_callback lk_callback_memory_checkpoints(const char *folder);

/* --- writing from a loop of your own ------------------------------------------------------------------------------ */

/* Writes a checkpoint of the replicas to `folder`, which is made if it is missing. Members of *info that are used:
 * position (epoch, batch, steps, samples_seen), seed, data, class_names, normalization, dtype, settings (of any
 * different names), and, if `metric` is set, best and best_epoch so far; if best_epoch is `epoch` and batch is 0, this
 * checkpoint becomes the best of the folder. Everything else comes from the replicas. An earlier checkpoint after as
 * many steps is replaced. Waits for the devices and the disk. Of several processes one calls it; if they divide the
 * optimizer's state among themselves (lk_strategy_set_sharded), all call it and the first one writes. Errors:
 * LK_ERR_IO, LK_ERR_MEMORY, LK_ERR_STATE (a training or a writer, of this program or another, writes there),
 * LK_ERR_ARGUMENT (a position below 0 or above 2^53; a normalization without finite moments; a metric's name of more
 * than 63 bytes; two settings with one name; a folder that is itself a checkpoint). */
LK_API lk_status lk_replicas_save(lk_replicas *replicas, const char *folder, const lk_checkpoint_info *info);

/* Writes checkpoints in a thread of its own, and keeps only the newest `keep` (0: 3) and the best. One writer at a time
 * uses a folder; the replicas must outlive it. In several processes as lk_replicas_save. resumed: the checkpoint that
 * training resumes from; later ones, which are damaged or not wanted, are renamed to damaged-checkpoint-N; NULL:
 * training begins. NULL on failure. Errors: LK_ERR_ARGUMENT (training begins, but the folder has checkpoints; a folder
 * that is itself a checkpoint), LK_ERR_STATE (another writer uses the folder), LK_ERR_IO, LK_ERR_MEMORY. */
typedef struct lk_checkpoint_writer lk_checkpoint_writer;
LK_API lk_checkpoint_writer *lk_checkpoint_writer_new(lk_replicas *replicas, const char *folder,
                                                      const lk_checkpoint *resumed, int64_t keep);

/* Takes a checkpoint as lk_replicas_save does: waits for the devices and for a copy in host memory, which holds two
 * checkpoints, but not for the disk. If a checkpoint cannot be written, a warning says so and earlier ones stay as they
 * are. Errors: LK_ERR_MEMORY, LK_ERR_ARGUMENT (as for lk_replicas_save), those of the devices. */
LK_API lk_status lk_checkpoint_writer_save(lk_checkpoint_writer *writer, const lk_checkpoint_info *info);

/* Waits until all checkpoints are on disk. Errors: that of the last checkpoint; warnings tell of earlier ones. */
LK_API lk_status lk_checkpoint_writer_wait(lk_checkpoint_writer *writer);

/* Waits likewise, then ends the writer; a warning tells of an error that lk_checkpoint_writer_wait did not give. NULL
 * is fine. */
LK_API void lk_checkpoint_writer_release(lk_checkpoint_writer *writer);

/* Writes a checkpoint of a trainer, as lk_replicas_save does. What callbacks save is included only if it is called in a
 * train_begin or rest hook. Errors also: LK_ERR_STATE (steps are in flight, or were when an error ended training, or an
 * interrupt has left some with workers that are gone). */
LK_API lk_status lk_trainer_save(lk_trainer *trainer, const char *folder);

/* Sets parameters and buffers of every replica from a safetensors file of F32, F64, F16 or BF16. Names are those of
 * this library or, for reference models, PyTorch's, which docs/checkpoints.md lists; the prefixes "module.",
 * "_orig_mod." and "model." are ignored. PyTorch's weights of dense layers are transposed: those of a file with
 * num_batches_tracked, with PyTorch's names for a reference model, or with a weight of the transposed shape.
 * skip: patterns as for lk_model_freeze; variables, and tensors of the file, whose names fit are left out, and messages
 * (lockstep/log.h) list what is taken, skipped and not found; NULL: none. Errors: LK_ERR_IO, LK_ERR_FORMAT (a tensor is
 * missing, superfluous, of another shape, or has values that are not finite as f32), LK_ERR_ARGUMENT (a pattern that
 * fits nothing, or everything is skipped). */
LK_API lk_status lk_replicas_load_weights(lk_replicas *replicas, const char *path, const char *skip);

/* Sets variables of every replica, and the optimizer's state, from a checkpoint. If it was made on another kind of
 * machine or with other versions of libraries, a warning says that bits will differ. Errors: LK_ERR_FORMAT (variables
 * of other names or shapes; an optimizer of another kind), LK_ERR_STATE (the replicas have an optimizer, but the
 * checkpoint is from lk_checkpoint_open_model). */
LK_API lk_status lk_replicas_restore(lk_replicas *replicas, const lk_checkpoint *checkpoint);

#ifdef __cplusplus
}
#endif

#endif
