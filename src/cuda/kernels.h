/* The arguments of the plug-in's kernels, which kernels.def lists. Pointers are to the GPU's memory, sizes are in
 * elements. Arrays are dense. Arrays with a `count` but no shape may have any order, if all arrays of a call have the
 * same.
 *
 * Images are channels-last: pixel p of image n has its channels at (n * pixels + p) * channels. Results do not depend
 * on how threads are scheduled: sums have a fixed order, and no sum of floats uses atomics. Arithmetic is in f32 for
 * f32 and for bf16, whose results are rounded once, and in f64 for f64 in the kernels that take it.
 *
 * Some kernels take several problems of one size at once: `parts` is their number, 0 for one. All other arguments
 * describe the first problem. The operands of the next ones follow those of the first in memory, except those that are
 * said to be shared. The bits are those of separate launches. */
#pragma once

#include "base/minmax.h"
#include "ops/augment_choice.h"
#include "ops/geometry.h"
#include "lockstep/tensor.h"

#include <stdbool.h>
#include <stdint.h>

static inline int64_t lk_gpu_parts(int64_t parts)
{
    return parts > 0 ? parts : 1;
}

/* --- any dtype ---------------------------------------------------------------------------------------------------- */

/* y[i] = value, converted as `convert` does. */
typedef struct lk_gpu_fill {
    void *y;
    lk_dtype dtype;
    int64_t count;
    double value;
} lk_gpu_fill;

/* y[i] = start + step i */
typedef struct lk_gpu_arange {
    void *y;
    lk_dtype dtype;
    int64_t count;
    double start, step;
} lk_gpu_arange;

/* The start of a stream of random words: Philox's key, and the counter of the first block, for a sample below 2^32.
 * epoch: NULL, or points to the epoch that replaces counter[2] and counter[3] when the kernel runs, in kernels that
 * support it. */
typedef struct lk_gpu_philox {
    uint32_t key[2], counter[4];
    const uint64_t *epoch;
} lk_gpu_philox;

/* y[i] = element i of a random stream: uniform in [a, b), or normal with mean a and deviation b (Box and Muller). f32,
 * bf16, f64. */
typedef struct lk_gpu_random {
    void *y;
    lk_dtype dtype;
    int64_t count;
    double a, b;
    bool normal;
    lk_gpu_philox philox;
} lk_gpu_random;

/* An operand that has, or is broadcast to, the call's shape. Strides are in elements, 0 on an axis that is repeated. */
typedef struct lk_gpu_view {
    void *data;
    lk_dtype dtype;
    int64_t stride[LK_MAX_DIMS];
} lk_gpu_view;

/* y = x, for copies, casts, layouts and concatenation. A conversion between floats rounds to nearest even; one from
 * float to integer truncates and saturates, and makes NaN 0; one between integers wraps. */
typedef struct lk_gpu_convert {
    lk_gpu_view y, x;
    int ndim;
    int64_t dim[LK_MAX_DIMS];
} lk_gpu_convert;

typedef enum lk_gpu_binary_op { LK_GPU_ADD, LK_GPU_SUB, LK_GPU_MUL, LK_GPU_DIV } lk_gpu_binary_op;

/* y = a op b, all of one dtype. Integers wrap, and an integer divided by 0 is 0. y may be a or b. */
typedef struct lk_gpu_binary {
    lk_gpu_view y, a, b;
    int ndim;
    int64_t dim[LK_MAX_DIMS];
    lk_gpu_binary_op op;
} lk_gpu_binary;

/* y[i, …] = x[indices[i], …], where x is [rows, row] of elements of `size` bytes. For an index out of range every bit
 * of y[i, …] is set. */
typedef struct lk_gpu_gather {
    const void *x;
    const int64_t *indices; /* [n] */
    void *y;
    size_t size;
    int64_t n, rows, row;
} lk_gpu_gather;

