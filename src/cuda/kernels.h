/* The arguments of every kernel of the plug-in: kernels.def lists them. Pointers are to memory of the GPU, sizes are of
 * elements. Arrays are dense; where "elements" have no shape they lie in any order, the same for all arrays.
 *
 * Images are channels-last: pixel p of image n has its channels at (n * pixels + p) * channels. Results do not depend
 * on how threads are scheduled: sums have a fixed order, and nothing is added up with atomics. Arithmetic is in f32 for
 * f32 and bf16, whose results are rounded once, and in f64 for f64 where a kernel takes that. */
#ifndef LK_CUDA_KERNELS_H
#define LK_CUDA_KERNELS_H

#include "lockstep/tensor.h"

#include <stdbool.h>
#include <stdint.h>

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

/* Where a stream of random words starts: Philox's key, and the counter of its first block, of a sample below 2^32.
 * epoch: NULL, or where a kernel that takes it finds the epoch that stands in counter[2] and counter[3] when it runs.
 */
typedef struct lk_gpu_philox {
    uint32_t key[2], counter[4];
    const uint64_t *epoch;
} lk_gpu_philox;

/* Element i of the stream in [a, b), or normal with mean a and deviation b (Box and Muller): f32, bf16, f64. */
typedef struct lk_gpu_random {
    void *y;
    lk_dtype dtype;
    int64_t count;
    double a, b;
    bool normal;
    lk_gpu_philox philox;
} lk_gpu_random;

/* Where the elements of an operand lie that has the call's shape: strides in elements, 0 where it is repeated. */
typedef struct lk_gpu_view {
    void *data;
    lk_dtype dtype;
    int64_t stride[LK_MAX_DIMS];
} lk_gpu_view;

/* y = x, another dtype if asked for: to nearest even (floats), truncated and saturated with NaN as 0 (float to
 * integer), wrapped (integer to integer). Copies, casts, layouts, concatenation. */
typedef struct lk_gpu_convert {
    lk_gpu_view y, x;
    int ndim;
    int64_t dim[LK_MAX_DIMS];
} lk_gpu_convert;

typedef enum lk_gpu_binary_op { LK_GPU_ADD, LK_GPU_SUB, LK_GPU_MUL, LK_GPU_DIV } lk_gpu_binary_op;

/* y = a op b, all of one dtype. Integers wrap; division by 0 of integers gives 0. y may be a or b. */
typedef struct lk_gpu_binary {
    lk_gpu_view y, a, b;
    int ndim;
    int64_t dim[LK_MAX_DIMS];
    lk_gpu_binary_op op;
} lk_gpu_binary;

/* y[i, …] = x[indices[i], …], x [rows, row] of elements of `size` bytes; every bit is set where an index is outside. */
typedef struct lk_gpu_gather {
    const void *x;
    const int64_t *indices; /* [n] */
    void *y;
    size_t size;
    int64_t n, rows, row;
} lk_gpu_gather;

/* Image i of y, [n, channels, height, width] or channels-last, is made of image indices[i] of x, [images, channels,
 * height, width]: byte / 255, shifted (bilinear, the edge going on outside), flipped, cropped (0 outside), less mean
 * and divided by divisor, and 0 in the square of cutout, with ref's bits; NaN where an index is outside. Words 1 to 3
 * of the counters are the index, the epoch, and the upper halves of both. */
typedef struct lk_gpu_prepare_images {
    const uint8_t *x;
    const int64_t *indices, *epoch; /* [n], [] */
    const float *moments;           /* [2, channels]: mean, divisor; NULL: neither */
    float *y;
    int64_t n, images, channels, height, width;
    bool channels_last;
    double height_shift, width_shift; /* shares; both 0: none */
    int64_t crop_padding, cutout;     /* 0: none */
    bool flip;
    lk_gpu_philox shift_words, flip_words, crop_words, cutout_words;
} lk_gpu_prepare_images;

/* y = ((x[0] + x[1]) + (x[2] + x[3])) + …: n is 2, 4, 8 or 16; dense, f32 or f64. */
enum { LK_GPU_MAX_PAIRWISE = 16 };
typedef struct lk_gpu_pairwise_sum {
    void *y;
    const void *x[LK_GPU_MAX_PAIRWISE];
    int n;
    lk_dtype dtype;
    int64_t count;
} lk_gpu_pairwise_sum;

