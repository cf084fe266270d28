/* The trainer's parts. plan.c fills in the configuration's blanks, trainer.c builds the trainer, choices.c lists what
 * will run it. fit.c runs epochs, pass.c the batches of one, hooks.c the callbacks' part in them; step.c runs one
 * batch: shard after shard (shard_run.c), or with --bn sync all together (sync_step.c); micro_batch.c takes a shard in
 * pieces, shard_programs.c records the passes, step_program.c those of a GPU as one, device_data.c has data sets on
 * devices, precise_bn.c measures batch-norm's statistics. replicas.c holds and updates the variables, audit.c compares
 * them. replay.c looks for the cause of a number that is not finite; it and sync_step.c run several shards in one pass
 * (shard_pass.c). checkpoint*.c write and read where training stands, resume.c puts a trainer there: see checkpoint.h.
 * ps_*.c are the processes of strategy parameter-server: see ps_protocol.h.
 */
#ifndef LK_TRAIN_TRAINER_H
#define LK_TRAIN_TRAINER_H

#include "train/hooks.h"

#include "lockstep/parameter_server.h"
#include "lockstep/program.h"
#include "lockstep/scaling.h"

#include <stdatomic.h>

/* Steps that may be under way before the caller waits for the oldest one's metrics. */
enum { LK_RUN_AHEAD = 2 };

/* Where an update's samples are: batches [first, first + batches) of an epoch. */
typedef struct lk__update {
    int64_t epoch;  /* from 0 */
    int64_t number; /* since the beginning of training, from 0: what dropout is keyed by */
    int64_t first, batches;
    int64_t samples;
    double rate;
} lk__update;

typedef struct lk__pending_step {
    lk_tensor *loss, *hits, *top_k; /* scalars, one reference each; top_k may be NULL */
    lk_tensor *votes;               /* of several processes, how many shards are to end here; else NULL */
    lk_tensor *skipped;             /* 1 where the update was skipped; NULL: no update in this step, or no guard */
    int64_t count;                  /* samples */
    int64_t batch;                  /* within the epoch, from 0 */
    lk__update update;              /* that it is part of */
} lk__pending_step;

typedef struct lk__step_metrics {
    lk_metrics metrics;
    bool skipped, interrupted;
} lk__step_metrics;

/* Where training stands: behind the last update that is through, which is where it can go on from. */
typedef struct lk__position {
    int64_t epoch,
        batch; /* from 0: the batch that comes next; at an epoch's end, before its evaluation, behind the last */
    int64_t steps, updates, samples_seen; /* since the beginning of training */
    int64_t samples;                      /* of the epoch */
    lk_metrics so_far;                    /* of the epoch, as in lk_step_report; so are: */
    int64_t skipped;
    double rate, seconds;
} lk__position;

typedef struct lk__device_data lk__device_data;

