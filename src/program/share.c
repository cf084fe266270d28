/* Sharing: what calls in branches make of variables alone, their copies in bf16 for instance, is the same in all of
 * them, and made once, before the first branch. */
#include "program/program.h"

#include "base/mem.h"
#include "base/status.h"
#include "core/tensor.h"

#include <string.h>

static bool uses(lk_tensor *const *tensors, int n, const lk_storage *storage)
{
    for (int i = 0; i < n; i++)
        if (tensors[i] && tensors[i]->storage == storage)
            return true;
    return false;
}

/* Calls of the program that write the storage. */
static int writers_of(const lk_program *program, const lk_storage *storage)
{
    int n = 0;
    for (int i = 0; i < program->n_calls; i++)
        n += uses(program->calls[i].out, program->calls[i].n_out, storage);
    return n;
}

static bool is_written_before(const lk_program *program, int call, const lk_storage *storage)
{
    for (int i = 0; i < call; i++)
        if (uses(program->calls[i].out, program->calls[i].n_out, storage))
            return true;
    return false;
}

static bool is_of_variables(const lk_program *program, int i)
{
    const lk_call *call = &program->calls[i];
    for (int k = 0; k < call->n_in; k++) {
        const lk_tensor *x = call->in[k];
        if (x && (!lk__storage_is_written(x->storage) || uses(program->in, program->n_in, x->storage) ||
                  is_written_before(program, i, x->storage)))
            return false;
    }
    return call->n_in > 0;
}

/* Whether it makes one tensor, of variables as they are before the program, that nobody else writes or is given. */
static bool may_be_shared(const lk_program *program, int i)
{
    const lk_call *call = &program->calls[i];
    if (call->branch == 0 || call->n_out != 1 || !call->out[0] || call->op->set_step)
        return false;
    const lk_storage *made = call->out[0]->storage;
    return is_of_variables(program, i) && !lk__storage_is_written((lk_storage *)(uintptr_t)made) &&
           !uses(program->out, program->n_out, made) && writers_of(program, made) == 1;
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
    if (a->op != b->op || a->n_in != b->n_in || b->n_out != 1 || !b->out[0] || a->attrs_unused != b->attrs_unused ||
        a->kernel != b->kernel || memcmp(a->attrs.bytes, b->attrs.bytes, attrs) != 0 ||
        a->out[0]->dtype != b->out[0]->dtype)
        return false;
    for (int k = 0; k < a->n_in; k++)
        if (!are_the_same_view(a->in[k], b->in[k]))
            return false;
    return true;
}

/* --- sharing ------------------------------------------------------------------------------------------------------ */

/* All that reads `from` reads `to`. */
static lk_status redirect(lk_program *program, const lk_storage *from, lk_storage *to)
{
    for (int i = 0; i < program->n_calls; i++) {
        lk_call *call = &program->calls[i];
        for (int k = 0; k < call->n_in; k++) {
            if (!call->in[k] || call->in[k]->storage != from)
                continue;
            lk_tensor *other = lk__tensor_over(to, call->in[k]);
            if (!other)
                return LK_ERR_MEMORY;
            lk_tensor_release(call->in[k]);
            call->in[k] = other;
        }
    }
    return LK_OK;
}

static void remove_call(lk_program *program, int i)
{
    lk__call_release(&program->calls[i]);
    program->n_calls--;
    memmove(&program->calls[i], &program->calls[i + 1], (size_t)(program->n_calls - i) * sizeof *program->calls);
}

static void move_to(lk_program *program, int from, int to)
{
    lk_call moved = program->calls[from];
    memmove(&program->calls[to + 1], &program->calls[to], (size_t)(from - to) * sizeof moved);
    moved.branch = 0;
    program->calls[to] = moved;
}

/* Lets call i stand for all later ones that make the same. */
static lk_status share(lk_program *program, int i, bool *shared)
{
    *shared = false;
    for (int j = i + 1; j < program->n_calls; j++) {
        if (!make_the_same(&program->calls[i], &program->calls[j]) || !may_be_shared(program, j))
            continue;
        LK_TRY(redirect(program, program->calls[j].out[0]->storage, program->calls[i].out[0]->storage));
        remove_call(program, j--);
        *shared = true;
    }
    return LK_OK;
}

lk_status lk__program_share(lk_program *program)
{
    int front = 0;
    for (int i = 0; i < program->n_calls; i++) {
        bool shared = false;
        if (may_be_shared(program, i))
            LK_TRY(share(program, i, &shared));
        if (shared)
            move_to(program, i, front++);
    }
    return LK_OK;
}
