/* Branches: calls that need not wait for each other. Between two calls that are in none, the calls of different
 * branches may run in any order, or at the same time; those of one branch run in theirs. */
#include "program/program.h"

#include "base/mem.h"

bool lk__program_has_branches(const lk_program *program)
{
    for (int i = 0; i < program->n_calls; i++)
        if (program->calls[i].branch > 0)
            return true;
    return false;
}

void lk__program_find_beside(const lk_program *program, int *first, int *last)
{
    const lk_call *calls = program->calls;
    int n = program->n_calls;
    for (int i = 0; i < n; i++)
        first[i] = i > 0 && calls[i].branch > 0 && calls[i - 1].branch > 0 ? first[i - 1] : i;
    for (int i = n - 1; i >= 0; i--)
        last[i] = i + 1 < n && calls[i].branch > 0 && calls[i + 1].branch > 0 ? last[i + 1] : i;
}

/* --- checking ----------------------------------------------------------------------------------------------------- */

/* What the calls since the last one in no branch have done with a value. */
typedef struct use {
    int stretch;      /* how many calls in no branch came before */
    unsigned readers; /* branches that have read it, as bits … */
    unsigned writers; /* … and written it */
} use;

static use *use_of(const lk_program *program, use *uses, const lk_tensor *tensor, int stretch)
{
    const lk_value *value = lk__program_value(program, tensor);
    if (!value)
        return NULL;
    use *its = &uses[value - program->values];
    if (its->stretch != stretch)
        *its = (use){.stretch = stretch};
    return its;
}

/* Whether a call in branch `branch` meets none of another one. */
static bool note(const lk_program *program, use *uses, const lk_call *call, int stretch)
{
    unsigned own = 1U << call->branch;
    bool apart = true;
    for (int i = 0; i < call->n_in; i++) {
        use *u = use_of(program, uses, call->in[i], stretch);
        if (!u)
            continue;
        apart &= !(u->writers & ~own);
        u->readers |= own;
    }
    for (int i = 0; i < call->n_out; i++) {
        use *u = use_of(program, uses, call->out[i], stretch);
        if (!u)
            continue;
        apart &= !((u->writers | u->readers) & ~own);
        u->writers |= own;
    }
    return apart;
}

static bool are_apart(const lk_program *program, use *uses)
{
    int stretch = 1;
    for (int i = 0; i < program->n_calls; i++) {
        if (program->calls[i].branch == 0)
            stretch++;
        else if (!note(program, uses, &program->calls[i], stretch))
            return false;
    }
    return true;
}

lk_status lk__program_check_branches(lk_program *program)
{
    if (!lk__program_has_branches(program))
        return LK_OK;
    use *uses = lk__calloc((size_t)program->n_values + 1, sizeof *uses);
    if (!uses)
        return LK_ERR_MEMORY;
    bool apart = are_apart(program, uses);
    lk__free(uses);
    if (apart)
        return LK_OK;
    for (int i = 0; i < program->n_calls; i++)
        program->calls[i].branch = 0;
    return lk__program_find_values(program);
}
