/* Conversions of tensors from one layout to another. */
#pragma once

#include "core/op.h"
#include "cpu/onednn/cpu_layout.h"

/* Writes x, f32 or i32, to `data` in layout `to` (NULL: row-major without gaps). Call it on the thread of `device`. */
lk_status lk__cpu_convert(lk_device *device, const lk_tensor *x, const lk_layout *to, void *data);

/* The elements of x in some layout. `block` is a block of the device's allocator that holds a copy; NULL: x lies in
 * that layout and is not copied. */
typedef struct lk_converted {
    const void *data;
    struct lk_block *block;
} lk_converted;

/* Gives x, f32, i32 or bf16, in layout `to`. End it with lk__cpu_as_end, also after an error. */
lk_status lk__cpu_as(lk_device *device, const lk_tensor *x, const lk_layout *to, lk_converted *converted);
void lk__cpu_as_end(lk_device *device, lk_converted *converted);
