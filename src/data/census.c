/* What a data set is made of: how many of each class, and which images there are twice. */
#include "base/mem.h"
#include "lockstep/data.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void lk_dataset_class_counts(const lk_dataset *dataset, int64_t *counts)
{
    memset(counts, 0, (size_t)lk_dataset_classes(dataset) * sizeof *counts);
    const int32_t *labels = lk_dataset_labels(dataset);
    for (int64_t i = 0; i < lk_dataset_count(dataset); i++)
        counts[labels[i]]++;
}

typedef struct entry {
    uint64_t sum;
    int64_t index;
} entry;

static int by_sum(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->sum != y->sum)
        return x->sum < y->sum ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static size_t image_bytes(const lk_dataset *dataset)
{
    return (size_t)(lk_dataset_channels(dataset) * lk_dataset_height(dataset) * lk_dataset_width(dataset));
}

static const uint8_t *image_at(const lk_dataset *dataset, int64_t index)
{
    return lk_dataset_images(dataset) + (size_t)index * image_bytes(dataset);
}

/* The first entry whose sum is not below. */
static int64_t lower_bound(const entry *entries, int64_t count, uint64_t sum)
{
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (entries[middle].sum < sum)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Equal sums say where to look; bytes decide. */
static int64_t find(const lk_dataset *in, const entry *entries, const uint8_t *image)
{
    int64_t count = lk_dataset_count(in);
    uint64_t sum = XXH3_64bits(image, image_bytes(in));
    for (int64_t i = lower_bound(entries, count, sum); i < count && entries[i].sum == sum; i++)
        if (memcmp(image_at(in, entries[i].index), image, image_bytes(in)) == 0)
            return entries[i].index;
    return -1;
}

static bool same_shape(const lk_dataset *a, const lk_dataset *b)
{
    return lk_dataset_channels(a) == lk_dataset_channels(b) && lk_dataset_height(a) == lk_dataset_height(b) &&
           lk_dataset_width(a) == lk_dataset_width(b);
}

lk_status lk_dataset_find_equal(const lk_dataset *dataset, const lk_dataset *in, int64_t *equals)
{
    int64_t count = lk_dataset_count(dataset), n = lk_dataset_count(in);
    for (int64_t i = 0; i < count; i++)
        equals[i] = -1;
    if (!same_shape(dataset, in))
        return LK_OK;
    entry *entries = lk__calloc((size_t)n + 1, sizeof *entries);
    if (!entries)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        entries[i] = (entry){XXH3_64bits(image_at(in, i), image_bytes(in)), i};
    qsort(entries, (size_t)n, sizeof *entries, by_sum);
    for (int64_t i = 0; i < count; i++)
        equals[i] = find(in, entries, image_at(dataset, i));
    lk__free(entries);
    return LK_OK;
}
