#include "data/samples.h"

#include "base/mem.h"
#include "base/status.h"
#include "data/byte_source.h"

#include <inttypes.h>
#include <string.h>

void lk__samples_free(lk__samples *samples)
{
    lk__idx_close(&samples->image_file);
    lk__byte_source_unmap(samples->mapping, samples->mapping_size);
    lk__free_aligned(samples->memory);
    lk__free_aligned(samples->labels);
    lk__names_free(&samples->class_names);
    lk__names_free(&samples->files);
    *samples = (lk__samples){0};
}

static int64_t values_of(const lk__samples *samples)
{
    return samples->channels * samples->height * samples->width;
}

lk_status lk__samples_allocate_labels(lk__samples *samples, int64_t count)
{
    size_t bytes;
    bool fits = lk__mul_size((size_t)count, sizeof *samples->labels, &bytes);
    samples->labels = fits ? lk__alloc_aligned(bytes ? bytes : 1) : NULL;
    return samples->labels ? LK_OK : LK_ERR_MEMORY;
}

lk_status lk__samples_allocate_images(lk__samples *samples, int64_t count)
{
    int64_t bytes;
    if (!lk__mul_i64(count, values_of(samples), &bytes) || bytes > PTRDIFF_MAX)
        LK_FAIL(LK_ERR_MEMORY, "out of memory: %" PRId64 " samples exceed the address space", count);
    samples->images = samples->memory = lk__alloc_aligned(bytes ? (size_t)bytes : 1);
    return samples->memory ? LK_OK : LK_ERR_MEMORY;
}

lk_status lk__samples_allocate(lk__samples *samples, int64_t count)
{
    LK_TRY(lk__samples_allocate_labels(samples, count));
    lk_status status = lk__samples_allocate_images(samples, count);
    samples->count = status == LK_OK ? count : 0;
    if (status != LK_OK) {
        lk__free_aligned(samples->labels);
        samples->labels = NULL;
    }
    return status;
}

void lk__samples_adopt(lk__samples *samples, lk__samples *made)
{
    lk__names class_names = samples->class_names, files = samples->files;
    made->classes = samples->classes;
    samples->class_names = samples->files = (lk__names){0};
    lk__samples_free(samples);
    *samples = *made;
    samples->class_names = class_names;
    samples->files = files;
}

lk_status lk__samples_make_room(lk__samples *samples, int64_t *capacity)
{
    if (samples->count < *capacity)
        return LK_OK;
    lk__samples larger = {.channels = samples->channels, .height = samples->height, .width = samples->width};
    int64_t room = *capacity ? 2 * *capacity : 1024;
    LK_TRY(lk__samples_allocate(&larger, room));
    if (samples->count) {
        memcpy(larger.memory, samples->memory, (size_t)(samples->count * values_of(samples)));
        memcpy(larger.labels, samples->labels, (size_t)samples->count * sizeof *samples->labels);
    }
    larger.count = samples->count;
    lk__samples_adopt(samples, &larger);
    *capacity = room;
    return LK_OK;
}

lk_status lk__samples_check_labels(const lk__samples *samples, const char *source)
{
    for (int64_t i = 0; i < samples->count; i++)
        if (samples->labels[i] >= samples->classes)
            LK_FAIL(LK_ERR_FORMAT, "%s: sample %" PRId64 " has label %d, expected 0 to %" PRId64, source, i,
                    samples->labels[i], samples->classes - 1);
    return LK_OK;
}

/* --- the validation set ------------------------------------------------------------------------------------------- */

lk_status lk__samples_select(lk__samples *samples, const int64_t *indices, int64_t count)
{
    lk__samples made = {.channels = samples->channels, .height = samples->height, .width = samples->width};
    LK_TRY(lk__samples_allocate(&made, count));
    int64_t values = values_of(samples);
    for (int64_t i = 0; i < count; i++) {
        memcpy(made.memory + i * values, samples->images + indices[i] * values, (size_t)values);
        made.labels[i] = samples->labels[indices[i]];
    }
    lk__samples_adopt(samples, &made);
    return LK_OK;
}

/* members[0 … end[0]) are the samples of class 0, ascending, members[end[0] … end[1]) those of class 1, and so on. */
static void sort_by_class(const int32_t *labels, int64_t count, int64_t classes, int64_t *members, int64_t *end)
{
    for (int64_t i = 0; i < count; i++)
        end[labels[i]]++;
    for (int64_t label = 0, begin = 0; label < classes; label++) {
        int64_t n = end[label];
        end[label] = begin;
        begin += n;
    }
    for (int64_t i = 0; i < count; i++)
        members[end[labels[i]]++] = i;
}

/* Of a class's samples those that come first in an order of the class's own: at least one, where there are two. */
static lk_status hold_out_of_class(int64_t label, const int64_t *members, int64_t n, double share, int64_t *order,
                                   uint8_t *held)
{
    int64_t wanted = (int64_t)(share * (double)n + 0.5);
    if (n >= 2)
        wanted = wanted < 1 ? 1 : wanted >= n ? n - 1 : wanted;
    else
        wanted = 0;
    LK_TRY(lk_sample_order(n, (uint64_t)label, 0, true, order));
    for (int64_t i = 0; i < wanted; i++)
        held[members[order[i]]] = 1;
    return LK_OK;
}

lk_status lk__held_out(const int32_t *labels, int64_t count, double share, lk_split split, int64_t *indices,
                       int64_t *chosen)
{
    int64_t *members = lk__calloc((size_t)count, sizeof *members);
    int64_t *order = lk__calloc((size_t)count, sizeof *order);
    int64_t *end = lk__calloc(LK_MAX_CLASSES, sizeof *end);
    uint8_t *held = lk__calloc((size_t)count, 1);
    lk_status status = members && order && end && held ? LK_OK : LK_ERR_MEMORY;
    if (status == LK_OK)
        sort_by_class(labels, count, LK_MAX_CLASSES, members, end);
    for (int64_t label = 0, begin = 0; status == LK_OK && label < LK_MAX_CLASSES; begin = end[label++])
        status = hold_out_of_class(label, members + begin, end[label] - begin, share, order, held);
    *chosen = 0;
    for (int64_t i = 0; status == LK_OK && i < count; i++)
        if (held[i] == (split == LK_SPLIT_TEST))
            indices[(*chosen)++] = i;
    lk__free(members);
    lk__free(order);
    lk__free(end);
    lk__free(held);
    return status;
}
