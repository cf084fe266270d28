/* The operators that devices of a plug-in run. Fused operators are marked as no faster than the operators that they
 * combine: the plug-in's compiler fuses those by itself. */
#include "ops/ops.h"
#include "pjrt/pjrt.h"

#define F32 LK_DTYPE_BIT(LK_F32)
#define FLOATS (LK_DTYPE_BIT(LK_F32) | LK_DTYPE_BIT(LK_BF16))
#define ROW(dtypes)                          \
    {                                        \
        lk__pjrt_call, dtypes, 0, lk__lowers \
    }

#define FUSED_ROW                                           \
    {                                                       \
        lk__pjrt_call, FLOATS, LK_KERNEL_ORACLE, lk__lowers \
    }

static const lk_kernel rows[LK_OP_COUNT] = {
    [LK_OP_FULL] = ROW(LK_ALL_DTYPES),
    [LK_OP_ARANGE] = ROW(LK_ALL_DTYPES),
    [LK_OP_UNIFORM] = ROW(LK_FLOATS),
    [LK_OP_NORMAL] = ROW(LK_FLOATS),
    [LK_OP_COPY] = ROW(LK_ALL_DTYPES),
    [LK_OP_CAST] = ROW(LK_ALL_DTYPES),
    [LK_OP_CONCAT] = ROW(LK_ALL_DTYPES),
    [LK_OP_PAIRWISE_SUM] = ROW(F32 | LK_DTYPE_BIT(LK_F64)),
    [LK_OP_GATHER] = ROW(LK_ALL_DTYPES),
    [LK_OP_PREPARE_IMAGES] = ROW(LK_DTYPE_BIT(LK_U8)),
    [LK_OP_ADD] = ROW(LK_ALL_DTYPES),
    [LK_OP_SUB] = ROW(LK_ALL_DTYPES),
    [LK_OP_MUL] = ROW(LK_ALL_DTYPES),
    [LK_OP_DIV] = ROW(LK_ALL_DTYPES),
    [LK_OP_MATMUL] = ROW(FLOATS),
    [LK_OP_DENSE_ACT] = FUSED_ROW,
    [LK_OP_CONV2D] = ROW(FLOATS),
    [LK_OP_CONV2D_INPUT_GRAD] = ROW(FLOATS),
    [LK_OP_CONV2D_WEIGHT_GRAD] = ROW(FLOATS),
    [LK_OP_MAX_POOL2D] = ROW(FLOATS),
    [LK_OP_MAX_POOL2D_GRAD] = ROW(FLOATS),
    [LK_OP_AVG_POOL2D] = ROW(FLOATS),
    [LK_OP_AVG_POOL2D_GRAD] = ROW(FLOATS),
    [LK_OP_CONV_BLOCK] = FUSED_ROW,
    [LK_OP_CONV_BLOCK_GRAD] = FUSED_ROW,
    [LK_OP_RELU] = ROW(FLOATS),
    [LK_OP_RELU_GRAD] = ROW(FLOATS),
    [LK_OP_ACTIVATION] = ROW(FLOATS),
    [LK_OP_ACTIVATION_GRAD] = ROW(FLOATS),
    [LK_OP_DROPOUT] = ROW(FLOATS),
    [LK_OP_CHANNEL_SUMS] = ROW(FLOATS),
    [LK_OP_CHANNEL_SUMS_GRAD] = ROW(FLOATS),
    [LK_OP_BATCH_NORM] = ROW(FLOATS),
    [LK_OP_BATCH_NORM_GRAD] = ROW(FLOATS),
    [LK_OP_BATCH_NORM_WITH] = ROW(FLOATS),
    [LK_OP_BATCH_NORM_WITH_GRAD] = ROW(FLOATS),
    [LK_OP_BATCH_NORM_INFERENCE] = ROW(FLOATS),
    [LK_OP_BATCH_NORM_INFERENCE_GRAD] = ROW(FLOATS),
    [LK_OP_BATCH_NORM_UPDATE] = ROW(F32),
    [LK_OP_BATCH_NORM_ACT] = FUSED_ROW,
    [LK_OP_BATCH_NORM_ACT_GRAD] = FUSED_ROW,
    [LK_OP_BATCH_NORM_DROP] = FUSED_ROW,
    [LK_OP_BATCH_NORM_DROP_GRAD] = FUSED_ROW,
    [LK_OP_BATCH_NORM_INFERENCE_ACT] = FUSED_ROW,
    [LK_OP_GROUP_NORM] = ROW(FLOATS),
    [LK_OP_GROUP_NORM_GRAD] = ROW(FLOATS),
    [LK_OP_SUM] = ROW(LK_ALL_DTYPES),
    [LK_OP_MEAN] = ROW(LK_FLOATS),
    [LK_OP_MAX] = ROW(LK_ALL_DTYPES),
    [LK_OP_MAX_GRAD] = ROW(LK_FLOATS),
    [LK_OP_ARGMAX] = ROW(LK_ALL_DTYPES),
    [LK_OP_SOFTMAX] = ROW(FLOATS),
    [LK_OP_SOFTMAX_GRAD] = ROW(FLOATS),
    [LK_OP_LOG_SOFTMAX] = ROW(FLOATS),
    [LK_OP_LOG_SOFTMAX_GRAD] = ROW(FLOATS),
    [LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY] = ROW(FLOATS),
    [LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY_GRAD] = ROW(FLOATS),
    [LK_OP_CROSS_ENTROPY_STEP] = FUSED_ROW,
    [LK_OP_SIGMOID_CROSS_ENTROPY] = ROW(FLOATS),
    [LK_OP_SIGMOID_CROSS_ENTROPY_GRAD] = ROW(FLOATS),
    [LK_OP_IN_TOP_K] = ROW(FLOATS),
    [LK_OP_SGD_UPDATE] = ROW(F32),
    [LK_OP_MOMENTUM_UPDATE] = ROW(F32),
    [LK_OP_ADAM_UPDATE] = ROW(F32),
    [LK_OP_LARS_UPDATE] = ROW(F32),
    [LK_OP_SQUARED_NORMS] = ROW(F32),
    [LK_OP_UPDATE_SCALES] = ROW(F32),
};

const lk_kernel_table lk__pjrt_table = {.name = "pjrt", .rows = rows};
