/* What evaluation needs of a predictor. */
#ifndef LK_TRAIN_PREDICTOR_H
#define LK_TRAIN_PREDICTOR_H

#include "lockstep/predict.h"

/* Called with the logits [count, classes] of a batch, which begins at `first`; batches come in order. Errors end all.
 */
typedef lk_status (*lk__take_logits)(void *user, int64_t first, int64_t count, const float *logits);

/* images: u8 [count, C, H, W]. Logits are finite. Errors: those of lk_predict, and of `take`. */
lk_status lk__predict_logits(lk_predictor *predictor, const uint8_t *images, int64_t count, lk__take_logits take,
                             void *user);

/* probabilities[n] = softmax of logits[n], in double; gives the logarithm of the sum of exp(logit). */
double lk__softmax(const float *logits, int64_t n, double *probabilities);

#endif
