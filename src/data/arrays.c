/* Makes a data set of a program's own arrays. */
#include "base/mem.h"
#include "base/status.h"
#include "data/dataset.h"

#include <inttypes.h>
#include <string.h>

static lk_status arrays_check(const char *name, const lk_dataset_arrays *arrays)
{
    int64_t bytes;
    if (!name || !arrays->labels)
        LK_FAIL(LK_ERR_ARGUMENT, "data set from arrays: name and labels must not be NULL");
    if (!!arrays->images + !!arrays->floats + !!arrays->read != 1)
        LK_FAIL(LK_ERR_ARGUMENT, "data set from arrays: exactly one of images, floats and read must not be NULL");
    if (arrays->count < 1 || arrays->channels < 1 || arrays->height < 1 || arrays->width < 1)
        LK_FAIL(LK_ERR_ARGUMENT,
                "data set from arrays: %" PRId64 " images of %" PRId64 "x%" PRId64 "x%" PRId64
                ": each must be at least 1",
                arrays->count, arrays->channels, arrays->height, arrays->width);
    if (!lk__mul_i64(arrays->channels, arrays->height, &bytes) || !lk__mul_i64(bytes, arrays->width, &bytes) ||
        !lk__mul_i64(bytes, arrays->count, &bytes) || bytes > INT64_MAX / (int64_t)sizeof(float))
        LK_FAIL(LK_ERR_ARGUMENT, "data set from arrays: the images are larger than any memory");
    if (arrays->classes < 1 || arrays->classes > LK_MAX_CLASSES)
        LK_FAIL(LK_ERR_ARGUMENT, "data set from arrays: %" PRId64 " classes, where 1 to %d are possible",
                arrays->classes, LK_MAX_CLASSES);
    for (int64_t i = 0; i < arrays->count; i++)
        if (arrays->labels[i] < 0 || arrays->labels[i] >= arrays->classes)
            LK_FAIL(LK_ERR_ARGUMENT, "data set from arrays: sample %" PRId64 " has label %d, expected 0 to %" PRId64, i,
                    arrays->labels[i], arrays->classes - 1);
    return LK_OK;
}

lk_status lk_dataset_from_arrays(const char *name, const lk_dataset_arrays *arrays, lk_dataset **dataset)
{
    *dataset = NULL;
    LK_TRY(arrays_check(name, arrays));
    lk_samples samples = {.count = arrays->count,
                          .channels = arrays->channels,
                          .height = arrays->height,
                          .width = arrays->width,
                          .images = arrays->images,
                          .floats = arrays->floats,
                          .read = arrays->read,
                          .read_user = arrays->read_user};
    lk_status status = lk__samples_allocate_labels(&samples, arrays->count);
    if (status == LK_OK)
        status = lk__samples_set_classes(&samples, arrays->classes, arrays->class_names);
    if (status != LK_OK) {
        lk__samples_free(&samples);
        return status;
    }
    memcpy(samples.labels, arrays->labels, (size_t)arrays->count * sizeof *samples.labels);
    const char *source = arrays->read ? "a function of the program" : "arrays in memory";
    return lk__dataset_make(name, source, &samples, 0, dataset);
}
