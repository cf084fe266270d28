/* Cases of creation, copies, views, arithmetic, reductions, softmax, losses and updates. */
#pragma once

#include "ops/ops.h"
#include "testing.h"
#include "ops/pairwise_sum.h"
#include "ops/prepare_images.h"
#include "ops/matmul.h"
#include "ops/reduce.h"

/* Makes a call that no public function makes: a gradient's operator, or one whose second output is needed. */
static inline lk_tensor *call_op(const lk_op *op, lk_tensor *const *in, int n_in, int n_out, const void *attrs,
                                 size_t size, lk_tensor **second)
{
    lk_call call = {.op = op, .place = LK_HERE, .n_in = n_in, .n_out = n_out};
    for (int i = 0; i < n_in; i++) {
        if (!in[i])
            return NULL;
        call.in[i] = in[i];
    }
    memcpy(call.attrs.bytes, attrs, size);
    if (lk__call(&call) != LK_OK)
        return NULL;
    if (second)
        *second = call.out[1];
    return call.out[0];
}

/* --- creation ---------------------------------------------------------------------------------------------------- */

static inline lk_tensor *full_case(trial *t, const void *value)
{
    return lk_full(t->device, t->dtype, LK_SHAPE(3, 5, 7), *(const double *)value);
}

static inline lk_tensor *full_int_case(trial *t, const void *dtype)
{
    return lk_full(t->device, *(const lk_dtype *)dtype, LK_SHAPE(13), -7.9);
}

static inline lk_tensor *full_empty_case(trial *t, const void *none)
{
    (void)none;
    return lk_full(t->device, t->dtype, LK_SHAPE(0, 4), 1);
}

static inline lk_tensor *arange_case(trial *t, const void *none)
{
    (void)none;
    return lk_arange(t->device, t->dtype, 37, -3, 0.75);
}

static inline lk_tensor *arange_int_case(trial *t, const void *dtype)
{
    return lk_arange(t->device, *(const lk_dtype *)dtype, 300, -3, 1.5);
}

static const lk_random_key case_key = {.seed = 7, .purpose = 11, .epoch = 3, .sample = 5};

static inline lk_tensor *uniform_case(trial *t, const void *none)
{
    (void)none;
    t->scale = SCALE_ONE;
    return lk_uniform(t->device, t->dtype, LK_SHAPE(7, 9, 3), -0.5, 0.5, case_key);
}

static inline lk_tensor *normal_case(trial *t, const void *none)
{
    (void)none;
    t->scale = SCALE_ONE;
    return lk_normal(t->device, t->dtype, LK_SHAPE(7, 9, 3), 0.25, 0.5, case_key);
}

/* --- copies and views -------------------------------------------------------------------------------------------- */

static inline lk_tensor *copy_case(trial *t, const void *shape)
{
    return lk_copy(floats(t, *(const lk_shape *)shape), t->device);
}

/* The last two axes are swapped. */
static inline lk_tensor *copy_turned_case(trial *t, const void *shape)
{
    return lk_copy(lk_transpose(floats(t, *(const lk_shape *)shape), -2, -1), t->device);
}

static inline lk_tensor *copy_to_peer_case(trial *t, const void *shape)
{
    return lk_copy(floats(t, *(const lk_shape *)shape), t->peer);
}

static inline lk_tensor *copy_int_case(trial *t, const void *dtype)
{
    return lk_copy(integers(t, *(const lk_dtype *)dtype, LK_SHAPE(5, 7), 0, 200), t->device);
}

static inline lk_tensor *copy_specials_case(trial *t, const void *none)
{
    (void)none;
    return lk_copy(specials(t, LK_SHAPE(9, 7)), t->device);
}

/* Copies into a view with gaps. */
static inline lk_tensor *copy_into_case(trial *t, const void *none)
{
    (void)none;
    lk_tensor *whole = lk_copy(floats(t, LK_SHAPE(6, 9)), t->device);
    lk_tensor *x = floats(t, LK_SHAPE(4, 6));
    lk_tensor *part = lk_transpose(lk_slice(whole, 1, 3, 7), 0, 1);
    return lk_copy_into(part, x) == LK_OK ? whole : NULL;
}

