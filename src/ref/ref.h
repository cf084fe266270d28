/* The reference kernels in plain C. All other backends are tested against them, and they run what no other backend has
 * a kernel for. The header has three parts: views of operands, temporaries, and the list of the kernels, a row of
 * ref_table.c for each. lockstep/ops.h and core/op.h say what each computes.
 *
 * A kernel loads its operands, with any strides, as row-major doubles (integers: int64_t), computes, and rounds each
 * result once when it stores it. Temporaries belong to a scratch, which remembers a failed allocation: a kernel asks
 * for all that it needs, checks once, and ends with lk__ref_end.
 *
 * An output shares memory with an input only if both are the same view (an update in place); the caller ensures it. So
 * an element may be written as soon as it has been read. */
#pragma once

#include "core/op.h"

#include <stdbool.h>
#include <stdint.h>

/* The elements of an operand: a tensor, or a tensor seen with other strides. */
typedef struct lk_ref_view {
    void *data; /* the first element */
    lk_dtype dtype;
    lk_shape shape;
    int64_t strides[LK_MAX_DIMS];
} lk_ref_view;

lk_ref_view lk__ref_view(const lk_tensor *t);

/* Returns `view` broadcast to `shape` by NumPy's rules: repeated axes have stride 0. */
lk_ref_view lk__ref_broadcast(lk_ref_view view, lk_shape shape);

/* Returns a view of row-major elements of `dtype` at `data`. */
lk_ref_view lk__ref_dense(void *data, lk_dtype dtype, lk_shape shape);

int64_t lk__ref_count(lk_shape shape);
bool lk__ref_is_dense(lk_ref_view view);

/* Returns the product of the sizes of axes [begin, end). */
int64_t lk__ref_extent(lk_shape shape, int begin, int end);

/* Walks through up to three operands of one shape, row by row in row-major order. Neighboring axes that all operands
 * step through evenly are merged, so dense operands are a single row. */
#define LK_REF_MAX_OPERANDS 3
typedef struct lk_ref_rows {
    int64_t left;                      /* rows left, including the current one */
    int64_t length;                    /* elements in a row */
    int64_t step[LK_REF_MAX_OPERANDS]; /* distance between neighbors in a row, in elements */
    char *row[LK_REF_MAX_OPERANDS];    /* first element of the current row */
    int operands, axes;                /* axes: number of axes outside the row */
    int64_t size[LK_MAX_DIMS], index[LK_MAX_DIMS];
    int64_t stride[LK_REF_MAX_OPERANDS][LK_MAX_DIMS]; /* in bytes */
} lk_ref_rows;

/* Use: for (lk__ref_rows_begin(&rows, views, n); rows.left > 0; lk__ref_rows_next(&rows)) ... */
void lk__ref_rows_begin(lk_ref_rows *rows, const lk_ref_view *views, int n);
void lk__ref_rows_next(lk_ref_rows *rows);

/* The temporaries of one kernel: at most one for each operand of a call, and some for results. */
#define LK_REF_MAX_SCRATCH (LK_MAX_INPUTS + 4)
typedef struct lk_ref_scratch {
    void *block[LK_REF_MAX_SCRATCH]; /* blocks that did not fit into the thread's own memory */
    int blocks;
    size_t stacked; /* bytes taken of the thread's own memory */
    lk_status status;
} lk_ref_scratch;

/* Return zeroed memory; NULL after this or an earlier failure. */
double *lk__ref_new(lk_ref_scratch *scratch, int64_t count);
int64_t *lk__ref_new_int(lk_ref_scratch *scratch, int64_t count);

/* Loads elements as doubles, exactly (i64: rounded). A dense f64 operand is not copied. */
const double *lk__ref_load(lk_ref_scratch *scratch, lk_ref_view view);

/* Loads elements of an integer dtype. */
const int64_t *lk__ref_load_int(lk_ref_scratch *scratch, lk_ref_view view);

/* Stores doubles. Floats are rounded to nearest even; integers are truncated and saturated, and NaN becomes 0. */
void lk__ref_store(const double *values, lk_ref_view view);

/* Returns the value as it would be loaded after it was stored in a tensor of a float dtype. */
double lk__ref_rounded(double value, lk_dtype dtype);

/* Stores integers. Floats are rounded to nearest even; narrower integers wrap. */
void lk__ref_store_int(const int64_t *values, lk_ref_view view);

/* Returns x[index] of x [N, ...], as [1, ...]. */
lk_ref_view lk__ref_row(lk_ref_view x, int64_t index);

/* Copies elements between views of one shape and dtype. */
void lk__ref_copy_elements(lk_ref_view out, lk_ref_view in);

/* Frees the temporaries. Returns LK_OK or the error. */
lk_status lk__ref_end(lk_ref_scratch *scratch);

/* Adds a · b to y with a: [m, k], b: [k, n], y: [m, n], row-major. Each element adds its products in the order of k. */
void lk__ref_multiply(const double *a, const double *b, double *y, int64_t m, int64_t k, int64_t n);

