/* Operators on tensors.
 *
 *     lk_tensor *y = lk_relu(lk_conv2d(x, w, bias, &(lk_conv2d_opts){.stride = {2, 2}, .padding = {1, 1}}));
 *
 * Every operator is asynchronous: it checks its arguments, pushes itself to the device of its operands and returns. The
 * result is a new tensor (see lockstep/tensor.h for its owner), or NULL on failure. All operands must be on one device,
 * unless a comment says otherwise. A function whose name ends in _at takes the line of source that messages name; the
 * macro of the same name without _at fills it in.
 *
 * Errors of all operators: LK_ERR_DEVICE (operands on different devices), LK_ERR_UNSUPPORTED (the device has no kernel
 * for the dtype), LK_ERR_MEMORY; most also give LK_ERR_SHAPE and LK_ERR_DTYPE for operands that do not fit. "Float"
 * means f32, bf16 or f64; kernels compute bf16 in at least f32 and round once. "Gradient: yes" means with respect to
 * every float operand. */
#ifndef LOCKSTEP_OPS_H
#define LOCKSTEP_OPS_H

#include "lockstep/random.h"
#include "lockstep/tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- creation ----------------------------------------------------------------------------------------------------- */

/* A tensor whose elements are all `value`, converted to dtype. */
LK_API lk_tensor *lk_full_at(lk_call_site at, lk_device *device, lk_dtype dtype, lk_shape shape, double value);
#define lk_full(...) lk_full_at(LK_HERE, __VA_ARGS__)
#define lk_zeros(device, dtype, ...) lk_full_at(LK_HERE, device, dtype, __VA_ARGS__, 0.0)
#define lk_ones(device, dtype, ...) lk_full_at(LK_HERE, device, dtype, __VA_ARGS__, 1.0)

/* [count]: element i is start + i * step, computed in double, converted to dtype. Errors: LK_ERR_SHAPE (negative
 * count). */
LK_API lk_tensor *lk_arange_at(lk_call_site at, lk_device *device, lk_dtype dtype, int64_t count, double start,
                               double step);
#define lk_arange(...) lk_arange_at(LK_HERE, __VA_ARGS__)

/* Float. Element i (row-major) is low + (high - low) * u, u = (word i of the key's Philox stream + 0.5) / 2^32. */
LK_API lk_tensor *lk_uniform_at(lk_call_site at, lk_device *device, lk_dtype dtype, lk_shape shape, double low,
                                double high, lk_random_key key);
#define lk_uniform(...) lk_uniform_at(LK_HERE, __VA_ARGS__)

/* Float. Element i is mean + std * z, z by Box and Muller (1958) from words 2 * floor(i / 2) and 2 * floor(i / 2) + 1:
 * r = sqrt(-2 ln u0), even i: r cos(2 pi u1), odd i: r sin(2 pi u1), in double, rounded once. */
LK_API lk_tensor *lk_normal_at(lk_call_site at, lk_device *device, lk_dtype dtype, lk_shape shape, double mean,
                               double std, lk_random_key key);
#define lk_normal(...) lk_normal_at(LK_HERE, __VA_ARGS__)

/* --- copies and views --------------------------------------------------------------------------------------------- */

/* A copy on `device`, which may be the same or another one. Gradient: yes (a copy back). */
LK_API lk_tensor *lk_copy_at(lk_call_site at, lk_tensor *x, lk_device *device);
#define lk_copy(...) lk_copy_at(LK_HERE, __VA_ARGS__)

/* Copies source to destination, which have the same shape and dtype. Devices may differ, and the destination may be a
 * view. Not recorded on a tape. */
LK_API lk_status lk_copy_into_at(lk_call_site at, lk_tensor *destination, lk_tensor *source);
#define lk_copy_into(...) lk_copy_into_at(LK_HERE, __VA_ARGS__)

