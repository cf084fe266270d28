/* The logits of many images, for prediction and evaluation. */
#pragma once

#include "lockstep/predict.h"

/* Receives the logits [count, classes] of the images from `first` on. Batches come in order. An error ends the pass. */
typedef lk_status (*lk__take_logits)(void *user, int64_t first, int64_t count, const float *logits);

/* Images u8 [count, C, H, W] in memory, or those of a data set. */
typedef struct lk_predict_images {
    const uint8_t *bytes;
    const lk_dataset *dataset; /* if there are no `bytes` */
    int64_t count;
} lk_predict_images;

/* Calls `take` for every batch of images. The logits are finite. Errors: those of lk_predict, lk_dataset_read and
 * `take`. */
lk_status lk__predict_logits(lk_predictor *predictor, const lk_predict_images *images, lk__take_logits take,
                             void *user);

/* probabilities[n] = softmax of logits[n], computed in double. Returns the logarithm of the sum of exp(logit). */
double lk__softmax(const float *logits, int64_t n, double *probabilities);
