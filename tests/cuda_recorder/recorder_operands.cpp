/* The memory that each kernel reads and writes, computed from its arguments as kernels.h documents them. Without a
 * function `uses` here a new kernel of kernels.def does not compile. It has a line for each pointer, reads first, then
 * writes; `may_…` is for pointers that may be NULL. A view counts as the range from its first to its last element. */
#include "recorder_operands.h"

static int64_t size_of(lk_dtype dtype)
{
    switch (dtype) {
    case LK_F64:
    case LK_I64:
        return 8;
    case LK_F32:
    case LK_I32:
        return 4;
    case LK_BF16:
        return 2;
    default:
        return 1;
    }
}

enum { FLOAT = sizeof(float), DOUBLE = sizeof(double), INDEX = sizeof(int64_t), PLACE = sizeof(int32_t) };

/* --- any dtype ---------------------------------------------------------------------------------------------------- */

/* The range from the lowest to the highest element of a tensor with strides. */
class hull
{
  public:
    hull(const void *data, lk_dtype dtype) : data_((const char *)data), size(size_of(dtype))
    {
    }

    void axis(int64_t dim, int64_t stride)
    {
        is_empty = is_empty || dim == 0;
        (stride < 0 ? low : high) += (dim - 1) * stride * size;
    }

    const void *data() const
    {
        return data_ + low;
    }

    int64_t bytes() const
    {
        return is_empty ? 0 : high - low + size;
    }

  private:
    const char *data_;
    int64_t size, low = 0, high = 0;
    bool is_empty = false;
};

static hull hull_of(const lk_gpu_view &view, int ndim, const int64_t *dim)
{
    hull all(view.data, view.dtype);
    for (int i = 0; i < ndim; i++)
        all.axis(dim[i], view.stride[i]);
    return all;
}

static hull hull_of(const void *data, lk_dtype dtype, const lk_gpu_axes &axes)
{
    hull all(data, dtype);
    for (int i = 0; i < axes.n_kept; i++)
        all.axis(axes.kept[i], axes.kept_stride[i]);
    for (int i = 0; i < axes.n_reduced; i++)
        all.axis(axes.reduced[i], axes.reduced_stride[i]);
    return all;
}

static int64_t product(int n, const int64_t *dim)
{
    int64_t count = 1;
    for (int i = 0; i < n; i++)
        count *= dim[i];
    return count;
}

static void uses(const lk_gpu_fill &a, operands &list)
{
    list.writes(a.y, a.count * size_of(a.dtype));
}

static void uses(const lk_gpu_arange &a, operands &list)
{
    list.writes(a.y, a.count * size_of(a.dtype));
}

static void uses(const lk_gpu_random &a, operands &list)
{
    list.writes(a.y, a.count * size_of(a.dtype));
}

static void uses(const lk_gpu_convert &a, operands &list)
{
    hull x = hull_of(a.x, a.ndim, a.dim), y = hull_of(a.y, a.ndim, a.dim);
    list.reads(x.data(), x.bytes());
    list.writes(y.data(), y.bytes());
}

static void uses(const lk_gpu_binary &a, operands &list)
{
    for (const lk_gpu_view &view : {a.a, a.b}) {
        hull x = hull_of(view, a.ndim, a.dim);
        list.reads(x.data(), x.bytes());
    }
    hull y = hull_of(a.y, a.ndim, a.dim);
    list.writes(y.data(), y.bytes());
}

static void uses(const lk_gpu_pairwise_sum &a, operands &list)
{
    for (int i = 0; i < a.n; i++)
        list.reads(a.x[i], a.count * size_of(a.dtype));
    list.writes(a.y, a.count * size_of(a.dtype));
}

