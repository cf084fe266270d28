/* The cases of every operator, which the conformance programs run. A new operator needs a case here. */
#pragma once

#include "conformance_fused.h"
#include "conformance_group_norm.h"
#include "conformance_layers.h"
#include "conformance_networks.h"
#include "conformance_tensors.h"
#include "conformance_updates.h"

#define P(type, ...) (&(const type){__VA_ARGS__})
#define SHAPE_OF(...) P(lk_shape, .ndim = sizeof((int[]){__VA_ARGS__}) / sizeof(int), .dim = {__VA_ARGS__})
#define DIMS(...)                                                                  \
    {                                                                              \
        .ndim = sizeof((int[]){__VA_ARGS__}) / sizeof(int), .dim = { __VA_ARGS__ } \
    }

/* Gray and color images, and images in the layout of another operator. */
#define PREPARE_FLAGS (NO_GRADIENT | NO_BF16 | OF_BYTES)
#define PREPARE_CASES(name, ...)                                                                   \
    {LK_OP_PREPARE_IMAGES, EXACT | PREPARE_FLAGS, name, prepare_images_case,                       \
     P(prepare_parameters, DIMS(5, 1, 9, 7), 11, __VA_ARGS__)},                                    \
        {LK_OP_PREPARE_IMAGES, EXACT | PREPARE_FLAGS, name ", colors", prepare_images_case,        \
         P(prepare_parameters, DIMS(7, 3, 8, 11), 9, __VA_ARGS__)},                                \
    {                                                                                              \
        LK_OP_PREPARE_IMAGES, PREPARE_FLAGS, name ", before a convolution", prepare_for_conv_case, \
            P(prepare_parameters, DIMS(7, 3, 8, 11), 9, __VA_ARGS__)                               \
    }

#define BINARY_CASES(op, function)                                                                                    \
    {op, EXACT, "one shape", binary_case, P(binary_parameters, function, DIMS(13, 7), DIMS(13, 7), 0)},               \
        {op, EXACT, "long", binary_case, P(binary_parameters, function, DIMS(3, 1031), DIMS(3, 1031), 0)},            \
        {op, EXACT, "bias", binary_case, P(binary_parameters, function, DIMS(9, 10), DIMS(10), 0)},                   \
        {op, EXACT, "bias of 16", binary_case, P(binary_parameters, function, DIMS(9, 16), DIMS(16), 0)},             \
        {op, EXACT, "one a row of 24", binary_case, P(binary_parameters, function, DIMS(7, 24), DIMS(7, 1), 0)},      \
        {op, EXACT, "column", binary_case, P(binary_parameters, function, DIMS(2, 3, 1), DIMS(1, 4), 0)},             \
        {op, EXACT, "channels", binary_case, P(binary_parameters, function, DIMS(2, 5, 3, 4), DIMS(5, 1, 1), 0)},     \
        {op, EXACT, "images, one shape", binary_case,                                                                 \
         P(binary_parameters, function, DIMS(9, 5, 3, 4), DIMS(9, 5, 3, 4), 0)},                                      \
        {op, EXACT, "scalar", binary_case, P(binary_parameters, function, {.ndim = 0}, DIMS(3, 5), 0)},               \
        {op, EXACT, "two scalars", binary_case, P(binary_parameters, function, {.ndim = 0}, {.ndim = 0}, 0)},         \
        {op, EXACT, "empty", binary_case, P(binary_parameters, function, DIMS(0, 3), DIMS(3), 0)},                    \
        {op, EXACT | NO_GRADIENT, "NaN and infinity", binary_specials_case,                                           \
         P(binary_parameters, function, DIMS(17, 9), DIMS(17, 9), 0)},                                                \
        {op, NO_GRADIENT, "i32", binary_int_case, P(binary_parameters, function, DIMS(9, 5), DIMS(5), LK_I32)},       \
        {op, NO_GRADIENT, "i32, one shape", binary_int_case,                                                          \
         P(binary_parameters, function, DIMS(7), DIMS(7), LK_I32)},                                                   \
        {op, NO_GRADIENT, "u8, one shape", binary_int_case, P(binary_parameters, function, DIMS(7), DIMS(7), LK_U8)}, \
        {op, NO_GRADIENT, "i64", binary_int_case, P(binary_parameters, function, DIMS(9, 5), DIMS(9, 5), LK_I64)},    \
    {                                                                                                                 \
        op, NO_GRADIENT, "u8", binary_int_case, P(binary_parameters, function, DIMS(9, 5), DIMS(9, 1), LK_U8)         \
    }

#define CONV_CASES(op, run)                                                                                            \
    {op, 0, "first of LeNet", run, P(conv_parameters, 3, 1, 28, 28, 20, 5, 5, {.groups = 1}, true)},                   \
        {op, 0, "second of LeNet", run, P(conv_parameters, 2, 20, 12, 12, 50, 5, 5, {.groups = 1}, true)},             \
        {op, 0, "3x3, padding", run, P(conv_parameters, 2, 3, 9, 11, 5, 3, 3, {.padding = {1, 1}}, false)},            \
        {op, 0, "3x3, 16 channels", run, P(conv_parameters, 2, 16, 8, 8, 16, 3, 3, {.padding = {1, 1}}, true)},        \
        {op, 0, "stride 2", run,                                                                                       \
         P(conv_parameters, 2, 3, 9, 11, 4, 3, 3, {.stride = {2, 2}, .padding = {1, 1}}, true)},                       \
        {op, 0, "1x1", run, P(conv_parameters, 2, 20, 7, 5, 50, 1, 1, {.groups = 1}, false)},                          \
        {op, 0, "1x1, stride 3", run, P(conv_parameters, 2, 3, 8, 7, 5, 1, 1, {.stride = {3, 3}}, true)},              \
        {op, 0, "dilation 2", run,                                                                                     \
         P(conv_parameters, 2, 3, 11, 9, 4, 3, 3, {.padding = {2, 2}, .dilation = {2, 2}}, true)},                     \
        {op, 0, "three groups", run, P(conv_parameters, 2, 6, 7, 7, 9, 3, 3, {.groups = 3}, true)},                    \
        {op, 0, "depthwise", run, P(conv_parameters, 2, 20, 8, 9, 20, 3, 3, {.padding = {1, 1}, .groups = 20}, true)}, \
        {op, 0, "depthwise, 7x7", run,                                                                                 \
         P(conv_parameters, 3, 24, 9, 6, 24, 7, 7, {.padding = {3, 3}, .groups = 24}, true)},                          \
        {op, 0, "depthwise, uneven options", run,                                                                      \
         P(conv_parameters, 2, 5, 11, 12, 5, 3, 4,                                                                     \
           {.stride = {1, 2}, .padding = {3, 1}, .dilation = {2, 3}, .groups = 5}, false)},                            \
        {op, 0, "1x3, uneven options", run,                                                                            \
         P(conv_parameters, 2, 3, 6, 9, 4, 1, 3, {.stride = {1, 2}, .padding = {0, 1}, .dilation = {1, 3}}, true)},    \
        {op, 0, "kernel larger than image", run, P(conv_parameters, 2, 2, 3, 3, 4, 5, 5, {.padding = {3, 3}}, false)}, \
        {op, 0, "one image", run, P(conv_parameters, 1, 1, 5, 5, 1, 5, 5, {.groups = 1}, true)},                       \
        {op, 0, "no image", run, P(conv_parameters, 0, 3, 8, 8, 4, 3, 3, {.groups = 1}, true)},                        \
        {op, 0, "batch, 1 to 20 channels", run, P(conv_parameters, 19, 1, 12, 11, 20, 5, 5, {.groups = 1}, true)},     \
        {op, 0, "batch, 20 to 50 channels", run, P(conv_parameters, 11, 20, 6, 7, 50, 5, 5, {.groups = 1}, true)},     \
        {op, 0, "batch, uneven kernel", run, P(conv_parameters, 8, 3, 5, 9, 5, 1, 3, {.groups = 1}, false)},           \
    {                                                                                                                  \
        op, 0, "batch, stride and padding", run,                                                                       \
            P(conv_parameters, 17, 3, 7, 6, 5, 3, 3, {.stride = {2, 1}, .padding = {1, 1}}, true)                      \
    }

