#include "pjrt/pjrt_memory.h"
#include "base/mem.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

typedef struct block {
    char *begin;
    size_t size; /* of the range */
    lk_pjrt_value *value;
} block;

struct lk_pjrt_memory {
    const lk_pjrt_session *session;
    int device;
    pthread_mutex_t lock;
    block *blocks; /* sorted by address */
    int64_t n, capacity;
};

/* --- values ------------------------------------------------------------------------------------------------------- */

lk_status lk__pjrt_value_new(const lk_pjrt_session *session, lk_pjrt_buffer *buffer, lk_dtype dtype, int64_t count,
                             lk_pjrt_value **value)
{
    *value = lk__calloc(1, sizeof **value);
    if (!*value) {
        lk__pjrt_buffer_free(session, buffer);
        return LK_ERR_MEMORY;
    }
    **value = (lk_pjrt_value){.session = session, .buffer = buffer, .dtype = dtype, .count = count};
    lk__refcount_init(&(*value)->references);
    return LK_OK;
}

void lk__pjrt_value_release(lk_pjrt_value *value)
{
    if (!value || !lk__refcount_release(&value->references))
        return;
    lk__pjrt_buffer_free(value->session, value->buffer);
    lk__free(value);
}

bool lk__pjrt_value_is_shared(const lk_pjrt_value *value)
{
    return atomic_load(&value->references.references) > 2;
}

static size_t pjrt_value_bytes(const lk_pjrt_value *value)
{
    return value ? (size_t)value->count * lk_dtype_size(value->dtype) : 0;
}

static lk_status pjrt_memory_upload(const lk_pjrt_memory *memory, lk_dtype dtype, size_t bytes, const void *data,
                                    lk_pjrt_value **value)
{
    lk_pjrt_buffer *buffer;
    int64_t count = (int64_t)(bytes / lk_dtype_size(dtype));
    LK_TRY(lk__pjrt_upload(memory->session, memory->device, dtype, count, data, &buffer));
    return lk__pjrt_value_new(memory->session, buffer, dtype, count, value);
}

