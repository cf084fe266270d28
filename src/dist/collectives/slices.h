/* Rows of which each device of a process updates a slice: the parameters, if devices share the optimizer's state. */
#pragma once

#include "dist/strategy.h"

/* Returns the elements of a row of `elements`, a multiple of 16, that device `d` of the process updates. Slices begin
 * at cache lines. */
lk_range lk__slice_of(const lk_strategy *strategy, int64_t elements, int d);

/* Returns row[slice) as a tensor that its device updates and others read: new, one reference. On CPU devices it has a
 * storage of its own, so that reading it does not wait for what happens in the rest of the row. Waits for the row,
 * whose memory must not move. */
lk_tensor *lk__slice_new(lk_tensor *row, lk_range slice);

/* Copies each device's slice into the rows of all others, after an update of the slices. rows[device], slices[device]:
 * from lk__slice_new. Later reads and writes of the rows wait for the copies. Asynchronous. */
lk_status lk__slices_gather(const lk_strategy *strategy, lk_tensor *const *rows, lk_tensor *const *slices);
