/* The tape. Entries are calls and functions in the order in which they were made; walking them backwards visits every
 * one after all that used its outputs, so one pass suffices.
 *
 * Gradients are summed in that fixed order too: a tensor used twice gets (later use) + (earlier use), whichever device
 * runs it. */
#include "lockstep/autograd.h"

#include "base/mem.h"
#include "core/tensor.h"
#include "ops/ops.h"

#include <string.h>

/* Open addressing, from a tensor to its gradient so far. A tensor that is here depends on a watched one. */
typedef struct gradient_slot {
    const lk_tensor *tensor; /* kept alive by the tape */
    lk_tensor *gradient;     /* one reference, or NULL */
    bool f32;                /* `tensor` is bf16, cast from f32 */
    bool spoken_for;         /* at the end: `tensor`, itself a gradient, is a seed or was given to the caller */
} gradient_slot;

/* A call, or a function (call.op is NULL then), with references to its tensors. */
typedef struct tape_entry {
    lk_call call;
    lk_function function;
    lk_tensor **tensors; /* of a function: in, then out */
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

/* --- which tensors are followed ----------------------------------------------------------------------------------- */

static gradient_slot *probe(gradient_slot *slots, int64_t capacity, const lk_tensor *tensor)
{
    uint64_t hash = (uint64_t)(uintptr_t)tensor * 0x9E3779B97F4A7C15u;
    for (uint64_t i = hash >> 32;; i++) {
        gradient_slot *slot = &slots[i & (uint64_t)(capacity - 1)];
        if (!slot->tensor || slot->tensor == tensor)
            return slot;
    }
}

static gradient_slot *find(const lk_tape *tape, const lk_tensor *tensor)
{
    if (!tensor || tape->slots_capacity == 0)
        return NULL;
    gradient_slot *slot = probe(tape->slots, tape->slots_capacity, tensor);
    return slot->tensor ? slot : NULL;
}

static lk_status grow_slots(lk_tape *tape)
{
    int64_t capacity = tape->slots_capacity ? 2 * tape->slots_capacity : 128;
    gradient_slot *slots = lk__calloc((size_t)capacity, sizeof *slots);
    if (!slots)
        return LK_ERR_MEMORY;
    for (int64_t i = 0; i < tape->slots_capacity; i++)
        if (tape->slots[i].tensor)
            *probe(slots, capacity, tape->slots[i].tensor) = tape->slots[i];
    lk__free(tape->slots);
    tape->slots = slots;
    tape->slots_capacity = capacity;
    return LK_OK;
}

/* Makes room for `more` tensors, so that following them cannot fail. */
static lk_status reserve_slots(lk_tape *tape, int more)
{
    while (2 * (tape->n_slots + more) > tape->slots_capacity)
        LK_TRY(grow_slots(tape));
    return LK_OK;
}

static gradient_slot *follow(lk_tape *tape, const lk_tensor *tensor)
{
    gradient_slot *slot = probe(tape->slots, tape->slots_capacity, tensor);
    if (!slot->tensor) {
        slot->tensor = tensor;
        tape->n_slots++;
    }
    return slot;
}

/* --- recording ---------------------------------------------------------------------------------------------------- */

static bool any_followed(const lk_tape *tape, lk_tensor *const *tensors, int n)
{
    for (int i = 0; i < n; i++)
        if (find(tape, tensors[i]))
            return true;
    return false;
}

/* Room for one more entry that makes `n_out` tensors. */
static lk_status reserve(lk_tape *tape, int n_out)
{
    if (tape->n_entries == tape->entries_capacity) {
        int64_t capacity = tape->entries_capacity ? 2 * tape->entries_capacity : 32;
        tape_entry *entries = lk__realloc(tape->entries, (size_t)capacity, sizeof *entries);
        if (!entries)
            return LK_ERR_MEMORY;
        tape->entries = entries;
        tape->entries_capacity = capacity;
    }
    return reserve_slots(tape, n_out);
}

static void follow_all(lk_tape *tape, lk_tensor *const *tensors, int n)
{
    for (int i = 0; i < n; i++)
        if (tensors[i])
            follow(tape, tensors[i]);
}

/* As masters of parameters are: their gradient goes back to f32, so nothing of it need be rounded to bf16. */
static bool is_cast_of_f32(const lk_call *call)
{
    return call->op->id == LK_OP_CAST && call->in[0]->dtype == LK_F32 && call->out[0]->dtype == LK_BF16;
}

static lk_status record(void *self, const lk_call *call)
{
    lk_tape *tape = self;
    /* An operator that writes into a tensor it was given (an update, a copy into a view) is not a function of its
     * inputs. */
    if (!any_followed(tape, call->in, call->n_in) || any_followed(tape, call->out, call->n_out))
        return LK_OK;
    LK_TRY(reserve(tape, call->n_out));
    follow_all(tape, call->out, call->n_out);
    if (is_cast_of_f32(call))
        find(tape, call->out[0])->f32 = true;
    tape->entries[tape->n_entries++] = (tape_entry){.call = *call};
    lk__call_retain(call);
    return LK_OK;
}

static lk_status record_function(void *self, const lk_function *function)
{
    lk_tape *tape = self;
    int n = function->n;
    if (!any_followed(tape, function->in, n))
        return LK_OK;
    LK_TRY(reserve(tape, n));
    lk_tensor **tensors = lk__calloc(2 * (size_t)n, sizeof *tensors);
    if (!tensors)
        return LK_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        tensors[i] = lk_tensor_retain(function->in[i]);
        tensors[n + i] = lk_tensor_retain(function->out[i]);
    }
    follow_all(tape, function->out, n);
    tape_entry entry = {.function = *function, .tensors = tensors};
    entry.function.in = tensors;
    entry.function.out = tensors + n;
    tape->entries[tape->n_entries++] = entry;
    return LK_OK;
}

