/* Reference counts. A new object starts with one reference; the thread that drops the last one destroys it. */
#ifndef LK_BASE_REFCOUNT_H
#define LK_BASE_REFCOUNT_H

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

/* True for whoever has to destroy the object. Acquire and release, so that the destroyer sees every earlier use. */
static inline bool lk__refcount_release(lk_refcount *count)
{
    return atomic_fetch_sub_explicit(&count->references, 1, memory_order_acq_rel) == 1;
}

/* To whoever holds a reference: that there is no other, and what others did with theirs is seen. */
static inline bool lk__refcount_is_one(const lk_refcount *count)
{
    return atomic_load_explicit(&count->references, memory_order_acquire) == 1;
}

#endif
