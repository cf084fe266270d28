/* The list of operators, and the attributes that their calls carry to the kernels. */
#pragma once

#include "core/op.h"
#include "ops/augmentation.h"
#include "lockstep/ops.h"

enum {
#define LK_OP(identifier, name) LK_OP_##identifier,
#include "ops/ops.def"
#undef LK_OP
    LK_OP_COUNT
};

#define LK_OP(identifier, name) extern const lk_op lk__op_##name;
#include "ops/ops.def"
#undef LK_OP

/* The operator with this number; NULL: no such operator. */
const lk_op *lk__op_at(int id);

/* Inputs, outputs and attributes of each call. Shapes are those of lockstep/ops.h. */

typedef struct lk_full_attrs { /* () → out */
    lk_shape shape;
    double value;
} lk_full_attrs;

typedef struct lk_arange_attrs { /* () → out */
    int64_t count;
    double start, step;
} lk_arange_attrs;

typedef struct lk_random_attrs { /* uniform: () → out, low a, high b.  normal: mean a, std b */
    const lk_shape *shape;       /* the caller's, for infer only: kernels use out[0]'s */
    double a, b;
    lk_random_key key;
} lk_random_attrs;

typedef struct lk_cast_attrs { /* (x) → y */
    lk_dtype dtype;
} lk_cast_attrs;

/* copy: (x) → y, x may be on another device; any strides. */

typedef struct lk_view_attrs { /* reshape, transpose (axis0, axis1), slice (axis, begin, end), expand */
    int axis, axis1;
    int64_t begin, end;
} lk_view_attrs;

typedef struct lk_concat_attrs { /* (x0, …, xn-1) → y */
    int axis;                    /* not negative */
} lk_concat_attrs;

/* gather: (x, indices) → y. */

typedef struct lk_prepare_images_attrs { /* (images, indices, epoch, moments or NULL) → y */
    lk_augment_opts opts;                /* center and standardize are ignored: `moments` replaces them */
    uint64_t seed;
} lk_prepare_images_attrs;

/* add, sub, mul, div: (a, b) → y, broadcast. */

/* With the attribute `f32` the result of bf16 operands is f32, not rounded to bf16. Gradients of parameters use it; a
 * call with it has no gradient. */

typedef struct lk_matmul_attrs { /* (a, b) → y */
    bool f32;
} lk_matmul_attrs;

typedef struct lk_dense_act_attrs { /* (x [N, K], w [K, M], bias [M] or NULL) → y = x w + bias */
    bool relu;                      /* y is relu of that sum */
} lk_dense_act_attrs;

/* conv2d: (x, w, bias or NULL) → y; attributes lk_conv2d_opts with every default filled in. */

typedef struct lk_conv2d_grad_attrs {
    lk_conv2d_opts conv;
    int64_t size[4];    /* input_grad: the shape of x; weight_grad: the shape of w */
    bool bias;          /* weight_grad: a second output, the bias' gradient */
    bool f32;           /* weight_grad: of both outputs */
} lk_conv2d_grad_attrs; /* input_grad: (dy, w) → dx.  weight_grad: (dy, x) → dw, dbias */

/* max_pool2d: (x) → y, where; attributes lk_pool2d_opts, defaults filled in. `where` [N, C, H', W'] i32 belongs to the
 * backend: only its own max_pool2d_grad reads it.  avg_pool2d: (x) → y. */

typedef struct lk_pool2d_grad_attrs { /* max: (dy, where) → dx.  avg: (dy) → dx */
    lk_pool2d_opts pool;
    int64_t height, width; /* of x */
} lk_pool2d_grad_attrs;

/* relu_avg_pool2d: (x) → y = avg_pool2d(relu(x)). relu_avg_pool2d_grad: (dy, x) → dx = x > 0 ? avg_pool2d_grad(dy) : 0.
 * Attributes as without relu.
 * relu_max_pool2d: (x) → y = max_pool2d(relu(x)), where. `where`, u8 of y's shape, is the number of the first maximum
 * in its window, in row-major order, or LK_POOL_TAPS if y is not above 0. Windows as of batch_norm_pool.
 * relu_max_pool2d_grad: (dy, where) → dx. */

