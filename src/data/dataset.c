#include "data/dataset.h"

#include "base/float_env.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/refcount.h"
#include "base/status.h"
#include "data/catalog/synthetic.h"
#include "data/convert.h"
#include "data/names.h"

#include <inttypes.h>
#include <string.h>

struct lk_dataset {
    lk_refcount references;
    char *name;
    char *source;
    lk_samples samples; /* all that were read, generated or given */
    int64_t count;      /* the first `count` of them are the data set */
};

static void dataset_destroy(lk_dataset *dataset)
{
    lk__samples_free(&dataset->samples);
    lk__free(dataset->name);
    lk__free(dataset->source);
    lk__free(dataset);
}

lk_status lk__dataset_make(const char *name, const char *source, lk_samples *samples, int64_t limit,
                           lk_dataset **dataset)
{
    lk_dataset *d = lk__calloc(1, sizeof *d);
    if (!d) {
        lk__samples_free(samples);
        return LK_ERR_MEMORY;
    }
    lk__refcount_init(&d->references);
    d->samples = *samples;
    d->count = limit > 0 ? lk__min(limit, samples->count) : samples->count;
    *samples = (lk_samples){0};
    d->name = lk__strdup(name);
    d->source = lk__strdup(source);
    if (!d->name || !d->source) {
        dataset_destroy(d);
        return LK_ERR_MEMORY;
    }
    *dataset = d;
    return LK_OK;
}

static lk_status dataset_select_split(lk_samples *samples, lk_split split, double share)
{
    int64_t count, *indices = lk__calloc((size_t)samples->count, sizeof *indices);
    lk_status status = indices ? LK_OK : LK_ERR_MEMORY;
    if (status == LK_OK)
        status = lk__held_out(samples->labels, samples->count, share, split, indices, &count);
    if (status == LK_OK)
        status = lk__samples_select(samples, indices, count);
    lk__free(indices);
    return status;
}

lk_status lk__dataset_finish(const char *name, const char *source, lk_samples *samples, lk_split split,
                             const lk_dataset_opts *opts, lk_dataset **dataset)
{
    lk_status status = opts->val_split > 0 ? dataset_select_split(samples, split, opts->val_split) : LK_OK;
    if (status == LK_OK && samples->count == 0)
        status = lk__fail(LK_ERR_ARGUMENT, "--val-split %g: no class of %s has two samples", opts->val_split, source);
    if (status == LK_OK)
        status = lk__samples_convert(samples, opts, source);
    if (status == LK_OK)
        return lk__dataset_make(name, source, samples, opts->limit, dataset);
    lk__samples_free(samples);
    return status;
}

/* --- samples of a known kind -------------------------------------------------------------------------------------- */

lk_status lk__samples_set_classes(lk_samples *samples, int64_t classes, const char *const *class_names)
{
    samples->classes = classes;
    for (int64_t i = 0; class_names && i < classes; i++) {
        if (!class_names[i])
            LK_FAIL(LK_ERR_ARGUMENT, "class %lld has no name", (long long)i);
        LK_TRY(lk__names_add(&samples->class_names, class_names[i]));
    }
    return LK_OK;
}

static lk_status dataset_fill_from_idx(const lk_idx *labels, const char *labels_path, const char *images_path,
                                       lk_samples *samples)
{
    const lk_idx *images = &samples->image_file;
    if (images->dim[0] != labels->dim[0])
        LK_FAIL(LK_ERR_FORMAT, "%s holds %" PRId64 " images, but %s holds %" PRId64 " labels: expected equal counts",
                images_path, images->dim[0], labels_path, labels->dim[0]);
    samples->count = images->dim[0];
    samples->channels = images->dims == 4 ? images->dim[1] : 1;
    samples->height = images->dim[images->dims - 2];
    samples->width = images->dim[images->dims - 1];
    samples->images = images->data;
    LK_TRY(lk__samples_allocate_labels(samples, samples->count));
    for (int64_t i = 0; i < samples->count; i++)
        samples->labels[i] = labels->data[i];
    return lk__samples_check_labels(samples, labels_path);
}

