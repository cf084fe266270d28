#include "program/values.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "program/neighbors.h"
#include "program/program.h"

bool lk__lists_storage(lk_tensor *const *tensors, int n, const lk_storage *storage)
{
    for (int i = 0; i < n; i++)
        if (tensors[i] && tensors[i]->storage == storage)
            return true;
    return false;
}

bool lk__tensors_may_overlap(const lk_tensor *a, const lk_tensor *b)
{
    if (a->storage != b->storage)
        return false;
    if (lk_tensor_count(a) == 0 || lk_tensor_count(b) == 0) /* the order of calls counts even so */
        return true;
    return !lk__tensor_is_dense(a) || !lk__tensor_is_dense(b) || a->dtype != b->dtype ||
           (a->offset < b->offset + lk_tensor_count(b) && b->offset < a->offset + lk_tensor_count(a));
}

lk_status lk__number_tensors(lk_numbers *numbers, lk_tensor *const *tensors, int n)
{
    int given;
    for (int i = 0; i < n; i++)
        if (tensors[i])
            LK_TRY(lk__number_give(numbers, tensors[i]->storage, &given));
    return LK_OK;
}

lk_status lk__program_number(const lk_program *program, lk_numbers *numbers)
{
    for (int i = 0; i < program->n_calls; i++) {
        LK_TRY(lk__number_tensors(numbers, program->calls[i].in, program->calls[i].n_in));
        LK_TRY(lk__number_tensors(numbers, program->calls[i].out, program->calls[i].n_out));
    }
    return LK_OK;
}

typedef struct search {
    lk_program *program;
    int64_t capacity;
} search;

lk_value *lk__program_value(const lk_program *program, const lk_tensor *tensor)
{
    int number = tensor ? lk__number_of(&program->numbers, tensor->storage) : -1;
    return number >= 0 ? &program->values[number] : NULL;
}

static lk_status values_add(search *s, const lk_value *value)
{
    lk_program *program = s->program;
    int number;
    LK_TRY(LK_GROW(program->values, &s->capacity, program->n_values + 1));
    LK_TRY(lk__number_give(&program->numbers, value->storage, &number));
    program->values[program->n_values++] = *value;
    return LK_OK;
}

static lk_status values_use(search *s, const lk_tensor *tensor, int call, bool write)
{
    if (!tensor)
        return LK_OK;
    int branch = s->program->calls[call].branch;
    lk_value *value = lk__program_value(s->program, tensor);
    if (!value) {
        bool outside = !write || lk__storage_is_written(tensor->storage);
        lk_value found = {.storage = tensor->storage,
                          .kind = outside ? LK_VALUE_OUTSIDE : LK_VALUE_INSIDE,
                          .first = call,
                          .branch = branch};
        LK_TRY(values_add(s, &found));
        value = &s->program->values[s->program->n_values - 1];
    }
    if (value->branch > 0 && branch > 0 && branch != value->branch)
        value->branch = LK_SEVERAL_BRANCHES;
    value->last = call;
    value->written |= write;
    return LK_OK;
}

/* Calls of a group may run in any order, so all of them need what one of them uses. */
static void values_widen_to_groups(lk_program *program)
{
    for (int v = 0; v < program->n_values; v++) {
        lk_value *value = &program->values[v];
        while (value->first > 0 && lk__program_is_grouped(program, value->first))
            value->first--;
        while (value->last + 1 < program->n_calls && lk__program_is_grouped(program, value->last + 1))
            value->last++;
    }
}

/* Sorts the values inside by their last use, with a counting sort: end[i] begins as the position of call i's first
 * value and moves on with each value that is put there. */
static lk_status values_list_deaths(lk_program *program)
{
    program->dying = lk__calloc((size_t)program->n_values + 1, sizeof *program->dying);
    program->first_dying = lk__calloc((size_t)program->n_calls + 2, sizeof *program->first_dying);
    if (!program->dying || !program->first_dying)
        return LK_ERR_MEMORY;
    int *end = program->first_dying + 1;
    for (int i = 0; i < program->n_values; i++)
        if (program->values[i].kind == LK_VALUE_INSIDE)
            end[program->values[i].last + 1]++;
    for (int call = 1; call <= program->n_calls; call++)
        end[call] += end[call - 1];
    for (int i = 0; i < program->n_values; i++)
        if (program->values[i].kind == LK_VALUE_INSIDE)
            program->dying[end[program->values[i].last]++] = i;
    return LK_OK;
}

static void values_forget(lk_program *program)
{
    lk__free(program->values);
    lk__free(program->dying);
    lk__free(program->first_dying);
    program->values = NULL;
    program->dying = program->first_dying = NULL;
    program->n_values = program->n_shared = 0;
    lk__numbers_free(&program->numbers);
}

lk_status lk__program_find_values(lk_program *program)
{
    search s = {.program = program};
    values_forget(program);
    for (int i = 0; i < program->n_in; i++) {
        lk_value input = {.storage = program->in[i]->storage, .kind = LK_VALUE_INPUT, .index = i};
        LK_TRY(values_add(&s, &input));
    }
    for (int call = 0; call < program->n_calls; call++) {
        const lk_call *c = &program->calls[call];
        for (int i = 0; i < c->n_in; i++)
            LK_TRY(values_use(&s, c->in[i], call, false));
        for (int i = 0; i < c->n_out; i++)
            LK_TRY(values_use(&s, c->out[i], call, true));
    }
    values_widen_to_groups(program);
    for (int i = 0; i < program->n_out; i++) {
        lk_value *output = lk__program_value(program, program->out[i]);
        if (!output)
            continue;
        output->kind = LK_VALUE_OUTPUT;
        output->index = i;
    }
    for (int i = 0; i < program->n_values; i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): values[n_values] */
        program->n_shared += program->values[i].kind != LK_VALUE_INSIDE;
    return values_list_deaths(program);
}