#define POOL_CASES(op, flags, run)                                                                                  \
    {op, flags, "2x2", run, P(pool_parameters, 3, 20, 24, 24, {.kernel = {2, 2}})},                                 \
        {op, flags, "rest left over", run, P(pool_parameters, 2, 3, 7, 9, {.kernel = {2, 2}})},                     \
        {op, flags, "overlapping, padding", run,                                                                    \
         P(pool_parameters, 2, 5, 9, 8, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}})},                  \
        {op, flags, "padding counted", run,                                                                         \
         P(pool_parameters, 2, 5, 9, 8,                                                                             \
           {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .count_include_pad = true})},                    \
        {op, flags, "uneven", run,                                                                                  \
         P(pool_parameters, 2, 3, 8, 11, {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}})},                 \
        {op, flags, "stride over gaps", run, P(pool_parameters, 2, 3, 8, 8, {.kernel = {2, 2}, .stride = {3, 3}})}, \
        {op, flags, "global", run, P(pool_parameters, 2, 50, 4, 5, {.kernel = {0}})},                               \
        {op, flags, "1x1", run, P(pool_parameters, 1, 1, 1, 1, {.kernel = {1, 1}})},                                \
        {op, flags, "no image", run, P(pool_parameters, 0, 3, 8, 8, {.kernel = {2, 2}})},                           \
        {op, flags, "batch", run, P(pool_parameters, 19, 20, 8, 6, {.kernel = {2, 2}})},                            \
        {op, flags, "batch, overlapping, padding", run,                                                             \
         P(pool_parameters, 9, 5, 7, 8, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}})},                  \
    {                                                                                                               \
        op, flags, "batch, padding counted", run,                                                                   \
            P(pool_parameters, 8, 3, 7, 8,                                                                          \
              {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}, .count_include_pad = true})                   \
    }

/* Windows that neither overlap nor have padding. */
#define TAP_POOL_CASES(op, name, run)                                                                              \
    {op, EXACT | NO_GRADIENT, name "2x2", run, P(pool_parameters, 3, 24, 12, 10, {.kernel = {2, 2}})},             \
        {op, EXACT | NO_GRADIENT, name "rest left over", run, P(pool_parameters, 2, 3, 7, 9, {.kernel = {2, 2}})}, \
        {op, EXACT | NO_GRADIENT, name "3x2, stride over gaps", run,                                               \
         P(pool_parameters, 2, 16, 9, 11, {.kernel = {3, 2}, .stride = {4, 3}})},                                  \
        {op, EXACT | NO_GRADIENT, name "global", run, P(pool_parameters, 2, 50, 4, 5, {.kernel = {0}})},           \
        {op, EXACT | NO_GRADIENT, name "1x1", run, P(pool_parameters, 1, 1, 1, 1, {.kernel = {1, 1}})},            \
    {                                                                                                              \
        op, EXACT | NO_GRADIENT, name "no image", run, P(pool_parameters, 0, 8, 4, 4, {.kernel = {2, 2}})          \
    }

#define SPECIAL_POOL_CASES(name, run)                                                           \
    {LK_OP_MAX_POOL2D, EXACT | NO_GRADIENT, name, run,                                          \
     P(pool_parameters, 2, 19, 7, 8, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}})}, \
    {                                                                                           \
        LK_OP_MAX_POOL2D, EXACT | NO_GRADIENT, name ", batch", run,                             \
            P(pool_parameters, 9, 5, 6, 4, {.kernel = {2, 2}, .stride = {2, 1}})                \
    }

#define BLOCK_CASES(op, flags, run)                                                                                    \
    {op, flags, "first of LeNet, batch", run,                                                                          \
     P(block_parameters, {17, 1, 12, 13, 20, 3, 3, {.groups = 1}, true}, LK_BLOCK_AVG_POOL, {.kernel = {2, 2}},        \
       true)},                                                                                                         \
        {op, flags, "second of LeNet, batch", run,                                                                     \
         P(block_parameters, {11, 20, 9, 8, 50, 5, 5, {.groups = 1}, true}, LK_BLOCK_AVG_POOL, {.kernel = {2, 2}},     \
           true)},                                                                                                     \
        {op, flags, "maximum of 2x2, batch", run,                                                                      \
         P(block_parameters, {9, 12, 10, 11, 12, 3, 3, {.padding = {1, 1}}, true}, LK_BLOCK_MAX_POOL,                  \
           {.kernel = {2, 2}}, true)},                                                                                 \
        {op, flags, "maximum, batch", run,                                                                             \
         P(block_parameters, {9, 6, 8, 7, 16, 3, 3, {.padding = {1, 1}}, true}, LK_BLOCK_MAX_POOL, {.kernel = {2, 3}}, \
           true)},                                                                                                     \
        {op, flags, "maximum without relu, stride over gaps, batch", run,                                              \
         P(block_parameters, {8, 3, 9, 11, 7, 2, 3, {.padding = {0, 2}}, true}, LK_BLOCK_MAX_POOL,                     \
           {.kernel = {2, 2}, .stride = {3, 4}}, false)},                                                              \
        {op, flags, "padding, average, batch", run,                                                                    \
         P(block_parameters, {25, 3, 7, 8, 5, 3, 2, {.padding = {2, 1}}, true}, LK_BLOCK_AVG_POOL,                     \
           {.kernel = {3, 2}, .padding = {1, 1}}, true)},                                                              \
        {op, flags, "padding counted, batch", run,                                                                     \
         P(block_parameters, {8, 2, 6, 6, 5, 3, 3, {.groups = 1}, true}, LK_BLOCK_AVG_POOL,                            \
           {.kernel = {2, 2}, .padding = {1, 1}, .count_include_pad = true}, true)},                                   \
        {op, flags, "relu alone, batch", run,                                                                          \
         P(block_parameters, {10, 5, 6, 7, 13, 3, 3, {.groups = 1}, true}, LK_BLOCK_NO_POOL, {.kernel = {1, 1}},       \
           true)},                                                                                                     \
        {op, flags, "relu alone, blocks of channels, batch", run,                                                      \
         P(block_parameters, {9, 16, 8, 8, 32, 3, 3, {.padding = {1, 1}}, true}, LK_BLOCK_NO_POOL, {.kernel = {1, 1}}, \
           true)},                                                                                                     \
        {op, flags, "relu alone, blocks of channels, stride 2", run,                                                   \
         P(block_parameters, {3, 16, 7, 6, 48, 3, 2, {.stride = {2, 2}}, false}, LK_BLOCK_NO_POOL, {.kernel = {1, 1}}, \
           true)},                                                                                                     \
        {op, flags, "relu alone, tiles of channels, stride 2", run,                                                    \
         P(block_parameters, {3, 32, 5, 6, 32, 3, 2, {.stride = {2, 2}}, true}, LK_BLOCK_NO_POOL, {.kernel = {1, 1}},  \
           true)},                                                                                                     \
        {op, flags, "1x1, rest left over, batch", run,                                                                 \
         P(block_parameters, {9, 3, 7, 9, 5, 1, 1, {.groups = 1}, true}, LK_BLOCK_MAX_POOL, {.kernel = {2, 2}},        \
           true)},                                                                                                     \
        {op, flags, "1x2, rest left over, batch", run,                                                                 \
         P(block_parameters, {11, 4, 8, 7, 16, 1, 2, {.groups = 1}, true}, LK_BLOCK_AVG_POOL, {.kernel = {3, 4}},      \
           true)},                                                                                                     \
        {op, flags, "weights alone, batch", run,                                                                       \
         P(block_parameters, {8, 1, 9, 9, 4, 5, 4, {.groups = 1}, false}, LK_BLOCK_AVG_POOL, {.kernel = {2, 2}},       \
           true)},                                                                                                     \
        {op, flags, "few images", run,                                                                                 \
         P(block_parameters, {2, 3, 9, 8, 5, 3, 3, {.padding = {1, 1}}, true}, LK_BLOCK_MAX_POOL, {.kernel = {2, 2}},  \
           true)},                                                                                                     \
        {op, flags, "stride 2, three groups", run,                                                                     \
         P(block_parameters, {9, 6, 9, 8, 9, 3, 3, {.stride = {2, 1}, .groups = 3}, true}, LK_BLOCK_AVG_POOL,          \
           {.kernel = {2, 2}}, true)},                                                                                 \
    {                                                                                                                  \
        op, flags, "no image", run,                                                                                    \
            P(block_parameters, {0, 3, 8, 8, 4, 3, 3, {.groups = 1}, true}, LK_BLOCK_MAX_POOL, {.kernel = {2, 2}},     \
              true)                                                                                                    \
    }

