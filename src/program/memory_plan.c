/* Places for the values inside a program: offsets into one block of memory, such that values needed at the same time do
 * not overlap. Larger ones first, each at the lowest gap that takes it ("greedy by size": Pisarchyk, Lee, "Efficient
 * Memory Management for Deep Neural Net Inference", 2020). */
#include "program/program.h"

#include "base/mem.h"
#include "core/allocator.h"
#include "lockstep/tensor.h"

#include <stdlib.h>

static size_t round_up(size_t bytes)
{
    return (bytes + LK_ALIGNMENT - 1) / LK_ALIGNMENT * LK_ALIGNMENT;
}

static bool is_placed(const lk_value *value)
{
    return value->kind == LK_VALUE_INSIDE && value->storage->used > 0;
}

/* Larger first; of equal ones the earlier. */
static int by_size(const void *a, const void *b)
{
    const lk_value *left = *(lk_value *const *)a, *right = *(lk_value *const *)b;
    if (left->bytes != right->bytes)
        return left->bytes < right->bytes ? 1 : -1;
    return left < right ? -1 : left > right;
}

static int by_offset(const void *a, const void *b)
{
    const lk_value *left = *(lk_value *const *)a, *right = *(lk_value *const *)b;
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

static bool are_needed_together(const lk_value *a, const lk_value *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest offset at which `value` overlaps none of placed[0 … n), which are in the order of their offsets. */
static size_t lowest_gap(const lk_value *value, lk_value *const *placed, int n)
{
    size_t offset = 0;
    for (int i = 0; i < n; i++) {
        if (!are_needed_together(value, placed[i]))
            continue;
        if (placed[i]->offset >= offset + value->bytes)
            break;
        size_t end = placed[i]->offset + placed[i]->bytes;
        offset = end > offset ? end : offset;
    }
    return offset;
}

static size_t place(lk_value **values, int n)
{
    size_t end = 0;
    qsort(values, (size_t)n, sizeof *values, by_size);
    for (int i = 0; i < n; i++) {
        values[i]->offset = lowest_gap(values[i], values, i);
        if (values[i]->offset + values[i]->bytes > end)
            end = values[i]->offset + values[i]->bytes;
        qsort(values, (size_t)i + 1, sizeof *values, by_offset);
    }
    return end;
}

/* What is needed at the worst moment, however it is placed: no plan can be smaller. */
static size_t peak_of(lk_value *const *values, int n, int calls)
{
    size_t peak = 0;
    for (int call = 0; call < calls; call++) {
        size_t now = 0;
        for (int i = 0; i < n; i++)
            if (values[i]->first <= call && call <= values[i]->last)
                now += values[i]->bytes;
        peak = now > peak ? now : peak;
    }
    return peak;
}

lk_status lk__program_plan_memory(lk_program *program)
{
    int n = 0;
    lk_value **values = lk__calloc((size_t)program->n_values, sizeof *values);
    if (!values)
        return LK_ERR_MEMORY;
    program->sum_bytes = 0;
    for (int i = 0; i < program->n_values; i++) {
        lk_value *value = &program->values[i];
        if (!is_placed(value))
            continue;
        value->bytes = round_up(value->storage->used);
        program->sum_bytes += value->bytes;
        values[n++] = value;
    }
    program->peak_bytes = peak_of(values, n, program->n_calls);
    program->plan_bytes = place(values, n);
    lk__free(values);
    return LK_OK;
}
