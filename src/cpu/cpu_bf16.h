/* Runs operators on bf16 tensors with the kernels for f32: on f32 copies, the stand-ins, whose results are rounded to
 * bf16 as they are stored. A stand-in has the layout that lk__layout_of_f32 gives for the bf16 tensor's. */
#pragma once

#include "core/op.h"
#include "cpu/onednn/cpu_layout.h"

/* Runs the f32 row of any operator that lk__cpu_table has one for. */
lk_status lk__cpu_run_bf16(lk_call *call);
/* The same for a convolution, unless the alternative that is chosen for it takes bf16 operands as they are. */
lk_status lk__cpu_convolve_bf16(lk_call *call);
/* The same for average pooling, unless images in the lanes have kernels for bf16 and suit the call. */
lk_status lk__cpu_average_bf16(lk_call *call);
bool lk__cpu_takes_bf16(const lk_call *call);

/* The operator cast, from f32 to bf16 and back. */
lk_status lk__cpu_cast_to_bf16(lk_call *call);
lk_status lk__cpu_cast_from_bf16(lk_call *call);
bool lk__cpu_is_cast_to_bf16(const lk_call *call);
bool lk__cpu_is_cast_from_bf16(const lk_call *call);

/* Writes x, which is bf16, to `data` in layout `to` (NULL: row-major without gaps). */
lk_status lk__cpu_bf16_convert(lk_device *device, const lk_tensor *x, const lk_layout *to, void *data);
