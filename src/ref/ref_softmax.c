/* softmax, log_softmax and their gradients, along one axis. */
#include "ops/ops.h"
#include "ref/ref.h"

#include <math.h>

/* A line of elements along the axis: n of them, `step` apart. */
typedef struct line {
    int64_t n, step;
} line;

static double ref_softmax_line_max(const double *x, line l)
{
    double best = -INFINITY;
    for (int64_t i = 0; i < l.n; i++)
        if (x[i * l.step] > best)
            best = x[i * l.step];
    return best;
}

/* Sets y = exp(x - max), so that no power overflows, and returns their sum. NaN in gives NaN out. */
static double ref_softmax_line_exponentials(const double *x, double *y, line l)
{
    double best = ref_softmax_line_max(x, l), sum = 0;
    for (int64_t i = 0; i < l.n; i++)
        sum += y[i * l.step] = exp(x[i * l.step] - best);
    return sum;
}

static void ref_softmax_line(const double *x, double *y, line l)
{
    double sum = ref_softmax_line_exponentials(x, y, l);
    for (int64_t i = 0; i < l.n; i++)
        y[i * l.step] /= sum;
}

static void ref_log_softmax_line(const double *x, double *y, line l)
{
    double best = ref_softmax_line_max(x, l), log_sum = log(ref_softmax_line_exponentials(x, y, l));
    for (int64_t i = 0; i < l.n; i++)
        y[i * l.step] = x[i * l.step] - best - log_sum;
}

/* Computes dx = y (dy - Σ dy y). */
static void ref_softmax_grad_line(const double *dy, const double *y, double *dx, line l)
{
    double dot = 0;
    for (int64_t i = 0; i < l.n; i++)
        dot += dy[i * l.step] * y[i * l.step];
    for (int64_t i = 0; i < l.n; i++)
        dx[i * l.step] = y[i * l.step] * (dy[i * l.step] - dot);
}

/* Computes dx = dy - exp(y) Σ dy. */
static void ref_log_softmax_grad_line(const double *dy, const double *y, double *dx, line l)
{
    double sum = 0;
    for (int64_t i = 0; i < l.n; i++)
        sum += dy[i * l.step];
    for (int64_t i = 0; i < l.n; i++)
        dx[i * l.step] = dy[i * l.step] - exp(y[i * l.step]) * sum;
}

static line ref_softmax_line_of(const lk_call *call, lk_shape shape)
{
    int axis = LK_ATTRS(call, lk_axis_attrs)->axis;
    return (line){.n = shape.dim[axis], .step = lk__ref_extent(shape, axis + 1, shape.ndim)};
}

/* Returns the offset of line i. */
static int64_t ref_softmax_line_start(line l, int64_t i)
{
    return i / l.step * l.step * l.n + i % l.step;
}

static lk_status ref_softmax_along_axis(lk_call *call, void (*run)(const double *, double *, line))
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]);
    int64_t count = lk__ref_count(in.shape);
    line l = ref_softmax_line_of(call, in.shape);
    const double *x = lk__ref_load(&scratch, in);
    double *y = lk__ref_new(&scratch, count);
    if (y) {
        for (int64_t i = 0; i * l.n < count; i++)
            run(x + ref_softmax_line_start(l, i), y + ref_softmax_line_start(l, i), l);
        lk__ref_store(y, lk__ref_view(call->out[0]));
    }
    return lk__ref_end(&scratch);
}

static lk_status ref_softmax_grad_along_axis(lk_call *call, void (*run)(const double *, const double *, double *, line))
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]);
    int64_t count = lk__ref_count(in.shape);
    line l = ref_softmax_line_of(call, in.shape);
    const double *dy = lk__ref_load(&scratch, in);
    const double *y = lk__ref_load(&scratch, lk__ref_view(call->in[1]));
    double *dx = lk__ref_new(&scratch, count);
    if (dx) {
        for (int64_t i = 0; i * l.n < count; i++)
            run(dy + ref_softmax_line_start(l, i), y + ref_softmax_line_start(l, i), dx + ref_softmax_line_start(l, i),
                l);
        lk__ref_store(dx, lk__ref_view(call->out[0]));
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_softmax(lk_call *call)
{
    return ref_softmax_along_axis(call, ref_softmax_line);
}

lk_status lk__ref_log_softmax(lk_call *call)
{
    return ref_softmax_along_axis(call, ref_log_softmax_line);
}

lk_status lk__ref_softmax_grad(lk_call *call)
{
    return ref_softmax_grad_along_axis(call, ref_softmax_grad_line);
}

lk_status lk__ref_log_softmax_grad(lk_call *call)
{
    return ref_softmax_grad_along_axis(call, ref_log_softmax_grad_line);
}
