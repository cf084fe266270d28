/* The chief of a parameter-server training, as the trainer uses it. lk__ps_find_role, lk__ps_open, lk__ps_start and
 * lk__ps_end take any trainer; the others only the chief's. */
#pragma once

#include "train/trainer.h"

/* Sets role and has_optimizer of trainer->server. Errors: those of lk_train_role_of. */
lk_status lk__ps_find_role(lk_trainer *trainer);

/* With strategy parameter-server: the chief begins to listen. Settings that the strategy does not support are an error,
 * LK_ERR_ARGUMENT. */
lk_status lk__ps_open(lk_trainer *trainer);

/* Begins to answer. Model and variables exist by now. */
lk_status lk__ps_start(lk_trainer *trainer);
void lk__ps_release(struct lk_ps_chief *chief); /* NULL is fine */

/* Starts an epoch whose first `done` batches are already over; rates[steps_per_epoch]. Errors: those of
 * lk__ps_coordinator_begin. */
lk_status lk__ps_begin_epoch(lk_trainer *trainer, int64_t done, const double *rates);

/* Gets the next finished step; *any false: none finished within a short time. */
lk_status lk__ps_next_step(lk_trainer *trainer, lk_pending_step *step, lk_step_metrics *metrics, bool *any);
void lk__ps_stop_epoch(lk_trainer *trainer);
bool lk__ps_epoch_is_over(lk_trainer *trainer);

/* While paused no batch is begun. Training is at rest once the batches already begun are finished; these are then the
 * first ones of the epoch. */
void lk__ps_pause(lk_trainer *trainer, bool paused);
bool lk__ps_is_at_rest(lk_trainer *trainer);

/* Copies the servers' variables and optimizer state into the trainer, and updates the report. Waits for missing
 * servers, unless training is interrupted. */
lk_status lk__ps_pull(lk_trainer *trainer);

/* Returns whether the trainer's variables are those of the servers after exactly the steps so far, so that training can
 * resume from them. */
bool lk__ps_has_all(const lk_trainer *trainer);

/* Saves the report of the run for checkpoints, and restores it from one. */
void lk__ps_save_report(const lk_trainer *trainer, lk_state *state);
void lk__ps_resume_report(lk_trainer *trainer, const lk_state *state);

/* Fills a scaling report from what workers and servers have reported about their times. Errors: LK_ERR_MEMORY. */
lk_status lk__ps_report(const lk_trainer *trainer, lk_scaling_report *report);

/* Tells all processes that training has ended, and how. */
void lk__ps_end(lk_trainer *trainer, lk_status status);
