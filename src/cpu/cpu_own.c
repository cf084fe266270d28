#include "cpu/cpu_own.h"

#include "core/backend.h"
#include "core/kept.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "cpu/cpu_bf16.h"
#include "cpu/onednn/cpu_state.h"

#include <stdio.h>

static bool cpu_own_is_convertible(const lk_tensor *x)
{
    return x && (x->dtype == LK_F32 || x->dtype == LK_I32 || x->dtype == LK_BF16);
}

/* Sizes the scratch memory last, because conversions use it too. */
static lk_status cpu_own_convert_inputs(lk_call *call, const lk_prepared *prepared, lk_converted *in)
{
    for (int i = 0; i < call->n_in; i++)
        if (cpu_own_is_convertible(call->in[i]))
            LK_TRY(lk__cpu_as(call->device, call->in[i], prepared->layouts_in[i], &in[i]));
    return lk__cpu_scratch(call->device->state, prepared->scratch_bytes);
}

static lk_status cpu_own_allocate_outputs(lk_call *call, const lk_prepared *prepared)
{
    for (int i = 0; i < call->n_out; i++) {
        const lk_layout *layout = prepared->layouts_out[i];
        lk_storage *storage = call->out[i]->storage;
        size_t bytes = layout ? lk__layout_bytes(layout, call->out[i]->dtype) : storage->bytes;
        LK_TRY(lk__storage_allocate(storage, bytes, layout));
    }
    return LK_OK;
}

lk_packed lk__own_packed(const lk_call *call, float *otherwise)
{
    const lk_kept *kept = call->kept;
    return kept && kept->block ? (lk_packed){kept->block->data, kept->made} : (lk_packed){otherwise, false};
}

int64_t lk__own_elements(const lk_tensor *x, const lk_layout *layout)
{
    return layout ? (int64_t)(layout->bytes / sizeof(float)) : lk_tensor_count(x);
}

void lk__own_prepare_elements(const lk_call *call, const lk_layout *layout, lk_prepared *prepared)
{
    char text[64];
    lk__shape_text(call->out[0]->shape, text, sizeof text);
    snprintf(prepared->problem, sizeof prepared->problem, "%s %s", lk_dtype_name(call->dtype), text);
    snprintf(prepared->implementation, sizeof prepared->implementation, "elements");
    for (int i = 0; i < call->n_in; i++)
        prepared->layouts_in[i] = layout;
    prepared->layouts_out[0] = layout;
}

lk_status lk__own_run(lk_call *call, const lk_key *key, lk_prepare_fn prepare, lk_own_fn compute)
{
    lk_cpu *cpu = call->device->state;
    lk_prepared *prepared;
    lk_converted in[LK_OWN_INPUTS] = {0};
    lk_kept *kept = NULL;
    LK_TRY(lk__prepared_get(cpu, key, call, prepare, &prepared));
    lk_status status = cpu_own_convert_inputs(call, prepared, in);
    if (status == LK_OK)
        status = cpu_own_allocate_outputs(call, prepared);
    if (status == LK_OK)
        status = lk__kept_get(call, prepared->weights, prepared->packed_bytes, LK_KEPT_MOST, &kept);
    if (status == LK_OK)
        compute(call, in, cpu->scratch);
    if (status == LK_OK && kept)
        kept->made = true;
    for (int i = 0; i < call->n_in; i++)
        lk__cpu_as_end(call->device, &in[i]);
    return status;
}

/* Returns whether an operand has channels in pairs. max_pool2d's `where`, which is i32, then has sixteen images in the
 * lanes. */
static bool cpu_own_is_on_pairs(const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++) {
        const lk_layout *layout = call->in[i] ? call->in[i]->storage->layout : NULL;
        if (layout && (layout->pairs || layout->tag == LK_WIDE_LANES_TAG))
            return true;
    }
    return false;
}

lk_status lk__own_run_tagged(lk_call *call, const lk_key *key, lk_prepare_fn prepare, lk_own_fn compute)
{
    if (call->dtype == LK_BF16 && cpu_own_is_on_pairs(call))
        return lk__cpu_run_bf16(call);
    return lk__own_run(call, key, prepare, compute);
}
