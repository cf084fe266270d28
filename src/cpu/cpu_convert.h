/* From one layout to another. */
#ifndef LK_CPU_CPU_CONVERT_H
#define LK_CPU_CPU_CONVERT_H

#include "core/op.h"
#include "cpu/cpu_layout.h"

/* Writes x, f32 or i32, to `data` in layout `to`; NULL: row-major without gaps. On the thread of `device`. */
lk_status lk__cpu_convert(lk_device *device, const lk_tensor *x, const lk_layout *to, void *data);

/* x's elements, f32 or i32, in layout `to`: where it lies if that is how it lies, else in a copy, to be given back to
 * the device's allocator (NULL: there is none). */
typedef struct lk_converted {
    const void *data;
    struct lk_block *block;
} lk_converted;

lk_status lk__cpu_as(lk_device *device, const lk_tensor *x, const lk_layout *to, lk_converted *converted);
void lk__cpu_as_end(lk_device *device, lk_converted *converted);

#endif
