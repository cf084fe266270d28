/* The library's only access to the heap. All allocations go through these functions, so that tests can make any of them
 * fail and count live bytes. */
#pragma once

#include "lockstep/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns zeroed memory for `count` items of `size` bytes; NULL, with the thread's error set, if the product overflows
 * or there is no memory. Free with lk__free; lk__free(NULL) is fine. */
void *lk__calloc(size_t count, size_t size);

/* Returns uninitialized memory, aligned to LK_ALIGNMENT bytes. Free with lk__free_aligned. */
#define LK_ALIGNMENT 64
void *lk__alloc_aligned(size_t bytes);
void lk__free_aligned(void *memory);

/* Returns `n` rounded up to a multiple of LK_ALIGNMENT. */
static inline size_t lk__aligned_bytes(size_t n)
{
    return (n + LK_ALIGNMENT - 1) / LK_ALIGNMENT * LK_ALIGNMENT;
}

/* As realloc(3): on failure it returns NULL, and the old block stays valid. */
void *lk__realloc(void *memory, size_t count, size_t size);

/* Grows `array`, a pointer to *capacity elements, to hold at least `n` elements, doubling the capacity; the array may
 * move. Returns a status: on LK_ERR_MEMORY the array is unchanged. */
#define LK_GROW(array, capacity, n) lk__grow(&(array), capacity, n, sizeof *(array))
lk_status lk__grow(void *array, int64_t *capacity, int64_t n, size_t size);
char *lk__strdup(const char *text);
void lk__free(void *memory);

/* Frees each of its arguments. */
#define LK_FREE_ALL(...) lk__free_each((void *[]){__VA_ARGS__}, sizeof((void *[]){__VA_ARGS__}) / sizeof(void *))
void lk__free_each(void *const *memory, size_t count);

/* Prefetches the cache line at `address` for writing. It pays if another core wrote the line last. */
static inline void lk__prefetch_to_write(const void *address)
{
#if defined(__x86_64__)
    __asm__("prefetchw %0" : : "m"(*(const char *)address)); /* the builtin prefetches for reading on the baseline */
#else
    __builtin_prefetch(address, 1);
#endif
}

/* Set *product = a * b. Return false on overflow. */
bool lk__mul_size(size_t a, size_t b, size_t *product);
bool lk__mul_i64(int64_t a, int64_t b, int64_t *product);

/* Failure injection, for the whole process: the n-th allocation from now (0 is the next) fails, once; -1 switches it
 * off. lk__mem_allocations() counts attempts since the last call of lk__mem_fail_at. */
void lk__mem_fail_at(int64_t n);
int64_t lk__mem_allocations(void);

/* Returns whether freed memory may be kept for reuse. It may not under sanitizers, which watch each object, nor while
 * failures are injected. */
bool lk__mem_may_keep(void);

/* Returns whether failure injection is on, also after the injected failure. */
bool lk__mem_is_failing(void);
