/* fit's part of a checkpoint. */
#pragma once

#include "train/fit.h"

/* Saves the totals of the trainer's fit, or of its single steps if there is none. */
void lk__fit_save(const lk_trainer *trainer, lk_state *state);

/* Restores the position's totals of its epoch, if the checkpoint has them. */
void lk__fit_resume_epoch(lk_position *at, const lk_state *state);

/* Restores the other totals. Errors: LK_ERR_FORMAT. */
lk_status lk__fit_resume(lk_fit *fit, const lk_state *state);
