/* bf16 tensors on kernels written for f32. A bf16 tensor's elements lie in the order of f32 ones: its layout is the
 * lk_layout of an f32 tensor, of which it takes half the bytes. Kernels see f32 stand-ins; elements are rounded where
 * they are stored. */
#ifndef LK_CPU_CPU_BF16_H
#define LK_CPU_CPU_BF16_H

#include "core/op.h"

/* The row of any operator that lk__cpu_table has one for. */
lk_status lk__cpu_run_bf16(lk_call *call);
bool lk__cpu_takes_bf16(const lk_call *call);

/* cast from f32 to bf16, and back. */
lk_status lk__cpu_cast_to_bf16(lk_call *call);
lk_status lk__cpu_cast_from_bf16(lk_call *call);
bool lk__cpu_is_cast_to_bf16(const lk_call *call);
bool lk__cpu_is_cast_from_bf16(const lk_call *call);

/* lk__cpu_to_plain of a bf16 tensor. */
lk_status lk__cpu_bf16_to_plain(lk_device *device, const lk_tensor *x, void *plain);

#endif