/* Converts elements to dtype. To float rounds to nearest even; float to integer truncates and saturates, and NaN gives
 * 0; integer to a narrower integer keeps the low bits. Gradient: yes, between float dtypes. */
LK_API lk_tensor *lk_cast_at(lk_call_site at, lk_tensor *x, lk_dtype dtype);
#define lk_cast(...) lk_cast_at(LK_HERE, __VA_ARGS__)

/* Views, which share the storage of x: a write to one shows in the other. Gradient: yes.
 *   reshape    same number of elements; one size may be -1; a view if strides allow it, else a copy
 *   flatten    [N, …] → [N, count / N]
 *   transpose  swaps two axes
 *   slice      elements [begin, end) of an axis
 *   expand     repeats axes of size 1, and new leading axes, to `shape`; read-only
 * Negative axes count from the end. Errors: LK_ERR_SHAPE. */
LK_API lk_tensor *lk_reshape_at(lk_call_site at, lk_tensor *x, lk_shape shape);
LK_API lk_tensor *lk_flatten_at(lk_call_site at, lk_tensor *x);
LK_API lk_tensor *lk_transpose_at(lk_call_site at, lk_tensor *x, int axis0, int axis1);
LK_API lk_tensor *lk_slice_at(lk_call_site at, lk_tensor *x, int axis, int64_t begin, int64_t end);
LK_API lk_tensor *lk_expand_at(lk_call_site at, lk_tensor *x, lk_shape shape);
#define lk_reshape(...) lk_reshape_at(LK_HERE, __VA_ARGS__)
#define lk_flatten(...) lk_flatten_at(LK_HERE, __VA_ARGS__)
#define lk_transpose(...) lk_transpose_at(LK_HERE, __VA_ARGS__)
#define lk_slice(...) lk_slice_at(LK_HERE, __VA_ARGS__)
#define lk_expand(...) lk_expand_at(LK_HERE, __VA_ARGS__)

/* Joins x[0 … n), n at least 1, along `axis`. They have the same dtype and, except for that axis, the same shape.
 * Gradient: yes. */
LK_API lk_tensor *lk_concat_at(lk_call_site at, lk_tensor *const *x, int n, int axis);
#define lk_concat(...) lk_concat_at(LK_HERE, __VA_ARGS__)

/* y[i, …] = x[indices[i], …]: x [N, …] of any dtype, indices i64 [n] → [n, …]. Gradient: no. Errors: LK_ERR_SHAPE,
 * LK_ERR_DTYPE. An index out of range is an asynchronous LK_ERR_ARGUMENT; on GPUs it is no error, but its elements get
 * all bits set, which is NaN or -1. */
LK_API lk_tensor *lk_gather_at(lk_call_site at, lk_tensor *x, lk_tensor *indices);
#define lk_gather(...) lk_gather_at(LK_HERE, __VA_ARGS__)

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

/* Element by element, with NumPy's broadcasting. Both operands have the same dtype, which may be any. Integer division
 * truncates, and by zero gives 0. Gradient: yes. */
LK_API lk_tensor *lk_add_at(lk_call_site at, lk_tensor *a, lk_tensor *b);
LK_API lk_tensor *lk_sub_at(lk_call_site at, lk_tensor *a, lk_tensor *b);
LK_API lk_tensor *lk_mul_at(lk_call_site at, lk_tensor *a, lk_tensor *b);
LK_API lk_tensor *lk_div_at(lk_call_site at, lk_tensor *a, lk_tensor *b);
#define lk_add(...) lk_add_at(LK_HERE, __VA_ARGS__)
#define lk_sub(...) lk_sub_at(LK_HERE, __VA_ARGS__)
#define lk_mul(...) lk_mul_at(LK_HERE, __VA_ARGS__)
#define lk_div(...) lk_div_at(LK_HERE, __VA_ARGS__)

