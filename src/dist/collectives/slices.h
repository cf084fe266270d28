/* Rows of which each rank updates a slice: the parameters, if devices share the optimizer's state. */
#pragma once

#include "dist/strategy.h"

typedef struct lk_slices lk_slices;

/* Makes the slices of rows[device]. The rows and the strategy must live as long as *slices. Waits for the rows, whose
 * memory must not move. Errors: LK_ERR_MEMORY. */
lk_status lk__slices_new(const lk_strategy *strategy, lk_tensor *const *rows, lk_slices **slices);
void lk__slices_release(lk_slices *slices); /* NULL is fine */

/* Returns the elements of a row that device `d` of this process updates. Slices begin at cache lines. */
lk_range lk__slices_range(const lk_slices *slices, int d);

/* Returns them as a tensor that the device updates and others read. On CPU devices it has a storage of its own, so that
 * reading it does not wait for what happens in the rest of the row. */
lk_tensor *lk__slices_own(const lk_slices *slices, int d);

/* Copies each rank's slice into the rows of all others, after an update of the slices. Later reads and writes of the
 * rows wait for the copies. Asynchronous. Every process must call it in the same order among sums. */
lk_status lk__slices_gather(lk_slices *slices);

/* Returns whether the ranks are in several processes, and the number of this one. */
bool lk__slices_span_processes(const lk_slices *slices);
int lk__slices_process(const lk_slices *slices);

/* Completes values[0 … part's elements) on every process that takes part: each has those of its devices' slices. Waits.
 * All processes call it with the same part. read: the status of reading the own ones; a failure ends all processes. */
lk_status lk__slices_complete(const lk_slices *slices, lk_range part, float *values, lk_status read);