static inline lk_tensor *copy_from_peer_into_case(trial *t, const void *none)
{
    (void)none;
    lk_tensor *whole = lk_copy(floats(t, LK_SHAPE(6, 9)), t->device);
    lk_tensor *x = lk_copy(floats(t, LK_SHAPE(6, 4)), t->peer);
    return lk_copy_into(lk_slice(whole, 1, 3, 7), x) == LK_OK ? whole : NULL;
}

static inline lk_tensor *cast_case(trial *t, const void *dtype)
{
    return lk_cast(floats_between(t, LK_SHAPE(11, 13), -300, 300), *(const lk_dtype *)dtype);
}

static inline lk_tensor *cast_int_case(trial *t, const void *dtype)
{
    return lk_cast(integers(t, *(const lk_dtype *)dtype, LK_SHAPE(11, 13), 0, 250), t->dtype);
}

/* Integers close to the middle between two numbers of bf16 or f32, some of which no f64 is. */
static inline lk_tensor *cast_large_case(trial *t, const void *none)
{
    (void)none;
    const int64_t values[] = {((int64_t)1 << 62) + ((int64_t)1 << 54) + 1,
                              -((int64_t)1 << 62) - ((int64_t)1 << 54) - 1,
                              ((int64_t)257 << 50) + 1,
                              ((int64_t)257 << 50) - 1,
                              (int64_t)257 << 50,
                              ((int64_t)16777217 << 30) + 1,
                              -((int64_t)16777217 << 30) + 1,
                              INT64_MAX,
                              INT64_MIN,
                              INT64_MAX - ((int64_t)1 << 54),
                              257,
                              -259};
    return lk_cast(lk_tensor_from(t->device, LK_I64, LK_SHAPE(sizeof values / sizeof *values), values), t->dtype);
}

static inline lk_tensor *cast_specials_case(trial *t, const void *dtype)
{
    return lk_cast(specials(t, LK_SHAPE(11, 13)), *(const lk_dtype *)dtype);
}

static inline lk_tensor *reshape_case(trial *t, const void *none)
{
    (void)none;
    return lk_reshape(floats(t, LK_SHAPE(4, 3, 6)), LK_SHAPE(2, -1, 9));
}

static inline lk_tensor *flatten_case(trial *t, const void *none)
{
    (void)none;
    return lk_flatten(floats(t, LK_SHAPE(3, 2, 3, 5)));
}

static inline lk_tensor *transpose_case(trial *t, const void *none)
{
    (void)none;
    return lk_transpose(floats(t, LK_SHAPE(3, 4, 5)), 0, -1);
}

static inline lk_tensor *slice_case(trial *t, const void *none)
{
    (void)none;
    return lk_slice(floats(t, LK_SHAPE(3, 7, 5)), 1, 2, 6);
}

static inline lk_tensor *expand_case(trial *t, const void *none)
{
    (void)none;
    return lk_expand(floats(t, LK_SHAPE(3, 1, 5)), LK_SHAPE(2, 3, 4, 5));
}

typedef struct concat_parameters {
    int n, axis;
} concat_parameters;

static inline lk_tensor *concat_case(trial *t, const void *parameters)
{
    const concat_parameters *p = parameters;
    lk_tensor *x[MAX_OPERANDS];
    for (int i = 0; i < p->n; i++) {
        lk_shape shape = LK_SHAPE(3, 4, 5);
        shape.dim[p->axis] = i % 4;
        x[i] = floats(t, shape);
    }
    return lk_concat(x, p->n, p->axis);
}