static lk_status dataset_read_idx_files(const char *images_path, const char *labels_path, lk_samples *samples)
{
    lk_idx labels;
    LK_TRY(lk__idx_open(images_path, 3, 4, &samples->image_file));
    LK_TRY(lk__idx_open(labels_path, 1, 1, &labels));
    lk_status status = dataset_fill_from_idx(&labels, labels_path, images_path, samples);
    lk__idx_close(&labels);
    return status;
}

lk_status lk__samples_from_idx(const lk_dataset_kind *kind, const char *images_path, const char *labels_path,
                               lk_samples *samples)
{
    *samples = (lk_samples){0};
    lk_status status = lk__samples_set_classes(samples, kind->classes, kind->class_names);
    if (status == LK_OK)
        status = dataset_read_idx_files(images_path, labels_path, samples);
    if (status != LK_OK)
        lk__samples_free(samples);
    return status;
}

lk_status lk__samples_generate(const lk_dataset_kind *kind, lk_split split, int64_t limit, lk_samples *samples)
{
    int64_t count = lk__synthetic_count(split);
    if (limit > 0)
        count = lk__min(limit, count);
    *samples =
        (lk_samples){.channels = 1, .height = LK__SYNTHETIC_SIZE, .width = LK__SYNTHETIC_SIZE, .generated = true};
    lk_status status = lk__samples_set_classes(samples, kind->classes, kind->class_names);
    if (status == LK_OK)
        status = lk__samples_allocate(samples, count);
    if (status == LK_OK)
        status = lk__synthetic_generate(split, count, samples->memory, samples->labels);
    if (status != LK_OK)
        lk__samples_free(samples);
    return status;
}

lk_status lk_dataset_open_idx(const char *images_path, const char *labels_path, int64_t classes, int64_t limit,
                              lk_dataset **dataset)
{
    *dataset = NULL;
    if (!images_path || !labels_path)
        LK_FAIL(LK_ERR_ARGUMENT, "an IDX data set needs the paths of its images and of its labels");
    if (classes < 1 || classes > 256)
        LK_FAIL(LK_ERR_ARGUMENT, "%" PRId64 " classes: expected 1 to 256, labels of IDX files being bytes", classes);
    const lk_dataset_kind kind = {.name = "idx", .classes = classes};
    lk_samples samples;
    LK_TRY(lk__samples_from_idx(&kind, images_path, labels_path, &samples));
    return lk__dataset_make(kind.name, images_path, &samples, limit, dataset);
}

/* --- properties of a data set ------------------------------------------------------------------------------------- */

lk_dataset *lk_dataset_retain(lk_dataset *dataset)
{
    if (dataset)
        lk__refcount_retain(&dataset->references);
    return dataset;
}

void lk_dataset_release(lk_dataset *dataset)
{
    if (dataset && lk__refcount_release(&dataset->references))
        dataset_destroy(dataset);
}

int64_t lk_dataset_count(const lk_dataset *dataset)
{
    return dataset->count;
}

int64_t lk_dataset_channels(const lk_dataset *dataset)
{
    return dataset->samples.channels;
}

int64_t lk_dataset_height(const lk_dataset *dataset)
{
    return dataset->samples.height;
}

int64_t lk_dataset_width(const lk_dataset *dataset)
{
    return dataset->samples.width;
}

int64_t lk_dataset_classes(const lk_dataset *dataset)
{
    return dataset->samples.classes;
}

const uint8_t *lk_dataset_images(const lk_dataset *dataset)
{
    return dataset->samples.images;
}

bool lk__dataset_reads(const lk_dataset *dataset)
{
    return dataset->samples.read;
}

int64_t lk__dataset_image_values(const lk_dataset *dataset)
{
    const lk_samples *samples = &dataset->samples;
    return samples->channels * samples->height * samples->width;
}

