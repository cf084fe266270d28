/* The kernels of this folder, one for a row of cpu_table.c. */
#ifndef LK_CPU_CPU_KERNELS_H
#define LK_CPU_CPU_KERNELS_H

#include "core/op.h"

lk_status lk__cpu_conv2d(lk_call *call);
lk_status lk__cpu_conv2d_input_grad(lk_call *call);
lk_status lk__cpu_conv2d_weight_grad(lk_call *call);
lk_status lk__cpu_max_pool2d(lk_call *call);
lk_status lk__cpu_max_pool2d_grad(lk_call *call);
lk_status lk__cpu_avg_pool2d(lk_call *call);
lk_status lk__cpu_avg_pool2d_grad(lk_call *call);
lk_status lk__cpu_relu(lk_call *call);
lk_status lk__cpu_relu_grad(lk_call *call);
lk_status lk__cpu_matmul(lk_call *call);

#endif
