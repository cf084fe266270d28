/* Checkpoints inside the library. checkpoint_folder.c knows a folder of them, checkpoint_write.c makes one,
 * checkpoint_read.c opens it and reads what is in it, checkpoint_files.c brings its files to memory and checks them,
 * checkpoint_state.c makes and reads state.json, replicas_state.c brings variables and the optimiser's state to host
 * memory and back. */
#ifndef LK_TRAIN_CHECKPOINT_H
#define LK_TRAIN_CHECKPOINT_H

#include "io/bytes.h"
#include "io/safetensors.h"
#include "lockstep/checkpoint.h"
#include "optim/optimizer.h"

#include <jansson.h>
#include <limits.h>

enum { LK_CHECKPOINT_VERSION = 2, LK_CHECKPOINT_NAME = 48 };

#define LK_MANIFEST_FORMAT "lockstep manifest"
#define LK_UNFINISHED ".unfinished-" /* what the name of a folder begins with until it is whole */

/* Copies in host memory, so that training can go on while they are written. The model has to live as long. */
typedef struct lk__checkpoint_contents {
    const lk_model *model;
    float *variables; /* one after the other, in the model's order */
    int n_slots;      /* of the optimiser's state */
    const char *slot_names[LK_OPTIMIZER_SLOTS];
    float *slots[LK_OPTIMIZER_SLOTS]; /* parameters one after the other */
    lk__bytes state;                  /* state.json */
    lk__bytes implementations;        /* empty: there is no such file */
    int64_t steps;                    /* by which the checkpoint is named */
} lk__checkpoint_contents;

/* Room for the replicas' variables and state. Errors: LK_ERR_MEMORY; lk__checkpoint_contents_free frees what there is.
 */
lk_status lk__checkpoint_contents_init(lk__checkpoint_contents *contents, lk_replicas *replicas);
void lk__checkpoint_contents_free(lk__checkpoint_contents *contents);

/* Fills in variables and slots. Waits for the devices. */
lk_status lk__checkpoint_contents_copy(lk__checkpoint_contents *contents, lk_replicas *replicas);

/* lk_replicas_restore. same_settings false: an optimiser of another kind begins anew, and so does what only this one
 * remembers. */
lk_status lk__replicas_restore(lk_replicas *replicas, const lk_checkpoint *checkpoint, bool same_settings);

/* What the owner's optimiser keeps under `slot` for each parameter, parts[parameters]: new references. */
lk_status lk__replicas_slot(lk_replicas *replicas, int owner, int slot, lk_tensor **parts);

/* values[i]: of variable i. On every replica, or what is stored. */
lk_status lk__replicas_write(lk_replicas *replicas, const float *const *values);

/* --- checkpoint_state.c ------------------------------------------------------------------------------------------- */

/* What info, model and replicas say, as the beginning of an object that lk__state_end closes. */
void lk__state_begin(lk__bytes *out, const lk_checkpoint_info *info, const lk_model *model, lk_replicas *replicas);
/* Errors: LK_ERR_MEMORY; LK_ERR_ARGUMENT: not to be read again, for a name is said twice. */
lk_status lk__state_end(lk__bytes *out);

/* Reads it, into memory of the checkpoint's. path: for messages. Errors: LK_ERR_FORMAT, LK_ERR_MEMORY. */
lk_status lk__state_read(const char *path, lk_checkpoint *checkpoint);

/* --- checkpoint_folder.c ------------------------------------------------------------------------------------------ */

/* "checkpoint-00000120" */
void lk__checkpoint_name(int64_t steps, char name[LK_CHECKPOINT_NAME]);

/* Steps of the checkpoints in a folder, ascending; to be freed. A folder that is not there has none. */
lk_status lk__checkpoint_list(const char *folder, int64_t **steps, int *n);

/* Gives those their names again that a killed process was about to replace: lk__durable_take_back. */
void lk__checkpoint_take_back(const char *folder);

/* What best.json says. */
typedef struct lk__best {
    char name[LK_CHECKPOINT_NAME], metric[64]; /* name "": there is none */
    double value;
    int64_t epoch; /* that gave the value, from 1 */
} lk__best;

/* name "" where there is no best.json. Errors: LK_ERR_FORMAT, LK_ERR_IO. */
lk_status lk__checkpoint_read_best(const char *folder, lk__best *best);
lk_status lk__checkpoint_write_best(const char *folder, const lk__best *best);

/* Removes all but the newest so many, and the one of the name `best`; the error is of the first that stays. */
lk_status lk__checkpoint_prune(const char *folder, int64_t keep, const char *best);

/* Whether checkpoints can be written there, or there once it is made. Errors: LK_ERR_ARGUMENT: it is one itself. */
lk_status lk__checkpoint_check_place(const char *folder);

