#include "core/tensor.h"
#include "base/bf16.h"
#include "base/cell.h"
#include "base/mem.h"
#include "core/backend.h"
#include "core/engine.h"
#include "core/execute.h"
#include "core/scope.h"
#include "core/shape.h"

#include <pthread.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[LK_DTYPE_COUNT] = {
    [LK_F32] = {"f32", 4}, [LK_BF16] = {"bf16", 2}, [LK_F64] = {"f64", 8},
    [LK_I32] = {"i32", 4}, [LK_I64] = {"i64", 8},   [LK_U8] = {"u8", 1},
};

size_t lk_dtype_size(lk_dtype dtype)
{
    return (unsigned)dtype < LK_DTYPE_COUNT ? dtypes[dtype].size : 0;
}

const char *lk_dtype_name(lk_dtype dtype)
{
    return (unsigned)dtype < LK_DTYPE_COUNT ? dtypes[dtype].name : "unknown dtype";
}

/* --- a device's own memory ---------------------------------------------------------------------------------------- */

/* Returns the bytes from the start of a tensor's first element to the end of its last. */
static size_t tensor_span(const lk_tensor *tensor)
{
    int64_t last = lk_tensor_count(tensor) == 0 ? -1 : 0;
    for (int i = 0; i < tensor->shape.ndim && last >= 0; i++)
        last += (tensor->shape.dim[i] - 1) * tensor->strides[i];
    return (size_t)(last + 1) * lk_dtype_size(tensor->dtype);
}

/* Pushes a copy of `from`, which holds the tensor's span, to the tensor: the device's thread allocates and starts it.
 * It is pushed at once even while a program is recorded, because the caller's `from` is gone when the program runs. */
static lk_status tensor_push_store(lk_tensor *tensor, const void *from, bool is_carried)
{
    lk_store_attrs attrs = {.from = is_carried ? NULL : from, .bytes = tensor_span(tensor)};
    if (is_carried)
        memcpy(attrs.carried, from, attrs.bytes);
    lk_call call = {.op = &lk__op_store, .device = tensor->storage->device, .n_out = 1, .out = {tensor}};
    lk__call_set_attrs(&call, &attrs, sizeof attrs);
    lk_capture capture = lk__capture_set((lk_capture){NULL});
    lk_status status = lk__engine_push(&call);
    lk__capture_set(capture);
    return status;
}

/* --- making and freeing ------------------------------------------------------------------------------------------- */

_Static_assert(sizeof(lk_tensor) <= LK_CELL_BYTES, "a tensor is a cell");

lk_status lk__tensor_new(lk_device *device, lk_dtype dtype, lk_shape shape, lk_tensor **out)
{
    size_t bytes;
    *out = NULL;
    if (!device)
        LK_FAIL(LK_ERR_ARGUMENT, "tensor: the device is NULL");
    LK_TRY(lk__shape_bytes(shape, dtype, &bytes));
    lk_tensor *tensor = lk__cell_new();
    if (!tensor)
        return LK_ERR_MEMORY;
    lk_status status = lk__storage_new(device, bytes, &tensor->storage);
    if (status != LK_OK) {
        lk__cell_free(tensor);
        return status;
    }
    lk__refcount_init(&tensor->references);
    tensor->dtype = dtype;
    tensor->shape = shape;
    lk__shape_strides(shape, tensor->strides);
    *out = tensor;
    return LK_OK;
}

lk_tensor *lk__tensor_over(lk_storage *storage, const lk_tensor *like)
{
    lk_tensor *tensor = lk__cell_new();
    if (!tensor)
        return NULL;
    *tensor = lk__tensor_alias(like);
    lk__refcount_init(&tensor->references);
    tensor->storage = storage;
    lk__storage_retain(storage);
    return tensor;
}

lk_tensor *lk_tensor_retain(lk_tensor *tensor)
{
    if (tensor)
        lk__refcount_retain(&tensor->references);
    return tensor;
}

void lk_tensor_release(lk_tensor *tensor)
{
    if (!tensor || !lk__refcount_release(&tensor->references))
        return;
    lk_tensor_release(tensor->gradient);
    lk__storage_release(tensor->storage);
    lk__cell_free(tensor);
}

lk_tensor *lk_tensor_new(lk_device *device, lk_dtype dtype, lk_shape shape)
{
    lk_tensor *tensor;
    if (lk__tensor_new(device, dtype, shape, &tensor) != LK_OK)
        return NULL;
    return lk__scope_adopt(tensor);
}

