#include "data/samples.h"

#include "base/mem.h"
#include "base/status.h"
#include "data/byte_source.h"

#include <inttypes.h>
#include <string.h>

void lk__samples_free(lk__samples *samples)
{
    lk__idx_close(&samples->image_file);
    lk__idx_close(&samples->label_file);
    lk__byte_source_unmap(samples->mapping, samples->mapping_size);
    lk__free_aligned(samples->memory);
    lk__names_free(&samples->class_names);
    lk__names_free(&samples->files);
    *samples = (lk__samples){0};
}

static int64_t values_of(const lk__samples *samples)
{
    return samples->channels * samples->height * samples->width;
}

lk_status lk__samples_allocate(lk__samples *samples, int64_t count, uint8_t **label_memory)
{
    int64_t bytes;
    if (!lk__mul_i64(count, values_of(samples) + 1, &bytes) || bytes > PTRDIFF_MAX)
        LK_FAIL(LK_ERR_MEMORY, "out of memory: %" PRId64 " samples exceed the address space", count);
    samples->memory = lk__alloc_aligned(bytes ? (size_t)bytes : 1);
    if (!samples->memory)
        return LK_ERR_MEMORY;
    samples->count = count;
    samples->images = samples->memory;
    *label_memory = samples->memory + count * values_of(samples);
    samples->labels = *label_memory;
    return LK_OK;
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

lk_status lk__samples_make_room(lk__samples *samples, lk__samples_room *room)
{
    if (samples->count < room->capacity)
        return LK_OK;
    lk__samples larger = {.channels = samples->channels, .height = samples->height, .width = samples->width};
    int64_t capacity = room->capacity ? 2 * room->capacity : 1024;
    uint8_t *labels;
    LK_TRY(lk__samples_allocate(&larger, capacity, &labels));
    if (samples->count) {
        memcpy(larger.memory, samples->memory, (size_t)(samples->count * values_of(samples)));
        memcpy(labels, room->labels, (size_t)samples->count);
    }
    larger.count = samples->count;
    lk__samples_adopt(samples, &larger);
    *room = (lk__samples_room){labels, capacity};
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
    uint8_t *labels;
    LK_TRY(lk__samples_allocate(&made, count, &labels));
    int64_t values = values_of(samples);
    for (int64_t i = 0; i < count; i++) {
        memcpy(made.memory + i * values, samples->images + indices[i] * values, (size_t)values);
        labels[i] = samples->labels[indices[i]];
    }
    lk__samples_adopt(samples, &made);
    return LK_OK;
}

/* Of a class's samples those that come first in an order of the class's own: at least one, where there are two. */
static lk_status hold_out_of_class(const uint8_t *labels, int64_t count, int label, double share, int64_t *scratch,
                                   uint8_t *held)
{
    int64_t *order = scratch, *members = scratch + count, n = 0;
    for (int64_t i = 0; i < count; i++)
        if (labels[i] == label)
            members[n++] = i;
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

lk_status lk__held_out(const uint8_t *labels, int64_t count, double share, lk_split split, int64_t *indices,
                       int64_t *chosen)
{
    int64_t *scratch = lk__calloc((size_t)count, 2 * sizeof *scratch);
    uint8_t *held = lk__calloc((size_t)count, 1);
    lk_status status = scratch && held ? LK_OK : LK_ERR_MEMORY;
    for (int label = 0; status == LK_OK && label <= UINT8_MAX; label++)
        status = hold_out_of_class(labels, count, label, share, scratch, held);
    *chosen = 0;
    for (int64_t i = 0; status == LK_OK && i < count; i++)
        if (held[i] == (split == LK_SPLIT_TEST))
            indices[(*chosen)++] = i;
    lk__free(scratch);
    lk__free(held);
    return status;
}