/* y = dropout(x), both with the shape of `meta`, before y is rounded to its dtype; y may be x. Errors: LK_ERR_ARGUMENT
 * (an index out of range). */
struct lk_dropout_attrs;
struct lk_geometry;
lk_status lk__ref_drop(const double *x, const int64_t *indices, double *y, lk_meta meta,
                       const struct lk_dropout_attrs *attrs);

/* For pooling without padding: the index in x's plane of tap `tap`, in row-major order, of the window of y's element i;
 * and the tap that an index is. */
int64_t lk__ref_index_of_tap(const struct lk_geometry *p, int64_t i, int64_t tap);
int64_t lk__ref_tap_of_index(const struct lk_geometry *p, int64_t i, int64_t index);

/* The kernels, by operator. */
lk_status lk__ref_full(lk_call *call);
lk_status lk__ref_arange(lk_call *call);
lk_status lk__ref_random(lk_call *call);
lk_status lk__ref_copy(lk_call *call);
lk_status lk__ref_cast(lk_call *call);
lk_status lk__ref_concat(lk_call *call);
lk_status lk__ref_gather(lk_call *call);
lk_status lk__ref_pairwise_sum(lk_call *call);
lk_status lk__ref_prepare_images(lk_call *call);
lk_status lk__ref_arithmetic(lk_call *call);
lk_status lk__ref_matmul(lk_call *call);
lk_status lk__ref_dense_act(lk_call *call);
lk_status lk__ref_conv2d(lk_call *call);
lk_status lk__ref_conv2d_input_grad(lk_call *call);
lk_status lk__ref_conv2d_weight_grad(lk_call *call);
lk_status lk__ref_max_pool2d(lk_call *call);
lk_status lk__ref_max_pool2d_grad(lk_call *call);
lk_status lk__ref_avg_pool2d(lk_call *call);
lk_status lk__ref_avg_pool2d_grad(lk_call *call);
lk_status lk__ref_relu_avg_pool2d(lk_call *call);
lk_status lk__ref_relu_avg_pool2d_grad(lk_call *call);
lk_status lk__ref_relu_max_pool2d(lk_call *call);
lk_status lk__ref_relu_max_pool2d_grad(lk_call *call);
lk_status lk__ref_conv_block(lk_call *call);
lk_status lk__ref_conv_block_grad(lk_call *call);
lk_status lk__ref_relu(lk_call *call);
lk_status lk__ref_relu_grad(lk_call *call);
lk_status lk__ref_activation(lk_call *call);
lk_status lk__ref_activation_grad(lk_call *call);
lk_status lk__ref_dropout(lk_call *call);
lk_status lk__ref_channel_sums(lk_call *call);
lk_status lk__ref_channel_sums_grad(lk_call *call);
lk_status lk__ref_batch_norm(lk_call *call);
lk_status lk__ref_batch_norm_grad(lk_call *call);
lk_status lk__ref_batch_norm_with(lk_call *call);
lk_status lk__ref_batch_norm_with_grad(lk_call *call);
lk_status lk__ref_batch_norm_inference(lk_call *call);
lk_status lk__ref_batch_norm_inference_grad(lk_call *call);
lk_status lk__ref_batch_norm_act(lk_call *call);
lk_status lk__ref_batch_norm_act_grad(lk_call *call);
lk_status lk__ref_batch_norm_drop(lk_call *call);
lk_status lk__ref_batch_norm_drop_grad(lk_call *call);
lk_status lk__ref_batch_norm_pool(lk_call *call);
lk_status lk__ref_batch_norm_pool_grad(lk_call *call);
lk_status lk__ref_batch_norm_inference_act(lk_call *call);
lk_status lk__ref_batch_norm_update(lk_call *call);
lk_status lk__ref_group_norm(lk_call *call);
lk_status lk__ref_group_norm_grad(lk_call *call);
lk_status lk__ref_sum(lk_call *call);
lk_status lk__ref_mean(lk_call *call);
lk_status lk__ref_max(lk_call *call);
lk_status lk__ref_max_grad(lk_call *call);
lk_status lk__ref_argmax(lk_call *call);
lk_status lk__ref_softmax(lk_call *call);
lk_status lk__ref_softmax_grad(lk_call *call);
lk_status lk__ref_log_softmax(lk_call *call);
lk_status lk__ref_log_softmax_grad(lk_call *call);
lk_status lk__ref_sparse_softmax_cross_entropy(lk_call *call);
lk_status lk__ref_sparse_softmax_cross_entropy_grad(lk_call *call);
lk_status lk__ref_cross_entropy_step(lk_call *call);
lk_status lk__ref_sigmoid_cross_entropy(lk_call *call);
lk_status lk__ref_sigmoid_cross_entropy_grad(lk_call *call);
lk_status lk__ref_in_top_k(lk_call *call);
lk_status lk__ref_sgd_update(lk_call *call);
lk_status lk__ref_momentum_update(lk_call *call);
lk_status lk__ref_adam_update(lk_call *call);
lk_status lk__ref_lars_update(lk_call *call);
lk_status lk__ref_squared_norms(lk_call *call);
lk_status lk__ref_update_scales(lk_call *call);
