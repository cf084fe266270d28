/* Operators. Each is asynchronous: it checks its arguments, pushes itself to the device of its operands and returns.
 *
 * The functions end in _at and take the place that asked; the macro of the same name without _at fills it in. All
 * operands of an operator live on one device, unless it says otherwise. Result: a new tensor (see tensor.h for who owns
 * it), or NULL with lk_error_message().
 * Errors of all: LK_ERR_DEVICE (operands on different devices), LK_ERR_UNSUPPORTED (no kernel for the dtype on this
 * device), LK_ERR_MEMORY. "Float" means f32, bf16 or f64; a kernel computes bf16 in at least f32 and rounds once.
 * "Gradient: yes" means with respect to every float operand. */
#ifndef LOCKSTEP_OPS_H
#define LOCKSTEP_OPS_H

#include "lockstep/random.h"
#include "lockstep/tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- creation ---------------------------------------------------------------------------------------------------- */

/* All elements `value`, converted to dtype. */
LK_API lk_tensor *lk_full_at(lk_place at, lk_device *device, lk_dtype dtype, lk_shape shape, double value);
#define lk_full(...) lk_full_at(LK_HERE, __VA_ARGS__)
#define lk_zeros(device, dtype, ...) lk_full_at(LK_HERE, device, dtype, __VA_ARGS__, 0.0)
#define lk_ones(device, dtype, ...) lk_full_at(LK_HERE, device, dtype, __VA_ARGS__, 1.0)

/* [count]: start + i * step, in double, converted to dtype. Errors: LK_ERR_SHAPE (negative count). */
LK_API lk_tensor *lk_arange_at(lk_place at, lk_device *device, lk_dtype dtype, int64_t count, double start,
                               double step);
#define lk_arange(...) lk_arange_at(LK_HERE, __VA_ARGS__)

/* Float. Element i (row-major) is low + (high - low) * u, u = (word i of the key's Philox stream + 0.5) / 2^32. */
LK_API lk_tensor *lk_uniform_at(lk_place at, lk_device *device, lk_dtype dtype, lk_shape shape, double low, double high,
                                lk_random_key key);
#define lk_uniform(...) lk_uniform_at(LK_HERE, __VA_ARGS__)

/* Float. Element i is mean + std * z, z by Box and Muller (1958) from words 2 * floor(i / 2) and 2 * floor(i / 2) + 1:
 * r = sqrt(-2 ln u0), even i: r cos(2 pi u1), odd i: r sin(2 pi u1), in double, rounded once. */
LK_API lk_tensor *lk_normal_at(lk_place at, lk_device *device, lk_dtype dtype, lk_shape shape, double mean, double std,
                               lk_random_key key);
#define lk_normal(...) lk_normal_at(LK_HERE, __VA_ARGS__)

/* --- copies and views -------------------------------------------------------------------------------------------- */

/* A copy on `device`, which may be another one. Gradient: yes (a copy back). */
LK_API lk_tensor *lk_copy_at(lk_place at, lk_tensor *x, lk_device *device);
#define lk_copy(...) lk_copy_at(LK_HERE, __VA_ARGS__)

/* destination[…] = source: same shape and dtype, devices may differ, destination may be a view. Not recorded on a tape.
 */
LK_API lk_status lk_copy_into_at(lk_place at, lk_tensor *destination, lk_tensor *source);
#define lk_copy_into(...) lk_copy_into_at(LK_HERE, __VA_ARGS__)

/* Elements converted to dtype: to float rounds to nearest even, float to integer truncates and saturates, NaN gives 0.
 * Gradient: yes, between float dtypes. */
LK_API lk_tensor *lk_cast_at(lk_place at, lk_tensor *x, lk_dtype dtype);
#define lk_cast(...) lk_cast_at(LK_HERE, __VA_ARGS__)

/* Views: they share x's storage; writing to one shows in the other. All: Gradient: yes.
 * reshape: same count; one size may be -1; a view where strides allow it, else a copy.
 * flatten: [N, …] → [N, count / N]. transpose: swaps two axes. slice: elements [begin, end) of an axis.
 * expand: sizes of 1, and new leading ones, repeat to `shape` (read-only).
 * Negative axes count from the end. Errors: LK_ERR_SHAPE. */
