/* Exports TensorFlow's SavedModel: a folder with saved_model.pb (saved_model.proto, meta_graph.proto and graph.proto of
 * TensorFlow). The graph holds the weights as constants, so there are no variables to restore.
 *
 * On CPUs TensorFlow has convolutions and pooling only in channels-last order. Images are transposed at the beginning,
 * unless they come so; a reshape, which works on row-major [C, H, W], transposes back. Nodes are named network/PATH,
 * because TensorFlow's names cannot begin with '_' or '-', and a layer's may. */
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "export/export_files.h"
#include "export/network.h"
#include "export/tf_graph.h"
#include "io/durable.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = LK__EXPORT_MAX_PATH + 64 };

typedef struct saved_model {
    const lk_network *network;
    const lk_export_opts *opts;
    lk_tf_graph graph;
} saved_model;

static const char *saved_model_node_name(const lk_node *node, const char *suffix, char text[NAME_BYTES])
{
    snprintf(text, NAME_BYTES, "network/%s%s%s", node->name, *suffix ? "/" : "", suffix);
    return text;
}

static bool saved_model_is_image(const lk_node *node)
{
    return node->output.ndim == 4;
}

#define INPUTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* --- constants ---------------------------------------------------------------------------------------------------- */

/* Writes filters [O, C, K, K] as a constant [K, K, C, O]. */
static void saved_model_put_filters(saved_model *s, const char *name, lk_shape shape, const float *values)
{
    int64_t filters = shape.dim[0], channels = shape.dim[1], area = shape.dim[2] * shape.dim[3];
    float *transposed = lk__calloc((size_t)(filters * channels), (size_t)area * sizeof *transposed);
    if (!transposed) {
        s->graph.bytes.failed = true;
        return;
    }
    for (int64_t o = 0; o < filters; o++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t k = 0; k < area; k++)
                transposed[(k * channels + c) * filters + o] = values[(o * channels + c) * area + k];
    lk__tf_floats(&s->graph, name, LK_SHAPE(shape.dim[2], shape.dim[3], channels, filters), transposed);
    lk__free(transposed);
}

