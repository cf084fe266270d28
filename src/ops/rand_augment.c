#include "ops/rand_augment.h"

#include <string.h>

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
    lk_pixel_map map = lk__rand_map(operation, m, image->size);
    if (lk__rand_moves(operation))
        rand_move(&map, image);
    if (operation == LK_RAND_BRIGHTNESS)
        lk__color_brightness(image, lk__rand_factor(m));
    if (operation == LK_RAND_COLOR)
        lk__color_saturation(image, lk__rand_factor(m));
    if (operation == LK_RAND_CONTRAST)
        lk__color_contrast(image, lk__rand_factor(m));
    if (operation == LK_RAND_SHARPNESS)
        lk__color_sharpness(image, lk__rand_factor(m));
    if (operation == LK_RAND_POSTERIZE)
        lk__color_posterize(image, lk__rand_bits(magnitude));
    if (operation == LK_RAND_SOLARIZE)
        lk__color_solarize(image, lk__rand_threshold(magnitude));
    if (operation == LK_RAND_AUTOCONTRAST)
        lk__color_autocontrast(image);
    if (operation == LK_RAND_EQUALIZE)
        lk__color_equalize(image);
}