static void uses(const lk_gpu_array_sums &a, operands &list)
{
    for (int i = 0; i < a.n; i++) {
        const lk_gpu_array_sum &s = a.sum[i];
        int64_t count = (int64_t)s.rows * s.a * s.b, x_size = size_of((lk_dtype)s.x_dtype);
        for (int k = 0; k < s.addends; k++)
            list.reads((const char *)s.x + k * s.step * x_size, count * x_size);
        list.writes(s.y, count * size_of((lk_dtype)s.y_dtype));
    }
}

static void uses(const lk_gpu_tree_sum &a, operands &list)
{
    int64_t bytes = a.count * (a.dtype == LK_F64 ? DOUBLE : FLOAT);
    for (int i = 0; i < a.n_addends; i++)
        list.reads(a.addends[i], bytes);
    list.writes(a.y, bytes);
}

static void uses(const lk_gpu_copies &a, operands &list)
{
    for (int i = 0; i < a.n; i++) {
        list.reads(a.from[i], a.count[i] * FLOAT);
        list.writes(a.to[i], a.count[i] * FLOAT);
    }
    if (a.step_to)
        list.writes(a.step_to, (int64_t)sizeof a.step);
}

static void uses(const lk_gpu_gather &a, operands &list)
{
    list.reads(a.x, a.rows * a.row * (int64_t)a.size);
    list.reads(a.indices, a.n * INDEX);
    list.writes(a.y, a.n * a.row * (int64_t)a.size);
}

static void uses(const lk_gpu_prepare_images &a, operands &list)
{
    int64_t image = a.channels * a.size.height * a.size.width;
    list.reads(a.x, a.images * image);
    list.reads(a.indices, a.n * INDEX);
    list.reads(a.epoch, INDEX);
    list.may_read(a.moments, 2 * a.channels * FLOAT);
    list.may_write(a.work, lk_gpu_prepare_images_workspace(&a.opts, a.n, a.channels, a.size) * FLOAT);
    list.writes(a.y, a.n * image * FLOAT);
}

static void uses(const lk_gpu_reduce &a, operands &list)
{
    int64_t lines = product(a.axes.n_kept, a.axes.kept), line = product(a.axes.n_reduced, a.axes.reduced);
    int64_t chunks = (line + LK_GPU_REDUCE_CHUNK - 1) / LK_GPU_REDUCE_CHUNK;
    hull x = hull_of(a.x, a.dtype, a.axes);
    list.reads(x.data(), x.bytes());
    list.writes(a.workspace, chunks > 1 ? lines * chunks * 16 : 0);
    list.writes(a.y, lines * size_of(a.y_dtype));
}

static void uses(const lk_gpu_max_grad &a, operands &list)
{
    int64_t lines = product(a.axes.n_kept, a.axes.kept) * size_of(a.dtype);
    hull x = hull_of(a.x, a.dtype, a.axes), dx = hull_of(a.dx, a.dtype, a.axes);
    list.reads(a.dy, lines);
    list.reads(x.data(), x.bytes());
    list.reads(a.y, lines);
    list.writes(dx.data(), dx.bytes());
}

/* --- element-wise ------------------------------------------------------------------------------------------------- */

static void uses_element_wise(operands &list, int64_t bytes, std::initializer_list<const void *> in, void *out)
{
    for (const void *x : in)
        list.reads(x, bytes);
    list.writes(out, bytes);
}

static void uses(const lk_gpu_activation &a, operands &list)
{
    uses_element_wise(list, a.count * size_of(a.dtype), {a.x}, a.y);
}

static void uses(const lk_gpu_activation_grad &a, operands &list)
{
    uses_element_wise(list, a.count * size_of(a.dtype), {a.dy, a.x, a.y}, a.dx);
}

static void uses(const lk_gpu_relu &a, operands &list)
{
    uses_element_wise(list, a.count * size_of(a.dtype), {a.x}, a.y);
}

static void uses(const lk_gpu_relu_grad &a, operands &list)
{
    uses_element_wise(list, a.count * size_of(a.dtype), {a.dy, a.y}, a.dx);
}

