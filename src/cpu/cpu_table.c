/* The tables of kernels of backend "cpu": for each operator the kernel, its dtypes, whether it handles private layouts
 * and works in place, and a test of the calls that it takes. */
#include "cpu/cpu.h"
#include "cpu/cpu_bf16.h"
#include "cpu/cpu_choice.h"
#include "cpu/cpu_dense.h"
#include "cpu/cpu_kernels.h"
#include "ops/ops.h"

#define F32 LK_DTYPE_BIT(LK_F32)
#define FLOATS (F32 | LK_DTYPE_BIT(LK_BF16))
#define IN_PLACE LK_KERNEL_IN_PLACE

static const lk_kernel rows[LK_OP_COUNT] = {
    [LK_OP_ADD] = {lk__cpu_elements, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0) | IN_PLACE(0, 1),
                   lk__cpu_is_of_one_shape},
    [LK_OP_SUB] = {lk__cpu_elements, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0) | IN_PLACE(0, 1),
                   lk__cpu_is_of_one_shape},
    [LK_OP_MUL] = {lk__cpu_elements, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0) | IN_PLACE(0, 1),
                   lk__cpu_is_of_one_shape},
    [LK_OP_MATMUL] = {lk__cpu_matmul, F32, LK_KERNEL_LAYOUTS, NULL},
    [LK_OP_DENSE_ACT] = {lk__cpu_dense_act, F32, LK_KERNEL_LAYOUTS, NULL},
    [LK_OP_CONV2D] = {lk__cpu_convolution, F32, LK_KERNEL_LAYOUTS, NULL},
    [LK_OP_CONV2D_INPUT_GRAD] = {lk__cpu_convolution, F32, LK_KERNEL_LAYOUTS, NULL},
    [LK_OP_CONV2D_WEIGHT_GRAD] = {lk__cpu_convolution, F32, LK_KERNEL_LAYOUTS, NULL},
    [LK_OP_MAX_POOL2D] = {lk__cpu_max_pool2d, FLOATS, LK_KERNEL_LAYOUTS, NULL},
    [LK_OP_MAX_POOL2D_GRAD] = {lk__cpu_max_pool2d_grad, FLOATS, LK_KERNEL_LAYOUTS, NULL},
    [LK_OP_AVG_POOL2D] = {lk__cpu_avg_pool2d, F32, LK_KERNEL_LAYOUTS, NULL},
    [LK_OP_AVG_POOL2D_GRAD] = {lk__cpu_avg_pool2d_grad, F32, LK_KERNEL_LAYOUTS, NULL},
    [LK_OP_CAST] = {lk__cpu_cast_to_bf16, F32, LK_KERNEL_LAYOUTS, lk__cpu_is_cast_to_bf16},
    [LK_OP_CONV_BLOCK] = {lk__cpu_conv_block, F32, LK_KERNEL_LAYOUTS, lk__cpu_chooses_block},
    [LK_OP_CONV_BLOCK_GRAD] = {lk__cpu_conv_block_grad, F32, LK_KERNEL_LAYOUTS, lk__cpu_chooses_block},
    [LK_OP_RELU] = {lk__cpu_elements, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0), NULL},
    [LK_OP_RELU_GRAD] = {lk__cpu_elements, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0) | IN_PLACE(0, 1), NULL},
    [LK_OP_ACTIVATION] = {lk__cpu_activation, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0), lk__cpu_is_of_one_shape},
    [LK_OP_ACTIVATION_GRAD] = {lk__cpu_activation, FLOATS,
                               LK_KERNEL_LAYOUTS | IN_PLACE(0, 0) | IN_PLACE(0, 1) | IN_PLACE(0, 2),
                               lk__cpu_is_of_one_shape},
    [LK_OP_DROPOUT] = {lk__cpu_dropout, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0), NULL},
    [LK_OP_SUM] = {lk__cpu_sum_rows, FLOATS, 0, lk__cpu_sums_rows},
    [LK_OP_CHANNEL_SUMS] = {lk__cpu_channel_sums, FLOATS, LK_KERNEL_LAYOUTS, NULL},
    [LK_OP_CHANNEL_SUMS_GRAD] = {lk__cpu_channel_sums_grad, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0), NULL},
    [LK_OP_BATCH_NORM] = {lk__cpu_batch_norm, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0), NULL},
    [LK_OP_BATCH_NORM_GRAD] = {lk__cpu_batch_norm_grad, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0) | IN_PLACE(0, 1),
                               lk__cpu_takes_batch_norm},
    [LK_OP_BATCH_NORM_WITH] = {lk__cpu_batch_norm_with, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0), NULL},
    [LK_OP_BATCH_NORM_WITH_GRAD] = {lk__cpu_batch_norm_with_grad, FLOATS,
                                    LK_KERNEL_LAYOUTS | IN_PLACE(0, 0) | IN_PLACE(0, 1), NULL},
    [LK_OP_BATCH_NORM_INFERENCE] = {lk__cpu_batch_norm_inference, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0), NULL},
    [LK_OP_BATCH_NORM_INFERENCE_GRAD] = {lk__cpu_batch_norm_inference_grad, FLOATS,
                                         LK_KERNEL_LAYOUTS | IN_PLACE(0, 0) | IN_PLACE(0, 1), NULL},
    [LK_OP_BATCH_NORM_ACT] = {lk__cpu_batch_norm_act, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0) | IN_PLACE(0, 3),
                              lk__cpu_takes_batch_norm},
    [LK_OP_BATCH_NORM_ACT_GRAD] = {lk__cpu_batch_norm_act_grad, FLOATS,
                                   LK_KERNEL_LAYOUTS | IN_PLACE(0, 0) | IN_PLACE(0, 1) | IN_PLACE(0, 2) |
                                       IN_PLACE(3, 0) | IN_PLACE(3, 1),
                                   lk__cpu_takes_batch_norm},
    [LK_OP_BATCH_NORM_INFERENCE_ACT] = {lk__cpu_batch_norm_inference_act, FLOATS,
                                        LK_KERNEL_LAYOUTS | IN_PLACE(0, 0) | IN_PLACE(0, 5), NULL},
    [LK_OP_GROUP_NORM] = {lk__cpu_group_norm, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0), NULL},
    [LK_OP_GROUP_NORM_GRAD] = {lk__cpu_group_norm_grad, FLOATS, LK_KERNEL_LAYOUTS | IN_PLACE(0, 0) | IN_PLACE(0, 1),
                               NULL},
    [LK_OP_MOMENTUM_UPDATE] = {lk__cpu_momentum_update, F32, 0, NULL},
    [LK_OP_ADAM_UPDATE] = {lk__cpu_adam_update, F32, 0, NULL},
    [LK_OP_LARS_UPDATE] = {lk__cpu_lars_update, F32, 0, NULL},
    [LK_OP_SQUARED_NORMS] = {lk__cpu_squared_norms, F32, 0, NULL},
};

