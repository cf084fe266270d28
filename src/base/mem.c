#include "base/mem.h"

#include "base/status.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int64_t fail_at = -1;
static _Atomic int64_t allocations;

void lk__mem_fail_at(int64_t n)
{
    atomic_store(&allocations, 0);
    atomic_store(&fail_at, n);
}

int64_t lk__mem_allocations(void)
{
    return atomic_load(&allocations);
}

static bool injected_failure(void)
{
    int64_t attempt = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return attempt == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

bool lk__mul_size(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

bool lk__mul_i64(int64_t a, int64_t b, int64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

static void *refused(size_t bytes)
{
    lk__fail(LK_ERR_MEMORY, "out of memory: %zu bytes were refused", bytes);
    return NULL;
}

static bool checked_product(size_t count, size_t size, size_t *bytes)
{
    if (lk__mul_size(count, size, bytes))
        return true;
    lk__fail(LK_ERR_MEMORY, "out of memory: %zu items of %zu bytes exceed the address space", count, size);
    return false;
}

void *lk__calloc(size_t count, size_t size)
{
    size_t bytes;
    if (!checked_product(count, size, &bytes))
        return NULL;
    void *memory = injected_failure() ? NULL : calloc(1, bytes ? bytes : 1);
    return memory ? memory : refused(bytes);
}

void *lk__realloc(void *memory, size_t count, size_t size)
{
    size_t bytes;
    if (!checked_product(count, size, &bytes))
        return NULL;
    void *grown = injected_failure() ? NULL : realloc(memory, bytes ? bytes : 1);
    return grown ? grown : refused(bytes);
}

char *lk__strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = lk__calloc(bytes, 1);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

void lk__free(void *memory)
{
    free(memory);
}

void *lk__alloc_aligned(size_t bytes)
{
    size_t rounded;
    if (__builtin_add_overflow(bytes, LK_ALIGNMENT - 1, &rounded))
        return refused(bytes);
    rounded &= ~(size_t)(LK_ALIGNMENT - 1);
    if (!rounded)
        rounded = LK_ALIGNMENT;
    void *memory = injected_failure() ? NULL : aligned_alloc(LK_ALIGNMENT, rounded);
    return memory ? memory : refused(bytes);
}

void lk__free_aligned(void *memory)
{
    free(memory);
}