static inline lk_tensor *concat_int_case(trial *t, const void *dtype)
{
    lk_tensor *a = integers(t, *(const lk_dtype *)dtype, LK_SHAPE(4, 3), 0, 99);
    lk_tensor *b = integers(t, *(const lk_dtype *)dtype, LK_SHAPE(4, 5), 0, 99);
    return lk_concat((lk_tensor *[]){a, b, a}, 3, 1);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

typedef struct pairwise_parameters {
    int n;
    int64_t count;
} pairwise_parameters;

static inline lk_tensor *pairwise_sum_case(trial *t, const void *parameters)
{
    const pairwise_parameters *p = parameters;
    lk_tensor *x[LK_MAX_PAIRWISE];
    t->scale = SCALE_ONE;
    t->terms = p->n;
    for (int i = 0; i < p->n; i++)
        x[i] = floats(t, LK_SHAPE(p->count));
    return lk__pairwise_sum(LK_HERE, x, p->n);
}

/* --- gathering ---------------------------------------------------------------------------------------------------- */

typedef struct gather_parameters {
    lk_shape shape;
    int64_t n;
    lk_dtype dtype; /* of x, LK_F32: the trial's */
} gather_parameters;

static inline lk_tensor *gather_case(trial *t, const void *parameters)
{
    const gather_parameters *p = parameters;
    lk_tensor *x = p->dtype == LK_F32 ? floats(t, p->shape) : integers(t, p->dtype, p->shape, 0, 200);
    return lk_gather(x, integers(t, LK_I64, LK_SHAPE(p->n), 0, (double)p->shape.dim[0]));
}

typedef struct prepare_parameters {
    lk_shape shape;
    int64_t n;
    lk_augment_opts opts; /* with center or standardize: moments */
} prepare_parameters;

static inline lk_tensor *prepare_images_case(trial *t, const void *parameters)
{
    static const double moments[] = {0.25, 0.5, 0.125, 0.3, 0.6, 1.7};
    const prepare_parameters *p = parameters;
    lk_prepare_images_attrs attrs = {.opts = p->opts, .seed = 7};
    lk_tensor *images = integers(t, LK_U8, p->shape, 0, 256);
    lk_tensor *indices = integers(t, LK_I64, LK_SHAPE(p->n), 0, (double)p->shape.dim[0]);
    lk_tensor *epoch = tensor_from(t->device, LK_I64, LK_SCALAR, (double[]){3});
    lk_tensor *given = NULL;
    if (p->opts.center || p->opts.standardize)
        given = tensor_from(t->device, LK_F32, LK_SHAPE(2, p->shape.dim[1]), moments);
    return lk__prepare_images(LK_HERE, images, indices, epoch, given, &attrs);
}

/* The result is a convolution's operand, in the device's layout. */
static inline lk_tensor *prepare_for_conv_case(trial *t, const void *parameters)
{
    const prepare_parameters *p = parameters;
    t->scale = SCALE_ONE;
    t->terms = 4 * 9 * p->shape.dim[1];
    t->roundings = 2;
    lk_tensor *x = prepare_images_case(t, parameters);
    lk_tensor *w = lk_full(t->device, LK_F32, LK_SHAPE(4, p->shape.dim[1], 3, 3), 0.25);
    return lk_conv2d(x, w, NULL, NULL);
}

/* --- arithmetic -------------------------------------------------------------------------------------------------- */

typedef lk_tensor *(*binary_function)(lk_call_site, lk_tensor *, lk_tensor *);

typedef struct binary_parameters {
    binary_function function;
    lk_shape a, b;
    lk_dtype dtype; /* of the integer cases */
} binary_parameters;

/* b stays away from zero, which div divides by. */
static inline lk_tensor *binary_case(trial *t, const void *parameters)
{
    const binary_parameters *p = parameters;
    lk_tensor *a = floats(t, p->a);
    return p->function(LK_HERE, a, floats_between(t, p->b, 0.5, 2));
}

static inline lk_tensor *binary_int_case(trial *t, const void *parameters)
{
    const binary_parameters *p = parameters;
    double low = p->dtype == LK_U8 ? 0 : -60;
    lk_tensor *a = integers(t, p->dtype, p->a, low, 60);
    return p->function(LK_HERE, a, integers(t, p->dtype, p->b, low, 60));
}

static inline lk_tensor *binary_specials_case(trial *t, const void *parameters)
{
    const binary_parameters *p = parameters;
    lk_tensor *a = specials(t, p->a);
    return p->function(LK_HERE, a, specials(t, p->b));
}

static inline lk_tensor *square_case(trial *t, const void *none)
{
    (void)none;
    lk_tensor *a = floats(t, LK_SHAPE(5, 7));
    return lk_mul(a, a);
}

static inline lk_tensor *add_into_case(trial *t, const void *none)
{
    (void)none;
    lk_tensor *a = lk_copy(floats(t, LK_SHAPE(7, 5)), t->device);
    return lk_add_into(a, a, floats(t, LK_SHAPE(7, 5))) == LK_OK ? a : NULL;
}

/* The result overlaps an operand. */
static inline lk_tensor *add_into_overlap_case(trial *t, const void *none)
{
    (void)none;
    lk_tensor *a = lk_copy(floats(t, LK_SHAPE(9, 5)), t->device);
    lk_tensor *upper = lk_slice(a, 0, 0, 8), *lower = lk_slice(a, 0, 1, 9);
    return lk_add_into(lower, upper, lower) == LK_OK ? a : NULL;
}

static inline lk_tensor *add_scalar_case(trial *t, const void *none)
{
    (void)none;
    return lk_add_scalar(floats(t, LK_SHAPE(5, 7)), 0.5);
}

static inline lk_tensor *mul_scalar_case(trial *t, const void *none)
{
    (void)none;
    return lk_mul_scalar(floats(t, LK_SHAPE(5, 7)), -0.75);
}

typedef struct matmul_parameters {
    int64_t m, k, n;
} matmul_parameters;

static inline lk_tensor *matmul_case(trial *t, const void *parameters)
{
    const matmul_parameters *p = parameters;
    t->scale = SCALE_ABSOLUTE;
    t->terms = p->k;
    lk_tensor *a = floats(t, LK_SHAPE(p->m, p->k));
    return lk_matmul(a, floats(t, LK_SHAPE(p->k, p->n)));
}

/* bf16 operands and an f32 result, as for gradients of parameters. */
static inline lk_tensor *matmul_f32_case(trial *t, const void *parameters)
{
    const matmul_parameters *p = parameters;
    t->scale = SCALE_ABSOLUTE;
    t->terms = p->k;
    lk_tensor *a = floats(t, LK_SHAPE(p->m, p->k));
    lk_tensor *b = floats(t, LK_SHAPE(p->k, p->n));
    return a && b ? lk__matmul(LK_HERE, a, b, true) : NULL;
}

/* --- reductions -------------------------------------------------------------------------------------------------- */

typedef lk_tensor *(*reduce_function)(lk_call_site, lk_tensor *, const lk_reduce_opts *);

typedef struct reduce_parameters {
    reduce_function function;
    lk_shape shape;
    lk_reduce_opts opts;
    lk_dtype dtype; /* of the integer cases */
} reduce_parameters;

/* A sum with an f32 result, as for gradients of biases. */
static inline lk_tensor *sum_to_f32(lk_call_site at, lk_tensor *x, const lk_reduce_opts *opts)
{
    return lk__sum(at, x, opts, true);
}

static inline lk_tensor *reduce_case(trial *t, const void *parameters)
{
    const reduce_parameters *p = parameters;
    t->scale = p->function == lk_max_at ? SCALE_RESULT : SCALE_ABSOLUTE;
    t->terms = p->function == lk_max_at ? 1 : count_of(p->shape);
    return p->function(LK_HERE, floats(t, p->shape), &p->opts);
}

static inline lk_tensor *reduce_int_case(trial *t, const void *parameters)
{
    const reduce_parameters *p = parameters;
    return p->function(LK_HERE, integers(t, p->dtype, p->shape, p->dtype == LK_U8 ? 0 : -90, 90), &p->opts);
}

static inline lk_tensor *max_specials_case(trial *t, const void *parameters)
{
    const reduce_parameters *p = parameters;
    return lk_max(specials(t, p->shape), &p->opts);
}

static inline lk_tensor *max_grad_case(trial *t, const void *parameters)
{
    const reduce_parameters *p = parameters;
    lk_reduce_attrs attrs = {.axes = p->opts.n_axes ? 0 : (1u << p->shape.ndim) - 1, .keepdim = p->opts.keepdim};
    for (int i = 0; i < p->opts.n_axes; i++)
        attrs.axes |= 1u << p->opts.axes[i];
    lk_tensor *x = floats(t, p->shape);
    lk_tensor *y = lk_max(x, &p->opts);
    if (!y)
        return NULL;
    lk_tensor *dy = floats(t, lk_tensor_shape(y));
    return call_op(&lk__op_max_grad, (lk_tensor *[]){dy, x, y}, 3, 1, &attrs, sizeof attrs, NULL);
}

typedef struct axis_parameters {
    lk_shape shape;
    int axis;
    lk_dtype dtype; /* of the integer cases */
} axis_parameters;

static inline lk_tensor *argmax_case(trial *t, const void *parameters)
{
    const axis_parameters *p = parameters;
    return lk_argmax(floats(t, p->shape), p->axis);
}

static inline lk_tensor *argmax_specials_case(trial *t, const void *parameters)
{
    const axis_parameters *p = parameters;
    return lk_argmax(specials(t, p->shape), p->axis);
}

static inline lk_tensor *argmax_int_case(trial *t, const void *parameters)
{
    const axis_parameters *p = parameters;
    return lk_argmax(integers(t, p->dtype, p->shape, 0, 20), p->axis);
}

/* --- softmax and losses ------------------------------------------------------------------------------------------ */

/* The errors of exp and log, in units of a sum's rounding. */
#define FUNCTION_TERMS 16

static inline void softmax_scale(trial *t, int64_t n)
{
    t->scale = SCALE_ONE;
    t->terms = n + FUNCTION_TERMS;
}

static inline lk_tensor *softmax_case(trial *t, const void *parameters)
{
    const axis_parameters *p = parameters;
    softmax_scale(t, p->shape.dim[p->axis]);
    return lk_softmax(floats_between(t, p->shape, -4, 4), p->axis);
}

static inline lk_tensor *log_softmax_case(trial *t, const void *parameters)
{
    const axis_parameters *p = parameters;
    softmax_scale(t, p->shape.dim[p->axis]);
    return lk_log_softmax(floats_between(t, p->shape, -4, 4), p->axis);
}

static inline lk_tensor *softmax_grad_case(trial *t, const void *parameters)
{
    const axis_parameters *p = parameters;
    lk_axis_attrs attrs = {.axis = p->axis};
    softmax_scale(t, p->shape.dim[p->axis]);
    lk_tensor *dy = floats(t, p->shape);
    lk_tensor *y = floats_between(t, p->shape, 0, 1.0 / (double)(p->shape.dim[p->axis] + 1));
    return call_op(&lk__op_softmax_grad, (lk_tensor *[]){dy, y}, 2, 1, &attrs, sizeof attrs, NULL);
}

static inline lk_tensor *log_softmax_grad_case(trial *t, const void *parameters)
{
    const axis_parameters *p = parameters;
    lk_axis_attrs attrs = {.axis = p->axis};
    softmax_scale(t, 4 * p->shape.dim[p->axis]);
    lk_tensor *dy = floats(t, p->shape);
    lk_tensor *y = floats_between(t, p->shape, -4, 0);
    return call_op(&lk__op_log_softmax_grad, (lk_tensor *[]){dy, y}, 2, 1, &attrs, sizeof attrs, NULL);
}

typedef struct loss_parameters {
    int64_t n, classes;
    lk_dtype labels;
    lk_reduction reduction;
    int k; /* of in_top_k */
} loss_parameters;

static inline lk_tensor *loss_of(trial *t, const loss_parameters *p, double smoothing)
{
    softmax_scale(t, p->classes + p->n);
    lk_tensor *logits = floats_between(t, LK_SHAPE(p->n, p->classes), -4, 4);
    lk_tensor *labels = integers(t, p->labels, LK_SHAPE(p->n), 0, (double)p->classes);
    if (smoothing == 0)
        return lk_sparse_softmax_cross_entropy(logits, labels, p->reduction);
    return lk_smoothed_cross_entropy(logits, labels, smoothing, p->reduction);
}

static inline lk_tensor *cross_entropy_case(trial *t, const void *parameters)
{
    return loss_of(t, parameters, 0);
}

static inline lk_tensor *smoothed_case(trial *t, const void *parameters)
{
    return loss_of(t, parameters, 0.1);
}

static inline lk_tensor *loss_grad_of(trial *t, const loss_parameters *p, double smoothing)
{
    lk_cross_entropy_attrs attrs = {.reduction = p->reduction, .smoothing = smoothing};
    softmax_scale(t, p->classes);
    lk_tensor *dloss = floats(t, p->reduction == LK_REDUCTION_NONE ? LK_SHAPE(p->n) : LK_SCALAR);
    lk_tensor *logits = floats_between(t, LK_SHAPE(p->n, p->classes), -4, 4);
    lk_tensor *labels = integers(t, p->labels, LK_SHAPE(p->n), 0, (double)p->classes);
    return call_op(&lk__op_sparse_softmax_cross_entropy_grad, (lk_tensor *[]){dloss, logits, labels}, 3, 1, &attrs,
                   sizeof attrs, NULL);
}

static inline lk_tensor *cross_entropy_grad_case(trial *t, const void *parameters)
{
    return loss_grad_of(t, parameters, 0);
}

static inline lk_tensor *smoothed_grad_case(trial *t, const void *parameters)
{
    return loss_grad_of(t, parameters, 0.1);
}

typedef struct sigmoid_loss_parameters {
    lk_shape shape;
    double range; /* logits in [-range, range) */
} sigmoid_loss_parameters;

static inline lk_tensor *sigmoid_loss_case(trial *t, const void *parameters)
{
    const sigmoid_loss_parameters *p = parameters;
    softmax_scale(t, (int64_t)p->range); /* z t is rounded before it is subtracted from z */
    lk_tensor *logits = floats_between(t, p->shape, -p->range, p->range);
    return lk_sigmoid_cross_entropy(logits, floats_between(t, p->shape, 0, 1));
}

static inline lk_tensor *sigmoid_loss_specials_case(trial *t, const void *parameters)
{
    const sigmoid_loss_parameters *p = parameters;
    softmax_scale(t, 4);
    lk_tensor *logits = specials(t, p->shape);
    return lk_sigmoid_cross_entropy(logits, floats_between(t, p->shape, 0, 1));
}

static inline lk_tensor *sigmoid_loss_grad_case(trial *t, const void *parameters)
{
    const sigmoid_loss_parameters *p = parameters;
    softmax_scale(t, 4);
    lk_tensor *dloss = floats(t, p->shape);
    lk_tensor *logits = floats_between(t, p->shape, -p->range, p->range);
    lk_tensor *in[] = {dloss, logits, floats_between(t, p->shape, 0, 1)};
    return call_op(&lk__op_sigmoid_cross_entropy_grad, in, 3, 1, "", 0, NULL);
}

static inline lk_tensor *in_top_k_case(trial *t, const void *parameters)
{
    const loss_parameters *p = parameters;
    lk_tensor *logits = floats_between(t, LK_SHAPE(p->n, p->classes), -4, 4);
    lk_tensor *labels = integers(t, p->labels, LK_SHAPE(p->n), 0, (double)p->classes);
    return lk_in_top_k(logits, labels, p->k);
}

static inline lk_tensor *in_top_k_specials_case(trial *t, const void *parameters)
{
    const loss_parameters *p = parameters;
    lk_tensor *logits = specials(t, LK_SHAPE(p->n, p->classes));
    lk_tensor *labels = integers(t, p->labels, LK_SHAPE(p->n), 0, (double)p->classes);
    return lk_in_top_k(logits, labels, p->k);
}

static inline lk_tensor *sgd_update_case(trial *t, const void *shape)
{
    t->scale = SCALE_ONE;
    t->terms = 2;
    lk_tensor *w = lk_copy(floats(t, *(const lk_shape *)shape), t->device);
    lk_tensor *g = floats(t, *(const lk_shape *)shape);
    return lk_sgd_update(w, g, 0.1) == LK_OK ? w : NULL;
}