static void release_entry(const tape_entry *entry)
{
    if (entry->call.op)
        lk__call_release(&entry->call);
    for (int i = 0; i < 2 * entry->function.n; i++)
        lk_tensor_release(entry->tensors[i]);
    lk__free(entry->tensors);
}

static bool is_open_here(const lk_tape *tape)
{
    lk_recorder open = lk__recorder_set((lk_recorder){0});
    lk__recorder_set(open);
    return tape->recording && open.self == tape;
}

static void stop_recording(lk_tape *tape)
{
    if (tape->recording)
        lk__recorder_set(tape->before);
    tape->recording = false;
}

lk_tape *lk_tape_begin(lk_tensor *const *watched, int n)
{
    lk_recorder before = lk__recorder_set((lk_recorder){0});
    lk__recorder_set(before);
    if (before.record) {
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
        complete = watched[i] && reserve_slots(tape, 1) == LK_OK;
        if (complete)
            follow(tape, watched[i]);
    }
    if (!complete) {
        lk_tape_release(tape);
        return NULL;
    }
    tape->before = lk__recorder_set((lk_recorder){record, record_function, tape});
    tape->recording = true;
    return tape;
}

void lk_tape_release(lk_tape *tape)
{
    if (!tape)
        return;
    stop_recording(tape);
    for (int64_t i = 0; i < tape->slots_capacity; i++)
        lk_tensor_release(tape->slots[i].gradient);
    for (int64_t i = 0; i < tape->n_entries; i++)
        release_entry(&tape->entries[i]);
    for (int i = 0; i < tape->n_watched; i++)
        lk_tensor_release(tape->watched[i]);
    lk__free(tape->slots);
    lk__free(tape->entries);
    lk__free(tape->watched);
    lk__free(tape);
}

/* --- the walk back ------------------------------------------------------------------------------------------------ */

/* A rule gives a gradient in its tensor's dtype or in that of the sum. */
static lk_tensor *as_summed(lk_place at, const gradient_slot *slot, lk_tensor *gradient)
{
    lk_dtype dtype = slot->f32 ? LK_F32 : slot->tensor->dtype;
    return gradient->dtype == dtype ? gradient : lk_cast_at(at, gradient, dtype);
}

