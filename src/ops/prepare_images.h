#pragma once

#include "ops/ops.h"

/* y[i], f32 [n, C, H, W], is sample indices[i] of `images` u8 [N, C, H, W], prepared as lk_augment_opts says; a loader
 * gives the same bits. indices: i64 [n]. epoch: i64 [], 0 … 2^32 - 1; it is a tensor so that a recorded program can run
 * in any epoch. moments: f32 [2, C], the mean and the divisor of each channel; may be NULL.
 * Gradient: no. Errors: LK_ERR_SHAPE, LK_ERR_DTYPE, LK_ERR_ARGUMENT (a setting out of range). An index out of range is
 * an asynchronous error; on offload devices it makes the sample NaN instead. */
lk_tensor *lk__prepare_images(lk_call_site at, lk_tensor *images, lk_tensor *indices, lk_tensor *epoch,
                              lk_tensor *moments, const lk_prepare_images_attrs *attrs);