static const char *saved_model_put_variable(saved_model *s, const lk_node *node, int i, char name[NAME_BYTES])
{
    int variable = node->variable[i];
    const lk_model *model = s->network->model;
    lk_shape shape = lk_model_variable_shape(model, variable);
    snprintf(name, NAME_BYTES, "network/%s", lk_model_variable_name(model, variable));
    if (shape.ndim == 4)
        saved_model_put_filters(s, name, shape, s->network->variables[variable]);
    else
        lk__tf_floats(&s->graph, name, shape, s->network->variables[variable]);
    return name;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static void saved_model_put_node(saved_model *s, const char *op, const char *name, const char *const *inputs)
{
    lk__tf_begin(&s->graph, op, name, inputs);
    lk__tf_type(&s->graph, "T", LK__TF_FLOAT);
    lk__tf_end(&s->graph);
}

static void saved_model_put_transpose(saved_model *s, const char *name, const char *x, bool to_channels_last)
{
    static const int32_t to_last[] = {0, 2, 3, 1}, to_first[] = {0, 3, 1, 2};
    char order[NAME_BYTES + 8];
    snprintf(order, sizeof order, "%s/order", name);
    lk__tf_integers(&s->graph, order, LK_SHAPE(4), to_channels_last ? to_last : to_first);
    lk__tf_begin(&s->graph, "Transpose", name, INPUTS(x, order));
    lk__tf_type(&s->graph, "T", LK__TF_FLOAT);
    lk__tf_type(&s->graph, "Tperm", LK__TF_INT32);
    lk__tf_end(&s->graph);
}

/* Pads x with `value` around each image. Returns the padded value's name; x if there is no padding. */
static const char *saved_model_put_padding(saved_model *s, const lk_node *node, const char *x, float value,
                                           char name[NAME_BYTES])
{
    char sizes[NAME_BYTES], edge[NAME_BYTES];
    int32_t h = (int32_t)node->padding[0], w = (int32_t)node->padding[1];
    if (h == 0 && w == 0)
        return x;
    lk__tf_integers(&s->graph, saved_model_node_name(node, "padding", sizes), LK_SHAPE(4, 2),
                    (const int32_t[]){0, 0, h, h, w, w, 0, 0});
    lk__tf_floats(&s->graph, saved_model_node_name(node, "edge", edge), (lk_shape){0}, &value);
    lk__tf_begin(&s->graph, "PadV2", saved_model_node_name(node, "padded", name), INPUTS(x, sizes, edge));
    lk__tf_type(&s->graph, "T", LK__TF_FLOAT);
    lk__tf_type(&s->graph, "Tpaddings", LK__TF_INT32);
    lk__tf_end(&s->graph);
    return name;
}

static void saved_model_put_conv2d(saved_model *s, const lk_node *node, const char *x, const char *y)
{
    char padded[NAME_BYTES], weight[NAME_BYTES], bias[NAME_BYTES], product[NAME_BYTES];
    bool has_bias = node->variable[1] >= 0;
    const char *conv = has_bias ? saved_model_node_name(node, "product", product) : y;
    x = saved_model_put_padding(s, node, x, 0, padded);
    lk__tf_begin(&s->graph, "Conv2D", conv, INPUTS(x, saved_model_put_variable(s, node, 0, weight)));
    lk__tf_type(&s->graph, "T", LK__TF_FLOAT);
    lk__tf_window(&s->graph, "strides", node->stride);
    if (node->dilation[0] > 1 || node->dilation[1] > 1)
        lk__tf_window(&s->graph, "dilations", node->dilation);
    lk__tf_text(&s->graph, "padding", "VALID");
    lk__tf_end(&s->graph);
    if (has_bias)
        saved_model_put_node(s, "BiasAdd", y, INPUTS(conv, saved_model_put_variable(s, node, 1, bias)));
}

static void saved_model_put_dense(saved_model *s, const lk_node *node, const char *x, const char *y)
{
    char weight[NAME_BYTES], bias[NAME_BYTES], product[NAME_BYTES];
    bool has_bias = node->variable[1] >= 0;
    const char *matmul = has_bias ? saved_model_node_name(node, "product", product) : y;
    saved_model_put_node(s, "MatMul", matmul, INPUTS(x, saved_model_put_variable(s, node, 0, weight)));
    if (has_bias)
        saved_model_put_node(s, "BiasAdd", y, INPUTS(matmul, saved_model_put_variable(s, node, 1, bias)));
}

/* Channels are the last axis both of images and of [N, K], so one scale and shift broadcasts over either. */
static void saved_model_put_batch_norm(saved_model *s, const lk_node *node, const char *x, const char *y)
{
    char scale[NAME_BYTES], shift[NAME_BYTES], product[NAME_BYTES];
    int64_t channels = node->output.dim[1];
    float *values = lk__calloc((size_t)channels, 2 * sizeof *values);
    if (!values) {
        s->graph.bytes.failed = true;
        return;
    }
    lk__node_scale_shift(s->network, node, values, values + channels);
    lk__tf_floats(&s->graph, saved_model_node_name(node, "scale", scale), LK_SHAPE(channels), values);
    lk__tf_floats(&s->graph, saved_model_node_name(node, "shift", shift), LK_SHAPE(channels), values + channels);
    lk__free(values);
    saved_model_put_node(s, "Mul", saved_model_node_name(node, "product", product), INPUTS(x, scale));
    saved_model_put_node(s, "AddV2", y, INPUTS(product, shift));
}

static void saved_model_put_gelu(saved_model *s, const lk_node *node, const char *x, const char *y)
{
    char root[NAME_BYTES], half[NAME_BYTES], one[NAME_BYTES], scaled[NAME_BYTES], erf[NAME_BYTES], sum[NAME_BYTES],
        product[NAME_BYTES];
    lk__tf_floats(&s->graph, saved_model_node_name(node, "root_of_half", root), (lk_shape){0},
                  &(float){(float)sqrt(0.5)});
    lk__tf_floats(&s->graph, saved_model_node_name(node, "half", half), (lk_shape){0}, &(float){0.5f});
    lk__tf_floats(&s->graph, saved_model_node_name(node, "one", one), (lk_shape){0}, &(float){1});
    saved_model_put_node(s, "Mul", saved_model_node_name(node, "scaled", scaled), INPUTS(x, root));
    saved_model_put_node(s, "Erf", saved_model_node_name(node, "erf", erf), INPUTS(scaled));
    saved_model_put_node(s, "AddV2", saved_model_node_name(node, "sum", sum), INPUTS(erf, one));
    saved_model_put_node(s, "Mul", saved_model_node_name(node, "product", product), INPUTS(x, sum));
    saved_model_put_node(s, "Mul", y, INPUTS(product, half));
}

static void saved_model_put_activation(saved_model *s, const lk_node *node, const char *x, const char *y)
{
    static const char *const ops[LK_ACTIVATION_COUNT] = {
        [LK_RELU] = "Relu", [LK_LEAKY_RELU] = "LeakyRelu", [LK_ELU] = "Elu", [LK_SIGMOID] = "Sigmoid",
        [LK_TANH] = "Tanh", [LK_SOFTPLUS] = "Softplus"};
    char inner[NAME_BYTES];
    if (node->activation == LK_GELU) {
        saved_model_put_gelu(s, node, x, y);
    } else if (node->activation == LK_SILU) {
        saved_model_put_node(s, "Sigmoid", saved_model_node_name(node, "sigmoid", inner), INPUTS(x));
        saved_model_put_node(s, "Mul", y, INPUTS(x, inner));
    } else {
        lk__tf_begin(&s->graph, ops[node->activation], y, INPUTS(x));
        lk__tf_type(&s->graph, "T", LK__TF_FLOAT);
        if (node->activation == LK_LEAKY_RELU)
            lk__tf_float(&s->graph, "alpha", (float)node->alpha);
        lk__tf_end(&s->graph);
    }
}

static void saved_model_put_window(saved_model *s, const char *op, const lk_node *node, const char *x, const char *y)
{
    lk__tf_begin(&s->graph, op, y, INPUTS(x));
    lk__tf_type(&s->graph, "T", LK__TF_FLOAT);
    lk__tf_window(&s->graph, "ksize", node->kernel);
    lk__tf_window(&s->graph, "strides", node->stride);
    lk__tf_text(&s->graph, "padding", "VALID");
    lk__tf_end(&s->graph);
}

/* Returns how many pixels the window of output `index` covers along an axis of `size`, without padding. axis: 0 for H,
 * 1 for W. */
static int64_t saved_model_covered_pixels(const lk_node *node, int axis, int64_t index, int64_t size)
{
    int64_t begin = index * node->stride[axis] - node->padding[axis], end = begin + node->kernel[axis];
    return lk__min(end, size) - lk__max(begin, 0);
}

/* TensorFlow's AvgPool of the padded image divides by the whole window, but padding must not count. So the result is
 * multiplied by a factor for each output. */
static void saved_model_put_avg_pool(saved_model *s, const lk_node *node, const lk_node *input, const char *x,
                                     const char *y)
{
    char padded[NAME_BYTES], pooled[NAME_BYTES], factor[NAME_BYTES];
    if (node->padding[0] == 0 && node->padding[1] == 0) {
        saved_model_put_window(s, "AvgPool", node, x, y);
        return;
    }
    int64_t rows = node->output.dim[2], columns = node->output.dim[3];
    float *factors = lk__calloc((size_t)rows, (size_t)columns * sizeof *factors);
    if (!factors) {
        s->graph.bytes.failed = true;
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            factors[i * columns + j] = (float)(node->kernel[0] * node->kernel[1]) /
                                       (float)(saved_model_covered_pixels(node, 0, i, input->output.dim[2]) *
                                               saved_model_covered_pixels(node, 1, j, input->output.dim[3]));
    lk__tf_floats(&s->graph, saved_model_node_name(node, "factor", factor), LK_SHAPE(1, rows, columns, 1), factors);
    lk__free(factors);
    saved_model_put_window(s, "AvgPool", node, saved_model_put_padding(s, node, x, 0, padded),
                           saved_model_node_name(node, "pooled", pooled));
    saved_model_put_node(s, "Mul", y, INPUTS(pooled, factor));
}

static void saved_model_put_global_pool(saved_model *s, const lk_node *node, const char *x, const char *y)
{
    char axes[NAME_BYTES];
    lk__tf_integers(&s->graph, saved_model_node_name(node, "axes", axes), LK_SHAPE(2), (const int32_t[]){1, 2});
    lk__tf_begin(&s->graph, node->kind == LK_NODE_GLOBAL_MAX_POOL ? "Max" : "Mean", y, INPUTS(x, axes));
    lk__tf_type(&s->graph, "T", LK__TF_FLOAT);
    lk__tf_type(&s->graph, "Tidx", LK__TF_INT32);
    lk__tf_end(&s->graph);
}

/* shape: the constant's name; dims: [n], of which one may be -1. */
static void saved_model_put_shaped(saved_model *s, const char *shape, const int32_t *dims, int n, const char *x,
                                   const char *y)
{
    lk__tf_integers(&s->graph, shape, LK_SHAPE(n), dims);
    lk__tf_begin(&s->graph, "Reshape", y, INPUTS(x, shape));
    lk__tf_type(&s->graph, "T", LK__TF_FLOAT);
    lk__tf_type(&s->graph, "Tshape", LK__TF_INT32);
    lk__tf_end(&s->graph);
}

static void saved_model_put_reshape(saved_model *s, const lk_node *node, const lk_node *input, const char *x,
                                    const char *y)
{
    char first[NAME_BYTES], shape[NAME_BYTES], shaped[NAME_BYTES];
    int32_t dims[LK_MAX_DIMS] = {-1};
    const char *plain = saved_model_is_image(node) ? saved_model_node_name(node, "shaped", shaped) : y;
    if (saved_model_is_image(input)) {
        saved_model_put_transpose(s, saved_model_node_name(node, "channels_first", first), x, false);
        x = first;
    }
    for (int i = 1; i < node->output.ndim; i++)
        dims[i] = (int32_t)node->output.dim[i];
    saved_model_put_shaped(s, saved_model_node_name(node, "shape", shape), dims, node->output.ndim, x, plain);
    if (saved_model_is_image(node))
        saved_model_put_transpose(s, y, plain, true);
}

/* Axes are [N, pixels, groups, channels of a group], of which the mean is over the last and, unless each pixel counts
 * alone, the pixels. */
static void saved_model_put_group_mean(saved_model *s, const char *x, const char *axes, const char *y)
{
    lk__tf_begin(&s->graph, "Mean", y, INPUTS(x, axes));
    lk__tf_type(&s->graph, "T", LK__TF_FLOAT);
    lk__tf_type(&s->graph, "Tidx", LK__TF_INT32);
    lk__tf_flag(&s->graph, "keep_dims", true);
    lk__tf_end(&s->graph);
}

static void saved_model_put_group_norm(saved_model *s, const lk_node *node, const char *x, const char *y)
{
    enum {
        SPLIT,
        SHAPED,
        AXES,
        MEAN,
        CENTERED,
        SQUARES,
        VARIANCE,
        EPSILON,
        SUM,
        ROOT,
        NORMALIZED,
        SHAPE,
        WHOLE,
        SCALED
    };
    static const char *const suffixes[] = {"split",   "shaped", "axes", "mean",       "centered", "squares", "variance",
                                           "epsilon", "sum",    "root", "normalized", "shape",    "whole",   "scaled"};
    enum { NAMES = sizeof suffixes / sizeof suffixes[0] };
    char name[NAMES][NAME_BYTES], weight[NAME_BYTES], bias[NAME_BYTES];
    bool image = saved_model_is_image(node);
    const float epsilon = (float)node->epsilon;
    int32_t channels = (int32_t)node->output.dim[1], groups = (int32_t)node->groups;
    int32_t h = image ? (int32_t)node->output.dim[2] : 1, w = image ? (int32_t)node->output.dim[3] : 1;
    const int32_t split[] = {-1, h * w, groups, channels / groups}, axes[] = {3, 1}, whole[] = {-1, h, w, channels},
                  flat[] = {-1, channels};
    for (int i = 0; i < NAMES; i++)
        saved_model_node_name(node, suffixes[i], name[i]);
    saved_model_put_shaped(s, name[SPLIT], split, 4, x, name[SHAPED]);
    lk__tf_integers(&s->graph, name[AXES], LK_SHAPE(node->each_pixel ? 1 : 2), axes);
    saved_model_put_group_mean(s, name[SHAPED], name[AXES], name[MEAN]);
    saved_model_put_node(s, "Sub", name[CENTERED], INPUTS(name[SHAPED], name[MEAN]));
    saved_model_put_node(s, "Mul", name[SQUARES], INPUTS(name[CENTERED], name[CENTERED]));
    saved_model_put_group_mean(s, name[SQUARES], name[AXES], name[VARIANCE]);
    lk__tf_floats(&s->graph, name[EPSILON], (lk_shape){0}, &epsilon);
    saved_model_put_node(s, "AddV2", name[SUM], INPUTS(name[VARIANCE], name[EPSILON]));
    saved_model_put_node(s, "Sqrt", name[ROOT], INPUTS(name[SUM]));
    saved_model_put_node(s, "RealDiv", name[NORMALIZED], INPUTS(name[CENTERED], name[ROOT]));
    saved_model_put_shaped(s, name[SHAPE], image ? whole : flat, image ? 4 : 2, name[NORMALIZED], name[WHOLE]);
    saved_model_put_node(s, "Mul", name[SCALED], INPUTS(name[WHOLE], saved_model_put_variable(s, node, 0, weight)));
    saved_model_put_node(s, "AddV2", y, INPUTS(name[SCALED], saved_model_put_variable(s, node, 1, bias)));
}

/* Channels are the last axis. */
static void saved_model_put_concat(saved_model *s, const lk_node *node, const char *x, const char *z, const char *y)
{
    char axis[NAME_BYTES];
    lk__tf_integers(&s->graph, saved_model_node_name(node, "axis", axis), (lk_shape){0}, &(int32_t){-1});
    lk__tf_begin(&s->graph, "ConcatV2", y, INPUTS(x, z, axis));
    lk__tf_type(&s->graph, "T", LK__TF_FLOAT);
    lk__tf_type(&s->graph, "Tidx", LK__TF_INT32);
    lk__tf_int(&s->graph, "N", 2);
    lk__tf_end(&s->graph);
}

/* z: factors of the same shape, or one for each channel. */
static void saved_model_put_multiply(saved_model *s, const lk_node *node, const char *x, const char *z, const char *y)
{
    char shape[NAME_BYTES], factors[NAME_BYTES];
    if (saved_model_is_image(node) && !saved_model_is_image(&s->network->graph.nodes[node->input[1]])) {
        const int32_t dims[] = {-1, 1, 1, (int32_t)node->output.dim[1]};
        saved_model_node_name(node, "factors", factors);
        saved_model_put_shaped(s, saved_model_node_name(node, "shape", shape), dims, 4, z, factors);
        z = factors;
    }
    saved_model_put_node(s, "Mul", y, INPUTS(x, z));
}

static void saved_model_put_layer(saved_model *s, const lk_node *node, const char *x, const char *z, const char *y)
{
    const lk_node *input = &s->network->graph.nodes[node->input[0]];
    char padded[NAME_BYTES];
    switch (node->kind) {
    case LK_NODE_CONV2D:
        saved_model_put_conv2d(s, node, x, y);
        break;
    case LK_NODE_DENSE:
        saved_model_put_dense(s, node, x, y);
        break;
    case LK_NODE_BATCH_NORM:
        saved_model_put_batch_norm(s, node, x, y);
        break;
    case LK_NODE_ACTIVATION:
        saved_model_put_activation(s, node, x, y);
        break;
    case LK_NODE_MAX_POOL:
        saved_model_put_window(s, "MaxPool", node, saved_model_put_padding(s, node, x, -INFINITY, padded), y);
        break;
    case LK_NODE_AVG_POOL:
        saved_model_put_avg_pool(s, node, input, x, y);
        break;
    case LK_NODE_GLOBAL_MAX_POOL:
    case LK_NODE_GLOBAL_AVG_POOL:
        saved_model_put_global_pool(s, node, x, y);
        break;
    case LK_NODE_RESHAPE:
        saved_model_put_reshape(s, node, input, x, y);
        break;
    case LK_NODE_CONCAT:
        saved_model_put_concat(s, node, x, z, y);
        break;
    case LK_NODE_MULTIPLY:
        saved_model_put_multiply(s, node, x, z, y);
        break;
    case LK_NODE_SCALE:
        saved_model_put_node(s, "Mul", y, INPUTS(x, saved_model_put_variable(s, node, 0, padded)));
        break;
    case LK_NODE_GROUP_NORM:
        saved_model_put_group_norm(s, node, x, y);
        break;
    default:
        saved_model_put_node(s, "AddV2", y, INPUTS(x, z));
        break;
    }
}

/* --- the graph ---------------------------------------------------------------------------------------------------- */

static const char *saved_model_value_name(const saved_model *s, int node, char text[NAME_BYTES])
{
    if (node == 0)
        return s->opts->channels_last && !s->network->mean ? "images" : "images/channels_last";
    if (node == s->network->graph.n - 1)
        return "logits";
    return saved_model_node_name(&s->network->graph.nodes[node], "", text);
}

static lk_shape saved_model_images_shape(const saved_model *s)
{
    const lk_model_input *in = &s->network->input;
    return s->opts->channels_last ? LK_SHAPE(-1, in->height, in->width, in->channels)
                                  : LK_SHAPE(-1, in->channels, in->height, in->width);
}

static void saved_model_put_images(saved_model *s)
{
    const lk_network *network = s->network;
    const lk_model_input *in = &network->input;
    const char *images = s->opts->channels_last ? "images"
                         : network->mean        ? "images/channels_last_raw"
                                                : "images/channels_last";
    lk__tf_input(&s->graph, "images", saved_model_images_shape(s));
    if (!s->opts->channels_last)
        saved_model_put_transpose(s, images, "images", true);
    if (!network->mean)
        return;
    lk__tf_floats(&s->graph, "images/mean", LK_SHAPE(in->channels), network->mean);
    lk__tf_floats(&s->graph, "images/divisor", LK_SHAPE(in->channels), network->divisor);
    saved_model_put_node(s, "Sub", "images/centered", INPUTS(images, "images/mean"));
    saved_model_put_node(s, "RealDiv", "images/channels_last", INPUTS("images/centered", "images/divisor"));
}

static void saved_model_put_graph(saved_model *s)
{
    const lk_graph *graph = &s->network->graph;
    char x[NAME_BYTES], z[NAME_BYTES], y[NAME_BYTES];
    saved_model_put_images(s);
    for (int i = 1; i < graph->n; i++) {
        const lk_node *node = &graph->nodes[i];
        const char *second = node->input[1] < 0 ? NULL : saved_model_value_name(s, node->input[1], z);
        saved_model_put_layer(s, node, saved_model_value_name(s, node->input[0], x), second,
                              saved_model_value_name(s, i, y));
    }
    saved_model_put_node(s, "Softmax", "probabilities", INPUTS("logits"));
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static lk_status saved_model_write_folder(const char *folder, const lk_bytes *bytes)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/saved_model.pb", folder) >= (int)sizeof path)
        LK_FAIL(LK_ERR_ARGUMENT, "%.60s…: the path is too long", folder);
    return lk__durable_write(path, bytes->data, bytes->size);
}

/* TensorFlow's own names of signatures are identifiers; more would be read, but could not be an attribute. */
static lk_status saved_model_check_signature(const char *name)
{
    enum { MOST = 128 };
    size_t n = strlen(name);
    bool is_name = n > 0 && n <= MOST && !isdigit((unsigned char)*name);
    for (const char *c = name; *c; c++)
        is_name &= isalnum((unsigned char)*c) || *c == '_';
    if (!is_name)
        LK_FAIL(
            LK_ERR_ARGUMENT,
            "the signature '%.40s' has no name that TensorFlow takes; expected letters, digits and '_', %d at most, "
            "and no digit first",
            name, MOST);
    return LK_OK;
}

static lk_status saved_model_check(const lk_network *network, const char *signature)
{
    LK_TRY(saved_model_check_signature(signature));
    const int64_t most = (INT32_MAX - (64 << 20)) / (int64_t)sizeof(float);
    if (network->elements > most)
        LK_FAIL(
            LK_ERR_UNSUPPORTED,
            "%s: %lld values are more than a SavedModel's graph can hold, %lld; ONNX holds them, in a file beside it",
            lk_model_name(network->model), (long long)network->elements, (long long)most);
    for (int i = 0; i < network->graph.n; i++) {
        const lk_node *node = &network->graph.nodes[i];
        if (node->kind == LK_NODE_ACTIVATION && node->activation == LK_ELU && node->alpha != 1)
            LK_FAIL(LK_ERR_UNSUPPORTED, "%s: layer '%s' is an elu of alpha %g; TensorFlow has that of alpha 1",
                    lk_model_name(network->model), node->name, node->alpha);
    }
    return LK_OK;
}

static lk_status saved_model_write(const lk_network *network, const char *path, const lk_export_opts *opts)
{
    saved_model s = {.network = network, .opts = opts};
    const char *signature = opts->signature ? opts->signature : "serving_default";
    lk_export_file folder;
    LK_TRY(saved_model_check(network, signature));
    LK_TRY(lk__export_begin_folder(path, &folder));
    size_t begin = lk__tf_open(&s.graph);
    saved_model_put_graph(&s);
    lk_shape classes = LK_SHAPE(-1, network->input.classes);
    const lk_tf_value images = {"images", saved_model_images_shape(&s)},
                      outputs[] = {{"logits", classes}, {"probabilities", classes}};
    lk__tf_close(&s.graph, begin, signature, &images, outputs, 2);
    lk_status status = lk__bytes_status(&s.graph.bytes);
    if (status == LK_OK)
        status = saved_model_write_folder(folder.temporary, &s.graph.bytes);
    lk__bytes_free(&s.graph.bytes);
    return lk__export_end_folder(&folder, status);
}

const lk_export_writer lk__export_savedmodel = {.name = "savedmodel", .write = saved_model_write};
