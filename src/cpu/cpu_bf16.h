/* bf16 tensors on kernels for f32. The elements of a bf16 tensor lie in the order of an f32 one: its layout is the
 * lk_layout of an f32 tensor and takes half the bytes. A kernel works on f32 stand-ins, and the results are rounded
 * when they are stored. */
#pragma once

#include "core/op.h"

/* Runs the f32 row of any operator that lk__cpu_table has one for. */
lk_status lk__cpu_run_bf16(lk_call *call);
bool lk__cpu_takes_bf16(const lk_call *call);

/* The operator cast, from f32 to bf16 and back. */
lk_status lk__cpu_cast_to_bf16(lk_call *call);
lk_status lk__cpu_cast_from_bf16(lk_call *call);
bool lk__cpu_is_cast_to_bf16(const lk_call *call);
bool lk__cpu_is_cast_from_bf16(const lk_call *call);

/* lk__cpu_to_plain for a bf16 tensor. */
lk_status lk__cpu_bf16_to_plain(lk_device *device, const lk_tensor *x, void *plain);