LK_API lk_tensor *lk_reshape_at(lk_place at, lk_tensor *x, lk_shape shape);
LK_API lk_tensor *lk_flatten_at(lk_place at, lk_tensor *x);
LK_API lk_tensor *lk_transpose_at(lk_place at, lk_tensor *x, int axis0, int axis1);
LK_API lk_tensor *lk_slice_at(lk_place at, lk_tensor *x, int axis, int64_t begin, int64_t end);
LK_API lk_tensor *lk_expand_at(lk_place at, lk_tensor *x, lk_shape shape);
#define lk_reshape(...) lk_reshape_at(LK_HERE, __VA_ARGS__)
#define lk_flatten(...) lk_flatten_at(LK_HERE, __VA_ARGS__)
#define lk_transpose(...) lk_transpose_at(LK_HERE, __VA_ARGS__)
#define lk_slice(...) lk_slice_at(LK_HERE, __VA_ARGS__)
#define lk_expand(...) lk_expand_at(LK_HERE, __VA_ARGS__)

/* x[0 … n) joined along `axis`; shapes equal but for that axis, same dtype. n at least 1. Gradient: yes. */
LK_API lk_tensor *lk_concat_at(lk_place at, lk_tensor *const *x, int n, int axis);
#define lk_concat(...) lk_concat_at(LK_HERE, __VA_ARGS__)

/* y[i, …] = x[indices[i], …]: x [N, …] of any dtype, indices i64 [n] → [n, …]. Gradient: no. Errors: LK_ERR_SHAPE,
 * LK_ERR_DTYPE; an index out of range is asynchronous, and on devices that work by themselves no error: its elements
 * have every bit set, which is NaN, or -1. */
LK_API lk_tensor *lk_gather_at(lk_place at, lk_tensor *x, lk_tensor *indices);
#define lk_gather(...) lk_gather_at(LK_HERE, __VA_ARGS__)

/* --- arithmetic -------------------------------------------------------------------------------------------------- */

/* Element by element with NumPy's broadcasting; same dtype, any dtype; integer division truncates, by zero gives 0.
 * Gradient: yes. */
LK_API lk_tensor *lk_add_at(lk_place at, lk_tensor *a, lk_tensor *b);
LK_API lk_tensor *lk_sub_at(lk_place at, lk_tensor *a, lk_tensor *b);
LK_API lk_tensor *lk_mul_at(lk_place at, lk_tensor *a, lk_tensor *b);
LK_API lk_tensor *lk_div_at(lk_place at, lk_tensor *a, lk_tensor *b);
#define lk_add(...) lk_add_at(LK_HERE, __VA_ARGS__)
#define lk_sub(...) lk_sub_at(LK_HERE, __VA_ARGS__)
#define lk_mul(...) lk_mul_at(LK_HERE, __VA_ARGS__)
#define lk_div(...) lk_div_at(LK_HERE, __VA_ARGS__)

/* x + value and x * value. Gradient: yes. */
LK_API lk_tensor *lk_add_scalar_at(lk_place at, lk_tensor *x, double value);
LK_API lk_tensor *lk_mul_scalar_at(lk_place at, lk_tensor *x, double value);
#define lk_add_scalar(...) lk_add_scalar_at(LK_HERE, __VA_ARGS__)
#define lk_mul_scalar(...) lk_mul_scalar_at(LK_HERE, __VA_ARGS__)

/* out = a + b into an existing tensor, which may be a or b, or a view. Not recorded on a tape. */
LK_API lk_status lk_add_into_at(lk_place at, lk_tensor *out, lk_tensor *a, lk_tensor *b);
#define lk_add_into(...) lk_add_into_at(LK_HERE, __VA_ARGS__)

