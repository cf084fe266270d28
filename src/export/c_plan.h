/* What an exported C file computes, in order: calls of its kernels, with places in scratch memory and among the
 * weights.
 */
#ifndef LK_EXPORT_C_PLAN_H
#define LK_EXPORT_C_PLAN_H

#include "export/c_kernels.h"
#include "export/network.h"

typedef struct lk__c_call {
    lk__c_kernel kernel;
    const lk_node *node;
    int64_t x, z, y;       /* floats into the scratch memory; z: of LK__C_ADD */
    int64_t first, second; /* floats into the weights: filters and bias, or factor and shift; -1: none */
} lk__c_call;

typedef struct lk__c_plan {
    lk__c_call *calls;
    int n, capacity;
    int64_t image, logits; /* where the prepared image is expected, and the logits are left */
    int64_t scratch;       /* floats */
    float *weights;
    int64_t n_weights, weights_capacity;
    int64_t mean, divisor; /* in the weights; -1: images are taken as they are */
} lk__c_plan;

/* Errors: LK_ERR_MEMORY, LK_ERR_UNSUPPORTED (beyond what indices of type int reach). */
lk_status lk__c_plan_make(const lk__network *network, lk__c_plan *plan);
void lk__c_plan_free(lk__c_plan *plan);

#endif
