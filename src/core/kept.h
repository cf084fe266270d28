/* Results that a kernel derives from a variable alone, such as reordered weights, kept from one replay of a program to
 * the next until the variable is written. They only save time: the kernel would compute the same again. */
#pragma once

#include "core/op.h"

/* Belongs to a call of a program. On the device's thread. */
typedef struct lk_kept {
    unsigned inputs;        /* bit i: the call's input i is a variable that the program only reads, or a cast of one */
    size_t *left;           /* bytes that calls of the program may still keep */
    struct lk_block *block; /* NULL: nothing is kept yet */
    size_t bytes;           /* requested of the block */
    int input;              /* the block holds what is derived from this input of the call */
    bool made;              /* that is of the variable's present value, so the kernel does not read the input */
} lk_kept;

/* Reading more bytes than this from memory usually takes as long as deriving them. */
enum { LK_KEPT_MOST = 1 << 20 };

/* Gets memory for the `bytes` bytes that the call's kernel derives from its input `input`; each call asks for the same
 * number every time. More than `most` bytes are not kept. *kept is NULL if they are not to be kept; else its block has
 * the memory. Errors: LK_ERR_MEMORY. */
lk_status lk__kept_get(const lk_call *call, int input, size_t bytes, size_t most, lk_kept **kept);