#define REDUCE_CASES(op, flags, run, function)                                                                   \
    {op, flags, "all", run, P(reduce_parameters, function, DIMS(13, 11), {0}, 0)},                               \
        {op, flags, "axis 0", run, P(reduce_parameters, function, DIMS(33, 10), {.n_axes = 1, .axes = {0}}, 0)}, \
        {op, flags, "axis 1", run, P(reduce_parameters, function, DIMS(33, 10), {.n_axes = 1, .axes = {1}}, 0)}, \
        {op, flags, "all but channels", run,                                                                     \
         P(reduce_parameters, function, DIMS(3, 5, 4, 7), {.n_axes = 3, .axes = {0, 2, 3}}, 0)},                 \
        {op, flags, "axes kept", run,                                                                            \
         P(reduce_parameters, function, DIMS(3, 5, 4), {.n_axes = 2, .axes = {0, 2}, .keepdim = true}, 0)},      \
        {op, flags, "scalar", run, P(reduce_parameters, function, {.ndim = 0}, {0}, 0)},                         \
    {                                                                                                            \
        op, flags, "no rows", run, P(reduce_parameters, function, DIMS(0, 4), {.n_axes = 1, .axes = {1}}, 0)     \
    }

#define REDUCE_INT_CASES(op, function)                                                                  \
    {op, NO_GRADIENT, "i32", reduce_int_case, P(reduce_parameters, function, DIMS(7, 9), {0}, LK_I32)}, \
        {op, NO_GRADIENT, "i64", reduce_int_case,                                                       \
         P(reduce_parameters, function, DIMS(7, 9), {.n_axes = 1, .axes = {0}}, LK_I64)},               \
    {                                                                                                   \
        op, NO_GRADIENT, "u8", reduce_int_case,                                                         \
            P(reduce_parameters, function, DIMS(7, 9), {.n_axes = 1, .axes = {1}}, LK_U8)               \
    }

#define AXIS_CASES(op, flags, run)                                                 \
    {op, flags, "rows", run, P(axis_parameters, DIMS(33, 10), 1, 0)},              \
        {op, flags, "columns", run, P(axis_parameters, DIMS(7, 13), 0, 0)},        \
        {op, flags, "middle axis", run, P(axis_parameters, DIMS(3, 7, 5), 1, 0)},  \
        {op, flags, "1000 classes", run, P(axis_parameters, DIMS(3, 1000), 1, 0)}, \
        {op, flags, "one class", run, P(axis_parameters, DIMS(5, 1), 1, 0)},       \
    {                                                                              \
        op, flags, "no rows", run, P(axis_parameters, DIMS(0, 10), 1, 0)           \
    }

#define LOSS_CASES(op, flags, run)                                                                 \
    {op, flags, "none", run, P(loss_parameters, 17, 10, LK_I32, LK_REDUCTION_NONE, 1)},            \
        {op, flags, "sum", run, P(loss_parameters, 17, 10, LK_I64, LK_REDUCTION_SUM, 3)},          \
        {op, flags, "mean", run, P(loss_parameters, 32, 10, LK_I32, LK_REDUCTION_MEAN, 2)},        \
        {op, flags, "one class", run, P(loss_parameters, 3, 1, LK_I64, LK_REDUCTION_SUM, 1)},      \
        {op, flags, "one sample", run, P(loss_parameters, 1, 10, LK_I32, LK_REDUCTION_MEAN, 10)},  \
        {op, flags, "no sample", run, P(loss_parameters, 0, 10, LK_I32, LK_REDUCTION_SUM, 5)},     \
    {                                                                                              \
        op, flags, "no sample, none", run, P(loss_parameters, 0, 10, LK_I32, LK_REDUCTION_NONE, 5) \
    }

#define ACTIVATION_CASES(name, kind, alpha)                                                                       \
    {LK_OP_ACTIVATION, 0, name, activation_case, P(activation_parameters, {kind, alpha}, DIMS(3, 5, 7, 9), 4)},   \
        {LK_OP_ACTIVATION, 0, name ", vector", activation_case,                                                   \
         P(activation_parameters, {kind, alpha}, DIMS(1031), 6)},                                                 \
        {LK_OP_ACTIVATION, NO_GRADIENT, name ", far", activation_case,                                            \
         P(activation_parameters, {kind, alpha}, DIMS(9, 7), 120)},                                               \
        {LK_OP_ACTIVATION, 0, name ", scalar", activation_case, P(activation_parameters, {kind, alpha}, {0}, 4)}, \
        {LK_OP_ACTIVATION, 0, name ", empty", activation_case,                                                    \
         P(activation_parameters, {kind, alpha}, DIMS(0, 3), 4)},                                                 \
        {LK_OP_ACTIVATION, NO_GRADIENT, name ", NaN and infinity", activation_specials_case,                      \
         P(activation_parameters, {kind, alpha}, DIMS(17, 9), 4)},                                                \
        {LK_OP_ACTIVATION_GRAD, 0, name, activation_grad_case,                                                    \
         P(activation_parameters, {kind, alpha}, DIMS(3, 5, 7, 9), 4)},                                           \
        {LK_OP_ACTIVATION_GRAD, 0, name ", vector", activation_grad_case,                                         \
         P(activation_parameters, {kind, alpha}, DIMS(1031), 6)},                                                 \
        {LK_OP_ACTIVATION_GRAD, 0, name ", far", activation_grad_case,                                            \
         P(activation_parameters, {kind, alpha}, DIMS(9, 7), 120)},                                               \
    {                                                                                                             \
        LK_OP_ACTIVATION_GRAD, 0, name ", empty", activation_grad_case,                                           \
            P(activation_parameters, {kind, alpha}, DIMS(0, 3), 4)                                                \
    }

#define NORM_POOL_CASES(op, run)                                                                              \
    {op, NO_GRADIENT, "2x2", run,                                                                             \
     P(norm_pool_parameters, {DIMS(3, 16, 6, 8), 1e-2, 0}, {.kernel = {2, 2}, .stride = {2, 2}}, true)},      \
        {op, NO_GRADIENT, "alone", run,                                                                       \
         P(norm_pool_parameters, {DIMS(3, 16, 6, 8), 1e-2, 0}, {.kernel = {2, 2}, .stride = {2, 2}}, false)}, \
        {op, NO_GRADIENT, "13 channels, rest left over", run,                                                 \
         P(norm_pool_parameters, {DIMS(5, 13, 7, 5), 1e-2, 0}, {.kernel = {2, 2}, .stride = {2, 2}}, true)},  \
        {op, NO_GRADIENT, "3x2, stride over gaps", run,                                                       \
         P(norm_pool_parameters, {DIMS(2, 24, 9, 11), 1e-2, 0}, {.kernel = {3, 2}, .stride = {4, 3}}, true)}, \
    {                                                                                                         \
        op, NO_GRADIENT, "no image", run,                                                                     \
            P(norm_pool_parameters, {DIMS(0, 16, 6, 8), 1e-2, 0}, {.kernel = {2, 2}, .stride = {2, 2}}, true) \
    }

#define NORM_CASES(op, run)                                                                    \
    {op, 0, "16 channels", run, P(norm_parameters, DIMS(3, 16, 5, 7), 1e-2, 0)},               \
        {op, 0, "160 channels", run, P(norm_parameters, DIMS(2, 160, 3, 3), 1e-2, 0)},         \
        {op, 0, "13 channels", run, P(norm_parameters, DIMS(5, 13, 3, 7), 1e-2, 0)},           \
        {op, 0, "batch, 20 channels", run, P(norm_parameters, DIMS(19, 20, 3, 4), 1e-2, 0)},   \
        {op, 0, "one channel", run, P(norm_parameters, DIMS(7, 1, 9, 9), 1e-2, 0)},            \
        {op, 0, "one image", run, P(norm_parameters, DIMS(1, 24, 12, 11), 1e-2, 0)},           \
        {op, 0, "rows", run, P(norm_parameters, DIMS(33, 10), 1e-2, 0)},                       \
        {op, 0, "wide rows", run, P(norm_parameters, DIMS(12, 131), 1e-2, 0)},                 \
        {op, 0, "sequences", run, P(norm_parameters, DIMS(4, 6, 11), 1e-2, 0)},                \
        {op, 0, "count 1", run, P(norm_parameters, DIMS(1, 5), 1e-2, 0)},                      \
        {op, 0, "no sample", run, P(norm_parameters, DIMS(0, 5, 3, 3), 1e-2, 0)},              \
        {op, 0, "no channel", run, P(norm_parameters, DIMS(3, 0), 1e-2, 0)},                   \
        {op, NO_GRADIENT, "far mean", run, P(norm_parameters, DIMS(6, 8, 5, 5), 1e-3, 50)},    \
    {                                                                                          \
        op, NO_GRADIENT, "small epsilon", run, P(norm_parameters, DIMS(6, 9, 4, 5), 1e-5, 0.5) \
    }