lk_tensor *lk_tensor_from(lk_device *device, lk_dtype dtype, lk_shape shape, const void *data)
{
    lk_tensor *tensor;
    if (lk__tensor_new(device, dtype, shape, &tensor) != LK_OK)
        return NULL;
    if (lk_tensor_write(tensor, data, tensor->storage->bytes) != LK_OK) {
        lk_tensor_release(tensor);
        return NULL;
    }
    return lk__scope_adopt(tensor);
}

lk_tensor *lk_tensor_wrap(lk_device *device, lk_dtype dtype, lk_shape shape, void *data, void (*release)(void *user),
                          void *user)
{
    lk_tensor *tensor;
    if ((uintptr_t)data % (lk_dtype_size(dtype) ? lk_dtype_size(dtype) : 1) != 0) {
        lk__fail(LK_ERR_ARGUMENT, "tensor: wrapped memory at %p is not aligned to elements of %zu bytes", data,
                 lk_dtype_size(dtype));
        return NULL;
    }
    if (lk__tensor_new(device, dtype, shape, &tensor) != LK_OK)
        return NULL;
    if (device->backend->offload && tensor_push_store(tensor, data, false) != LK_OK) {
        lk_tensor_release(tensor);
        return NULL;
    }
    /* If the scope cannot grow, the caller keeps the memory and `release` is not called. */
    lk_tensor *copied = device->backend->offload ? lk_tensor_retain(tensor) : NULL;
    lk_tensor *adopted = lk__scope_adopt(tensor);
    if (!adopted && copied)
        lk_tensor_wait(copied); /* the device reads the memory no longer */
    lk_tensor_release(copied);
    if (!adopted)
        return NULL;
    if (!device->backend->offload)
        adopted->storage->data = data;
    adopted->storage->release = release;
    adopted->storage->user = user;
    return adopted;
}

lk_dtype lk_tensor_dtype(const lk_tensor *tensor)
{
    return tensor->dtype;
}

lk_shape lk_tensor_shape(const lk_tensor *tensor)
{
    return tensor->shape;
}

lk_device *lk_tensor_device(const lk_tensor *tensor)
{
    return tensor->storage->device;
}

int64_t lk_tensor_count(const lk_tensor *tensor)
{
    return lk_shape_count(tensor->shape);
}

bool lk__tensor_is_dense(const lk_tensor *tensor)
{
    int64_t stride = 1;
    for (int i = tensor->shape.ndim - 1; i >= 0; i--) {
        if (tensor->shape.dim[i] != 1 && tensor->strides[i] != stride)
            return lk_tensor_count(tensor) == 0;
        stride *= tensor->shape.dim[i];
    }
    return true;
}

bool lk__tensor_next_row(const lk_tensor *tensor, int64_t *index, int64_t *offset)
{
    int axis = tensor->shape.ndim - 2;
    while (axis >= 0 && ++index[axis] == tensor->shape.dim[axis]) {
        *offset -= (index[axis] - 1) * tensor->strides[axis];
        index[axis--] = 0;
    }
    if (axis >= 0)
        *offset += tensor->strides[axis];
    return axis >= 0;
}

bool lk__tensor_is_whole(const lk_tensor *tensor)
{
    size_t bytes;
    return tensor->offset == 0 && lk__tensor_is_dense(tensor) &&
           lk__shape_bytes(tensor->shape, tensor->dtype, &bytes) == LK_OK && bytes == tensor->storage->bytes;
}

bool lk__tensor_same_view(const lk_tensor *a, const lk_tensor *b)
{
    size_t size = (size_t)a->shape.ndim * sizeof a->strides[0];
    return a->storage == b->storage && a->offset == b->offset && lk__shape_equal(a->shape, b->shape) &&
           memcmp(a->strides, b->strides, size) == 0;
}

lk_tensor lk__tensor_alias(const lk_tensor *tensor)
{
    lk_tensor alias = {
        .dtype = tensor->dtype, .shape = tensor->shape, .offset = tensor->offset, .storage = tensor->storage};
    memcpy(alias.strides, tensor->strides, sizeof alias.strides);
    return alias;
}

void *lk__data(const lk_tensor *tensor)
{
    return (char *)tensor->storage->data + tensor->offset * (int64_t)lk_dtype_size(tensor->dtype);
}

lk_status lk__output_plain(lk_tensor *out)
{
    return lk__storage_allocate(out->storage, out->storage->bytes, NULL);
}

/* --- access from the host ----------------------------------------------------------------------------------------- */

lk_status lk__tensor_make_plain(lk_tensor *tensor)
{
    return lk__engine_push_plain(tensor);
}

