/* conv2d and its two gradients, as products of matrices (im2col). For an image and a group, "columns" has a row for
 * each tap (input channel, kernel row, kernel column) and a column for each output: the input that the tap multiplies
 * there, 0 in the padding.
 *
 *   y = w · columns        dw = dy · columnsᵀ        dcolumns = wᵀ · dy, folded back into dx */
#include "ops/geometry.h"
#include "ops/ops.h"
#include "ref/ref.h"

#include <string.h>

typedef struct conv {
    lk_geometry geometry;
    int64_t in_channels, out_channels; /* of one group */
    int64_t taps, outputs;             /* rows and columns of "columns" */
} conv;

static conv ref_conv_of(const lk_conv2d_opts *opts, lk_shape x, lk_shape w, lk_shape y)
{
    return (conv){.geometry = lk__geometry_of_conv(x, w, y, opts),
                  .in_channels = w.dim[1],
                  .out_channels = w.dim[0] / opts->groups,
                  .taps = w.dim[1] * w.dim[2] * w.dim[3],
                  .outputs = y.dim[0] > 0 ? y.dim[2] * y.dim[3] : 0};
}

/* The outputs [begin, end) along an axis whose input under kernel element k is not padding. `first` is the input of the
 * first one. */
typedef struct range {
    int64_t begin, end, first;
} range;

static range ref_conv_outputs_inside(const conv *c, int axis, int64_t k)
{
    int64_t shift = k * c->geometry.dilation[axis] - c->geometry.padding[axis], stride = c->geometry.stride[axis];
    int64_t last = c->geometry.in[axis] - 1 - shift;
    range r = {.begin = shift < 0 ? (-shift + stride - 1) / stride : 0, .end = last < 0 ? 0 : last / stride + 1};
    if (r.end > c->geometry.out[axis])
        r.end = c->geometry.out[axis];
    if (r.begin > r.end)
        r.begin = r.end;
    r.first = r.begin * stride + shift;
    return r;
}

/* The offsets at which the planes of image n and group g begin. */
static int64_t ref_conv_input_start(const conv *c, int64_t n, int64_t g)
{
    return (n * c->geometry.groups + g) * c->in_channels * c->geometry.in[0] * c->geometry.in[1];
}

static int64_t ref_conv_output_start(const conv *c, int64_t n, int64_t g)
{
    return (n * c->geometry.groups + g) * c->out_channels * c->outputs;
}

static int64_t ref_conv_weight_start(const conv *c, int64_t g)
{
    return g * c->out_channels * c->taps;
}

/* --- columns ----------------------------------------------------------------------------------------------------- */

/* The inputs of one tap: the outputs that need them, `rows` by `columns`, and the offset of their plane in x. */
typedef struct tap {
    range rows, columns;
    int64_t plane;
} tap;

static tap ref_conv_tap(const conv *c, int64_t k)
{
    int64_t area = c->geometry.kernel[0] * c->geometry.kernel[1];
    return (tap){.rows = ref_conv_outputs_inside(c, 0, k % area / c->geometry.kernel[1]),
                 .columns = ref_conv_outputs_inside(c, 1, k % c->geometry.kernel[1]),
                 .plane = k / area * c->geometry.in[0] * c->geometry.in[1]};
}

/* Copies the inputs of tap t to out[output * step]. Elements in the padding keep their value, 0. */
static void ref_conv_unroll_tap(const conv *c, tap t, const double *x, double *out, int64_t step)
{
    int64_t n = t.columns.end - t.columns.begin, stride = c->geometry.stride[1];
    for (int64_t oh = t.rows.begin, ih = t.rows.first; oh < t.rows.end; oh++, ih += c->geometry.stride[0]) {
        const double *from = x + t.plane + ih * c->geometry.in[1] + t.columns.first;
        double *to = out + (oh * c->geometry.out[1] + t.columns.begin) * step;
        for (int64_t j = 0; j < n; j++)
            to[j * step] = from[j * stride];
    }
}

/* The reverse of ref_conv_unroll_tap: adds in[output] to the input that tap t multiplies there. */
static void ref_conv_fold_tap(const conv *c, tap t, const double *in, double *x)
{
    int64_t n = t.columns.end - t.columns.begin, stride = c->geometry.stride[1];
    for (int64_t oh = t.rows.begin, ih = t.rows.first; oh < t.rows.end; oh++, ih += c->geometry.stride[0]) {
        const double *from = in + oh * c->geometry.out[1] + t.columns.begin;
        double *to = x + t.plane + ih * c->geometry.in[1] + t.columns.first;
        for (int64_t j = 0; j < n; j++)
            to[j * stride] += from[j];
    }
}

static void ref_conv_unroll_columns(const conv *c, const double *x, double *columns)
{
    for (int64_t k = 0; k < c->taps; k++)
        ref_conv_unroll_tap(c, ref_conv_tap(c, k), x, columns + k * c->outputs, 1);
}

static void ref_conv_unroll_transposed(const conv *c, const double *x, double *columns)
{
    for (int64_t k = 0; k < c->taps; k++)
        ref_conv_unroll_tap(c, ref_conv_tap(c, k), x, columns + k, c->taps);
}

static void ref_conv_fold_columns(const conv *c, const double *columns, double *x)
{
    for (int64_t k = 0; k < c->taps; k++)
        ref_conv_fold_tap(c, ref_conv_tap(c, k), columns + k * c->outputs, x);
}

/* --- operators --------------------------------------------------------------------------------------------------- */

static void ref_conv_start_with_bias(const conv *c, double *y, const double *bias)
{
    int64_t channels = c->geometry.filters;
    for (int64_t p = 0; p < c->geometry.images * channels; p++)
        for (int64_t j = 0; j < c->outputs; j++)
            y[p * c->outputs + j] = bias[p % channels];
}

