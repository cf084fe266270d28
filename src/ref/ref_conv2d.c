/* conv2d and its two gradients. All three visit the same triples (input, weight, output), an output row at a time, so
 * that the innermost loop runs along images. */
#include "ops/ops.h"
#include "ref/ref.h"

typedef struct conv {
    int64_t batch, groups;
    int64_t in_channels, out_channels; /* of one group */
    int64_t in_size[2], kernel[2], out_size[2];
    int64_t stride[2], padding[2], dilation[2];
} conv;

static conv conv_of(const lk_conv2d_opts *opts, lk_shape x, lk_shape w, lk_shape y)
{
    conv c = {
        .batch = x.dim[0], .groups = opts->groups, .in_channels = w.dim[1], .out_channels = w.dim[0] / opts->groups};
    for (int i = 0; i < 2; i++) {
        c.in_size[i] = x.dim[2 + i];
        c.kernel[i] = w.dim[2 + i];
        c.out_size[i] = y.dim[2 + i];
        c.stride[i] = opts->stride[i];
        c.padding[i] = opts->padding[i];
        c.dilation[i] = opts->dilation[i];
    }
    return c;
}

/* Outputs [begin, end) along an axis whose input under kernel element k is not padding; the first one's input is
 * `first`. */
typedef struct range {
    int64_t begin, end, first;
} range;

static range inside(const conv *c, int axis, int64_t k)
{
    int64_t shift = k * c->dilation[axis] - c->padding[axis], stride = c->stride[axis];
    int64_t last = c->in_size[axis] - 1 - shift;
    range r = {.begin = shift < 0 ? (-shift + stride - 1) / stride : 0, .end = last < 0 ? 0 : last / stride + 1};
    if (r.end > c->out_size[axis])
        r.end = c->out_size[axis];
    if (r.begin > r.end)
        r.begin = r.end;
    r.first = r.begin * stride + shift;
    return r;
}

/* Where a triple's planes start: image n, group g, output channel o and input channel i of the group. */
static int64_t in_plane(const conv *c, int64_t n, int64_t g, int64_t i)
{
    return ((n * c->groups + g) * c->in_channels + i) * c->in_size[0] * c->in_size[1];
}

static int64_t out_plane(const conv *c, int64_t n, int64_t g, int64_t o)
{
    return ((n * c->groups + g) * c->out_channels + o) * c->out_size[0] * c->out_size[1];
}

static int64_t kernel_plane(const conv *c, int64_t g, int64_t o, int64_t i)
{
    return ((g * c->out_channels + o) * c->in_channels + i) * c->kernel[0] * c->kernel[1];
}

/* --- rows ----------------------------------------------------------------------------------------------------------
 */

/* y[j] += w x[j * stride] */
static void forward_row(double *y, double w, const double *x, int64_t stride, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        y[j] += w * x[j * stride];
}

/* dx[j * stride] += w dy[j] */
static void input_grad_row(double *dx, double w, const double *dy, int64_t stride, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        dx[j * stride] += w * dy[j];
}

/* sums[j] += dy[j] x[j * stride] */
static void weight_grad_row(double *sums, const double *dy, const double *x, int64_t stride, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        sums[j] += dy[j] * x[j * stride];
}

/* --- planes --------------------------------------------------------------------------------------------------------
 */

static void forward_plane(const conv *c, double *y, const double *w, const double *x)
{
    for (int64_t kh = 0; kh < c->kernel[0]; kh++) {
        range rows = inside(c, 0, kh);
        for (int64_t kw = 0; kw < c->kernel[1]; kw++) {
            range columns = inside(c, 1, kw);
            for (int64_t oh = rows.begin, ih = rows.first; oh < rows.end; oh++, ih += c->stride[0])
                forward_row(y + oh * c->out_size[1] + columns.begin, w[kh * c->kernel[1] + kw],
                            x + ih * c->in_size[1] + columns.first, c->stride[1], columns.end - columns.begin);
        }
    }
}

static void input_grad_plane(const conv *c, double *dx, const double *w, const double *dy)
{
    for (int64_t kh = 0; kh < c->kernel[0]; kh++) {
        range rows = inside(c, 0, kh);
        for (int64_t kw = 0; kw < c->kernel[1]; kw++) {
            range columns = inside(c, 1, kw);
            for (int64_t oh = rows.begin, ih = rows.first; oh < rows.end; oh++, ih += c->stride[0])
                input_grad_row(dx + ih * c->in_size[1] + columns.first, w[kh * c->kernel[1] + kw],
                               dy + oh * c->out_size[1] + columns.begin, c->stride[1], columns.end - columns.begin);
        }
    }
}

/* One weight's gradient, summed over images and output rows for each output column apart, then over the columns: sums
 * of columns do not wait for each other. sums: [out_size[1]]. */
static double weight_grad_element(const conv *c, const double *dy, const double *x, int64_t g, int64_t o, int64_t i,
                                  range rows, range columns, double *sums)
{
    for (int64_t j = 0; j < c->out_size[1]; j++)
        sums[j] = 0;
    for (int64_t n = 0; n < c->batch; n++) {
        const double *dy_plane = dy + out_plane(c, n, g, o);
        const double *x_plane = x + in_plane(c, n, g, i);
        for (int64_t oh = rows.begin, ih = rows.first; oh < rows.end; oh++, ih += c->stride[0])
            weight_grad_row(sums, dy_plane + oh * c->out_size[1] + columns.begin,
                            x_plane + ih * c->in_size[1] + columns.first, c->stride[1], columns.end - columns.begin);
    }
    double total = 0;
    for (int64_t j = 0; j < c->out_size[1]; j++)
        total += sums[j];
    return total;
}

