/* The rewriting of a list of calls (rewrite.h), and the loop over the patterns. */
#include "program/fuse.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/backend.h"
#include "core/execute.h"
#include "core/tensor.h"
#include "program/rewrite.h"
#include "program/values.h"

/* --- queries ------------------------------------------------------------------------------------------------------ */

lk_call *lk__rewrite_call(const lk_rewrite *r, int i)
{
    return &r->program->calls[i];
}

bool lk__rewrite_is(const lk_rewrite *r, int i, int op)
{
    return i >= 0 && !r->removed[i] && r->program->calls[i].op->id == op;
}

lk_span lk__rewrite_span(const lk_rewrite *r, const lk_tensor *t)
{
    int number = lk__number_of(&r->numbers, t->storage), last = r->program->n_calls - 1;
    return number >= 0 ? r->spans[number] : (lk_span){0, last, last};
}

static bool rewrite_reads(const lk_rewrite *r, int i, const lk_tensor *t)
{
    const lk_call *call = lk__rewrite_call(r, i);
    return !r->removed[i] && lk__lists_storage(call->in, call->n_in, t->storage);
}

int lk__rewrite_readers(const lk_rewrite *r, const lk_tensor *t, int *readers, int capacity)
{
    lk_span span = lk__rewrite_span(r, t);
    int n = 0;
    for (int i = span.first; i <= span.last; i++) {
        if (!rewrite_reads(r, i, t))
            continue;
        if (n < capacity)
            readers[n] = i;
        n++;
    }
    return n;
}

int lk__rewrite_writer(const lk_rewrite *r, const lk_tensor *t)
{
    lk_span span = lk__rewrite_span(r, t);
    int writer = -1;
    for (int i = span.first; i <= span.last_write; i++) {
        const lk_call *call = &r->program->calls[i];
        if (r->removed[i] || !lk__lists_storage(call->out, call->n_out, t->storage))
            continue;
        if (writer >= 0)
            return -1;
        writer = i;
    }
    return writer;
}

static bool fuse_list_has(int i, const int *list, int n)
{
    for (int j = 0; j < n; j++)
        if (list[j] == i)
            return true;
    return false;
}

/* Returns whether call i reads all of t, and not another view of its storage. */
static bool rewrite_reads_as_it_is(const lk_rewrite *r, int i, const lk_tensor *t)
{
    const lk_call *call = lk__rewrite_call(r, i);
    for (int k = 0; k < call->n_in; k++)
        if (call->in[k] && call->in[k]->storage == t->storage && !lk__tensor_same_view(call->in[k], t))
            return false;
    return true;
}

bool lk__rewrite_is_between(const lk_rewrite *r, const lk_tensor *t, const int *readers, int n)
{
    enum { MOST = 8 };
    int found[MOST], count = lk__rewrite_readers(r, t, found, MOST);
    const lk_program *program = r->program;
    if (count > MOST || lk__rewrite_writer(r, t) < 0 || lk__lists_storage(program->in, program->n_in, t->storage) ||
        lk__lists_storage(program->out, program->n_out, t->storage) || lk__storage_is_written(t->storage))
        return false;
    for (int i = 0; i < count; i++)
        if (!fuse_list_has(found[i], readers, n) || !rewrite_reads_as_it_is(r, found[i], t))
            return false;
    return true;
}

lk_tensor *lk__rewrite_result(const lk_rewrite *r, int i)
{
    return lk__rewrite_call(r, i)->out[0];
}

int lk__rewrite_only_reader(const lk_rewrite *r, int i)
{
    const lk_tensor *result = lk__rewrite_result(r, i);
    int reader;
    bool only = lk__rewrite_readers(r, result, &reader, 1) == 1 && lk__rewrite_is_between(r, result, &reader, 1);
    return only ? reader : -1;
}

/* Returns whether the call uses elements of t, or, with only_writes, changes them. */
static bool fuse_call_meets(const lk_call *call, const lk_tensor *t, bool only_writes)
{
    for (int k = 0; k < call->n_out; k++)
        if (call->out[k] && lk__tensors_may_overlap(call->out[k], t))
            return true;
    for (int k = 0; k < call->n_in && !only_writes; k++)
        if (call->in[k] && lk__tensors_may_overlap(call->in[k], t))
            return true;
    return false;
}

/* Returns whether `other` stands in the way if `call` does the work of `moved` on the other side of it. */
static bool fuse_is_in_the_way(const lk_call *other, const lk_call *moved, const lk_call *call)
{
    if (other->op == &lk__op_plain) /* changes no values */
        return false;
    for (int k = 0; k < moved->n_in; k++)
        if (moved->in[k] && lk__lists_storage(call->in, call->n_in, moved->in[k]->storage) &&
            fuse_call_meets(other, moved->in[k], true))
            return true;
    for (int k = 0; k < moved->n_out; k++)
        if (moved->out[k] && lk__lists_storage(call->out, call->n_out, moved->out[k]->storage) &&
            fuse_call_meets(other, moved->out[k], false))
            return true;
    return false;
}

