/* Slots for the values inside a program: offsets into one block of memory, such that slots needed at the same time do
 * not overlap. Larger slots come first, each at the lowest gap that takes it ("greedy by size": Pisarchyk, Lee,
 * "Efficient Memory Management for Deep Neural Net Inference", 2020). A value has its own slot, or takes over that of
 * an operand of the call that makes it, if that call is the last to need the operand. */
#include "program/memory_plan.h"
#include "base/mem.h"
#include "core/backend.h"
#include "program/branches.h"
#include "program/in_place.h"
#include "program/program.h"

#include <stdlib.h>
#include <string.h>

/* Needed from call `first` to call `last`; if calls of other branches run at the same time, from `wide_first` to
 * `wide_last`. */
typedef struct slot {
    size_t bytes, offset;
    int first, last;
    int wide_first, wide_last;
    int branch;            /* of the values in the slot */
    const lk_value *holds; /* the last value in the slot */
} slot;

typedef struct planning {
    lk_program *program;
    slot *slots; /* [n_values] */
    int n;
    slot **order;                            /* [n_values] */
    int *first_concurrent, *last_concurrent; /* [n_calls] */
    int64_t *change;                         /* [n_calls + 2] */
} planning;

/* --- which value is in which slot --------------------------------------------------------------------------------- */

static bool memory_plan_needs_slot(const lk_value *value)
{
    return value->kind != LK_VALUE_OUTSIDE && value->bytes > 0;
}

/* Returns the slot that `value` may take over: that of an operand of the same size which is last needed by the call
 * that makes `value`, and at that time by no other branch. NULL: none. */
static slot *memory_plan_slot_to_reuse(const lk_program *program, slot *slots, const lk_value *value)
{
    int call = value->first;
    for (int d = program->first_dying[call]; d < program->first_dying[call + 1]; d++) {
        const lk_value *dying = &program->values[program->dying[d]];
        if (!memory_plan_needs_slot(dying) || dying->first >= call || dying->bytes != value->bytes ||
            dying->branch != value->branch || dying->branch == LK_SEVERAL_BRANCHES)
            continue;
        slot *its = &slots[dying->slot];
        if (its->holds == dying && lk__call_may_replace(&program->calls[call], dying->storage, value->storage))
            return its;
    }
    return NULL;
}

/* Values are visited in the order in which calls use them, so operands come before results. */
static void memory_plan_find_slots(planning *p)
{
    lk_program *program = p->program;
    slot *slots = p->slots;
    for (int i = 0; i < program->n_values; i++) {
        lk_value *value = &program->values[i];
        if (!memory_plan_needs_slot(value))
            continue;
        slot *its = value->kind == LK_VALUE_INSIDE ? memory_plan_slot_to_reuse(program, slots, value) : NULL;
        if (!its) {
            its = &slots[p->n++];
            *its = (slot){.bytes = value->bytes, .first = value->first, .branch = value->branch};
        }
        its->last = value->kind == LK_VALUE_OUTPUT ? program->n_calls - 1 : value->last;
        its->holds = value;
        value->slot = (int)(its - slots);
    }
    lk__program_find_concurrent(program, p->first_concurrent, p->last_concurrent);
    for (int i = 0; i < p->n; i++) {
        slots[i].wide_first = p->first_concurrent[slots[i].first];
        slots[i].wide_last = p->last_concurrent[slots[i].last];
    }
}

/* --- where the slots are ------------------------------------------------------------------------------------------ */

/* Larger slots come first; of equal ones the earlier. */
static int memory_plan_compare_sizes(const void *a, const void *b)
{
    const slot *left = *(slot *const *)a, *right = *(slot *const *)b;
    if (left->bytes != right->bytes)
        return left->bytes < right->bytes ? 1 : -1;
    return left < right ? -1 : left > right;
}

/* Calls of one branch, and calls outside branches, run in order among themselves. */
static bool memory_plan_slots_conflict(const slot *a, const slot *b)
{
    if (a->branch == b->branch && a->branch != LK_SEVERAL_BRANCHES)
        return a->first <= b->last && b->first <= a->last;
    return a->wide_first <= b->wide_last && b->wide_first <= a->wide_last;
}

