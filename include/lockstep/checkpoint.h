/* Checkpoints: what training was at, in a folder from which it goes on, and from which others take the network.
 *
 * A checkpoint folder D holds a folder for each checkpoint, checkpoint-00000120 after 120 steps, and best.json, which
 * names the best one. In a checkpoint are model.safetensors (parameters and buffers), optimizer.safetensors,
 * state.json, implementations (a tuning), model.lk where the model came from a file, and manifest.json with the size
 * and XXH3-64 of each: docs/checkpoints.md. It gets its name once all of it is on disk. */
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
    const char *name, *value; /* of lk_train_options, as lk_options_text writes it, or a loop's own; "": not set */
} lk_checkpoint_setting;

/* NULL and 0: not known, as of a loop of one's own that did not say. */
typedef struct lk_checkpoint_info {
    const char *folder; /* of the checkpoint itself */
    const char *model;  /* a reference model's name, a model file's path as it was given, or what lk_model_build got */
    const char *model_file; /* the model file as it was then: its copy in the checkpoint; NULL: there is none */
    const char *data;       /* the data set's name */
    int64_t channels, height, width, classes;
    const char *const *class_names; /* [classes]; NULL: they have none */
    /* What happens to bytes / 255: minus mean[c], then divided by deviation[c] + 1e-6. [channels]; NULL: neither. */
    bool center, standardize;
    const double *mean, *deviation;
    lk_dtype dtype; /* of the forward pass: LK_F32 or LK_BF16 */
    uint64_t seed;
    int64_t epoch; /* epochs that are over, each with its evaluation */
    int64_t batch; /* of the epoch that was under way: how many batches are over; 0: none was */
    int64_t steps, updates, samples_seen;
    bool finished;      /* training had ended by itself */
    const char *metric; /* by which the best is chosen: "val_accuracy", …; NULL: not yet */
    double best;        /* its value, the best so far */
    int64_t best_epoch;
    const lk_checkpoint_setting *settings; /* [n_settings] */
    int n_settings;
} lk_checkpoint_info;

/* Opens the last checkpoint of a folder, or the best one, or, as the last, the one that `folder` itself is, reads it
 * whole and checks it against its manifest. A damaged last one is said in a warning (lockstep/log.h), and the one
 * before it is taken; where a training that goes on removes one that is being read, a later one is taken. Errors:
 * LK_ERR_NOT_FOUND (there is none, or no such folder), LK_ERR_FORMAT (damaged, all of them; the message is of the
 * newest), LK_ERR_ARGUMENT (the best of a checkpoint itself), LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_checkpoint_open(const char *folder, lk_checkpoint_which which, lk_checkpoint **checkpoint);

/* The same for who only computes with the network, in less time: of the optimiser's state, which may be twice as large,
 * only the file's size is checked. */
LK_API lk_status lk_checkpoint_open_model(const char *folder, lk_checkpoint_which which, lk_checkpoint **checkpoint);

LK_API void lk_checkpoint_release(lk_checkpoint *checkpoint); /* NULL is fine */

/* Valid as long as the checkpoint. */
LK_API const lk_checkpoint_info *lk_checkpoint_get_info(const lk_checkpoint *checkpoint);

/* The value of a setting by its option's name; NULL: there is none. */
LK_API const char *lk_checkpoint_get_setting(const lk_checkpoint *checkpoint, const char *name);

/* A new model, built for the same images: its variables are the checkpoint's, in the same order. Errors:
 * LK_ERR_UNSUPPORTED (a model that its program has built itself, which only that can), LK_ERR_FORMAT (its variables are
 * others). */
LK_API lk_model *lk_checkpoint_model(const lk_checkpoint *checkpoint);

/* Parameters, then buffers. */
LK_API int lk_checkpoint_variable_count(const lk_checkpoint *checkpoint);

/* Elements in row-major order, borrowed; name and shape may be NULL. NULL past the end. */
LK_API const float *lk_checkpoint_variable(const lk_checkpoint *checkpoint, int index, const char **name,
                                           lk_shape *shape);

/* variables[i]: a new tensor on the device for each variable; on failure every entry is NULL. Asynchronous. */
LK_API lk_status lk_checkpoint_load(const lk_checkpoint *checkpoint, lk_device *device, lk_tensor **variables);

/* --- while fit trains --------------------------------------------------------------------------------------------- */

/* Zeroes: after every epoch, the newest three, the best by validation accuracy. */
typedef struct lk_checkpoint_opts {
    int64_t every_steps;  /* 0: not by steps */
    double every_minutes; /* 0: not by time; neither: after every epoch */
    int64_t keep;         /* the newest so many, besides the best; 0: 3 */
    lk_best_metric best;
} lk_checkpoint_opts;

/* "500" (steps), "5m" (minutes) or "epoch" into every_steps and every_minutes. Errors: LK_ERR_ARGUMENT. */
LK_API lk_status lk_checkpoint_parse_every(const char *text, lk_checkpoint_opts *opts);