/* Makes image i of y, [n, channels, height, width] or channels-last, from image indices[i] of x, [images, channels,
 * height, width], with the changes of lk_augment_opts and the bits of ref/. For an index out of range the image is NaN.
 */
typedef struct lk_gpu_prepare_images {
    const uint8_t *x;
    const int64_t *indices, *epoch; /* [n], [] */
    const float *moments;           /* [2, channels]: mean, divisor; NULL: neither */
    float *y;
    float *work; /* lk_gpu_prepare_images_workspace floats; NULL if that is 0 */
    int64_t n, images, channels;
    lk_plane_size size;
    bool channels_last;
    lk_augment_opts opts; /* center and standardize are ignored */
    lk_augment_chances chances;
} lk_gpu_prepare_images;

/* Most images that are in work at the same time, where each has room for itself and another plane. */
enum { LK_GPU_IMAGES_IN_WORK = 264 };

static inline int64_t lk_gpu_prepare_images_workspace(const lk_augment_opts *opts, int64_t n, int64_t channels,
                                                      lk_plane_size size)
{
    bool needs = opts->contrast > 0 || opts->rand_augment > 0;
    return needs ? lk__min(n, LK_GPU_IMAGES_IN_WORK) * (channels + 1) * size.height * size.width : 0;
}

/* y = ((x[0] + x[1]) + (x[2] + x[3])) + …, for n of 2, 4, 8 or 16; dense, f32 or f64. */
enum { LK_GPU_MAX_PAIRWISE = 16 };
typedef struct lk_gpu_pairwise_sum {
    void *y;
    const void *x[LK_GPU_MAX_PAIRWISE];
    int n;
    lk_dtype dtype;
    int64_t count;
} lk_gpu_pairwise_sum;

/* Several arrays at once, none of which overlap. y[row, j, i] = x[row, i, j] of dtypes f32 and bf16 or, with more than
 * one addend, the sum as in pairwise_sum of x[row, i, j + k step] for k = 0 … addends - 1, in f32 or f64. x is [rows,
 * a, b]; f64 only with a or b 1. */
enum { LK_GPU_SUMS = 88 };
typedef struct lk_gpu_array_sum {
    const void *x;
    void *y;
    int64_t step;
    int32_t rows, a, b; /* their product is below 2^31 */
    uint8_t addends, x_dtype, y_dtype;
} lk_gpu_array_sum;

typedef struct lk_gpu_array_sums {
    lk_gpu_array_sum sum[LK_GPU_SUMS];
    int n;
} lk_gpu_array_sums;

typedef enum lk_gpu_reduction { LK_GPU_SUM, LK_GPU_MEAN, LK_GPU_MAX, LK_GPU_ARGMAX } lk_gpu_reduction;

/* The axes of an operand, with its strides: the axes that are reduced, and those that are kept. */
typedef struct lk_gpu_axes {
    int n_kept, n_reduced;
    int64_t kept[LK_MAX_DIMS], kept_stride[LK_MAX_DIMS];
    int64_t reduced[LK_MAX_DIMS], reduced_stride[LK_MAX_DIMS];
} lk_gpu_axes;

/* y[i] = the reduction of line i, the elements of x that result i is made of; y is dense over the kept axes. For maxima
 * NaN is greater than any number, and the first of equal elements counts. Sums of floats are computed in double; sums
 * of integers wrap. y has x's dtype, except i64 for argmax, and f32 for bf16 if y_dtype says so.
 *
 * The order of a sum: element r of a line, in row-major order, goes to lane r mod 32, which adds its elements in order;
 * then lane j += lane j + h for h = 16, 8, 4, 2, 1. A line longer than LK_GPU_REDUCE_CHUNK is cut into chunks of that
 * many elements, whose sums are then added as if they were elements. workspace: 16 bytes for each chunk of each line,
 * if lines have more than one chunk. */
enum { LK_GPU_REDUCE_CHUNK = 4096 };

