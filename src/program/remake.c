/* Rewrites a pass so that some of its calls run again, as recompute.c has decided. */
#include "program/remake.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"
#include "program/recompute.h"

#include <string.h>

typedef struct remaking {
    const lk_recomputation *r;
    lk_storage **second; /* [value]: the storage of its second life; NULL: none yet */
    lk_call *calls;
    int n;
} remaking;

/* Replaces an operand by the same view of its value's second life. */
static lk_status remake_redirect(remaking *m, int value, lk_tensor **operand)
{
    lk_storage **second = &m->second[value];
    if (!*second)
        LK_TRY(lk__storage_new((*operand)->storage->device, (*operand)->storage->bytes, second));
    lk_tensor *other = lk__tensor_over(*second, *operand);
    if (!other)
        return LK_ERR_MEMORY;
    lk_tensor_release(*operand);
    *operand = other;
    return LK_OK;
}

static lk_status remake_redirect_operands(remaking *m, lk_step step, lk_call *call)
{
    const lk_recomputation *r = m->r;
    for (int i = 0; i < call->n_in; i++) {
        int value = r->in[step.call * LK_MAX_INPUTS + i];
        if (value >= 0 && lk__reads_second_life(r, step, value))
            LK_TRY(remake_redirect(m, value, &call->in[i]));
    }
    for (int i = 0; i < call->n_out && step.again; i++) {
        int value = r->out[step.call * LK_MAX_OUTPUTS + i];
        if (value >= 0)
            LK_TRY(remake_redirect(m, value, &call->out[i]));
    }
    return LK_OK;
}

/* Makes the calls of the pass. */
static lk_status remake_make_calls(remaking *m)
{
    for (int s = 0; s < m->r->n_steps; s++) {
        lk_step step = m->r->steps[s];
        lk_call *call = &m->calls[m->n++];
        *call = m->r->program->calls[m->r->begin + step.call];
        lk__call_retain(call);
        LK_TRY(remake_redirect_operands(m, step, call));
    }
    return LK_OK;
}

/* Replaces the pass's calls by the new ones, which the program then owns. */
static lk_status remake_replace_calls(lk_program *program, remaking *m)
{
    int begin = m->r->begin, end = begin + m->r->n_calls, behind = program->n_calls - end;
    int n = begin + m->n + behind;
    lk_call *calls = lk__calloc((size_t)n, sizeof *calls);
    if (!calls)
        return LK_ERR_MEMORY;
    memcpy(calls, program->calls, (size_t)begin * sizeof *calls);
    memcpy(calls + begin, m->calls, (size_t)m->n * sizeof *calls);
    memcpy(calls + begin + m->n, program->calls + end, (size_t)behind * sizeof *calls);
    for (int i = begin; i < end; i++)
        lk__call_release(&program->calls[i]);
    lk__free(program->calls);
    program->calls = calls;
    program->n_calls = program->calls_capacity = n;
    m->n = 0;
    return LK_OK;
}

lk_status lk__program_remake(const lk_recomputation *r)
{
    lk_program *program = r->program;
    remaking m = {.r = r};
    m.second = lk__calloc((size_t)program->n_values + 1, sizeof *m.second);
    m.calls = lk__calloc((size_t)r->n_steps + 1, sizeof *m.calls);
    lk_status status = m.second && m.calls ? remake_make_calls(&m) : LK_ERR_MEMORY;
    if (status == LK_OK)
        status = remake_replace_calls(program, &m);
    for (int v = 0; m.second && v < program->n_values; v++)
        lk__storage_release(m.second[v]);
    lk__free(m.second);
    for (int i = 0; i < m.n; i++)
        lk__call_release(&m.calls[i]);
    lk__free(m.calls);
    return status;
}
