/* What fit knows of a training as a whole, and what of that goes into checkpoints. */
#ifndef LK_TRAIN_FIT_H
#define LK_TRAIN_FIT_H

#include "train/callback_state.h"
#include "train/trainer.h"

/* Throughput leaves out the first epoch of this run; where there is no other, its first tenth of steps. */
typedef struct lk__fit {
    lk_trainer *trainer;
    lk_train_result *result;
    lk_train_result whole;     /* of the epochs that are over, evaluation included */
    double began, epoch_began; /* as if nothing had been in between */
    int64_t first_epoch;
    int64_t first_samples; /* of that epoch, before this run */
    double warm_end;       /* when the first epoch's first tenth was over */
    int64_t warm_images;
    double seconds, first_seconds; /* timed */
    int64_t images, first_images;
    double flops_per_image; /* of training */
} lk__fit;

/* What there is to say of the trainer's fit, or of its steps without one. */
void lk__fit_save(const lk_trainer *trainer, lk_state *state);

/* Takes up totals, and where the trainer stands in the epoch. Errors: LK_ERR_FORMAT. */
lk_status lk__fit_resume(lk__fit *fit, const lk_state *state);

#endif