/* x + value and x * value, with the value converted to x's dtype first: 0.5 is 0 for integers. Gradient: yes. */
LK_API lk_tensor *lk_add_scalar_at(lk_call_site at, lk_tensor *x, double value);
LK_API lk_tensor *lk_mul_scalar_at(lk_call_site at, lk_tensor *x, double value);
#define lk_add_scalar(...) lk_add_scalar_at(LK_HERE, __VA_ARGS__)
#define lk_mul_scalar(...) lk_mul_scalar_at(LK_HERE, __VA_ARGS__)

/* Writes a + b to the existing tensor `out`, which may be a or b, or a view. Not recorded on a tape. */
LK_API lk_status lk_add_into_at(lk_call_site at, lk_tensor *out, lk_tensor *a, lk_tensor *b);
#define lk_add_into(...) lk_add_into_at(LK_HERE, __VA_ARGS__)

/* [M, K] · [K, N] → [M, N]. Float, any strides. Gradient: yes. Flops: 2 M N K. */
LK_API lk_tensor *lk_matmul_at(lk_call_site at, lk_tensor *a, lk_tensor *b);
#define lk_matmul(...) lk_matmul_at(LK_HERE, __VA_ARGS__)

/* --- networks ----------------------------------------------------------------------------------------------------- */

typedef struct lk_conv2d_opts { /* pairs: vertical, horizontal; zeroes are the defaults */
    int64_t stride[2];          /* 1 */
    int64_t padding[2];         /* 0; pixels of 0 on both sides */
    int64_t dilation[2];        /* 1 */
    int64_t groups;             /* 1 */
} lk_conv2d_opts;

/* Cross-correlation, which frameworks call convolution.
 * x: [N, C, H, W] float.  w: [O, C / groups, KH, KW].  bias: [O] or NULL.  y: [N, O, H', W'],
 * H' = floor((H + 2 padding - dilation (KH - 1) - 1) / stride) + 1.  Gradient: yes.  Flops: 2 N O H' W' C/groups KH KW.
 * Errors: LK_ERR_SHAPE, LK_ERR_ARGUMENT (an option out of range). */
LK_API lk_tensor *lk_conv2d_at(lk_call_site at, lk_tensor *x, lk_tensor *w, lk_tensor *bias,
                               const lk_conv2d_opts *opts);
#define lk_conv2d(...) lk_conv2d_at(LK_HERE, __VA_ARGS__)

typedef struct lk_pool2d_opts {
    int64_t kernel[2];      /* required */
    int64_t stride[2];      /* 0: the size of the kernel */
    int64_t padding[2];     /* at most half the kernel */
    bool count_include_pad; /* average: always divide by the size of the kernel, even at the edge; else by the pixels
                               inside */
} lk_pool2d_opts;

/* The maximum or mean of windows. x: [N, C, H, W] float → [N, C, H', W'], H' = floor((H + 2 padding - kernel) / stride)
 * + 1. Gradient: yes; that of the maximum goes to the first one of a window in row-major order. Errors: LK_ERR_SHAPE
 * (also a maximum in planes of 2^31 pixels or more), LK_ERR_ARGUMENT (an option out of range). */
LK_API lk_tensor *lk_max_pool2d_at(lk_call_site at, lk_tensor *x, const lk_pool2d_opts *opts);
LK_API lk_tensor *lk_avg_pool2d_at(lk_call_site at, lk_tensor *x, const lk_pool2d_opts *opts);
#define lk_max_pool2d(...) lk_max_pool2d_at(LK_HERE, __VA_ARGS__)
#define lk_avg_pool2d(...) lk_avg_pool2d_at(LK_HERE, __VA_ARGS__)

/* The maximum and the mean of each channel (Lin, Chen, Yan 2014): [N, C, H, W] float → [N, C, 1, 1]. Gradient: yes, as
 * for windows. */