static lk_status dataset_call_reader(const lk_dataset *dataset, int64_t index, float *image)
{
    lk_status status = dataset->samples.read(dataset->samples.read_user, index, image);
    if (status == LK_OK)
        return LK_OK;
    lk_error_state own;
    lk__error_save(&own);
    lk_error_clear();
    LK_FAIL(status, "data set %s: the program's function failed to read sample %" PRId64 ": %.300s", dataset->name,
            index, own.status != LK_OK ? own.message : lk_status_name(status));
}

lk_status lk__dataset_pixels(const lk_dataset *dataset, int64_t index, float *memory, lk_pixels *pixels)
{
    const lk_samples *samples = &dataset->samples;
    int64_t values = lk__dataset_image_values(dataset);
    *pixels = (lk_pixels){0};
    if (samples->images)
        pixels->bytes = samples->images + index * values;
    else
        pixels->floats = samples->floats ? samples->floats + index * values : memory;
    return samples->read ? dataset_call_reader(dataset, index, memory) : LK_OK;
}

lk_status lk__dataset_read(void *reading, int64_t index, lk_pixels *pixels)
{
    const lk_dataset_reading *r = reading;
    return lk__dataset_pixels(r->dataset, index, r->memory, pixels);
}

lk_status lk_dataset_read(const lk_dataset *dataset, int64_t index, float *image)
{
    if (index < 0 || index >= dataset->count)
        LK_FAIL(LK_ERR_ARGUMENT, "sample %" PRId64 ": expected 0 to %" PRId64, index, dataset->count - 1);
    lk_pixels pixels;
    LK_TRY(lk__dataset_pixels(dataset, index, image, &pixels));
    int64_t values = lk__dataset_image_values(dataset);
    fenv_t callers = lk__float_begin();
    if (pixels.bytes)
        lk__pixels_from_bytes(pixels.bytes, values, image);
    else if (pixels.floats != image)
        memcpy(image, pixels.floats, (size_t)values * sizeof *image);
    lk__float_end(&callers);
    return LK_OK;
}

const int32_t *lk_dataset_labels(const lk_dataset *dataset)
{
    return dataset->samples.labels;
}

void lk_dataset_class_counts(const lk_dataset *dataset, int64_t *counts)
{
    memset(counts, 0, (size_t)dataset->samples.classes * sizeof *counts);
    for (int64_t i = 0; i < dataset->count; i++)
        counts[dataset->samples.labels[i]]++;
}

lk_status lk__dataset_empty_classes(const lk_dataset *dataset, bool whole, int64_t *empty, int64_t *first)
{
    const lk_samples *samples = &dataset->samples;
    int64_t count = whole ? samples->count : dataset->count;
    *empty = 0;
    /* Only the samples up to the limit were generated; the whole set would have every class. */
    if (whole && samples->generated)
        return LK_OK;
    bool *has = lk__calloc((size_t)samples->classes, sizeof *has);
    if (!has)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++)
        has[samples->labels[i]] = true;
    for (int64_t label = samples->classes - 1; label >= 0; label--) {
        if (has[label])
            continue;
        ++*empty;
        *first = label;
    }
    lk__free(has);
    return LK_OK;
}

const char *lk_dataset_class_name(const lk_dataset *dataset, int64_t label)
{
    const lk_names *names = &dataset->samples.class_names;
    return label >= 0 && label < names->count ? names->at[label] : NULL;
}

const char *lk_dataset_sample_name(const lk_dataset *dataset, int64_t index)
{
    const lk_names *names = &dataset->samples.files;
    return index >= 0 && index < dataset->count && index < names->count ? names->at[index] : NULL;
}

const char *lk_dataset_name(const lk_dataset *dataset)
{
    return dataset->name;
}

const char *lk_dataset_source(const lk_dataset *dataset)
{
    return dataset->source;
}
