/* Places for the values inside a program: offsets into one block of memory, such that places needed at the same time do
 * not overlap. Larger ones first, each at the lowest gap that takes it ("greedy by size": Pisarchyk, Lee, "Efficient
 * Memory Management for Deep Neural Net Inference", 2020). A value has a place of its own, or the one of an operand of
 * the call that makes it, where that call is the last to need the operand. */
#include "program/program.h"

#include "base/mem.h"
#include "core/backend.h"
#include "lockstep/tensor.h"

#include <stdlib.h>
#include <string.h>

/* Needed from call `first` to call `last`, and by calls in other branches from `wide_first` to `wide_last`. */
typedef struct place {
    size_t bytes, offset;
    int first, last;
    int wide_first, wide_last;
    int branch;            /* of the values that lie there */
    const lk_value *holds; /* the value that lies there last */
} place;

typedef struct planning {
    lk_program *program;
    place *places; /* [n_values] */
    int n;
    place **order;                   /* [n_values] */
    int *first_beside, *last_beside; /* [n_calls] */
    int64_t *change;                 /* [n_calls + 2] */
} planning;

/* --- who lies where ----------------------------------------------------------------------------------------------- */

static size_t round_up(size_t bytes)
{
    return (bytes + LK_ALIGNMENT - 1) / LK_ALIGNMENT * LK_ALIGNMENT;
}

static bool is_placed(const lk_value *value)
{
    return value->kind != LK_VALUE_OUTSIDE && value->bytes > 0;
}

/* The place of an operand that is as large and last needed by the call that makes `value`. NULL: there is none. */
static place *place_to_take_over(const lk_program *program, place *places, const lk_value *value)
{
    int call = value->first;
    for (int d = program->first_dying[call]; d < program->first_dying[call + 1]; d++) {
        const lk_value *dying = &program->values[program->dying[d]];
        if (!is_placed(dying) || dying->first >= call || dying->bytes != value->bytes || dying->branch != value->branch)
            continue;
        place *its = &places[dying->place];
        if (its->holds == dying && lk__call_may_replace(&program->calls[call], dying->storage, value->storage))
            return its;
    }
    return NULL;
}

/* Operands come before what is made of them. */
static void find_places(planning *p)
{
    lk_program *program = p->program;
    place *places = p->places;
    for (int i = 0; i < program->n_values; i++) {
        lk_value *value = &program->values[i];
        if (!is_placed(value))
            continue;
        place *its = value->kind == LK_VALUE_INSIDE ? place_to_take_over(program, places, value) : NULL;
        if (!its) {
            its = &places[p->n++];
            *its = (place){.bytes = value->bytes, .first = value->first, .branch = value->branch};
        }
        its->last = value->kind == LK_VALUE_OUTPUT ? program->n_calls - 1 : value->last;
        its->holds = value;
        value->place = (int)(its - places);
    }
    lk__program_find_beside(program, p->first_beside, p->last_beside);
    for (int i = 0; i < p->n; i++) {
        places[i].wide_first = p->first_beside[places[i].first];
        places[i].wide_last = p->last_beside[places[i].last];
    }
}

/* --- where that is ------------------------------------------------------------------------------------------------ */

/* Larger first; of equal ones the earlier. */
static int by_size(const void *a, const void *b)
{
    const place *left = *(place *const *)a, *right = *(place *const *)b;
    if (left->bytes != right->bytes)
        return left->bytes < right->bytes ? 1 : -1;
    return left < right ? -1 : left > right;
}

/* Calls of one branch, and those of none, are in order among themselves. */
static bool are_needed_together(const place *a, const place *b)
{
    if (a->branch == b->branch && a->branch != LK_SEVERAL_BRANCHES)
        return a->first <= b->last && b->first <= a->last;
    return a->wide_first <= b->wide_last && b->wide_first <= a->wide_last;
}

