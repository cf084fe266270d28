/* The library's only way to the heap. Every allocation goes through here, so that tests can make any one of them fail
 * and so that live bytes can be counted. */
#ifndef LK_BASE_MEM_H
#define LK_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed memory for `count` items of `size` bytes; NULL, with the thread's error set, when the product overflows or the
 * memory is not to be had. Free with lk__free; lk__free(NULL) is fine. */
void *lk__calloc(size_t count, size_t size);

/* Uninitialised memory, aligned to LK_ALIGNMENT bytes. Free with lk__free_aligned. */
#define LK_ALIGNMENT 64
void *lk__alloc_aligned(size_t bytes);
void lk__free_aligned(void *memory);

/* As realloc(3): the old block stays valid when NULL comes back. */
void *lk__realloc(void *memory, size_t count, size_t size);
char *lk__strdup(const char *text);
void lk__free(void *memory);

/* Starts to bring the line of the cache at `address` here, to be written soon: worth it where another core wrote it
 * last. */
static inline void lk__prefetch_to_write(const void *address)
{
#if defined(__x86_64__)
    __asm__("prefetchw %0" : : "m"(*(const char *)address)); /* the builtin gives a prefetch to read on the baseline */
#else
    __builtin_prefetch(address, 1);
#endif
}

/* *product = a * b, false on overflow. */
bool lk__mul_size(size_t a, size_t b, size_t *product);
bool lk__mul_i64(int64_t a, int64_t b, int64_t *product);

/* Failure injection, process-wide: the n-th allocation from now (0 is the next) fails, once; -1 switches it off.
 * lk__mem_allocations() counts attempts since the last call of lk__mem_fail_at. */
void lk__mem_fail_at(int64_t n);
int64_t lk__mem_allocations(void);

/* Whether memory that was let go of may be kept for the next who asks: not under sanitizers, which watch each object,
 * nor while failures are injected. */
bool lk__mem_may_keep(void);

/* Whether it is on: since the last call of lk__mem_fail_at, also after the failure. */
bool lk__mem_is_failing(void);

#endif