struct lk_trainer {
    lk_train_config config;
    lk_plan plan;
    lk_device *devices[LK_MAX_DEVICES];
    int n_devices;
    lk_tuning *implementations; /* see lk_trainer_implementations */
    lk_strategy *strategy;
    lk_model *model;
    lk_dataset *train_set, *val_set;        /* val_set NULL: no evaluation */
    lk_channel_moments moments;             /* empty: images are not normalised */
    lk__device_data *train_data, *val_data; /* NULL: loaders prepare images */
    lk_loader *train_loader, *val_loader;
    lk_ledger *train_ledger, *val_ledger;
    int n_parameters, n_variables;
    lk_replicas *replicas;
    /* A step's values: gradients, batch-norm statistics, loss, hits and, where asked for, top-k hits. The first
     * n_updated of them are what an update is made of; the loss, which comes next, can forbid it. */
    int n_values, n_updated;
    lk_shard_sum *train_sum;      /* of n_values */
    lk_shard_sum *val_sum;        /* of the metrics alone */
    lk_shard_sum *sync_sum;       /* of what --bn sync adds up in the middle of a pass; NULL without it */
    lk_shard_sum *statistics_sum; /* of batch-norm's alone; NULL: they are as training leaves them */
    lk_loader *statistics_loader;
    lk_tensor **sums;                 /* what train_sum gives: [replica * n_values + i] */
    lk_tensor **accumulated;          /* the same of the update's earlier batches; NULL without accumulation */
    lk_tensor *seeds[LK_MAX_DEVICES]; /* 1 / seed_count on each device: what backward starts with */
    int64_t seed_count;
    struct lk__shard_programs *programs;     /* NULL: passes are pushed operator by operator */
    struct lk__step_programs *step_programs; /* NULL: passes have programs of their own, or none */
    lk_tensor **watched;                     /* batch-norm sync: [shard * n_variables + i], see sync_step.c */
    lk__pending_step pending[LK_RUN_AHEAD];
    int n_pending;
    lk__update update;       /* that is being made */
    int64_t steps, updates;  /* pushed since the beginning of training */
    int64_t audits, audited; /* audits that found no difference; steps there were at the last one */
    int64_t epoch;           /* from 0, of the batch that comes next */
    lk__position position;
    uint64_t data_hashes[2];       /* XXH3-64 of each split; 0: nobody has asked */
    struct lk_checkpoint *resumed; /* that training goes on from; NULL: none */
    bool stops_otherwise;          /* than that did: what stopped it does not any more */
    struct lk__fit *fit;           /* that is at work; NULL: none */
    bool epoch_open;
    bool in_pass; /* fit or an evaluation has steps under way */
    bool at_rest; /* in hooks where all callbacks stand where the position is */
    lk__callbacks callbacks;
    lk_scaling_report *scaling; /* see lk_trainer_scaling */
    atomic_bool interrupted;
    /* Several processes end at the same step: each gives its vote with every step, as a sum over shards, and acts when
     * the sum is there. One: NULL. */
    lk_shard_sum *vote_sum;
    bool voted_to_end;
    struct ps_chief *chief; /* of strategy parameter-server: what hands out; NULL: none, or not the chief */
    lk_train_role role;     /* LK_TRAIN_CHIEF with every other strategy */
    uint64_t nonce;         /* a worker's: by which the chief knows it */
    bool applies_elsewhere; /* servers have the optimiser, and a chief a copy of what it remembers; what is handed out
                               need not be all shards of a device */
};

/* --- resume.c ----------------------------------------------------------------------------------------------------- */

/* Looks into --checkpoint-dir: sets trainer->resumed, and what of the configuration goes with it, where there is
 * something to go on from and that was asked for. Errors: LK_ERR_ARGUMENT (options that do not go together; a folder in
 * which there is something, and nobody asked to go on from it), what lk_checkpoint_open reports but LK_ERR_NOT_FOUND.
 */
lk_status lk__resume_open(lk_trainer *trainer);

/* The file of the implementations that the checkpoint was made with, which stands for the tuning that both were asked
 * for; NULL: there is none. */
const char *lk__resume_implementations(const lk_trainer *trainer);

/* Everything is there: compares settings with the checkpoint's, and has the trainer stand where it says. Errors:
 * LK_ERR_ARGUMENT, with all the settings that are others. */
lk_status lk__resume_restore(lk_trainer *trainer);

/* --- plan.c ------------------------------------------------------------------------------------------------------- */

/* Checks the configuration, and fills in what does not depend on data, devices or the built model. `model`: its name.
 */
lk_status lk__plan_numbers(const lk_train_config *config, const char *model, lk_plan *plan);

/* Whether a batch can be cut into `shards`, `explicit_shards` of them asked for (0: the default), for `devices`. */
lk_status lk__check_shards(int64_t explicit_shards, int64_t shards, int64_t batch_size, int devices);

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* loss [], hits [] and, where the plan wants them, top-k hits []: sums over a shard's samples, one after the other in
 * metrics[]. */
enum { LK_MAX_METRICS = 3 };
int lk__metric_count(const lk_trainer *trainer);
lk_status lk__metrics_of(const lk_trainer *trainer, lk_tensor *logits, lk_tensor *labels, double smoothing,
                         lk_tensor **metrics);

/* The forward pass's settings for a training step that is part of `update`. */
lk_forward_opts lk__training_opts(const lk_trainer *trainer, const lk__update *update);

/* Pushes one training step over `batch`; its metrics are appended to trainer->pending. `rate` is of the update that the
 * batch is part of. */
lk_status lk__train_step(lk_trainer *trainer, lk_batch *batch, double rate);

/* Forward and backward of as many shards of `batch` as the sum has, from `first` on; the batch's update is
 * trainer->update. sums: as lk_shard_sum_finish gives them, of trainer->n_values. No update. */
lk_status lk__run_training_shards(lk_trainer *trainer, lk_shard_sum *sum, int64_t first, lk_batch *batch,
                                  lk_tensor **sums);

