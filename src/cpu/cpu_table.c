#include "cpu/cpu.h"
#include "cpu/cpu_kernels.h"
#include "ops/ops.h"

#define F32 LK_DTYPE_BIT(LK_F32)

static const lk_kernel rows[LK_OP_COUNT] = {
    [LK_OP_MATMUL] = {lk__cpu_matmul, F32, LK_KERNEL_LAYOUTS},
    [LK_OP_CONV2D] = {lk__cpu_conv2d, F32, LK_KERNEL_LAYOUTS},
    [LK_OP_CONV2D_INPUT_GRAD] = {lk__cpu_conv2d_input_grad, F32, LK_KERNEL_LAYOUTS},
    [LK_OP_CONV2D_WEIGHT_GRAD] = {lk__cpu_conv2d_weight_grad, F32, LK_KERNEL_LAYOUTS},
    [LK_OP_MAX_POOL2D] = {lk__cpu_max_pool2d, F32, LK_KERNEL_LAYOUTS},
    [LK_OP_MAX_POOL2D_GRAD] = {lk__cpu_max_pool2d_grad, F32, LK_KERNEL_LAYOUTS},
    [LK_OP_AVG_POOL2D] = {lk__cpu_avg_pool2d, F32, LK_KERNEL_LAYOUTS},
    [LK_OP_AVG_POOL2D_GRAD] = {lk__cpu_avg_pool2d_grad, F32, LK_KERNEL_LAYOUTS},
    [LK_OP_RELU] = {lk__cpu_relu, F32, LK_KERNEL_LAYOUTS},
    [LK_OP_RELU_GRAD] = {lk__cpu_relu_grad, F32, LK_KERNEL_LAYOUTS},
};

const lk_kernel_table lk__cpu_table = {.name = "cpu", .rows = rows};
