#include "core/execute.h"
#include "base/heartbeat.h"
#include "base/mem.h"
#include "core/backend.h"
#include "core/hold.h"
#include "core/stamps.h"
#include "core/tensor.h"
#include "core/trace.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

const lk_op lk__op_plain = {.name = "plain", .id = -1};
const lk_op lk__op_plain_copy = {.name = "plain copy", .id = -1};
const lk_op lk__op_store = {.name = "store", .id = -1};

/* --- poison ------------------------------------------------------------------------------------------------------- */

static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;
static lk_error *unreported; /* the first failure that was not reported to a caller */

/* Used when there is no memory for the error itself. Its count starts at one and never reaches zero. */
static lk_error error_without_memory = {
    .references = {1},
    .status = LK_ERR_MEMORY,
    .message = "out of memory, also for the details of what failed",
};

/* Turns the thread's error into poison, keeps it as unreported if it is the first one, and clears it. */
static lk_error *execute_take_error(lk_status status)
{
    lk_error *error = lk__calloc(1, sizeof *error);
    if (error) {
        lk__refcount_init(&error->references);
        error->status = status;
        snprintf(error->message, sizeof error->message, "%s", lk_error_message());
    } else {
        error = &error_without_memory;
        lk__refcount_retain(&error->references);
    }
    pthread_mutex_lock(&error_lock);
    if (!unreported) {
        lk__refcount_retain(&error->references);
        unreported = error;
    }
    pthread_mutex_unlock(&error_lock);
    lk_error_clear();
    return error;
}

void lk__error_note(lk_status status)
{
    lk__error_release(execute_take_error(status));
}

lk_status lk__error_report(lk_error *error)
{
    pthread_mutex_lock(&error_lock);
    bool was_unreported = unreported == error;
    if (was_unreported)
        unreported = NULL;
    pthread_mutex_unlock(&error_lock);
    lk_status status = lk__fail(error->status, "%s", error->message);
    if (was_unreported)
        lk__error_release(error);
    return status;
}

lk_status lk__error_report_unreported(void)
{
    pthread_mutex_lock(&error_lock);
    lk_error *error = unreported;
    unreported = NULL;
    pthread_mutex_unlock(&error_lock);
    if (!error)
        return LK_OK;
    lk_status status = lk__fail(error->status, "%s", error->message);
    lk__error_release(error);
    return status;
}

static void execute_poison(lk_storage *storage, lk_error *error)
{
    if (storage->error)
        return;
    lk__refcount_retain(&error->references);
    storage->error = error;
}

static void execute_poison_outputs(lk_call *call, lk_error *error)
{
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i])
            execute_poison(call->out[i]->storage, error);
}

/* Returns the poison of an input, or of an output, which the call may write only in part. */
static lk_error *execute_poison_of(const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && call->in[i]->storage->error)
            return call->in[i]->storage->error;
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i] && call->out[i]->storage->error)
            return call->out[i]->storage->error;
    return NULL;
}

/* --- stand-ins ---------------------------------------------------------------------------------------------------- */

/* Stand-ins replace the inputs that a kernel cannot take as they are. The originals do not change: other queues may be
 * reading them. */
typedef struct stand_ins {
    lk_tensor *original[LK_MAX_INPUTS];
    lk_tensor tensor[LK_MAX_INPUTS];
    lk_storage storage[LK_MAX_INPUTS];
} stand_ins;

/* Makes a stand-in as large as the input's storage, without contents. */
static lk_status execute_make_stand_in(lk_device *device, lk_call *call, int i, stand_ins *ins)
{
    lk_tensor *x = call->in[i];
    lk_block *block;
    LK_TRY(lk__device_take(device, x->storage->bytes, &block));
    ins->storage[i] = (lk_storage){.device = device, .bytes = x->storage->bytes, .block = block, .data = block->data};
    ins->tensor[i] = lk__tensor_alias(x);
    ins->tensor[i].storage = &ins->storage[i];
    ins->original[i] = x;
    call->in[i] = &ins->tensor[i];
    return LK_OK;
}

static void execute_drop_stand_ins(lk_device *device, lk_call *call, stand_ins *ins)
{
    for (int i = 0; i < call->n_in; i++) {
        if (!ins->original[i])
            continue;
        call->in[i] = ins->original[i];
        lk__device_put(device, ins->storage[i].block);
    }
}

/* --- inputs in another memory ------------------------------------------------------------------------------------- */

/* Returns whether kernels on `device` cannot reach x because one of the two devices has its own memory. */
static bool execute_is_out_of_reach(const lk_device *device, const lk_tensor *x)
{
    const lk_device *other = x->storage->device;
    return other != device && (device->backend->offload || other->backend->offload);
}

static bool execute_any_out_of_reach(const lk_device *device, const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && execute_is_out_of_reach(device, call->in[i]))
            return true;
    return false;
}

/* Finds the part of x's storage that must be copied: the elements of a dense view, which keep their offset, or else the
 * whole storage. A device that compiles copies only whole ones without the host. */
