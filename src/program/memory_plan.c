/* Places for the values inside a program: offsets into one block of memory, such that places needed at the same time do
 * not overlap. Larger ones first, each at the lowest gap that takes it ("greedy by size": Pisarchyk, Lee, "Efficient
 * Memory Management for Deep Neural Net Inference", 2020). A value has a place of its own, or the one of an operand of
 * the call that makes it, where that call is the last to need the operand. */
#include "program/program.h"

#include "base/mem.h"
#include "core/backend.h"
#include "lockstep/tensor.h"

#include <stdlib.h>

/* Needed from call `first` to call `last`, and by calls in other branches from `wide_first` to `wide_last`. */
typedef struct place {
    size_t bytes, offset;
    int first, last;
    int wide_first, wide_last;
    int branch;            /* of the values that lie there */
    const lk_value *holds; /* the value that lies there last */
} place;

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

/* Operands come before what is made of them. Gives back how many places there are. */
static int find_places(lk_program *program, place *places)
{
    int n = 0;
    for (int i = 0; i < program->n_values; i++) {
        lk_value *value = &program->values[i];
        if (!is_placed(value))
            continue;
        place *its = value->kind == LK_VALUE_INSIDE ? place_to_take_over(program, places, value) : NULL;
        if (!its) {
            its = &places[n++];
            *its = (place){.bytes = value->bytes, .first = value->first, .branch = value->branch};
        }
        its->last = value->kind == LK_VALUE_OUTPUT ? program->n_calls - 1 : value->last;
        its->holds = value;
        value->place = (int)(its - places);
    }
    for (int i = 0; i < n; i++) {
        places[i].wide_first = places[i].first;
        places[i].wide_last = places[i].last;
        lk__program_widen(program, &places[i].wide_first, &places[i].wide_last);
    }
    return n;
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

static int by_offset(const void *a, const void *b)
{
    const place *left = *(place *const *)a, *right = *(place *const *)b;
    return left->offset < right->offset ? -1 : left->offset > right->offset;
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

static size_t lay_out(place **places, int n)
{
    size_t end = 0;
    qsort(places, (size_t)n, sizeof *places, by_size);
    for (int i = 0; i < n; i++) {
        places[i]->offset = lowest_gap(places[i], places, i);
        if (places[i]->offset + places[i]->bytes > end)
            end = places[i]->offset + places[i]->bytes;
        qsort(places, (size_t)i + 1, sizeof *places, by_offset);
    }
    return end;
}

/* What is needed at the worst moment, wherever it lies: no plan can be smaller. */
static size_t peak_of(const place *places, int n, int calls)
{
    size_t peak = 0;
    for (int call = 0; call < calls; call++) {
        size_t now = 0;
        for (int i = 0; i < n; i++)
            if (places[i].wide_first <= call && call <= places[i].wide_last)
                now += places[i].bytes;
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

static void plan(lk_program *program, bool by_shapes, place *places, place **order)
{
    program->sum_bytes = measure(program, by_shapes);
    int n = find_places(program, places);
    for (int i = 0; i < n; i++)
        order[i] = &places[i];
    program->peak_bytes = peak_of(places, n, program->n_calls);
    program->plan_bytes = lay_out(order, n);
    for (int i = 0; i < program->n_values; i++)
        if (is_placed(&program->values[i]))
            program->values[i].offset = places[program->values[i].place].offset;
}

static lk_status plan_memory(lk_program *program, bool by_shapes)
{
    place *places = lk__calloc((size_t)program->n_values, sizeof *places);
    place **order = lk__calloc((size_t)program->n_values, sizeof *order);
    lk_status status = places && order ? LK_OK : LK_ERR_MEMORY;
    if (status == LK_OK)
        plan(program, by_shapes, places, order);
    lk__free(places);
    lk__free(order);
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
