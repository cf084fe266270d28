/* The tape. Its entries are calls and functions in the order in which they were made. Walking them backwards visits
 * each one after everything that used its outputs, so one pass suffices.
 *
 * Gradients are summed in that fixed order too: a tensor used twice gets (later use) + (earlier use), whichever device
 * runs it. */
#include "lockstep/autograd.h"
#include "base/mem.h"
#include "core/scope.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "ops/ops.h"

/* A slot of a hash table with open addressing, from a tensor to its gradient so far. A tensor in the table depends on a
 * watched one. */
typedef struct gradient_slot {
    const lk_tensor *tensor; /* kept alive by the tape */
    lk_tensor *gradient;     /* one reference, or NULL */
    bool f32;                /* `tensor` is bf16, cast from f32 */
    bool given;              /* set at the end of the walk: `tensor` is a seed, or a gradient that the caller has */
} gradient_slot;

/* A call, or a function (then call.op is NULL), with references to its tensors. */
typedef struct tape_entry {
    lk_call call;
    lk_function function;
    lk_tensor **tensors; /* of a function: inputs, then outputs */
} tape_entry;

struct lk_tape {
    lk_tensor **watched;
    int n_watched;
    tape_entry *entries;
    int64_t n_entries, entries_capacity;
    gradient_slot *slots;
    int64_t n_slots, slots_capacity; /* a power of two */
    lk_recorder before;
    bool recording;
};

/* --- the table of tensors ----------------------------------------------------------------------------------------- */

static gradient_slot *tape_probe(gradient_slot *slots, int64_t capacity, const lk_tensor *tensor)
{
    uint64_t hash = (uint64_t)(uintptr_t)tensor * 0x9E3779B97F4A7C15u;
    for (uint64_t i = hash >> 32;; i++) {
        gradient_slot *slot = &slots[i & (uint64_t)(capacity - 1)];
        if (!slot->tensor || slot->tensor == tensor)
            return slot;
    }
}

static gradient_slot *tape_find(const lk_tape *tape, const lk_tensor *tensor)
{
    if (!tensor || tape->slots_capacity == 0)
        return NULL;
    gradient_slot *slot = tape_probe(tape->slots, tape->slots_capacity, tensor);
    return slot->tensor ? slot : NULL;
}

static lk_status tape_grow_slots(lk_tape *tape)
{
    int64_t capacity = tape->slots_capacity ? 2 * tape->slots_capacity : 128;
    gradient_slot *slots = lk__calloc((size_t)capacity, sizeof *slots);
    if (!slots)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < tape->slots_capacity; i++)
        if (tape->slots[i].tensor)
            *tape_probe(slots, capacity, tape->slots[i].tensor) = tape->slots[i];
    lk__free(tape->slots);
    tape->slots = slots;
    tape->slots_capacity = capacity;
    return LK_OK;
}

/* Makes sure that `more` tensors can be added to the table without failing. */
static lk_status tape_reserve_slots(lk_tape *tape, int more)
{
    while (2 * (tape->n_slots + more) > tape->slots_capacity)
        LK_TRY(tape_grow_slots(tape));
    return LK_OK;
}

/* The tensor's slot, which is new if the tensor had none. Space for it must have been reserved. */
static gradient_slot *tape_follow(lk_tape *tape, const lk_tensor *tensor)
{
    gradient_slot *slot = tape_probe(tape->slots, tape->slots_capacity, tensor);
    if (!slot->tensor) {
        slot->tensor = tensor;
        tape->n_slots++;
    }
    return slot;
}

/* --- recording ---------------------------------------------------------------------------------------------------- */

static bool tape_follows_any(const lk_tape *tape, lk_tensor *const *tensors, int n)
{
    for (int i = 0; i < n; i++)
        if (tape_find(tape, tensors[i]))
            return true;
    return false;
}

/* Makes sure that one more entry with `n_out` outputs fits. */
static lk_status tape_reserve(lk_tape *tape, int n_out)
{
    LK_TRY(LK_GROW(tape->entries, &tape->entries_capacity, tape->n_entries + 1));
    return tape_reserve_slots(tape, n_out);
}

