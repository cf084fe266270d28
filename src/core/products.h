/* Products of matrices that are left as their factors until they are added up. The gradient of a dense layer's weights
 * is one for each shard, and is much larger than its factors. A backend that adds such products up computes a few
 * elements of all of them at a time, so that no product goes through memory. The bits are those of separate products
 * added in the same order. */
#pragma once

#include "core/op.h"

typedef struct lk_products {
    /* Returns whether the kernel of a call that may choose the layout of its output leaves the factors there. A
     * function of shapes, strides and dtype. */
    bool (*takes)(const lk_call *call);
    /* Computes `sum`, row-major: the n addends of one shape, f32, each of them plain or left as its factors, in the
     * order of a tree in postfix form (lk_array_sum). On the device's thread. */
    lk_status (*add)(lk_device *device, lk_tensor *const *addends, const unsigned char *additions, int n, float *sum);
} lk_products;
