/* Writes operations of StableHLO. Each function appends a line to @main and returns the value that the line defines.
 * The StableHLO specification says what each operation computes.
 *
 *     lk_hlo y = lk__hlo_mul(l, x, lk__hlo_number(l, x.type, 0.5));
 *
 * Operands of one type are broadcast to each other by NumPy's rules, so a scalar goes with everything. A failed
 * allocation is remembered and reported by lk__lowering_end. */
#pragma once

#include "pjrt/lower.h"

/* An element's type: an lk_dtype, or one that only values inside a module have. */
enum { LK_HLO_BOOL = LK_DTYPE_COUNT, LK_HLO_U32, LK_HLO_U64, LK_HLO_TYPES };

#define LK_HLO_AXES (LK_MAX_DIMS + 2)

typedef struct lk_hlo {
    int number; /* %7, or %p7 of a parameter */
    bool is_parameter;
    int type;
    int rank;
    int64_t size[LK_HLO_AXES];
} lk_hlo;

typedef struct lk_hlo_text {
    char *data;
    int64_t size, capacity;
    lk_status status;
} lk_hlo_text;

/* A storage that the module has met. */
typedef struct lk_hlo_storage {
    lk_storage *storage;
    lk_dtype dtype;
    lk_hlo value; /* all of its elements, in any shape */
    bool is_parameter, written;
    int parameter; /* its number, if it is one */
} lk_hlo_storage;

struct lk_lowering {
    lk_hlo_text body; /* of @main, without its first line */
    int values, parameters;
    lk_hlo_storage *storages;
    int64_t n_storages, storages_capacity;
    bool takes_step;
};

/* Appends text. Not for floating-point numbers: printf's decimal point depends on the locale. */
void lk__hlo_put(lk_hlo_text *text, const char *format, ...) LK_PRINTF(2, 3);

/* Appends "tensor<2x3xf32>". */
void lk__hlo_put_type(lk_hlo_text *text, const lk_hlo *value);

/* Appends "%7" or "%p0". */
void lk__hlo_put_name(lk_hlo_text *text, const lk_hlo *value);

/* --- constants ---------------------------------------------------------------------------------------------------- */

/* Scalars. Floats are rounded to the type once. */
lk_hlo lk__hlo_number(lk_lowering *l, int type, double value);
lk_hlo lk__hlo_integer(lk_lowering *l, int type, int64_t value);

/* [n] i64 or f32, from integers. */
lk_hlo lk__hlo_vector(lk_lowering *l, int type, const int64_t *values, int64_t n);

/* `value`, a scalar, in every element of the shape of `like`. */
lk_hlo lk__hlo_fill(lk_lowering *l, lk_hlo value, lk_hlo like);

/* The index along `axis` of each element of the shape of `like`. */
lk_hlo lk__hlo_iota(lk_lowering *l, int type, lk_hlo like, int axis);

/* --- element by element ------------------------------------------------------------------------------------------- */

lk_hlo lk__hlo_unary(lk_lowering *l, const char *op, lk_hlo x);
lk_hlo lk__hlo_binary(lk_lowering *l, const char *op, lk_hlo a, lk_hlo b);
lk_hlo lk__hlo_add(lk_lowering *l, lk_hlo a, lk_hlo b);
lk_hlo lk__hlo_sub(lk_lowering *l, lk_hlo a, lk_hlo b);
lk_hlo lk__hlo_mul(lk_lowering *l, lk_hlo a, lk_hlo b);
lk_hlo lk__hlo_div(lk_lowering *l, lk_hlo a, lk_hlo b);
lk_hlo lk__hlo_and(lk_lowering *l, lk_hlo a, lk_hlo b);
lk_hlo lk__hlo_or(lk_lowering *l, lk_hlo a, lk_hlo b);

/* direction: "EQ", "NE", "LT", "LE", "GT" or "GE". */
lk_hlo lk__hlo_compare(lk_lowering *l, lk_hlo a, const char *direction, lk_hlo b);
lk_hlo lk__hlo_select(lk_lowering *l, lk_hlo condition, lk_hlo yes, lk_hlo no);
lk_hlo lk__hlo_is_nan(lk_lowering *l, lk_hlo x);
lk_hlo lk__hlo_is_finite(lk_lowering *l, lk_hlo x);