/* [M, K] · [K, N] → [M, N]. Float, any strides. Gradient: yes. Flops: 2 M N K. */
LK_API lk_tensor *lk_matmul_at(lk_place at, lk_tensor *a, lk_tensor *b);
#define lk_matmul(...) lk_matmul_at(LK_HERE, __VA_ARGS__)

/* --- networks ---------------------------------------------------------------------------------------------------- */

typedef struct lk_conv2d_opts { /* vertical, horizontal; zero means the default */
    int64_t stride[2];          /* 1 */
    int64_t padding[2];         /* 0, on both sides */
    int64_t dilation[2];        /* 1 */
    int64_t groups;             /* 1 */
} lk_conv2d_opts;

/* Cross-correlation, as every framework's "convolution".
 * x: [N, C, H, W] float.  w: [O, C / groups, KH, KW].  bias: [O] or NULL.  y: [N, O, H', W'],
 * H' = floor((H + 2 padding - dilation (KH - 1) - 1) / stride) + 1.  Gradient: yes.  Flops: 2 N O H' W' C/groups KH KW.
 * Errors: LK_ERR_SHAPE, LK_ERR_ARGUMENT (an option out of range). */
LK_API lk_tensor *lk_conv2d_at(lk_place at, lk_tensor *x, lk_tensor *w, lk_tensor *bias, const lk_conv2d_opts *opts);
#define lk_conv2d(...) lk_conv2d_at(LK_HERE, __VA_ARGS__)

typedef struct lk_pool2d_opts {
    int64_t kernel[2];      /* required */
    int64_t stride[2];      /* zero: the kernel's size */
    int64_t padding[2];     /* at most half the kernel */
    bool count_include_pad; /* average: divide by the kernel's size also where it hangs over the edge */
} lk_pool2d_opts;

/* x: [N, C, H, W] float → [N, C, H', W'], H' = floor((H + 2 padding - kernel) / stride) + 1.  Gradient: yes; max
 * pooling sends it to the first maximum of a window in row-major order. */
LK_API lk_tensor *lk_max_pool2d_at(lk_place at, lk_tensor *x, const lk_pool2d_opts *opts);
LK_API lk_tensor *lk_avg_pool2d_at(lk_place at, lk_tensor *x, const lk_pool2d_opts *opts);
#define lk_max_pool2d(...) lk_max_pool2d_at(LK_HERE, __VA_ARGS__)
#define lk_avg_pool2d(...) lk_avg_pool2d_at(LK_HERE, __VA_ARGS__)

/* The maximum and the mean of each channel (Lin, Chen, Yan 2014): [N, C, H, W] float → [N, C, 1, 1]. Gradient: yes; as
 * of windows. */
LK_API lk_tensor *lk_global_max_pool2d_at(lk_place at, lk_tensor *x);
LK_API lk_tensor *lk_global_avg_pool2d_at(lk_place at, lk_tensor *x);
#define lk_global_max_pool2d(...) lk_global_max_pool2d_at(LK_HERE, __VA_ARGS__)
#define lk_global_avg_pool2d(...) lk_global_avg_pool2d_at(LK_HERE, __VA_ARGS__)

/* max(x, 0) (Nair, Hinton 2010); NaN stays NaN. Float. Gradient: yes (0 at 0). */
LK_API lk_tensor *lk_relu_at(lk_place at, lk_tensor *x);
#define lk_relu(...) lk_relu_at(LK_HERE, __VA_ARGS__)

/* Other activations, element by element; alpha as named. Float. Gradient: yes. Errors: LK_ERR_ARGUMENT (alpha).
 *   sigmoid     1 / (1 + e^-x)
 *   tanh        (e^x - e^-x) / (e^x + e^-x)
 *   leaky_relu  x > 0 ? x : alpha x               (Maas, Hannun, Ng 2013)
 *   elu         x > 0 ? x : alpha (e^x - 1)       (Clevert, Unterthiner, Hochreiter 2016)
 *   silu        x sigmoid(x)                      (Hendrycks, Gimpel 2016; as "swish" Ramachandran, Zoph, Le 2017)
 *   gelu        x Phi(x), Phi(x) = (1 + erf(x / sqrt(2))) / 2, not the approximation by tanh (Hendrycks, Gimpel 2016)
 *   softplus    ln(1 + e^x)                       (Dugas et al. 2001) */