typedef struct lk_gpu_reduce {
    const void *x;
    void *y, *workspace;
    lk_dtype dtype, y_dtype;
    lk_gpu_reduction op;
    lk_gpu_axes axes;
} lk_gpu_reduce;

/* The gradient of an lk_gpu_reduce with LK_GPU_MAX: dx = dy at the first element of a line that equals its maximum y,
 * otherwise 0. dx has the order of x, and may be x. */
typedef struct lk_gpu_max_grad {
    const void *dy, *x, *y;
    void *dx;
    lk_dtype dtype;
    lk_gpu_axes axes;
} lk_gpu_max_grad;

/* --- element by element: f32, bf16 -------------------------------------------------------------------------------- */

/* `kind` is an lk_activation_kind, which has the formulas. */
typedef struct lk_gpu_activation {
    const void *x;
    void *y;
    lk_dtype dtype;
    int64_t count;
    int kind;
    double alpha;
} lk_gpu_activation;

typedef struct lk_gpu_activation_grad {
    const void *dy, *x, *y;
    void *dx;
    lk_dtype dtype;
    int64_t count;
    int kind;
    double alpha;
} lk_gpu_activation_grad;

/* y = x <= 0 ? 0 : x, which keeps NaN */
typedef struct lk_gpu_relu {
    const void *x;
    void *y;
    lk_dtype dtype;
    int64_t count;
} lk_gpu_relu;

/* dx = y > 0 ? dy : 0 */
typedef struct lk_gpu_relu_grad {
    const void *dy, *y;
    void *dx;
    lk_dtype dtype;
    int64_t count;
} lk_gpu_relu_grad;

/* y = 0 if the element's random word is below rate * 2^32, otherwise x / (1 - rate). An image's elements are numbered
 * by channel, row and column, whatever its layout; its index is word 1 of the counter. */
typedef struct lk_gpu_dropout {
    const void *x;
    void *y;
    const int64_t *indices; /* [images] */
    lk_dtype dtype;
    int64_t images, channels, pixels;
    bool channels_last;
    double rate;
    lk_gpu_philox philox;
} lk_gpu_dropout;

/* --- losses: rows of f32 or bf16 ---------------------------------------------------------------------------------- */

/* y = softmax(x), or its logarithm with `log`, along the axis n of x [outer, n, inner]. Sums are in f32, in 32 lanes as
 * those of lk_gpu_reduce. y may be x; dx may be dy or y. */
typedef struct lk_gpu_softmax {
    const void *x;
    void *y;
    lk_dtype dtype;
    int64_t outer, n, inner;
    bool log;
} lk_gpu_softmax;

typedef struct lk_gpu_softmax_grad {
    const void *dy, *y;
    void *dx;
    lk_dtype dtype;
    int64_t outer, n, inner;
    bool log;
} lk_gpu_softmax_grad;

/* Cross-entropy of logits [n, classes] with labels. Each of loss, dlogits and hits may be NULL; dlogits may be logits.
 * With `sum` loss and hits are one value each, the sum over samples, added in double and in the order of lk_gpu_reduce
 * without chunks; otherwise they have a value for each sample. dlogits = (softmax - target) * dloss, where dloss is one
 * value, or with `each` one for each sample. `scale` multiplies the loss and dlogits. A label out of range makes its
 * loss, gradient and hit NaN. Sums over classes are added as those of softmax. workspace: with `sum`, n floats for each
 * of loss and hits that is not NULL. A dloss that is one value is shared by the parts, if there are several. */
typedef struct lk_gpu_cross_entropy {
    const void *logits, *dloss;
    const void *labels;
    void *loss, *dlogits;
    float *hits; /* whether the label is among the k greatest */
    float *workspace;
    lk_dtype dtype;        /* of logits and dlogits */
    lk_dtype loss_dtype;   /* of loss and dloss: `dtype`, or f32 */
    lk_dtype labels_dtype; /* i32 or i64 */
    int64_t n, classes, parts;
    bool sum, each;
    double smoothing, scale;
    int k;
} lk_gpu_cross_entropy;

