/* Reference counts. A new object starts with one reference; the thread that drops the last one destroys it. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

typedef struct lk_refcount {
    atomic_int references;
} lk_refcount;

static inline void lk__refcount_init(lk_refcount *count)
{
    atomic_init(&count->references, 1);
}

static inline void lk__refcount_retain(lk_refcount *count)
{
    atomic_fetch_add_explicit(&count->references, 1, memory_order_relaxed);
}

/* Drops a reference. True: it was the last one, and the caller must destroy the object. The memory order makes every
 * earlier use visible to the destroyer. */
static inline bool lk__refcount_release(lk_refcount *count)
{
    return atomic_fetch_sub_explicit(&count->references, 1, memory_order_acq_rel) == 1;
}

/* Tells the holder of a reference whether it is the only one. If so, all uses by former holders are visible. */
static inline bool lk__refcount_is_one(const lk_refcount *count)
{
    return atomic_load_explicit(&count->references, memory_order_acquire) == 1;
}
