/* Changes of the colors of a whole image with values from 0 to 1, in place. Each value is one chain of roundings in
 * f32. A color image has three channels; others count as gray, with the mean over channels. Factors of 1 change nothing
 * but roundings. */
#pragma once

#include "ops/pixels.h"

typedef struct lk_color_image {
    float *values; /* [channels, height, width] */
    int64_t channels;
    lk_plane_size size;
    float *scratch; /* [height * width] */
} lk_color_image;

/* Values times factor; values mixed with black, with the mean gray, with their own gray, or with a blurred image, as
 * Pillow's ImageEnhance does. Results are clipped to 0 … 1. */
void lk__color_brightness(const lk_color_image *image, float factor);
void lk__color_contrast(const lk_color_image *image, float factor);
void lk__color_saturation(const lk_color_image *image, float factor);
void lk__color_sharpness(const lk_color_image *image, float factor);

/* 1 - value for values of at least `threshold`. */
void lk__color_solarize(const lk_color_image *image, float threshold);

/* Keeps the highest `bits` of the eight of value * 255. */
void lk__color_posterize(const lk_color_image *image, int bits);

/* Stretches each channel to 0 … 1; makes each channel's histogram flat, as Pillow's ImageOps.equalize. */
void lk__color_autocontrast(const lk_color_image *image);
void lk__color_equalize(const lk_color_image *image);