bool lk__rewrite_may_stand(const lk_rewrite *r, int at, const lk_call *call, const int *from, int n)
{
    for (int k = 0; k < n; k++) {
        int low = from[k] < at ? from[k] : at, high = from[k] < at ? at : from[k];
        for (int i = low + 1; from[k] >= 0 && i < high; i++)
            if (!r->removed[i] && !fuse_list_has(i, from, n) &&
                fuse_is_in_the_way(lk__rewrite_call(r, i), lk__rewrite_call(r, from[k]), call))
                return false;
    }
    return true;
}

/* --- spans -------------------------------------------------------------------------------------------------------- */

static void rewrite_note_uses(lk_rewrite *r, int call, lk_tensor *const *tensors, int n, bool write)
{
    for (int i = 0; i < n; i++) {
        int number = tensors[i] ? lk__number_of(&r->numbers, tensors[i]->storage) : -1;
        if (number < 0)
            continue;
        lk_span *span = &r->spans[number];
        span->first = call < span->first ? call : span->first;
        span->last = call > span->last ? call : span->last;
        if (write && call > span->last_write)
            span->last_write = call;
    }
}

static void rewrite_note_call(lk_rewrite *r, int i)
{
    const lk_call *call = lk__rewrite_call(r, i);
    rewrite_note_uses(r, i, call->in, call->n_in, false);
    rewrite_note_uses(r, i, call->out, call->n_out, true);
}

static lk_status rewrite_find_spans(lk_rewrite *r)
{
    int n = r->program->n_calls;
    LK_TRY(lk__program_number(r->program, &r->numbers));
    r->spans = lk__calloc((size_t)r->numbers.n + 1, sizeof *r->spans);
    if (!r->spans)
        return LK_ERR_MEMORY;
    for (int i = 0; i < r->numbers.n; i++)
        r->spans[i] = (lk_span){n, -1, -1};
    for (int i = 0; i < n; i++)
        rewrite_note_call(r, i);
    return LK_OK;
}

/* --- replacing ---------------------------------------------------------------------------------------------------- */

bool lk__rewrite_fits(const lk_rewrite *r, lk_call *call)
{
    call->device = r->program->device;
    call->dtype = call->in[0]->dtype;
    call->algorithms = call->device->algorithms;
    call->tuning = call->device->tuning;
    call->tf32 = call->device->tf32;
    call->kernel = lk__backend_kernel_of(call);
    return call->kernel && !(call->kernel->flags & LK_KERNEL_ORACLE);
}

lk_status lk__rewrite_output(const lk_call *call, int i, lk_tensor **output)
{
    lk_meta meta[LK_MAX_OUTPUTS] = {{0}};
    LK_TRY(call->op->infer(call, meta));
    return lk__tensor_new(call->device, meta[i].dtype, meta[i].shape, output);
}

void lk__rewrite_replace(lk_rewrite *r, int at, const lk_call *call, const int *gone, int n)
{
    lk__call_retain(call);
    for (int i = 0; i < n; i++)
        if (gone[i] >= 0)
            r->removed[gone[i]] = true;
    lk_call replaced = r->program->calls[at];
    lk__call_release(&r->program->calls[at]);
    r->program->calls[at] = *call;
    lk__call_clear_unused(&r->program->calls[at]);
    r->program->calls[at].branch = replaced.branch;
    r->program->calls[at].pass = replaced.pass;
    r->program->calls[at].piece = replaced.piece;
    r->removed[at] = false;
    rewrite_note_call(r, at);
}

static void rewrite_close_gaps(lk_rewrite *r)
{
    lk_program *program = r->program;
    int n = 0;
    for (int i = 0; i < program->n_calls; i++) {
        if (r->removed[i])
            lk__call_release(&program->calls[i]);
        else
            program->calls[n++] = program->calls[i];
    }
    program->n_calls = n;
}

typedef lk_status (*fuse_pattern)(lk_rewrite *r, int i);

static lk_status fuse_apply(lk_program *program, const fuse_pattern *patterns, size_t n)
{
    lk_rewrite r = {.program = program, .removed = lk__calloc((size_t)program->n_calls + 1, sizeof(bool))};
    lk_status status = r.removed ? rewrite_find_spans(&r) : LK_ERR_MEMORY;
    for (int i = 0; i < program->n_calls; i++)
        for (size_t p = 0; p < n && status == LK_OK; p++)
            status = patterns[p](&r, i);
    if (r.removed)
        rewrite_close_gaps(&r);
    lk__free(r.removed);
    lk__free(r.spans);
    lk__numbers_free(&r.numbers);
    return status;
}

lk_status lk__program_fuse(lk_program *program)
{
    static const fuse_pattern patterns[] = {
        lk__fuse_conv_block,      lk__fuse_relu_pool,    lk__fuse_batch_norm_drop, lk__fuse_batch_norm_act,
        lk__fuse_batch_norm_pool, lk__fuse_gradient_sum, lk__fuse_dense,           lk__fuse_loss,
        lk__fuse_loss_casts,
    };
    LK_TRY(fuse_apply(program, patterns, sizeof patterns / sizeof *patterns));
    return fuse_apply(program, &(const fuse_pattern){lk__fuse_bias_gradient}, 1);
}

lk_status lk__program_skip_copies(lk_program *program)
{
    return fuse_apply(program, &(const fuse_pattern){lk__fuse_copy}, 1);
}