static void tape_follow_all(lk_tape *tape, lk_tensor *const *tensors, int n)
{
    for (int i = 0; i < n; i++)
        if (tensors[i])
            tape_follow(tape, tensors[i]);
}

/* Returns whether the call makes a bf16 copy of an f32 tensor. The copy's gradient is cast back to f32 in the end, so
 * it is accumulated in f32 and not rounded on the way. */
static bool tape_is_cast_of_f32(const lk_call *call)
{
    return call->op->id == LK_OP_CAST && call->in[0]->dtype == LK_F32 && call->out[0]->dtype == LK_BF16;
}

static lk_status tape_record_call(void *self, const lk_call *call)
{
    lk_tape *tape = self;
    /* An operator that writes into a tensor it was given (an update, a copy into a view) is not a function of its
     * inputs. */
    if (!tape_follows_any(tape, call->in, call->n_in) || tape_follows_any(tape, call->out, call->n_out))
        return LK_OK;
    LK_TRY(tape_reserve(tape, call->n_out));
    tape_follow_all(tape, call->out, call->n_out);
    if (tape_is_cast_of_f32(call))
        tape_find(tape, call->out[0])->f32 = true;
    tape->entries[tape->n_entries++] = (tape_entry){.call = *call};
    lk__call_retain(call);
    return LK_OK;
}

static lk_status tape_record_function(void *self, const lk_function *function)
{
    lk_tape *tape = self;
    int n = function->n;
    if (!tape_follows_any(tape, function->in, n))
        return LK_OK;
    LK_TRY(tape_reserve(tape, n));
    lk_tensor **tensors = lk__calloc(2 * (size_t)n, sizeof *tensors);
    if (!tensors)
        return LK_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        tensors[i] = lk_tensor_retain(function->in[i]);
        tensors[n + i] = lk_tensor_retain(function->out[i]);
    }
    tape_follow_all(tape, function->out, n);
    tape_entry entry = {.function = *function, .tensors = tensors};
    entry.function.in = tensors;
    entry.function.out = tensors + n;
    tape->entries[tape->n_entries++] = entry;
    return LK_OK;
}

static void tape_release_entry(const tape_entry *entry)
{
    if (entry->call.op)
        lk__call_release(&entry->call);
    lk__tensors_release(entry->tensors, 2 * (int64_t)entry->function.n);
    lk__free(entry->tensors);
}

/* The calling thread's open recorder. */
static lk_recorder tape_open_recorder(void)
{
    lk_recorder open = lk__recorder_set((lk_recorder){0});
    lk__recorder_set(open);
    return open;
}

static void tape_stop_recording(lk_tape *tape)
{
    if (tape->recording)
        lk__recorder_set(tape->before);
    tape->recording = false;
}

lk_tape *lk_tape_begin(lk_tensor *const *watched, int n)
{
    if (tape_open_recorder().record) {
        lk__fail(LK_ERR_STATE, "tape: one is open in this thread already");
        return NULL;
    }
    lk_tape *tape = lk__calloc(1, sizeof *tape);
    if (!tape)
        return NULL;
    tape->watched = lk__calloc((size_t)n, sizeof *tape->watched);
    if (!tape->watched) {
        lk__free(tape);
        return NULL;
    }
    bool complete = true;
    for (int i = 0; i < n && complete; i++) {
        if (!watched[i])
            lk__fail(LK_ERR_ARGUMENT, "tape: watched tensor %d is NULL", i);
        tape->watched[tape->n_watched++] = lk_tensor_retain(watched[i]);
        complete = watched[i] && tape_reserve_slots(tape, 1) == LK_OK;
        if (complete)
            tape_follow(tape, watched[i]);
    }
    if (!complete) {
        lk_tape_release(tape);
        return NULL;
    }
    tape->before = lk__recorder_set((lk_recorder){tape_record_call, tape_record_function, tape});
    tape->recording = true;
    return tape;
}

