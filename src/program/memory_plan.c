/* Places for the values inside a program: offsets into one block of memory, such that places needed at the same time do
 * not overlap. Larger ones first, each at the lowest gap that takes it ("greedy by size": Pisarchyk, Lee, "Efficient
 * Memory Management for Deep Neural Net Inference", 2020). A value has a place of its own, or the one of an operand of
 * the call that makes it, where that call is the last to need the operand. */
#include "program/program.h"

#include "base/mem.h"
#include "core/allocator.h"
#include "lockstep/tensor.h"

#include <stdlib.h>

/* Needed from call `first` to call `last`. */
typedef struct place {
    size_t bytes, offset;
    int first, last;
    const lk_value *holds; /* the value that lies there last */
} place;

/* --- who lies where ----------------------------------------------------------------------------------------------- */

static size_t round_up(size_t bytes)
{
    return (bytes + LK_ALIGNMENT - 1) / LK_ALIGNMENT * LK_ALIGNMENT;
}

static bool is_placed(const lk_value *value)
{
    return value->kind == LK_VALUE_INSIDE && value->bytes > 0;
}

/* The place of an operand that is as large and last needed by the call that makes `value`. NULL: there is none. */
static place *place_to_take_over(const lk_program *program, place *places, const lk_value *value)
{
    int call = value->first;
    for (int d = program->first_dying[call]; d < program->first_dying[call + 1]; d++) {
        const lk_value *dying = &program->values[program->dying[d]];
        if (!is_placed(dying) || dying->first >= call || dying->bytes != value->bytes)
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
        place *its = place_to_take_over(program, places, value);
        if (!its) {
            its = &places[n++];
            *its = (place){.bytes = value->bytes, .first = value->first};
        }
        its->last = value->last;
        its->holds = value;
        value->place = (int)(its - places);
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

static bool are_needed_together(const place *a, const place *b)
{
    return a->first <= b->last && b->first <= a->last;
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
            if (places[i].first <= call && call <= places[i].last)
                now += places[i].bytes;
        peak = now > peak ? now : peak;
    }
    return peak;
}

/* --- both --------------------------------------------------------------------------------------------------------- */

static size_t measure(lk_program *program)
{
    size_t sum = 0;
    for (int i = 0; i < program->n_values; i++) {
        lk_value *value = &program->values[i];
        value->bytes = value->kind == LK_VALUE_INSIDE ? round_up(value->storage->used) : 0;
        sum += value->bytes;
    }
    return sum;
}

static void plan(lk_program *program, place *places, place **order)
{
    program->sum_bytes = measure(program);
    int n = find_places(program, places);
    for (int i = 0; i < n; i++)
        order[i] = &places[i];
    program->peak_bytes = peak_of(places, n, program->n_calls);
    program->plan_bytes = lay_out(order, n);
    for (int i = 0; i < program->n_values; i++)
        if (is_placed(&program->values[i]))
            program->values[i].offset = places[program->values[i].place].offset;
}

lk_status lk__program_plan_memory(lk_program *program)
{
    place *places = lk__calloc((size_t)program->n_values, sizeof *places);
    place **order = lk__calloc((size_t)program->n_values, sizeof *order);
    lk_status status = places && order ? LK_OK : LK_ERR_MEMORY;
    if (status == LK_OK)
        plan(program, places, order);
    lk__free(places);
    lk__free(order);
    return status;
}
