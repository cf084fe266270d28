/* Finds images that two data sets share. */
#include "base/mem.h"
#include "base/status.h"
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* An image of the data set that is searched. */
typedef struct entry {
    uint64_t hash;
    int64_t index;
} entry;

static int duplicates_compare_hashes(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Two data sets: as bytes, or as floats unless both have bytes. */
typedef struct pair {
    const lk_dataset *dataset, *in;
    size_t bytes;     /* of an image */
    float *memory[2]; /* for an image of each; NULL: images are bytes */
} pair;

/* Sets *image to an image of `in` or, without `of_in`, of `dataset`, valid until the next call for the same set. */
static lk_status duplicates_image(const pair *p, bool of_in, int64_t index, const void **image)
{
    const lk_dataset *dataset = of_in ? p->in : p->dataset;
    float *memory = p->memory[of_in];
    *image = memory ? (const void *)memory : lk_dataset_images(dataset) + (size_t)index * p->bytes;
    return memory ? lk_dataset_read(dataset, index, memory) : LK_OK;
}

/* Returns the index of the first entry whose hash is at least `hash`. */
static int64_t duplicates_lower_bound(const entry *entries, int64_t count, uint64_t hash)
{
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (entries[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* *found: the lowest index of an equal image, or -1. Different images may have equal hashes, so bytes are compared. */
static lk_status duplicates_find_image(const pair *p, const entry *entries, int64_t index, int64_t *found)
{
    int64_t count = lk_dataset_count(p->in);
    const void *image, *other;
    *found = -1;
    LK_TRY(duplicates_image(p, false, index, &image));
    uint64_t hash = XXH3_64bits(image, p->bytes);
    for (int64_t i = duplicates_lower_bound(entries, count, hash); i < count && entries[i].hash == hash && *found < 0;
         i++) {
        LK_TRY(duplicates_image(p, true, entries[i].index, &other));
        if (memcmp(other, image, p->bytes) == 0)
            *found = entries[i].index;
    }
    return LK_OK;
}

static lk_status duplicates_search(const pair *p, entry *entries, int64_t *equals)
{
    int64_t n = lk_dataset_count(p->in);
    const void *image;
    for (int64_t i = 0; i < n; i++) {
        LK_TRY(duplicates_image(p, true, i, &image));
        entries[i] = (entry){XXH3_64bits(image, p->bytes), i};
    }
    qsort(entries, (size_t)n, sizeof *entries, duplicates_compare_hashes);
    for (int64_t i = 0; i < lk_dataset_count(p->dataset); i++)
        LK_TRY(duplicates_find_image(p, entries, i, &equals[i]));
    return LK_OK;
}

static bool duplicates_same_shape(const lk_dataset *a, const lk_dataset *b)
{
    return lk_dataset_channels(a) == lk_dataset_channels(b) && lk_dataset_height(a) == lk_dataset_height(b) &&
           lk_dataset_width(a) == lk_dataset_width(b);
}

lk_status lk_dataset_find_equal(const lk_dataset *dataset, const lk_dataset *in, int64_t *equals)
{
    for (int64_t i = 0; i < lk_dataset_count(dataset); i++)
        equals[i] = -1;
    if (!duplicates_same_shape(dataset, in))
        return LK_OK;
    bool floats = !lk_dataset_images(dataset) || !lk_dataset_images(in);
    size_t values = (size_t)lk__dataset_image_values(dataset);
    float *memory = floats ? lk__calloc(values, 2 * sizeof *memory) : NULL;
    entry *entries = lk__calloc((size_t)lk_dataset_count(in) + 1, sizeof *entries);
    pair p = {.dataset = dataset, .in = in, .bytes = floats ? values * sizeof *memory : values};
    if (memory) {
        p.memory[0] = memory;
        p.memory[1] = memory + values;
    }
    lk_status status = entries && (memory || !floats) ? duplicates_search(&p, entries, equals) : LK_ERR_MEMORY;
    lk__free(entries);
    lk__free(memory);
    return status;
}