/* A shape, the number of groups, and whether each pixel has its own statistics. */
#define GROUP_NORM_CASE(op, run, name, groups, each, ...)                                      \
    {                                                                                          \
        op, 0, name, run, P(group_norm_parameters, {DIMS(__VA_ARGS__), 1e-2, 0}, groups, each) \
    }
#define GROUP_NORM_CASES(op, run)                                                                                    \
    GROUP_NORM_CASE(op, run, "one group", 1, false, 3, 16, 5, 7),                                                    \
        GROUP_NORM_CASE(op, run, "four groups", 4, false, 3, 16, 5, 7),                                              \
        GROUP_NORM_CASE(op, run, "20 channels", 5, false, 9, 20, 3, 4),                                              \
        GROUP_NORM_CASE(op, run, "a group a channel", 13, false, 5, 13, 3, 7),                                       \
        GROUP_NORM_CASE(op, run, "large", 2, false, 2, 8, 30, 30),                                                   \
        GROUP_NORM_CASE(op, run, "pixels", 1, true, 3, 16, 5, 7),                                                    \
        GROUP_NORM_CASE(op, run, "pixels, groups", 3, true, 4, 12, 3, 9),                                            \
        GROUP_NORM_CASE(op, run, "pixels, a group a channel", 6, true, 2, 6, 3, 4),                                  \
        GROUP_NORM_CASE(op, run, "pixels, 131 channels", 1, true, 2, 131, 4, 2),                                     \
        GROUP_NORM_CASE(op, run, "rows", 1, false, 33, 10), GROUP_NORM_CASE(op, run, "wide rows", 1, true, 12, 131), \
        GROUP_NORM_CASE(op, run, "sequences", 2, false, 4, 6, 11),                                                   \
        GROUP_NORM_CASE(op, run, "no sample", 1, false, 0, 5, 3, 3),                                                 \
        GROUP_NORM_CASE(op, run, "no channel", 1, true, 3, 0),                                                       \
        {op, NO_GRADIENT, "far mean", run, P(group_norm_parameters, {DIMS(6, 8, 5, 5), 1e-3, 50}, 2, false)},        \
    {                                                                                                                \
        op, NO_GRADIENT, "pixels, far mean", run, P(group_norm_parameters, {DIMS(6, 8, 5, 5), 1e-3, 50}, 1, true)    \
    }