void lk_tape_release(lk_tape *tape)
{
    if (!tape)
        return;
    tape_stop_recording(tape);
    for (int64_t i = 0; i < tape->slots_capacity; i++)
        lk_tensor_release(tape->slots[i].gradient);
    for (int64_t i = 0; i < tape->n_entries; i++)
        tape_release_entry(&tape->entries[i]);
    lk__tensors_release(tape->watched, tape->n_watched);
    lk__free(tape->slots);
    lk__free(tape->entries);
    lk__free(tape->watched);
    lk__free(tape);
}

/* --- the walk back ------------------------------------------------------------------------------------------------ */

/* A rule returns a gradient in its tensor's dtype or in the dtype of the sum. */
static lk_tensor *tape_cast_to_sum(lk_call_site at, const gradient_slot *slot, lk_tensor *gradient)
{
    lk_dtype dtype = slot->f32 ? LK_F32 : slot->tensor->dtype;
    return gradient->dtype == dtype ? gradient : lk_cast_at(at, gradient, dtype);
}

/* slot->gradient += gradient; the slot holds its own reference. */
static lk_status tape_accumulate(lk_call_site at, gradient_slot *slot, lk_tensor *gradient)
{
    lk_tensor *sum = tape_cast_to_sum(at, slot, gradient);
    if (sum && slot->gradient)
        sum = lk_add_at(at, slot->gradient, sum);
    if (!sum)
        return lk_error_status();
    lk_tensor_retain(sum);
    lk_tensor_release(slot->gradient);
    slot->gradient = sum;
    return LK_OK;
}

static lk_tensor *tape_gradient_of(const lk_tape *tape, const lk_tensor *tensor)
{
    gradient_slot *slot = tape_find(tape, tensor);
    return slot ? slot->gradient : NULL;
}

static bool tape_fill_gradient(const lk_tape *tape, lk_gradient *g)
{
    bool contributes = false;
    for (int i = 0; i < g->call->n_out; i++) {
        g->dout[i] = tape_gradient_of(tape, g->call->out[i]);
        contributes |= g->dout[i] != NULL;
    }
    for (int i = 0; i < g->call->n_in; i++) {
        const gradient_slot *slot = tape_find(tape, g->call->in[i]);
        g->need[i] = slot != NULL;
        g->f32[i] = slot && slot->f32;
    }
    return contributes;
}

static lk_status tape_apply_rule(lk_tape *tape, const lk_call *call)
{
    lk_gradient g = {.call = call};
    if (!tape_fill_gradient(tape, &g))
        return LK_OK;
    if (!call->op->gradient)
        LK_FAIL(LK_ERR_ARGUMENT, "gradient: %s, called at %s:%d, has none", call->op->name, call->place.file,
                call->place.line);
    LK_TRY(call->op->gradient(&g));
    for (int i = 0; i < call->n_in; i++)
        if (g.need[i] && g.din[i])
            LK_TRY(tape_accumulate(call->place, tape_find(tape, call->in[i]), g.din[i]));
    return LK_OK;
}

/* dout[i] is the gradient of output i; zeros if the output did not contribute. */
static lk_status tape_walk_function(lk_tape *tape, const lk_function *function, lk_tensor **dout, lk_tensor **din)
{
    for (int i = 0; i < function->n; i++) {
        lk_tensor *out = function->out[i];
        dout[i] = tape_gradient_of(tape, out);
        if (!dout[i])
            dout[i] = lk_full_at(function->place, lk_tensor_device(out), out->dtype, out->shape, 0);
        if (!dout[i])
            return lk_error_status();
    }
    LK_TRY(function->gradient(function->user, function->place, dout, din, function->n));
    for (int i = 0; i < function->n; i++) {
        gradient_slot *slot = tape_find(tape, function->in[i]);
        if (slot)
            LK_TRY(tape_accumulate(function->place, slot, din[i]));
    }
    return LK_OK;
}

static lk_status tape_apply_function(lk_tape *tape, const lk_function *function)
{
    int n = function->n, contributing = 0;
    for (int i = 0; i < n; i++)
        contributing += tape_gradient_of(tape, function->out[i]) != NULL;
    if (contributing == 0)
        return LK_OK;
    lk_tensor **gradients = lk__calloc(2 * (size_t)n, sizeof *gradients);
    lk_status status = gradients ? tape_walk_function(tape, function, gradients, gradients + n) : LK_ERR_MEMORY;
    lk__free(gradients);
    return status;
}