typedef enum lk_gpu_reduction { LK_GPU_SUM, LK_GPU_MEAN, LK_GPU_MAX, LK_GPU_ARGMAX } lk_gpu_reduction;

/* A shape's axes, and the strides of an operand that has it: those over which a result is made, and those that stay. */
typedef struct lk_gpu_axes {
    int n_kept, n_reduced;
    int64_t kept[LK_MAX_DIMS], kept_stride[LK_MAX_DIMS];
    int64_t reduced[LK_MAX_DIMS], reduced_stride[LK_MAX_DIMS];
} lk_gpu_axes;

/* y[i] over the elements of x that result i takes, its line; y is dense over the axes that stay. NaN is greater than
 * any number, and the first of equals is the greatest. Sums of floats are added in double, of integers wrap; y is of
 * x's dtype, f32 for bf16 where y_dtype says so, i64 for argmax.
 *
 * The order of a sum: element r of a line, in row-major order, goes to lane r mod 32, which adds in order; lanes are
 * added as lane j += lane j + h for h = 16, 8, 4, 2, 1. A longer line than LK_GPU_REDUCE_CHUNK is cut into chunks of so
 * many elements, whose sums then go through lanes as elements do. workspace: 16 bytes for each chunk of each line,
 * where lines have more than one. */
enum { LK_GPU_REDUCE_CHUNK = 4096 };

typedef struct lk_gpu_reduce {
    const void *x;
    void *y, *workspace;
    lk_dtype dtype, y_dtype;
    lk_gpu_reduction op;
    lk_gpu_axes axes;
} lk_gpu_reduce;

/* dx = dy at the first x that is its result's y, else 0: of an `lk_gpu_reduce` with LK_GPU_MAX. dx lies as x does, and
 * may be x. */
typedef struct lk_gpu_max_grad {
    const void *dy, *x, *y;
    void *dx;
    lk_dtype dtype;
    lk_gpu_axes axes;
} lk_gpu_max_grad;

/* --- element by element: f32, bf16 -------------------------------------------------------------------------------- */

/* Kinds and formulas: lk_activation_kind, by number. */
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

/* y = x <= 0 ? 0 : x, so that NaN stays. */
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

/* y = 0 where the element's word is below rate 2^32, else x / (1 - rate). An image's elements are numbered in the order
 * of channels, rows, columns, however it lies; its index is word 1 of the counter. */
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

/* Along one axis of n elements `inner` apart, `outer` times: y = softmax(x) or, `log`, its logarithm. Sums are in f32,
 * in 32 lanes as those of `lk_gpu_reduce`. y may be x; dx may be dy or y. */
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

/* Of logits [n, classes] against labels. Each of loss, dlogits and hits may be NULL; dlogits may be logits. `sum`: loss
 * and hits are one value, the sum over samples, in double and in the order of `lk_gpu_reduce` without chunks; else one
 * a sample. dlogits = softmax less target, times dloss, which has one value, or with `each` one a sample. `scale`:
 * factor of the loss and of dlogits. A label that is out of range makes its loss, its gradient and its hit NaN. Sums
 * over classes are as those of softmax. workspace: with `sum`, one float a sample for each of loss and hits that is
 * there. */
typedef struct lk_gpu_cross_entropy {
    const void *logits, *dloss;
    const int64_t *labels;
    void *loss, *dlogits; /* of `dtype` */
    float *hits;          /* whether the label is among the k greatest */
    float *workspace;
    lk_dtype dtype;
    int64_t n, classes;
    bool sum, each;
    double smoothing, scale;
    int k;
} lk_gpu_cross_entropy;

/* loss[i] = max(z, 0) - z t + log(1 + exp(-|z|)), or with dloss: dlogits[i] = (sigmoid(z) - t) dloss[i]. A result may
 * be written over an operand. */
typedef struct lk_gpu_sigmoid_cross_entropy {
    const void *logits, *targets, *dloss;
    void *loss, *dlogits;
    lk_dtype dtype;
    int64_t count;
} lk_gpu_sigmoid_cross_entropy;

/* --- batch-norm: x [rows, channels] in f32 or bf16, rows are pixels of images; gamma, beta, … in f32 ----------------
 */

/* Sums over rows are added in double, in an order that depends on the shape and the dtype alone: blocks of at least
 * LK_GPU_SUM_ROWS rows, of which there are at most LK_GPU_SUM_BLOCKS, then a tree over blocks. */