LK_API lk_tensor *lk_global_max_pool2d_at(lk_call_site at, lk_tensor *x);
LK_API lk_tensor *lk_global_avg_pool2d_at(lk_call_site at, lk_tensor *x);
#define lk_global_max_pool2d(...) lk_global_max_pool2d_at(LK_HERE, __VA_ARGS__)
#define lk_global_avg_pool2d(...) lk_global_avg_pool2d_at(LK_HERE, __VA_ARGS__)

/* max(x, 0) (Nair, Hinton 2010); NaN stays NaN. Float. Gradient: yes (0 at 0). */
LK_API lk_tensor *lk_relu_at(lk_call_site at, lk_tensor *x);
#define lk_relu(...) lk_relu_at(LK_HERE, __VA_ARGS__)

/* Other activations, element by element; alpha as named. Float. Gradient: yes. Errors: LK_ERR_ARGUMENT (alpha).
 *   sigmoid     1 / (1 + e^-x)
 *   tanh        (e^x - e^-x) / (e^x + e^-x)
 *   leaky_relu  x > 0 ? x : alpha x               (Maas, Hannun, Ng 2013)
 *   elu         x > 0 ? x : alpha (e^x - 1)       (Clevert, Unterthiner, Hochreiter 2016)
 *   silu        x sigmoid(x)                      (Hendrycks, Gimpel 2016; as "swish" Ramachandran, Zoph, Le 2017)
 *   gelu        x Phi(x), Phi(x) = (1 + erf(x / sqrt(2))) / 2, not the approximation by tanh (Hendrycks, Gimpel 2016)
 *   softplus    ln(1 + e^x)                       (Dugas et al. 2001) */
LK_API lk_tensor *lk_sigmoid_at(lk_call_site at, lk_tensor *x);
LK_API lk_tensor *lk_tanh_at(lk_call_site at, lk_tensor *x);
LK_API lk_tensor *lk_leaky_relu_at(lk_call_site at, lk_tensor *x, double alpha);
LK_API lk_tensor *lk_elu_at(lk_call_site at, lk_tensor *x, double alpha);
LK_API lk_tensor *lk_silu_at(lk_call_site at, lk_tensor *x);
LK_API lk_tensor *lk_gelu_at(lk_call_site at, lk_tensor *x);
LK_API lk_tensor *lk_softplus_at(lk_call_site at, lk_tensor *x);
#define lk_sigmoid(...) lk_sigmoid_at(LK_HERE, __VA_ARGS__)
#define lk_tanh(...) lk_tanh_at(LK_HERE, __VA_ARGS__)
#define lk_leaky_relu(...) lk_leaky_relu_at(LK_HERE, __VA_ARGS__)
#define lk_elu(...) lk_elu_at(LK_HERE, __VA_ARGS__)
#define lk_silu(...) lk_silu_at(LK_HERE, __VA_ARGS__)
#define lk_gelu(...) lk_gelu_at(LK_HERE, __VA_ARGS__)
#define lk_softplus(...) lk_softplus_at(LK_HERE, __VA_ARGS__)

/* y = x / (1 - rate) for elements that are kept, else 0; 0 <= rate < 1 (Srivastava et al. 2014, scaled in training as
 * frameworks do). 1 / (1 - rate) and the product are computed in double; the product is rounded to x's dtype, for
 * bf16 to f32 before. x: [N, …] float. indices: i64 [N], numbers of the samples in the data set. Element e of sample n,
 * counted in row-major order whatever the layout, is kept if word e of the Philox stream (key.seed, key.purpose,
 * key.epoch, sample = indices[n]) is not below rate 2^32; key.sample is not used. Gradient: with respect to x, the same
 * operation on dy. Errors: LK_ERR_ARGUMENT (rate; an index outside [0, 2^32), which is an asynchronous error; on GPUs
 * and devices of a plug-in such a sample becomes NaN). */
