#include "program/order.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "ops/ops.h"
#include "program/program.h"
#include "program/values.h"

#include <stdlib.h>

static bool order_is_sum(const lk_call *call)
{
    return call->op == &lk__op_add || call->op == &lk__op_pairwise_sum;
}

/* How calls after the present one use a storage. */
typedef struct order_use {
    bool is_output;
    bool sums_outputs; /* a call uses it to add up an output */
    bool else_used;    /* a call uses it for anything else */
} order_use;

static bool order_finishes_outputs(const lk_call *call, const lk_numbers *numbers, const order_use *uses)
{
    for (int k = 0; k < call->n_out; k++) {
        if (!call->out[k])
            continue;
        const order_use *use = &uses[lk__number_of(numbers, call->out[k]->storage)];
        if (!use->is_output && !(order_is_sum(call) && use->sums_outputs && !use->else_used))
            return false;
    }
    return call->n_out > 0;
}

static void order_note_uses(lk_tensor *const *tensors, int n, bool sums_outputs, const lk_numbers *numbers,
                            order_use *uses)
{
    for (int i = 0; i < n; i++) {
        if (!tensors[i])
            continue;
        order_use *use = &uses[lk__number_of(numbers, tensors[i]->storage)];
        use->sums_outputs |= sums_outputs;
        use->else_used |= !sums_outputs;
    }
}

/* `uses`: one for each number, zero-initialized. */
static void order_find_finishing(const lk_program *program, const lk_numbers *numbers, order_use *uses, bool *finishes)
{
    for (int i = 0; i < program->n_out; i++)
        if (program->out[i])
            uses[lk__number_of(numbers, program->out[i]->storage)].is_output = true;
    for (int i = program->n_calls - 1; i >= 0; i--) {
        const lk_call *call = &program->calls[i];
        finishes[i] = order_finishes_outputs(call, numbers, uses);
        order_note_uses(call->in, call->n_in, finishes[i] && order_is_sum(call), numbers, uses);
        order_note_uses(call->out, call->n_out, finishes[i] && order_is_sum(call), numbers, uses);
    }
}

static lk_status order_number(const lk_program *program, lk_numbers *numbers)
{
    LK_TRY(lk__program_number(program, numbers));
    LK_TRY(lk__number_tensors(numbers, program->in, program->n_in));
    return lk__number_tensors(numbers, program->out, program->n_out);
}

lk_status lk__program_find_finishing(const lk_program *program, bool **finishes)
{
    lk_numbers numbers = {0};
    order_use *uses = NULL;
    *finishes = NULL;
    lk_status status = order_number(program, &numbers);
    if (status == LK_OK) {
        uses = lk__calloc((size_t)numbers.n + 1, sizeof *uses);
        *finishes = lk__calloc((size_t)program->n_calls + 1, sizeof **finishes);
        status = uses && *finishes ? LK_OK : LK_ERR_MEMORY;
    }
    if (status == LK_OK)
        order_find_finishing(program, &numbers, uses, *finishes);
    lk__free(uses);
    lk__numbers_free(&numbers);
    if (status != LK_OK) {
        lk__free(*finishes);
        *finishes = NULL;
    }
    return status;
}

/* Places: a call that moves follows its anchor, the last call that stays among those it may not pass. Behind one
 * anchor, calls that wait for each other are a chain, in the order in which they were recorded. A later chain comes
 * first: backward reaches the last layers first, so sums of their gradients, recorded last, leave first. A place is
 * anchor * 2^32 + chain; the chain of a call that stays is 0, and the anchor of calls that move to the front is -1. */
static const int64_t order_front = -((int64_t)1 << 32);

static int order_anchor(int64_t place)
{
    return (int)((place - (place & UINT32_MAX)) / ((int64_t)1 << 32));
}

/* The last places of calls so far that a later call may not pass. */
typedef struct order_last {
    int64_t writer, user; /* of the calls that write and use a storage */
    int cut; /* the storage is of an input given only after this output, a number, is finished; -1: it is not */
} order_last;

typedef struct order_search {
    lk_numbers numbers;
    order_last *last;              /* [numbers.n] */
    int64_t *place;                /* [n_calls] */
    int64_t last_inside, last_out; /* of the calls inside branches and outside */
} order_search;

static order_last *order_last_of(const order_search *s, const lk_tensor *tensor)
{
    return &s->last[lk__number_of(&s->numbers, tensor->storage)];
}

