/* Runs operators on bf16 tensors with the kernels for f32: on f32 copies, the stand-ins, whose results are rounded to
 * bf16 as they are stored. A bf16 tensor has the lk_layout of the f32 tensor of its shape, in half the bytes. */
#pragma once

#include "core/op.h"
#include "cpu/onednn/cpu_layout.h"

/* Runs the f32 row of any operator that lk__cpu_table has one for. */
lk_status lk__cpu_run_bf16(lk_call *call);
bool lk__cpu_takes_bf16(const lk_call *call);

/* The operator cast, from f32 to bf16 and back. */
lk_status lk__cpu_cast_to_bf16(lk_call *call);
lk_status lk__cpu_cast_from_bf16(lk_call *call);
bool lk__cpu_is_cast_to_bf16(const lk_call *call);
bool lk__cpu_is_cast_from_bf16(const lk_call *call);

/* lk__cpu_convert for a bf16 tensor with elements. */
lk_status lk__cpu_bf16_convert(lk_device *device, const lk_tensor *x, const lk_layout *to, void *data);