LK_API lk_tensor *lk_dropout_at(lk_call_site at, lk_tensor *x, lk_tensor *indices, double rate, lk_random_key key);
#define lk_dropout(...) lk_dropout_at(LK_HERE, __VA_ARGS__)

/* --- batch normalization ----------------------------------------------------------------------------------------- *
 *
 * x: [N, C, …] float; axis 1 is the channel. sums: f64 [2, C], the sum s1 of a channel's elements and the sum s2 of
 * their squares, in double, so that rounding does not matter for f32 unless the mean is more than 10^5 times the
 * deviation; for f64, y loses as many digits as the squared mean has more than the variance. Sums of several shards can
 * be added. With n elements per channel, mean = s1 / n and variance = s2 / n - mean^2, at least 0. gamma, beta, running
 * mean and variance: [C], of x's dtype or, if x is bf16, f32. */

/* The sums of x. Gradient: yes. */
LK_API lk_tensor *lk_channel_sums_at(lk_call_site at, lk_tensor *x);
#define lk_channel_sums(...) lk_channel_sums_at(LK_HERE, __VA_ARGS__)

/* y = gamma (x - mean) / sqrt(variance + epsilon) + beta with the statistics of x (Ioffe, Szegedy 2015). *sums becomes
 * a new tensor with its sums (NULL: not wanted); lk_tape_gradient fails if a gradient would pass through it. Gradient:
 * x, gamma, beta, including the dependence of the statistics on x. Errors: LK_ERR_ARGUMENT (epsilon negative). */
LK_API lk_tensor *lk_batch_norm_at(lk_call_site at, lk_tensor *x, lk_tensor *gamma, lk_tensor *beta, double epsilon,
                                   lk_tensor **sums);
#define lk_batch_norm(...) lk_batch_norm_at(LK_HERE, __VA_ARGS__)

/* The same with given sums over `count` elements per channel. Gradient: x (for constant sums), gamma, beta, sums; the
 * gradient of lk_channel_sums adds the dependence of the sums on x. Errors: LK_ERR_ARGUMENT (count below 1). */
LK_API lk_tensor *lk_batch_norm_with_at(lk_call_site at, lk_tensor *x, lk_tensor *gamma, lk_tensor *beta,
                                        lk_tensor *sums, int64_t count, double epsilon);
#define lk_batch_norm_with(...) lk_batch_norm_with_at(LK_HERE, __VA_ARGS__)

/* The same with given mean and variance, for inference. Gradient: x, gamma, beta. */
LK_API lk_tensor *lk_batch_norm_inference_at(lk_call_site at, lk_tensor *x, lk_tensor *gamma, lk_tensor *beta,
                                             lk_tensor *mean, lk_tensor *variance, double epsilon);
#define lk_batch_norm_inference(...) lk_batch_norm_inference_at(LK_HERE, __VA_ARGS__)

/* Updates running statistics: mean = (1 - momentum) mean + momentum s1 / count, and likewise variance with the unbiased
 * variance, count / (count - 1) times the biased one (count 1: the biased one). In place; f32 or f64. It is computed in
 * double and rounded once, in this order, so that every kind of device gives the same bits:
 *   m = s1 / count;  v = s2 / count - m m, not below 0;  u = v (count / (count - 1));
 *   mean = (1 - momentum) mean + momentum m;  variance = (1 - momentum) variance + momentum u.
 * So a statistic that became infinite or NaN stays NaN, even with momentum 1. skip: f32 scalar; if it is not 0, nothing
 * changes; NULL: always update. Not recorded on a tape. Errors: LK_ERR_ARGUMENT (count below 1, momentum below 0 or
 * above 1). */
LK_API lk_status lk_batch_norm_update_at(lk_call_site at, lk_tensor *mean, lk_tensor *variance, lk_tensor *sums,
                                         int64_t count, double momentum, lk_tensor *skip);
#define lk_batch_norm_update(...) lk_batch_norm_update_at(LK_HERE, __VA_ARGS__)

