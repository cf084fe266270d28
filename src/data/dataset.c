#include "data/dataset.h"

#include "base/mem.h"
#include "base/refcount.h"
#include "base/status.h"
#include "data/synthetic.h"

#include <inttypes.h>
#include <string.h>

struct lk_dataset {
    lk_refcount references;
    char *name;
    char *source;
    lk__samples samples; /* all there are, or were made: */
    int64_t count;       /* of these so many are the data set */
};

static void destroy(lk_dataset *dataset)
{
    lk__samples_free(&dataset->samples);
    lk__free(dataset->name);
    lk__free(dataset->source);
    lk__free(dataset);
}

static int64_t limited(int64_t count, int64_t limit)
{
    return limit > 0 && limit < count ? limit : count;
}

lk_status lk__dataset_make(const char *name, const char *source, lk__samples *samples, int64_t limit,
                           lk_dataset **dataset)
{
    lk_dataset *d = lk__calloc(1, sizeof *d);
    if (!d) {
        lk__samples_free(samples);
        return LK_ERR_MEMORY;
    }
    lk__refcount_init(&d->references);
    d->samples = *samples;
    d->count = limited(samples->count, limit);
    *samples = (lk__samples){0};
    d->name = lk__strdup(name);
    d->source = lk__strdup(source);
    if (!d->name || !d->source) {
        destroy(d);
        return LK_ERR_MEMORY;
    }
    *dataset = d;
    return LK_OK;
}

static lk_status hold_out(lk__samples *samples, lk_split split, double share)
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

lk_status lk__dataset_finish(const char *name, const char *source, lk__samples *samples, lk_split split,
                             const lk_dataset_opts *opts, lk_dataset **dataset)
{
    lk_status status = opts->val_split > 0 ? hold_out(samples, split, opts->val_split) : LK_OK;
    if (status == LK_OK && samples->count == 0)
        status = lk__fail(LK_ERR_ARGUMENT, "--val-split %g: no class of %s has two samples", opts->val_split, source);
    if (status == LK_OK)
        status = lk__samples_convert(samples, opts, source);
    if (status == LK_OK)
        return lk__dataset_make(name, source, samples, opts->limit, dataset);
    lk__samples_free(samples);
    return status;
}

/* --- samples of known kinds --------------------------------------------------------------------------------------- */

static lk_status name_classes(const lk__dataset_kind *kind, lk__samples *samples)
{
    samples->classes = kind->classes;
    for (int64_t i = 0; kind->class_names && i < kind->classes; i++)
        LK_TRY(lk__names_add(&samples->class_names, kind->class_names[i]));
    return LK_OK;
}

static lk_status take_labels(const lk__idx *labels, const char *labels_path, const char *images_path,
                             lk__samples *samples)
{
    const lk__idx *images = &samples->image_file;
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

static lk_status read_files(const char *images_path, const char *labels_path, lk__samples *samples)
{
    lk__idx labels;
    LK_TRY(lk__idx_open(images_path, 3, 4, &samples->image_file));
    LK_TRY(lk__idx_open(labels_path, 1, 1, &labels));
    lk_status status = take_labels(&labels, labels_path, images_path, samples);
    lk__idx_close(&labels);
    return status;
}

static lk_status freed_after(lk_status status, lk__samples *samples)
{
    if (status != LK_OK)
        lk__samples_free(samples);
    return status;
}

lk_status lk__samples_from_idx(const lk__dataset_kind *kind, const char *images_path, const char *labels_path,
                               lk__samples *samples)
{
    *samples = (lk__samples){0};
    lk_status status = name_classes(kind, samples);
    return freed_after(status == LK_OK ? read_files(images_path, labels_path, samples) : status, samples);
}

static lk_status generate(const lk__dataset_kind *kind, lk_split split, int64_t count, lk__samples *samples)
{
    samples->channels = 1;
    samples->height = samples->width = LK__SYNTHETIC_SIZE;
    LK_TRY(name_classes(kind, samples));
    LK_TRY(lk__samples_allocate(samples, count));
    return lk__synthetic_generate(split, count, samples->memory, samples->labels);
}

lk_status lk__samples_generate(const lk__dataset_kind *kind, lk_split split, int64_t limit, lk__samples *samples)
{
    *samples = (lk__samples){0};
    return freed_after(generate(kind, split, limited(lk__synthetic_count(split), limit), samples), samples);
}

lk_status lk_dataset_open_idx(const char *images_path, const char *labels_path, int64_t classes, int64_t limit,
                              lk_dataset **dataset)
{
    *dataset = NULL;
    if (!images_path || !labels_path)
        LK_FAIL(LK_ERR_ARGUMENT, "an IDX data set needs the paths of its images and of its labels");
    if (classes < 1 || classes > 256)
        LK_FAIL(LK_ERR_ARGUMENT, "%" PRId64 " classes: expected 1 to 256, labels of IDX files being bytes", classes);
    const lk__dataset_kind kind = {.name = "idx", .classes = classes};
    lk__samples samples;
    LK_TRY(lk__samples_from_idx(&kind, images_path, labels_path, &samples));
    return lk__dataset_make(kind.name, images_path, &samples, limit, dataset);
}

/* --- what is asked of a data set ---------------------------------------------------------------------------------- */

lk_dataset *lk_dataset_retain(lk_dataset *dataset)
{
    if (dataset)
        lk__refcount_retain(&dataset->references);
    return dataset;
}

void lk_dataset_release(lk_dataset *dataset)
{
    if (dataset && lk__refcount_release(&dataset->references))
        destroy(dataset);
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

const int32_t *lk_dataset_labels(const lk_dataset *dataset)
{
    return dataset->samples.labels;
}

lk_status lk__dataset_empty_classes(const lk_dataset *dataset, bool whole, int64_t *empty, int64_t *first)
{
    const lk__samples *samples = &dataset->samples;
    int64_t count = whole ? samples->count : dataset->count;
    *empty = 0;
    /* Of what is generated no more than the limit is in memory; the whole has all classes in turn. */
    if (whole && strcmp(dataset->source, LK__GENERATED) == 0)
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
    const lk__names *names = &dataset->samples.class_names;
    return label >= 0 && label < names->count ? names->at[label] : NULL;
}

const char *lk_dataset_sample_name(const lk_dataset *dataset, int64_t index)
{
    const lk__names *names = &dataset->samples.files;
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