/* loss[i] = max(z, 0) - z t + log(1 + exp(-|z|)) or, if dloss is not NULL, dlogits[i] = (sigmoid(z) - t) dloss[i]. The
 * result may be one of the operands. */
typedef struct lk_gpu_sigmoid_cross_entropy {
    const void *logits, *targets, *dloss;
    void *loss, *dlogits;
    lk_dtype dtype;
    int64_t count;
} lk_gpu_sigmoid_cross_entropy;

/* --- batch norm: x [rows, channels] in f32 or bf16, rows are pixels of images; gamma, beta, … in f32 --------------
 * Parts share gamma and beta, and a mean and variance that are given. */

/* Sums over rows are added in double, in an order that depends on the shape and the dtype alone: in at most
 * LK_GPU_SUM_BLOCKS blocks of at least LK_GPU_SUM_ROWS rows, then in a tree over the blocks. */
enum { LK_GPU_SUM_ROWS = 64, LK_GPU_SUM_BLOCKS = 512 };

/* Doubles in the workspace of up to n such sums, for each part: n for each channel and block, and three for each
 * channel's total. */
static inline int64_t lk_gpu_sums_workspace(int64_t rows, int64_t channels, int n)
{
    int64_t blocks = (rows + LK_GPU_SUM_ROWS - 1) / LK_GPU_SUM_ROWS, most = LK_GPU_SUM_BLOCKS;
    return channels * (n * (blocks < most ? blocks : most) + 3);
}

/* sums[c] = Σ x, sums[channels + c] = Σ x x. workspace: lk_gpu_sums_workspace of 2. */
typedef struct lk_gpu_channel_sums {
    const void *x;
    double *sums, *workspace;
    lk_dtype dtype;
    int64_t rows, channels, parts;
} lk_gpu_channel_sums;

/* dx = dsums[c] + 2 x dsums[channels + c]; dx may be x. */
typedef struct lk_gpu_channel_sums_grad {
    const void *x;
    const double *dsums;
    void *dx;
    lk_dtype dtype;
    int64_t rows, channels, parts;
} lk_gpu_channel_sums_grad;

/* The mean and variance of each channel: computed from sums over `count` elements, or, if sums is NULL, given. */
typedef struct lk_gpu_statistics {
    const double *sums;
    const float *mean, *variance;
    int64_t count;
    double epsilon;
} lk_gpu_statistics;

/* y = gamma (x - mean) / sqrt(variance + epsilon) + beta; with `act`, relu of that plus residual (NULL: 0). With
 * residual_last relu comes first: its result is rounded, then the residual is added. If `kept` is not NULL, relu's
 * rounded result is dropped out as lk_gpu_dropout does, without residual, and `kept` gets a bit for each element: 1 if
 * y is above 0; bit i of a byte is element i of a pack of channels, see lk_gpu_pack. y may be x or residual. */
typedef struct lk_gpu_normalize {
    const void *x, *residual;
    const float *gamma, *beta;
    void *y;
    lk_gpu_statistics statistics;
    lk_dtype dtype;
    int64_t rows, channels, parts;
    bool act, residual_last;
    uint8_t *kept;          /* lk_gpu_kept_bytes */
    const int64_t *indices; /* [images] */
    int64_t pixels;         /* of an image */
    double rate;
    lk_gpu_philox philox;
} lk_gpu_normalize;

/* The neighboring channels that a thread takes at once. */
static inline int64_t lk_gpu_pack(lk_dtype dtype, int64_t channels)
{
    int64_t most = dtype == LK_F32 ? 4 : 8;
    return channels % most == 0 ? most : 1;
}

static inline int64_t lk_gpu_kept_bytes(lk_dtype dtype, int64_t rows, int64_t channels)
{
    return rows * channels / lk_gpu_pack(dtype, channels);
}

