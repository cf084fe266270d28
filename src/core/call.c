/* lk__call: the way from an operator's function to the engine, the same for all operators. */
#include "base/mem.h"
#include "core/backend.h"
#include "core/engine.h"
#include "core/op.h"
#include "core/scope.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "core/text.h"

#include <stdio.h>
#include <string.h>

static _Thread_local lk_recorder thread_recorder;

lk_recorder lk__recorder_set(lk_recorder recorder)
{
    lk_recorder before = thread_recorder;
    thread_recorder = recorder;
    return before;
}

static lk_status call_record(const lk_call *call)
{
    return thread_recorder.record ? thread_recorder.record(thread_recorder.self, call) : LK_OK;
}

void lk__call_set_attrs(lk_call *call, const void *attrs, size_t size)
{
    call->attrs_unused = LK_MAX_ATTRS - (int)size;
    if (size)
        memcpy(call->attrs.bytes, attrs, size);
}

void lk__call_copy(lk_call *to, const lk_call *from)
{
    memcpy(to, from, offsetof(lk_call, in) + (size_t)from->n_in * sizeof from->in[0]);
    memcpy(to->attrs.bytes, from->attrs.bytes, (size_t)(LK_MAX_ATTRS - from->attrs_unused));
}

void lk__call_clear_unused(lk_call *call)
{
    for (int i = call->n_in; i < LK_MAX_INPUTS; i++)
        call->in[i] = NULL;
    for (int i = call->n_out; i < LK_MAX_OUTPUTS; i++)
        call->out[i] = NULL;
}

void lk__call_retain(const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        lk_tensor_retain(call->in[i]);
    for (int i = 0; i < call->n_out; i++)
        lk_tensor_retain(call->out[i]);
}

void lk__call_release(const lk_call *call)
{
    lk__tensors_release(call->in, call->n_in);
    lk__tensors_release(call->out, call->n_out);
}

void lk__call_describe(const lk_call *call, char *text, size_t size)
{
    snprintf(text, size, "%s(", call->op->name);
    bool creation = call->n_in == 0;
    int n = creation ? call->n_out : call->n_in;
    for (int i = 0; i < n; i++) {
        const lk_tensor *tensor = creation ? call->out[i] : call->in[i];
        if (i)
            lk__text_append(text, size, ", ");
        lk__text_append(text, size, tensor ? lk_dtype_name(tensor->dtype) : "none");
        if (tensor)
            lk__text_append(text, size, lk__text(tensor->shape).string);
    }
    lk__text_append(text, size, ")");
}

static lk_status call_find_device(lk_call *call)
{
    if (call->device)
        return LK_OK;
    for (int i = 0; i < call->n_in; i++) {
        if (!call->in[i])
            continue;
        lk_device *device = call->in[i]->storage->device;
        if (call->device && call->device != device)
            LK_FAIL(LK_ERR_DEVICE, "%s: operands on %s and on %s; copy one with lk_copy first", call->op->name,
                    call->device->name, device->name);
        call->device = device;
    }
    if (!call->device)
        LK_FAIL(LK_ERR_ARGUMENT, "%s: no device", call->op->name);
    return LK_OK;
}

/* Each kind of device has its own private layouts, so a kernel cannot read those of another kind. */
static lk_status call_plain_foreign_inputs(const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && call->in[i]->storage->device->backend != call->device->backend)
            LK_TRY(lk__tensor_make_plain(call->in[i]));
    return LK_OK;
}

static lk_status call_prepare_output(const lk_call *call, lk_tensor *out, const lk_meta *meta)
{
    if (out->dtype != meta->dtype)
        LK_FAIL(LK_ERR_DTYPE, "%s: writes %s into a tensor of %s", call->op->name, lk_dtype_name(meta->dtype),
                lk_dtype_name(out->dtype));
    if (!lk__shape_equal(out->shape, meta->shape))
        LK_FAIL(LK_ERR_SHAPE, "%s: writes %s into a tensor of shape %s", call->op->name, lk__text(meta->shape).string,
                lk__text(out->shape).string);
    return lk__tensor_make_plain(out);
}