/* Pushes the forward pass of `batch`, and appends likewise. */
lk_status lk__evaluate_step(lk_trainer *trainer, lk_batch *batch);

/* sums[r * n_values + i] of all shards of the batch in one forward and one backward pass (--bn sync). */
lk_status lk__run_shards_together(lk_trainer *trainer, lk_batch *batch, lk_tensor **sums);

/* Makes what --bn sync needs. Errors: LK_ERR_ARGUMENT (a process without a sample in some batch). */
lk_status lk__plan_sync(lk_trainer *trainer);

/* The forward pass alone, into a sum of batch-norm's statistics. */
lk_status lk__run_statistics_together(lk_trainer *trainer, lk_batch *batch, lk_shard_sum *sum, lk_tensor **sums);

/* A shard's tensors over the batch's own memory; of a batch without images, indices alone. */
lk_status lk__shard_of_batch(const lk_dataset *dataset, lk_batch *batch, lk_range samples, lk_device *device,
                             lk_shard *shard);

/* Waits for the oldest pending step, and removes it. */
lk_status lk__take_pending(lk_trainer *trainer, lk__pending_step *step, lk__step_metrics *metrics);

/* Lets go of pending steps without looking at them. */
void lk__drop_pending(lk_trainer *trainer);

void lk__release_tensors(lk_tensor **tensors, int64_t n);

/* --- processes.c -------------------------------------------------------------------------------------------------- */

/* Where the strategy is for several processes: joins them, and sets the plan's numbers of them. *cores: how many are
 * this process's where all on its machine take as many. */
lk_status lk__join_processes(lk_trainer *trainer, int *cores);

/* Sets plan.devices, given this process's, and has these take cores, or GPUs, that no other process takes. */
typedef char lk__spec_text[2048];
lk_status lk__count_devices(lk_trainer *trainer, lk__spec_text spec);

/* agreement.c: of several processes, that all were started alike, and that what they have made of it is the same.
 * LK_ERR_ARGUMENT: which rank was not, and in what. */
lk_status lk__agree_on_options(const lk_trainer *trainer);
lk_status lk__agree_on_work(const lk_trainer *trainer);

/* XXH3-64 of all labels and images; NULL: 0. */
uint64_t lk__hash_data(const lk_dataset *data);

/* The same of a trainer's, which is computed once. */
uint64_t lk__hash_split(lk_trainer *trainer, lk_split split);

/* Whether training, or an evaluation, is to end at the step at hand: alike in all processes. */
bool lk__is_interrupted(const lk_trainer *trainer);
bool lk__end_interruption(lk_trainer *trainer); /* whether there was one */
lk_status lk__plan_votes(lk_trainer *trainer);
lk_status lk__push_vote(lk_trainer *trainer, lk_tensor **votes);

/* Adds up what all processes have in their ledgers. */
lk_status lk__merge_ledger(const lk_trainer *trainer, lk_ledger *ledger);

/* *value becomes the sum of those of all processes. */
lk_status lk__add_over_processes(const lk_trainer *trainer, double *value);

/* Gives back `status`. Where this process cannot go on because of it the others are told; an interrupt ends all of them
 * at the same step. */
lk_status lk__or_give_up(const lk_trainer *trainer, lk_status status);

/* Samples of this process's shards in a batch of so many. */
lk_range lk__own_samples(const lk_trainer *trainer, int64_t count);

/* --- ps_chief.c --------------------------------------------------------------------------------------------------- */

/* Sets trainer->role and applies_elsewhere. Errors: those of lk_train_role_of. */
lk_status lk__ps_find_role(lk_trainer *trainer);

/* Of strategy parameter-server: the chief begins to listen. Whatever the strategy cannot do is an error,
 * LK_ERR_ARGUMENT. */
lk_status lk__ps_open(lk_trainer *trainer);

/* ps_membership.c: asks the chief for a place of so many devices on this machine; *before: how many of other workers
 * are before them. Errors: those of lk_trainer_work. */
lk_status lk__ps_take_seat(lk_trainer *trainer, int devices, int *before);

/* Model and variables are there: the chief begins to answer. */
lk_status lk__ps_start(lk_trainer *trainer);
void lk__ps_release(struct ps_chief *chief); /* NULL is fine */

/* Hands out an epoch, of which the first `done` batches are over; rates[steps_per_epoch]. Errors: those of
 * lk__ps_coordinator_begin. */
lk_status lk__ps_begin_epoch(lk_trainer *trainer, int64_t done, const double *rates);

