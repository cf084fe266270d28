#include "data/loading/augment.h"

#include "base/float_env.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/number.h"
#include "base/status.h"
#include "data/dataset.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
        .channels = lk_dataset_channels(dataset),
        .size = {lk_dataset_height(dataset), lk_dataset_width(dataset)},
    };
    LK_TRY(lk__augmentation_check(&a->opts, a->size));
    if (!train)
        a->opts = (lk_augment_opts){.center = a->opts.center, .standardize = a->opts.standardize};
    fenv_t callers = lk__float_begin();
    lk__augment_chances_init(&a->opts, seed, &a->chances);
    lk_status status = a->opts.center || a->opts.standardize ? augment_copy_moments(moments, a) : LK_OK;
    lk__float_end(&callers);
    return status;
}

void lk__augmentation_free(lk_augmentation *augmentation)
{
    lk__free(augmentation->mean);
    augmentation->mean = augmentation->divisor = NULL;
}

static lk_status augment_check_sample(const lk_dataset *dataset, int64_t index, int64_t epoch)
{
    if (index < 0 || index >= lk_dataset_count(dataset))
        LK_FAIL(LK_ERR_ARGUMENT, "sample %" PRId64 ": expected 0 to %" PRId64, index, lk_dataset_count(dataset) - 1);
    if (epoch < 0 || epoch > UINT32_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "epoch %" PRId64 ": expected 0 to %" PRIu32, epoch, UINT32_MAX);
    return LK_OK;
}

lk_status lk_augment_sample(const lk_dataset *dataset, int64_t index, uint64_t seed, int64_t epoch, bool train,
                            const lk_augment_opts *opts, const lk_channel_moments *moments, float *image)
{
    LK_TRY(augment_check_sample(dataset, index, epoch));
    lk_augmentation a;
    float *scratch = NULL;
    int64_t read = lk__dataset_reads(dataset) ? lk__dataset_image_values(dataset) : 0;
    lk_status status = lk__augmentation_init(dataset, seed, train, opts, moments, &a);
    if (status == LK_OK) {
        scratch = lk__calloc((size_t)(lk__augmentation_scratch(&a) + read), sizeof *scratch);
        status = scratch ? LK_OK : LK_ERR_MEMORY;
    }
    lk_dataset_reading r = {dataset, scratch};
    fenv_t callers = lk__float_begin();
    if (status == LK_OK)
        status = lk__augmentation_make(&a, lk__dataset_read, &r, lk_dataset_count(dataset), epoch, index,
                                       scratch + read, image);
    lk__float_end(&callers);
    lk__free(scratch);
    lk__augmentation_free(&a);
    return status;
}

/* --- descriptions ------------------------------------------------------------------------------------------------- */

typedef struct description {
    char *text;
    size_t size, used;
} description;

LK_PRINTF(2, 3) static void augment_say(description *d, const char *format, ...)
{
    va_list arguments;
    if (d->used > 0 && d->used + 2 < d->size) {
        memcpy(d->text + d->used, ", ", 3);
        d->used += 2;
    }
    va_start(arguments, format);
    int length = vsnprintf(d->text + d->used, d->size - d->used, format, arguments);
    va_end(arguments);
    d->used = (size_t)lk__min((int64_t)d->size - 1, (int64_t)d->used + lk__max(0, length));
}

static const char *augment_fixed(double value, int decimals, char text[LK__FIXED_DIGITS])
{
    lk__number_fixed(value, decimals, text);
    return text;
}

static void augment_say_rand(description *d, const lk_augment_choice *choice)
{
    for (int i = 0; i < LK_RAND_CHOICES; i++) {
        lk_rand_operation operation = choice->rand[i].operation;
        bool has_sign = operation > LK_RAND_IDENTITY && operation < LK_RAND_POSTERIZE;
        augment_say(d, "%s%s", has_sign && choice->rand[i].negative ? "-" : "", lk__rand_name(operation));
    }
}

lk_status lk_augment_describe(const lk_dataset *dataset, int64_t index, uint64_t seed, int64_t epoch,
                              const lk_augment_opts *opts, char *text, size_t size)
{
    lk_augmentation a;
    lk_augment_choice c;
    lk_augment_opts changes = opts ? *opts : (lk_augment_opts){.mixup = 0};
    char number[LK__FIXED_DIGITS], down[LK__FIXED_DIGITS], right[LK__FIXED_DIGITS];
    changes.center = changes.standardize = false;
    description d = {.text = text, .size = size};
    if (size == 0)
        LK_FAIL(LK_ERR_ARGUMENT, "a description of 0 bytes: expected at least 1");
    text[0] = '\0';
    LK_TRY(augment_check_sample(dataset, index, epoch));
    LK_TRY(lk__augmentation_init(dataset, seed, true, &changes, NULL, &a));
    fenv_t callers = lk__float_begin();
    lk__augmentation_choose(&a, epoch, index, &c);
    if (c.shift_down != 0 || c.shift_right != 0)
        augment_say(&d, "shift %s %s", augment_fixed(c.shift_down, 1, down), augment_fixed(c.shift_right, 1, right));
    if (c.flipped)
        augment_say(&d, "flip");
    if (c.flipped_down)
        augment_say(&d, "vflip");
    if (c.degrees != 0)
        augment_say(&d, "rotate %s", augment_fixed(c.degrees, 0, number));
    if (c.crop_down != 0 || c.crop_right != 0)
        augment_say(&d, "crop %" PRId64 " %" PRId64, c.crop_down, c.crop_right);
    if (c.brightness != 1)
        augment_say(&d, "bright %s", augment_fixed(c.brightness, 2, number));
    if (c.contrast != 1)
        augment_say(&d, "contrast %s", augment_fixed(c.contrast, 2, number));
    if (changes.rand_augment > 0)
        augment_say_rand(&d, &c);
    if (changes.cutout > 0)
        augment_say(&d, "cutout %" PRId64 " %" PRId64, c.cutout_y, c.cutout_x);
    if (c.erase_height > 0)
        augment_say(&d, "erase %" PRId64 "x%" PRId64, c.erase_height, c.erase_width);
    if (changes.mixup > 0)
        augment_say(&d, "mix %s with %" PRId64, augment_fixed(c.share, 2, number),
                    lk__augment_other(&c, index, lk_dataset_count(dataset)));
    lk__float_end(&callers);
    lk__augmentation_free(&a);
    return LK_OK;
}
