/* matmul and dense_act on the kernels of dense.h, and products that are left as their factors (core/products.h). */
#pragma once

#include "core/products.h"

lk_status lk__cpu_matmul(lk_call *call);
lk_status lk__cpu_dense_act(lk_call *call);

/* Returns whether x is left as the factors of a product. */
bool lk__cpu_is_product(const lk_tensor *x);

/* Computes such a product, row-major. On the thread of `device`. */
lk_status lk__cpu_product_to_plain(lk_device *device, const lk_tensor *x, float *plain);

extern const lk_products lk__cpu_products;
