/* max_pool2d, avg_pool2d, both with relu before them, and their gradients. */
#include "ops/geometry.h"
#include "ops/ops.h"
#include "ref/ref.h"

#include <math.h>

typedef lk_pixel_range range;

/* --- windows without padding -------------------------------------------------------------------------------------- */

static int64_t ref_pool_first(const lk_geometry *p, int64_t i)
{
    i %= p->out[0] * p->out[1];
    return i / p->out[1] * p->stride[0] * p->in[1] + i % p->out[1] * p->stride[1];
}

int64_t lk__ref_index_of_tap(const lk_geometry *p, int64_t i, int64_t tap)
{
    return ref_pool_first(p, i) + tap / p->kernel[1] * p->in[1] + tap % p->kernel[1];
}

int64_t lk__ref_tap_of_index(const lk_geometry *p, int64_t i, int64_t index)
{
    int64_t distance = index - ref_pool_first(p, i);
    return distance / p->in[1] * p->kernel[1] + distance % p->in[1];
}

/* --- pooling ------------------------------------------------------------------------------------------------------ */

/* Returns the index in the plane of a window's first maximum, or -1 if the window is empty. NaN counts as greater than
 * any number. */
static int64_t ref_pool_first_max(const lk_geometry *p, const double *x, range rows, range columns)
{
    int64_t best = -1;
    for (int64_t ih = rows.begin; ih < rows.end; ih++) {
        for (int64_t iw = columns.begin; iw < columns.end; iw++) {
            int64_t i = ih * p->in[1] + iw;
            if (best < 0 || x[i] > x[best] || (isnan(x[i]) && !isnan(x[best])))
                best = i;
        }
    }
    return best;
}

static void ref_pool_max_plane(const lk_geometry *p, const double *x, double *y, int64_t *where)
{
    for (int64_t oh = 0; oh < p->out[0]; oh++) {
        range rows = lk__geometry_window(p, 0, oh);
        for (int64_t ow = 0; ow < p->out[1]; ow++) {
            int64_t best = ref_pool_first_max(p, x, rows, lk__geometry_window(p, 1, ow));
            *y++ = best < 0 ? -INFINITY : x[best];
            *where++ = best;
        }
    }
}

static double ref_pool_window_mean(const lk_geometry *p, const double *x, range rows, range columns, int64_t divisor)
{
    double sum = 0;
    for (int64_t ih = rows.begin; ih < rows.end; ih++)
        for (int64_t iw = columns.begin; iw < columns.end; iw++)
            sum += x[ih * p->in[1] + iw];
    return sum / (double)divisor;
}

static void ref_pool_avg_plane(const lk_geometry *p, const double *x, double *y)
{
    for (int64_t oh = 0; oh < p->out[0]; oh++) {
        range rows = lk__geometry_window(p, 0, oh);
        for (int64_t ow = 0; ow < p->out[1]; ow++) {
            range columns = lk__geometry_window(p, 1, ow);
            *y++ = ref_pool_window_mean(p, x, rows, columns, lk__geometry_divisor(p, rows, columns));
        }
    }
}

static void ref_pool_avg_grad_plane(const lk_geometry *p, const double *dy, double *dx)
{
    for (int64_t oh = 0; oh < p->out[0]; oh++) {
        range rows = lk__geometry_window(p, 0, oh);
        for (int64_t ow = 0; ow < p->out[1]; ow++) {
            range columns = lk__geometry_window(p, 1, ow);
            double share = *dy++ / (double)lk__geometry_divisor(p, rows, columns);
            for (int64_t ih = rows.begin; ih < rows.end; ih++)
                for (int64_t iw = columns.begin; iw < columns.end; iw++)
                    dx[ih * p->in[1] + iw] += share;
        }
    }
}

lk_status lk__ref_max_pool2d(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]), out = lk__ref_view(call->out[0]);
    lk_geometry p = lk__geometry_of_pool(in.shape, out.shape, LK_ATTRS(call, lk_pool2d_opts));
    int64_t in_plane = p.in[0] * p.in[1], out_plane = p.out[0] * p.out[1];
    const double *x = lk__ref_load(&scratch, in);
    double *y = lk__ref_new(&scratch, p.images * p.channels * out_plane);
    int64_t *where = lk__ref_new_int(&scratch, p.images * p.channels * out_plane);
    if (where) {
        for (int64_t i = 0; i < p.images * p.channels; i++)
            ref_pool_max_plane(&p, x + i * in_plane, y + i * out_plane, where + i * out_plane);
        lk__ref_store(y, out);
        lk__ref_store_int(where, lk__ref_view(call->out[1]));
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_max_pool2d_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view out = lk__ref_view(call->in[0]), in = lk__ref_view(call->out[0]);
    int64_t out_plane = lk__ref_extent(out.shape, 2, 4), in_plane = lk__ref_extent(in.shape, 2, 4);
    const double *dy = lk__ref_load(&scratch, out);
    const int64_t *where = lk__ref_load_int(&scratch, lk__ref_view(call->in[1]));
    double *dx = lk__ref_new(&scratch, lk__ref_count(in.shape));
    if (dx) {
        for (int64_t i = 0, count = lk__ref_count(out.shape); i < count; i++)
            if (where[i] >= 0)
                dx[i / out_plane * in_plane + where[i]] += dy[i];
        lk__ref_store(dx, in);
    }
    return lk__ref_end(&scratch);
}

