/* One block of memory that holds a structure and its arrays. */
#pragma once

#include <stddef.h>

/* Reserves `count` items of `size` bytes in `block` at offset *used, and advances *used. With block NULL it only
 * counts: call it for every array to learn the size, then again with the allocated block. */
static inline void *lk__block_part(void *block, size_t *used, size_t count, size_t size)
{
    void *part = block ? (char *)block + *used : NULL;
    *used += (count * size + _Alignof(max_align_t) - 1) / _Alignof(max_align_t) * _Alignof(max_align_t);
    return part;
}
