/* sum, mean, max and its gradient, argmax. The input is walked in row-major order together with the result, which is
 * seen with stride 0 along the reduced axes: each result takes its elements in that order. */
#include "ops/ops.h"
#include "ref/ref.h"

#include <math.h>

static int64_t ref_reduce_result_count(lk_shape x, unsigned axes)
{
    int64_t count = 1;
    for (int i = 0; i < x.ndim; i++)
        count *= axes >> i & 1 ? 1 : x.dim[i];
    return count;
}

/* Returns the dense results of a reduction of `x` over `axes` as an operand of x's shape. */
static lk_ref_view ref_reduce_result_view(void *results, lk_dtype dtype, lk_shape x, unsigned axes)
{
    lk_ref_view view = {.data = results, .dtype = dtype, .shape = x};
    int64_t stride = 1;
    for (int i = x.ndim - 1; i >= 0; i--) {
        bool reduced = axes >> i & 1;
        view.strides[i] = reduced ? 0 : stride;
        stride *= reduced ? 1 : x.dim[i];
    }
    return view;
}

/* --- sum and mean ------------------------------------------------------------------------------------------------ */

static void ref_reduce_sum_row(const lk_ref_rows *rows)
{
    const double *x = (const double *)rows->row[0];
    double *y = (double *)rows->row[1];
    for (int64_t i = 0; i < rows->length; i++)
        y[i * rows->step[1]] += x[i];
}

static void ref_reduce_sum_doubles(const double *x, double *y, lk_shape shape, unsigned axes)
{
    lk_ref_view views[] = {lk__ref_dense((void *)(uintptr_t)x, LK_F64, shape),
                           ref_reduce_result_view(y, LK_F64, shape, axes)};
    lk_ref_rows rows;
    for (lk__ref_rows_begin(&rows, views, 2); rows.left > 0; lk__ref_rows_next(&rows))
        ref_reduce_sum_row(&rows);
}

static void ref_reduce_sum_ints(const int64_t *x, int64_t *y, lk_shape shape, unsigned axes)
{
    lk_ref_view views[] = {lk__ref_dense((void *)(uintptr_t)x, LK_I64, shape),
                           ref_reduce_result_view(y, LK_I64, shape, axes)};
    lk_ref_rows rows;
    for (lk__ref_rows_begin(&rows, views, 2); rows.left > 0; lk__ref_rows_next(&rows)) {
        const uint64_t *in = (const uint64_t *)rows.row[0]; /* unsigned: a sum wraps */
        uint64_t *out = (uint64_t *)rows.row[1];
        for (int64_t i = 0; i < rows.length; i++)
            out[i * rows.step[1]] += in[i];
    }
}

