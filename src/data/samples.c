#include "data/samples.h"

#include "base/float_env.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "data/formats/byte_source.h"
#include "data/names.h"

#include <inttypes.h>
#include <string.h>

void lk__samples_free(lk_samples *samples)
{
    lk__idx_close(&samples->image_file);
    lk__byte_source_unmap(samples->mapping, samples->mapping_size);
    lk__free_aligned(samples->memory);
    lk__free_aligned(samples->labels);
    lk__names_free(&samples->class_names);
    lk__names_free(&samples->files);
    *samples = (lk_samples){0};
}

static int64_t samples_image_values(const lk_samples *samples)
{
    return samples->channels * samples->height * samples->width;
}

lk_status lk__samples_allocate_labels(lk_samples *samples, int64_t count)
{
    size_t bytes;
    bool fits = lk__mul_size((size_t)count, sizeof *samples->labels, &bytes);
    samples->labels = fits ? lk__alloc_aligned(bytes ? bytes : 1) : NULL;
    return samples->labels ? LK_OK : LK_ERR_MEMORY;
}

lk_status lk__samples_allocate_images(lk_samples *samples, int64_t count)
{
    int64_t bytes;
    if (!lk__mul_i64(count, samples_image_values(samples), &bytes) || bytes > PTRDIFF_MAX)
        LK_FAIL(LK_ERR_MEMORY, "out of memory: %" PRId64 " samples exceed the address space", count);
    samples->images = samples->memory = lk__alloc_aligned(bytes ? (size_t)bytes : 1);
    return samples->memory ? LK_OK : LK_ERR_MEMORY;
}

lk_status lk__samples_allocate(lk_samples *samples, int64_t count)
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

void lk__samples_adopt(lk_samples *samples, lk_samples *made)
{
    lk_names class_names = samples->class_names, files = samples->files;
    made->classes = samples->classes;
    made->generated = samples->generated;
    samples->class_names = samples->files = (lk_names){0};
    lk__samples_free(samples);
    *samples = *made;
    samples->class_names = class_names;
    samples->files = files;
}

lk_status lk__samples_reserve(lk_samples *samples, int64_t *capacity)
{
    if (samples->count < *capacity)
        return LK_OK;
    lk_samples larger = {.channels = samples->channels, .height = samples->height, .width = samples->width};
    int64_t doubled = *capacity ? 2 * *capacity : 1024;
    LK_TRY(lk__samples_allocate(&larger, doubled));
    if (samples->count) {
        memcpy(larger.memory, samples->memory, (size_t)(samples->count * samples_image_values(samples)));
        memcpy(larger.labels, samples->labels, (size_t)samples->count * sizeof *samples->labels);
    }
    larger.count = samples->count;
    lk__samples_adopt(samples, &larger);
    *capacity = doubled;
    return LK_OK;
}

lk_status lk__samples_check_labels(const lk_samples *samples, const char *source)
{
    for (int64_t i = 0; i < samples->count; i++)
        if (samples->labels[i] >= samples->classes)
            LK_FAIL(LK_ERR_FORMAT, "%s: sample %" PRId64 " has label %d, expected 0 to %" PRId64, source, i,
                    samples->labels[i], samples->classes - 1);
    return LK_OK;
}

/* --- the validation set ------------------------------------------------------------------------------------------- */

lk_status lk__samples_select(lk_samples *samples, const int64_t *indices, int64_t count)
{
    lk_samples made = {.channels = samples->channels, .height = samples->height, .width = samples->width};
    LK_TRY(lk__samples_allocate(&made, count));
    int64_t values = samples_image_values(samples);
    for (int64_t i = 0; i < count; i++) {
        memcpy(made.memory + i * values, samples->images + indices[i] * values, (size_t)values);
        made.labels[i] = samples->labels[indices[i]];
    }
    lk__samples_adopt(samples, &made);
    return LK_OK;
}

/* Lists the samples class by class: members[0 … end[0]) are those of class 0, ascending, members[end[0] … end[1]) those
 * of class 1, and so on. */
static void samples_sort_by_class(const int32_t *labels, int64_t count, int64_t classes, int64_t *members, int64_t *end)
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

/* Marks the samples of a class that are held out: the first ones in a random order keyed by the class. A class with two
 * samples or more has at least one held out and one kept. */
static lk_status samples_hold_out_class(int64_t label, const int64_t *members, int64_t n, double share, int64_t *order,
                                        uint8_t *held)
{
    int64_t wanted = n < 2 ? 0 : lk__min(lk__max((int64_t)(share * (double)n + 0.5), 1), n - 1);
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
        samples_sort_by_class(labels, count, LK_MAX_CLASSES, members, end);
    fenv_t callers = lk__float_begin();
    for (int64_t label = 0, begin = 0; status == LK_OK && label < LK_MAX_CLASSES; begin = end[label++])
        status = samples_hold_out_class(label, members + begin, end[label] - begin, share, order, held);
    lk__float_end(&callers);
    *chosen = 0;
    for (int64_t i = 0; status == LK_OK && i < count; i++)
        if (held[i] == (split == LK_SPLIT_TEST))
            indices[(*chosen)++] = i;
    LK_FREE_ALL(members, order, end, held);
    return status;
}
