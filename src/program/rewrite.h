/* Rewriting a program: who reads and writes a tensor, and putting one call in the place of several. Views of a storage
 * count as that storage. */
#ifndef LK_PROGRAM_REWRITE_H
#define LK_PROGRAM_REWRITE_H

#include "program/program.h"

/* Calls that use a storage are in [first, last], and those that write it in [first, last_write]. */
typedef struct lk_span {
    int first, last;
    int last_write; /* -1: none does */
} lk_span;

typedef struct lk_rewrite {
    lk_program *program;
    bool *removed; /* [n_calls] */
    lk_numbers numbers;
    lk_span *spans; /* by number, of the storages that the program uses to begin with */
} lk_rewrite;

lk_call *lk__rewrite_call(const lk_rewrite *r, int i);

/* Whether call i is there still and is of operator `op`. */
bool lk__rewrite_is(const lk_rewrite *r, int i, int op);

/* Where uses of t are to be looked for. */
lk_span lk__rewrite_span(const lk_rewrite *r, const lk_tensor *t);

/* The calls that read t, in order: how many, and the first `capacity` of them. */
int lk__rewrite_readers(const lk_rewrite *r, const lk_tensor *t, int *readers, int capacity);

/* Whether a call before `call` reads t. */
bool lk__rewrite_is_read_before(const lk_rewrite *r, const lk_tensor *t, int call);

/* The call that writes t, where there is just one; else -1. */
int lk__rewrite_writer(const lk_rewrite *r, const lk_tensor *t);

/* Whether nobody but reader[0 … n), within the program, ever sees t, which one call writes. */
bool lk__rewrite_is_between(const lk_rewrite *r, const lk_tensor *t, const int *readers, int n);

/* Completes `call`, of which op, place, n_in, in[], n_out and attributes are set: device, dtype, kernel. False where no
 * backend has a kernel for it that is meant to be fast. */
bool lk__rewrite_fits(const lk_rewrite *r, lk_call *call);

/* A new tensor for output i of a call that fits, with a reference that is the caller's. */
lk_status lk__rewrite_output(const lk_call *call, int i, lk_tensor **output);

/* Puts `call` in the place of call `at`; removes gone[0 … n), where entries may be -1 and one may be `at`. */
void lk__rewrite_replace(lk_rewrite *r, int at, const lk_call *call, const int *gone, int n);

/* --- patterns: each looks at call i, and rewrites if it starts one ------------------------------------------------ */

lk_status lk__fuse_conv_block(lk_rewrite *r, int i);
lk_status lk__fuse_batch_norm_act(lk_rewrite *r, int i);
lk_status lk__fuse_dense(lk_rewrite *r, int i);
lk_status lk__fuse_loss(lk_rewrite *r, int i);

#endif