typedef enum lk_block_pool { LK_BLOCK_NO_POOL, LK_BLOCK_AVG_POOL, LK_BLOCK_MAX_POOL } lk_block_pool;

/* conv_block: (x, w, bias or NULL) → y = pool(relu(conv2d(x, w, bias))), saved. `saved` is u8, of the shape of conv2d's
 * result, and belongs to the backend: only its own conv_block_grad, called with the same attributes, reads it.
 * conv_block_grad: (dy, saved, x, w) → dw, then dbias if `bias`, then dx if `input_grad`.
 * Windows of the pooling must not overlap. The outputs of both are always new tensors. */
typedef struct lk_conv_block_attrs {
    lk_conv2d_opts conv; /* every default filled in; likewise in `pool` */
    lk_pool2d_opts pool;
    lk_block_pool pooling;
    bool relu;
    bool bias, input_grad; /* for the gradient alone */
    bool f32;              /* of dw and dbias */
} lk_conv_block_attrs;

/* relu: (x) → y.  relu_grad: (dy, y) → dx = y > 0 ? dy : 0. */

typedef enum lk_activation_kind {
    LK_ACT_SIGMOID,
    LK_ACT_TANH,
    LK_ACT_LEAKY_RELU,
    LK_ACT_ELU,
    LK_ACT_SILU,
    LK_ACT_GELU,
    LK_ACT_SOFTPLUS,
} lk_activation_kind;

typedef struct lk_activation_attrs { /* (x) → y */
    lk_activation_kind kind;
    double alpha;
} lk_activation_attrs;
/* activation_grad: (dy, x, y) → dx, lk_activation_attrs. The derivatives of sigmoid, y (1 - y), and of tanh, 1 - y^2,
 * are computed from y; the others from x. */

typedef struct lk_dropout_attrs { /* (x, indices) → y; dx is dropout of dy */
    double rate;
    lk_random_key key; /* sample is not used */
} lk_dropout_attrs;

/* Batch normalization: sums are f64 [2, C]; `count` is the number of elements per channel.
 * channel_sums: (x) → sums.  channel_sums_grad: (x, dsums) → dx = dsums[0] + 2 x dsums[1].
 * batch_norm: (x, gamma, beta) → y, sums.
 * batch_norm_grad: (dy, x, gamma, sums) → dx, dgamma, dbeta and, if a fourth output is wanted, Σ dx of each channel.
 * batch_norm_with: (x, gamma, beta, sums) → y.
 * batch_norm_with_grad: (dy, x, gamma, sums) → dx (with sums held constant), dgamma, dbeta, dsums.
 * batch_norm_inference: (x, gamma, beta, mean, variance) → y.
 * batch_norm_inference_grad: (dy, x, gamma, mean, variance) → dx, dgamma, dbeta.
 * batch_norm_act: (x, gamma, beta, residual or NULL) → y = relu(batch_norm(x) + residual), sums. With residual_last
 *   y = relu(batch_norm(x)) + residual, where relu's result is rounded as a result of its own.
 * batch_norm_act_grad: (dy, y, x, gamma, sums) → dx, dgamma, dbeta and, if a fourth output is wanted, dresidual =
 *   y > 0 ? dy : 0. A sixth operand, beta, says that y = relu(batch_norm(x)): a kernel may compute y again, and y may
 *   be NULL. A seventh operand, more, is added to dy first, and the sum rounded as a result of its own; with beta it is
 *   the fourth output. A fifth output is Σ dx of each channel, a sixth one, with beta and more, Σ dresidual.
 * batch_norm_drop: (x, gamma, beta, indices) → y = dropout(relu(batch_norm(x))), sums, kept. relu's result is rounded
 * as a result of its own. `kept` is u8, [N, C or less, …], and belongs to the backend: only its own
 * batch_norm_drop_grad, called with the same attributes, reads it. batch_norm_drop_grad: (dy, kept, x, gamma, sums,
 * beta, indices) → dx, dgamma, dbeta and, if a fourth output is wanted, Σ dx of each channel. dropout's gradient is
 * rounded as a result of its own.
 * batch_norm_pool: (x, gamma, beta, residual or NULL) → y = max_pool2d(batch_norm_act(x, gamma, beta, residual)), sums,
 *   where. batch_norm_act's result is rounded as a result of its own. A residual needs residual_last. `where`, u8 of
 * y's shape, is the number of the first maximum in its window, in row-major order. Windows must not overlap nor have
 *   padding, and have at most LK_POOL_TAPS elements.
 * batch_norm_pool_grad: (dy, where, x, gamma, sums, beta, more or NULL) → dx, dgamma, dbeta, dresidual and, if a fifth
 *   output is wanted, Σ dx of each channel. dresidual is max_pool2d's gradient of dy or, with `more`, of their sum,
 *   rounded as a result of its own.
 * batch_norm_inference_act: (x, gamma, beta, mean, variance, residual or NULL) → y; no
 * gradient. batch_norm_update: (mean, variance, sums, skip or NULL) → mean, variance, in place; uses count and
 * momentum. */
