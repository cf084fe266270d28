#include "data/loading/augment.h"

#include "base/mem.h"
#include "base/status.h"
#include "data/dataset.h"

#include <inttypes.h>

/* Added to the deviation, as in Keras' ImageDataGenerator, so that a constant channel is not divided by zero. */
#define DEVIATION_FLOOR 1e-6

static lk_status augment_copy_moments(const lk_channel_moments *moments, lk_augmentation *a)
{
    if (!moments)
        LK_FAIL(LK_ERR_ARGUMENT, "centering and standardizing need the moments of the training set: see "
                                 "lk_dataset_moments");
    if (moments->channels != a->channels)
        LK_FAIL(LK_ERR_ARGUMENT, "moments of %" PRId64 " channels for images of %" PRId64 ": expected as many",
                moments->channels, a->channels);
    a->mean = lk__calloc((size_t)a->channels, 2 * sizeof *a->mean);
    if (!a->mean)
        return LK_ERR_MEMORY;
    a->divisor = a->mean + a->channels;
    for (int64_t c = 0; c < a->channels; c++) {
        a->mean[c] = a->opts.center ? (float)moments->mean[c] : 0.0f;
        a->divisor[c] = a->opts.standardize ? (float)(moments->deviation[c] + DEVIATION_FLOOR) : 1.0f;
    }
    return LK_OK;
}

lk_status lk__augmentation_init(const lk_dataset *dataset, uint64_t seed, bool train, const lk_augment_opts *opts,
                                const lk_channel_moments *moments, lk_augmentation *augmentation)
{
    static const lk_augment_opts nothing;
    lk_augmentation *a = augmentation;
    *a = (lk_augmentation){
        .opts = opts ? *opts : nothing,
        .seed = seed,
        .channels = lk_dataset_channels(dataset),
        .size = {lk_dataset_height(dataset), lk_dataset_width(dataset)},
    };
    LK_TRY(lk__augmentation_check(&a->opts, a->size));
    if (!train)
        a->opts = (lk_augment_opts){.center = a->opts.center, .standardize = a->opts.standardize};
    return a->opts.center || a->opts.standardize ? augment_copy_moments(moments, a) : LK_OK;
}

void lk__augmentation_free(lk_augmentation *augmentation)
{
    lk__free(augmentation->mean);
    augmentation->mean = augmentation->divisor = NULL;
}

lk_status lk_augment_sample(const lk_dataset *dataset, int64_t index, uint64_t seed, int64_t epoch, bool train,
                            const lk_augment_opts *opts, const lk_channel_moments *moments, float *image)
{
    if (index < 0 || index >= lk_dataset_count(dataset))
        LK_FAIL(LK_ERR_ARGUMENT, "sample %" PRId64 ": expected 0 to %" PRId64, index, lk_dataset_count(dataset) - 1);
    if (epoch < 0 || epoch > UINT32_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "epoch %" PRId64 ": expected 0 to %" PRIu32, epoch, UINT32_MAX);
    lk_augmentation a;
    lk_pixels pixels;
    float *scratch = NULL;
    int64_t read = lk__dataset_reads(dataset) ? lk__dataset_image_values(dataset) : 0;
    lk_status status = lk__augmentation_init(dataset, seed, train, opts, moments, &a);
    if (status == LK_OK) {
        scratch = lk__calloc((size_t)(lk__augmentation_scratch(&a) + read), sizeof *scratch);
        status = scratch ? LK_OK : LK_ERR_MEMORY;
    }
    if (status == LK_OK)
        status = lk__dataset_pixels(dataset, index, scratch, &pixels);
    if (status == LK_OK)
        lk__augmentation_apply(&a, pixels, epoch, index, scratch + read, image);
    lk__free(scratch);
    lk__augmentation_free(&a);
    return status;
}
