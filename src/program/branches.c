#include "program/branches.h"
#include "base/mem.h"
#include "program/program.h"
#include "program/values.h"

bool lk__program_has_branches(const lk_program *program)
{
    for (int i = 0; i < program->n_calls; i++)
        if (program->calls[i].branch > 0)
            return true;
    return false;
}

bool lk__program_is_only_branch(const lk_program *program, int branch)
{
    for (int i = 0; i < program->n_calls && branch > 0; i++)
        if (program->calls[i].branch > 0 && program->calls[i].branch != branch)
            return false;
    return true;
}

void lk__program_find_concurrent(const lk_program *program, int *first, int *last)
{
    const lk_call *calls = program->calls;
    int n = program->n_calls;
    for (int i = 0; i < n; i++)
        first[i] = i > 0 && calls[i].branch > 0 && calls[i - 1].branch > 0 ? first[i - 1] : i;
    for (int i = n - 1; i >= 0; i--)
        last[i] = i + 1 < n && calls[i].branch > 0 && calls[i + 1].branch > 0 ? last[i + 1] : i;
}

/* --- checking ----------------------------------------------------------------------------------------------------- */

/* The uses of a value since the last call outside branches. */
typedef struct use {
    int stretch;      /* the number of calls outside branches that came before */
    unsigned readers; /* branches that have read the value, as bits … */
    unsigned writers; /* … and that have written it */
} use;

static use *branches_use_of(const lk_program *program, use *uses, const lk_tensor *tensor, int stretch)
{
    const lk_value *value = lk__program_value(program, tensor);
    if (!value)
        return NULL;
    use *its = &uses[value - program->values];
    if (its->stretch != stretch)
        *its = (use){.stretch = stretch};
    return its;
}

/* Notes what a call does with its operands. Returns whether no other branch conflicts with it. */
static bool branches_note_call(const lk_program *program, use *uses, const lk_call *call, int stretch)
{
    unsigned own = 1U << call->branch;
    bool independent = true;
    for (int i = 0; i < call->n_in; i++) {
        use *u = branches_use_of(program, uses, call->in[i], stretch);
        if (!u)
            continue;
        independent &= !(u->writers & ~own);
        u->readers |= own;
    }
    for (int i = 0; i < call->n_out; i++) {
        use *u = branches_use_of(program, uses, call->out[i], stretch);
        if (!u)
            continue;
        independent &= !((u->writers | u->readers) & ~own);
        u->writers |= own;
    }
    return independent;
}

static bool branches_are_independent(const lk_program *program, use *uses)
{
    int stretch = 1;
    for (int i = 0; i < program->n_calls; i++) {
        if (program->calls[i].branch == 0)
            stretch++;
        else if (!branches_note_call(program, uses, &program->calls[i], stretch))
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
    bool independent = branches_are_independent(program, uses);
    lk__free(uses);
    if (independent)
        return LK_OK;
    for (int i = 0; i < program->n_calls; i++)
        program->calls[i].branch = 0;
    return lk__program_find_values(program);
}
