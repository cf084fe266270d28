/* From an operator's function to the engine: one way for all operators. */
#include "base/mem.h"
#include "core/backend.h"
#include "core/engine.h"
#include "core/op.h"
#include "core/tensor.h"

#include <stdio.h>
#include <string.h>

static _Thread_local lk_recorder thread_recorder;

lk_recorder lk__recorder_set(lk_recorder recorder)
{
    lk_recorder before = thread_recorder;
    thread_recorder = recorder;
    return before;
}

static lk_status record(const lk_call *call)
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

void lk__call_retain(const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        lk_tensor_retain(call->in[i]);
    for (int i = 0; i < call->n_out; i++)
        lk_tensor_retain(call->out[i]);
}

void lk__call_release(const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        lk_tensor_release(call->in[i]);
    for (int i = 0; i < call->n_out; i++)
        lk_tensor_release(call->out[i]);
}

static void append(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s", more);
}

void lk__call_describe(const lk_call *call, char *text, size_t size)
{
    char shape[128];
    snprintf(text, size, "%s(", call->op->name);
    bool creation = call->n_in == 0;
    int n = creation ? call->n_out : call->n_in;
    for (int i = 0; i < n; i++) {
        const lk_tensor *tensor = creation ? call->out[i] : call->in[i];
        if (i)
            append(text, size, ", ");
        append(text, size, tensor ? lk_dtype_name(tensor->dtype) : "none");
        if (tensor) {
            lk__shape_text(tensor->shape, shape, sizeof shape);
            append(text, size, shape);
        }
    }
    append(text, size, ")");
}

static lk_status find_device(lk_call *call)
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

/* Layouts mean something to one kind of device. */
static lk_status make_foreign_inputs_plain(const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && call->in[i]->storage->device->backend != call->device->backend)
            LK_TRY(lk__tensor_make_plain(call->in[i]));
    return LK_OK;
}

static lk_status find_kernel(lk_call *call)
{
    call->kernel = lk__backend_kernel_of(call);
    if (!call->kernel)
        LK_FAIL(LK_ERR_UNSUPPORTED, "unsupported: %s %s on %s", call->op->name, lk_dtype_name(call->dtype),
                call->device->backend->kind);
    return LK_OK;
}

static lk_status check_existing(const lk_call *call, const lk_tensor *out, const lk_meta *meta)
{
    char have[128], want[128];
    if (out->dtype != meta->dtype)
        LK_FAIL(LK_ERR_DTYPE, "%s: writes %s into a tensor of %s", call->op->name, lk_dtype_name(meta->dtype),
                lk_dtype_name(out->dtype));
    if (!lk__shape_equal(out->shape, meta->shape)) {
        lk__shape_text(meta->shape, want, sizeof want);
        lk__shape_text(out->shape, have, sizeof have);
        LK_FAIL(LK_ERR_SHAPE, "%s: writes %s into a tensor of shape %s", call->op->name, want, have);
    }
    return lk__tensor_make_plain((lk_tensor *)(uintptr_t)out);
}

static lk_status make_outputs(lk_call *call, const lk_meta *meta, bool *made)
{
    for (int i = 0; i < call->n_out; i++) {
        made[i] = !call->out[i];
        if (made[i])
            LK_TRY(lk__tensor_new(call->device, meta[i].dtype, meta[i].shape, &call->out[i]));
        else
            LK_TRY(check_existing(call, call->out[i], &meta[i]));
        call->free_layout = made[i] && (call->op->flags & LK_OP_FREE_LAYOUT);
    }
    return LK_OK;
}

static lk_status finish(lk_call *call, bool *made)
{
    LK_TRY(lk__engine_push(call));
    LK_TRY(record(call));
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

/* Of the operands' references, which another core may have counted down last; pushing will count them up. */
static void prefetch_counts(const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i])
            lk__prefetch_to_write(&call->in[i]->references);
}

lk_status lk__call(lk_call *call)
{
    lk_meta meta[LK_MAX_OUTPUTS] = {{0}};
    bool made[LK_MAX_OUTPUTS] = {false};
    prefetch_counts(call);
    LK_TRY(find_device(call));
    LK_TRY(make_foreign_inputs_plain(call));
    if (call->n_in > 0)
        call->dtype = call->in[0]->dtype;
    call->algorithms = call->device->algorithms;
    call->tuning = call->device->tuning;
    call->tf32 = call->device->tf32;
    LK_TRY(call->op->infer(call, meta));
    LK_TRY(find_kernel(call));
    lk_status status = make_outputs(call, meta, made);
    if (status == LK_OK)
        status = finish(call, made);
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

lk_tensor *lk__call_simple(lk_place at, const lk_op *op, lk_tensor *const *in, int n_in, int n_required,
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

static lk_tensor *new_view(lk_tensor *x, lk_shape shape, const int64_t *strides, int64_t offset)
{
    lk_tensor like = {.dtype = x->dtype, .shape = shape, .offset = offset};
    memcpy(like.strides, strides, sizeof like.strides);
    return lk__tensor_over(x->storage, &like);
}

lk_tensor *lk__view(lk_place at, const lk_op *op, lk_tensor *x, lk_shape shape, const int64_t *strides, int64_t offset,
                    const void *attrs, size_t attrs_size)
{
    if (lk__tensor_make_plain(x) != LK_OK)
        return NULL;
    lk_tensor *view = new_view(x, shape, strides, offset);
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
    if (record(&call) != LK_OK) {
        lk_tensor_release(view);
        return NULL;
    }
    return lk__scope_adopt(view);
}