typedef struct lk_group_norm_opts {
    int64_t groups;  /* 0: 1; must divide C */
    bool each_pixel; /* statistics of each pixel alone, otherwise of all pixels of a sample */
    double epsilon;  /* 0: 1e-5 */
} lk_group_norm_opts;

/* y = gamma (x - mean) / sqrt(variance + epsilon) + beta, with mean and biased variance of each sample and group of
 * neighboring channels: group normalization (Wu, He 2018). With one group this is layer normalization (Ba et al. 2016)
 * over [C, …]; with each_pixel as well, over the channels of each pixel, as ConvNeXt has it. x: [N, C, …] float. gamma,
 * beta: [C], of x's dtype or, if x is bf16, f32. Gradient: x, gamma, beta. Errors: LK_ERR_SHAPE, LK_ERR_DTYPE,
 * LK_ERR_ARGUMENT (groups that do not divide C, epsilon negative). */
LK_API lk_tensor *lk_group_norm_at(lk_call_site at, lk_tensor *x, lk_tensor *gamma, lk_tensor *beta,
                                   const lk_group_norm_opts *opts);
#define lk_group_norm(...) lk_group_norm_at(LK_HERE, __VA_ARGS__)

/* --- reductions --------------------------------------------------------------------------------------------------- */

typedef struct lk_reduce_opts {
    int n_axes;            /* 0: all axes */
    int axes[LK_MAX_DIMS]; /* negative ones count from the end */
    bool keepdim;          /* keep reduced axes, with size 1 */
} lk_reduce_opts;

/* Sum, mean or maximum over axes; opts NULL: over all. sum takes any dtype, and an empty sum is 0. mean takes floats,
 * max floats and integers; over no elements they fail with LK_ERR_SHAPE. Gradient: yes, for floats; that of max goes to
 * the first maximum. */
LK_API lk_tensor *lk_sum_at(lk_call_site at, lk_tensor *x, const lk_reduce_opts *opts);
LK_API lk_tensor *lk_mean_at(lk_call_site at, lk_tensor *x, const lk_reduce_opts *opts);
LK_API lk_tensor *lk_max_at(lk_call_site at, lk_tensor *x, const lk_reduce_opts *opts);
#define lk_sum(...) lk_sum_at(LK_HERE, __VA_ARGS__)
#define lk_mean(...) lk_mean_at(LK_HERE, __VA_ARGS__)
#define lk_max(...) lk_max_at(LK_HERE, __VA_ARGS__)

/* The i64 index of the first maximum along `axis`, which is removed. NaN counts as the maximum, as in NumPy. */
LK_API lk_tensor *lk_argmax_at(lk_call_site at, lk_tensor *x, int axis);
#define lk_argmax(...) lk_argmax_at(LK_HERE, __VA_ARGS__)

/* x: [.., N, ..] float, any strides.  softmax: exp(x - max) / sum exp(x - max) along `axis` (Bridle 1990; subtracting
 * the maximum avoids overflow).  log_softmax: its logarithm, x - max - log sum exp(x - max). Gradient: yes. */
LK_API lk_tensor *lk_softmax_at(lk_call_site at, lk_tensor *x, int axis);
LK_API lk_tensor *lk_log_softmax_at(lk_call_site at, lk_tensor *x, int axis);
#define lk_softmax(...) lk_softmax_at(LK_HERE, __VA_ARGS__)
#define lk_log_softmax(...) lk_log_softmax_at(LK_HERE, __VA_ARGS__)

typedef enum lk_reduction { LK_REDUCTION_NONE, LK_REDUCTION_SUM, LK_REDUCTION_MEAN } lk_reduction;

