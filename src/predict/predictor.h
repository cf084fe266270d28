/* The logits of many images, for prediction and evaluation. */
#pragma once

#include "lockstep/predict.h"

/* Receives the logits [count, classes] of the images from `first` on. Batches come in order. An error ends the pass. */
typedef lk_status (*lk__take_logits)(void *user, int64_t first, int64_t count, const float *logits);

/* Calls `take` for every batch of images, u8 [count, C, H, W]. The logits are finite. Errors: those of lk_predict and
 * of `take`. */
lk_status lk__predict_logits(lk_predictor *predictor, const uint8_t *images, int64_t count, lk__take_logits take,
                             void *user);

/* probabilities[n] = softmax of logits[n], computed in double. Returns the logarithm of the sum of exp(logit). */
double lk__softmax(const float *logits, int64_t n, double *probabilities);
