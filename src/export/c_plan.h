/* The calls of an exported C file in order, with their offsets into scratch memory and into the weights. */
#pragma once

#include "export/c_kernels.h"
#include "export/network.h"

typedef struct lk_c_call {
    lk_c_kernel kernel;
    const lk_node *node;
    int64_t x, z, y;       /* offsets into scratch memory, in floats; z: the second operand, if there is one */
    int64_t first, second; /* offsets into the weights: filters and bias, or factor and shift; -1: none */
} lk_c_call;

typedef struct lk_c_plan {
    lk_c_call *calls;
    int n;
    int64_t capacity;
    int64_t image, logits; /* offsets of the prepared image and of the result in scratch memory */
    int64_t scratch;       /* size of the scratch memory, in floats */
    float *weights;
    int64_t n_weights, weights_capacity;
    int64_t mean, divisor; /* offsets into the weights; -1: images are used as they are */
} lk_c_plan;

/* Errors: LK_ERR_MEMORY, LK_ERR_UNSUPPORTED (the sizes do not fit indices of type int). */
lk_status lk__c_plan_make(const lk_network *network, lk_c_plan *plan);
void lk__c_plan_free(lk_c_plan *plan);