/* Cross-entropy of softmax.  logits: [N, C] float.  labels: [N] i32 or i64, in [0, C).  Result: -log_softmax(logits)[i,
 * labels[i]], [N] of the logits' dtype, or its sum or mean as a scalar.  Gradient: with respect to the logits, softmax
 * - onehot. Errors: LK_ERR_SHAPE, LK_ERR_DTYPE. A label out of range is an asynchronous LK_ERR_ARGUMENT that names it;
 * on GPUs, whose kernels cannot fail, the sample's loss and gradient are NaN. Data sets check their labels when they
 * are opened. */
LK_API lk_tensor *lk_sparse_softmax_cross_entropy_at(lk_call_site at, lk_tensor *logits, lk_tensor *labels,
                                                     lk_reduction reduction);
#define lk_sparse_softmax_cross_entropy(...) lk_sparse_softmax_cross_entropy_at(LK_HERE, __VA_ARGS__)

/* The same against labels smoothed by `smoothing`, 0 <= smoothing <= 1: (1 - smoothing) onehot + smoothing / C (Szegedy
 * et al. 2016). Errors also: LK_ERR_ARGUMENT (smoothing). */
LK_API lk_tensor *lk_smoothed_cross_entropy_at(lk_call_site at, lk_tensor *logits, lk_tensor *labels, double smoothing,
                                               lk_reduction reduction);
#define lk_smoothed_cross_entropy(...) lk_smoothed_cross_entropy_at(LK_HERE, __VA_ARGS__)

/* Binary cross-entropy, element by element: -t ln sigmoid(z) - (1 - t) ln(1 - sigmoid(z)) for logits z and targets t in
 * [0, 1], same shape, float; computed as max(z, 0) - z t + ln(1 + e^-|z|), as TensorFlow's
 * sigmoid_cross_entropy_with_logits. Gradient: yes; to the logits sigmoid(z) - t, to the targets -z. */
LK_API lk_tensor *lk_sigmoid_cross_entropy_at(lk_call_site at, lk_tensor *logits, lk_tensor *targets);
#define lk_sigmoid_cross_entropy(...) lk_sigmoid_cross_entropy_at(LK_HERE, __VA_ARGS__)

/* Tells whether labels are among the k likeliest classes.  logits: [N, C] float.  labels: [N] i32 or i64.  Result: [N]
 * f32, 1 if fewer than k logits of the row are greater than the label's, or equal to it and before it; else 0. NaN
 * counts as greater than every number. So k = 1 is argmax == label, and ties do not depend on sorting. Gradient: no.
 * Errors: LK_ERR_SHAPE, LK_ERR_DTYPE, LK_ERR_ARGUMENT (k below 1 or above C). A label out of range is an asynchronous
 * LK_ERR_ARGUMENT that names it; on GPUs its result is NaN. */
LK_API lk_tensor *lk_in_top_k_at(lk_call_site at, lk_tensor *logits, lk_tensor *labels, int k);
#define lk_in_top_k(...) lk_in_top_k_at(LK_HERE, __VA_ARGS__)

/* --- updates ------------------------------------------------------------------------------------------------------ */

/* parameter = parameter - rate * gradient, in place: one rounded multiplication, one rounded subtraction, f32 or f64.
 * Not recorded on a tape. */
LK_API lk_status lk_sgd_update_at(lk_call_site at, lk_tensor *parameter, lk_tensor *gradient, double rate);
#define lk_sgd_update(...) lk_sgd_update_at(LK_HERE, __VA_ARGS__)

/* --- advanced: the list of operators ------------------------------------------------------------------------------ */

/* The name of operator number `op`, "conv2d", static, NULL past the end; whether it makes views; whether it has a
 * gradient. */
LK_API const char *lk_op_name(int op);
LK_API bool lk_op_is_view(int op);
LK_API bool lk_op_is_differentiable(int op);

/* The kernels that run `op` for `dtype` on devices of `kind`: "cpu" (oneDNN and loops of this library, see
 * lk_device_implementations), "c" (plain C); NULL: none. Static. */
LK_API const char *lk_op_implementation(int op, const char *kind, lk_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