/* y = the maximum of each window of an lk_gpu_normalize with `act` and residual_last, which is rounded and not stored.
 * where: the number of the first maximum in its window, in row-major order, for each element of y; NaN is greater than
 * any number. Windows do not overlap, are not padded, and have at most 255 elements; `window` describes a part. */
typedef struct lk_gpu_normalize_pool {
    const void *x, *residual;
    const float *gamma, *beta;
    void *y;
    uint8_t *where;
    lk_gpu_statistics statistics;
    lk_dtype dtype;
    lk_geometry window;
    int64_t parts;
} lk_gpu_normalize_pool;

typedef enum lk_gpu_through {
    LK_GPU_THROUGH_SUMS, /* sums are those of x, and dx includes the gradient through them */
    LK_GPU_SUMS_HELD,    /* sums count as constant for dx; dsums is their gradient */
    LK_GPU_MOMENTS_HELD, /* mean and variance are constants; there is no dsums */
} lk_gpu_through;

/* Computes dx, dgamma and dbeta from dy. If act_y is not NULL, dy is first set to 0 where act_y is not above 0, and the
 * masked dy is written to dresidual, unless that is NULL. If act_beta is not NULL, act_y must be, and dy is set to 0
 * where an lk_gpu_normalize of x with that beta and `act` is not above 0; only with LK_GPU_THROUGH_SUMS. If `kept` is
 * not NULL, act_y and act_beta must be, and dy is set to dy / (1 - rate), rounded, or to 0 where the bit of `kept`,
 * which an lk_gpu_normalize of x has written, is 0. If `more` is not NULL, one of act_y and act_beta must be given, and
 * dy is first the sum of both, rounded; with act_beta dresidual gets that sum. With `more` dresidual must be given. The
 * sums of dy and of dy x are computed before dx is written, so dx may be dy, x or act_y, and dresidual another one of
 * dy and act_y. If dx_sums is not NULL it gets the sums of dx, rounded as stored, over rows: the bits are those of
 * lk_gpu_column_sums. Only with LK_GPU_THROUGH_SUMS. d_sums gets those of dresidual; only with act_beta and `more`.
 * workspace: lk_gpu_sums_workspace of 2, or of 3 with d_sums.
 *
 * If `where` is not NULL, act_beta and dresidual must be given: x went through an lk_gpu_normalize_pool that has
 * written `where`, dy and `more`, which may be NULL, are gradients of its y, and dresidual gets the gradient of what
 * was pooled. No two operands may share memory then. */
typedef struct lk_gpu_normalize_grad {
    const void *dy, *more, *act_y, *x;
    const uint8_t *kept, *where;
    double rate;
    lk_geometry window; /* of `where` */
    const float *gamma, *act_beta;
    void *dx, *dresidual;
    float *dgamma, *dbeta, *dx_sums, *d_sums;
    double *dsums, *workspace;
    lk_gpu_statistics statistics;
    lk_gpu_through through;
    lk_dtype dtype; /* of dy, more, act_y, x, dx and dresidual */
    int64_t rows, channels, parts;
} lk_gpu_normalize_grad;

/* y = gamma (x - mean) / sqrt(variance + epsilon) + beta, with the mean and biased variance of each image and group of
 * channels / groups neighboring channels. Sums are in f64. y may be x. */
typedef struct lk_gpu_group_norm {
    const void *x;
    const float *gamma, *beta;
    void *y;
    lk_dtype dtype; /* of x and y */
    int64_t images, pixels, channels, groups;
    double epsilon;
} lk_gpu_group_norm;

/* The gradients of an lk_gpu_group_norm: dx, which may be dy or x, and the sums dgamma and dbeta over all images.
 * workspace: lk_gpu_group_norm_workspace doubles. */
typedef struct lk_gpu_group_norm_grad {
    const void *dy, *x;
    const float *gamma;
    void *dx;
    float *dgamma, *dbeta;
    double *workspace;
    lk_dtype dtype; /* of dy, x and dx */
    int64_t images, pixels, channels, groups;
    double epsilon;
} lk_gpu_group_norm_grad;