/* Copies the bytes [begin, begin + bytes) of a value; those past its end are zeros. */
static lk_status pjrt_value_read(const lk_pjrt_value *value, size_t begin, void *to, size_t bytes)
{
    size_t all = pjrt_value_bytes(value);
    if (begin == 0 && bytes == all && all > 0)
        return lk__pjrt_download(value->session, value->buffer, to, bytes);
    memset(to, 0, bytes);
    if (begin >= all)
        return LK_OK;
    char *whole = lk__alloc_aligned(all);
    if (!whole)
        return LK_ERR_MEMORY;
    lk_status status = lk__pjrt_download(value->session, value->buffer, whole, all);
    if (status == LK_OK)
        memcpy(to, whole + begin, bytes < all - begin ? bytes : all - begin);
    lk__free_aligned(whole);
    return status;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

lk_status lk__pjrt_memory_new(const lk_pjrt_session *session, int device, lk_pjrt_memory **memory)
{
    *memory = lk__calloc(1, sizeof **memory);
    if (!*memory)
        return LK_ERR_MEMORY;
    **memory = (lk_pjrt_memory){.session = session, .device = device};
    pthread_mutex_init(&(*memory)->lock, NULL);
    return LK_OK;
}

void lk__pjrt_memory_free(lk_pjrt_memory *memory)
{
    if (!memory)
        return;
    while (memory->n > 0)
        lk__pjrt_memory_drop(memory, memory->blocks[memory->n - 1].begin);
    pthread_mutex_destroy(&memory->lock);
    lk__free(memory->blocks);
    lk__free(memory);
}

/* Returns the number of blocks that begin at or before the address. Under the lock. */
static int64_t pjrt_memory_blocks_up_to(const lk_pjrt_memory *memory, const char *address)
{
    int64_t low = 0, high = memory->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (memory->blocks[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static block *pjrt_memory_block_at(const lk_pjrt_memory *memory, const void *address)
{
    int64_t i = pjrt_memory_blocks_up_to(memory, address);
    return i > 0 ? &memory->blocks[i - 1] : NULL;
}

void *lk__pjrt_memory_alloc(lk_pjrt_memory *memory, size_t bytes)
{
    char *begin = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) {
        lk__fail(LK_ERR_MEMORY, "out of memory: no %zu bytes of addresses are left", bytes);
        return NULL;
    }
    pthread_mutex_lock(&memory->lock);
    bool grown = LK_GROW(memory->blocks, &memory->capacity, memory->n + 1) == LK_OK;
    if (grown) {
        int64_t i = pjrt_memory_blocks_up_to(memory, begin);
        memmove(memory->blocks + i + 1, memory->blocks + i, (size_t)(memory->n - i) * sizeof *memory->blocks);
        memory->blocks[i] = (block){.begin = begin, .size = bytes};
        memory->n++;
    }
    pthread_mutex_unlock(&memory->lock);
    if (grown)
        return begin;
    munmap(begin, bytes);
    return NULL;
}

void lk__pjrt_memory_drop(lk_pjrt_memory *memory, void *data)
{
    pthread_mutex_lock(&memory->lock);
    block *its = pjrt_memory_block_at(memory, data), dropped = *its;
    memory->n--;
    memmove(its, its + 1, (size_t)(memory->blocks + memory->n - its) * sizeof *its);
    pthread_mutex_unlock(&memory->lock);
    munmap(dropped.begin, dropped.size);
    lk__pjrt_value_release(dropped.value);
}

/* Returns the value of the block that has the address, with a reference; NULL: it has none. *offset: of the address. */
static lk_pjrt_value *pjrt_memory_value_at(lk_pjrt_memory *memory, const void *address, size_t *offset)
{
    pthread_mutex_lock(&memory->lock);
    const block *its = pjrt_memory_block_at(memory, address);
    lk_pjrt_value *value = its->value;
    *offset = (size_t)((const char *)address - its->begin);
    if (value)
        lk__refcount_retain(&value->references);
    pthread_mutex_unlock(&memory->lock);
    return value;
}

void lk__pjrt_memory_set(lk_pjrt_memory *memory, void *to, lk_pjrt_value *value)
{
    pthread_mutex_lock(&memory->lock);
    block *its = pjrt_memory_block_at(memory, to);
    lk_pjrt_value *before = its->value;
    its->value = value;
    pthread_mutex_unlock(&memory->lock);
    lk__pjrt_value_release(before);
}

/* --- parts of values, by way of the host -------------------------------------------------------------------------- */

/* Makes a value of the bytes [begin, begin + bytes) of another one. */
static lk_status pjrt_memory_cut(const lk_pjrt_memory *memory, const lk_pjrt_value *from, size_t begin, lk_dtype dtype,
                                 size_t bytes, lk_pjrt_value **value)
{
    void *part = lk__alloc_aligned(bytes);
    if (!part)
        return LK_ERR_MEMORY;
    lk_status status = pjrt_value_read(from, begin, part, bytes);
    if (status == LK_OK)
        status = pjrt_memory_upload(memory, dtype, bytes, part, value);
    lk__free_aligned(part);
    return status;
}

/* Makes a value that has bytes[0 … n) from `begin` on, and is `before` elsewhere. */
static lk_status pjrt_memory_patch(const lk_pjrt_memory *memory, const lk_pjrt_value *before, size_t begin,
                                   const void *bytes, size_t n, lk_dtype dtype, lk_pjrt_value **value)
{
    size_t had = pjrt_value_bytes(before), all = had > begin + n ? had : begin + n;
    char *whole = lk__alloc_aligned(all);
    if (!whole)
        return LK_ERR_MEMORY;
    lk_status status = pjrt_value_read(before, 0, whole, all);
    if (status == LK_OK) {
        memcpy(whole + begin, bytes, n);
        status = pjrt_memory_upload(memory, dtype, all, whole, value);
    }
    lk__free_aligned(whole);
    return status;
}

/* --- access ------------------------------------------------------------------------------------------------------- */

lk_status lk__pjrt_memory_get(lk_pjrt_memory *memory, const void *from, lk_dtype dtype, int64_t count,
                              lk_pjrt_value **out)
{
    size_t offset;
    lk_pjrt_value *value = pjrt_memory_value_at(memory, from, &offset);
    if (value && offset == 0 && value->count == count && value->dtype == dtype) {
        *out = value;
        return LK_OK;
    }
    lk_status status = pjrt_memory_cut(memory, value, offset, dtype, (size_t)count * lk_dtype_size(dtype), out);
    lk__pjrt_value_release(value);
    return status;
}

lk_status lk__pjrt_memory_read(lk_pjrt_memory *memory, const void *from, void *to, size_t bytes)
{
    size_t offset;
    lk_pjrt_value *value = pjrt_memory_value_at(memory, from, &offset);
    lk_status status = pjrt_value_read(value, offset, to, bytes);
    lk__pjrt_value_release(value);
    return status;
}

lk_status lk__pjrt_memory_write(lk_pjrt_memory *memory, void *to, const void *from, size_t bytes, lk_dtype dtype)
{
    size_t offset;
    lk_pjrt_value *before = pjrt_memory_value_at(memory, to, &offset), *value = NULL;
    bool is_whole = offset == 0 && bytes >= pjrt_value_bytes(before);
    lk_status status = is_whole ? pjrt_memory_upload(memory, dtype, bytes, from, &value)
                                : pjrt_memory_patch(memory, before, offset, from, bytes, dtype, &value);
    lk__pjrt_value_release(before);
    if (status == LK_OK)
        lk__pjrt_memory_set(memory, (char *)to - offset, value);
    return status;
}

/* On the same device the two blocks share the value from then on. */
static lk_status pjrt_memory_bring_whole(lk_pjrt_memory *memory, void *to, lk_pjrt_value *from, bool is_here)
{
    lk_pjrt_value *value = from;
    if (is_here) {
        lk__refcount_retain(&from->references);
    } else {
        lk_pjrt_buffer *copy;
        LK_TRY(lk__pjrt_copy(memory->session, from->buffer, memory->device, &copy));
        LK_TRY(lk__pjrt_value_new(memory->session, copy, from->dtype, from->count, &value));
    }
    lk__pjrt_memory_set(memory, to, value);
    return LK_OK;
}

static lk_status pjrt_memory_bring_part(lk_pjrt_memory *memory, void *to, const lk_pjrt_value *from, size_t offset,
                                        size_t bytes)
{
    void *part = lk__alloc_aligned(bytes);
    if (!part)
        return LK_ERR_MEMORY;
    lk_status status = pjrt_value_read(from, offset, part, bytes);
    if (status == LK_OK)
        status = lk__pjrt_memory_write(memory, to, part, bytes, from ? from->dtype : LK_U8);
    lk__free_aligned(part);
    return status;
}

lk_status lk__pjrt_memory_bring(lk_pjrt_memory *memory, void *to, lk_pjrt_memory *other, const void *from, size_t bytes)
{
    size_t offset, begin;
    lk_pjrt_value *value = pjrt_memory_value_at(other, from, &offset),
                  *before = pjrt_memory_value_at(memory, to, &begin);
    bool is_whole =
        value && offset == 0 && begin == 0 && bytes == pjrt_value_bytes(value) && bytes >= pjrt_value_bytes(before);
    lk__pjrt_value_release(before);
    lk_status status = is_whole ? pjrt_memory_bring_whole(memory, to, value, memory->device == other->device)
                                : pjrt_memory_bring_part(memory, to, value, offset, bytes);
    lk__pjrt_value_release(value);
    return status;
}