/* slot->gradient += gradient; the slot keeps a reference of its own. */
static lk_status accumulate(lk_place at, gradient_slot *slot, lk_tensor *gradient)
{
    lk_tensor *sum = as_summed(at, slot, gradient);
    if (sum && slot->gradient)
        sum = lk_add_at(at, slot->gradient, sum);
    if (!sum)
        return lk_error_status();
    lk_tensor_retain(sum);
    lk_tensor_release(slot->gradient);
    slot->gradient = sum;
    return LK_OK;
}

static lk_tensor *gradient_of(const lk_tape *tape, const lk_tensor *tensor)
{
    gradient_slot *slot = find(tape, tensor);
    return slot ? slot->gradient : NULL;
}

static bool fill_gradient(const lk_tape *tape, lk_gradient *g)
{
    bool contributes = false;
    for (int i = 0; i < g->call->n_out; i++) {
        g->dout[i] = gradient_of(tape, g->call->out[i]);
        contributes |= g->dout[i] != NULL;
    }
    for (int i = 0; i < g->call->n_in; i++) {
        const gradient_slot *slot = find(tape, g->call->in[i]);
        g->need[i] = slot != NULL;
        g->f32[i] = slot && slot->f32;
    }
    return contributes;
}

static lk_status apply_rule(lk_tape *tape, const lk_call *call)
{
    lk_gradient g = {.call = call};
    if (!fill_gradient(tape, &g))
        return LK_OK;
    if (!call->op->gradient)
        LK_FAIL(LK_ERR_ARGUMENT, "gradient: %s, called at %s:%d, has none", call->op->name, call->place.file,
                call->place.line);
    LK_TRY(call->op->gradient(&g));
    for (int i = 0; i < call->n_in; i++)
        if (g.need[i] && g.din[i])
            LK_TRY(accumulate(call->place, find(tape, call->in[i]), g.din[i]));
    return LK_OK;
}

/* dout[i]: of output i; zeros where it did not contribute. */
static lk_status fill_function(const lk_tape *tape, const lk_function *function, lk_tensor **dout)
{
    for (int i = 0; i < function->n; i++) {
        lk_tensor *out = function->out[i];
        dout[i] = gradient_of(tape, out);
        if (!dout[i])
            dout[i] = lk_full_at(function->place, lk_tensor_device(out), out->dtype, out->shape, 0);
        if (!dout[i])
            return lk_error_status();
    }
    return LK_OK;
}

static lk_status walk_function(lk_tape *tape, const lk_function *function, lk_tensor **dout, lk_tensor **din)
{
    LK_TRY(fill_function(tape, function, dout));
    LK_TRY(function->gradient(function->user, function->place, dout, din, function->n));
    for (int i = 0; i < function->n; i++) {
        gradient_slot *slot = find(tape, function->in[i]);
        if (slot)
            LK_TRY(accumulate(function->place, slot, din[i]));
    }
    return LK_OK;
}

static lk_status apply_function(lk_tape *tape, const lk_function *function)
{
    int n = function->n, contributing = 0;
    for (int i = 0; i < n; i++)
        contributing += gradient_of(tape, function->out[i]) != NULL;
    if (contributing == 0)
        return LK_OK;
    lk_tensor **gradients = lk__calloc(2 * (size_t)n, sizeof *gradients);
    lk_status status = gradients ? walk_function(tape, function, gradients, gradients + n) : LK_ERR_MEMORY;
    lk__free(gradients);
    return status;
}

/* What an entry made needs no gradient beyond it. */
static void drop_gradients(lk_tape *tape, lk_tensor *const *outputs, int n)
{
    for (int i = 0; i < n; i++) {
        gradient_slot *slot = find(tape, outputs[i]);
        if (!slot)
            continue;
        lk_tensor_release(slot->gradient);
        slot->gradient = NULL;
    }
}

static lk_status walk_back(lk_tape *tape)
{
    while (tape->n_entries > 0) {
        const tape_entry *entry = &tape->entries[tape->n_entries - 1];
        lk_scope_begin();
        lk_status status = entry->call.op ? apply_rule(tape, &entry->call) : apply_function(tape, &entry->function);
        lk_scope_end();
        LK_TRY(status);
        drop_gradients(tape, entry->call.out, entry->call.n_out);
        drop_gradients(tape, entry->function.out, entry->function.n);
        /* Slots of tensors that go away here are never looked up again: all entries that knew them were walked. */
        tape->n_entries--;
        release_entry(entry);
    }
    return LK_OK;
}