const lk_kernel_table lk__cpu_table = {.name = "cpu", .rows = rows};

/* Run the f32 row of the same operator on f32 stand-ins (cpu_bf16.h), unless there is a kernel for bf16. */
#define DENSE(run)                                                        \
    {                                                                     \
        run, LK_DTYPE_BIT(LK_BF16), LK_KERNEL_LAYOUTS, lk__cpu_takes_bf16 \
    }
#define CONVOLUTION                                                                         \
    {                                                                                       \
        lk__cpu_convolve_bf16, LK_DTYPE_BIT(LK_BF16), LK_KERNEL_LAYOUTS, lk__cpu_takes_bf16 \
    }
#define AVERAGE                                                                            \
    {                                                                                      \
        lk__cpu_average_bf16, LK_DTYPE_BIT(LK_BF16), LK_KERNEL_LAYOUTS, lk__cpu_takes_bf16 \
    }

static const lk_kernel bf16_rows[LK_OP_COUNT] = {
    [LK_OP_MATMUL] = DENSE(lk__cpu_matmul),
    [LK_OP_DENSE_ACT] = DENSE(lk__cpu_dense_act),
    [LK_OP_CONV2D] = CONVOLUTION,
    [LK_OP_CONV2D_INPUT_GRAD] = CONVOLUTION,
    [LK_OP_CONV2D_WEIGHT_GRAD] = CONVOLUTION,
    [LK_OP_AVG_POOL2D] = AVERAGE,
    [LK_OP_AVG_POOL2D_GRAD] = AVERAGE,
    [LK_OP_CONV_BLOCK] = CONVOLUTION,
    [LK_OP_CONV_BLOCK_GRAD] = CONVOLUTION,
    [LK_OP_CAST] = {lk__cpu_cast_from_bf16, LK_DTYPE_BIT(LK_BF16), LK_KERNEL_LAYOUTS, lk__cpu_is_cast_from_bf16},
};

const lk_kernel_table lk__cpu_bf16_table = {.name = "cpu", .rows = bf16_rows};