enum { LK_GPU_SET_DOUBLES = 3 };

static inline int64_t lk_gpu_group_norm_workspace(int64_t images, int64_t pixels, int64_t channels, int64_t groups)
{
    return images * groups * LK_GPU_SET_DOUBLES + lk_gpu_sums_workspace(images * pixels, channels, 2);
}

/* Several layers at once: mean = (1 - momentum) mean + momentum m, and likewise the unbiased variance, if skip is NULL
 * or *skip is 0. Computed in double and rounded once; the bits are those of ref/. */
enum { LK_GPU_RUNNING_LAYERS = 32 };
typedef struct lk_gpu_running_layer {
    float *mean, *variance;
    const float *skip;
    lk_gpu_statistics statistics; /* with sums */
    int64_t channels;
    double momentum;
} lk_gpu_running_layer;

typedef struct lk_gpu_running_statistics {
    lk_gpu_running_layer layer[LK_GPU_RUNNING_LAYERS];
    int n;
} lk_gpu_running_statistics;

/* --- pooling: f32, bf16 ------------------------------------------------------------------------------------------- */

/* where: for each window the index, in its image's plane, of the first maximum; NaN is greater than any number. An
 * empty window has -1, and its maximum is -infinity. */
typedef struct lk_gpu_max_pool {
    const void *x;
    void *y;
    int32_t *where;
    lk_dtype dtype;
    lk_geometry window;
} lk_gpu_max_pool;

/* Each dx is the sum, in the order of windows, of the dy of the windows whose maximum it is. */
typedef struct lk_gpu_max_pool_grad {
    const void *dy;
    const int32_t *where;
    void *dx;
    lk_dtype dtype;
    lk_geometry window;
} lk_gpu_max_pool_grad;

/* y = the maximum of each window of an lk_gpu_relu of x. where: the number of the first maximum in its window, in
 * row-major order; 255 if it is not above 0. Windows do not overlap, are not padded, and have at most 255 elements. */
typedef struct lk_gpu_relu_max_pool {
    const void *x;
    void *y;
    uint8_t *where;
    lk_dtype dtype;
    lk_geometry window;
    bool y_is_plain; /* y [images, channels, out], not channels-last */
} lk_gpu_relu_max_pool;

typedef struct lk_gpu_relu_max_pool_grad {
    const void *dy;
    const uint8_t *where;
    void *dx;
    lk_dtype dtype;
    lk_geometry window;
    bool dy_is_plain;
} lk_gpu_relu_max_pool_grad;

/* With `relu` y is the average of an lk_gpu_relu of x. */
typedef struct lk_gpu_avg_pool {
    const void *x;
    void *y;
    lk_dtype dtype;
    lk_geometry window;
    bool relu, y_is_plain;
} lk_gpu_avg_pool;

/* relu_x: x of an average with `relu`; dx, rounded, is then set to 0 where relu_x is not above 0. NULL: there is no
 * relu. */
typedef struct lk_gpu_avg_pool_grad {
    const void *dy, *relu_x;
    void *dx;
    lk_dtype dtype;
    lk_geometry window;
    bool dy_is_plain;
} lk_gpu_avg_pool_grad;

/* --- updates: f32, with the formulas and the order of operations of ops/update.h ---------------------------------- */

/* If *skip is not 0 the update changes nothing. rates[3] replace `rate`, or `step`, `unbias` and `keep`. Each pointer
 * may be NULL. */
typedef struct lk_gpu_control {
    const float *skip, *scale;
    const double *rates;
} lk_gpu_control;

/* y = w - rate g; y may be w */
typedef struct lk_gpu_sgd_update {
    const float *w, *g;
    float *y;
    int64_t count;
    float rate;
} lk_gpu_sgd_update;

typedef struct lk_gpu_momentum_update {
    float *w, *v; /* v may be NULL */
    const float *g;
    int64_t count;
    lk_gpu_control control;
    float rate, momentum, weight_decay;
    bool nesterov;
} lk_gpu_momentum_update;