typedef struct lk_batch_norm_attrs {
    int64_t count; /* batch_norm and its gradient: x's own */
    double epsilon, momentum;
    int64_t residual_last; /* batch_norm_act: 1 or 0; as wide as the others, as calls compare attributes byte by byte */
} lk_batch_norm_attrs;

typedef struct lk_batch_norm_drop_attrs {
    lk_batch_norm_attrs norm;
    lk_dropout_attrs drop;
} lk_batch_norm_drop_attrs;

enum { LK_POOL_TAPS = 255 };

typedef struct lk_batch_norm_pool_attrs {
    lk_batch_norm_attrs norm;
    lk_pool2d_opts pool;
} lk_batch_norm_pool_attrs;

/* group_norm: (x, gamma, beta) → y.  group_norm_grad: (dy, x, gamma) → dx, dgamma, dbeta. Attributes lk_group_norm_opts
 * with every default filled in. */

typedef struct lk_reduce_attrs { /* sum, mean, max: (x) → y */
    unsigned axes;               /* bit i: axis i is reduced */
    bool keepdim;
    bool f32; /* sum */
} lk_reduce_attrs;
/* max_grad: (dy, x, y) → dx, lk_reduce_attrs. */

typedef struct lk_axis_attrs { /* argmax, softmax, log_softmax: (x) → y */
    int axis;                  /* not negative */
} lk_axis_attrs;
/* softmax_grad, log_softmax_grad: (dy, y) → dx, lk_axis_attrs. */

typedef struct lk_cross_entropy_attrs { /* (logits, labels) → loss */
    lk_reduction reduction;
    double smoothing;
} lk_cross_entropy_attrs;
/* sparse_softmax_cross_entropy_grad: (dloss, logits, labels) → dlogits, lk_cross_entropy_attrs.
 * sigmoid_cross_entropy: (logits, targets) → loss.  sigmoid_cross_entropy_grad: (dloss, logits, targets) → dlogits. */

/* cross_entropy_step: the loss is the sum over samples, in dloss's dtype. That is the logits', or f32 with logits in
 * bf16; dlogits are then rounded to f32 first, and from there to bf16. */
typedef struct lk_cross_entropy_step_attrs { /* (dloss scalar, logits, labels) → loss, dlogits */
    double smoothing;
    int k; /* if a third output is wanted: f32 scalar, the number of samples in the top k */
} lk_cross_entropy_step_attrs;

typedef struct lk_top_k_attrs { /* (logits, labels) → hits */
    int k;
} lk_top_k_attrs;

typedef struct lk_sgd_attrs { /* (parameter, gradient) → parameter, in place */
    double rate;
} lk_sgd_attrs;
