/* The state of one call of lk_trainer_fit. */
#pragma once

#include "train/checkpoint/callback_state.h"
#include "train/trainer.h"

/* Throughput leaves out the first epoch of this run; if there is no other, it leaves out the first tenth of its steps.
 */
typedef struct lk_fit {
    lk_trainer *trainer;
    lk_train_result *result;
    lk_train_result whole;     /* of the epochs that are over, evaluation included */
    double began, epoch_began; /* as if training had not been interrupted */
    bool is_interrupted;       /* an interrupt has ended it where training can resume */
    int64_t first_epoch;       /* of this run */
    int64_t first_samples;     /* of that epoch, before this run */
    double warm_end;           /* when the first tenth of that epoch's steps ended */
    int64_t warm_images;       /* until then; 0: it has not ended */
    double first_seconds;      /* timed in the first epoch */
    int64_t first_images;
    double seconds; /* timed in later epochs */
    int64_t images;
    double flops_per_image; /* in training */
} lk_fit;
