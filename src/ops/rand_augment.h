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

/* Applies the operation to the image, in place. magnitude: 0 … 1, of the greatest change. negative: to the other
 * direction, if it has two. */
void lk__rand_apply(lk_rand_operation operation, double magnitude, bool negative, const lk_color_image *image);