/* The next step that is through; *any false: none within a while. */
lk_status lk__ps_next_step(lk_trainer *trainer, lk__pending_step *step, lk__step_metrics *metrics, bool *any);
void lk__ps_stop_epoch(lk_trainer *trainer);
bool lk__ps_epoch_is_over(lk_trainer *trainer);

/* While it is paused no batch is begun; it is at rest once those that were are through: the first ones of the epoch. */
void lk__ps_pause(lk_trainer *trainer, bool paused);
bool lk__ps_is_at_rest(lk_trainer *trainer);

/* Brings the servers' variables and their optimisers' state here, and the report up to date. Waits for servers that are
 * not there, unless training is interrupted. */
lk_status lk__ps_pull(lk_trainer *trainer);

/* Whether what is here is what servers have after all the steps so far and no others: a place to go on from. */
bool lk__ps_has_all(const lk_trainer *trainer);

/* What has happened so far, for checkpoints, and taken up from one. */
void lk__ps_save_report(const lk_trainer *trainer, lk_state *state);
void lk__ps_resume_report(lk_trainer *trainer, const lk_state *state);

/* What workers and servers have told of their times, into a report that describes the run. Errors: LK_ERR_MEMORY. */
lk_status lk__ps_report(const lk_trainer *trainer, lk_scaling_report *report);

/* Tells everybody that training has ended, and how. */
void lk__ps_end(lk_trainer *trainer, lk_status status);

/* --- audit.c ------------------------------------------------------------------------------------------------------ */

/* XXH3-64 of an f32 tensor's elements in row-major order. Waits for them. */
lk_status lk__hash_tensor(lk_tensor *tensor, uint64_t *hash);

/* Says so where --audit-every has nothing to compare. Errors: LK_ERR_ARGUMENT (parameter-server). */
lk_status lk__plan_audit(const lk_trainer *trainer);

/* Behind a step, or, at_end, behind the last one: compares the replicas where that is due. Waits for the updates so
 * far. Errors: LK_ERR_STATE, with the tensor and the replicas that differ. */
lk_status lk__audit(lk_trainer *trainer, bool at_end);

/* --- choices.c ---------------------------------------------------------------------------------------------------- */

/* Gives the devices what --algorithms asks for. Errors: those of lk_tuning_read. */
lk_status lk__use_algorithms(lk_trainer *trainer);

/* memory_estimate.c: where devices have memory of their own, sets the plan's numbers of it. LK_ERR_MEMORY: training
 * cannot fit, and what would. */
lk_status lk__check_memory(lk_trainer *trainer);

/* A shard without elements, of so many samples on the first device, to record a pass with. */
lk_status lk__make_shard(const lk_trainer *trainer, int64_t samples, lk_shard *shard);

/* Sets trainer->implementations and their hash in the plan, once all else is there. */
lk_status lk__list_implementations(lk_trainer *trainer);

/* Adds to `choices` what runs the passes of training and evaluation with the tuning that devices[0] has now. */
lk_status lk__list_choices(lk_trainer *trainer, lk_tuning *choices);

/* --- precise_bn.c ------------------------------------------------------------------------------------------------- */

/* Makes what lk__measure_statistics needs, where the plan has it and the model batch-norm. */
lk_status lk__plan_precise_statistics(lk_trainer *trainer);

/* Sets the running statistics from the first batches of the epoch that has ended. */
lk_status lk__measure_statistics(lk_trainer *trainer);

/* --- device_data.c ------------------------------------------------------------------------------------------------ */

/* Sets train_data and val_data, and what the plan says of them, as config.data_on asks for. Errors: LK_ERR_MEMORY
 * (asked for `device`, and it does not fit). */
lk_status lk__place_data(lk_trainer *trainer);
void lk__device_data_release(lk__device_data *data);

/* The shards that come next are of this epoch. data NULL: does nothing. */
lk_status lk__device_data_start(lk__device_data *data, int64_t epoch);

/* i64 [], on the replica's device: that epoch. data NULL: NULL. */
lk_tensor *lk__device_data_epoch(const lk__device_data *data, int replica);

/* Makes the shard's images and labels of its indices; epoch: as above, or what stands for it in a recording. Where the
 * shard has its images, or data is NULL, it does nothing. */
lk_status lk__device_data_prepare(const lk__device_data *data, lk_tensor *epoch, lk_shard *shard);

/* --- shard_programs.c --------------------------------------------------------------------------------------------- */

