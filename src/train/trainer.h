/* The inside of an lk_trainer (lockstep/trainer.h). Read this file first: it names the parts of a trainer and the words
 * that the rest of src/train uses.
 *
 * lk_trainer_new (trainer.c) fills in the plan and makes the members of struct lk_trainer, in about their order. Then
 * lk_trainer_fit (fit.c) runs the epochs, a pass (pass.h) runs the steps of one epoch or one evaluation, and
 * lk__train_step (step/step.c) runs one step.
 *
 * - Replica: a device's copy of the model's variables, replica r on devices[r]. All replicas are equal, because each
 *   applies the same updates. With strategy central-storage one device stores the variables, and replicas read those;
 *   with parameter-server, the copies that a worker pulled from the servers.
 * - Shard: a part of a batch. A batch is cut into plan.shards shards, and each device runs a range of them. A tree that
 *   depends on plan.shards alone sums what the shards give, so the number of devices changes no bit.
 * - Step: one batch, that is the forward pass and, in training, the backward pass of all its shards.
 * - Update: a change of the variables, from the sums of plan.accumulate steps (fewer at the end of an epoch).
 * - Process: with strategy multi-worker each process has a trainer with devices of its own. plan.devices and
 *   plan.shards count those of all processes. */
#pragma once

#include "train/callback_list.h"
#include "train/trainer_data.h"
#include "train/trainer_programs.h"
#include "train/trainer_progress.h"
#include "train/trainer_sums.h"
#include "lockstep/parameter_server.h"
#include "lockstep/scaling.h"

/* The trainer's part in strategy parameter-server. */
typedef struct lk_trainer_server {
    struct lk_ps_chief *chief; /* NULL: another strategy, or not the chief */
    lk_train_role role;        /* LK_TRAIN_CHIEF with every other strategy */
    uint64_t nonce;            /* a worker's: identifies it to the chief */
    uint64_t questions;        /* a worker's: number of its last question to the chief */
    bool has_optimizer;        /* the servers update; a chief has a copy of the optimizer's state, and a worker may be
                                  given only some of a device's shards */
} lk_trainer_server;

struct lk_trainer {
    lk_train_config config;        /* as the caller gave it; --resume may set the number of shards */
    lk_plan plan;                  /* the configuration with every blank filled in */
    struct lk_checkpoint *resumed; /* the checkpoint that training resumes from; NULL: none */
    bool stops_otherwise;          /* --override: the checkpoint's reason to stop training holds no longer */
    bool is_unrepeatable;          /* bits depend on more than the settings: see lk_run.repeatable */
    lk_trainer_server server;
    lk_device *devices[LK_MAX_DEVICES]; /* of this process */
    int n_devices;
    lk_strategy *strategy;
    lk_trainer_data data;
    lk_model *model;
    int n_parameters, n_variables; /* of the model; the parameters come first, then the buffers */
    lk_trainer_sums sums;
    lk_replicas *replicas;
    lk_trainer_programs programs;
    lk_tuning *implementations; /* see lk_trainer_implementations */

    /* While training runs: */
    lk_trainer_progress progress;
    lk_callbacks callbacks;
    bool has_configured;        /* the callbacks of the configuration are among them */
    struct lk_fit *fit;         /* the call of lk_trainer_fit in progress; NULL: none */
    lk_scaling_report *scaling; /* see lk_trainer_scaling */
};

/* Exchanges the parameters and their averages before an evaluation and after it; without averages does nothing.
 * status: of the evaluation; returned if it is an error. */
lk_status lk__trainer_swap_average(lk_trainer *trainer, lk_status status);
