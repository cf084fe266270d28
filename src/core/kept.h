/* What a kernel makes of a variable alone, weights in its own order for instance, kept from one replay of a program to
 * the next until the variable is written. No result depends on it: it is what the kernel would make again. */
#ifndef LK_CORE_KEPT_H
#define LK_CORE_KEPT_H

#include "core/op.h"

/* Of a program's call; on the device's thread. */
typedef struct lk_kept {
    unsigned inputs;        /* bit i: the call's input i is a variable that the program only reads */
    size_t *left;           /* bytes that calls of the program may still keep */
    struct lk_block *block; /* NULL: nothing was kept yet */
    size_t bytes;           /* asked of the block */
    bool made;              /* it holds what is made of the variable as it is now */
} lk_kept;

/* Memory for the `bytes` bytes that the call's kernel makes of its input `input`, always the same: *kept with a block,
 * or NULL where they are not kept. Errors: LK_ERR_MEMORY. */
lk_status lk__kept_get(const lk_call *call, int input, size_t bytes, lk_kept **kept);

#endif
