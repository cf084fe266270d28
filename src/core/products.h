/* Products of matrices that are left as their factors until they are added up. Each shard's gradient of a dense layer's
 * weights is such a product, and is much larger than its factors. A backend that adds up products computes a few
 * elements of all of them at a time, so that no product goes through memory. The bits are those of separate products
 * added in the same order. */
#pragma once

#include "core/op.h"

typedef struct lk_products {
    /* Returns whether the call's kernel leaves the factors in place of the product if it may choose the output's
     * layout. A function of shapes, strides and dtype. */
    bool (*takes)(const lk_call *call);
    /* Adds up n addends of one shape into `sum`, which is f32 and row-major. Each addend is plain or left as its
     * factors. The order is that of a tree in postfix form (lk_array_sum). On the device's thread. */
    lk_status (*add)(lk_device *device, lk_tensor *const *addends, const unsigned char *additions, int n, float *sum);
} lk_products;
