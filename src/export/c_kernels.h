/* The text of the functions in an exported C file. They keep images channels-last, [H, W, C], so that the innermost
 * loops run over channels or filters. */
#pragma once

typedef enum lk_c_kernel {
    LK__C_PREPARE, /* from the caller's [C, H, W] */
    LK__C_PREPARE_BYTES,
    LK__C_PAD,
    LK__C_CONV2D,
    LK__C_CONV2D_GROUPS,
    LK__C_SCALE,
    LK__C_GROUP_NORM,
    LK__C_ADD,
    LK__C_MULTIPLY,
    LK__C_CONCAT,
    LK__C_MAX_POOL,
    LK__C_AVG_POOL,
    LK__C_TO_PLANES, /* [P, C] -> [C, P] */
    LK__C_FROM_PLANES,
    LK__C_RELU, /* activations, in the order of lk_activation */
    LK__C_LEAKY_RELU,
    LK__C_ELU,
    LK__C_SIGMOID,
    LK__C_TANH,
    LK__C_SILU,
    LK__C_GELU,
    LK__C_SOFTPLUS,
    LK__C_KERNEL_COUNT
} lk_c_kernel;

/* Filters in a block of weights of LK__C_CONV2D, [block][KH][KW][C][LANES]. The last block is padded with zeros. */
enum { LK__C_LANES = 16 };

const char *lk__c_kernel_name(lk_c_kernel kernel);

/* Returns the kernel's definition, followed by a blank line. */
const char *lk__c_kernel_text(lk_c_kernel kernel);

/* Returns the text of hash() and decode(), which weights that are read from a file need. */
const char *lk__c_loader_text(void);