static void uses(const lk_gpu_dropout &a, operands &list)
{
    int64_t bytes = a.images * a.channels * a.pixels * size_of(a.dtype);
    list.reads(a.x, bytes);
    list.reads(a.indices, a.images * INDEX);
    list.may_read(a.philox.epoch, INDEX);
    list.writes(a.y, bytes);
}

/* --- losses ------------------------------------------------------------------------------------------------------- */

static void uses(const lk_gpu_softmax &a, operands &list)
{
    int64_t bytes = a.outer * a.n * a.inner * size_of(a.dtype);
    list.reads(a.x, bytes);
    list.writes(a.y, bytes);
}

static void uses(const lk_gpu_softmax_grad &a, operands &list)
{
    int64_t bytes = a.outer * a.n * a.inner * size_of(a.dtype);
    list.reads(a.dy, bytes);
    list.reads(a.y, bytes);
    list.writes(a.dx, bytes);
}

static void uses(const lk_gpu_cross_entropy &a, operands &list)
{
    int64_t size = size_of(a.dtype), parts = lk_gpu_parts(a.parts), n = parts * a.n, results = a.sum ? parts : n;
    int64_t sums = (a.loss ? 1 : 0) + (a.hits ? 1 : 0);
    list.reads(a.logits, n * a.classes * size);
    list.reads(a.labels, n * size_of(a.labels_dtype));
    list.may_read(a.dloss, (a.each ? n : 1) * size_of(a.loss_dtype));
    list.writes(a.workspace, a.sum ? sums * n * FLOAT : 0);
    list.may_write(a.loss, results * size_of(a.loss_dtype));
    list.may_write(a.dlogits, n * a.classes * size);
    list.may_write(a.hits, results * FLOAT);
}

static void uses(const lk_gpu_sigmoid_cross_entropy &a, operands &list)
{
    int64_t bytes = a.count * size_of(a.dtype);
    list.reads(a.logits, bytes);
    list.reads(a.targets, bytes);
    list.may_read(a.dloss, bytes);
    list.writes(a.dloss ? a.dlogits : a.loss, bytes);
}

/* --- batch-norm --------------------------------------------------------------------------------------------------- */

static void statistics_of(const lk_gpu_statistics &a, int64_t channels, int64_t parts, operands &list)
{
    if (a.sums) {
        list.reads(a.sums, parts * 2 * channels * DOUBLE);
    } else {
        list.reads(a.mean, channels * FLOAT);
        list.reads(a.variance, channels * FLOAT);
    }
}

static void uses(const lk_gpu_channel_sums &a, operands &list)
{
    int64_t parts = lk_gpu_parts(a.parts);
    list.reads(a.x, parts * a.rows * a.channels * size_of(a.dtype));
    list.writes(a.workspace, parts * lk_gpu_sums_workspace(a.rows, a.channels, 2) * DOUBLE);
    list.writes(a.sums, parts * 2 * a.channels * DOUBLE);
}

static void uses(const lk_gpu_channel_sums_grad &a, operands &list)
{
    int64_t parts = lk_gpu_parts(a.parts), bytes = parts * a.rows * a.channels * size_of(a.dtype);
    list.reads(a.x, bytes);
    list.reads(a.dsums, parts * 2 * a.channels * DOUBLE);
    list.writes(a.dx, bytes);
}

static void uses(const lk_gpu_normalize &a, operands &list)
{
    int64_t parts = lk_gpu_parts(a.parts), bytes = parts * a.rows * a.channels * size_of(a.dtype);
    list.reads(a.x, bytes);
    list.may_read(a.residual, bytes);
    list.reads(a.gamma, a.channels * FLOAT);
    list.reads(a.beta, a.channels * FLOAT);
    statistics_of(a.statistics, a.channels, parts, list);
    list.writes(a.y, bytes);
    if (a.kept) {
        list.reads(a.indices, parts * a.rows / a.pixels * INDEX);
        list.may_read(a.philox.epoch, INDEX);
        list.writes(a.kept, parts * lk_gpu_kept_bytes(a.dtype, a.rows, a.channels));
    }
}