static void weight_grad_plane(const conv *c, double *dw, const double *dy, const double *x, int64_t g, int64_t o,
                              int64_t i, double *sums)
{
    for (int64_t kh = 0; kh < c->kernel[0]; kh++)
        for (int64_t kw = 0; kw < c->kernel[1]; kw++)
            dw[kh * c->kernel[1] + kw] =
                weight_grad_element(c, dy, x, g, o, i, inside(c, 0, kh), inside(c, 1, kw), sums);
}

/* --- operators -----------------------------------------------------------------------------------------------------
 */

static void start_with_bias(const conv *c, double *y, const double *bias)
{
    int64_t plane = c->out_size[0] * c->out_size[1], channels = c->groups * c->out_channels;
    for (int64_t p = 0; p < c->batch * channels; p++)
        for (int64_t j = 0; j < plane; j++)
            y[p * plane + j] = bias[p % channels];
}

static void forward(const conv *c, double *y, const double *w, const double *x)
{
    for (int64_t n = 0; n < c->batch; n++)
        for (int64_t g = 0; g < c->groups; g++)
            for (int64_t o = 0; o < c->out_channels; o++)
                for (int64_t i = 0; i < c->in_channels; i++)
                    forward_plane(c, y + out_plane(c, n, g, o), w + kernel_plane(c, g, o, i), x + in_plane(c, n, g, i));
}

static void input_grad(const conv *c, double *dx, const double *w, const double *dy)
{
    for (int64_t n = 0; n < c->batch; n++)
        for (int64_t g = 0; g < c->groups; g++)
            for (int64_t i = 0; i < c->in_channels; i++)
                for (int64_t o = 0; o < c->out_channels; o++)
                    input_grad_plane(c, dx + in_plane(c, n, g, i), w + kernel_plane(c, g, o, i),
                                     dy + out_plane(c, n, g, o));
}

static void weight_grad(const conv *c, double *dw, const double *dy, const double *x, double *sums)
{
    for (int64_t g = 0; g < c->groups; g++)
        for (int64_t o = 0; o < c->out_channels; o++)
            for (int64_t i = 0; i < c->in_channels; i++)
                weight_grad_plane(c, dw + kernel_plane(c, g, o, i), dy, x, g, o, i, sums);
}

static void bias_grad(const conv *c, double *dbias, const double *dy)
{
    int64_t plane = c->out_size[0] * c->out_size[1], channels = c->groups * c->out_channels;
    for (int64_t p = 0; p < c->batch * channels; p++)
        for (int64_t j = 0; j < plane; j++)
            dbias[p % channels] += dy[p * plane + j];
}

lk_status lk__ref_conv2d(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]), weights = lk__ref_view(call->in[1]), out = lk__ref_view(call->out[0]);
    conv c = conv_of(LK_ATTRS(call, lk_conv2d_opts), in.shape, weights.shape, out.shape);
    const double *x = lk__ref_load(&scratch, in);
    const double *w = lk__ref_load(&scratch, weights);
    const double *bias = call->in[2] ? lk__ref_load(&scratch, lk__ref_view(call->in[2])) : NULL;
    double *y = lk__ref_new(&scratch, lk__ref_count(out.shape));
    if (y) {
        if (bias)
            start_with_bias(&c, y, bias);
        forward(&c, y, w, x);
        lk__ref_store(y, out);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_conv2d_input_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view out = lk__ref_view(call->in[0]), weights = lk__ref_view(call->in[1]), in = lk__ref_view(call->out[0]);
    conv c = conv_of(&LK_ATTRS(call, lk_conv2d_grad_attrs)->conv, in.shape, weights.shape, out.shape);
    const double *dy = lk__ref_load(&scratch, out);
    const double *w = lk__ref_load(&scratch, weights);
    double *dx = lk__ref_new(&scratch, lk__ref_count(in.shape));
    if (dx) {
        input_grad(&c, dx, w, dy);
        lk__ref_store(dx, in);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_conv2d_weight_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view out = lk__ref_view(call->in[0]), in = lk__ref_view(call->in[1]), weights = lk__ref_view(call->out[0]);
    const lk_conv2d_grad_attrs *attrs = LK_ATTRS(call, lk_conv2d_grad_attrs);
    conv c = conv_of(&attrs->conv, in.shape, weights.shape, out.shape);
    const double *dy = lk__ref_load(&scratch, out);
    const double *x = lk__ref_load(&scratch, in);
    double *dw = lk__ref_new(&scratch, lk__ref_count(weights.shape));
    double *dbias = lk__ref_new(&scratch, weights.shape.dim[0]);
    double *sums = lk__ref_new(&scratch, out.shape.dim[3]);
    if (sums) {
        weight_grad(&c, dw, dy, x, sums);
        lk__ref_store(dw, weights);
        if (attrs->bias) {
            bias_grad(&c, dbias, dy);
            lk__ref_store(dbias, lk__ref_view(call->out[1]));
        }
    }
    return lk__ref_end(&scratch);
}
