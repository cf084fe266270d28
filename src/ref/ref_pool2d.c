/* max_pool2d, avg_pool2d and their gradients. */
#include "ops/ops.h"
#include "ref/ref.h"

#include <math.h>

typedef struct pool {
    lk_pool2d_opts opts;
    int64_t planes; /* images times channels */
    int64_t in_size[2], out_size[2];
} pool;

static pool ref_pool_of(const lk_pool2d_opts *opts, int64_t height, int64_t width, lk_shape y)
{
    return (pool){
        .opts = *opts, .planes = y.dim[0] * y.dim[1], .in_size = {height, width}, .out_size = {y.dim[2], y.dim[3]}};
}

/* The inputs [begin, end) of an axis that output `o` covers, without padding. */
typedef struct window {
    int64_t begin, end;
} window;

static window ref_pool_window(const pool *p, int axis, int64_t o)
{
    int64_t begin = o * p->opts.stride[axis] - p->opts.padding[axis], end = begin + p->opts.kernel[axis];
    return (window){begin < 0 ? 0 : begin, end > p->in_size[axis] ? p->in_size[axis] : end};
}

/* Returns the index in the plane of a window's first maximum, or -1 if the window is empty. NaN counts as greater than
 * any number. */
static int64_t ref_pool_first_max(const pool *p, const double *x, window rows, window columns)
{
    int64_t best = -1;
    for (int64_t ih = rows.begin; ih < rows.end; ih++) {
        for (int64_t iw = columns.begin; iw < columns.end; iw++) {
            int64_t i = ih * p->in_size[1] + iw;
            if (best < 0 || x[i] > x[best] || (isnan(x[i]) && !isnan(x[best])))
                best = i;
        }
    }
    return best;
}

static void ref_pool_max_plane(const pool *p, const double *x, double *y, int64_t *where)
{
    for (int64_t oh = 0; oh < p->out_size[0]; oh++) {
        window rows = ref_pool_window(p, 0, oh);
        for (int64_t ow = 0; ow < p->out_size[1]; ow++) {
            int64_t best = ref_pool_first_max(p, x, rows, ref_pool_window(p, 1, ow));
            *y++ = best < 0 ? -INFINITY : x[best];
            *where++ = best;
        }
    }
}

static double ref_pool_window_mean(const pool *p, const double *x, window rows, window columns, int64_t divisor)
{
    double sum = 0;
    for (int64_t ih = rows.begin; ih < rows.end; ih++)
        for (int64_t iw = columns.begin; iw < columns.end; iw++)
            sum += x[ih * p->in_size[1] + iw];
    return sum / (double)divisor;
}

static int64_t ref_pool_avg_divisor(const pool *p, window rows, window columns)
{
    if (p->opts.count_include_pad)
        return p->opts.kernel[0] * p->opts.kernel[1];
    return (rows.end - rows.begin) * (columns.end - columns.begin);
}

static void ref_pool_avg_plane(const pool *p, const double *x, double *y)
{
    for (int64_t oh = 0; oh < p->out_size[0]; oh++) {
        window rows = ref_pool_window(p, 0, oh);
        for (int64_t ow = 0; ow < p->out_size[1]; ow++) {
            window columns = ref_pool_window(p, 1, ow);
            *y++ = ref_pool_window_mean(p, x, rows, columns, ref_pool_avg_divisor(p, rows, columns));
        }
    }
}

static void ref_pool_avg_grad_plane(const pool *p, const double *dy, double *dx)
{
    for (int64_t oh = 0; oh < p->out_size[0]; oh++) {
        window rows = ref_pool_window(p, 0, oh);
        for (int64_t ow = 0; ow < p->out_size[1]; ow++) {
            window columns = ref_pool_window(p, 1, ow);
            double share = *dy++ / (double)ref_pool_avg_divisor(p, rows, columns);
            for (int64_t ih = rows.begin; ih < rows.end; ih++)
                for (int64_t iw = columns.begin; iw < columns.end; iw++)
                    dx[ih * p->in_size[1] + iw] += share;
        }
    }
}

lk_status lk__ref_max_pool2d(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]), out = lk__ref_view(call->out[0]);
    pool p = ref_pool_of(LK_ATTRS(call, lk_pool2d_opts), in.shape.dim[2], in.shape.dim[3], out.shape);
    int64_t in_plane = p.in_size[0] * p.in_size[1], out_plane = p.out_size[0] * p.out_size[1];
    const double *x = lk__ref_load(&scratch, in);
    double *y = lk__ref_new(&scratch, p.planes * out_plane);
    int64_t *where = lk__ref_new_int(&scratch, p.planes * out_plane);
    if (where) {
        for (int64_t i = 0; i < p.planes; i++)
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

lk_status lk__ref_avg_pool2d(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]), out = lk__ref_view(call->out[0]);
    pool p = ref_pool_of(LK_ATTRS(call, lk_pool2d_opts), in.shape.dim[2], in.shape.dim[3], out.shape);
    const double *x = lk__ref_load(&scratch, in);
    double *y = lk__ref_new(&scratch, lk__ref_count(out.shape));
    if (y) {
        for (int64_t i = 0; i < p.planes; i++)
            ref_pool_avg_plane(&p, x + i * p.in_size[0] * p.in_size[1], y + i * p.out_size[0] * p.out_size[1]);
        lk__ref_store(y, out);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_avg_pool2d_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view out = lk__ref_view(call->in[0]), in = lk__ref_view(call->out[0]);
    const lk_pool2d_grad_attrs *attrs = LK_ATTRS(call, lk_pool2d_grad_attrs);
    pool p = ref_pool_of(&attrs->pool, attrs->height, attrs->width, out.shape);
    const double *dy = lk__ref_load(&scratch, out);
    double *dx = lk__ref_new(&scratch, lk__ref_count(in.shape));
    if (dx) {
        for (int64_t i = 0; i < p.planes; i++)
            ref_pool_avg_grad_plane(&p, dy + i * p.out_size[0] * p.out_size[1], dx + i * p.in_size[0] * p.in_size[1]);
        lk__ref_store(dx, in);
    }
    return lk__ref_end(&scratch);
}