static void uses(const lk_gpu_normalize_pool &a, operands &list)
{
    int64_t parts = lk_gpu_parts(a.parts), pooled = parts * lk__geometry_y_count(&a.window);
    int64_t bytes = parts * lk__geometry_x_count(&a.window) * size_of(a.dtype);
    list.reads(a.x, bytes);
    list.may_read(a.residual, bytes);
    list.reads(a.gamma, a.window.channels * FLOAT);
    list.reads(a.beta, a.window.channels * FLOAT);
    statistics_of(a.statistics, a.window.channels, parts, list);
    list.writes(a.y, pooled * size_of(a.dtype));
    list.writes(a.where, pooled);
}

static void uses(const lk_gpu_normalize_grad &a, operands &list)
{
    int64_t parts = lk_gpu_parts(a.parts), bytes = parts * a.rows * a.channels * size_of(a.dtype);
    int64_t pooled = a.where ? parts * lk__geometry_y_count(&a.window) : 0;
    list.reads(a.dy, a.where ? pooled * size_of(a.dtype) : bytes);
    list.may_read(a.more, a.where ? pooled * size_of(a.dtype) : bytes);
    list.may_read(a.where, pooled);
    list.may_read(a.kept, parts * lk_gpu_kept_bytes(a.dtype, a.rows, a.channels));
    list.may_read(a.act_y, bytes);
    list.reads(a.x, bytes);
    list.reads(a.gamma, a.channels * FLOAT);
    list.may_read(a.act_beta, a.channels * FLOAT);
    statistics_of(a.statistics, a.channels, parts, list);
    list.writes(a.workspace, parts * lk_gpu_sums_workspace(a.rows, a.channels, a.d_sums ? 3 : 2) * DOUBLE);
    list.writes(a.dx, bytes);
    list.may_write(a.dresidual, bytes);
    list.writes(a.dgamma, parts * a.channels * FLOAT);
    list.writes(a.dbeta, parts * a.channels * FLOAT);
    list.may_write(a.dx_sums, parts * a.channels * FLOAT);
    list.may_write(a.d_sums, parts * a.channels * FLOAT);
    list.writes(a.dsums, a.through == LK_GPU_SUMS_HELD ? parts * 2 * a.channels * DOUBLE : 0);
}

static void uses(const lk_gpu_group_norm &a, operands &list)
{
    int64_t bytes = a.images * a.pixels * a.channels * size_of(a.dtype);
    list.reads(a.x, bytes);
    list.reads(a.gamma, a.channels * FLOAT);
    list.reads(a.beta, a.channels * FLOAT);
    list.writes(a.y, bytes);
}

static void uses(const lk_gpu_group_norm_grad &a, operands &list)
{
    int64_t bytes = a.images * a.pixels * a.channels * size_of(a.dtype);
    list.reads(a.dy, bytes);
    list.reads(a.x, bytes);
    list.reads(a.gamma, a.channels * FLOAT);
    list.writes(a.workspace, lk_gpu_group_norm_workspace(a.images, a.pixels, a.channels, a.groups) * DOUBLE);
    list.writes(a.dx, bytes);
    list.writes(a.dgamma, a.channels * FLOAT);
    list.writes(a.dbeta, a.channels * FLOAT);
}

static void uses(const lk_gpu_running_layer &a, operands &list)
{
    list.may_read(a.skip, FLOAT);
    statistics_of(a.statistics, a.channels, 1, list);
    for (const float *moment : {a.mean, a.variance}) {
        list.reads(moment, a.channels * FLOAT);
        list.writes(moment, a.channels * FLOAT);
    }
}

static void uses(const lk_gpu_running_statistics &a, operands &list)
{
    for (int i = 0; i < a.n; i++)
        uses(a.layer[i], list);
}