/* a b, rounded before it is used: no compiler may fuse it with an addition. */
lk_hlo lk__hlo_rounded_mul(lk_lowering *l, lk_hlo a, lk_hlo b);

/* Converts as lk_cast does: floats are rounded once, integers truncated and saturated. */
lk_hlo lk__hlo_convert(lk_lowering *l, lk_hlo x, int type);

/* --- shapes ------------------------------------------------------------------------------------------------------- */

int64_t lk__hlo_count(const lk_hlo *value);

/* A type and a shape without a value, for the arguments `like`. */
lk_hlo lk__hlo_like(int type, lk_shape shape);
lk_hlo lk__hlo_reshape(lk_lowering *l, lk_hlo x, int rank, const int64_t *size);

lk_hlo lk__hlo_reshape_as(lk_lowering *l, lk_hlo x, lk_shape shape);

/* Axis i of the result is axis order[i] of x. */
lk_hlo lk__hlo_transpose(lk_lowering *l, lk_hlo x, const int *order);

/* Axis i of x becomes axis axes[i] of the shape of `like`; x is repeated along the others, and where its size is 1. */
lk_hlo lk__hlo_broadcast(lk_lowering *l, lk_hlo x, lk_hlo like, const int *axes);

/* [begin, end) of each axis, every step-th. */
lk_hlo lk__hlo_slice(lk_lowering *l, lk_hlo x, const int64_t *begin, const int64_t *end, const int64_t *step);

/* [begin, end) of one axis. */
lk_hlo lk__hlo_slice_axis(lk_lowering *l, lk_hlo x, int axis, int64_t begin, int64_t end);

/* `low` and `high` elements of `value` at the ends of each axis, which may be negative, `inside` between neighbors. */
lk_hlo lk__hlo_pad(lk_lowering *l, lk_hlo x, lk_hlo value, const int64_t *low, const int64_t *high,
                   const int64_t *inside);
lk_hlo lk__hlo_concat(lk_lowering *l, const lk_hlo *x, int n, int axis);
lk_hlo lk__hlo_reverse(lk_lowering *l, lk_hlo x, int axis);

/* x with `part` in the place that begins at `begin`. */
lk_hlo lk__hlo_replace(lk_lowering *l, lk_hlo x, lk_hlo part, const int64_t *begin);

/* Windows of x, of the size `window`. Row i of indices, i64 [n, k], says where the i-th begins on the axes `axes`
 * (ascending); it is 0 on others. Windows that would leave x are moved inside. Result: [n, …window], where the axes
 * with `drop` set, of size 1, are left out. */
lk_hlo lk__hlo_windows(lk_lowering *l, lk_hlo x, lk_hlo indices, const int *axes, const int64_t *window,
                       const bool *drop);

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* op: "add", "maximum", "minimum", "and" or "or". The reduced axes (bit i: axis i) are removed. One module reduces in
 * one order, which is the compiler's. */
lk_hlo lk__hlo_reduce(lk_lowering *l, const char *op, lk_hlo x, unsigned axes);

/* The same with reduced axes kept, with size 1. */
lk_hlo lk__hlo_reduce_keep(lk_lowering *l, const char *op, lk_hlo x, unsigned axes);

/* Sums over windows that move along each axis. Nothing is outside x but zeroes. */
lk_hlo lk__hlo_window_sums(lk_lowering *l, lk_hlo x, const int64_t *window, const int64_t *stride, const int64_t *low,
                           const int64_t *high);

/* [M, K] [K, N] → [M, N]. Products of bf16 are added up in f32, which the result has. */
lk_hlo lk__hlo_dot(lk_lowering *l, lk_hlo a, lk_hlo b);

/* A convolution of images; see lower_conv.c. `numbers` are its dimension numbers, "[b, f, 0, 1]x[o, i, 0, 1]->…";
 * `size` is the result's. As for lk__hlo_dot, bf16 gives f32. */
typedef struct lk_hlo_conv {
    const char *numbers;
    int64_t stride[2], low[2], high[2], x_dilation[2], w_dilation[2];
    int64_t feature_groups, batch_groups;
    int64_t size[4];
} lk_hlo_conv;
lk_hlo lk__hlo_convolution(lk_lowering *l, lk_hlo x, lk_hlo w, const lk_hlo_conv *conv);
