/* Values: the storages that a program's calls use, in the order in which they come up, and how long each is needed. */
#include "program/program.h"

#include "base/mem.h"
#include "base/status.h"

static lk_status number(lk_numbers *numbers, lk_tensor *const *tensors, int n)
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
        LK_TRY(number(numbers, program->calls[i].in, program->calls[i].n_in));
        LK_TRY(number(numbers, program->calls[i].out, program->calls[i].n_out));
    }
    return LK_OK;
}

typedef struct search {
    lk_program *program;
    int capacity;
} search;

lk_value *lk__program_value(const lk_program *program, const lk_tensor *tensor)
{
    int number = tensor ? lk__number_of(&program->numbers, tensor->storage) : -1;
    return number >= 0 ? &program->values[number] : NULL;
}

static lk_status add(search *s, const lk_value *value)
{
    lk_program *program = s->program;
    int number;
    if (program->n_values == s->capacity) {
        int capacity = s->capacity ? 2 * s->capacity : 64;
        lk_value *values = lk__realloc(program->values, (size_t)capacity, sizeof *values);
        if (!values)
            return LK_ERR_MEMORY;
        program->values = values;
        s->capacity = capacity;
    }
    LK_TRY(lk__number_give(&program->numbers, value->storage, &number));
    program->values[program->n_values++] = *value;
    return LK_OK;
}

static lk_status use(search *s, const lk_tensor *tensor, int call, bool write)
{
    if (!tensor)
        return LK_OK;
    lk_value *value = lk__program_value(s->program, tensor);
    if (!value) {
        bool outside = !write || lk__storage_is_written(tensor->storage);
        lk_value found = {
            .storage = tensor->storage, .kind = outside ? LK_VALUE_OUTSIDE : LK_VALUE_INSIDE, .first = call};
        found.branch = s->program->calls[call].branch;
        LK_TRY(add(s, &found));
        value = &s->program->values[s->program->n_values - 1];
    }
    int branch = s->program->calls[call].branch;
    if (value->branch > 0 && branch > 0 && branch != value->branch)
        value->branch = LK_SEVERAL_BRANCHES;
    value->last = call;
    value->written |= write;
    return LK_OK;
}

static lk_status add_inputs(search *s)
{
    for (int i = 0; i < s->program->n_in; i++) {
        lk_value value = {.storage = s->program->in[i]->storage, .kind = LK_VALUE_INPUT, .index = i};
        LK_TRY(add(s, &value));
    }
    return LK_OK;
}

static void mark_outputs(lk_program *program)
{
    for (int i = 0; i < program->n_out; i++) {
        if (!program->out[i])
            continue;
        lk_value *value = lk__program_value(program, program->out[i]);
        value->kind = LK_VALUE_OUTPUT;
        value->index = i;
    }
}

static void count_shared(lk_program *program)
{
    for (int i = 0; i < program->n_values; i++)
        program->n_shared += program->values[i].kind != LK_VALUE_INSIDE;
}

/* Values by their last use: counted, then each put where those before it end, which moves that end along. */
static lk_status list_deaths(lk_program *program)
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

static void forget(lk_program *program)
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
    forget(program);
    LK_TRY(add_inputs(&s));
    for (int call = 0; call < program->n_calls; call++) {
        const lk_call *c = &program->calls[call];
        for (int i = 0; i < c->n_in; i++)
            LK_TRY(use(&s, c->in[i], call, false));
        for (int i = 0; i < c->n_out; i++)
            LK_TRY(use(&s, c->out[i], call, true));
    }
    mark_outputs(program);
    count_shared(program);
    return list_deaths(program);
}