/* --- pooling ------------------------------------------------------------------------------------------------------ */

static void uses(const lk_gpu_max_pool &a, operands &list)
{
    list.reads(a.x, lk__geometry_x_count(&a.window) * size_of(a.dtype));
    list.writes(a.y, lk__geometry_y_count(&a.window) * size_of(a.dtype));
    list.writes(a.where, lk__geometry_y_count(&a.window) * PLACE);
}

static void uses(const lk_gpu_max_pool_grad &a, operands &list)
{
    list.reads(a.dy, lk__geometry_y_count(&a.window) * size_of(a.dtype));
    list.reads(a.where, lk__geometry_y_count(&a.window) * PLACE);
    list.writes(a.dx, lk__geometry_x_count(&a.window) * size_of(a.dtype));
}

static void uses(const lk_gpu_relu_max_pool &a, operands &list)
{
    list.reads(a.x, lk__geometry_x_count(&a.window) * size_of(a.dtype));
    list.writes(a.y, lk__geometry_y_count(&a.window) * size_of(a.dtype));
    list.writes(a.where, lk__geometry_y_count(&a.window));
}

static void uses(const lk_gpu_relu_max_pool_grad &a, operands &list)
{
    list.reads(a.dy, lk__geometry_y_count(&a.window) * size_of(a.dtype));
    list.reads(a.where, lk__geometry_y_count(&a.window));
    list.writes(a.dx, lk__geometry_x_count(&a.window) * size_of(a.dtype));
}

static void uses(const lk_gpu_avg_pool &a, operands &list)
{
    list.reads(a.x, lk__geometry_x_count(&a.window) * size_of(a.dtype));
    list.writes(a.y, lk__geometry_y_count(&a.window) * size_of(a.dtype));
}

static void uses(const lk_gpu_avg_pool_grad &a, operands &list)
{
    list.reads(a.dy, lk__geometry_y_count(&a.window) * size_of(a.dtype));
    list.may_read(a.relu_x, lk__geometry_x_count(&a.window) * size_of(a.dtype));
    list.writes(a.dx, lk__geometry_x_count(&a.window) * size_of(a.dtype));
}

/* --- updates ------------------------------------------------------------------------------------------------------ */

static void control_of(const lk_gpu_control &control, operands &list)
{
    list.may_read(control.skip, FLOAT);
    list.may_read(control.scale, FLOAT);
    list.may_read(control.rates, 3 * DOUBLE);
}

/* Arrays that an update changes in place; NULL: none. */
static void state_of(std::initializer_list<const float *> arrays, int64_t count, operands &list)
{
    for (const float *array : arrays) {
        list.may_read(array, count * FLOAT);
        list.may_write(array, count * FLOAT);
    }
}

static void uses(const lk_gpu_sgd_update &a, operands &list)
{
    list.reads(a.w, a.count * FLOAT);
    list.reads(a.g, a.count * FLOAT);
    list.writes(a.y, a.count * FLOAT);
}

static void uses(const lk_gpu_momentum_update &a, operands &list)
{
    control_of(a.control, list);
    list.reads(a.g, a.count * FLOAT);
    state_of({a.w, a.v}, a.count, list);
}

static void uses(const lk_gpu_adam_update &a, operands &list)
{
    control_of(a.control, list);
    list.reads(a.g, a.count * FLOAT);
    state_of({a.w, a.m, a.v}, a.count, list);
}

static void uses(const lk_gpu_lars_update &a, operands &list)
{
    control_of(a.control, list);
    list.reads(a.g, a.count * FLOAT);
    list.reads(a.ratios, a.segments * FLOAT);
    list.reads(a.adapted, a.segments * FLOAT);
    list.reads(a.offsets, (a.segments + 1) * INDEX);
    state_of({a.w, a.v}, a.count, list);
}

