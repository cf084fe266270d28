#include "program/merge.h"
#include "base/mem.h"
#include "core/backend.h"
#include "core/execute.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "ops/ops.h"
#include "program/values.h"

#include <string.h>

/* A storage that the passes make. Those that correspond to each other, one of each pass, lie one after the other in a
 * new storage if they differ; if they are equal the first pass's is used for all. */
typedef struct made {
    lk_storage *first; /* the one of the first pass; NULL: the passes do not make this storage */
    lk_storage *whole; /* the new storage, or `first` */
    int part;          /* the pass that writes this storage; -1: none does */
    int writers;       /* calls of the program that change its values */
} made;

/* The passes being merged: pass v has the calls [begin + v * length, begin + (v + 1) * length). */
typedef struct merging {
    lk_program *program;
    int begin, length, n;
    lk_numbers numbers; /* of all storages that calls use */
    made *made;         /* by number */
    lk_call *calls;     /* the new calls, with references to their tensors */
    int n_calls;
} merging;

static const lk_call *merge_call(const merging *m, int j, int v)
{
    return &m->program->calls[m->begin + v * m->length + j];
}

static made *merge_made(const merging *m, const lk_tensor *t)
{
    return &m->made[lk__number_of(&m->numbers, t->storage)];
}

static bool merge_is_apart(const made *its)
{
    return its->whole != its->first;
}

/* Elements from one pass's storage to the next one's in the whole. */
static int64_t merge_step(const lk_tensor *t)
{
    return (int64_t)(t->storage->bytes / lk_dtype_size(t->dtype));
}

/* --- which passes are alike --------------------------------------------------------------------------------------- */

static bool merge_tensors_are_alike(lk_tensor *const *a, lk_tensor *const *b, int n)
{
    for (int i = 0; i < n; i++) {
        if (!a[i] != !b[i])
            return false;
        if (a[i] && (a[i]->dtype != b[i]->dtype || !lk__shape_equal(a[i]->shape, b[i]->shape) ||
                     a[i]->storage->bytes != b[i]->storage->bytes ||
                     memcmp(a[i]->strides, b[i]->strides, (size_t)a[i]->shape.ndim * sizeof a[i]->strides[0]) != 0))
            return false;
    }
    return true;
}

static bool merge_calls_are_alike(const lk_call *a, const lk_call *b)
{
    size_t attrs = (size_t)(LK_MAX_ATTRS - a->attrs_unused);
    return a->op == b->op && a->dtype == b->dtype && a->kernel == b->kernel && a->n_in == b->n_in &&
           a->n_out == b->n_out && a->free_layout == b->free_layout && a->attrs_unused == b->attrs_unused &&
           memcmp(a->attrs.bytes, b->attrs.bytes, attrs) == 0 && merge_tensors_are_alike(a->in, b->in, a->n_in) &&
           merge_tensors_are_alike(a->out, b->out, a->n_out);
}

/* Returns the number of calls of the pass that begins with call `begin`. */
static int merge_length(const lk_program *program, int begin)
{
    int end = begin;
    while (end < program->n_calls && program->calls[end].pass == program->calls[begin].pass)
        end++;
    return end - begin;
}

/* Sets length and n for the pass that begins at m->begin and the neighbors that are like it. */
static void merge_find_passes(merging *m)
{
    m->length = merge_length(m->program, m->begin);
    for (m->n = 1;; m->n++) {
        if (merge_length(m->program, m->begin + m->n * m->length) != m->length)
            return;
        for (int j = 0; j < m->length; j++)
            if (!merge_calls_are_alike(merge_call(m, j, 0), merge_call(m, j, m->n)))
                return;
    }
}

/* --- who writes what ---------------------------------------------------------------------------------------------- */

static void merge_find_writers(merging *m)
{
    int end = m->begin + m->n * m->length;
    for (int i = 0; i < m->numbers.n; i++)
        m->made[i].part = -1;
    for (int i = 0; i < m->program->n_calls; i++) {
        const lk_call *call = &m->program->calls[i];
        for (int k = 0; k < call->n_out; k++) {
            if (!call->out[k])
                continue;
            made *its = merge_made(m, call->out[k]);
            its->writers += call->op != &lk__op_plain;
            if (i >= m->begin && i < end)
                its->part = (i - m->begin) / m->length;
        }
    }
}