/* The lowest offset at which `it` overlaps none of placed[0 … n), which are in the order of their offsets. */
static size_t lowest_gap(const place *it, place *const *placed, int n)
{
    size_t offset = 0;
    for (int i = 0; i < n; i++) {
        if (!are_needed_together(it, placed[i]))
            continue;
        if (placed[i]->offset >= offset + it->bytes)
            break;
        size_t end = placed[i]->offset + placed[i]->bytes;
        offset = end > offset ? end : offset;
    }
    return offset;
}

/* Behind those of placed[0 … n), which are in the order of their offsets, that do not lie further on. */
static void insert(place *it, place **placed, int n)
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

static size_t lay_out(place **places, int n)
{
    size_t end = 0;
    qsort(places, (size_t)n, sizeof *places, by_size);
    for (int i = 0; i < n; i++) {
        place *it = places[i];
        it->offset = lowest_gap(it, places, i);
        if (it->offset + it->bytes > end)
            end = it->offset + it->bytes;
        insert(it, places, i);
    }
    return end;
}

/* What is needed at the worst moment, wherever it lies: no plan can be smaller. */
static size_t peak_of(const planning *p)
{
    size_t now = 0, peak = 0;
    for (int i = 0; i < p->n; i++) {
        p->change[p->places[i].wide_first] += (int64_t)p->places[i].bytes;
        p->change[p->places[i].wide_last + 1] -= (int64_t)p->places[i].bytes;
    }
    for (int call = 0; call < p->program->n_calls; call++) {
        now += (size_t)p->change[call];
        peak = now > peak ? now : peak;
    }
    return peak;
}

/* --- both --------------------------------------------------------------------------------------------------------- */

/* Inputs and outputs have places where the device can make graphs: see run.c. */
static size_t bytes_of(const lk_program *program, const lk_value *value, bool by_shapes)
{
    bool is_given = value->kind == LK_VALUE_INPUT || value->kind == LK_VALUE_OUTPUT;
    if (value->kind == LK_VALUE_INSIDE)
        return by_shapes ? value->storage->bytes : value->storage->used;
    return is_given && program->device->backend->graphs ? value->storage->bytes : 0;
}

static size_t measure(lk_program *program, bool by_shapes)
{
    size_t sum = 0;
    for (int i = 0; i < program->n_values; i++) {
        lk_value *value = &program->values[i];
        value->bytes = round_up(bytes_of(program, value, by_shapes));
        sum += value->bytes;
    }
    return sum;
}

static void plan(planning *p, bool by_shapes)
{
    lk_program *program = p->program;
    program->sum_bytes = measure(program, by_shapes);
    find_places(p);
    for (int i = 0; i < p->n; i++)
        p->order[i] = &p->places[i];
    program->peak_bytes = peak_of(p);
    program->plan_bytes = lay_out(p->order, p->n);
    for (int i = 0; i < program->n_values; i++)
        if (is_placed(&program->values[i]))
            program->values[i].offset = p->places[program->values[i].place].offset;
}

static lk_status plan_memory(lk_program *program, bool by_shapes)
{
    size_t values = (size_t)program->n_values, calls = (size_t)program->n_calls;
    planning p = {.program = program,
                  .places = lk__calloc(values + 1, sizeof *p.places),
                  .order = lk__calloc(values + 1, sizeof *p.order),
                  .first_beside = lk__calloc(calls + 1, sizeof *p.first_beside),
                  .last_beside = lk__calloc(calls + 1, sizeof *p.last_beside),
                  .change = lk__calloc(calls + 2, sizeof *p.change)};
    lk_status status = p.places && p.order && p.first_beside && p.last_beside && p.change ? LK_OK : LK_ERR_MEMORY;
    if (status == LK_OK)
        plan(&p, by_shapes);
    lk__free(p.places);
    lk__free(p.order);
    lk__free(p.first_beside);
    lk__free(p.last_beside);
    lk__free(p.change);
    return status;
}

lk_status lk__program_plan_memory(lk_program *program)
{
    return plan_memory(program, false);
}

lk_status lk__program_plan_by_shapes(lk_program *program)
{
    LK_TRY(plan_memory(program, true));
    program->planned = true;
    return LK_OK;
}