static const conformance_case conformance_cases[] = {
    {LK_OP_FULL, EXACT, "third", full_case, P(double, 1.0 / 3)},
    {LK_OP_FULL, EXACT, "infinity", full_case, P(double, -INFINITY)},
    {LK_OP_FULL, 0, "i32", full_int_case, P(lk_dtype, LK_I32)},
    {LK_OP_FULL, 0, "i64", full_int_case, P(lk_dtype, LK_I64)},
    {LK_OP_FULL, 0, "u8", full_int_case, P(lk_dtype, LK_U8)},
    {LK_OP_FULL, EXACT, "empty", full_empty_case, NULL},
    {LK_OP_ARANGE, EXACT, "quarters", arange_case, NULL},
    {LK_OP_ARANGE, 0, "i32", arange_int_case, P(lk_dtype, LK_I32)},
    {LK_OP_ARANGE, 0, "i64", arange_int_case, P(lk_dtype, LK_I64)},
    {LK_OP_ARANGE, 0, "u8", arange_int_case, P(lk_dtype, LK_U8)},
    {LK_OP_UNIFORM, EXACT, "odd count", uniform_case, NULL},
    {LK_OP_NORMAL, EXACT, "odd count", normal_case, NULL},

    {LK_OP_COPY, EXACT, "images", copy_case, SHAPE_OF(3, 5, 7, 2)},
    {LK_OP_COPY, EXACT, "vector", copy_case, SHAPE_OF(1031)},
    {LK_OP_COPY, EXACT, "in another order, 70 by 45", copy_turned_case, SHAPE_OF(3, 70, 45)},
    {LK_OP_COPY, EXACT, "in another order, 9 by 301", copy_turned_case, SHAPE_OF(2, 9, 301)},
    {LK_OP_COPY, EXACT, "in another order, 1500 by 2", copy_turned_case, SHAPE_OF(1500, 2)},
    {LK_OP_COPY, EXACT, "scalar", copy_case, P(lk_shape, .ndim = 0)},
    {LK_OP_COPY, EXACT, "empty", copy_case, SHAPE_OF(3, 0, 2)},
    {LK_OP_COPY, EXACT, "to another device", copy_to_peer_case, SHAPE_OF(3, 5, 7, 2)},
    {LK_OP_COPY, EXACT | NO_GRADIENT, "NaN and infinity", copy_specials_case, NULL},
    {LK_OP_COPY, EXACT | NO_GRADIENT, "into a view", copy_into_case, NULL},
    {LK_OP_COPY, EXACT | NO_GRADIENT, "from another device into a view", copy_from_peer_into_case, NULL},
    {LK_OP_COPY, NO_GRADIENT, "i32", copy_int_case, P(lk_dtype, LK_I32)},
    {LK_OP_COPY, NO_GRADIENT, "i64", copy_int_case, P(lk_dtype, LK_I64)},
    {LK_OP_COPY, NO_GRADIENT, "u8", copy_int_case, P(lk_dtype, LK_U8)},
    {LK_OP_CAST, EXACT, "to f64", cast_case, P(lk_dtype, LK_F64)},
    {LK_OP_CAST, NO_GRADIENT, "to f32", cast_case, P(lk_dtype, LK_F32)},
    {LK_OP_CAST, NO_GRADIENT, "to i32", cast_case, P(lk_dtype, LK_I32)},
    {LK_OP_CAST, NO_GRADIENT, "to i64", cast_case, P(lk_dtype, LK_I64)},
    {LK_OP_CAST, NO_GRADIENT, "to u8", cast_case, P(lk_dtype, LK_U8)},
    {LK_OP_CAST, NO_GRADIENT, "NaN and infinity to i32", cast_specials_case, P(lk_dtype, LK_I32)},
    {LK_OP_CAST, NO_GRADIENT, "NaN and infinity to u8", cast_specials_case, P(lk_dtype, LK_U8)},
    {LK_OP_CAST, NO_GRADIENT, "from i32", cast_int_case, P(lk_dtype, LK_I32)},
    {LK_OP_CAST, NO_GRADIENT, "from i64", cast_int_case, P(lk_dtype, LK_I64)},
    {LK_OP_CAST, NO_GRADIENT, "from u8", cast_int_case, P(lk_dtype, LK_U8)},
    {LK_OP_CAST, NO_GRADIENT, "from large i64", cast_large_case, NULL},
    {LK_OP_RESHAPE, EXACT, "inferred size", reshape_case, NULL},
    {LK_OP_RESHAPE, EXACT, "flatten", flatten_case, NULL},
    {LK_OP_TRANSPOSE, EXACT, "outer axes", transpose_case, NULL},
    {LK_OP_SLICE, EXACT, "middle axis", slice_case, NULL},
    {LK_OP_EXPAND, EXACT, "new and repeated axes", expand_case, NULL},
    {LK_OP_CONCAT, EXACT, "rows", concat_case, P(concat_parameters, 3, 0)},
    {LK_OP_CONCAT, EXACT, "last axis", concat_case, P(concat_parameters, 4, 2)},
    {LK_OP_CONCAT, EXACT, "one", concat_case, P(concat_parameters, 1, 1)},
    {LK_OP_CONCAT, EXACT, "more than a call takes", concat_case, P(concat_parameters, 21, 1)},
    {LK_OP_CONCAT, NO_GRADIENT, "i64", concat_int_case, P(lk_dtype, LK_I64)},
    {LK_OP_CONCAT, NO_GRADIENT, "u8", concat_int_case, P(lk_dtype, LK_U8)},

    {LK_OP_GATHER, EXACT | NO_GRADIENT, "rows", gather_case, P(gather_parameters, DIMS(13, 7, 3), 37, LK_F32)},
    {LK_OP_GATHER, EXACT | NO_GRADIENT, "elements", gather_case, P(gather_parameters, DIMS(131), 1031, LK_F32)},
    {LK_OP_GATHER, EXACT | NO_GRADIENT, "none", gather_case, P(gather_parameters, DIMS(13, 7), 0, LK_F32)},
    {LK_OP_GATHER, EXACT | NO_GRADIENT, "i32", gather_case, P(gather_parameters, DIMS(131), 77, LK_I32)},
    {LK_OP_GATHER, EXACT | NO_GRADIENT, "i64", gather_case, P(gather_parameters, DIMS(13, 5), 7, LK_I64)},
    {LK_OP_GATHER, EXACT | NO_GRADIENT, "u8", gather_case, P(gather_parameters, DIMS(13, 3, 5), 7, LK_U8)},
    PREPARE_CASES("nothing", {.crop_padding = 0}),
    PREPARE_CASES("shift", {.width_shift = 0.3, .height_shift = 0.2}),
    PREPARE_CASES("width shift", {.width_shift = 0.9}),
    PREPARE_CASES("flip", {.horizontal_flip = true}),
    PREPARE_CASES("crop", {.crop_padding = 3}),
    PREPARE_CASES("cutout", {.cutout = 4}),
    PREPARE_CASES("vertical flip", {.vertical_flip = true}),
    PREPARE_CASES("rotation", {.rotation = 70}),
    PREPARE_CASES("brightness", {.brightness = 0.6}),
    PREPARE_CASES("contrast", {.contrast = 0.7}),
    PREPARE_CASES("erasing", {.erase = 0.8}),
    PREPARE_CASES("mixup", {.mixup = 0.3}),
    PREPARE_CASES("RandAugment", {.rand_augment = 17}),
    PREPARE_CASES("normalized", {.center = true, .standardize = true}),
    PREPARE_CASES("everything", {.width_shift = 0.3,
                                 .height_shift = 0.2,
                                 .horizontal_flip = true,
                                 .crop_padding = 2,
                                 .cutout = 3,
                                 .vertical_flip = true,
                                 .rotation = 20,
                                 .brightness = 0.2,
                                 .contrast = 0.3,
                                 .erase = 0.4,
                                 .mixup = 1,
                                 .rand_augment = 30,
                                 .center = true,
                                 .standardize = true}),
    {LK_OP_PREPARE_IMAGES, EXACT | PREPARE_FLAGS, "set of one image, normalized", prepare_images_case,
     P(prepare_parameters, DIMS(1, 3, 8, 11), 9, {.mixup = 0.5, .center = true, .standardize = true})},
    {LK_OP_PREPARE_IMAGES, EXACT | PREPARE_FLAGS, "no sample, rotation and mixup", prepare_images_case,
     P(prepare_parameters, DIMS(5, 1, 9, 7), 0, {.rotation = 20, .mixup = 0.5})},
    {LK_OP_PREPARE_IMAGES, EXACT | PREPARE_FLAGS, "no sample", prepare_images_case,
     P(prepare_parameters, DIMS(5, 1, 9, 7), 0, {.crop_padding = 0})},

    BINARY_CASES(LK_OP_ADD, lk_add_at),
    {LK_OP_ADD, EXACT, "number", add_scalar_case, NULL},
    {LK_OP_ADD, EXACT | NO_GRADIENT, "in place", add_into_case, NULL},
    {LK_OP_ADD, EXACT | NO_GRADIENT, "into an overlapping view", add_into_overlap_case, NULL},
    BINARY_CASES(LK_OP_SUB, lk_sub_at),
    BINARY_CASES(LK_OP_MUL, lk_mul_at),
    {LK_OP_MUL, EXACT, "square", square_case, NULL},
    {LK_OP_MUL, EXACT, "number", mul_scalar_case, NULL},
    BINARY_CASES(LK_OP_DIV, lk_div_at),

    {LK_OP_MATMUL, 0, "small", matmul_case, P(matmul_parameters, 7, 5, 3)},
    {LK_OP_MATMUL, 0, "one by one", matmul_case, P(matmul_parameters, 1, 1, 1)},
    {LK_OP_MATMUL, 0, "hidden of LeNet", matmul_case, P(matmul_parameters, 33, 800, 500)},
    {LK_OP_MATMUL, 0, "logits of LeNet", matmul_case, P(matmul_parameters, 31, 500, 10)},
    {LK_OP_MATMUL, 0, "dot product", matmul_case, P(matmul_parameters, 1, 1031, 1)},
    {LK_OP_MATMUL, 0, "outer product", matmul_case, P(matmul_parameters, 17, 1, 13)},
    {LK_OP_MATMUL, 0, "no rows", matmul_case, P(matmul_parameters, 0, 5, 3)},
    {LK_OP_MATMUL, 0, "no terms", matmul_case, P(matmul_parameters, 5, 0, 3)},
    {LK_OP_MATMUL, NO_GRADIENT, "to f32", matmul_f32_case, P(matmul_parameters, 100, 77, 50)},
    {LK_OP_MATMUL, NO_GRADIENT, "to f32, no terms", matmul_f32_case, P(matmul_parameters, 5, 0, 3)},

    {LK_OP_DENSE_ACT, 0, "small", dense_bias_relu_case, P(matmul_parameters, 7, 5, 3)},
    {LK_OP_DENSE_ACT, 0, "one by one", dense_bias_relu_case, P(matmul_parameters, 1, 1, 1)},
    {LK_OP_DENSE_ACT, NO_GRADIENT, "hidden of LeNet", dense_bias_relu_case, P(matmul_parameters, 33, 800, 500)},
    {LK_OP_DENSE_ACT, 0, "logits of LeNet", dense_bias_case, P(matmul_parameters, 31, 500, 10)},
    {LK_OP_DENSE_ACT, 0, "outer product", dense_bias_case, P(matmul_parameters, 17, 1, 13)},
    {LK_OP_DENSE_ACT, 0, "no bias", dense_relu_case, P(matmul_parameters, 9, 4, 11)},
    {LK_OP_DENSE_ACT, 0, "no rows", dense_bias_relu_case, P(matmul_parameters, 0, 5, 3)},
    {LK_OP_DENSE_ACT, 0, "no terms", dense_bias_relu_case, P(matmul_parameters, 5, 0, 3)},
    {LK_OP_DENSE_ACT, NO_GRADIENT, "NaN and infinity", dense_specials_case, P(matmul_parameters, 9, 4, 37)},

    CONV_CASES(LK_OP_CONV2D, conv2d_case),
    /* NO_GRADIENT: with so many elements some are close to a kink of relu or max pooling, where the gradient jumps. */
    {LK_OP_CONV2D, NO_GRADIENT, "LeNet", chain_case, P(chain_parameters, 3, 28, {20, 50}, {5, 5})},
    {LK_OP_CONV2D, NO_GRADIENT, "LeNet, batch", chain_case, P(chain_parameters, 13, 28, {20, 50}, {5, 5})},
    {LK_OP_CONV2D, 0, "small chain", chain_case, P(chain_parameters, 2, 12, {8, 16}, {5, 3})},
    {LK_OP_CONV2D, 0, "small chain, batch", chain_case, P(chain_parameters, 8, 12, {4, 6}, {5, 3})},
    {LK_OP_CONV2D, 0, "residual block", residual_case, P(residual_parameters, 2, 16)},
    {LK_OP_CONV2D, 0, "residual block, batch", residual_case, P(residual_parameters, 9, 12)},
    CONV_CASES(LK_OP_CONV2D_INPUT_GRAD, conv2d_input_grad_case),
    CONV_CASES(LK_OP_CONV2D_WEIGHT_GRAD, conv2d_weight_grad_case),
    CONV_CASES(LK_OP_CONV2D_WEIGHT_GRAD, conv2d_weight_grad_f32_case),
    POOL_CASES(LK_OP_MAX_POOL2D, EXACT, max_pool2d_case),
    SPECIAL_POOL_CASES("NaN and infinity", max_pool2d_specials_case),
    SPECIAL_POOL_CASES("position of NaN and infinity", max_pool2d_where_case),
    POOL_CASES(LK_OP_MAX_POOL2D_GRAD, 0, max_pool2d_grad_case),
    POOL_CASES(LK_OP_AVG_POOL2D, 0, avg_pool2d_case),
    POOL_CASES(LK_OP_AVG_POOL2D_GRAD, 0, avg_pool2d_grad_case),
    POOL_CASES(LK_OP_RELU_AVG_POOL2D, NO_GRADIENT, relu_avg_pool2d_case),
    POOL_CASES(LK_OP_RELU_AVG_POOL2D_GRAD, NO_GRADIENT, relu_avg_pool2d_grad_case),
    TAP_POOL_CASES(LK_OP_RELU_MAX_POOL2D, "", relu_max_pool2d_case),
    TAP_POOL_CASES(LK_OP_RELU_MAX_POOL2D, "places, ", relu_max_pool2d_where_case),
    TAP_POOL_CASES(LK_OP_RELU_MAX_POOL2D, "NaN and infinity, ", relu_max_pool2d_specials_case),
    TAP_POOL_CASES(LK_OP_RELU_MAX_POOL2D_GRAD, "", relu_max_pool2d_grad_case),
    BLOCK_CASES(LK_OP_CONV_BLOCK, 0, conv_block_case),
    BLOCK_CASES(LK_OP_CONV_BLOCK_GRAD, 0, conv_block_grad_case),
    {LK_OP_RELU, EXACT, "images", relu_case, SHAPE_OF(3, 5, 7, 9)},
    {LK_OP_RELU, EXACT, "vector", relu_case, SHAPE_OF(1031)},
    {LK_OP_RELU, EXACT, "scalar", relu_case, P(lk_shape, .ndim = 0)},
    {LK_OP_RELU, EXACT, "empty", relu_case, SHAPE_OF(0, 3)},
    {LK_OP_RELU, EXACT | NO_GRADIENT, "NaN and infinity", relu_specials_case, SHAPE_OF(17, 9)},
    {LK_OP_RELU_GRAD, EXACT, "images", relu_grad_case, SHAPE_OF(3, 5, 7, 9)},
    {LK_OP_RELU_GRAD, EXACT, "vector", relu_grad_case, SHAPE_OF(1031)},
    {LK_OP_RELU_GRAD, EXACT, "empty", relu_grad_case, SHAPE_OF(0, 3)},

    ACTIVATION_CASES("sigmoid", LK_ACT_SIGMOID, 0),
    ACTIVATION_CASES("tanh", LK_ACT_TANH, 0),
    ACTIVATION_CASES("leaky_relu", LK_ACT_LEAKY_RELU, 0.01),
    ACTIVATION_CASES("elu", LK_ACT_ELU, 1),
    ACTIVATION_CASES("elu, alpha 0.5", LK_ACT_ELU, 0.5),
    ACTIVATION_CASES("silu", LK_ACT_SILU, 0),
    ACTIVATION_CASES("gelu", LK_ACT_GELU, 0),
    ACTIVATION_CASES("softplus", LK_ACT_SOFTPLUS, 0),
    {LK_OP_DROPOUT, EXACT, "half", dropout_case, P(dropout_parameters, DIMS(5, 13, 3, 7), 0.5)},
    {LK_OP_DROPOUT, EXACT, "nothing", dropout_case, P(dropout_parameters, DIMS(5, 13), 0)},
    {LK_OP_DROPOUT, EXACT, "images", dropout_case, P(dropout_parameters, DIMS(5, 16, 4, 7), 0.3)},
    {LK_OP_DROPOUT, EXACT, "rows", dropout_case, P(dropout_parameters, DIMS(33, 10), 0.3)},
    {LK_OP_DROPOUT, EXACT, "every mantissa", dropout_case, P(dropout_parameters, DIMS(65, 40), 0.9)},
    {LK_OP_DROPOUT, EXACT, "vector", dropout_case, P(dropout_parameters, DIMS(37), 0.9)},
    {LK_OP_DROPOUT, EXACT, "no sample", dropout_case, P(dropout_parameters, DIMS(0, 3), 0.3)},
    {LK_OP_DROPOUT, NO_GRADIENT, "NaN and infinity", dropout_specials_case, P(dropout_parameters, DIMS(17, 9), 0.4)},
    {LK_OP_DROPOUT, 0, "behind a convolution, multiple of four", dropout_conv_case,
     P(dropout_parameters, DIMS(3, 10, 6, 8), 0.3)},
    {LK_OP_DROPOUT, 0, "behind a convolution", dropout_conv_case, P(dropout_parameters, DIMS(2, 16, 5, 7), 0.3)},
    {LK_OP_DROPOUT, 0, "behind a convolution, batch", dropout_conv_case, P(dropout_parameters, DIMS(9, 6, 5, 4), 0.3)},

    NORM_CASES(LK_OP_CHANNEL_SUMS, channel_sums_case),
    {LK_OP_CHANNEL_SUMS, EXACT | NO_BF16 | NO_GRADIENT, "whole numbers", channel_sums_whole_case,
     P(norm_parameters, DIMS(19, 13, 5, 4), 0, 0)},
    {LK_OP_CHANNEL_SUMS, EXACT | NO_BF16 | NO_GRADIENT, "whole numbers, 32 channels", channel_sums_whole_case,
     P(norm_parameters, DIMS(5, 32, 7, 7), 0, 0)},
    NORM_CASES(LK_OP_CHANNEL_SUMS_GRAD, channel_sums_grad_case),
    NORM_CASES(LK_OP_BATCH_NORM, batch_norm_case),
    {LK_OP_BATCH_NORM, EXACT | NO_BF16 | NO_GRADIENT, "sums of whole numbers", batch_norm_sums_case,
     P(norm_parameters, DIMS(19, 13, 5, 4), 1e-3, 0)},
    {LK_OP_BATCH_NORM, EXACT | NO_BF16 | NO_GRADIENT, "sums of whole numbers, 32 channels", batch_norm_sums_case,
     P(norm_parameters, DIMS(5, 32, 7, 7), 1e-3, 0)},
    {LK_OP_BATCH_NORM, NO_GRADIENT, "NaN and infinity", batch_norm_specials_case,
     P(norm_parameters, DIMS(7, 15, 5, 3), 1e-3, 0)},
    {LK_OP_BATCH_NORM, 0, "block", norm_block_case, P(norm_parameters, DIMS(2, 16, 7, 5), 1e-2, 0)},
    {LK_OP_BATCH_NORM, 0, "block, batch", norm_block_case, P(norm_parameters, DIMS(9, 6, 5, 4), 1e-2, 0)},
    NORM_CASES(LK_OP_BATCH_NORM_GRAD, batch_norm_grad_case),
    NORM_CASES(LK_OP_BATCH_NORM_GRAD, batch_norm_grad_sums_case),
    NORM_CASES(LK_OP_BATCH_NORM_WITH, batch_norm_with_case),
    {LK_OP_BATCH_NORM_WITH, 0, "sums of two batches", norm_of_two_case, P(norm_parameters, DIMS(5, 13, 3, 7), 1e-2, 0)},
    NORM_CASES(LK_OP_BATCH_NORM_WITH_GRAD, batch_norm_with_grad_case),
    NORM_CASES(LK_OP_BATCH_NORM_INFERENCE, batch_norm_inference_case),
    NORM_CASES(LK_OP_BATCH_NORM_INFERENCE_GRAD, batch_norm_inference_grad_case),
    NORM_CASES(LK_OP_BATCH_NORM_ACT, batch_norm_act_case),
    {LK_OP_BATCH_NORM_ACT, 0, "no residual", batch_norm_relu_case, P(norm_parameters, DIMS(3, 16, 5, 3), 1e-2, 0)},
    {LK_OP_BATCH_NORM_ACT, NO_GRADIENT, "no residual, batch", batch_norm_relu_case,
     P(norm_parameters, DIMS(19, 20, 3, 4), 1e-2, 0)},
    {LK_OP_BATCH_NORM_ACT, NO_GRADIENT, "residual last", batch_norm_residual_last_case,
     P(norm_parameters, DIMS(3, 16, 5, 3), 1e-2, 0)},
    {LK_OP_BATCH_NORM_ACT, NO_GRADIENT, "residual last, odd", batch_norm_residual_last_case,
     P(norm_parameters, DIMS(5, 13, 3, 7), 1e-2, 0)},
    {LK_OP_BATCH_NORM_ACT, NO_GRADIENT, "NaN and infinity", batch_norm_act_specials_case,
     P(norm_parameters, DIMS(7, 15, 5, 3), 1e-3, 0)},
    NORM_CASES(LK_OP_BATCH_NORM_ACT_GRAD, batch_norm_act_grad_case),
    {LK_OP_BATCH_NORM_ACT_GRAD, 0, "no residual", batch_norm_relu_grad_case,
     P(norm_parameters, DIMS(5, 13, 3, 7), 1e-2, 0)},
    {LK_OP_BATCH_NORM_ACT_GRAD, 0, "y again", batch_norm_relu_again_case,
     P(norm_parameters, DIMS(5, 16, 3, 7), 1e-2, 0)},
    NORM_CASES(LK_OP_BATCH_NORM_ACT_GRAD, batch_norm_relu_sum_case),
    NORM_CASES(LK_OP_BATCH_NORM_ACT_GRAD, batch_norm_act_sum_case),
    {LK_OP_BATCH_NORM_ACT_GRAD, 0, "y again, odd", batch_norm_relu_again_case,
     P(norm_parameters, DIMS(5, 13, 3, 7), 1e-2, 0)},
    {LK_OP_BATCH_NORM_ACT_GRAD, NO_GRADIENT, "two sums", batch_norm_relu_two_sums_case,
     P(norm_parameters, DIMS(5, 16, 3, 7), 1e-2, 0)},
    {LK_OP_BATCH_NORM_ACT_GRAD, NO_GRADIENT, "two sums, odd", batch_norm_relu_two_sums_case,
     P(norm_parameters, DIMS(5, 13, 3, 7), 1e-2, 0)},
    NORM_POOL_CASES(LK_OP_BATCH_NORM_POOL, batch_norm_pool_case),
    {LK_OP_BATCH_NORM_POOL, NO_GRADIENT, "NaN and infinity", batch_norm_pool_specials_case,
     P(norm_pool_parameters, {DIMS(7, 15, 4, 6), 1e-3, 0}, {.kernel = {2, 2}, .stride = {2, 2}}, true)},
    NORM_POOL_CASES(LK_OP_BATCH_NORM_POOL_GRAD, batch_norm_pool_grad_case),
    {LK_OP_BATCH_NORM_DROP, NO_GRADIENT, "16 channels", batch_norm_drop_case,
     P(norm_parameters, DIMS(3, 16, 5, 7), 1e-2, 0)},
    {LK_OP_BATCH_NORM_DROP, NO_GRADIENT, "multiple of four", batch_norm_drop_case,
     P(norm_parameters, DIMS(3, 24, 4, 7), 1e-2, 0)},
    {LK_OP_BATCH_NORM_DROP, NO_GRADIENT, "13 channels", batch_norm_drop_case,
     P(norm_parameters, DIMS(5, 13, 3, 7), 1e-2, 0)},
    {LK_OP_BATCH_NORM_DROP, NO_GRADIENT, "rows", batch_norm_drop_case, P(norm_parameters, DIMS(33, 10), 1e-2, 0)},
    {LK_OP_BATCH_NORM_DROP, NO_GRADIENT, "no sample", batch_norm_drop_case,
     P(norm_parameters, DIMS(0, 5, 3, 3), 1e-2, 0)},
    {LK_OP_BATCH_NORM_DROP_GRAD, NO_GRADIENT, "16 channels", batch_norm_drop_grad_case,
     P(norm_parameters, DIMS(3, 16, 5, 7), 1e-2, 0)},
    {LK_OP_BATCH_NORM_DROP_GRAD, NO_GRADIENT, "multiple of four", batch_norm_drop_grad_case,
     P(norm_parameters, DIMS(3, 24, 4, 7), 1e-2, 0)},
    {LK_OP_BATCH_NORM_DROP_GRAD, NO_GRADIENT, "13 channels", batch_norm_drop_grad_case,
     P(norm_parameters, DIMS(5, 13, 3, 7), 1e-2, 0)},
    {LK_OP_BATCH_NORM_DROP_GRAD, NO_GRADIENT, "rows", batch_norm_drop_grad_case,
     P(norm_parameters, DIMS(33, 10), 1e-2, 0)},
    {LK_OP_BATCH_NORM_DROP_GRAD, NO_GRADIENT, "no sample", batch_norm_drop_grad_case,
     P(norm_parameters, DIMS(0, 5, 3, 3), 1e-2, 0)},
    NORM_CASES(LK_OP_BATCH_NORM_INFERENCE_ACT, batch_norm_inference_act_case),
    {LK_OP_BATCH_NORM_INFERENCE_ACT, 0, "no residual", batch_norm_inference_relu_case,
     P(norm_parameters, DIMS(5, 13, 3, 7), 1e-2, 0)},
    {LK_OP_BATCH_NORM_UPDATE, EXACT | NO_BF16, "vector", batch_norm_update_case,
     P(norm_update_parameters, 131, 288, 0.1, -1)},
    {LK_OP_BATCH_NORM_UPDATE, EXACT | NO_BF16, "count 1", batch_norm_update_case,
     P(norm_update_parameters, 7, 1, 0.01, -1)},
    {LK_OP_BATCH_NORM_UPDATE, EXACT | NO_BF16, "count 2", batch_norm_update_case,
     P(norm_update_parameters, 16, 2, 1, -1)},
    {LK_OP_BATCH_NORM_UPDATE, EXACT | NO_BF16, "skipped", batch_norm_update_case,
     P(norm_update_parameters, 13, 288, 0.1, 1)},
    {LK_OP_BATCH_NORM_UPDATE, EXACT | NO_BF16, "not skipped", batch_norm_update_case,
     P(norm_update_parameters, 13, 288, 0.1, 0)},
    {LK_OP_BATCH_NORM_UPDATE, EXACT | NO_BF16, "no channel", batch_norm_update_case,
     P(norm_update_parameters, 0, 288, 0.1, -1)},
    {LK_OP_BATCH_NORM_UPDATE, EXACT | NO_BF16, "NaN and infinity", batch_norm_update_specials_case,
     P(norm_update_parameters, 37, 3, 0.1, -1)},
    {LK_OP_BATCH_NORM_UPDATE, EXACT | NO_BF16, "of NaN and infinity", batch_norm_update_of_specials_case,
     P(norm_update_parameters, 37, 3, 0.1, -1)},
    {LK_OP_BATCH_NORM_UPDATE, EXACT | NO_BF16, "instead of NaN and infinity", batch_norm_update_of_specials_case,
     P(norm_update_parameters, 37, 3, 1, -1)},

    GROUP_NORM_CASES(LK_OP_GROUP_NORM, group_norm_case),
    {LK_OP_GROUP_NORM, 0, "between convolutions", group_norm_conv_case,
     P(group_norm_parameters, {DIMS(3, 16, 7, 5), 0.1, 0}, 4, false)},
    {LK_OP_GROUP_NORM, 0, "between convolutions, odd", group_norm_conv_case,
     P(group_norm_parameters, {DIMS(9, 6, 5, 4), 0.1, 0}, 3, false)},
    /* With expanded operands all channels of a pixel may be nearly equal, and normalizing them loses the digits. */
    {LK_OP_GROUP_NORM, NO_GRADIENT, "between convolutions, pixels", group_norm_conv_case,
     P(group_norm_parameters, {DIMS(3, 16, 7, 5), 0.1, 0}, 1, true)},
    GROUP_NORM_CASES(LK_OP_GROUP_NORM_GRAD, group_norm_grad_case),

    REDUCE_CASES(LK_OP_SUM, 0, reduce_case, lk_sum_at),
    {LK_OP_SUM, 0, "nothing", reduce_case, P(reduce_parameters, lk_sum_at, DIMS(0, 4), {.n_axes = 1, .axes = {0}}, 0)},
    {LK_OP_SUM, NO_GRADIENT, "to f32", reduce_case,
     P(reduce_parameters, sum_to_f32, DIMS(33, 10), {.n_axes = 1, .axes = {0}}, 0)},
    REDUCE_INT_CASES(LK_OP_SUM, lk_sum_at),
    REDUCE_CASES(LK_OP_MEAN, 0, reduce_case, lk_mean_at),
    REDUCE_CASES(LK_OP_MAX, EXACT, reduce_case, lk_max_at),
    {LK_OP_MAX, EXACT | NO_GRADIENT, "NaN and infinity", max_specials_case,
     P(reduce_parameters, lk_max_at, DIMS(23, 7), {.n_axes = 1, .axes = {1}}, 0)},
    REDUCE_INT_CASES(LK_OP_MAX, lk_max_at),
    REDUCE_CASES(LK_OP_MAX_GRAD, EXACT, max_grad_case, lk_max_at),
    AXIS_CASES(LK_OP_ARGMAX, EXACT, argmax_case),
    {LK_OP_ARGMAX, EXACT, "NaN and infinity", argmax_specials_case, P(axis_parameters, DIMS(23, 7), 1, 0)},
    {LK_OP_ARGMAX, 0, "i64", argmax_int_case, P(axis_parameters, DIMS(23, 17), 1, LK_I64)},
    {LK_OP_ARGMAX, 0, "u8", argmax_int_case, P(axis_parameters, DIMS(23, 17), 0, LK_U8)},

    AXIS_CASES(LK_OP_SOFTMAX, 0, softmax_case),
    AXIS_CASES(LK_OP_SOFTMAX_GRAD, 0, softmax_grad_case),
    AXIS_CASES(LK_OP_LOG_SOFTMAX, 0, log_softmax_case),
    AXIS_CASES(LK_OP_LOG_SOFTMAX_GRAD, 0, log_softmax_grad_case),
    LOSS_CASES(LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY, 0, cross_entropy_case),
    LOSS_CASES(LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY_GRAD, 0, cross_entropy_grad_case),
    LOSS_CASES(LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY, 0, smoothed_case),
    LOSS_CASES(LK_OP_SPARSE_SOFTMAX_CROSS_ENTROPY_GRAD, 0, smoothed_grad_case),
    LOSS_CASES(LK_OP_CROSS_ENTROPY_STEP, 0, cross_entropy_step_case),
    LOSS_CASES(LK_OP_CROSS_ENTROPY_STEP, 0, smoothed_step_case),
    {LK_OP_SIGMOID_CROSS_ENTROPY, 0, "rows", sigmoid_loss_case, P(sigmoid_loss_parameters, DIMS(17, 13), 4)},
    {LK_OP_SIGMOID_CROSS_ENTROPY, 0, "vector", sigmoid_loss_case, P(sigmoid_loss_parameters, DIMS(131), 4)},
    {LK_OP_SIGMOID_CROSS_ENTROPY, 0, "far", sigmoid_loss_case, P(sigmoid_loss_parameters, DIMS(17, 3), 200)},
    {LK_OP_SIGMOID_CROSS_ENTROPY, 0, "scalar", sigmoid_loss_case, P(sigmoid_loss_parameters, {0}, 4)},
    {LK_OP_SIGMOID_CROSS_ENTROPY, 0, "no sample", sigmoid_loss_case, P(sigmoid_loss_parameters, DIMS(0, 3), 4)},
    {LK_OP_SIGMOID_CROSS_ENTROPY, NO_GRADIENT, "NaN and infinity", sigmoid_loss_specials_case,
     P(sigmoid_loss_parameters, DIMS(17, 9), 4)},
    {LK_OP_SIGMOID_CROSS_ENTROPY_GRAD, 0, "rows", sigmoid_loss_grad_case, P(sigmoid_loss_parameters, DIMS(17, 13), 4)},
    {LK_OP_SIGMOID_CROSS_ENTROPY_GRAD, 0, "vector", sigmoid_loss_grad_case, P(sigmoid_loss_parameters, DIMS(131), 4)},
    {LK_OP_SIGMOID_CROSS_ENTROPY_GRAD, 0, "far", sigmoid_loss_grad_case, P(sigmoid_loss_parameters, DIMS(17, 3), 200)},
    {LK_OP_SIGMOID_CROSS_ENTROPY_GRAD, 0, "no sample", sigmoid_loss_grad_case,
     P(sigmoid_loss_parameters, DIMS(0, 3), 4)},
    {LK_OP_IN_TOP_K, EXACT, "first", in_top_k_case, P(loss_parameters, 33, 10, LK_I32, LK_REDUCTION_NONE, 1)},
    {LK_OP_IN_TOP_K, EXACT, "first three", in_top_k_case, P(loss_parameters, 33, 10, LK_I64, LK_REDUCTION_NONE, 3)},
    {LK_OP_IN_TOP_K, EXACT, "all", in_top_k_case, P(loss_parameters, 5, 10, LK_I32, LK_REDUCTION_NONE, 10)},
    {LK_OP_IN_TOP_K, EXACT, "no sample", in_top_k_case, P(loss_parameters, 0, 10, LK_I32, LK_REDUCTION_NONE, 1)},
    {LK_OP_IN_TOP_K, EXACT, "NaN and infinity", in_top_k_specials_case,
     P(loss_parameters, 23, 7, LK_I32, LK_REDUCTION_NONE, 2)},
    {LK_OP_PAIRWISE_SUM, EXACT | NO_GRADIENT | NO_BF16, "two", pairwise_sum_case, P(pairwise_parameters, 2, 1031)},
    {LK_OP_PAIRWISE_SUM, EXACT | NO_GRADIENT | NO_BF16, "four", pairwise_sum_case, P(pairwise_parameters, 4, 3)},
    {LK_OP_PAIRWISE_SUM, EXACT | NO_GRADIENT | NO_BF16, "eight", pairwise_sum_case, P(pairwise_parameters, 8, 64)},
    {LK_OP_PAIRWISE_SUM, EXACT | NO_GRADIENT | NO_BF16, "sixteen", pairwise_sum_case, P(pairwise_parameters, 16, 77)},
    {LK_OP_PAIRWISE_SUM, EXACT | NO_GRADIENT | NO_BF16, "empty", pairwise_sum_case, P(pairwise_parameters, 2, 0)},
    {LK_OP_SGD_UPDATE, EXACT | NO_BF16, "weights", sgd_update_case, SHAPE_OF(33, 17)},
    {LK_OP_SGD_UPDATE, EXACT | NO_BF16, "vector", sgd_update_case, SHAPE_OF(1031)},
    {LK_OP_SGD_UPDATE, EXACT | NO_BF16, "empty", sgd_update_case, SHAPE_OF(0)},
    UPDATE_CASES(LK_OP_MOMENTUM_UPDATE, momentum_update_case, .slots = false),
    UPDATE_CASES(LK_OP_MOMENTUM_UPDATE, momentum_update_case, .slots = true),
    UPDATE_CASES(LK_OP_MOMENTUM_UPDATE, momentum_update_case, .slots = true, .nesterov = true),
    UPDATE_CASES(LK_OP_ADAM_UPDATE, adam_update_case, .decoupled = false),
    UPDATE_CASES(LK_OP_ADAM_UPDATE, adam_update_case, .decoupled = true),
    UPDATE_CASES(LK_OP_LARS_UPDATE, lars_update_case, .slots = true),
    {LK_OP_LARS_UPDATE, UPDATE_FLAGS, "infinite ratio", lars_update_case,
     P(update_parameters, .n = 1031, .ratio = INFINITY)},
    {LK_OP_LARS_UPDATE, UPDATE_FLAGS, "infinite ratio, controlled", lars_update_case,
     P(update_parameters, .n = 77, .controlled = true, .ratio = INFINITY)},
    {LK_OP_SQUARED_NORMS, UPDATE_FLAGS, "less than a block", squared_norms_case, P(update_parameters, .n = 37)},
    {LK_OP_SQUARED_NORMS, UPDATE_FLAGS, "blocks", squared_norms_case, P(update_parameters, .n = 57361)},
    {LK_OP_SQUARED_NORMS, UPDATE_FLAGS, "one", squared_norms_case, P(update_parameters, .n = 1)},
    {LK_OP_SQUARED_NORMS, UPDATE_FLAGS, "NaN and infinity", squared_norms_case,
     P(update_parameters, .n = 37, .special = true)},
    SCALES_CASES("nothing asked", .before = 1),
    SCALES_CASES("clipped", .attrs = {.clip_norm = 0.5, .trust = 0.01}),
    SCALES_CASES("below", .attrs = {.clip_norm = 1000, .trust = 0.01, .weight_decay = 0.1}),
    SCALES_CASES("not finite", .special = true, .attrs = {.clip_norm = 1, .trust = 0.01, .skip_nonfinite = true}),
    SCALES_CASES("a loss", .loss = 3, .attrs = {.trust = 0.01, .skip_nonfinite = true}),
    SCALES_CASES("a loss not finite", .loss = INFINITY, .attrs = {.trust = 0.01, .skip_nonfinite = true}),
    SCALES_CASES("a loss, no matter", .loss = NAN, .attrs = {.trust = 0.01}),
    SCALES_CASES("finite, sticky", .before = 1, .attrs = {.skip_nonfinite = true, .sticky = true}),
    SCALES_CASES("finite again", .before = 1, .attrs = {.skip_nonfinite = true}),
};

#define CONFORMANCE_CASES ((int)(sizeof conformance_cases / sizeof conformance_cases[0]))
