/* Mean and standard deviation of each channel of a data set. */
#include "base/float_env.h"
#include "base/mem.h"
#include "base/status.h"
#include "data/dataset.h"

#include <math.h>

enum { LEVELS = 256 };

static void moments_count_levels(const lk_dataset *dataset, int64_t channel, int64_t *counts)
{
    int64_t pixels = lk_dataset_height(dataset) * lk_dataset_width(dataset);
    int64_t stride = lk_dataset_channels(dataset) * pixels;
    const uint8_t *image = lk_dataset_images(dataset) + channel * pixels;
    for (int64_t i = 0; i < lk_dataset_count(dataset); i++, image += stride)
        for (int64_t j = 0; j < pixels; j++)
            counts[image[j]]++;
}

/* Computes mean and deviation from the number of pixels at each of 256 levels. Integer counts are exact, so the mean is
 * rounded once, and the deviation is summed from distances instead of taken from a difference of large sums. */
static void moments_from_levels(const int64_t *counts, double *mean, double *deviation)
{
    int64_t count = 0, sum = 0;
    for (int b = 0; b < LEVELS; b++) {
        count += counts[b];
        sum += counts[b] * b;
    }
    *mean = (double)sum / ((double)count * 255.0);
    double squares = 0;
    for (int b = 0; b < LEVELS; b++) {
        double distance = b / 255.0 - *mean;
        squares += (double)counts[b] * (distance * distance);
    }
    *deviation = sqrt(squares / (double)count);
}

static lk_status moments_from_bytes(const lk_dataset *dataset, lk_channel_moments *moments)
{
    int64_t *counts = lk__calloc((size_t)moments->channels, LEVELS * sizeof *counts);
    if (!counts)
        return LK_ERR_MEMORY;
    for (int64_t c = 0; c < moments->channels; c++) {
        moments_count_levels(dataset, c, counts + c * LEVELS);
        moments_from_levels(counts + c * LEVELS, &moments->mean[c], &moments->deviation[c]);
    }
    lk__free(counts);
    return LK_OK;
}

/* Adds to sums[c] the values of channel c over all samples or, with `mean`, the squares of their distances from it. */
static lk_status moments_add_samples(const lk_dataset *dataset, const double *mean, float *image, double *sums)
{
    int64_t channels = lk_dataset_channels(dataset), pixels = lk__dataset_image_values(dataset) / channels;
    for (int64_t i = 0; i < lk_dataset_count(dataset); i++) {
        LK_TRY(lk_dataset_read(dataset, i, image));
        for (int64_t c = 0; c < channels; c++)
            for (int64_t j = 0; j < pixels; j++) {
                double value = image[c * pixels + j], distance = mean ? value - mean[c] : 0;
                sums[c] += mean ? distance * distance : value;
            }
    }
    return LK_OK;
}

static lk_status moments_from_floats(const lk_dataset *dataset, lk_channel_moments *moments)
{
    int64_t values = lk__dataset_image_values(dataset);
    int64_t pixels = values / moments->channels;
    double count = (double)lk_dataset_count(dataset) * (double)pixels;
    float *image = lk__calloc((size_t)values, sizeof *image);
    lk_status status = image ? moments_add_samples(dataset, NULL, image, moments->mean) : LK_ERR_MEMORY;
    for (int64_t c = 0; c < moments->channels; c++)
        moments->mean[c] /= count;
    if (status == LK_OK)
        status = moments_add_samples(dataset, moments->mean, image, moments->deviation);
    for (int64_t c = 0; c < moments->channels; c++)
        moments->deviation[c] = sqrt(moments->deviation[c] / count);
    lk__free(image);
    return status;
}

lk_status lk_dataset_moments(const lk_dataset *dataset, lk_channel_moments *moments)
{
    *moments = (lk_channel_moments){0};
    if (lk_dataset_count(dataset) < 1)
        LK_FAIL(LK_ERR_ARGUMENT, "data set %s has no samples: its mean needs at least one", lk_dataset_name(dataset));
    int64_t channels = lk_dataset_channels(dataset);
    double *values = lk__calloc((size_t)channels, 2 * sizeof *values);
    if (!values)
        return LK_ERR_MEMORY;
    *moments = (lk_channel_moments){.mean = values, .deviation = values + channels, .channels = channels};
    fenv_t callers = lk__float_begin();
    lk_status status =
        lk_dataset_images(dataset) ? moments_from_bytes(dataset, moments) : moments_from_floats(dataset, moments);
    lk__float_end(&callers);
    if (status != LK_OK)
        lk_channel_moments_free(moments);
    return status;
}

void lk_channel_moments_free(lk_channel_moments *moments)
{
    lk__free(moments->mean);
    *moments = (lk_channel_moments){0};
}
