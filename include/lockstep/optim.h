/* Optimisers. */
#ifndef LOCKSTEP_OPTIM_H
#define LOCKSTEP_OPTIM_H

#include "lockstep/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Stochastic gradient descent: parameters[i] -= rate * gradients[i], in place, for i in [0, n). A NULL gradient leaves
 * its parameter as it is. Asynchronous. */
LK_API lk_status lk_sgd_at(lk_place at, lk_tensor *const *parameters, lk_tensor *const *gradients, int n, double rate);
#define lk_sgd(...) lk_sgd_at(LK_HERE, __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif
