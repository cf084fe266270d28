/* Finds images that two data sets share. */
#include "base/mem.h"
#include "lockstep/data.h"

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

static size_t duplicates_image_bytes(const lk_dataset *dataset)
{
    return (size_t)(lk_dataset_channels(dataset) * lk_dataset_height(dataset) * lk_dataset_width(dataset));
}

static const uint8_t *duplicates_image_at(const lk_dataset *dataset, int64_t index)
{
    return lk_dataset_images(dataset) + (size_t)index * duplicates_image_bytes(dataset);
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

/* Returns the lowest index of an equal image, or -1. Different images may have equal hashes, so bytes are compared. */
static int64_t duplicates_find_image(const lk_dataset *in, const entry *entries, const uint8_t *image)
{
    int64_t count = lk_dataset_count(in);
    uint64_t hash = XXH3_64bits(image, duplicates_image_bytes(in));
    for (int64_t i = duplicates_lower_bound(entries, count, hash); i < count && entries[i].hash == hash; i++)
        if (memcmp(duplicates_image_at(in, entries[i].index), image, duplicates_image_bytes(in)) == 0)
            return entries[i].index;
    return -1;
}

static bool duplicates_same_shape(const lk_dataset *a, const lk_dataset *b)
{
    return lk_dataset_channels(a) == lk_dataset_channels(b) && lk_dataset_height(a) == lk_dataset_height(b) &&
           lk_dataset_width(a) == lk_dataset_width(b);
}

lk_status lk_dataset_find_equal(const lk_dataset *dataset, const lk_dataset *in, int64_t *equals)
{
    int64_t count = lk_dataset_count(dataset), n = lk_dataset_count(in);
    for (int64_t i = 0; i < count; i++)
        equals[i] = -1;
    if (!duplicates_same_shape(dataset, in))
        return LK_OK;
    entry *entries = lk__calloc((size_t)n + 1, sizeof *entries);
    if (!entries)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        entries[i] = (entry){XXH3_64bits(duplicates_image_at(in, i), duplicates_image_bytes(in)), i};
    qsort(entries, (size_t)n, sizeof *entries, duplicates_compare_hashes);
    for (int64_t i = 0; i < count; i++)
        equals[i] = duplicates_find_image(in, entries, duplicates_image_at(dataset, i));
    lk__free(entries);
    return LK_OK;
}