/* Once an entry was walked, the gradients of its outputs are no longer needed. */
static void tape_drop_gradients(lk_tape *tape, lk_tensor *const *outputs, int n)
{
    for (int i = 0; i < n; i++) {
        gradient_slot *slot = tape_find(tape, outputs[i]);
        if (!slot)
            continue;
        lk_tensor_release(slot->gradient);
        slot->gradient = NULL;
    }
}

static lk_status tape_walk_back(lk_tape *tape)
{
    while (tape->n_entries > 0) {
        const tape_entry *entry = &tape->entries[tape->n_entries - 1];
        lk_scope_begin();
        lk_status status =
            entry->call.op ? tape_apply_rule(tape, &entry->call) : tape_apply_function(tape, &entry->function);
        lk_scope_end();
        LK_TRY(status);
        tape_drop_gradients(tape, entry->call.out, entry->call.n_out);
        tape_drop_gradients(tape, entry->function.out, entry->function.n);
        /* Tensors that are freed here may leave stale slots. They are never looked up again: every entry with these
         * tensors was walked. */
        tape->n_entries--;
        tape_release_entry(entry);
    }
    return LK_OK;
}

/* A NULL argument is usually the result of an earlier failure; then that is the error to report. */
static lk_status tape_no_argument(const char *what)
{
    return lk_error_status() != LK_OK ? lk_error_status() : lk__fail(LK_ERR_ARGUMENT, "gradient: %s is NULL", what);
}

static lk_status tape_check_seed(const lk_tensor *target, const lk_tensor *seed)
{
    if (!seed)
        return LK_OK;
    if (!lk__shape_equal(seed->shape, target->shape))
        LK_FAIL(LK_ERR_SHAPE, "gradient: the seed's shape is not the target's");
    if (seed->dtype != target->dtype)
        LK_FAIL(LK_ERR_DTYPE, "gradient: the seed is %s, the target %s", lk_dtype_name(seed->dtype),
                lk_dtype_name(target->dtype));
    return LK_OK;
}

static lk_status tape_start_walk(lk_call_site at, lk_tape *tape, lk_tensor *target, lk_tensor *seed)
{
    if (!target)
        return tape_no_argument("the target");
    gradient_slot *slot = tape_find(tape, target);
    if (!slot)
        LK_FAIL(LK_ERR_ARGUMENT, "gradient: the target at %s:%d does not depend on anything the tape watches", at.file,
                at.line);
    LK_TRY(tape_check_seed(target, seed));
    lk_scope_begin();
    if (!seed)
        seed = lk_full_at(at, lk_tensor_device(target), target->dtype, target->shape, 1.0);
    lk_status status = seed ? tape_accumulate(at, slot, seed) : lk_error_status();
    lk_scope_end();
    return status;
}

/* Marks the gradient as given away and returns whether it was marked before. A slot must have been reserved. */
static bool tape_mark_given(lk_tape *tape, const lk_tensor *gradient)
{
    gradient_slot *slot = tape_follow(tape, gradient);
    bool before = slot->given;
    slot->given = true;
    return before;
}

/* Marks the gradient as given away, and returns whether the caller must get a copy instead. The caller's tensors can be
 * written to, and nothing else refers to them; but a rule may have returned an expanded view, the seed, or one tensor
 * for two operands. */
static bool tape_give_as_copy(lk_tape *tape, const lk_tensor *gradient)
{
    return tape_mark_given(tape, gradient) || !lk__tensor_is_dense(gradient) ||
           atomic_load(&gradient->storage->references.references) > 1;
}

