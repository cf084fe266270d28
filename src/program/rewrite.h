/* Rewriting a program: finding the calls that read and write a tensor, and replacing several calls by one. A tensor
 * stands for its whole storage: views of one storage count as one tensor. */
#pragma once

#include "program/program.h"

/* The calls that use a storage lie in [first, last], and those that write it in [first, last_write]. */
typedef struct lk_span {
    int first, last;
    int last_write; /* -1: none does */
} lk_span;

typedef struct lk_rewrite {
    lk_program *program;
    bool *removed; /* [n_calls] */
    lk_numbers numbers;
    lk_span *spans; /* by number, for the storages that the program used to begin with */
} lk_rewrite;

lk_call *lk__rewrite_call(const lk_rewrite *r, int i);

/* Returns whether call i still exists and is of operator `op`. False for a negative i. */
bool lk__rewrite_is(const lk_rewrite *r, int i, int op);

/* Returns the range of calls in which t may be used. */
lk_span lk__rewrite_span(const lk_rewrite *r, const lk_tensor *t);

/* Counts the calls that read t, and lists the first `capacity` of them in order. */
int lk__rewrite_readers(const lk_rewrite *r, const lk_tensor *t, int *readers, int capacity);

/* Returns the call that writes t, if there is exactly one; else -1. */
int lk__rewrite_writer(const lk_rewrite *r, const lk_tensor *t);

/* Returns whether t is written by one call and read by readers[0 … n) alone, as it is and through no other view: no
 * other call, and no caller of the program, sees it. It is no variable. */
bool lk__rewrite_is_between(const lk_rewrite *r, const lk_tensor *t, const int *readers, int n);

/* Returns the first result of call i. */
lk_tensor *lk__rewrite_result(const lk_rewrite *r, int i);

/* Returns the one call that reads the first result of call i, if nothing else sees that result; else -1. */
int lk__rewrite_only_reader(const lk_rewrite *r, int i);

/* Returns whether `call` can do at position `at` what the calls from[0 … n) do, where entries may be -1: no other call
 * on the way changes what it reads, or uses what it writes. */
bool lk__rewrite_may_stand(const lk_rewrite *r, int at, const lk_call *call, const int *from, int n);

/* Completes `call`, whose op, place, n_in, in[], n_out and attributes are set, with device, dtype and kernel. Returns
 * false if the device has no fast kernel for it. */
bool lk__rewrite_fits(const lk_rewrite *r, lk_call *call);

/* Makes a tensor for output i of a call that fits; the reference belongs to the caller. */
lk_status lk__rewrite_output(const lk_call *call, int i, lk_tensor **output);

/* Replaces call `at` by `call`, and removes gone[0 … n), where entries may be -1 and one may be `at`. */
void lk__rewrite_replace(lk_rewrite *r, int at, const lk_call *call, const int *gone, int n);

/* --- patterns: each looks at call i and rewrites if a match starts there ------------------------------------------ */

lk_status lk__fuse_conv_block(lk_rewrite *r, int i);
lk_status lk__fuse_batch_norm_act(lk_rewrite *r, int i);
lk_status lk__fuse_batch_norm_drop(lk_rewrite *r, int i);
lk_status lk__fuse_batch_norm_pool(lk_rewrite *r, int i);
lk_status lk__fuse_gradient_sum(lk_rewrite *r, int i);
lk_status lk__fuse_bias_gradient(lk_rewrite *r, int i);
lk_status lk__fuse_dense(lk_rewrite *r, int i);
lk_status lk__fuse_loss(lk_rewrite *r, int i);
lk_status lk__fuse_loss_casts(lk_rewrite *r, int i);
lk_status lk__fuse_relu_pool(lk_rewrite *r, int i);
lk_status lk__fuse_copy(lk_rewrite *r, int i);