LK_API lk_tensor *lk_sigmoid_at(lk_place at, lk_tensor *x);
LK_API lk_tensor *lk_tanh_at(lk_place at, lk_tensor *x);
LK_API lk_tensor *lk_leaky_relu_at(lk_place at, lk_tensor *x, double alpha);
LK_API lk_tensor *lk_elu_at(lk_place at, lk_tensor *x, double alpha);
LK_API lk_tensor *lk_silu_at(lk_place at, lk_tensor *x);
LK_API lk_tensor *lk_gelu_at(lk_place at, lk_tensor *x);
LK_API lk_tensor *lk_softplus_at(lk_place at, lk_tensor *x);
#define lk_sigmoid(...) lk_sigmoid_at(LK_HERE, __VA_ARGS__)
#define lk_tanh(...) lk_tanh_at(LK_HERE, __VA_ARGS__)
#define lk_leaky_relu(...) lk_leaky_relu_at(LK_HERE, __VA_ARGS__)
#define lk_elu(...) lk_elu_at(LK_HERE, __VA_ARGS__)
#define lk_silu(...) lk_silu_at(LK_HERE, __VA_ARGS__)
#define lk_gelu(...) lk_gelu_at(LK_HERE, __VA_ARGS__)
#define lk_softplus(...) lk_softplus_at(LK_HERE, __VA_ARGS__)

/* y = keep ? x s : 0 for each element with s = 1 / (1 - rate), 0 <= rate < 1 (Srivastava et al. 2014, scaled in
 * training as frameworks do). s and the product are computed in double; the product is rounded once. x: [N, …] float;
 * indices: i64 [N], the samples' numbers in the data set. Element e (row-major within its sample n, logical order
 * whatever the layout) is kept where word e of the Philox stream (key.seed, key.purpose, key.epoch, sample =
 * indices[n]) is not below rate 2^32; key.sample is not used. Gradient: with respect to x, the same of dy. Errors:
 * LK_ERR_ARGUMENT (rate; an index that is not in [0, 2^32), named when the result is waited for). */
LK_API lk_tensor *lk_dropout_at(lk_place at, lk_tensor *x, lk_tensor *indices, double rate, lk_random_key key);
#define lk_dropout(...) lk_dropout_at(LK_HERE, __VA_ARGS__)

/* --- batch normalisation ----------------------------------------------------------------------------------------- *
 *
 * Axis 1 of x: [N, C, …] float is the channel. `sums` is f64 [2, C]: the sum of a channel's elements and of their
 * squares, summed in double (rounding is then out of the question also where the mean is large against the deviation),
 * so that sums of several shards can simply be added. With n elements a channel: mean = s1 / n, variance = s2 / n -
 * mean^2, not below 0. gamma, beta, running mean and variance: [C], of x's dtype or, where x is bf16, f32. */

/* sums of x. Gradient: yes. */
LK_API lk_tensor *lk_channel_sums_at(lk_place at, lk_tensor *x);
#define lk_channel_sums(...) lk_channel_sums_at(LK_HERE, __VA_ARGS__)

/* y = gamma (x - mean) / sqrt(variance + epsilon) + beta with the statistics of x itself (Ioffe and Szegedy 2015).
 * *sums receives them, a new tensor (NULL: not wanted); a gradient that would pass through it is an error of the walk
 * back. Gradient: x, gamma, beta, the statistics' dependence on x included. Errors: LK_ERR_ARGUMENT (epsilon negative).
 */
LK_API lk_tensor *lk_batch_norm_at(lk_place at, lk_tensor *x, lk_tensor *gamma, lk_tensor *beta, double epsilon,
                                   lk_tensor **sums);
#define lk_batch_norm(...) lk_batch_norm_at(LK_HERE, __VA_ARGS__)

/* The same with given sums over `count` elements a channel. Gradient: x (as it stands here, without what it does to
 * sums), gamma, beta, sums; with lk_channel_sums' own that completes it. Errors: LK_ERR_ARGUMENT (count below 1). */