typedef struct lk_gpu_adam_update {
    float *w, *m, *v;
    const float *g;
    int64_t count;
    lk_gpu_control control;
    float beta1, rest1, beta2, rest2, step, unbias, epsilon, weight_decay, keep;
} lk_gpu_adam_update;

/* Elements outside all segments do not change. */
typedef struct lk_gpu_lars_update {
    float *w, *v;
    const float *g, *ratios, *adapted;
    const int64_t *offsets; /* [segments + 1] */
    int64_t count, segments;
    lk_gpu_control control;
    float rate, momentum, weight_decay;
} lk_gpu_lars_update;

/* ops/update.h: LK_NORM_BLOCK */
enum { LK_GPU_NORM_BLOCK = 4096 };

/* norms[s] = the squared norm of segment s, x[offsets[s] … offsets[s + 1]); NaN if its offsets descend or leave
 * [0, count]. workspace: one double for each whole block of LK_GPU_NORM_BLOCK elements in `count`, and one more for
 * each segment. */
typedef struct lk_gpu_squared_norms {
    const float *x;
    const int64_t *offsets; /* [segments + 1] */
    double *norms, *workspace;
    int64_t count, segments;
} lk_gpu_squared_norms;

typedef struct lk_gpu_update_scales {
    const float *skip, *adapted, *loss; /* adapted, parameters and ratios, and loss, may be NULL */
    const double *gradients, *parameters;
    float *new_skip, *scale, *ratios;
    double *norm;
    int64_t segments;
    double clip_norm, trust, weight_decay;
    bool skip_nonfinite, sticky;
} lk_gpu_update_scales;

/* --- kernels of libraries: cuBLASLt, cuDNN ------------------------------------------------------------------------ */

/* Every pointer from here to column_sums must be a multiple of this, so that the libraries' choice of a kernel depends
 * on shapes alone. */
enum { LK_GPU_LIBRARY_ALIGNMENT = 16 };

/* y [rows, columns] = a b, for a [rows, inner] and b [inner, columns], row-major; a or b may be stored transposed. Adds
 * bias [columns], of y's dtype, unless it is NULL, and applies relu, which keeps NaN, if set. The algorithm depends on
 * shapes, dtypes, GPU and library, and adds up the products of an element of y in one sequence. Parts share the bias,
 * and b if b_is_shared. */
typedef struct lk_gpu_matmul {
    const void *a, *b, *bias;
    void *y;
    lk_dtype dtype, y_dtype;
    int64_t rows, inner, columns, parts;
    bool a_transposed, b_transposed, b_is_shared, relu;
    bool tf32;          /* f32 operands may be rounded to 10 bits of mantissa */
    const char *engine; /* as in lk_gpu_conv_shape */
} lk_gpu_matmul;

/* A convolution of x [images, in, channels] with w [filters, kernel, channels / groups] to y [images, out, filters],
 * all channels-last, none of them empty. Kernels return LK_GPU_UNSUPPORTED only for bf16; f32 supports every shape.
 * LK_GPU_NO_ENGINE: the engine does not run it, or does not keep the precision, or adds in no fixed order.
 * Parts share weights and bias, but not a gradient of weights. */
typedef struct lk_gpu_conv_shape {
    lk_geometry geometry;
    int64_t parts;
    lk_dtype dtype;
    bool tf32;
    bool direct;        /* no algorithms, such as Winograd's, that transform the operands */
    const char *engine; /* the name of the only one that may run it (lk_gpu_choice.name); NULL: the library chooses */
} lk_gpu_conv_shape;

/* y = conv(x, w) + bias, where bias is [filters] or NULL; then relu if set. */
typedef struct lk_gpu_conv {
    const void *x, *w, *bias;
    void *y;
    lk_gpu_conv_shape shape;
    bool relu;
} lk_gpu_conv;

