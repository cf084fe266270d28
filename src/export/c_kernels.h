/* The functions that an exported C file is made of, as text. Data of an image lie channels-last, [H, W, C], so that the
 * innermost loops go over channels or filters. */
#ifndef LK_EXPORT_C_KERNELS_H
#define LK_EXPORT_C_KERNELS_H

typedef enum lk__c_kernel {
    LK__C_PREPARE, /* images in, [C, H, W] */
    LK__C_PREPARE_BYTES,
    LK__C_PAD,
    LK__C_CONV2D,
    LK__C_SCALE,
    LK__C_ADD,
    LK__C_MAX_POOL,
    LK__C_AVG_POOL,
    LK__C_TO_PLANES, /* [P, C] -> [C, P] */
    LK__C_FROM_PLANES,
    LK__C_RELU, /* these in the order of lk_activation */
    LK__C_LEAKY_RELU,
    LK__C_ELU,
    LK__C_SIGMOID,
    LK__C_TANH,
    LK__C_SILU,
    LK__C_GELU,
    LK__C_SOFTPLUS,
    LK__C_KERNEL_COUNT
} lk__c_kernel;

/* How many filters a block of weights has, [block][K][K][C][this]: the last one is filled with zeros. */
enum { LK__C_LANES = 16 };

const char *lk__c_kernel_name(lk__c_kernel kernel);

/* Its definition, with the blank line behind it. */
const char *lk__c_kernel_text(lk__c_kernel kernel);

/* What weights that are read from a file take: hash() and load(). */
const char *lk__c_loader_text(void);

#endif
