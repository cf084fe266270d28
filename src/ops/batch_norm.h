/* What batch_norm.c and batch_norm_act.c check alike. */
#ifndef LK_OPS_BATCH_NORM_H
#define LK_OPS_BATCH_NORM_H

#include "ops/ops.h"

/* One for each channel of x [N, C, …]; f32 where x is bf16. */
lk_meta lk__channel_vector_meta(const lk_tensor *x);

/* f64 [2, C]. */
lk_meta lk__channel_sums_meta(const lk_tensor *x);

lk_status lk__check_meta(const char *op, const char *operand, const lk_tensor *tensor, lk_meta meta);

/* x, floats of shape [N, C, …]. */
lk_status lk__check_channels(const char *op, const lk_tensor *x);

/* The inputs x, gamma, beta that a call begins with, and its epsilon. */
lk_status lk__check_affine(const lk_call *call);

#endif
