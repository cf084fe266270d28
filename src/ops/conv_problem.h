/* Convolutions as problems: what the choice of an implementation depends on, and the text of it that
 * lk_device_implementations shows and files of algorithms hold. */
#ifndef LK_OPS_CONV_PROBLEM_H
#define LK_OPS_CONV_PROBLEM_H

#include "core/op.h"
#include "ops/ops.h"

typedef struct lk_conv_problem {
    int op;                    /* LK_OP_CONV2D, either of its gradients, or LK_OP_CONV_BLOCK, which means both passes */
    lk_shape x, w;             /* of the forward convolution */
    lk_conv_block_attrs attrs; /* of a convolution alone: conv */
} lk_conv_problem;

/* Whether the call is of one of these operators or conv_block_grad, and if so the problem. */
bool lk__conv_problem_of(const lk_call *call, lk_conv_problem *problem);

/* "f32 x[32,1,28,28] w[20,1,3,3] stride 1x1 padding 0x0 dilation 1x1": f32 is what is computed in, for bf16 too. */
void lk__conv_problem_text(const lk_conv_problem *problem, char *text, size_t size);

/* The other way. False: `op` is none of these operators, or the text is not what lk__conv_problem_text writes. */
bool lk__conv_problem_parse(const char *op, const char *text, lk_conv_problem *problem);

/* lk__conv_problem_text of a call's problem. */
void lk__conv_call_text(const lk_call *call, char *text, size_t size);

#endif
