#include "ops/color_pixels.h"

#include <string.h>

enum { LEVELS = 256 };

static int64_t color_pixels(const lk_color_image *image)
{
    return image->size.height * image->size.width;
}

static float color_clip(float value)
{
    return value < 0 ? 0 : value > 1 ? 1 : value;
}

/* Returns value + …, clipped: `factor` 0 gives `other`, 1 gives `value`. */
static float color_mix(float other, float value, float factor)
{
    return color_clip(other + factor * (value - other));
}

static int color_level(float value)
{
    return (int)(color_clip(value) * 255.0f + 0.5f);
}

/* The gray value of pixel i: ITU-R 601 luma for three channels. */
static float color_gray(const lk_color_image *image, int64_t i)
{
    const float *values = image->values;
    int64_t n = color_pixels(image);
    if (image->channels == 3)
        return 0.299f * values[i] + 0.587f * values[n + i] + 0.114f * values[2 * n + i];
    float sum = 0;
    for (int64_t c = 0; c < image->channels; c++)
        sum += values[c * n + i];
    return sum / (float)image->channels;
}

void lk__color_brightness(const lk_color_image *image, float factor)
{
    for (int64_t i = 0; i < image->channels * color_pixels(image); i++)
        image->values[i] = color_clip(image->values[i] * factor);
}

void lk__color_contrast(const lk_color_image *image, float factor)
{
    int64_t n = color_pixels(image);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)color_gray(image, i);
    float mean = (float)(sum / (double)n);
    for (int64_t i = 0; i < image->channels * n; i++)
        image->values[i] = color_mix(mean, image->values[i], factor);
}

void lk__color_saturation(const lk_color_image *image, float factor)
{
    int64_t n = color_pixels(image);
    for (int64_t i = 0; i < n && image->channels == 3; i++) {
        float gray = color_gray(image, i);
        for (int64_t c = 0; c < 3; c++)
            image->values[c * n + i] = color_mix(gray, image->values[c * n + i], factor);
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
            for (int64_t x = 1; x + 1 < width; x++) {
                const float *at = image->scratch + y * width + x;
                float sum = 4 * at[0];
                for (int64_t row = -1; row <= 1; row++)
                    sum += at[row * width - 1] + at[row * width] + at[row * width + 1];
                plane[y * width + x] = color_mix(sum / 13.0f, at[0], factor);
            }
    }
}

void lk__color_solarize(const lk_color_image *image, float threshold)
{
    for (int64_t i = 0; i < image->channels * color_pixels(image); i++)
        if (image->values[i] >= threshold)
            image->values[i] = 1 - image->values[i];
}

void lk__color_posterize(const lk_color_image *image, int bits)
{
    int mask = (LEVELS - 1) ^ ((1 << (8 - bits)) - 1);
    for (int64_t i = 0; i < image->channels * color_pixels(image); i++)
        image->values[i] = (float)(color_level(image->values[i]) & mask) / 255.0f;
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
            plane[i] = (plane[i] - least) / (most - least);
    }
}

static void color_equalize_plane(float *plane, int64_t n)
{
    int64_t counts[LEVELS] = {0}, below = 0, last = 0;
    float to[LEVELS];
    for (int64_t i = 0; i < n; i++)
        counts[color_level(plane[i])]++;
    for (int level = 0; level < LEVELS; level++)
        last = counts[level] > 0 ? counts[level] : last;
    int64_t step = (n - last) / (LEVELS - 1);
    if (step == 0)
        return;
    for (int level = 0; level < LEVELS; level++) {
        int64_t equal = (below + step / 2) / step;
        to[level] = (float)(equal < LEVELS ? equal : LEVELS - 1) / 255.0f;
        below += counts[level];
    }
    for (int64_t i = 0; i < n; i++)
        plane[i] = to[color_level(plane[i])];
}

void lk__color_equalize(const lk_color_image *image)
{
    for (int64_t c = 0; c < image->channels; c++)
        color_equalize_plane(image->values + c * color_pixels(image), color_pixels(image));
}