LK_API lk_tensor *lk_batch_norm_with_at(lk_place at, lk_tensor *x, lk_tensor *gamma, lk_tensor *beta, lk_tensor *sums,
                                        int64_t count, double epsilon);
#define lk_batch_norm_with(...) lk_batch_norm_with_at(LK_HERE, __VA_ARGS__)

/* The same with given mean and variance, as in inference. Gradient: x, gamma, beta. */
LK_API lk_tensor *lk_batch_norm_inference_at(lk_place at, lk_tensor *x, lk_tensor *gamma, lk_tensor *beta,
                                             lk_tensor *mean, lk_tensor *variance, double epsilon);
#define lk_batch_norm_inference(...) lk_batch_norm_inference_at(LK_HERE, __VA_ARGS__)

/* mean = (1 - momentum) mean + momentum s1 / count; variance likewise with the unbiased variance, count / (count - 1)
 * times the biased one (count 1: the biased one). In place; f32 or f64, computed in double and rounded once, in this
 * order, so that every kind of device gets the same bits:
 *   m = s1 / count;  v = s2 / count - m m, not below 0;  u = v (count / (count - 1));
 *   mean = (1 - momentum) mean + momentum m;  variance = (1 - momentum) variance + momentum u.
 * `skip`: f32 scalar; where it is not 0 nothing changes; NULL: never. Not recorded on a tape.
 * Errors: LK_ERR_ARGUMENT (count below 1, momentum outside [0, 1]). */
LK_API lk_status lk_batch_norm_update_at(lk_place at, lk_tensor *mean, lk_tensor *variance, lk_tensor *sums,
                                         int64_t count, double momentum, lk_tensor *skip);
#define lk_batch_norm_update(...) lk_batch_norm_update_at(LK_HERE, __VA_ARGS__)

/* --- reductions -------------------------------------------------------------------------------------------------- */

typedef struct lk_reduce_opts {
    int n_axes;            /* 0: all axes */
    int axes[LK_MAX_DIMS]; /* negative ones count from the end */
    bool keepdim;          /* leave reduced axes as sizes of 1 */
} lk_reduce_opts;

/* NULL opts: over all axes. sum: any dtype, an empty sum is 0. mean and max: float and, for max, integers; over nothing
 * they are LK_ERR_SHAPE. Gradient: yes, for floats; max sends it to the first maximum. */
LK_API lk_tensor *lk_sum_at(lk_place at, lk_tensor *x, const lk_reduce_opts *opts);
LK_API lk_tensor *lk_mean_at(lk_place at, lk_tensor *x, const lk_reduce_opts *opts);
LK_API lk_tensor *lk_max_at(lk_place at, lk_tensor *x, const lk_reduce_opts *opts);
#define lk_sum(...) lk_sum_at(LK_HERE, __VA_ARGS__)
#define lk_mean(...) lk_mean_at(LK_HERE, __VA_ARGS__)
#define lk_max(...) lk_max_at(LK_HERE, __VA_ARGS__)

/* i64 index of the first maximum along `axis`, which disappears. A NaN counts as the maximum, as in NumPy. */
LK_API lk_tensor *lk_argmax_at(lk_place at, lk_tensor *x, int axis);
#define lk_argmax(...) lk_argmax_at(LK_HERE, __VA_ARGS__)

/* x: [.., N, ..] float, any strides.  y = exp(x - max) / sum exp(x - max) along `axis` (Bridle 1990; the maximum is
 * taken off so that nothing overflows); log_softmax its logarithm, computed as x - max - log sum exp(x - max).
 * Gradient: yes. */
LK_API lk_tensor *lk_softmax_at(lk_place at, lk_tensor *x, int axis);
LK_API lk_tensor *lk_log_softmax_at(lk_place at, lk_tensor *x, int axis);
#define lk_softmax(...) lk_softmax_at(LK_HERE, __VA_ARGS__)
#define lk_log_softmax(...) lk_log_softmax_at(LK_HERE, __VA_ARGS__)