static bool merge_tensors_are_own(const merging *m, int v, lk_tensor *const *tensors, int n)
{
    for (int i = 0; i < n; i++)
        if (tensors[i] && merge_made(m, tensors[i])->part >= 0 && merge_made(m, tensors[i])->part != v)
            return false;
    return true;
}

/* Returns whether no pass uses what another one writes, so that their calls may change places. */
static bool merge_passes_are_independent(const merging *m)
{
    for (int v = 0; v < m->n; v++)
        for (int j = 0; j < m->length; j++) {
            const lk_call *call = merge_call(m, j, v);
            if (!merge_tensors_are_own(m, v, call->in, call->n_in) ||
                !merge_tensors_are_own(m, v, call->out, call->n_out))
                return false;
        }
    return true;
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

static lk_tensor *merge_operand(const merging *m, int j, int v, bool out, int k)
{
    const lk_call *call = merge_call(m, j, v);
    return out ? call->out[k] : call->in[k];
}

/* Returns how many elements the operands k of the calls j of the passes are apart; 0: they are the same; -1: neither.
 */
static int64_t merge_distance(const merging *m, int j, bool out, int k)
{
    const lk_tensor *first = merge_operand(m, j, 0, out, k), *second = merge_operand(m, j, 1, out, k);
    const made *its = merge_made(m, first);
    int64_t step = its->first ? merge_step(first) : second->offset - first->offset;
    for (int v = 0; v < m->n; v++) {
        const lk_tensor *t = merge_operand(m, j, v, out, k);
        const made *other = merge_made(m, t);
        bool fits = its->first ? other->first == its->first && other->part == v && t->offset == first->offset
                               : t->storage == first->storage && t->offset - first->offset == v * step;
        if (!fits || step < 0)
            return -1;
    }
    return its->first && !merge_is_apart(its) ? 0 : step;
}

/* Makes the tensor that stands for m->n like `first`, `step` elements apart: it is longer along the axis that is
 * outermost in memory. *wide is NULL if there is no such axis. */
static lk_status merge_widen(const merging *m, const lk_tensor *first, int64_t step, lk_tensor **wide)
{
    const made *its = merge_made(m, first);
    lk_tensor like = lk__tensor_alias(first);
    int axis = 0;
    *wide = NULL;
    if (like.shape.ndim == 0) {
        like.shape = LK_SHAPE(1);
        like.strides[0] = step;
    }
    while (axis < like.shape.ndim && like.shape.dim[axis] * like.strides[axis] != step)
        axis++;
    if (axis == like.shape.ndim)
        return LK_OK;
    like.shape.dim[axis] *= m->n;
    *wide = lk__tensor_over(its->first ? its->whole : first->storage, &like);
    return *wide ? LK_OK : LK_ERR_MEMORY;
}

/* Makes the merged call's inputs or outputs. *fits: false if some cannot be merged. *apart: whether any are apart. */
static lk_status merge_operands(const merging *m, int j, bool out, lk_tensor **merged, bool *fits, bool *apart)
{
    int n = out ? merge_call(m, j, 0)->n_out : merge_call(m, j, 0)->n_in;
    for (int k = 0; k < n && *fits; k++) {
        lk_tensor *first = merge_operand(m, j, 0, out, k);
        if (!first)
            continue;
        int64_t distance = merge_distance(m, j, out, k);
        if (distance == 0)
            merged[k] = lk_tensor_retain(first);
        else if (distance > 0)
            LK_TRY(merge_widen(m, first, distance, &merged[k]));
        *fits = merged[k] != NULL;
        *apart |= distance > 0;
    }
    return LK_OK;
}

/* Returns whether the storage's values all come from one call of the program, so that it can be moved. A storage that
 * another call writes into has values from before, or ceases to be equal in all passes. */
static bool merge_is_inside(const merging *m, const lk_tensor *t)
{
    const lk_program *program = m->program;
    const made *its = merge_made(m, t);
    return !its->first && its->writers == 1 && !lk__storage_is_written(t->storage) &&
           !lk__lists_storage(program->in, program->n_in, t->storage);
}

/* Notes where results k of the calls j will be, which are `apart` or all equal. */
static lk_status merge_note(merging *m, int j, int k, bool apart)
{
    lk_storage *first = merge_call(m, j, 0)->out[k]->storage, *whole = first;
    if (apart)
        LK_TRY(lk__storage_new(first->device, first->bytes * (size_t)m->n, &whole));
    for (int v = 0; v < m->n; v++)
        *merge_made(m, merge_operand(m, j, v, true, k)) = (made){first, whole, v, 1};
    return LK_OK;
}

/* Undoes that for the results in `noted`. */
static void merge_forget(const merging *m, int j, unsigned noted)
{
    for (int k = 0; k < merge_call(m, j, 0)->n_out; k++) {
        if (!(noted & 1U << k))
            continue;
        const made its = *merge_made(m, merge_operand(m, j, 0, true, k));
        for (int v = 0; v < m->n; v++)
            *merge_made(m, merge_operand(m, j, v, true, k)) = (made){.part = v, .writers = 1};
        if (merge_is_apart(&its))
            lk__storage_release(its.whole);
    }
}

/* Notes the storages that the calls j are the first to use, for results that are `apart` or all equal, and adds them to
 * *noted. *fits: false if one of them cannot be moved, such as a variable, which passes must write in their order, or
 * if the calls only make storages plain that other calls have left apart. */
static lk_status merge_note_results(merging *m, int j, bool apart, unsigned *noted, bool *fits)
{
    const lk_call *one = merge_call(m, j, 0);
    for (int k = 0; k < one->n_out && *fits; k++) {
        if (!one->out[k] || merge_made(m, one->out[k])->first)
            continue;
        *fits &= one->op != &lk__op_plain;
        for (int v = 0; v < m->n; v++)
            *fits &= merge_is_inside(m, merge_operand(m, j, v, true, k));
        if (*fits) {
            LK_TRY(merge_note(m, j, k, apart));
            *noted |= 1U << k;
        }
    }
    return LK_OK;
}

static bool merge_is_taken(const merging *m, const lk_call *one, const lk_call *merged)
{
    return one->op == &lk__op_plain || m->program->device->backend->merges(one, merged);
}

static lk_apart merge_stays_apart(const lk_program *program, const lk_call *one)
{
    const lk_backend *backend = program->device->backend;
    return backend->stays_apart ? backend->stays_apart(one) : LK_APART_NEVER;
}

/* Adds the call that replaces the calls j of all passes. *fits: false if there is none. */
static lk_status merge_calls_whole(merging *m, int j, bool *fits)
{
    const lk_call *one = merge_call(m, j, 0);
    lk_call merged = *one;
    unsigned noted = 0;
    bool apart = false;
    memset(merged.in, 0, sizeof merged.in);
    memset(merged.out, 0, sizeof merged.out);
    lk_status status = merge_operands(m, j, false, merged.in, fits, &apart);
    for (int k = 0; k < one->n_out; k++)
        apart |= one->out[k] && merge_is_apart(merge_made(m, one->out[k]));
    if (status == LK_OK && *fits)
        status = merge_note_results(m, j, apart, &noted, fits);
    if (status == LK_OK && *fits)
        status = merge_operands(m, j, true, merged.out, fits, &apart);
    merged.parts = apart ? m->n : 0;
    if (status == LK_OK && *fits && apart)
        *fits = merge_is_taken(m, one, &merged);
    if (status == LK_OK && *fits) {
        m->calls[m->n_calls++] = merged;
        return LK_OK;
    }
    lk__call_release(&merged);
    merge_forget(m, j, noted);
    return status;
}

/* Returns the tensor in the merged program that has the elements of t, with a reference. */
static lk_tensor *merge_redirected(const merging *m, const lk_tensor *t)
{
    const made *its = merge_made(m, t);
    lk_tensor like = lk__tensor_alias(t);
    if (merge_is_apart(its))
        like.offset += its->part * merge_step(t);
    return lk__tensor_over(its->first ? its->whole : t->storage, &like);
}

/* If kernels can write there, results of calls that stay apart are in a whole too, for merged calls that read them. But
 * outputs of the program stay where they are. */
static lk_status merge_note_apart(merging *m, int j)
{
    const lk_call *one = merge_call(m, j, 0);
    for (int k = 0; k < one->n_out; k++) {
        bool moves = one->out[k] != NULL;
        for (int v = 0; v < m->n && moves; v++) {
            const lk_tensor *t = merge_operand(m, j, v, true, k);
            moves = merge_is_inside(m, t) && !lk__lists_storage(m->program->out, m->program->n_out, t->storage);
        }
        if (moves)
            LK_TRY(merge_note(m, j, k, true));
    }
    return LK_OK;
}

/* Adds the calls j of all passes one after the other. */
static lk_status merge_calls_apart(merging *m, int j)
{
    if (merge_stays_apart(m->program, merge_call(m, j, 0)) == LK_APART_ANY_RESULTS)
        LK_TRY(merge_note_apart(m, j));
    for (int v = 0; v < m->n; v++) {
        const lk_call *one = merge_call(m, j, v);
        lk_call *call = &m->calls[m->n_calls++];
        *call = *one;
        call->pass = merge_call(m, j, 0)->pass;
        for (int k = 0; k < one->n_in; k++)
            call->in[k] = one->in[k] ? merge_redirected(m, one->in[k]) : NULL;
        for (int k = 0; k < one->n_out; k++)
            call->out[k] = one->out[k] ? merge_redirected(m, one->out[k]) : NULL;
        for (int k = 0; k < one->n_in; k++)
            if (one->in[k] && !call->in[k])
                return LK_ERR_MEMORY;
        for (int k = 0; k < one->n_out; k++)
            if (one->out[k] && !call->out[k])
                return LK_ERR_MEMORY;
    }
    return LK_OK;
}

/* Adds what replaces the calls j of all passes. *fits: false if they cannot be replaced. */
static lk_status merge_calls(merging *m, int j, bool *fits)
{
    const lk_call *one = merge_call(m, j, 0);
    bool stays = merge_stays_apart(m->program, one) != LK_APART_NEVER, gives_output = false;
    for (int k = 0; k < one->n_out; k++)
        gives_output |= one->out[k] && lk__lists_storage(m->program->out, m->program->n_out, one->out[k]->storage);
    *fits = !(stays && gives_output);
    if (*fits)
        LK_TRY(merge_calls_whole(m, j, fits));
    if (*fits || !stays)
        return LK_OK;
    *fits = true;
    return merge_calls_apart(m, j);
}

/* --- the other calls ---------------------------------------------------------------------------------------------- */

/* Returns whether an output of the program lies in a storage that merged calls do not write. It is copied then. */
static bool merge_is_copied(const merging *m, const lk_tensor *t)
{
    const made *its = merge_made(m, t);
    return its->first && its->whole != t->storage && lk__lists_storage(m->program->out, m->program->n_out, t->storage);
}

static lk_status merge_copy_outputs(merging *m)
{
    const lk_program *program = m->program;
    for (int i = 0; i < program->n_out; i++) {
        lk_tensor *out = program->out[i];
        if (!out || lk__number_of(&m->numbers, out->storage) < 0 || !merge_is_copied(m, out))
            continue;
        lk_call copy = m->calls[m->n_calls - 1];
        copy = (lk_call){.op = &lk__op_copy,
                         .place = copy.place,
                         .device = copy.device,
                         .dtype = out->dtype,
                         .kernel = lk__backend_kernel(copy.device->backend, LK_OP_COPY, out->dtype, NULL),
                         .algorithms = copy.algorithms,
                         .tuning = copy.tuning,
                         .branch = copy.branch,
                         .pass = copy.pass,
                         .piece = copy.piece,
                         .n_in = 1,
                         .n_out = 1,
                         .attrs_unused = LK_MAX_ATTRS,
                         .in = {merge_redirected(m, out)}};
        if (!copy.in[0])
            return LK_ERR_MEMORY;
        copy.out[0] = lk_tensor_retain(out);
        m->calls[m->n_calls++] = copy;
    }
    return LK_OK;
}

/* A part is made plain together with the whole, whose layout it has. */
static lk_status merge_redirect(const merging *m, lk_call *call, lk_tensor **operand)
{
    lk_tensor *t = *operand, *other;
    if (!t || !merge_made(m, t)->first || merge_is_copied(m, t))
        return LK_OK;
    if (call->op == &lk__op_plain && merge_is_apart(merge_made(m, t)))
        LK_TRY(merge_widen(m, t, merge_step(t), &other));
    else
        other = merge_redirected(m, t);
    if (!other)
        return LK_ERR_MEMORY;
    lk_tensor_release(t);
    *operand = other;
    return LK_OK;
}

static bool merge_takes_all_branches(const merging *m)
{
    for (int i = 0; i < m->program->n_calls; i++)
        if (m->program->calls[i].branch > 0 && (i < m->begin || i >= m->begin + m->n * m->length))
            return false;
    return true;
}

/* --- a run of passes ---------------------------------------------------------------------------------------------- */

/* Replaces the passes by m->calls. */
static lk_status merge_replace(merging *m)
{
    lk_program *program = m->program;
    lk_call *calls = program->calls;
    int end = m->begin + m->n * m->length, rest = program->n_calls - end;
    bool leaves_branches = merge_takes_all_branches(m);
    for (int i = end; i < program->n_calls; i++) {
        for (int k = 0; k < calls[i].n_in; k++)
            LK_TRY(merge_redirect(m, &calls[i], &calls[i].in[k]));
        for (int k = 0; k < calls[i].n_out; k++)
            LK_TRY(merge_redirect(m, &calls[i], &calls[i].out[k]));
    }
    for (int i = 0; i < m->n_calls && leaves_branches; i++)
        m->calls[i].branch = 0;
    int n_calls = m->begin + m->n_calls + rest;
    lk_call *all = lk__calloc((size_t)n_calls, sizeof *all);
    if (!all)
        return LK_ERR_MEMORY;
    for (int i = m->begin; i < end; i++)
        lk__call_release(&calls[i]);
    memcpy(all, calls, (size_t)m->begin * sizeof *all);
    memcpy(all + m->begin, m->calls, (size_t)m->n_calls * sizeof *all);
    memcpy(all + m->begin + m->n_calls, calls + end, (size_t)rest * sizeof *all);
    lk__free(calls);
    program->calls = all;
    program->n_calls = n_calls;
    program->calls_capacity = n_calls;
    m->n_calls = 0; /* their references have moved */
    return LK_OK;
}

/* Merges the passes, unless one of their calls cannot be merged. *end: the call behind them. */
static lk_status merge_passes(merging *m, int *end)
{
    bool fits = m->n > 1;
    lk_status status = lk__program_number(m->program, &m->numbers);
    m->made = lk__calloc((size_t)m->numbers.n + 1, sizeof *m->made);
    m->calls = lk__calloc((size_t)m->length * (size_t)m->n + (size_t)m->program->n_out, sizeof *m->calls);
    if (!m->made || !m->calls)
        status = LK_ERR_MEMORY;
    if (status == LK_OK && fits) {
        merge_find_writers(m);
        fits = merge_passes_are_independent(m);
    }
    for (int j = 0; j < m->length && status == LK_OK && fits; j++)
        status = merge_calls(m, j, &fits);
    if (status == LK_OK && fits)
        status = merge_copy_outputs(m);
    *end = m->begin + (fits ? m->n_calls : m->n * m->length);
    return status == LK_OK && fits ? merge_replace(m) : status;
}

static void merge_free(merging *m)
{
    for (int i = 0; i < m->n_calls; i++)
        lk__call_release(&m->calls[i]);
    for (int i = 0; i < m->numbers.n && m->made; i++)
        if (m->made[i].part == 0 && merge_is_apart(&m->made[i]))
            lk__storage_release(m->made[i].whole);
    lk__numbers_free(&m->numbers);
    LK_FREE_ALL(m->made, m->calls);
}

bool lk__program_may_merge(const lk_program *program)
{
    for (int i = 0; i < program->n_calls; i++)
        if (merge_stays_apart(program, &program->calls[i]) == LK_APART_NEVER)
            return false;
    return true;
}

lk_status lk__program_merge(lk_program *program)
{
    lk_status status = LK_OK;
    for (int begin = 0; begin < program->n_calls && status == LK_OK && program->device->backend->merges;) {
        merging m = {.program = program, .begin = begin};
        merge_find_passes(&m);
        status = merge_passes(&m, &begin);
        merge_free(&m);
    }
    return status;
}