static lk_status tape_give_gradients(lk_call_site at, lk_tape *tape, lk_tensor *const *seeds, int n_seeds,
                                     lk_tensor **gradients)
{
    lk_status status = LK_OK;
    LK_TRY(tape_reserve_slots(tape, n_seeds + tape->n_watched));
    for (int i = 0; i < n_seeds; i++)
        if (seeds[i])
            tape_mark_given(tape, seeds[i]);
    lk_scope_begin();
    for (int i = 0; i < tape->n_watched && status == LK_OK; i++) {
        lk_tensor *gradient = tape_find(tape, tape->watched[i])->gradient;
        if (!gradient)
            continue;
        if (tape_give_as_copy(tape, gradient))
            gradient = lk_copy_at(at, gradient, lk_tensor_device(gradient));
        gradients[i] = lk_tensor_retain(gradient);
        status = gradient ? LK_OK : lk_error_status();
    }
    lk_scope_end();
    return lk__scope_adopt_all(gradients, tape->n_watched, status);
}

lk_status lk_tape_gradients_at(lk_call_site at, lk_tape *tape, lk_tensor *const *targets, lk_tensor *const *seeds,
                               int n_targets, lk_tensor **gradients)
{
    if (!tape)
        return tape_no_argument("the tape");
    for (int i = 0; i < tape->n_watched; i++)
        gradients[i] = NULL;
    if (!tape->recording)
        LK_FAIL(LK_ERR_STATE, "gradient: this tape was used already");
    if (tape_open_recorder().self != tape)
        LK_FAIL(LK_ERR_STATE, "gradient: this tape is open in another thread");
    tape_stop_recording(tape);
    for (int t = 0; t < n_targets; t++)
        LK_TRY(tape_start_walk(at, tape, targets[t], seeds ? seeds[t] : NULL));
    LK_TRY(tape_walk_back(tape));
    return tape_give_gradients(at, tape, seeds, seeds ? n_targets : 0, gradients);
}

lk_status lk_tape_gradient_at(lk_call_site at, lk_tape *tape, lk_tensor *target, lk_tensor *seed, lk_tensor **gradients)
{
    return lk_tape_gradients_at(at, tape, &target, &seed, 1, gradients);
}

/* --- attached gradients ------------------------------------------------------------------------------------------- */

lk_status lk_tensor_attach_grad_at(lk_call_site at, lk_tensor *tensor)
{
    if (!tensor)
        return tape_no_argument("the tensor");
    if (!lk__dtype_is_float(tensor->dtype))
        LK_FAIL(LK_ERR_DTYPE, "gradient: a tensor of %s has none", lk_dtype_name(tensor->dtype));
    lk_scope_begin();
    lk_tensor *zeros = lk_full_at(at, tensor->storage->device, tensor->dtype, tensor->shape, 0);
    lk_status status = !zeros ? lk_error_status() : LK_OK;
    if (zeros && tensor->gradient)
        status = lk_copy_into_at(at, tensor->gradient, zeros);
    else if (zeros)
        tensor->gradient = lk_tensor_retain(zeros);
    lk_scope_end();
    return status;
}

lk_tensor *lk_tensor_grad(const lk_tensor *tensor)
{
    return tensor ? tensor->gradient : NULL;
}

static lk_status tape_write_attached(lk_call_site at, const lk_tape *tape, lk_tensor *const *gradients)
{
    for (int i = 0; i < tape->n_watched; i++) {
        lk_tensor *watched = tape->watched[i];
        if (!watched->gradient)
            continue;
        if (gradients[i])
            LK_TRY(lk_copy_into_at(at, watched->gradient, gradients[i]));
        else
            LK_TRY(lk_tensor_attach_grad_at(at, watched));
    }
    return LK_OK;
}

lk_status lk_tape_backward_at(lk_call_site at, lk_tape *tape, lk_tensor *target)
{
    if (!tape)
        return tape_no_argument("the tape");
    lk_tensor **gradients = lk__calloc((size_t)tape->n_watched + 1, sizeof *gradients);
    if (!gradients)
        return LK_ERR_MEMORY;
    lk_scope_begin();
    lk_status status = lk_tape_gradient_at(at, tape, target, NULL, gradients);
    if (status == LK_OK)
        status = tape_write_attached(at, tape, gradients);
    lk_scope_end();
    lk__free(gradients);
    return status;
}