/* Makes the folder, keeps others from writing there until it is unlocked, and removes what killed processes left half
 * written. *lock: -1 where the file system knows no locks. Errors, with nothing locked: LK_ERR_ARGUMENT (it is a
 * checkpoint itself), LK_ERR_STATE (another one writes there), LK_ERR_IO. */
lk_status lk__checkpoint_lock(const char *folder, int *lock);
void lk__checkpoint_unlock(int *lock); /* nothing where it is -1, which it becomes */

/* --- checkpoint_write.c ------------------------------------------------------------------------------------------- */

/* Writes folder/checkpoint-N; `folder` is there, and locked. Errors: LK_ERR_IO, LK_ERR_MEMORY; nothing is then changed.
 */
lk_status lk__checkpoint_write(const char *folder, const lk__checkpoint_contents *contents);

/* Locks the folder for as long as it takes, writes, and says that it is the best where `best` has a name; NULL: it is
 * not. Errors: those of lk__checkpoint_lock too. */
lk_status lk__checkpoint_write_alone(const char *folder, const lk__checkpoint_contents *contents, const lk__best *best);

/* --- checkpoint_read.c -------------------------------------------------------------------------------------------- */

struct lk_checkpoint {
    lk_checkpoint_info info;
    char *folder;
    json_t *state;
    char *model_file, *implementations; /* paths; NULL: there is none */
    char *model_text;                   /* what the model file says */
    bool is_model_only;                 /* without what only training needs */
    lk__safetensors *model, *optimizer; /* optimizer NULL: there is none */
    const char *optimizer_kind;         /* NULL: likewise */
    int64_t optimizer_steps;
    int n;
    const lk__safetensor **tensors; /* [n]: in the model's order */
    const float **values;           /* [n]: within `model` */
    const char **class_names;
    double *moments; /* mean, then deviation */
    lk_checkpoint_setting *settings;
};

/* A member of state.json; NULL: there is none. */
const json_t *lk__checkpoint_member(const lk_checkpoint *checkpoint, const char *name);

/* Lets go of all tensors; what state.json says stays. */
void lk__checkpoint_drop_tensors(lk_checkpoint *checkpoint);

/* As lk_checkpoint_load, without a copy where a device computes in the host's memory: the tensors hold on to the
 * checkpoint's own elements, which nobody may write. */
lk_status lk__checkpoint_lend(const lk_checkpoint *checkpoint, lk_device *device, lk_tensor **variables);

/* Whether its variables are the model's. Errors: LK_ERR_FORMAT, with the first that is not. */
lk_status lk__checkpoint_check_model(const lk_checkpoint *checkpoint, const lk_model *model);

/* Reads a file of at most so many bytes, in which no name comes twice; *json: to be let go of with json_decref. Errors:
 * LK_ERR_FORMAT, LK_ERR_IO. */
lk_status lk__load_json(const char *path, int64_t most, json_t **json);

/* --- checkpoint_files.c ------------------------------------------------------------------------------------------- */

/* Of a file in a folder. Errors: LK_ERR_ARGUMENT: too long. */
lk_status lk__checkpoint_path(const char *folder, const char *name, char path[PATH_MAX]);

/* Compares all files of checkpoint->folder with its manifest, and keeps the tensors; where it is of the model only, of
 * the optimiser's file the size alone is compared. Errors: LK_ERR_FORMAT and LK_ERR_IO, with the first that is not what
 * it should be; LK_ERR_MEMORY. */
lk_status lk__checkpoint_read_files(lk_checkpoint *checkpoint);

/* --- checkpoint_trainer.c ----------------------------------------------------------------------------------------- */

/* How far behind the variables updates may be: "0" with every strategy but parameter-server, which has a number or
 * "unlimited". */
enum { LK_STALENESS_TEXT = 24 };
void lk__staleness_text(const lk_trainer *trainer, char text[LK_STALENESS_TEXT]);

/* Fills in all of `contents` for where the trainer stands, what callbacks remember included where it is at rest; of
 * `extra`, what says how training goes: finished, metric, best and best_epoch. Waits for the devices. */
lk_status lk__checkpoint_of_trainer(lk_trainer *trainer, const lk_checkpoint_info *extra,
                                    lk__checkpoint_contents *contents);

/* --- replicas.c --------------------------------------------------------------------------------------------------- */

/* What updates write: lk__replicas_owned(replicas, o), o in [0, lk__replicas_owners). */
int lk__replicas_owners(const lk_replicas *replicas);
lk_tensor *const *lk__replicas_owned(const lk_replicas *replicas, int owner);

/* Around what writes them. */
lk_status lk__replicas_begin_update(lk_replicas *replicas);
lk_status lk__replicas_end_update(lk_replicas *replicas);

#endif
