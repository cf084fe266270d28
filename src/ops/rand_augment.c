#include "ops/rand_augment.h"

#include <string.h>

/* The greatest changes. */
#define MOST_SHEAR 0.3
#define MOST_SHIFT (150.0 / 331.0)
#define MOST_DEGREES 30.0
#define MOST_FACTOR 0.9
#define MOST_BITS 4.0

const char *lk__rand_name(lk_rand_operation operation)
{
    static const char *const names[] = {"identity",  "shear-x",    "shear-y",      "translate-x", "translate-y",
                                        "rotate",    "brightness", "color",        "contrast",    "sharpness",
                                        "posterize", "solarize",   "autocontrast", "equalize"};
    return names[operation];
}

static void rand_move(const lk_pixel_map *map, const lk_color_image *image)
{
    int64_t n = image->size.height * image->size.width;
    for (int64_t c = 0; c < image->channels; c++) {
        memcpy(image->scratch, image->values + c * n, (size_t)n * sizeof *image->scratch);
        lk__pixels_map(image->scratch, image->size, map, image->values + c * n);
    }
}

void lk__rand_apply(lk_rand_operation operation, double magnitude, bool negative, const lk_color_image *image)
{
    double m = negative ? -magnitude : magnitude;
    float factor = (float)(1 + MOST_FACTOR * m);
    lk_pixel_map map = {.yy = 1, .xx = 1};
    switch (operation) {
    case LK_RAND_SHEAR_X:
        map.xy = MOST_SHEAR * m;
        rand_move(&map, image);
        break;
    case LK_RAND_SHEAR_Y:
        map.yx = MOST_SHEAR * m;
        rand_move(&map, image);
        break;
    case LK_RAND_TRANSLATE_X:
        map.right = MOST_SHIFT * m * (double)image->size.width;
        rand_move(&map, image);
        break;
    case LK_RAND_TRANSLATE_Y:
        map.down = MOST_SHIFT * m * (double)image->size.height;
        rand_move(&map, image);
        break;
    case LK_RAND_ROTATE:
        map = lk__pixels_rotation(MOST_DEGREES * m);
        rand_move(&map, image);
        break;
    case LK_RAND_BRIGHTNESS:
        lk__color_brightness(image, factor);
        break;
    case LK_RAND_COLOR:
        lk__color_saturation(image, factor);
        break;
    case LK_RAND_CONTRAST:
        lk__color_contrast(image, factor);
        break;
    case LK_RAND_SHARPNESS:
        lk__color_sharpness(image, factor);
        break;
    case LK_RAND_POSTERIZE:
        lk__color_posterize(image, 8 - (int)(MOST_BITS * magnitude + 0.5));
        break;
    case LK_RAND_SOLARIZE:
        lk__color_solarize(image, (float)(1 - magnitude));
        break;
    case LK_RAND_AUTOCONTRAST:
        lk__color_autocontrast(image);
        break;
    case LK_RAND_EQUALIZE:
        lk__color_equalize(image);
        break;
    case LK_RAND_IDENTITY:
    case LK_RAND_OPERATIONS:
        break;
    }
}