static int64_t order_behind_cut(const order_search *s, const order_last *last)
{
    return last->cut < 0 ? order_front : s->last[last->cut].writer;
}

/* Returns the place of the last call that `call` may not pass. A call outside branches waits for all branches, so it
 * never passes a call inside one, nor the other way round. */
static int64_t order_find_barrier(const order_search *s, const lk_call *call)
{
    int64_t barrier = call->branch > 0 ? s->last_out : s->last_inside;
    for (int i = 0; i < call->n_in; i++) {
        if (!call->in[i])
            continue;
        const order_last *last = order_last_of(s, call->in[i]);
        barrier = lk__max(barrier, lk__max(last->writer, order_behind_cut(s, last)));
    }
    for (int i = 0; i < call->n_out; i++) {
        if (!call->out[i])
            continue;
        const order_last *last = order_last_of(s, call->out[i]);
        barrier = lk__max(barrier, lk__max(last->user, order_behind_cut(s, last)));
    }
    return barrier;
}

static void order_note_place(order_search *s, const lk_call *call, int64_t place)
{
    int64_t *last_branch = call->branch > 0 ? &s->last_inside : &s->last_out;
    *last_branch = lk__max(*last_branch, place);
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i])
            order_last_of(s, call->in[i])->user = lk__max(order_last_of(s, call->in[i])->user, place);
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i])
            order_last_of(s, call->out[i])->writer = order_last_of(s, call->out[i])->user = place;
}

/* Finds all places. A call that moves joins the pass, and piece, of its anchor. */
static void order_find_places(order_search *s, lk_call *calls, int n_calls, const bool *finishes)
{
    for (int i = 0; i < n_calls; i++) {
        int64_t place = finishes[i] ? order_find_barrier(s, &calls[i]) : order_front;
        if (!finishes[i] || place == lk__max(s->last_inside, s->last_out)) {
            place = i * ((int64_t)1 << 32); /* it stays */
        } else {
            const lk_call *anchor = &calls[lk__max(order_anchor(place), 0)];
            calls[i].pass = anchor->pass;
            calls[i].piece = anchor->piece;
            place += (place & UINT32_MAX) == 0 ? n_calls - i : 0;
        }
        s->place[i] = place;
        order_note_place(s, &calls[i], place);
    }
}

static lk_status order_begin_search(order_search *s, const lk_program *program)
{
    LK_TRY(order_number(program, &s->numbers));
    s->last = lk__calloc((size_t)s->numbers.n + 1, sizeof *s->last);
    s->place = lk__calloc((size_t)program->n_calls + 1, sizeof *s->place);
    if (!s->last || !s->place)
        return LK_ERR_MEMORY;
    s->last_inside = s->last_out = order_front;
    for (int i = 0; i < s->numbers.n; i++)
        s->last[i] = (order_last){order_front, order_front, -1};
    for (int k = 1; k <= program->cuts; k++) {
        const lk_tensor *out = program->out[program->n_out - k];
        if (out)
            order_last_of(s, program->in[program->n_in - k])->cut = lk__number_of(&s->numbers, out->storage);
    }
    return LK_OK;
}

typedef struct order_item {
    int64_t place;
    int index; /* of the call, as it was recorded */
    lk_call call;
} order_item;

static int order_compare(const void *a, const void *b)
{
    const order_item *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static lk_status order_sort(lk_program *program, const int64_t *place)
{
    order_item *items = lk__calloc((size_t)program->n_calls + 1, sizeof *items);
    if (!items)
        return LK_ERR_MEMORY;
    for (int i = 0; i < program->n_calls; i++)
        items[i] = (order_item){place[i], i, program->calls[i]};
    qsort(items, (size_t)program->n_calls, sizeof *items, order_compare);
    for (int i = 0; i < program->n_calls; i++)
        program->calls[i] = items[i].call;
    lk__free(items);
    return LK_OK;
}

lk_status lk__program_finish_outputs_early(lk_program *program)
{
    bool *finishes;
    order_search s = {0};
    LK_TRY(lk__program_find_finishing(program, &finishes));
    lk_status status = order_begin_search(&s, program);
    if (status == LK_OK) {
        order_find_places(&s, program->calls, program->n_calls, finishes);
        status = order_sort(program, s.place);
    }
    lk__numbers_free(&s.numbers);
    LK_FREE_ALL(finishes, s.last, s.place);
    return status;
}
