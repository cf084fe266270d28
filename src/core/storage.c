#include "core/storage.h"
#include "base/cell.h"
#include "base/mem.h"
#include "core/backend.h"

_Static_assert(sizeof(lk_storage) <= LK_CELL_BYTES, "a storage is a cell");

lk_status lk__storage_new(lk_device *device, size_t bytes, lk_storage **out)
{
    lk_storage *storage = lk__cell_new();
    if (!storage)
        return LK_ERR_MEMORY;
    lk__refcount_init(&storage->references);
    storage->device = device;
    storage->bytes = bytes;
    storage->readers = storage->few_readers;
    storage->readers_capacity = (int)(sizeof storage->few_readers / sizeof *storage->few_readers);
    lk__device_retain_memory(device);
    *out = storage;
    return LK_OK;
}

void lk__storage_retain(lk_storage *storage)
{
    lk__refcount_retain(&storage->references);
}

void lk__error_release(lk_error *error)
{
    if (error && lk__refcount_release(&error->references))
        lk__free(error);
}

void lk__storage_release(lk_storage *storage)
{
    if (!storage || !lk__refcount_release(&storage->references))
        return;
    lk_device *device = storage->device;
    lk__allocator_put(device->allocator, storage->block);
    if (storage->release)
        storage->release(storage->user);
    lk__error_release(storage->error);
    if (storage->readers != storage->few_readers)
        lk__device_free(device, storage->readers);
    lk__cell_free(storage);
    lk__device_release_memory(device);
}

lk_status lk__storage_allocate(lk_storage *storage, size_t bytes, const void *layout)
{
    size_t have = storage->block ? storage->block->size : storage->planned ? storage->planned : storage->bytes;
    storage->used = bytes;
    if (storage->data && have >= bytes) {
        storage->layout = layout;
        return LK_OK;
    }
    lk_block *block;
    LK_TRY(lk__allocator_get(storage->device->allocator, bytes, &block));
    lk__storage_replace(storage, block, layout);
    return LK_OK;
}

void lk__storage_replace(lk_storage *storage, lk_block *block, const void *layout)
{
    lk__allocator_put(storage->device->allocator, storage->block);
    storage->block = block;
    storage->data = block->data;
    storage->layout = layout;
}