/* A NULL tensor is usually the result of an earlier failure; then that is the error to report. */
static lk_status tensor_missing(void)
{
    return lk_error_status() != LK_OK ? lk_error_status() : lk__fail(LK_ERR_ARGUMENT, "tensor: NULL");
}

lk_status lk_tensor_wait(lk_tensor *tensor)
{
    return tensor ? lk__engine_wait_storage(tensor->storage, false) : tensor_missing();
}

/* Copies between a dense buffer and the tensor's elements, the first of which is at `data`. */
static void tensor_copy_elements(const lk_tensor *tensor, char *data, char *buffer, bool to_buffer)
{
    size_t size = lk_dtype_size(tensor->dtype);
    int64_t count = lk_tensor_count(tensor);
    if (count == 0)
        return;
    if (lk__tensor_is_dense(tensor)) {
        memcpy(to_buffer ? buffer : data, to_buffer ? data : buffer, (size_t)count * size);
        return;
    }
    int64_t index[LK_MAX_DIMS] = {0};
    for (int64_t i = 0; i < count; i++) {
        int64_t offset = 0;
        for (int d = 0; d < tensor->shape.ndim; d++)
            offset += index[d] * tensor->strides[d];
        char *element = data + offset * (int64_t)size;
        memcpy(to_buffer ? buffer : element, to_buffer ? element : buffer, size);
        buffer += size;
        for (int d = tensor->shape.ndim - 1; d >= 0 && ++index[d] == tensor->shape.dim[d]; d--)
            index[d] = 0;
    }
}

static lk_status tensor_check_host_copy(lk_tensor *tensor, size_t bytes)
{
    size_t exact;
    if (!tensor)
        return tensor_missing();
    LK_TRY(lk__shape_bytes(tensor->shape, tensor->dtype, &exact));
    if (bytes != exact)
        LK_FAIL(LK_ERR_ARGUMENT, "tensor: %zu bytes were given for a tensor of %zu", bytes, exact);
    return LK_OK;
}

/* Reads from an offload device. A view with gaps is read with its gaps; then its elements are copied out. */
static lk_status tensor_read_offload(const lk_tensor *tensor, void *data)
{
    lk_device *device = tensor->storage->device;
    const lk_offload *offload = device->backend->offload;
    if (lk__tensor_is_dense(tensor))
        return offload->read(device, lk__data(tensor), data, tensor_span(tensor));
    char *span = lk__alloc_aligned(tensor_span(tensor));
    if (!span)
        return LK_ERR_MEMORY;
    lk_status status = offload->read(device, lk__data(tensor), span, tensor_span(tensor));
    if (status == LK_OK)
        tensor_copy_elements(tensor, span, data, true);
    lk__free_aligned(span);
    return status;
}

/* Reads from plain storage. There is at least one element. */
static lk_status tensor_read_elements(const lk_tensor *tensor, void *data)
{
    if (tensor->storage->device->backend->offload)
        return tensor_read_offload(tensor, data);
    tensor_copy_elements(tensor, lk__data(tensor), data, true);
    return LK_OK;
}

static lk_status tensor_store(lk_tensor *tensor, const void *from)
{
    bool is_carried = tensor_span(tensor) <= LK_STORE_CARRIED;
    LK_TRY(tensor_push_store(tensor, from, is_carried));
    return is_carried ? LK_OK : lk_tensor_wait(tensor);
}

static lk_status tensor_write_offload(lk_tensor *tensor, const void *data)
{
    if (lk__tensor_is_dense(tensor))
        return tensor_store(tensor, data);
    if (!tensor->storage->data)
        LK_FAIL(LK_ERR_STATE, "tensor: a view with gaps of a tensor on %s is written before the whole of it",
                tensor->storage->device->name);
    char *span = lk__alloc_aligned(tensor_span(tensor));
    if (!span)
        return LK_ERR_MEMORY;
    lk_device *device = tensor->storage->device;
    lk_status status = device->backend->offload->read(device, lk__data(tensor), span, tensor_span(tensor));
    if (status == LK_OK) {
        tensor_copy_elements(tensor, span, (char *)(uintptr_t)data, false);
        status = tensor_store(tensor, span);
    }
    lk__free_aligned(span);
    return status;
}

static lk_status tensor_convert_closed(lk_tensor *tensor, void *data)
{
    lk_device *device = tensor->storage->device;
    const lk_offload *offload = device->backend->offload;
    lk_block *plain;
    if (!offload)
        return device->backend->to_plain(device, tensor, data);
    LK_TRY(lk__allocator_get(device->allocator, tensor->storage->bytes, &plain));
    lk_status status = device->backend->to_plain(device, tensor, plain->data);
    if (status == LK_OK)
        status = offload->drain(device);
    if (status == LK_OK)
        status = offload->read(device, plain->data, data, tensor->storage->bytes);
    lk__allocator_put(device->allocator, plain);
    return status;
}