typedef struct lk__shard_programs lk__shard_programs;

/* One shard's forward pass, and backward from `seed` (NULL: forward alone): sets values[], NULL before. */
typedef lk_status (*lk__shard_pass_fn)(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values);

/* The two that there are. */
lk_status lk__training_pass(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values);
lk_status lk__evaluation_pass(lk_trainer *trainer, const lk_shard *shard, lk_tensor *seed, lk_tensor **values);

lk_status lk__shard_programs_new(lk__shard_programs **programs);
void lk__shard_programs_release(lk__shard_programs *programs);

/* Records fn(trainer, shard, seed, values[0 … n)). Inputs are the shard's images, labels and indices; with `data`,
 * which then makes the others within the program, indices [n] and the epoch []; and last the seed, if there is one.
 * Errors: those of lk_program_record. */
lk_program *lk__shard_program_record(lk_trainer *trainer, lk__shard_pass_fn fn, const lk__device_data *data,
                                     const lk_shard *shard, lk_tensor *seed, int n, const lk_program_opts *opts);

/* fn(trainer, shard, seed, values[0 … n)): as a program's replay, of which nothing is pushed yet; *replay NULL:
 * operator by operator, all pushed. Where there are step programs, it is lk__begin_device_pass. */
lk_status lk__begin_shard_pass(lk_trainer *trainer, lk__shard_pass_fn fn, const lk__device_data *data,
                               const lk_shard *shard, lk_tensor *seed, int n, lk_tensor **values, lk_replay **replay);

/* --- step_program.c ----------------------------------------------------------------------------------------------- */

typedef struct lk__step_programs lk__step_programs;

/* Whether a device's shards of a batch are to be one program. Devices and model are there. */
bool lk__step_programs_fit(const lk_trainer *trainer);

/* Whether that program has the update in it. */
bool lk__step_is_one_program(const lk_trainer *trainer);

lk_status lk__step_programs_new(lk__step_programs **programs);
void lk__step_programs_release(lk__step_programs *programs);

/* The program of a training step of a batch of so many samples, on the device that has most of them: to look at, and to
 * be released. That of the plan's batch is the one that will run. NULL: the thread's error. */
lk_program *lk__step_program_record(lk_trainer *trainer, int64_t samples);

/* lk__begin_shard_pass of all shards of a device at once: `own` has all of its samples of the batch. values: of the
 * nodes that cover its shards, [node * n + i]. */
lk_status lk__begin_device_pass(lk_trainer *trainer, lk__shard_pass_fn fn, const lk__device_data *data,
                                const lk_shard *own, lk_tensor *seed, int n, lk_tensor **values, lk_replay **replay);

/* The training step of trainer->update over `batch`, its one batch, where it is one program. metrics[], and *skipped,
 * as lk_optimizer_skipped has it: new tensors, adopted by the open scope. */
lk_status lk__run_training_program(lk_trainer *trainer, lk_batch *batch, lk_tensor **metrics, lk_tensor **skipped);

/* --- micro_batch.c ------------------------------------------------------------------------------------------------ */

/* Sets plan.micro_batch and plan.val_micro_batch. The model is there. Errors: those of lk_plan_micro_batch. */
lk_status lk__plan_micro_batches(lk_trainer *trainer);

/* pass(trainer, piece, seed, …) for the shard's pieces of `size` samples (0: all), in their order; values[0 … n): sums
 * over them. */
lk_status lk__run_pieces(lk_trainer *trainer, int64_t size, lk__shard_pass_fn pass, const lk_shard *shard,
                         lk_tensor *seed, int n, lk_tensor **values);

/* --- shard_run.c -------------------------------------------------------------------------------------------------- */

/* As lk_shard_fn, but values may be on their way: *replay NULL: they are not. by_device: for all shards of a device at
 * once, which `shard` then stands for; values: of the tree's nodes that cover them, [node * n + i]. */
typedef lk_status (*lk__shard_begin_fn)(void *user, const lk_shard *shard, lk_tensor **values, lk_replay **replay);

/* As lk_run_shards. Replays are pushed segment by segment, and what a segment finishes is summed while the next ones
 * run: over the device's shards at once, over devices behind the next segment. */
lk_status lk__run_shards(lk_shard_sum *sum, int n, const lk_dataset *dataset, lk_batch *batch, lk__shard_begin_fn begin,
                         void *user, bool by_device, lk_tensor **sums);