enum { LK_GPU_SUM_ROWS = 64, LK_GPU_SUM_BLOCKS = 512 };

/* Doubles of the workspace that this takes: two for each channel and block, and as many for what they come to. */
static inline int64_t lk_gpu_sums_workspace(int64_t rows, int64_t channels)
{
    int64_t blocks = (rows + LK_GPU_SUM_ROWS - 1) / LK_GPU_SUM_ROWS, most = LK_GPU_SUM_BLOCKS;
    return 2 * channels * ((blocks < most ? blocks : most) + 1);
}

/* sums[c] = Σ x, sums[channels + c] = Σ x x. workspace: lk_gpu_sums_workspace. */
typedef struct lk_gpu_channel_sums {
    const void *x;
    double *sums, *workspace;
    lk_dtype dtype;
    int64_t rows, channels;
} lk_gpu_channel_sums;

/* dx = dsums[c] + 2 x dsums[channels + c]; dx may be x. */
typedef struct lk_gpu_channel_sums_grad {
    const void *x;
    const double *dsums;
    void *dx;
    lk_dtype dtype;
    int64_t rows, channels;
} lk_gpu_channel_sums_grad;

/* A channel's mean and variance: from sums over `count` elements where sums is there, else as given. */
typedef struct lk_gpu_statistics {
    const double *sums;
    const float *mean, *variance;
    int64_t count;
    double epsilon;
} lk_gpu_statistics;

/* y = gamma (x - mean) / sqrt(variance + epsilon) + beta; `act`: relu(y + residual), residual NULL: 0. y may be x or
 * residual. */
typedef struct lk_gpu_normalise {
    const void *x, *residual;
    const float *gamma, *beta;
    void *y;
    lk_gpu_statistics statistics;
    lk_dtype dtype;
    int64_t rows, channels;
    bool act;
} lk_gpu_normalise;

typedef enum lk_gpu_through {
    LK_GPU_THROUGH_SUMS, /* dx takes in how sums, which are x's own, depend on x */
    LK_GPU_SUMS_HELD,    /* sums are held fast; dsums is their gradient */
    LK_GPU_MOMENTS_HELD, /* mean and variance are given: no dsums */
} lk_gpu_through;

/* dx, dgamma, dbeta from dy, which is first set to 0 where `act_y`, if there, is not above 0; that masked dy goes to
 * dresidual, if there. Σ dy and Σ dy x come first, so dx may be dy, x or act_y, and dresidual another of dy and act_y.
 * workspace: lk_gpu_sums_workspace. */
typedef struct lk_gpu_normalise_grad {
    const void *dy, *act_y, *x;
    const float *gamma;
    void *dx, *dresidual;
    float *dgamma, *dbeta;
    double *dsums, *workspace;
    lk_gpu_statistics statistics;
    lk_gpu_through through;
    lk_dtype dtype; /* of x and the like */
    int64_t rows, channels;
} lk_gpu_normalise_grad;

/* mean = (1 - momentum) mean + momentum m and likewise variance, unbiased, where *skip is 0 or skip is NULL. Computed
 * in double and rounded once, with ref's bits. */
typedef struct lk_gpu_running_statistics {
    float *mean, *variance;
    const float *skip;
    lk_gpu_statistics statistics; /* with sums */
    int64_t channels;
    double momentum;
} lk_gpu_running_statistics;

/* --- pooling: f32, bf16 ------------------------------------------------------------------------------------------- */

typedef struct lk_gpu_window {
    int64_t images, channels;
    int64_t size[2], out_size[2]; /* height, width of x and of y */
    int64_t kernel[2], stride[2], padding[2];
    bool count_padding; /* an average's divisor */
} lk_gpu_window;

/* where: the index in its image's plane of the first maximum of each window, NaN being greater than any number; -1 of
 * an empty window, whose maximum is -infinity. */
typedef struct lk_gpu_max_pool {
    const void *x;
    void *y;
    int32_t *where;
    lk_dtype dtype;
    lk_gpu_window window;
} lk_gpu_max_pool;

/* Each dx adds up, in the order of windows, the dy of those that chose it. */
typedef struct lk_gpu_max_pool_grad {
    const void *dy;
    const int32_t *where;
    void *dx;
    lk_dtype dtype;
    lk_gpu_window window;
} lk_gpu_max_pool_grad;