/* NULL is mostly what something before this one failed with: then that is the error. */
static lk_status no_argument(const char *what)
{
    return lk_error_status() != LK_OK ? lk_error_status() : lk__fail(LK_ERR_ARGUMENT, "gradient: %s is NULL", what);
}

static lk_status check_seed(const lk_tensor *target, const lk_tensor *seed)
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

static lk_status start_walk(lk_place at, lk_tape *tape, lk_tensor *target, lk_tensor *seed)
{
    gradient_slot *slot = find(tape, target);
    if (!target)
        return no_argument("the target");
    if (!slot)
        LK_FAIL(LK_ERR_ARGUMENT, "gradient: the target at %s:%d does not depend on anything the tape watches", at.file,
                at.line);
    LK_TRY(check_seed(target, seed));
    lk_scope_begin();
    if (!seed)
        seed = lk_full_at(at, lk_tensor_device(target), target->dtype, target->shape, 1.0);
    lk_status status = seed ? accumulate(at, slot, seed) : lk_error_status();
    lk_scope_end();
    return status;
}

/* Gives back whether somebody spoke for it before. Needs room for one more slot. */
static bool speak_for(lk_tape *tape, const lk_tensor *gradient)
{
    gradient_slot *slot = follow(tape, gradient);
    bool before = slot->spoken_for;
    slot->spoken_for = true;
    return before;
}

/* A rule may hand on what it got: an expanded view, a seed, one tensor for two operands. The caller gets tensors that
 * can be written to and that nobody else holds. */
static bool is_shared(lk_tape *tape, const lk_tensor *gradient)
{
    return speak_for(tape, gradient) || !lk__tensor_is_dense(gradient) ||
           atomic_load(&gradient->storage->references.references) > 1;
}

static lk_status give_gradients(lk_place at, lk_tape *tape, lk_tensor *const *seeds, int n_seeds, lk_tensor **gradients)
{
    lk_status status = LK_OK;
    LK_TRY(reserve_slots(tape, n_seeds + tape->n_watched));
    for (int i = 0; i < n_seeds; i++)
        if (seeds[i])
            speak_for(tape, seeds[i]);
    lk_scope_begin();
    for (int i = 0; i < tape->n_watched && status == LK_OK; i++) {
        lk_tensor *gradient = find(tape, tape->watched[i])->gradient;
        if (!gradient)
            continue;
        if (is_shared(tape, gradient))
            gradient = lk_copy_at(at, gradient, lk_tensor_device(gradient));
        gradients[i] = lk_tensor_retain(gradient);
        status = gradient ? LK_OK : lk_error_status();
    }
    lk_scope_end();
    return lk__scope_adopt_all(gradients, tape->n_watched, status);
}

lk_status lk_tape_gradients_at(lk_place at, lk_tape *tape, lk_tensor *const *targets, lk_tensor *const *seeds,
                               int n_targets, lk_tensor **gradients)
{
    if (!tape)
        return no_argument("the tape");
    for (int i = 0; i < tape->n_watched; i++)
        gradients[i] = NULL;
    if (!tape->recording)
        LK_FAIL(LK_ERR_STATE, "gradient: this tape was used already");
    if (!is_open_here(tape))
        LK_FAIL(LK_ERR_STATE, "gradient: this tape is open in another thread");
    stop_recording(tape);
    for (int t = 0; t < n_targets; t++)
        LK_TRY(start_walk(at, tape, targets[t], seeds ? seeds[t] : NULL));
    LK_TRY(walk_back(tape));
    return give_gradients(at, tape, seeds, seeds ? n_targets : 0, gradients);
}

lk_status lk_tape_gradient_at(lk_place at, lk_tape *tape, lk_tensor *target, lk_tensor *seed, lk_tensor **gradients)
{
    return lk_tape_gradients_at(at, tape, &target, &seed, 1, gradients);
}