/* Returns `positive`, set to relu(x); NULL for NULL. */
static double *ref_pool_relu(const double *x, double *positive, int64_t count)
{
    for (int64_t i = 0; i < count && positive; i++)
        positive[i] = x[i] <= 0 ? 0 : x[i];
    return positive;
}

/* The average of x or, with `relu`, of relu(x). */
static lk_status ref_pool_average(lk_call *call, bool relu)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]), out = lk__ref_view(call->out[0]);
    lk_geometry p = lk__geometry_of_pool(in.shape, out.shape, LK_ATTRS(call, lk_pool2d_opts));
    const double *x = lk__ref_load(&scratch, in);
    if (relu)
        x = ref_pool_relu(x, lk__ref_new(&scratch, lk__ref_count(in.shape)), lk__ref_count(in.shape));
    double *y = lk__ref_new(&scratch, lk__ref_count(out.shape));
    if (y) {
        for (int64_t i = 0; i < p.images * p.channels; i++)
            ref_pool_avg_plane(&p, x + i * p.in[0] * p.in[1], y + i * p.out[0] * p.out[1]);
        lk__ref_store(y, out);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_avg_pool2d(lk_call *call)
{
    return ref_pool_average(call, false);
}

lk_status lk__ref_relu_avg_pool2d(lk_call *call)
{
    return ref_pool_average(call, true);
}

/* x: of relu_avg_pool2d_grad; NULL: there is no relu. */
static lk_status ref_pool_average_grad(lk_call *call, const lk_tensor *x)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view out = lk__ref_view(call->in[0]), in = lk__ref_view(call->out[0]);
    lk_geometry p = lk__geometry_of_pool(in.shape, out.shape, &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool);
    const double *dy = lk__ref_load(&scratch, out), *relu = x ? lk__ref_load(&scratch, lk__ref_view(x)) : NULL;
    double *dx = lk__ref_new(&scratch, lk__ref_count(in.shape));
    if (dx) {
        for (int64_t i = 0; i < p.images * p.channels; i++)
            ref_pool_avg_grad_plane(&p, dy + i * p.out[0] * p.out[1], dx + i * p.in[0] * p.in[1]);
        for (int64_t i = 0; i < lk__ref_count(in.shape) && relu; i++)
            dx[i] = relu[i] > 0 ? dx[i] : 0;
        lk__ref_store(dx, in);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_avg_pool2d_grad(lk_call *call)
{
    return ref_pool_average_grad(call, NULL);
}

lk_status lk__ref_relu_avg_pool2d_grad(lk_call *call)
{
    return ref_pool_average_grad(call, call->in[1]);
}

lk_status lk__ref_relu_max_pool2d(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]), out = lk__ref_view(call->out[0]);
    lk_geometry p = lk__geometry_of_pool(in.shape, out.shape, LK_ATTRS(call, lk_pool2d_opts));
    int64_t count = lk__ref_count(out.shape), in_plane = p.in[0] * p.in[1], out_plane = p.out[0] * p.out[1];
    const double *x = lk__ref_load(&scratch, in);
    double *positive = ref_pool_relu(x, lk__ref_new(&scratch, lk__ref_count(in.shape)), lk__ref_count(in.shape));
    double *y = lk__ref_new(&scratch, count);
    int64_t *where = lk__ref_new_int(&scratch, count);
    if (scratch.status == LK_OK) {
        for (int64_t i = 0; i < p.images * p.channels; i++)
            ref_pool_max_plane(&p, positive + i * in_plane, y + i * out_plane, where + i * out_plane);
        for (int64_t i = 0; i < count; i++)
            where[i] = y[i] > 0 ? lk__ref_tap_of_index(&p, i, where[i]) : LK_POOL_TAPS;
        lk__ref_store(y, out);
        lk__ref_store_int(where, lk__ref_view(call->out[1]));
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_relu_max_pool2d_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view out = lk__ref_view(call->in[0]), in = lk__ref_view(call->out[0]);
    lk_geometry p = lk__geometry_of_pool(in.shape, out.shape, &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool);
    const double *dy = lk__ref_load(&scratch, out);
    const int64_t *where = lk__ref_load_int(&scratch, lk__ref_view(call->in[1]));
    double *dx = lk__ref_new(&scratch, lk__ref_count(in.shape));
    if (scratch.status == LK_OK) {
        for (int64_t i = 0; i < lk__ref_count(out.shape); i++)
            if (where[i] < LK_POOL_TAPS)
                dx[i / (p.out[0] * p.out[1]) * p.in[0] * p.in[1] + lk__ref_index_of_tap(&p, i, where[i])] = dy[i];
        lk__ref_store(dx, in);
    }
    return lk__ref_end(&scratch);
}