typedef enum lk_reduction { LK_REDUCTION_NONE, LK_REDUCTION_SUM, LK_REDUCTION_MEAN } lk_reduction;

/* logits: [N, C] float.  labels: [N] i32 or i64, in [0, C).  loss: -log_softmax(logits)[i, labels[i]]; [N] like the
 * logits, or their sum or mean as a scalar.  Gradient: with respect to the logits, softmax - onehot. Errors:
 * LK_ERR_SHAPE, LK_ERR_DTYPE; a label out of range is an asynchronous LK_ERR_ARGUMENT that names it; on GPUs, whose
 * kernels cannot fail, the sample's loss and gradient are NaN. Data sets check their labels when they are opened. */
LK_API lk_tensor *lk_sparse_softmax_cross_entropy_at(lk_place at, lk_tensor *logits, lk_tensor *labels,
                                                     lk_reduction reduction);
#define lk_sparse_softmax_cross_entropy(...) lk_sparse_softmax_cross_entropy_at(LK_HERE, __VA_ARGS__)

/* The same against labels smoothed by `smoothing`, 0 <= smoothing <= 1: (1 - smoothing) onehot + smoothing / C (Szegedy
 * et al. 2016). Errors also: LK_ERR_ARGUMENT (smoothing). */
LK_API lk_tensor *lk_smoothed_cross_entropy_at(lk_place at, lk_tensor *logits, lk_tensor *labels, double smoothing,
                                               lk_reduction reduction);
#define lk_smoothed_cross_entropy(...) lk_smoothed_cross_entropy_at(LK_HERE, __VA_ARGS__)

/* Binary cross-entropy, element by element: -t ln sigmoid(z) - (1 - t) ln(1 - sigmoid(z)) for logits z and targets t in
 * [0, 1], same shape, float; computed as max(z, 0) - z t + ln(1 + e^-|z|), as TensorFlow's
 * sigmoid_cross_entropy_with_logits. Gradient: yes; to the logits sigmoid(z) - t, to the targets -z. */
LK_API lk_tensor *lk_sigmoid_cross_entropy_at(lk_place at, lk_tensor *logits, lk_tensor *targets);
#define lk_sigmoid_cross_entropy(...) lk_sigmoid_cross_entropy_at(LK_HERE, __VA_ARGS__)

/* logits: [N, C] float.  labels: [N] i32 or i64.  [N] f32: 1 where fewer than k logits of the row are greater than the
 * label's, or equal to it and before it; else 0: so k = 1 is argmax == label, and ties do not depend on a sort.
 * Gradient: no. Errors: LK_ERR_SHAPE, LK_ERR_DTYPE, LK_ERR_ARGUMENT (k below 1 or above C); a label out of range is
 * an asynchronous LK_ERR_ARGUMENT that names it; on GPUs its result is NaN. */
LK_API lk_tensor *lk_in_top_k_at(lk_place at, lk_tensor *logits, lk_tensor *labels, int k);
#define lk_in_top_k(...) lk_in_top_k_at(LK_HERE, __VA_ARGS__)

/* --- updates ----------------------------------------------------------------------------------------------------- */

/* parameter = parameter - rate * gradient, in place: one rounded multiplication, one rounded subtraction, f32 or f64.
 * Not recorded on a tape. */
LK_API lk_status lk_sgd_update_at(lk_place at, lk_tensor *parameter, lk_tensor *gradient, double rate);
#define lk_sgd_update(...) lk_sgd_update_at(LK_HERE, __VA_ARGS__)

/* --- the table --------------------------------------------------------------------------------------------------- */

/* Operators by number, for listing. NULL past the end. */
LK_API const char *lk_op_name(int op);
LK_API bool lk_op_is_view(int op);
LK_API bool lk_op_is_differentiable(int op);

/* Which kernels a device of `kind` runs `op` with for `dtype`: "cpu" (oneDNN and own loops, see
 * lk_device_implementations), "c" (plain C); NULL where it is unsupported. */
LK_API const char *lk_op_implementation(int op, const char *kind, lk_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
