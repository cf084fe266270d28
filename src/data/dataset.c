#include "data/dataset.h"

#include "base/mem.h"
#include "base/refcount.h"
#include "base/status.h"
#include "data/idx.h"
#include "data/synthetic.h"

#include <inttypes.h>

struct lk_dataset {
    lk_refcount references;
    lk__dataset_kind kind;
    char *source;
    int64_t count;
    int64_t channels;
    int64_t height;
    int64_t width;
    const uint8_t *images; /* inside image_file or generated */
    const uint8_t *labels; /* inside label_file or generated */
    lk__idx image_file;
    lk__idx label_file;
    uint8_t *generated;
};

static void destroy(lk_dataset *dataset)
{
    lk__idx_close(&dataset->image_file);
    lk__idx_close(&dataset->label_file);
    lk__free_aligned(dataset->generated);
    lk__free(dataset->source);
    lk__free(dataset);
}

static lk_status dataset_new(const lk__dataset_kind *kind, const char *source, lk_dataset **dataset)
{
    lk_dataset *d = lk__calloc(1, sizeof *d);
    if (!d)
        return LK_ERR_MEMORY;
    lk__refcount_init(&d->references);
    d->kind = *kind;
    d->source = lk__strdup(source);
    if (!d->source) {
        destroy(d);
        return LK_ERR_MEMORY;
    }
    *dataset = d;
    return LK_OK;
}

static int64_t limited(int64_t count, int64_t limit)
{
    return limit > 0 && limit < count ? limit : count;
}

static lk_status check_labels(const lk_dataset *dataset, const char *path)
{
    const uint8_t *labels = dataset->label_file.data;
    for (int64_t i = 0; i < dataset->label_file.dim[0]; i++)
        if (labels[i] >= dataset->kind.classes)
            LK_FAIL(LK_ERR_FORMAT, "%s: sample %" PRId64 " has label %d, expected 0 to %" PRId64, path, i, labels[i],
                    dataset->kind.classes - 1);
    return LK_OK;
}

static lk_status read_files(lk_dataset *dataset, const char *images_path, const char *labels_path)
{
    lk__idx *images = &dataset->image_file;
    lk__idx *labels = &dataset->label_file;
    LK_TRY(lk__idx_open(images_path, 3, 4, images));
    LK_TRY(lk__idx_open(labels_path, 1, 1, labels));
    if (images->dim[0] != labels->dim[0])
        LK_FAIL(LK_ERR_FORMAT, "%s holds %" PRId64 " images, but %s holds %" PRId64 " labels: expected equal counts",
                images_path, images->dim[0], labels_path, labels->dim[0]);
    LK_TRY(check_labels(dataset, labels_path));
    dataset->count = images->dim[0];
    dataset->channels = images->dims == 4 ? images->dim[1] : 1;
    dataset->height = images->dim[images->dims - 2];
    dataset->width = images->dim[images->dims - 1];
    dataset->images = images->data;
    dataset->labels = labels->data;
    return LK_OK;
}

lk_status lk__dataset_from_idx(const lk__dataset_kind *kind, const char *images_path, const char *labels_path,
                               int64_t limit, lk_dataset **dataset)
{
    lk_dataset *d;
    LK_TRY(dataset_new(kind, images_path, &d));
    lk_status status = read_files(d, images_path, labels_path);
    if (status != LK_OK) {
        destroy(d);
        return status;
    }
    d->count = limited(d->count, limit);
    *dataset = d;
    return LK_OK;
}

lk_status lk__dataset_generate(const lk__dataset_kind *kind, lk_split split, int64_t limit, lk_dataset **dataset)
{
    lk_dataset *d;
    LK_TRY(dataset_new(kind, "generated", &d));
    d->count = limited(lk__synthetic_count(split), limit);
    d->channels = 1;
    d->height = d->width = LK__SYNTHETIC_SIZE;
    lk_status status = LK_ERR_MEMORY;
    d->generated = lk__alloc_aligned((size_t)d->count * (LK__SYNTHETIC_PIXELS + 1));
    if (d->generated) {
        uint8_t *labels = d->generated + d->count * LK__SYNTHETIC_PIXELS;
        d->images = d->generated;
        d->labels = labels;
        status = lk__synthetic_generate(split, d->count, d->generated, labels);
    }
    if (status != LK_OK) {
        destroy(d);
        return status;
    }
    *dataset = d;
    return LK_OK;
}

lk_status lk_dataset_open_idx(const char *images_path, const char *labels_path, int64_t classes, int64_t limit,
                              lk_dataset **dataset)
{
    *dataset = NULL;
    if (!images_path || !labels_path)
        LK_FAIL(LK_ERR_ARGUMENT, "an IDX data set needs the paths of its images and of its labels");
    if (classes < 1 || classes > 256)
        LK_FAIL(LK_ERR_ARGUMENT, "%" PRId64 " classes: expected 1 to 256, labels being bytes", classes);
    const lk__dataset_kind kind = {.name = "idx", .classes = classes};
    return lk__dataset_from_idx(&kind, images_path, labels_path, limit, dataset);
}

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
    return dataset->channels;
}

int64_t lk_dataset_height(const lk_dataset *dataset)
{
    return dataset->height;
}

int64_t lk_dataset_width(const lk_dataset *dataset)
{
    return dataset->width;
}

int64_t lk_dataset_classes(const lk_dataset *dataset)
{
    return dataset->kind.classes;
}

const uint8_t *lk_dataset_images(const lk_dataset *dataset)
{
    return dataset->images;
}

const uint8_t *lk_dataset_labels(const lk_dataset *dataset)
{
    return dataset->labels;
}

int64_t lk__dataset_empty_classes(const lk_dataset *dataset, bool whole, int64_t *first)
{
    bool has[UINT8_MAX + 1] = {false};
    int64_t count = whole ? dataset->label_file.dim[0] : dataset->count, empty = 0;
    if (whole && dataset->generated) /* no more than the limit is in memory; the whole has all classes in turn */
        return 0;
    for (int64_t i = 0; i < count; i++)
        has[dataset->labels[i]] = true;
    for (int64_t label = dataset->kind.classes - 1; label >= 0; label--) {
        if (has[label])
            continue;
        empty++;
        *first = label;
    }
    return empty;
}

const char *lk_dataset_class_name(const lk_dataset *dataset, int64_t label)
{
    if (!dataset->kind.class_names || label < 0 || label >= dataset->kind.classes)
        return NULL;
    return dataset->kind.class_names[label];
}

const char *lk_dataset_name(const lk_dataset *dataset)
{
    return dataset->kind.name;
}

const char *lk_dataset_source(const lk_dataset *dataset)
{
    return dataset->source;
}
