/* The operations of RandAugment (Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced
 * search space", 2020), with the ranges of torchvision. */
#pragma once

#include "ops/color_pixels.h"

#include <stdbool.h>

typedef enum lk_rand_operation {
    LK_RAND_IDENTITY,
    LK_RAND_SHEAR_X,
    LK_RAND_SHEAR_Y,
    LK_RAND_TRANSLATE_X,
    LK_RAND_TRANSLATE_Y,
    LK_RAND_ROTATE,
    LK_RAND_BRIGHTNESS,
    LK_RAND_COLOR,
    LK_RAND_CONTRAST,
    LK_RAND_SHARPNESS,
    LK_RAND_POSTERIZE,
    LK_RAND_SOLARIZE,
    LK_RAND_AUTOCONTRAST,
    LK_RAND_EQUALIZE,
    LK_RAND_OPERATIONS
} lk_rand_operation;

/* Its name, such as "shear-x". Static. */
const char *lk__rand_name(lk_rand_operation operation);

/* The greatest changes. */
#define LK_RAND_MOST_SHEAR 0.3
#define LK_RAND_MOST_SHIFT (150.0 / 331.0)
#define LK_RAND_MOST_DEGREES 30.0
#define LK_RAND_MOST_FACTOR 0.9
#define LK_RAND_MOST_BITS 4.0

/* An operation with its direction: m is the magnitude, -1 … 1, as a share of the greatest change. */
LK_EVERYWHERE static inline bool lk__rand_moves(lk_rand_operation operation)
{
    return operation >= LK_RAND_SHEAR_X && operation <= LK_RAND_ROTATE;
}

/* The map of an operation that moves pixels. */
LK_EVERYWHERE static inline lk_pixel_map lk__rand_map(lk_rand_operation operation, double m, lk_plane_size size)
{
    lk_pixel_map map = {1, 0, 0, 1, 0, 0};
    if (operation == LK_RAND_ROTATE)
        map = lk__pixel_rotation(LK_RAND_MOST_DEGREES * m);
    if (operation == LK_RAND_SHEAR_X)
        map.xy = LK_RAND_MOST_SHEAR * m;
    if (operation == LK_RAND_SHEAR_Y)
        map.yx = LK_RAND_MOST_SHEAR * m;
    if (operation == LK_RAND_TRANSLATE_X)
        map.right = LK_RAND_MOST_SHIFT * m * (double)size.width;
    if (operation == LK_RAND_TRANSLATE_Y)
        map.down = LK_RAND_MOST_SHIFT * m * (double)size.height;
    return map;
}

/* The factor of brightness, color, contrast and sharpness. */
LK_EVERYWHERE static inline float lk__rand_factor(double m)
{
    return (float)(1 + LK_RAND_MOST_FACTOR * m);
}

/* The other operations have no direction. */
LK_EVERYWHERE static inline int lk__rand_bits(double magnitude)
{
    return 8 - (int)(LK_RAND_MOST_BITS * magnitude + 0.5);
}

LK_EVERYWHERE static inline float lk__rand_threshold(double magnitude)
{
    return (float)(1 - magnitude);
}

/* Applies the operation to the image, in place. magnitude: 0 … 1, of the greatest change. negative: to the other
 * direction, if it has two. */
void lk__rand_apply(lk_rand_operation operation, double magnitude, bool negative, const lk_color_image *image);
