/* Sharing: what calls in branches make of variables alone, their copies in bf16 or in another order, is the same in all
 * of them, and made once, before the first branch. */
#include "program/program.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"

#include <string.h>

/* Of a storage. */
typedef struct known {
    int writers, first_writer; /* calls */
    int first_maker;           /* the first call that is kept, and makes something of it first of all; -1: none */
    lk_storage *instead;       /* what is read in its place; NULL: itself */
} known;

typedef struct sharing {
    lk_program *program;
    lk_numbers numbers;
    known *known; /* by number */
    /* Of a call. */
    int *next_maker; /* of the same storage; -1: none */
    bool *removed;   /* another call stands for it … */
    bool *shared;    /* … and it for others */
} sharing;

/* --- what is known ------------------------------------------------------------------------------------------------ */

static known *known_of(const sharing *s, const lk_tensor *tensor)
{
    return &s->known[lk__number_of(&s->numbers, tensor->storage)];
}

static lk_status look_at_calls(sharing *s)
{
    const lk_program *program = s->program;
    LK_TRY(lk__program_number(program, &s->numbers));
    size_t calls = (size_t)program->n_calls + 1;
    s->known = lk__calloc((size_t)s->numbers.n + 1, sizeof *s->known);
    s->next_maker = lk__calloc(calls, sizeof *s->next_maker);
    s->removed = lk__calloc(calls, sizeof *s->removed);
    s->shared = lk__calloc(calls, sizeof *s->shared);
    if (!s->known || !s->next_maker || !s->removed || !s->shared)
        return LK_ERR_MEMORY;
    for (int i = 0; i < s->numbers.n; i++)
        s->known[i].first_maker = -1;
    for (int i = program->n_calls - 1; i >= 0; i--)
        for (int k = 0; k < program->calls[i].n_out; k++)
            if (program->calls[i].out[k]) {
                known *its = known_of(s, program->calls[i].out[k]);
                its->writers++;
                its->first_writer = i;
            }
    return LK_OK;
}

/* --- what may be shared ------------------------------------------------------------------------------------------- */

static bool is_among(lk_tensor *const *tensors, int n, const lk_storage *storage)
{
    for (int i = 0; i < n; i++)
        if (tensors[i] && tensors[i]->storage == storage)
            return true;
    return false;
}

static bool is_of_variables(const sharing *s, int i)
{
    const lk_program *program = s->program;
    const lk_call *call = &program->calls[i];
    for (int k = 0; k < call->n_in; k++) {
        const lk_tensor *x = call->in[k];
        if (!x)
            continue;
        const known *its = known_of(s, x);
        if ((its->writers > 0 && its->first_writer < i) || !lk__storage_is_written(x->storage) ||
            is_among(program->in, program->n_in, x->storage))
            return false;
    }
    return call->n_in > 0 && call->in[0];
}

/* Whether it makes one tensor, of variables as they are before the program, that nobody else writes or is given. */
static bool may_be_shared(const sharing *s, int i)
{
    const lk_program *program = s->program;
    const lk_call *call = &program->calls[i];
    if (call->branch == 0 || call->n_out != 1 || !call->out[0] || call->op->set_step)
        return false;
    lk_storage *made = call->out[0]->storage;
    return is_of_variables(s, i) && !lk__storage_is_written(made) && !is_among(program->out, program->n_out, made) &&
           known_of(s, call->out[0])->writers == 1;
}

static bool are_the_same_view(const lk_tensor *a, const lk_tensor *b)
{
    if (!a || !b)
        return a == b;
    return a->storage == b->storage && a->dtype == b->dtype && a->offset == b->offset &&
           lk__shape_equal(a->shape, b->shape) &&
           memcmp(a->strides, b->strides, (size_t)a->shape.ndim * sizeof a->strides[0]) == 0;
}

static bool make_the_same(const lk_call *a, const lk_call *b)
{
    size_t attrs = (size_t)(LK_MAX_ATTRS - a->attrs_unused);
    if (a->op != b->op || a->n_in != b->n_in || a->attrs_unused != b->attrs_unused || a->kernel != b->kernel ||
        memcmp(a->attrs.bytes, b->attrs.bytes, attrs) != 0 || a->out[0]->dtype != b->out[0]->dtype)
        return false;
    for (int k = 0; k < a->n_in; k++)
        if (!are_the_same_view(a->in[k], b->in[k]))
            return false;
    return true;
}

/* --- sharing ------------------------------------------------------------------------------------------------------ */

/* The earlier call that makes the same; -1: none does, and call i is there for later ones. */
static int find_twin(sharing *s, int i)
{
    const lk_call *calls = s->program->calls;
    known *of = known_of(s, calls[i].in[0]);
    for (int twin = of->first_maker; twin >= 0; twin = s->next_maker[twin])
        if (make_the_same(&calls[twin], &calls[i]))
            return twin;
    s->next_maker[i] = of->first_maker;
    of->first_maker = i;
    return -1;
}

/* Gives back whether any calls are shared. */
static bool find_shared(sharing *s)
{
    const lk_call *calls = s->program->calls;
    bool any = false;
    for (int i = 0; i < s->program->n_calls; i++) {
        int twin = may_be_shared(s, i) ? find_twin(s, i) : -1;
        if (twin < 0)
            continue;
        any = s->shared[twin] = s->removed[i] = true;
        known_of(s, calls[i].out[0])->instead = calls[twin].out[0]->storage;
    }
    return any;
}

static lk_status redirect(const sharing *s, lk_call *call)
{
    for (int k = 0; k < call->n_in; k++) {
        lk_storage *instead = call->in[k] ? known_of(s, call->in[k])->instead : NULL;
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

/* Shared calls first, in no branch, then all that are left. */
static lk_status rearrange(sharing *s)
{
    lk_program *program = s->program;
    lk_call *calls = lk__calloc((size_t)program->n_calls, sizeof *calls);
    if (!calls)
        return LK_ERR_MEMORY;
    int n = 0;
    for (int i = 0; i < program->n_calls; i++)
        if (s->shared[i]) {
            calls[n] = program->calls[i];
            calls[n].branch = calls[n].pass = 0;
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

static lk_status share(sharing *s)
{
    LK_TRY(look_at_calls(s));
    if (!find_shared(s))
        return LK_OK;
    for (int i = 0; i < s->program->n_calls; i++)
        LK_TRY(redirect(s, &s->program->calls[i]));
    return rearrange(s);
}

lk_status lk__program_share(lk_program *program)
{
    sharing s = {.program = program};
    lk_status status = lk__program_has_branches(program) ? share(&s) : LK_OK;
    lk__numbers_free(&s.numbers);
    lk__free(s.known);
    lk__free(s.next_maker);
    lk__free(s.removed);
    lk__free(s.shared);
    return status;
}