/* Writes checkpoints into `folder`, which is made: as often as opts say (NULL: zeroes), where an epoch is the best so
 * far, at the end, and where training is interrupted. Training waits only while variables and the optimiser's state are
 * copied to host memory, where there is room for two checkpoints; a thread writes them. Between two updates, so with
 * accumulation one may come some batches late. A checkpoint holds what other callbacks save too; add it in one process
 * of several, the first. Where one cannot be written the others stay as they are, and a warning says so
 * (lockstep/log.h); where it was the last one of a training without another error, fit gives that one at the end. When
 * training begins: LK_ERR_IO, LK_ERR_ARGUMENT (best by a validation metric, and there is no evaluation; checkpoints of
 * another training in the folder, or it is one itself), LK_ERR_STATE (another one writes there). A callback without a
 * name: LK_ERR_MEMORY. */
LK_API lk_callback lk_callback_checkpoint(const char *folder, const lk_checkpoint_opts *opts);

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Writes a checkpoint of replicas into `folder`, which is made. Of info count the position (epoch, batch, steps,
 * samples_seen), seed, data, class_names, normalisation, dtype and settings, of any names that differ; with `metric`,
 * `best` and `best_epoch` as they are so far, and where best_epoch is `epoch` and no batch follows this one becomes the
 * folder's best. The rest comes from the replicas. A checkpoint after as many steps is replaced. Waits for the devices
 * and the disk. Where several processes train together, one of them writes. Errors: LK_ERR_IO, LK_ERR_MEMORY,
 * LK_ERR_STATE (another one writes there: a training, or a writer, this program's too), LK_ERR_ARGUMENT (a position
 * below 0; a metric's name of more than 63 bytes; two settings with one name; `folder` is a checkpoint itself). */
LK_API lk_status lk_replicas_save(lk_replicas *replicas, const char *folder, const lk_checkpoint_info *info);

/* Writes the same in a thread of its own, and removes what is neither among the newest `keep` (0: 3) nor the best. For
 * one folder and one program at a time; the replicas have to live as long. resumed: the checkpoint that training goes
 * on from, so that later ones, which were damaged or are not wanted, are put aside as damaged-checkpoint-N; NULL: it
 * begins. NULL on failure: LK_ERR_ARGUMENT (it begins, and the folder has checkpoints; `folder` is one itself),
 * LK_ERR_STATE (another one writes there), LK_ERR_IO, LK_ERR_MEMORY. */
typedef struct lk_checkpoint_writer lk_checkpoint_writer;
LK_API lk_checkpoint_writer *lk_checkpoint_writer_new(lk_replicas *replicas, const char *folder,
                                                      const lk_checkpoint *resumed, int64_t keep);

/* Waits for the devices and until there is a copy in host memory, where there is room for two. One that could not be
 * written leaves those before it as they are, and a warning says so. Errors: LK_ERR_MEMORY, LK_ERR_ARGUMENT
 * (as of lk_replicas_save), those of the devices. */
LK_API lk_status lk_checkpoint_writer_save(lk_checkpoint_writer *writer, const lk_checkpoint_info *info);

/* Waits until all of it is on disk. Errors: that of the last one; a warning says what failed before. */
LK_API lk_status lk_checkpoint_writer_wait(lk_checkpoint_writer *writer);

/* Waits likewise; a warning says what failed and was not given back. NULL is fine. */
LK_API void lk_checkpoint_writer_release(lk_checkpoint_writer *writer);

/* The same of a trainer, of where it stands; in the hooks train_begin and rest with what callbacks remember, elsewhere
 * without. Errors also: LK_ERR_STATE (while steps are under way; an interrupt left some with workers that are gone). */
LK_API lk_status lk_trainer_save(lk_trainer *trainer, const char *folder);

/* Gives every replica the parameters and buffers of a safetensors file: F32, F64, F16 or BF16, under their names here
 * or, of the reference models, under PyTorch's, as docs/checkpoints.md lists them; "module.", "_orig_mod." and
 * "model." before a name do not count. Errors: LK_ERR_IO, LK_ERR_FORMAT (a tensor that is missing, of another shape, or
 * one too many). */
LK_API lk_status lk_replicas_load_weights(lk_replicas *replicas, const char *path);

/* Gives every replica, and the optimiser, what the checkpoint has. Where it was made on another kind of machine, or
 * with other versions of libraries, a warning says that what follows has other bits. Errors: LK_ERR_FORMAT (variables
 * of other names or shapes; an optimiser of another kind), LK_ERR_STATE (from lk_checkpoint_open_model, where there is
 * an optimiser). */
LK_API lk_status lk_replicas_restore(lk_replicas *replicas, const lk_checkpoint *checkpoint);

#ifdef __cplusplus
}
#endif

#endif