typedef struct lk_gpu_avg_pool {
    const void *x;
    void *y;
    lk_dtype dtype;
    lk_gpu_window window;
} lk_gpu_avg_pool;

typedef struct lk_gpu_avg_pool_grad {
    const void *dy;
    void *dx;
    lk_dtype dtype;
    lk_gpu_window window;
} lk_gpu_avg_pool_grad;

/* --- updates: f32, the formulas and the order of operations of ops/update.h ----------------------------------------
 */

/* skip: nothing changes where it is not 0. rates: three, in the place of rate, or of step, unbias and keep. Each may be
 * NULL. */
typedef struct lk_gpu_control {
    const float *skip, *scale;
    const double *rates;
} lk_gpu_control;

/* y = w - rate g; y may be w. */
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

/* What is in no segment stays as it is. */
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

/* A segment that descends or leaves [0, count) has NaN. workspace: one double for each whole block of LK_GPU_NORM_BLOCK
 * elements in `count`, and one more a segment. */
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

/* --- what libraries do: cuBLASLt, cuDNN ----------------------------------------------------------------------------
 */

/* Every pointer from here to column_sums is a multiple of this, so that what runs depends on shapes alone. */
enum { LK_GPU_LIBRARY_ALIGNMENT = 16 };

/* y [rows, columns] = a b, a [rows, inner], b [inner, columns], row-major; a or b may lie transposed. bias [columns],
 * of y's dtype, is added and relu, which keeps NaN, applied where they are there. The algorithm is a function of
 * shapes, dtypes, GPU and library, and adds up a row's products in one sequence. */
typedef struct lk_gpu_matmul {
    const void *a, *b, *bias;
    void *y;
    lk_dtype dtype, y_dtype;
    int64_t rows, inner, columns;
    bool a_transposed, b_transposed, relu;
    bool tf32; /* f32 may be rounded to 10 bits of mantissa on the way in */
} lk_gpu_matmul;

/* Of a convolution: x [images, size, channels], y [images, out_size, out_channels], w [out_channels, kernel,
 * channels / groups], all channels-last, none of them empty. LK_GPU_UNSUPPORTED: not in bf16; f32 takes everything. */
typedef struct lk_gpu_conv_shape {
    int64_t images, channels, out_channels, groups;
    int64_t size[2], out_size[2], kernel[2];
    int64_t stride[2], padding[2], dilation[2];
    lk_dtype dtype;
    bool tf32;
    bool direct; /* only sums of products as they are written */
} lk_gpu_conv_shape;

/* y = conv(x, w) + bias, bias [out_channels] or NULL, then relu. */
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

typedef struct lk_gpu_conv_weight_grad {
    const void *dy, *x;
    void *dw;
    lk_dtype dw_dtype; /* f32, or the shape's */
    lk_gpu_conv_shape shape;
} lk_gpu_conv_weight_grad;

/* sums[c] = Σ over rows of x [rows, columns], added as channel_sums does, rounded once; workspace:
 * lk_gpu_sums_workspace(rows, columns). The gradient of a bias. */
typedef struct lk_gpu_column_sums {
    const void *x;
    void *sums;
    double *workspace;
    lk_dtype dtype, sums_dtype;
    int64_t rows, columns;
} lk_gpu_column_sums;

/* --- exchange ----------------------------------------------------------------------------------------------------- */

/* y = a sum of arrays of f32 or f64 in a given order: a tree in postfix, where behind addend i follow additions[i]
 * additions, each of the two values before it. No more than LK_GPU_TREE_LEVELS values wait at a time. y may be an
 * addend. */
enum { LK_GPU_TREE_ADDENDS = 64, LK_GPU_TREE_LEVELS = 24 };
typedef struct lk_gpu_tree_sum {
    const void *addends[LK_GPU_TREE_ADDENDS];
    unsigned char additions[LK_GPU_TREE_ADDENDS];
    int n_addends; /* at least 1 */
    void *y;
    lk_dtype dtype;
    int64_t count;
} lk_gpu_tree_sum;

/* to[i][0 … count[i]) = from[i][…], of f32; nothing overlaps. */
enum { LK_GPU_COPIES = 64 };
typedef struct lk_gpu_copies {
    const float *from[LK_GPU_COPIES];
    float *to[LK_GPU_COPIES];
    int64_t count[LK_GPU_COPIES];
    int n;
} lk_gpu_copies;

#endif
