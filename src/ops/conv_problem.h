/* A convolution's problem is everything that the choice of its implementation depends on. lk_device_implementations
 * shows its text, and the files that `--algorithms` reads contain it. */
#pragma once

#include "core/op.h"
#include "ops/ops.h"

typedef struct lk_conv_problem {
    int op;                    /* LK_OP_CONV2D, one of its gradients, or LK_OP_CONV_BLOCK for both of its passes */
    lk_dtype dtype;            /* of the operands, f32 or bf16 */
    lk_shape x, w;             /* of the forward convolution */
    lk_conv_block_attrs attrs; /* a plain convolution has only `conv` */
    /* Only for plain convolutions by libraries of GPUs; lk__conv_problem_of leaves them false. */
    bool tf32;   /* f32 operands may be rounded to 10 bits of mantissa */
    bool bias;   /* it is added to the result */
    bool direct; /* no transforms of the operands, such as Winograd's */
    bool to_f32; /* the gradient of bf16 weights is f32 */
} lk_conv_problem;

/* Sets *problem if the call is of one of these operators or conv_block_grad; else returns false. */
bool lk__conv_problem_of(const lk_call *call, lk_conv_problem *problem);

/* "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1"; on GPUs also "tf32 x… bias". */
void lk__conv_problem_text(const lk_conv_problem *problem, char *text, size_t size);

/* The inverse. False: `op` is none of these operators, or the text is not one that lk__conv_problem_text writes. */
bool lk__conv_problem_parse(const char *op, const char *text, lk_conv_problem *problem);

/* lk__conv_problem_text of a call's problem; "" if it has none. */
void lk__conv_call_text(const lk_call *call, char *text, size_t size);