static void ref_conv_bias_grad(const conv *c, double *dbias, const double *dy)
{
    int64_t channels = c->geometry.filters;
    for (int64_t p = 0; p < c->geometry.images * channels; p++)
        for (int64_t j = 0; j < c->outputs; j++)
            dbias[p % channels] += dy[p * c->outputs + j];
}

static void ref_conv_forward(const conv *c, double *y, const double *w, const double *x, double *columns)
{
    for (int64_t n = 0; n < c->geometry.images; n++) {
        for (int64_t g = 0; g < c->geometry.groups; g++) {
            ref_conv_unroll_columns(c, x + ref_conv_input_start(c, n, g), columns);
            lk__ref_multiply(w + ref_conv_weight_start(c, g), columns, y + ref_conv_output_start(c, n, g),
                             c->out_channels, c->taps, c->outputs);
        }
    }
}

static void ref_conv_weight_grad(const conv *c, double *dw, const double *dy, const double *x, double *columns)
{
    for (int64_t n = 0; n < c->geometry.images; n++) {
        for (int64_t g = 0; g < c->geometry.groups; g++) {
            ref_conv_unroll_transposed(c, x + ref_conv_input_start(c, n, g), columns);
            lk__ref_multiply(dy + ref_conv_output_start(c, n, g), columns, dw + ref_conv_weight_start(c, g),
                             c->out_channels, c->outputs, c->taps);
        }
    }
}

/* Transposes the weights, group by group. */
static void ref_conv_transpose_weights(const conv *c, const double *w, double *transposed)
{
    for (int64_t g = 0; g < c->geometry.groups; g++)
        for (int64_t o = 0; o < c->out_channels; o++)
            for (int64_t k = 0; k < c->taps; k++)
                transposed[ref_conv_weight_start(c, g) + k * c->out_channels + o] =
                    w[ref_conv_weight_start(c, g) + o * c->taps + k];
}

static void ref_conv_input_grad(const conv *c, double *dx, const double *transposed, const double *dy, double *columns)
{
    for (int64_t n = 0; n < c->geometry.images; n++) {
        for (int64_t g = 0; g < c->geometry.groups; g++) {
            memset(columns, 0, (size_t)(c->taps * c->outputs) * sizeof *columns);
            lk__ref_multiply(transposed + ref_conv_weight_start(c, g), dy + ref_conv_output_start(c, n, g), columns,
                             c->taps, c->out_channels, c->outputs);
            ref_conv_fold_columns(c, columns, dx + ref_conv_input_start(c, n, g));
        }
    }
}

lk_status lk__ref_conv2d(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view in = lk__ref_view(call->in[0]), weights = lk__ref_view(call->in[1]), out = lk__ref_view(call->out[0]);
    conv c = ref_conv_of(LK_ATTRS(call, lk_conv2d_opts), in.shape, weights.shape, out.shape);
    const double *x = lk__ref_load(&scratch, in);
    const double *w = lk__ref_load(&scratch, weights);
    const double *bias = call->in[2] ? lk__ref_load(&scratch, lk__ref_view(call->in[2])) : NULL;
    double *y = lk__ref_new(&scratch, lk__ref_count(out.shape));
    double *columns = lk__ref_new(&scratch, c.taps * c.outputs);
    if (columns) {
        if (bias)
            ref_conv_start_with_bias(&c, y, bias);
        ref_conv_forward(&c, y, w, x, columns);
        lk__ref_store(y, out);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_conv2d_input_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view out = lk__ref_view(call->in[0]), weights = lk__ref_view(call->in[1]), in = lk__ref_view(call->out[0]);
    conv c = ref_conv_of(&LK_ATTRS(call, lk_conv2d_grad_attrs)->conv, in.shape, weights.shape, out.shape);
    const double *dy = lk__ref_load(&scratch, out);
    const double *w = lk__ref_load(&scratch, weights);
    double *dx = lk__ref_new(&scratch, lk__ref_count(in.shape));
    double *transposed = lk__ref_new(&scratch, lk__ref_count(weights.shape));
    double *columns = lk__ref_new(&scratch, c.taps * c.outputs);
    if (columns) {
        ref_conv_transpose_weights(&c, w, transposed);
        ref_conv_input_grad(&c, dx, transposed, dy, columns);
        lk__ref_store(dx, in);
    }
    return lk__ref_end(&scratch);
}

lk_status lk__ref_conv2d_weight_grad(lk_call *call)
{
    lk_ref_scratch scratch = {0};
    lk_ref_view out = lk__ref_view(call->in[0]), in = lk__ref_view(call->in[1]), weights = lk__ref_view(call->out[0]);
    const lk_conv2d_grad_attrs *attrs = LK_ATTRS(call, lk_conv2d_grad_attrs);
    conv c = ref_conv_of(&attrs->conv, in.shape, weights.shape, out.shape);
    const double *dy = lk__ref_load(&scratch, out);
    const double *x = lk__ref_load(&scratch, in);
    double *dw = lk__ref_new(&scratch, lk__ref_count(weights.shape));
    double *dbias = lk__ref_new(&scratch, weights.shape.dim[0]);
    double *columns = lk__ref_new(&scratch, c.taps * c.outputs);
    if (columns) {
        ref_conv_weight_grad(&c, dw, dy, x, columns);
        lk__ref_store(dw, weights);
        if (attrs->bias) {
            ref_conv_bias_grad(&c, dbias, dy);
            lk__ref_store(dbias, lk__ref_view(call->out[1]));
        }
    }
    return lk__ref_end(&scratch);
}