/* The same for as many shards as the sum has, from shard `first` on, of a batch that is cut into `shards`: a node of
 * the tree over them. */
lk_status lk__run_shards_of(lk_shard_sum *sum, int64_t first, int64_t shards, int n, const lk_dataset *dataset,
                            lk_batch *batch, lk__shard_begin_fn begin, void *user, lk_tensor **sums);

/* --- shard_pass.c ------------------------------------------------------------------------------------------------- */

/* Shards of a training batch that go through the model together. Tensors are borrowed from the open scope. */
typedef struct lk__shard_pass {
    lk_trainer *trainer;
    const lk__update *update;
    lk_batch *batch;
    int n;
    lk_shard *shards;                 /* [n] */
    lk_tensor *const **sets;          /* [n]: the variables of each */
    lk_tensor **images, **indices;    /* [n] */
    lk_tensor **logits;               /* [n]: of the forward pass */
    lk_tensor **losses, **seeds;      /* [n]: scalars, and what their gradients begin with */
    lk_tensor **watched, **gradients; /* [n * parameters] */
    lk_tensor **memory;               /* all of the tensors above */
} lk__shard_pass;

/* Room for so many shards; to be freed, also on failure. */
lk_status lk__shard_pass_init(lk__shard_pass *pass, lk_trainer *trainer, int64_t shards);
void lk__shard_pass_free(lk__shard_pass *pass);

/* A new pass, without shards. */
void lk__shard_pass_start(lk__shard_pass *pass, const lk__update *update, lk_batch *batch);

/* Adds shard `index` of the batch, if it has samples. `variables`: from lk__view_variables, for this shard alone. */
lk_status lk__shard_pass_add(lk__shard_pass *pass, int64_t index, int replica, lk_tensor *const *variables,
                             lk_tensor *seed);

/* views[0 … variables): of the replica's parameters; its buffers, which no tape watches, as they are. */
lk_status lk__view_variables(const lk_trainer *trainer, int replica, lk_tensor **views);

/* What the forward pass of a training step needs, --bn sync included; sets logits[]. */
lk_forward_opts lk__shard_pass_opts(const lk__shard_pass *pass);
lk_status lk__shard_pass_forward(lk__shard_pass *pass, const lk_forward_opts *opts);

/* Calls `forward`, which sets losses[], and goes back from there; sets gradients[]. */
lk_status lk__shard_pass_gradients(lk__shard_pass *pass, lk_status (*forward)(void *user), void *user);

/* Repeats an update's forward and backward passes on replica 0, whose parameters it has left as they were, and fails
 * with LK_ERR_NUMERIC: the message names the first layer, else the loss, else the parameter's gradient, that is not
 * finite. */
lk_status lk__replay_update(lk_trainer *trainer, const lk__update *update);

/* --- replicas ----------------------------------------------------------------------------------------------------- */

const lk_model *lk__replicas_model(const lk_replicas *replicas);

/* What the storing device has; NULL: there is none. */
lk_tensor *const *lk__replicas_stored(const lk_replicas *replicas);

/* lk_model_update_statistics on every replica; sums[replica * statistics + i]. */
lk_status lk__replicas_set_statistics(lk_replicas *replicas, lk_tensor *const *sums, int64_t samples, double momentum);

/* lk_replicas_apply, where a loss that is not finite, sums[replica * stride + loss], counts as a gradient that is not;
 * loss -1: there is none. */
lk_status lk__replicas_apply(lk_replicas *replicas, lk_tensor *const *sums, int stride, int loss, int64_t samples,
                             double rate);

/* The update of one replica from sums[0 … variables) and the loss, sums[loss], within a program that is recorded:
 * lk__optimizer_record. */
lk_status lk__replicas_record(lk_replicas *replicas, int replica, lk_tensor *const *sums, int loss, int64_t samples,
                              lk_tensor *rates);

/* --- data --------------------------------------------------------------------------------------------------------- */

/* The model is made for the training images: others must not reach it. */
lk_status lk__check_images(const lk_trainer *trainer, const lk_dataset *dataset, lk_status error);

/* data: where the set's images are prepared; NULL: by the loader. all_shards: images of other processes' shards too. */
typedef struct lk__loader_plan {
    lk_dataset *dataset;
    const lk__device_data *data;
    int64_t batch_size;
    bool training, all_shards;
    int workers;
} lk__loader_plan;

lk_status lk__new_loader(const lk_trainer *trainer, const lk__loader_plan *plan, lk_loader **loader);

#endif
