#include "ref/ref_table.h"

#include "ops/ops.h"
#include "ref/ref.h"

static const lk_kernel rows[LK_OP_COUNT] = {
    [LK_OP_FULL] = {lk__ref_full, LK_ALL_DTYPES, 0},
    [LK_OP_ARANGE] = {lk__ref_arange, LK_ALL_DTYPES, 0},
    [LK_OP_UNIFORM] = {lk__ref_uniform, LK_FLOATS, 0},
    [LK_OP_NORMAL] = {lk__ref_normal, LK_FLOATS, 0},
    [LK_OP_COPY] = {lk__ref_copy, LK_ALL_DTYPES, 0},
    [LK_OP_CAST] = {lk__ref_cast, LK_ALL_DTYPES, 0},
    [LK_OP_CONCAT] = {lk__ref_concat, LK_ALL_DTYPES, 0},
    [LK_OP_ADD] = {lk__ref_add, LK_ALL_DTYPES, 0},
    [LK_OP_SUB] = {lk__ref_sub, LK_ALL_DTYPES, 0},
    [LK_OP_MUL] = {lk__ref_mul, LK_ALL_DTYPES, 0},
    [LK_OP_DIV] = {lk__ref_div, LK_ALL_DTYPES, 0},
    [LK_OP_MATMUL] = {lk__ref_matmul, LK_FLOATS, 0},
    [LK_OP_CONV2D] = {lk__ref_conv2d, LK_FLOATS, 0},
    [LK_OP_CONV2D_INPUT_GRAD] = {lk__ref_conv2d_input_grad, LK_FLOATS, 0},
    [LK_OP_CONV2D_WEIGHT_GRAD] = {lk__ref_conv2d_weight_grad, LK_FLOATS, 0},
    [LK_OP_MAX_POOL2D] = {lk__ref_max_pool2d, LK_FLOATS, 0},
    [LK_OP_MAX_POOL2D_GRAD] = {lk__ref_max_pool2d_grad, LK_FLOATS, 0},
    [LK_OP_AVG_POOL2D] = {lk__ref_avg_pool2d, LK_FLOATS, 0},
    [LK_OP_AVG_POOL2D_GRAD] = {lk__ref_avg_pool2d_grad, LK_FLOATS, 0},
    [LK_OP_RELU] = {lk__ref_relu, LK_FLOATS, 0},
    [LK_OP_RELU_GRAD] = {lk__ref_relu_grad, LK_FLOATS, 0},
    [LK_OP_SUM] = {lk__ref_sum, LK_ALL_DTYPES, 0},
    [LK_OP_MEAN] = {lk__ref_mean, LK_FLOATS, 0},
    [LK_OP_MAX] = {lk__ref_max, LK_ALL_DTYPES, 0},
    [LK_OP_MAX_GRAD] = {lk__ref_max_grad, LK_FLOATS, 0},
    [LK_OP_ARGMAX] = {lk__ref_argmax, LK_ALL_DTYPES, 0},
    [LK_OP_SOFTMAX] = {lk__ref_softmax, LK_FLOATS, 0},
    [LK_OP_SOFTMAX_GRAD] = {lk__ref_softmax_grad, LK_FLOATS, 0},
    [LK_OP_LOG_SOFTMAX] = {lk__ref_log_softmax, LK_FLOATS, 0},
    [LK_OP_LOG_SOFTMAX_GRAD] = {lk__ref_log_softmax_grad, LK_FLOATS, 0},
    [LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY] = {lk__ref_sparse_softmax_cross_entropy, LK_FLOATS, 0},
    [LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY_GRAD] = {lk__ref_sparse_softmax_cross_entropy_grad, LK_FLOATS, 0},
    [LK_OP_IN_TOP_K] = {lk__ref_in_top_k, LK_FLOATS, 0},
    [LK_OP_SGD_UPDATE] = {lk__ref_sgd_update, LK_DTYPE_BIT(LK_F32) | LK_DTYPE_BIT(LK_F64), 0},
};

const lk_kernel_table lk__ref_table = {.name = "c", .rows = rows};
