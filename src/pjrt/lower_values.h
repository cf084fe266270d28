/* The values of tensors in a module: reading views of storages, and writing to them. */
#pragma once

#include "pjrt/lower_text.h"

/* A tensor's elements, in its dtype and shape. The first access to a storage that was not written before makes it a
 * parameter. */
lk_hlo lk__hlo_read(lk_lowering *l, const lk_tensor *tensor);

/* The same, with bf16 converted to f32: the type that floats are computed in. */
lk_hlo lk__hlo_read_float(lk_lowering *l, const lk_tensor *tensor);

/* Copies the elements of a whole i64 tensor that was written and does not change, in order to write them into the
 * module. Waits for what wrote them. Returns false after a failure. */
bool lk__hlo_constants(lk_lowering *l, const lk_tensor *tensor, int64_t *values);

/* Returns whether a module can write to the tensor. It cannot if that is a part of its storage that no slice of the
 * storage, in some shape, holds. */
bool lk__hlo_can_write(const lk_tensor *tensor);

/* Writes `value` to the tensor's elements: converts it to the tensor's dtype and reshapes it to its shape. */
void lk__hlo_write(lk_lowering *l, const lk_tensor *tensor, lk_hlo value);

/* The type that a float dtype is computed in: f32 for bf16. */
int lk__hlo_compute_type(lk_dtype dtype);

/* The step, ui64, which becomes a parameter. */
lk_hlo lk__hlo_step(lk_lowering *l);