static void execute_part_of_storage(const lk_tensor *x, size_t *begin, size_t *bytes)
{
    size_t size = lk_dtype_size(x->dtype);
    bool is_slice = !x->storage->layout && lk__tensor_is_dense(x) && !x->storage->device->backend->modules;
    *begin = is_slice ? (size_t)x->offset * size : 0;
    *bytes = is_slice ? (size_t)lk_tensor_count(x) * size : x->storage->bytes;
}

/* The stand-in keeps a private layout. This device knows it, because only devices of one kind share such inputs:
 * lk__call makes foreign inputs plain. */
static lk_status execute_bring_input(lk_device *device, lk_call *call, int i, stand_ins *ins)
{
    const lk_storage *storage = call->in[i]->storage;
    const lk_offload *here = device->backend->offload, *there = storage->device->backend->offload;
    size_t begin, bytes;
    execute_part_of_storage(call->in[i], &begin, &bytes);
    LK_TRY(execute_make_stand_in(device, call, i, ins));
    ins->storage[i].layout = storage->layout;
    const char *from = (const char *)storage->data + begin;
    char *to = (char *)ins->storage[i].data + begin;
    if (!here)
        return there->read(storage->device, from, to, bytes);
    return there ? here->bring(device, to, storage->device, from, bytes)
                 : here->write(device, to, from, bytes, call->in[i]->dtype);
}

/* --- layouts ------------------------------------------------------------------------------------------------------ */

static bool execute_any_layout(const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && call->in[i]->storage->layout)
            return true;
    return false;
}

static lk_status execute_run_plain(lk_call *call)
{
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i])
            LK_TRY(lk__storage_allocate(call->out[i]->storage, call->out[i]->storage->bytes, NULL));
    return call->kernel->run(call);
}

static lk_status execute_with_plain_inputs(lk_device *device, lk_call *call)
{
    stand_ins plain = {0};
    lk_status status = LK_OK;
    for (int i = 0; i < call->n_in && status == LK_OK; i++) {
        const lk_tensor *x = call->in[i];
        if (!x || !x->storage->layout)
            continue;
        status = execute_make_stand_in(device, call, i, &plain);
        if (status == LK_OK)
            status = device->backend->to_plain(device, x, plain.storage[i].data);
    }
    if (status == LK_OK)
        status = execute_run_plain(call);
    execute_drop_stand_ins(device, call, &plain);
    return status;
}

/* Used while the device has a hold: x must keep its memory then, because a graph may have its address. */
static lk_status execute_convert_in_place(lk_device *device, lk_tensor *x)
{
    lk_storage *storage = x->storage;
    lk_block *block;
    LK_TRY(lk__device_take(device, storage->bytes, &block));
    lk_status status = device->backend->to_plain(device, x, block->data);
    if (status == LK_OK)
        status = device->backend->offload->bring(device, storage->data, device, block->data, storage->bytes);
    if (status == LK_OK)
        storage->layout = NULL;
    lk__device_put(device, block);
    return status;
}

static lk_status execute_convert_to_plain(lk_device *device, lk_tensor *x)
{
    if (!x->storage->layout)
        return LK_OK;
    if (device->hold)
        return execute_convert_in_place(device, x);
    lk_block *block;
    LK_TRY(lk__allocator_get(device->allocator, x->storage->bytes, &block));
    lk_status status = device->backend->to_plain(device, x, block->data);
    if (status == LK_OK)
        lk__storage_replace(x->storage, block, NULL);
    else
        lk__allocator_put(device->allocator, block);
    return status;
}

static lk_status execute_copy_to_plain(lk_device *device, const lk_tensor *x, lk_tensor *out)
{
    LK_TRY(lk__output_plain(out));
    if (x->storage->layout)
        return device->backend->to_plain(device, x, out->storage->data);
    if (device->backend->offload)
        return device->backend->offload->bring(device, out->storage->data, device, x->storage->data,
                                               out->storage->bytes);
    memcpy(out->storage->data, x->storage->data, out->storage->bytes);
    return LK_OK;
}

static lk_status execute_store(lk_device *device, lk_call *call)
{
    const lk_store_attrs *attrs = LK_ATTRS(call, lk_store_attrs);
    lk_tensor *out = call->out[0];
    LK_TRY(lk__output_plain(out));
    return device->backend->offload->write(device, lk__data(out), attrs->from ? attrs->from : attrs->carried,
                                           attrs->bytes, out->dtype);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static lk_status execute_check_inputs(const lk_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i] && !call->in[i]->storage->data)
            LK_FAIL(LK_ERR_STATE, "%s: input %d was made by lk_tensor_new and never written", call->op->name, i);
    return LK_OK;
}

static lk_status execute_kernel(lk_device *device, lk_call *call)
{
    if (call->kernel->flags & LK_KERNEL_LAYOUTS)
        return call->kernel->run(call);
    return execute_any_layout(call) ? execute_with_plain_inputs(device, call) : execute_run_plain(call);
}

