/* Parts of prepare_images, in lower_images.c, lower_moves.c and lower_colors.c. */
#pragma once

#include "ops/augmentation.h"
#include "ops/ops.h"
#include "pjrt/lower_ops.h"

/* The samples of a call: images [N, C, H, W], and indices and epoch, which key their random numbers. */
typedef struct lk_hlo_samples {
    const lk_prepare_images_attrs *attrs;
    lk_hlo indices, epoch; /* i64 [N] and [] */
    int64_t n, channels;
    lk_plane_size size;
} lk_hlo_samples;

/* --- choices ------------------------------------------------------------------------------------------------------ */

/* Draws four words a sample for a purpose: ui32 [N] each. */
void lk__hlo_draw(lk_lowering *l, const lk_hlo_samples *s, lk_augment_purpose purpose, lk_hlo words[4]);

/* The same for blocks `first` … first + n - 1: ui32 [N, n]. */
void lk__hlo_draw_blocks(lk_lowering *l, const lk_hlo_samples *s, lk_augment_purpose purpose, int64_t first, int64_t n,
                         lk_hlo words[4]);

/* lk__augment_below and lk__augment_in; bound: i64. */
lk_hlo lk__hlo_random_below(lk_lowering *l, lk_hlo word, lk_hlo bound);
lk_hlo lk__hlo_random_in(lk_lowering *l, lk_hlo word, double low, double high);

/* Returns whether the word's highest bit is set. */
lk_hlo lk__hlo_random_bit(lk_lowering *l, lk_hlo word);

/* A number for each sample, as [N, 1, 1, 1]. */
lk_hlo lk__hlo_each_sample(lk_lowering *l, lk_hlo numbers);

/* --- images ------------------------------------------------------------------------------------------------------- */

/* An lk_pixel_map for each sample, f64 [N] or []. */
typedef struct lk_hlo_map {
    lk_hlo yy, yx, xy, xx, down, right;
} lk_hlo_map;

/* lk__pixels_map on each image. */
lk_hlo lk__hlo_map_pixels(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images, const lk_hlo_map *map);

/* Shift, flips, rotation and crop, of images between 0 and 1. */
lk_hlo lk__hlo_move_pixels(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images);

/* Brightness, contrast and RandAugment. */
lk_hlo lk__hlo_change_colors(lk_lowering *l, const lk_hlo_samples *s, lk_hlo images);