static lk_status ref_reduce_sum_or_mean(lk_call *call, bool mean)
{
    lk_ref_scratch scratch = {0};
    unsigned axes = LK_ATTRS(call, lk_reduce_attrs)->axes;
    lk_ref_view in = lk__ref_view(call->in[0]);
    int64_t count = ref_reduce_result_count(in.shape, axes);
    const double *x = lk__ref_load(&scratch, in);
    double *y = lk__ref_new(&scratch, count);
    if (y) {
        ref_reduce_sum_doubles(x, y, in.shape, axes);
        double divisor = mean ? (double)lk__ref_count(in.shape) / (double)count : 1;
        for (int64_t i = 0; i < count; i++)
            y[i] /= divisor;
        lk__ref_store(y, lk__ref_view(call->out[0]));
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_sum(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    unsigned axes = LK_ATTRS(call, lk_reduce_attrs)->axes;
    lk_ref_view in = lk__ref_view(call->in[0]);
    if (LK_DTYPE_BIT(in.dtype) & LK_FLOATS)
        return ref_reduce_sum_or_mean(call, false);
    const int64_t *x = lk__ref_load_int(&scratch, in);
    int64_t *y = lk__ref_new_int(&scratch, ref_reduce_result_count(in.shape, axes));
    if (y) {
        ref_reduce_sum_ints(x, y, in.shape, axes);
        lk__ref_store_int(y, lk__ref_view(call->out[0]));
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_mean(lk_call *call)
{
    return ref_reduce_sum_or_mean(call, true);
}

/* --- max --------------------------------------------------------------------------------------------------------- */

/* NaN counts as greater than any number, so that it reaches the result. */
static bool ref_reduce_is_greater(double a, double b)
{
    return a > b || (isnan(a) && !isnan(b));
}

static bool ref_reduce_is_same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void ref_reduce_max_doubles(const double *x, double *y, lk_shape shape, unsigned axes)
{
    lk_ref_view views[] = {lk__ref_dense((void *)(uintptr_t)x, LK_F64, shape),
                           ref_reduce_result_view(y, LK_F64, shape, axes)};
    lk_ref_rows rows;
    for (lk__ref_rows_begin(&rows, views, 2); rows.left > 0; lk__ref_rows_next(&rows)) {
        const double *in = (const double *)rows.row[0];
        double *out = (double *)rows.row[1];
        for (int64_t i = 0; i < rows.length; i++)
            if (ref_reduce_is_greater(in[i], out[i * rows.step[1]]))
                out[i * rows.step[1]] = in[i];
    }
}

static void ref_reduce_max_ints(const int64_t *x, int64_t *y, lk_shape shape, unsigned axes)
{
    lk_ref_view views[] = {lk__ref_dense((void *)(uintptr_t)x, LK_I64, shape),
                           ref_reduce_result_view(y, LK_I64, shape, axes)};
    lk_ref_rows rows;
    for (lk__ref_rows_begin(&rows, views, 2); rows.left > 0; lk__ref_rows_next(&rows)) {
        const int64_t *in = (const int64_t *)rows.row[0];
        int64_t *out = (int64_t *)rows.row[1];
        for (int64_t i = 0; i < rows.length; i++)
            if (in[i] > out[i * rows.step[1]])
                out[i * rows.step[1]] = in[i];
    }
}

static lk_status ref_reduce_max_int_tensor(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    unsigned axes = LK_ATTRS(call, lk_reduce_attrs)->axes;
    lk_ref_view in = lk__ref_view(call->in[0]);
    int64_t count = ref_reduce_result_count(in.shape, axes);
    const int64_t *x = lk__ref_load_int(&scratch, in);
    int64_t *y = lk__ref_new_int(&scratch, count);
    if (y) {
        for (int64_t i = 0; i < count; i++)
            y[i] = INT64_MIN;
        ref_reduce_max_ints(x, y, in.shape, axes);
        lk__ref_store_int(y, lk__ref_view(call->out[0]));
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_max(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    unsigned axes = LK_ATTRS(call, lk_reduce_attrs)->axes;
    lk_ref_view in = lk__ref_view(call->in[0]);
    if (LK_DTYPE_BIT(in.dtype) & LK_INTS)
        return ref_reduce_max_int_tensor(call);
    int64_t count = ref_reduce_result_count(in.shape, axes);
    const double *x = lk__ref_load(&scratch, in);
    double *y = lk__ref_new(&scratch, count);
    if (y) {
        for (int64_t i = 0; i < count; i++)
            y[i] = -INFINITY;
        ref_reduce_max_doubles(x, y, in.shape, axes);
        lk__ref_store(y, lk__ref_view(call->out[0]));
    }
    return lk__ref_end(&scratch);
}

/* Computes dx = dy at the first x equal to y, otherwise 0. An element of dy is cleared once it has been used, so that
 * later equal elements get 0. */
static void ref_reduce_max_grad(double *dy, const double *x, const double *y, double *dx, lk_shape shape, unsigned axes)
{
    int64_t i = 0;
    lk_ref_view views[] = {ref_reduce_result_view((void *)(uintptr_t)y, LK_F64, shape, axes),
                           ref_reduce_result_view(dy, LK_F64, shape, axes)};
    lk_ref_rows rows;
    for (lk__ref_rows_begin(&rows, views, 2); rows.left > 0; lk__ref_rows_next(&rows)) {
        const double *maximum = (const double *)rows.row[0];
        double *rest = (double *)rows.row[1];
        for (int64_t j = 0; j < rows.length; j++, i++) {
            int64_t r = j * rows.step[0];
            if (!ref_reduce_is_same_number(x[i], maximum[r]))
                continue;
            dx[i] = rest[r];
            rest[r] = 0;
        }
    }
}

lk_status lk__ref_max_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    unsigned axes = LK_ATTRS(call, lk_reduce_attrs)->axes;
    lk_ref_view in = lk__ref_view(call->in[1]);
    int64_t count = ref_reduce_result_count(in.shape, axes);
    const double *dy = lk__ref_load(&scratch, lk__ref_view(call->in[0]));
    const double *x = lk__ref_load(&scratch, in);
    const double *y = lk__ref_load(&scratch, lk__ref_view(call->in[2]));
    double *rest = lk__ref_new(&scratch, count);
    double *dx = lk__ref_new(&scratch, lk__ref_count(in.shape));
    if (dx) {
        for (int64_t i = 0; i < count; i++)
            rest[i] = dy[i];
        ref_reduce_max_grad(rest, x, y, dx, in.shape, axes);
        lk__ref_store(dx, lk__ref_view(call->out[0]));
    }
    return lk__ref_end(&scratch);
}

/* --- argmax ------------------------------------------------------------------------------------------------------ */

/* Returns the index of the first maximum of n elements that lie `inner` apart. */
static int64_t ref_reduce_argmax_line(const double *x, int64_t n, int64_t inner)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (ref_reduce_is_greater(x[i * inner], x[best * inner]))
            best = i;
    return best;
}

static int64_t ref_reduce_argmax_line_int(const int64_t *x, int64_t n, int64_t inner)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i * inner] > x[best * inner])
            best = i;
    return best;
}

lk_status lk__ref_argmax(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    int axis = LK_ATTRS(call, lk_axis_attrs)->axis;
    lk_ref_view in = lk__ref_view(call->in[0]), out = lk__ref_view(call->out[0]);
    bool is_int = LK_DTYPE_BIT(in.dtype) & LK_INTS;
    int64_t n = in.shape.dim[axis], inner = lk__ref_extent(in.shape, axis + 1, in.shape.ndim);
    const double *x = is_int ? NULL : lk__ref_load(&scratch, in);
    const int64_t *x_int = is_int ? lk__ref_load_int(&scratch, in) : NULL;
    int64_t *y = lk__ref_new_int(&scratch, lk__ref_count(out.shape));
    if (y) {
        for (int64_t i = 0, count = lk__ref_count(out.shape); i < count; i++) {
            int64_t first = i / inner * inner * n + i % inner;
            y[i] = is_int ? ref_reduce_argmax_line_int(x_int + first, n, inner)
                          : ref_reduce_argmax_line(x + first, n, inner);
        }
        lk__ref_store_int(y, out);
    }
    return lk__ref_end(&scratch);
}