static lk_status execute_with_brought_inputs(lk_device *device, lk_call *call)
{
    stand_ins brought = {0};
    lk_status status = LK_OK;
    for (int i = 0; i < call->n_in && status == LK_OK; i++)
        if (call->in[i] && execute_is_out_of_reach(device, call->in[i]))
            status = execute_bring_input(device, call, i, &brought);
    if (status == LK_OK)
        status = execute_kernel(device, call);
    execute_drop_stand_ins(device, call, &brought);
    return status;
}

static lk_status execute_by_kind(lk_device *device, lk_call *call)
{
    if (call->op == &lk__op_plain)
        return execute_convert_to_plain(device, call->out[0]);
    if (call->op == &lk__op_plain_copy)
        return execute_copy_to_plain(device, call->in[0], call->out[0]);
    if (call->op == &lk__op_store)
        return execute_store(device, call);
    LK_TRY(execute_check_inputs(call));
    return execute_any_out_of_reach(device, call) ? execute_with_brought_inputs(device, call)
                                                  : execute_kernel(device, call);
}

static lk_status execute_dispatch(lk_device *device, lk_call *call)
{
    const lk_offload *offload = device->backend->offload;
    if (!offload || !offload->range)
        return execute_by_kind(device, call);
    offload->range(device, call->op->name);
    lk_status status = execute_by_kind(device, call);
    offload->range(device, NULL);
    return status;
}

static lk_status execute_call(lk_device *device, lk_call *call)
{
    int64_t began = lk__trace_begin();
    /* On an offload device this thread only starts the call. It counts as waiting, however long the driver takes. */
    lk__activity_set(device->backend->offload ? LK_ACTIVITY_WAIT : LK_ACTIVITY_OPERATOR, call->op->name);
    if (began && lk__stamps_are_used(device)) {
        LK_TRY(lk__stamps_begin(device));
        LK_TRY(execute_dispatch(device, call));
        return lk__stamps_end(device, call, began);
    }
    lk_status status = execute_dispatch(device, call);
    if (status == LK_OK && device->backend->offload && lk__engine_is_sync())
        status = device->backend->offload->drain(device);
    if (began)
        lk__trace_end_call(call, began);
    return status;
}

/* Adds the call to the message of the thread's error; only the device if the library itself asked for it. */
static lk_status execute_explain(lk_status status, const lk_call *call)
{
    char description[256], message[640];
    /* An offload device reports a failure at some later call. */
    bool is_later = status == LK_ERR_DEVICE && call->device->backend->offload && !lk__engine_is_sync();
    snprintf(message, sizeof message, "%s", lk_error_message());
    lk__call_describe(call, description, sizeof description);
    lk_error_clear();
    if (!call->place.file && !is_later)
        LK_FAIL(status, "%s [on %s]", message, call->device->name);
    LK_FAIL(status, "%s [%s%s on %s, called at %s:%d%s]", message, is_later ? "found by " : "", description,
            call->device->name, call->place.file ? call->place.file : "?", call->place.line,
            is_later ? "; LOCKSTEP_ENGINE=sync finds out whose it is" : "");
}

lk_status lk__run_call(lk_device *device, lk_call *call)
{
    lk_status status = execute_call(device, call);
    return status == LK_OK ? LK_OK : execute_explain(status, call);
}

void lk__execute(lk_device *device, lk_call *call)
{
    lk_error *before = execute_poison_of(call);
    if (before) {
        execute_poison_outputs(call, before);
        return;
    }
    lk_error_clear();
    lk_status status = lk__run_call(device, call);
    if (status == LK_OK)
        return;
    lk_error *error = execute_take_error(status);
    execute_poison_outputs(call, error);
    lk__error_release(error);
}

static lk_error *execute_poison_of_task(const lk_task *task)
{
    for (int i = 0; i < task->n_reads; i++)
        if (task->reads[i]->error)
            return task->reads[i]->error;
    for (int i = 0; i < task->n_writes; i++)
        if (task->writes[i]->error)
            return task->writes[i]->error;
    return NULL;
}

void lk__execute_task(lk_task *task)
{
    lk_error *error = execute_poison_of_task(task);
    lk_status status = LK_OK;
    if (error && task->leave_out)
        task->leave_out(task, error->status, error->message);
    if (!error) {
        lk_error_clear();
        status = task->run(task);
        if (status == LK_OK)
            return;
        error = execute_take_error(status);
    }
    for (int i = 0; i < task->n_writes; i++)
        execute_poison(task->writes[i], error);
    if (status != LK_OK)
        lk__error_release(error);
}

void lk__execute_in_caller(lk_device *device, lk_call *call, lk_task *task)
{
    lk_error_state kept;
    lk__error_save(&kept);
    if (device->backend->enter)
        device->backend->enter(device, device->state);
    if (task)
        lk__execute_task(task);
    else
        lk__execute(device, call);
    if (device->backend->leave)
        device->backend->leave(device, device->state);
    lk__error_restore(&kept);
}
