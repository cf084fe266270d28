#include "program/share.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "program/branches.h"
#include "program/program.h"
#include "program/values.h"

#include <string.h>

/* Facts about a storage. */
typedef struct facts {
    int writers, first_writer; /* calls */
    int first_maker;           /* head of the list of calls that stay and have it as first input; -1: none */
    lk_storage *instead;       /* the storage to read instead; NULL: itself */
} facts;

typedef struct sharing {
    lk_program *program;
    lk_numbers numbers;
    facts *facts; /* by the storage's number */
    /* For each call: */
    int *next_maker; /* the next such call for the same storage; -1: none */
    bool *removed;   /* another call replaces it … */
    bool *shared;    /* … and it replaces others */
} sharing;

/* --- facts -------------------------------------------------------------------------------------------------------- */

static facts *share_facts_of(const sharing *s, const lk_tensor *tensor)
{
    return &s->facts[lk__number_of(&s->numbers, tensor->storage)];
}

static lk_status share_find_facts(sharing *s)
{
    const lk_program *program = s->program;
    LK_TRY(lk__program_number(program, &s->numbers));
    size_t calls = (size_t)program->n_calls + 1;
    s->facts = lk__calloc((size_t)s->numbers.n + 1, sizeof *s->facts);
    s->next_maker = lk__calloc(calls, sizeof *s->next_maker);
    s->removed = lk__calloc(calls, sizeof *s->removed);
    s->shared = lk__calloc(calls, sizeof *s->shared);
    if (!s->facts || !s->next_maker || !s->removed || !s->shared)
        return LK_ERR_MEMORY;
    for (int i = 0; i < s->numbers.n; i++)
        s->facts[i].first_maker = -1;
    for (int i = program->n_calls - 1; i >= 0; i--)
        for (int k = 0; k < program->calls[i].n_out; k++)
            if (program->calls[i].out[k]) {
                facts *its = share_facts_of(s, program->calls[i].out[k]);
                its->writers++;
                its->first_writer = i;
            }
    return LK_OK;
}

/* --- what may be shared ------------------------------------------------------------------------------------------- */

/* Returns whether call i reads only variables, as they are before the program. */
static bool share_is_of_variables(const sharing *s, int i)
{
    const lk_program *program = s->program;
    const lk_call *call = &program->calls[i];
    for (int k = 0; k < call->n_in; k++) {
        const lk_tensor *x = call->in[k];
        if (!x)
            continue;
        const facts *its = share_facts_of(s, x);
        if ((its->writers > 0 && its->first_writer < i) || !lk__storage_is_written(x->storage) ||
            lk__lists_storage(program->in, program->n_in, x->storage))
            return false;
    }
    return call->n_in > 0 && call->in[0];
}

/* Returns whether call i derives one tensor from variables alone, and the tensor is no output and written by no other
 * call. */
static bool share_is_possible(const sharing *s, int i)
{
    const lk_program *program = s->program;
    const lk_call *call = &program->calls[i];
    if (call->branch == 0 || call->n_out != 1 || !call->out[0] || call->op->set_step)
        return false;
    lk_storage *made = call->out[0]->storage;
    return share_is_of_variables(s, i) && !lk__storage_is_written(made) &&
           !lk__lists_storage(program->out, program->n_out, made) && share_facts_of(s, call->out[0])->writers == 1;
}

static bool share_same_result(const lk_call *a, const lk_call *b)
{
    size_t attrs = (size_t)(LK_MAX_ATTRS - a->attrs_unused);
    if (a->op != b->op || a->n_in != b->n_in || a->attrs_unused != b->attrs_unused || a->kernel != b->kernel ||
        memcmp(a->attrs.bytes, b->attrs.bytes, attrs) != 0 || a->out[0]->dtype != b->out[0]->dtype)
        return false;
    for (int k = 0; k < a->n_in; k++)
        if (!a->in[k] != !b->in[k] ||
            (a->in[k] && (a->in[k]->dtype != b->in[k]->dtype || !lk__tensor_same_view(a->in[k], b->in[k]))))
            return false;
    return true;
}

/* --- sharing ------------------------------------------------------------------------------------------------------ */

/* Returns an earlier call with the same result. If there is none, lists call i as a maker for later calls and returns
 * -1. */
static int share_find_twin(sharing *s, int i)
{
    const lk_call *calls = s->program->calls;
    facts *of = share_facts_of(s, calls[i].in[0]);
    for (int twin = of->first_maker; twin >= 0; twin = s->next_maker[twin])
        if (share_same_result(&calls[twin], &calls[i]))
            return twin;
    s->next_maker[i] = of->first_maker;
    of->first_maker = i;
    return -1;
}

/* Returns whether any calls are shared. */
static bool share_find_all(sharing *s)
{
    const lk_call *calls = s->program->calls;
    bool any = false;
    for (int i = 0; i < s->program->n_calls; i++) {
        int twin = share_is_possible(s, i) ? share_find_twin(s, i) : -1;
        if (twin < 0)
            continue;
        any = s->shared[twin] = s->removed[i] = true;
        share_facts_of(s, calls[i].out[0])->instead = calls[twin].out[0]->storage;
    }
    return any;
}

static lk_status share_redirect(const sharing *s, lk_call *call)
{
    for (int k = 0; k < call->n_in; k++) {
        lk_storage *instead = call->in[k] ? share_facts_of(s, call->in[k])->instead : NULL;
        if (!instead)
            continue;
        lk_tensor *other = lk__tensor_over(instead, call->in[k]);
        if (!other)
            return LK_ERR_MEMORY;
        lk_tensor_release(call->in[k]);
        call->in[k] = other;
    }
    return LK_OK;
}

/* Puts shared calls first, outside branches, then all others. */
static lk_status share_rearrange(sharing *s)
{
    lk_program *program = s->program;
    lk_call *calls = lk__calloc((size_t)program->n_calls, sizeof *calls);
    if (!calls)
        return LK_ERR_MEMORY;
    int n = 0;
    for (int i = 0; i < program->n_calls; i++)
        if (s->shared[i]) {
            calls[n] = program->calls[i];
            calls[n].branch = calls[n].pass = calls[n].piece = 0;
            n++;
        }
    for (int i = 0; i < program->n_calls; i++) {
        if (s->removed[i])
            lk__call_release(&program->calls[i]);
        else if (!s->shared[i])
            calls[n++] = program->calls[i];
    }
    lk__free(program->calls);
    program->calls = calls;
    program->calls_capacity = program->n_calls;
    program->n_calls = n;
    return LK_OK;
}

static lk_status share_apply(sharing *s)
{
    LK_TRY(share_find_facts(s));
    if (!share_find_all(s))
        return LK_OK;
    for (int i = 0; i < s->program->n_calls; i++)
        LK_TRY(share_redirect(s, &s->program->calls[i]));
    return share_rearrange(s);
}

lk_status lk__program_share(lk_program *program)
{
    sharing s = {.program = program};
    lk_status status = lk__program_has_branches(program) ? share_apply(&s) : LK_OK;
    lk__numbers_free(&s.numbers);
    LK_FREE_ALL(s.facts, s.next_maker, s.removed, s.shared);
    return status;
}
