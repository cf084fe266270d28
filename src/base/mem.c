#include "base/mem.h"

#include "base/status.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LK_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LK_SANITIZED 1
#endif
#endif
#ifndef LK_SANITIZED
#define LK_SANITIZED 0
#endif

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

bool lk__mem_is_failing(void)
{
    return atomic_load_explicit(&fail_at, memory_order_relaxed) >= 0;
}

bool lk__mem_may_keep(void)
{
    return !LK_SANITIZED && !lk__mem_is_failing();
}

static bool mem_injects_failure(void)
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

static void *mem_out_of_memory(size_t bytes)
{
    lk__fail(LK_ERR_MEMORY, "out of memory: %zu bytes were refused", bytes);
    return NULL;
}

static bool mem_checked_product(size_t count, size_t size, size_t *bytes)
{
    if (lk__mul_size(count, size, bytes))
        return true;
    lk__fail(LK_ERR_MEMORY, "out of memory: %zu items of %zu bytes exceed the address space", count, size);
    return false;
}

void *lk__calloc(size_t count, size_t size)
{
    size_t bytes;
    if (!mem_checked_product(count, size, &bytes))
        return NULL;
    void *memory = mem_injects_failure() ? NULL : calloc(1, bytes ? bytes : 1);
    return memory ? memory : mem_out_of_memory(bytes);
}

void *lk__realloc(void *memory, size_t count, size_t size)
{
    size_t bytes;
    if (!mem_checked_product(count, size, &bytes))
        return NULL;
    void *grown = mem_injects_failure() ? NULL : realloc(memory, bytes ? bytes : 1);
    return grown ? grown : mem_out_of_memory(bytes);
}

lk_status lk__grow(void *array, int64_t *capacity, int64_t n, size_t size)
{
    if (n <= *capacity)
        return LK_OK;
    int64_t wanted = *capacity > 0 ? *capacity : 8;
    while (wanted < n)
        wanted = wanted > INT64_MAX / 2 ? n : wanted * 2;
    void *memory; /* copied bytewise, because the caller's pointer has another type */
    memcpy(&memory, array, sizeof memory);
    memory = lk__realloc(memory, (size_t)wanted, size);
    if (!memory)
        return LK_ERR_MEMORY;
    memcpy(array, &memory, sizeof memory);
    *capacity = wanted;
    return LK_OK;
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

void lk__free_each(void *const *memory, size_t count)
{
    for (size_t i = 0; i < count; i++)
        lk__free(memory[i]);
}

/* The heap keeps freed memory in holes that the next request may not fit into. So large memory is mapped separately and
 * returned to the system. The size of the mapping stands in front of it; 0: the memory is from the heap. */
enum { LEAST_MAPPED = 1 << 20, LEAST_HUGE = 4 << 20 };

/* Asks for pages of 2 MiB. A step walks through hundreds of megabytes of activations, and a processor caches the
 * addresses of about a thousand pages. Without huge pages the program is some percent slower. */
static void *mem_map_pages(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= LEAST_HUGE)
        madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

void *lk__alloc_aligned(size_t bytes)
{
    size_t total;
    if (__builtin_add_overflow(bytes, 2 * LK_ALIGNMENT - 1, &total))
        return mem_out_of_memory(bytes);
    total -= total % LK_ALIGNMENT;
    bool mapped = total >= LEAST_MAPPED;
    char *block = mem_injects_failure() ? NULL : mapped ? mem_map_pages(total) : aligned_alloc(LK_ALIGNMENT, total);
    if (!block)
        return mem_out_of_memory(bytes);
    *(size_t *)(void *)block = mapped ? total : 0;
    return block + LK_ALIGNMENT;
}

void lk__free_aligned(void *memory)
{
    if (!memory)
        return;
    char *block = (char *)memory - LK_ALIGNMENT;
    size_t mapped = *(size_t *)(void *)block;
    if (mapped)
        munmap(block, mapped);
    else
        free(block);
}