/* Returns the lowest offset at which `it` overlaps none of placed[0 … n), which are sorted by offset. */
static size_t memory_plan_lowest_gap(const slot *it, slot *const *placed, int n)
{
    size_t offset = 0;
    for (int i = 0; i < n; i++) {
        if (!memory_plan_slots_conflict(it, placed[i]))
            continue;
        if (placed[i]->offset >= offset + it->bytes)
            break;
        size_t end = placed[i]->offset + placed[i]->bytes;
        offset = end > offset ? end : offset;
    }
    return offset;
}

/* Inserts `it` into placed[0 … n), which are sorted by offset, after those of the same offset. */
static void memory_plan_insert(slot *it, slot **placed, int n)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (placed[middle]->offset <= it->offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(placed + low + 1, placed + low, (size_t)(n - low) * sizeof *placed);
    placed[low] = it;
}

static size_t memory_plan_lay_out(slot **slots, int n)
{
    size_t end = 0;
    qsort(slots, (size_t)n, sizeof *slots, memory_plan_compare_sizes);
    for (int i = 0; i < n; i++) {
        slot *it = slots[i];
        it->offset = memory_plan_lowest_gap(it, slots, i);
        if (it->offset + it->bytes > end)
            end = it->offset + it->bytes;
        memory_plan_insert(it, slots, i);
    }
    return end;
}

/* Returns the bytes needed at the worst moment, wherever they lie: no plan can be smaller. */
static size_t memory_plan_peak(const planning *p)
{
    size_t now = 0, peak = 0;
    for (int i = 0; i < p->n; i++) {
        p->change[p->slots[i].wide_first] += (int64_t)p->slots[i].bytes;
        p->change[p->slots[i].wide_last + 1] -= (int64_t)p->slots[i].bytes;
    }
    for (int call = 0; call < p->program->n_calls; call++) {
        now += (size_t)p->change[call];
        peak = now > peak ? now : peak;
    }
    return peak;
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* Inputs and outputs have slots only if the device can make graphs: see run.c. */
static size_t memory_plan_value_bytes(const lk_program *program, const lk_value *value, bool by_shapes)
{
    bool is_given = value->kind == LK_VALUE_INPUT || value->kind == LK_VALUE_OUTPUT;
    if (value->kind == LK_VALUE_INSIDE)
        return by_shapes ? value->storage->bytes : value->storage->used;
    return is_given && program->device->backend->graphs ? value->storage->bytes : 0;
}

static size_t memory_plan_measure(lk_program *program, bool by_shapes)
{
    size_t sum = 0;
    for (int i = 0; i < program->n_values; i++) {
        lk_value *value = &program->values[i];
        value->bytes = lk__aligned_bytes(memory_plan_value_bytes(program, value, by_shapes));
        sum += value->bytes;
    }
    return sum;
}

static void memory_plan_make(planning *p, bool by_shapes)
{
    lk_program *program = p->program;
    program->sum_bytes = memory_plan_measure(program, by_shapes);
    memory_plan_find_slots(p);
    for (int i = 0; i < p->n; i++)
        p->order[i] = &p->slots[i];
    program->peak_bytes = memory_plan_peak(p);
    program->plan_bytes = memory_plan_lay_out(p->order, p->n);
    for (int i = 0; i < program->n_values; i++)
        if (memory_plan_needs_slot(&program->values[i]))
            program->values[i].offset = p->slots[program->values[i].slot].offset;
}

lk_status lk__program_plan_memory(lk_program *program, bool by_shapes)
{
    size_t values = (size_t)program->n_values, calls = (size_t)program->n_calls;
    planning p = {.program = program,
                  .slots = lk__calloc(values + 1, sizeof *p.slots),
                  .order = lk__calloc(values + 1, sizeof *p.order),
                  .first_concurrent = lk__calloc(calls + 1, sizeof *p.first_concurrent),
                  .last_concurrent = lk__calloc(calls + 1, sizeof *p.last_concurrent),
                  .change = lk__calloc(calls + 2, sizeof *p.change)};
    lk_status status =
        p.slots && p.order && p.first_concurrent && p.last_concurrent && p.change ? LK_OK : LK_ERR_MEMORY;
    if (status == LK_OK)
        memory_plan_make(&p, by_shapes);
    program->planned |= status == LK_OK;
    LK_FREE_ALL(p.slots, p.order, p.first_concurrent, p.last_concurrent, p.change);
    return status;
}
