#include "ops/color_pixels.h"

#include <string.h>

static int64_t color_pixels(const lk_color_image *image)
{
    return image->size.height * image->size.width;
}

static float color_gray(const lk_color_image *image, int64_t i)
{
    return lk__color_gray(image->values, image->channels, color_pixels(image), i);
}

void lk__color_brightness(const lk_color_image *image, float factor)
{
    for (int64_t i = 0; i < image->channels * color_pixels(image); i++)
        image->values[i] = lk__color_clip(image->values[i] * factor);
}

void lk__color_contrast(const lk_color_image *image, float factor)
{
    int64_t n = color_pixels(image);
    int64_t units = 0;
    for (int64_t i = 0; i < n; i++)
        units += lk__color_units(color_gray(image, i));
    float mean = lk__color_mean(units, n);
    for (int64_t i = 0; i < image->channels * n; i++)
        image->values[i] = lk__color_mix(mean, image->values[i], factor);
}

void lk__color_saturation(const lk_color_image *image, float factor)
{
    int64_t n = color_pixels(image);
    for (int64_t i = 0; i < n && image->channels == 3; i++) {
        float gray = color_gray(image, i);
        for (int64_t c = 0; c < 3; c++)
            image->values[c * n + i] = lk__color_mix(gray, image->values[c * n + i], factor);
    }
}

/* Pixels of the border stay, as in Pillow. */
void lk__color_sharpness(const lk_color_image *image, float factor)
{
    int64_t height = image->size.height, width = image->size.width;
    for (int64_t c = 0; c < image->channels; c++) {
        float *plane = image->values + c * height * width;
        memcpy(image->scratch, plane, (size_t)(height * width) * sizeof *plane);
        for (int64_t y = 1; y + 1 < height; y++)
            for (int64_t x = 1; x + 1 < width; x++)
                plane[y * width + x] = lk__color_sharpened(image->scratch + y * width + x, width, factor);
    }
}

void lk__color_solarize(const lk_color_image *image, float threshold)
{
    for (int64_t i = 0; i < image->channels * color_pixels(image); i++)
        image->values[i] = lk__color_solarized(image->values[i], threshold);
}

void lk__color_posterize(const lk_color_image *image, int bits)
{
    for (int64_t i = 0; i < image->channels * color_pixels(image); i++)
        image->values[i] = lk__color_posterized(image->values[i], bits);
}

void lk__color_autocontrast(const lk_color_image *image)
{
    int64_t n = color_pixels(image);
    for (int64_t c = 0; c < image->channels; c++) {
        float *plane = image->values + c * n, least = plane[0], most = plane[0];
        for (int64_t i = 1; i < n; i++) {
            least = plane[i] < least ? plane[i] : least;
            most = plane[i] > most ? plane[i] : most;
        }
        for (int64_t i = 0; i < n && most > least; i++)
            plane[i] = lk__color_stretched(plane[i], least, most);
    }
}

static void color_equalize_plane(float *plane, int64_t n)
{
    int64_t counts[LK_COLOR_LEVELS] = {0}, below = 0, last = 0;
    float to[LK_COLOR_LEVELS];
    for (int64_t i = 0; i < n; i++)
        counts[lk__color_level(plane[i])]++;
    for (int level = 0; level < LK_COLOR_LEVELS; level++)
        last = counts[level] > 0 ? counts[level] : last;
    int64_t step = (n - last) / (LK_COLOR_LEVELS - 1);
    if (step == 0)
        return;
    for (int level = 0; level < LK_COLOR_LEVELS; level++) {
        to[level] = lk__color_equalized(below, step);
        below += counts[level];
    }
    for (int64_t i = 0; i < n; i++)
        plane[i] = to[lk__color_level(plane[i])];
}

void lk__color_equalize(const lk_color_image *image)
{
    for (int64_t c = 0; c < image->channels; c++)
        color_equalize_plane(image->values + c * color_pixels(image), color_pixels(image));
}
