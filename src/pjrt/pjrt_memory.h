/* The memory of a device. PJRT's buffers are immutable and have no addresses, but storages and views need addresses. So
 * a block is a range of addresses that nothing backs, and has a value: a flat buffer, which is replaced whenever the
 * block is written. A block without a value reads as zeros. Functions may be called from any thread; the engine keeps
 * a block from being written while it is used. */
#pragma once

#include "base/refcount.h"
#include "pjrt/pjrt_client.h"

typedef struct lk_pjrt_memory lk_pjrt_memory;

/* A buffer, which blocks and runs of modules share. It is never written. */
typedef struct lk_pjrt_value {
    lk_refcount references;
    const lk_pjrt_session *session;
    lk_pjrt_buffer *buffer;
    lk_dtype dtype;
    int64_t count;
} lk_pjrt_value;

/* Takes the buffer over, also if it fails. Errors: LK_ERR_MEMORY. */
lk_status lk__pjrt_value_new(const lk_pjrt_session *session, lk_pjrt_buffer *buffer, lk_dtype dtype, int64_t count,
                             lk_pjrt_value **value);
void lk__pjrt_value_release(lk_pjrt_value *value); /* NULL is fine */

/* Returns whether anything but one block and the caller holds the value. */
bool lk__pjrt_value_is_shared(const lk_pjrt_value *value);

/* The memory of device `device` of the session. */
lk_status lk__pjrt_memory_new(const lk_pjrt_session *session, int device, lk_pjrt_memory **memory);
void lk__pjrt_memory_free(lk_pjrt_memory *memory);

/* NULL, with the thread's error set: no memory. */
void *lk__pjrt_memory_alloc(lk_pjrt_memory *memory, size_t bytes);
void lk__pjrt_memory_drop(lk_pjrt_memory *memory, void *data);

/* Returns `count` elements from address `from` on, as a buffer of these; the caller releases the value. */
lk_status lk__pjrt_memory_get(lk_pjrt_memory *memory, const void *from, lk_dtype dtype, int64_t count,
                              lk_pjrt_value **value);
/* Replaces the value of the block that begins at `to`. Takes the value over. */
void lk__pjrt_memory_set(lk_pjrt_memory *memory, void *to, lk_pjrt_value *value);

/* Copies between memory of the process and any part of a block. `read` waits for the work that makes the value. */
lk_status lk__pjrt_memory_read(lk_pjrt_memory *memory, const void *from, void *to, size_t bytes);
lk_status lk__pjrt_memory_write(lk_pjrt_memory *memory, void *to, const void *from, size_t bytes, lk_dtype dtype);
/* Copies from `other`, which may be the same memory. */
lk_status lk__pjrt_memory_bring(lk_pjrt_memory *memory, void *to, lk_pjrt_memory *other, const void *from,
                                size_t bytes);
