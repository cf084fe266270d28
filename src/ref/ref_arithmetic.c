/* add, sub, mul, div, pairwise sums, and the update of stochastic gradient descent. */
#include "ops/ops.h"
#include "ops/pairwise_sum.h"
#include "ref/ref.h"

static void ref_arithmetic_combine_doubles(int op, const double *a, const double *b, double *y, int64_t n)
{
    switch (op) {
    case LK_OP_ADD:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] + b[i];
        break;
    case LK_OP_SUB:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] - b[i];
        break;
    case LK_OP_MUL:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] * b[i];
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] / b[i];
    }
}

/* Wraps as two's complement, by way of unsigned arithmetic, where overflow is defined. The low bits are right for
 * narrower dtypes too. */
static int64_t ref_arithmetic_combine_int(int op, int64_t a, int64_t b)
{
    switch (op) {
    case LK_OP_ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case LK_OP_SUB:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case LK_OP_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    default:
        if (b == 0)
            return 0;
        return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b; /* INT64_MIN / -1 wraps */
    }
}

static void ref_arithmetic_combine_f32(int op, const lk_ref_rows *rows)
{
    float *y = (float *)rows->row[0];
    const float *a = (const float *)rows->row[1], *b = (const float *)rows->row[2];
    int64_t sy = rows->step[0], sa = rows->step[1], sb = rows->step[2];
    switch (op) {
    case LK_OP_ADD:
        for (int64_t i = 0; i < rows->length; i++)
            y[i * sy] = a[i * sa] + b[i * sb];
        break;
    case LK_OP_SUB:
        for (int64_t i = 0; i < rows->length; i++)
            y[i * sy] = a[i * sa] - b[i * sb];
        break;
    case LK_OP_MUL:
        for (int64_t i = 0; i < rows->length; i++)
            y[i * sy] = a[i * sa] * b[i * sb];
        break;
    default:
        for (int64_t i = 0; i < rows->length; i++)
            y[i * sy] = a[i * sa] / b[i * sb];
    }
}

/* f32 is computed as float: a double result rounded to float is the same number for + - * /, because a double has
 * 53 >= 2 * 24 + 2 bits (Figueroa: "When is double rounding innocuous?", SIGNUM Newsletter 30(3), 1995). */
static lk_status ref_arithmetic_f32(int op, lk_ref_view y, lk_ref_view a, lk_ref_view b)
{
    lk_ref_rows rows;
    for (lk__ref_rows_begin(&rows, (lk_ref_view[]){y, a, b}, 3); rows.left > 0; lk__ref_rows_next(&rows))
        ref_arithmetic_combine_f32(op, &rows);
    return LK_OK;
}

static lk_status ref_arithmetic_float(int op, lk_ref_view out, lk_ref_view in0, lk_ref_view in1)
{
    lk_ref_scratch scratch = {0};
    int64_t count = lk__ref_count(out.shape);
    const double *a = lk__ref_load(&scratch, in0);
    const double *b = lk__ref_load(&scratch, in1);
    double *y = lk__ref_new(&scratch, count);
    if (y) {
        ref_arithmetic_combine_doubles(op, a, b, y, count);
        lk__ref_store(y, out);
    }
    return lk__ref_end(&scratch);
}

static lk_status ref_arithmetic_int(int op, lk_ref_view out, lk_ref_view in0, lk_ref_view in1)
{
    lk_ref_scratch scratch = {0};
    int64_t count = lk__ref_count(out.shape);
    const int64_t *a = lk__ref_load_int(&scratch, in0);
    const int64_t *b = lk__ref_load_int(&scratch, in1);
    int64_t *y = lk__ref_new_int(&scratch, count);
    if (y) {
        for (int64_t i = 0; i < count; i++)
            y[i] = ref_arithmetic_combine_int(op, a[i], b[i]);
        lk__ref_store_int(y, out);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_arithmetic(lk_call *call)
{
    int op = call->op->id;
    lk_ref_view y = lk__ref_view(call->out[0]);
    lk_ref_view a = lk__ref_broadcast(lk__ref_view(call->in[0]), y.shape);
    lk_ref_view b = lk__ref_broadcast(lk__ref_view(call->in[1]), y.shape);
    if (LK_DTYPE_BIT(y.dtype) & LK_INTS)
        return ref_arithmetic_int(op, y, a, b);
    if (y.dtype == LK_F32)
        return ref_arithmetic_f32(op, y, a, b);
    return ref_arithmetic_float(op, y, a, b);
}

/* --- pairwise_sum ------------------------------------------------------------------------------------------------- */

/* Returns the sum of element `element` of x[0 … n). Sums floats in double and rounds each sum once, which gives the
 * bits of a sum in f32: see ref_arithmetic_f32. */
static double ref_pairwise_sum_element(const double *const *x, int64_t element, int n, bool single)
{
    if (n == 1)
        return x[0][element]; /* NOLINT(clang-analyzer-core.NullDereference): x[n], none of them NULL */
    double sum = ref_pairwise_sum_element(x, element, n / 2, single) +
                 ref_pairwise_sum_element(x + n / 2, element, n / 2, single);
    return single ? (double)(float)sum : sum;
}

lk_status lk__ref_pairwise_sum(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    const double *x[LK_MAX_PAIRWISE];
    lk_ref_view out = lk__ref_view(call->out[0]);
    int64_t count = lk__ref_count(out.shape);
    for (int i = 0; i < call->n_in; i++)
        x[i] = lk__ref_load(&scratch, lk__ref_view(call->in[i]));
    double *y = lk__ref_new(&scratch, count);
    if (y) {
        for (int64_t e = 0; e < count; e++)
            y[e] = ref_pairwise_sum_element(x, e, call->n_in, call->dtype == LK_F32);
        lk__ref_store(y, out);
    }
    return lk__ref_end(&scratch);
}

/* --- sgd_update -------------------------------------------------------------------------------------------------- */

static void ref_sgd_row_f32(const lk_ref_rows *rows, float rate)
{
    float *w = (float *)rows->row[0];
    const float *g = (const float *)rows->row[1];
    for (int64_t i = 0; i < rows->length; i++) {
        float step = rate * g[i * rows->step[1]];
        w[i * rows->step[0]] -= step;
    }
}

static void ref_sgd_row_f64(const lk_ref_rows *rows, double rate)
{
    double *w = (double *)rows->row[0];
    const double *g = (const double *)rows->row[1];
    for (int64_t i = 0; i < rows->length; i++) {
        double step = rate * g[i * rows->step[1]];
        w[i * rows->step[0]] -= step;
    }
}

/* Rounds the multiplication and the subtraction separately, in the parameter's dtype, so that an update has the same
 * bits on every device. */
static void ref_sgd_rows(lk_ref_view parameter, lk_ref_view gradient, double rate)
{
    lk_ref_rows rows;
    for (lk__ref_rows_begin(&rows, (lk_ref_view[]){parameter, gradient}, 2); rows.left > 0; lk__ref_rows_next(&rows)) {
        if (parameter.dtype == LK_F32)
            ref_sgd_row_f32(&rows, (float)rate);
        else
            ref_sgd_row_f64(&rows, rate);
    }
}

lk_status lk__ref_sgd_update(lk_call *call)
{
    ref_sgd_rows(lk__ref_view(call->out[0]), lk__ref_view(call->in[1]), LK_ATTRS(call, lk_sgd_attrs)->rate);
    return LK_OK;
}