typedef struct lk_gpu_conv_input_grad {
    const void *dy, *w;
    void *dx;
    lk_gpu_conv_shape shape;
} lk_gpu_conv_input_grad;

/* Weight gradients in bf16 with so few channels, and inputs a result, run on a kernel of the plug-in's own. */
enum { LK_GPU_FEW_CHANNELS = 4, LK_GPU_FEW_INPUTS = 32 };

/* The geometry of all parts together, as far as each result belongs to one image. */
static inline lk_geometry lk_gpu_all_images(const lk_gpu_conv_shape *shape)
{
    lk_geometry all = shape->geometry;
    all.images *= lk_gpu_parts(shape->parts);
    return all;
}

static inline bool lk_gpu_has_few_inputs(const lk_gpu_conv_shape *shape)
{
    const lk_geometry *g = &shape->geometry;
    return shape->dtype == LK_BF16 && g->groups == 1 && g->channels <= LK_GPU_FEW_CHANNELS &&
           g->channels * g->kernel[0] * g->kernel[1] <= LK_GPU_FEW_INPUTS;
}

/* Doubles in the workspace of a part's weight gradient: with few inputs one for each weight, bias and block, in blocks
 * of at least LK_GPU_SUM_ROWS pixels, otherwise none. */
static inline int64_t lk_gpu_weight_grad_workspace(const lk_gpu_conv_shape *shape)
{
    const lk_geometry *g = &shape->geometry;
    int64_t pixels = g->images * g->out[0] * g->out[1], most = LK_GPU_SUM_BLOCKS;
    int64_t blocks = (pixels + LK_GPU_SUM_ROWS - 1) / LK_GPU_SUM_ROWS;
    int64_t sums = lk__geometry_w_count(g) + g->filters;
    return lk_gpu_has_few_inputs(shape) ? sums * (blocks < most ? blocks : most) : 0;
}

/* dbias: the gradient of the bias, Σ dy of each filter, of dw's dtype. Parts and dbias only with few inputs. */
typedef struct lk_gpu_conv_weight_grad {
    const void *dy, *x;
    void *dw, *dbias;  /* dbias may be NULL */
    double *workspace; /* lk_gpu_weight_grad_workspace; NULL: none */
    lk_dtype dw_dtype; /* f32, or the shape's */
    lk_gpu_conv_shape shape;
} lk_gpu_conv_weight_grad;

/* The gradient of a bias: sums[c] = Σ over rows of x [rows, columns], added as in channel_sums and rounded once.
 * workspace: lk_gpu_sums_workspace(rows, columns, 1). */
typedef struct lk_gpu_column_sums {
    const void *x;
    void *sums;
    double *workspace;
    lk_dtype dtype, sums_dtype;
    int64_t rows, columns, parts;
} lk_gpu_column_sums;

/* --- exchange ----------------------------------------------------------------------------------------------------- */

/* y = a sum of arrays of f32 or f64 in a given order, a tree in postfix notation: after addend i come additions[i]
 * additions, each of the last two values. At most LK_GPU_TREE_LEVELS values may be on the stack. y may be an addend. */
enum { LK_GPU_TREE_ADDENDS = 64, LK_GPU_TREE_LEVELS = 24 };
typedef struct lk_gpu_tree_sum {
    const void *addends[LK_GPU_TREE_ADDENDS];
    unsigned char additions[LK_GPU_TREE_ADDENDS];
    int n_addends; /* at least 1 */
    void *y;
    lk_dtype dtype;
    int64_t count;
} lk_gpu_tree_sum;

/* to[i][0 … count[i]) = from[i][…], in f32; nothing may overlap. *step_to = step, unless step_to is NULL. */
enum { LK_GPU_COPIES = 64 };
typedef struct lk_gpu_copies {
    const float *from[LK_GPU_COPIES];
    float *to[LK_GPU_COPIES];
    int64_t count[LK_GPU_COPIES];
    int n;
    uint64_t *step_to, step;
} lk_gpu_copies;
