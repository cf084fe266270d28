/* Checks that batch_norm.c and batch_norm_act.c share. */
#pragma once

#include "ops/ops.h"

/* The meta of a vector with one element for each channel of x [N, C, …]; f32 if x is bf16. */
lk_meta lk__channel_vector_meta(const lk_tensor *x);

/* The meta of the channels' sums: f64 [2, C]. */
lk_meta lk__channel_sums_meta(const lk_tensor *x);

/* Checks that the tensor has this dtype and shape. */
lk_status lk__check_meta(const char *op, const char *operand, const lk_tensor *tensor, lk_meta meta);

/* x must be floats of shape [N, C, …]. */
lk_status lk__check_channels(const char *op, const lk_tensor *x);

/* Checks a call's first three inputs, which are x, gamma and beta, and its epsilon. */
lk_status lk__check_affine(const lk_call *call);