/* A released device has no thread that could convert, so its tensors are converted on this one. The device's state is
 * for one thread at a time, and while another thread releases the device, its own thread still runs what was pushed. */
static lk_status tensor_read_closed(lk_tensor *tensor, void *data)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    lk_device *device = tensor->storage->device;
    LK_TRY(lk__engine_wait_device(device));
    pthread_mutex_lock(&lock);
    if (device->backend->enter)
        device->backend->enter(device, device->state);
    lk_status status = tensor_convert_closed(tensor, data);
    if (device->backend->leave)
        device->backend->leave(device, device->state);
    pthread_mutex_unlock(&lock);
    return status;
}

/* The tensor keeps its layout: later kernels may add in an order that depends on it, and reading must not change their
 * results. */
static lk_status tensor_read_private(lk_tensor *tensor, void *data)
{
    lk_tensor *plain;
    LK_TRY(lk__tensor_new(tensor->storage->device, tensor->dtype, tensor->shape, &plain));
    lk_call call = {.op = &lk__op_plain_copy,
                    .device = tensor->storage->device,
                    .n_in = 1,
                    .n_out = 1,
                    .in = {tensor},
                    .out = {plain}};
    bool is_open;
    lk_status status = lk__engine_push_if_open(&call, &is_open);
    if (status == LK_OK && is_open)
        status = lk_tensor_wait(plain);
    if (status == LK_OK)
        status = is_open ? tensor_read_elements(plain, data) : tensor_read_closed(tensor, data);
    lk_tensor_release(plain);
    return status;
}

lk_status lk_tensor_read(lk_tensor *tensor, void *data, size_t bytes)
{
    LK_TRY(tensor_check_host_copy(tensor, bytes));
    LK_TRY(lk_tensor_wait(tensor));
    if (bytes == 0)
        return LK_OK;
    if (!tensor->storage->data)
        LK_FAIL(LK_ERR_STATE, "tensor: read before anything was written to it");
    /* Only a tensor that turned out to have a layout goes through the queue again; others are read while later work
     * runs. */
    if (tensor->storage->layout)
        return tensor_read_private(tensor, data);
    return tensor_read_elements(tensor, data);
}

lk_status lk_tensor_write(lk_tensor *tensor, const void *data, size_t bytes)
{
    LK_TRY(tensor_check_host_copy(tensor, bytes));
    LK_TRY(lk__engine_push_plain_if_open(tensor));
    LK_TRY(lk__engine_wait_storage(tensor->storage, true));
    if (tensor->storage->device->backend->offload)
        return tensor_write_offload(tensor, data);
    LK_TRY(lk__output_plain(tensor));
    lk__storage_note_write(tensor->storage);
    tensor_copy_elements(tensor, lk__data(tensor), (char *)(uintptr_t)data, false);
    return LK_OK;
}

double lk__element_value(lk_dtype dtype, const void *data)
{
    switch (dtype) {
    case LK_F32: {
        float value;
        memcpy(&value, data, sizeof value);
        return (double)value;
    }
    case LK_BF16: {
        uint16_t half;
        memcpy(&half, data, sizeof half);
        float value;
        lk__bf16_widen(&half, &value, 1);
        return (double)value;
    }
    case LK_F64: {
        double value;
        memcpy(&value, data, sizeof value);
        return value;
    }
    case LK_I32: {
        int32_t value;
        memcpy(&value, data, sizeof value);
        return value;
    }
    case LK_I64: {
        int64_t value;
        memcpy(&value, data, sizeof value);
        return (double)value;
    }
    case LK_U8:
        return *(const uint8_t *)data;
    default:
        return 0;
    }
}

lk_status lk_tensor_item(lk_tensor *tensor, double *value)
{
    unsigned char element[8] = {0};
    if (!tensor)
        return tensor_missing();
    if (lk_tensor_count(tensor) != 1)
        LK_FAIL(LK_ERR_SHAPE, "tensor: item of a tensor with %lld elements", (long long)lk_tensor_count(tensor));
    LK_TRY(lk_tensor_read(tensor, element, lk_dtype_size(tensor->dtype)));
    *value = lk__element_value(tensor->dtype, element);
    return LK_OK;
}

void lk_free(void *memory)
{
    lk__free(memory);
}