static void uses(const lk_gpu_squared_norms &a, operands &list)
{
    list.reads(a.x, a.count * FLOAT);
    list.reads(a.offsets, (a.segments + 1) * INDEX);
    list.writes(a.workspace, (a.count / LK_GPU_NORM_BLOCK + a.segments) * DOUBLE);
    list.writes(a.norms, a.segments * DOUBLE);
}

static void uses(const lk_gpu_update_scales &a, operands &list)
{
    list.may_read(a.skip, FLOAT);
    list.may_read(a.loss, FLOAT);
    list.reads(a.gradients, a.segments * DOUBLE);
    if (a.ratios) {
        list.reads(a.adapted, a.segments * FLOAT);
        list.reads(a.parameters, a.segments * DOUBLE);
    }
    list.writes(a.new_skip, FLOAT);
    list.writes(a.scale, FLOAT);
    list.writes(a.norm, DOUBLE);
    list.may_write(a.ratios, a.segments * FLOAT);
}

/* --- kernels of libraries ----------------------------------------------------------------------------------------- */

static void uses(const lk_gpu_matmul &a, operands &list)
{
    int64_t parts = lk_gpu_parts(a.parts), size = size_of(a.dtype), y_size = size_of(a.y_dtype);
    list.reads(a.a, parts * a.rows * a.inner * size);
    list.reads(a.b, (a.b_is_shared ? 1 : parts) * a.inner * a.columns * size);
    list.may_read(a.bias, a.columns * y_size);
    list.writes(a.y, parts * a.rows * a.columns * y_size);
}

static void uses(const lk_gpu_conv &a, operands &list)
{
    lk_geometry all = lk_gpu_all_images(&a.shape);
    int64_t size = size_of(a.shape.dtype);
    list.reads(a.x, lk__geometry_x_count(&all) * size);
    list.reads(a.w, lk__geometry_w_count(&a.shape.geometry) * size);
    list.may_read(a.bias, a.shape.geometry.filters * size);
    list.writes(a.y, lk__geometry_y_count(&all) * size);
}

static void uses(const lk_gpu_conv_input_grad &a, operands &list)
{
    lk_geometry all = lk_gpu_all_images(&a.shape);
    int64_t size = size_of(a.shape.dtype);
    list.reads(a.dy, lk__geometry_y_count(&all) * size);
    list.reads(a.w, lk__geometry_w_count(&a.shape.geometry) * size);
    list.writes(a.dx, lk__geometry_x_count(&all) * size);
}

static void uses(const lk_gpu_conv_weight_grad &a, operands &list)
{
    lk_geometry all = lk_gpu_all_images(&a.shape);
    int64_t size = size_of(a.shape.dtype), parts = lk_gpu_parts(a.shape.parts);
    list.reads(a.dy, lk__geometry_y_count(&all) * size);
    list.reads(a.x, lk__geometry_x_count(&all) * size);
    list.may_write(a.workspace, parts * lk_gpu_weight_grad_workspace(&a.shape) * DOUBLE);
    list.writes(a.dw, parts * lk__geometry_w_count(&a.shape.geometry) * size_of(a.dw_dtype));
    list.may_write(a.dbias, parts * a.shape.geometry.filters * size_of(a.dw_dtype));
}

static void uses(const lk_gpu_column_sums &a, operands &list)
{
    int64_t parts = lk_gpu_parts(a.parts);
    list.reads(a.x, parts * a.rows * a.columns * size_of(a.dtype));
    list.writes(a.workspace, parts * lk_gpu_sums_workspace(a.rows, a.columns, 1) * DOUBLE);
    list.writes(a.sums, parts * a.columns * size_of(a.sums_dtype));
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

#define LK_GPU_KERNEL(name)                                          \
    void operands_of(const lk_gpu_##name &arguments, operands &list) \
    {                                                                \
        uses(arguments, list);                                       \
    }
#include "cuda/kernels.def"
#undef LK_GPU_KERNEL