/* Makes the outputs that are NULL, sets made[i] for them, and prepares the given ones to be written. */
static lk_status call_make_outputs(lk_call *call, const lk_meta *meta, bool *made)
{
    for (int i = 0; i < call->n_out; i++) {
        made[i] = !call->out[i];
        if (made[i])
            LK_TRY(lk__tensor_new(call->device, meta[i].dtype, meta[i].shape, &call->out[i]));
        else
            LK_TRY(call_prepare_output(call, call->out[i], &meta[i]));
        call->free_layout = made[i] && (call->op->flags & LK_OP_FREE_LAYOUT);
    }
    return LK_OK;
}

/* Pushes and records the call; the open scope then adopts its new outputs, for which made[i] is cleared. */
static lk_status call_push(lk_call *call, bool *made)
{
    LK_TRY(lk__engine_push(call));
    LK_TRY(call_record(call));
    for (int i = 0; i < call->n_out; i++) {
        if (!made[i])
            continue;
        call->out[i] = lk__scope_adopt(call->out[i]);
        made[i] = false;
        if (!call->out[i])
            return LK_ERR_MEMORY;
    }
    return LK_OK;
}

/* Prefetches the reference counts that pushing is about to raise: another core may have written them last. */
static void call_prefetch_counts(const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i])
            lk__prefetch_to_write(&call->in[i]->references);
}

lk_status lk__call(lk_call *call)
{
    lk_meta meta[LK_MAX_OUTPUTS] = {{0}};
    bool made[LK_MAX_OUTPUTS] = {false};
    call_prefetch_counts(call);
    LK_TRY(call_find_device(call));
    LK_TRY(call_plain_foreign_inputs(call));
    if (call->n_in > 0)
        call->dtype = call->in[0]->dtype;
    call->algorithms = call->device->algorithms;
    call->tuning = call->device->tuning;
    call->tf32 = call->device->tf32;
    LK_TRY(call->op->infer(call, meta));
    call->kernel = lk__backend_kernel_of(call);
    if (!call->kernel)
        LK_FAIL(LK_ERR_UNSUPPORTED, "unsupported: %s %s on %s", call->op->name, lk_dtype_name(call->dtype),
                call->device->backend->kind);
    lk_status status = call_make_outputs(call, meta, made);
    if (status == LK_OK)
        status = call_push(call, made);
    if (status == LK_OK)
        return LK_OK;
    for (int i = 0; i < call->n_out; i++) {
        if (!made[i])
            continue;
        lk_tensor_release(call->out[i]);
        call->out[i] = NULL;
    }
    return status;
}

lk_tensor *lk__call_simple(lk_call_site at, const lk_op *op, lk_tensor *const *in, int n_in, int n_required,
                           const void *attrs, size_t attrs_size)
{
    lk_call call = {.op = op, .place = at, .n_in = n_in, .n_out = 1};
    for (int i = 0; i < n_in; i++) {
        if (!in[i] && i < n_required) {
            lk__fail(LK_ERR_ARGUMENT, "%s: operand %d is NULL", op->name, i);
            return NULL;
        }
        call.in[i] = in[i];
    }
    lk__call_set_attrs(&call, attrs, attrs_size);
    return lk__call(&call) == LK_OK ? call.out[0] : NULL;
}

lk_tensor *lk__view(lk_call_site at, const lk_op *op, lk_tensor *x, lk_shape shape, const int64_t *strides,
                    int64_t offset, const void *attrs, size_t attrs_size)
{
    if (lk__tensor_make_plain(x) != LK_OK)
        return NULL;
    lk_tensor like = {.dtype = x->dtype, .shape = shape, .offset = offset};
    memcpy(like.strides, strides, sizeof like.strides);
    lk_tensor *view = lk__tensor_over(x->storage, &like);
    if (!view)
        return NULL;
    lk_call call = {.op = op,
                    .place = at,
                    .device = x->storage->device,
                    .dtype = x->dtype,
                    .n_in = 1,
                    .n_out = 1,
                    .in = {x},
                    .out = {view}};
    lk__call_set_attrs(&call, attrs, attrs_size);
    if (call_record(&call) != LK_OK) {
        lk_tensor_release(view);
        return NULL;
    }
    return lk__scope_adopt(view);
}
