/* Exports ONNX. A node is named by its layer's path, and its output is PATH/output. Weights have the names of the
 * variables. */
#include "base/mem.h"
#include "base/status.h"
#include "export/export_files.h"
#include "export/network.h"
#include "export/onnx_graph.h"
#include "io/durable.h"
#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = LK__EXPORT_MAX_PATH + 64 };

typedef struct onnx {
    const lk_network *network;
    lk_onnx graph;
} onnx;

static void onnx_put_variables(onnx *o)
{
    const lk_model *model = o->network->model;
    for (int v = 0; v < lk_model_variable_count(model); v++)
        lk__onnx_floats(&o->graph, lk_model_variable_name(model, v), lk_model_variable_shape(model, v),
                        o->network->variables[v]);
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

/* Returns "PATH/SUFFIX", which is unique because no layer's name contains a '/' and no suffix begins with one. */
static const char *onnx_name(const lk_node *node, const char *suffix, char text[NAME_BYTES])
{
    snprintf(text, NAME_BYTES, "%s/%s", node->name, suffix);
    return text;
}

#define INPUTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char *onnx_variable_name(const onnx *o, const lk_node *node, int i)
{
    return node->variable[i] < 0 ? NULL : lk_model_variable_name(o->network->model, node->variable[i]);
}

static void onnx_put_window(onnx *o, const lk_node *node)
{
    const int64_t *p = node->padding;
    lk__onnx_ints(&o->graph, "kernel_shape", node->kernel, 2);
    lk__onnx_ints(&o->graph, "strides", node->stride, 2);
    lk__onnx_ints(&o->graph, "pads", (const int64_t[]){p[0], p[1], p[0], p[1]}, 4);
}

static void onnx_put_gelu(onnx *o, const lk_node *node, const char *x, const char *y)
{
    char root[NAME_BYTES], half[NAME_BYTES], one[NAME_BYTES], scaled[NAME_BYTES], erf[NAME_BYTES], sum[NAME_BYTES],
        product[NAME_BYTES];
    lk__onnx_scalar(&o->graph, onnx_name(node, "root_of_half", root), (float)sqrt(0.5));
    lk__onnx_scalar(&o->graph, onnx_name(node, "half", half), 0.5f);
    lk__onnx_scalar(&o->graph, onnx_name(node, "one", one), 1);
    lk__onnx_node(&o->graph, "Mul", onnx_name(node, "scaled", scaled), INPUTS(x, root), scaled);
    lk__onnx_node(&o->graph, "Erf", onnx_name(node, "erf", erf), INPUTS(scaled), erf);
    lk__onnx_node(&o->graph, "Add", onnx_name(node, "sum", sum), INPUTS(erf, one), sum);
    lk__onnx_node(&o->graph, "Mul", onnx_name(node, "product", product), INPUTS(x, sum), product);
    lk__onnx_node(&o->graph, "Mul", node->name, INPUTS(product, half), y);
}

static void onnx_put_activation(onnx *o, const lk_node *node, const char *x, const char *y)
{
    static const char *const ops[LK_ACTIVATION_COUNT] = {
        [LK_RELU] = "Relu", [LK_LEAKY_RELU] = "LeakyRelu", [LK_ELU] = "Elu", [LK_SIGMOID] = "Sigmoid",
        [LK_TANH] = "Tanh", [LK_SOFTPLUS] = "Softplus"};
    char inner[NAME_BYTES];
    if (node->activation == LK_GELU) {
        onnx_put_gelu(o, node, x, y);
    } else if (node->activation == LK_SILU) {
        lk__onnx_node(&o->graph, "Sigmoid", onnx_name(node, "sigmoid", inner), INPUTS(x), inner);
        lk__onnx_node(&o->graph, "Mul", node->name, INPUTS(x, inner), y);
    } else {
        size_t begin = lk__onnx_begin(&o->graph, ops[node->activation], node->name, INPUTS(x), y);
        if (node->activation == LK_LEAKY_RELU || node->activation == LK_ELU)
            lk__onnx_float(&o->graph, "alpha", (float)node->alpha);
        lk__onnx_end(&o->graph, begin);
    }
}

static void onnx_put_global_pool(onnx *o, const lk_node *node, const char *op, const char *x, const char *y)
{
    char pooled[NAME_BYTES];
    lk__onnx_node(&o->graph, op, onnx_name(node, "pooled", pooled), INPUTS(x), pooled);
    lk__onnx_node(&o->graph, "Flatten", node->name, INPUTS(pooled), y);
}

static void onnx_put_reshape(onnx *o, const lk_node *node, const char *x, const char *y)
{
    char shape[NAME_BYTES];
    int64_t dims[LK_MAX_DIMS] = {0}; /* 0: keeps the input's size, here the batch's */
    for (int i = 1; i < node->output.ndim; i++)
        dims[i] = node->output.dim[i];
    lk__onnx_integers(&o->graph, onnx_name(node, "shape", shape), dims, node->output.ndim);
    lk__onnx_node(&o->graph, "Reshape", node->name, INPUTS(x, shape), y);
}

static void onnx_put_mean(onnx *o, const lk_node *node, const char *name, const char *x)
{
    size_t begin = lk__onnx_begin(&o->graph, "ReduceMean", name, INPUTS(x), name);
    lk__onnx_ints(&o->graph, "axes", (const int64_t[]){2, 3}, node->each_pixel ? 1 : 2);
    lk__onnx_end(&o->graph, begin);
}

/* Opset 13 has no group normalization. Axes are [N, groups, channels of a group, pixels], over which weight and bias
 * broadcast. */
static void onnx_put_group_norm(onnx *o, const lk_node *node, const char *x, const char *y)
{
    enum { SPLIT, VECTOR, SHAPED, MEAN, CENTERED, SQUARES, VARIANCE, EPSILON, SUM, ROOT, NORMALIZED, NAMES };
    static const char *const suffixes[NAMES] = {"split",    "vector",  "shaped", "mean", "centered",  "squares",
                                                "variance", "epsilon", "sum",    "root", "normalized"};
    char name[NAMES][NAME_BYTES], weight[NAME_BYTES], bias[NAME_BYTES], scaled[NAME_BYTES], shifted[NAME_BYTES];
    for (int i = 0; i < NAMES; i++)
        onnx_name(node, suffixes[i], name[i]);
    int64_t channels = node->output.dim[1] / node->groups;
    lk__onnx_integers(&o->graph, name[SPLIT], (const int64_t[]){0, node->groups, channels, -1}, 4);
    lk__onnx_integers(&o->graph, name[VECTOR], (const int64_t[]){node->groups, channels, 1}, 3);
    lk__onnx_scalar(&o->graph, name[EPSILON], (float)node->epsilon);
    lk__onnx_node(&o->graph, "Reshape", name[SHAPED], INPUTS(x, name[SPLIT]), name[SHAPED]);
    onnx_put_mean(o, node, name[MEAN], name[SHAPED]);
    lk__onnx_node(&o->graph, "Sub", name[CENTERED], INPUTS(name[SHAPED], name[MEAN]), name[CENTERED]);
    lk__onnx_node(&o->graph, "Mul", name[SQUARES], INPUTS(name[CENTERED], name[CENTERED]), name[SQUARES]);
    onnx_put_mean(o, node, name[VARIANCE], name[SQUARES]);
    lk__onnx_node(&o->graph, "Add", name[SUM], INPUTS(name[VARIANCE], name[EPSILON]), name[SUM]);
    lk__onnx_node(&o->graph, "Sqrt", name[ROOT], INPUTS(name[SUM]), name[ROOT]);
    lk__onnx_node(&o->graph, "Div", name[NORMALIZED], INPUTS(name[CENTERED], name[ROOT]), name[NORMALIZED]);
    onnx_name(node, "gamma", weight);
    onnx_name(node, "beta", bias);
    lk__onnx_node(&o->graph, "Reshape", weight, INPUTS(onnx_variable_name(o, node, 0), name[VECTOR]), weight);
    lk__onnx_node(&o->graph, "Reshape", bias, INPUTS(onnx_variable_name(o, node, 1), name[VECTOR]), bias);
    onnx_name(node, "scaled", scaled);
    onnx_name(node, "shifted", shifted);
    lk__onnx_node(&o->graph, "Mul", scaled, INPUTS(name[NORMALIZED], weight), scaled);
    lk__onnx_node(&o->graph, "Add", shifted, INPUTS(scaled, bias), shifted);
    onnx_put_reshape(o, node, shifted, y);
}

static void onnx_put_scale(onnx *o, const lk_node *node, const char *x, const char *y)
{
    char vector[NAME_BYTES], factors[NAME_BYTES];
    lk__onnx_integers(&o->graph, onnx_name(node, "vector", vector), (const int64_t[]){1, -1, 1, 1}, node->output.ndim);
    onnx_name(node, "gamma", factors);
    lk__onnx_node(&o->graph, "Reshape", factors, INPUTS(onnx_variable_name(o, node, 0), vector), factors);
    lk__onnx_node(&o->graph, "Mul", node->name, INPUTS(x, factors), y);
}

/* z: factors of the same shape, or one for each channel. */
static void onnx_put_multiply(onnx *o, const lk_node *node, const char *x, const char *z, const char *y)
{
    char shape[NAME_BYTES], factors[NAME_BYTES];
    if (o->network->graph.nodes[node->input[1]].output.ndim < node->output.ndim) {
        lk__onnx_integers(&o->graph, onnx_name(node, "shape", shape), (const int64_t[]){0, -1, 1, 1}, 4);
        lk__onnx_node(&o->graph, "Reshape", onnx_name(node, "factors", factors), INPUTS(z, shape), factors);
        z = factors;
    }
    lk__onnx_node(&o->graph, "Mul", node->name, INPUTS(x, z), y);
}

static void onnx_put_layer(onnx *o, const lk_node *node, const char *x, const char *z, const char *y)
{
    const char *weight = onnx_variable_name(o, node, 0), *bias = onnx_variable_name(o, node, 1);
    size_t begin;
    switch (node->kind) {
    case LK_NODE_CONV2D:
        begin = lk__onnx_begin(&o->graph, "Conv", node->name, INPUTS(x, weight, bias), y);
        onnx_put_window(o, node);
        if (node->dilation[0] > 1 || node->dilation[1] > 1)
            lk__onnx_ints(&o->graph, "dilations", node->dilation, 2);
        if (node->groups > 1)
            lk__onnx_int(&o->graph, "group", node->groups);
        lk__onnx_end(&o->graph, begin);
        break;
    case LK_NODE_DENSE:
        lk__onnx_node(&o->graph, "Gemm", node->name, INPUTS(x, weight, bias), y);
        break;
    case LK_NODE_BATCH_NORM:
        begin =
            lk__onnx_begin(&o->graph, "BatchNormalization", node->name,
                           INPUTS(x, weight, bias, onnx_variable_name(o, node, 2), onnx_variable_name(o, node, 3)), y);
        lk__onnx_float(&o->graph, "epsilon", (float)node->epsilon);
        lk__onnx_end(&o->graph, begin);
        break;
    case LK_NODE_ACTIVATION:
        onnx_put_activation(o, node, x, y);
        break;
    case LK_NODE_MAX_POOL:
    case LK_NODE_AVG_POOL:
        begin = lk__onnx_begin(&o->graph, node->kind == LK_NODE_MAX_POOL ? "MaxPool" : "AveragePool", node->name,
                               INPUTS(x), y);
        onnx_put_window(o, node);
        lk__onnx_end(&o->graph, begin);
        break;
    case LK_NODE_GLOBAL_MAX_POOL:
        onnx_put_global_pool(o, node, "GlobalMaxPool", x, y);
        break;
    case LK_NODE_GLOBAL_AVG_POOL:
        onnx_put_global_pool(o, node, "GlobalAveragePool", x, y);
        break;
    case LK_NODE_RESHAPE:
        onnx_put_reshape(o, node, x, y);
        break;
    case LK_NODE_CONCAT:
        begin = lk__onnx_begin(&o->graph, "Concat", node->name, INPUTS(x, z), y);
        lk__onnx_int(&o->graph, "axis", 1);
        lk__onnx_end(&o->graph, begin);
        break;
    case LK_NODE_MULTIPLY:
        onnx_put_multiply(o, node, x, z, y);
        break;
    case LK_NODE_SCALE:
        onnx_put_scale(o, node, x, y);
        break;
    case LK_NODE_GROUP_NORM:
        onnx_put_group_norm(o, node, x, y);
        break;
    default:
        lk__onnx_node(&o->graph, "Add", node->name, INPUTS(x, z), y);
        break;
    }
}

/* --- the graph ---------------------------------------------------------------------------------------------------- */

static const char *onnx_value_name(const onnx *o, int node, char text[NAME_BYTES])
{
    if (node == 0)
        return o->network->mean ? "images//prepared" : "images";
    if (node == o->network->graph.n - 1)
        return "logits";
    return onnx_name(&o->network->graph.nodes[node], "output", text);
}

static void onnx_put_nodes(onnx *o)
{
    const lk_network *network = o->network;
    const lk_graph *graph = &network->graph;
    char x[NAME_BYTES], z[NAME_BYTES], y[NAME_BYTES];
    if (network->mean) {
        lk_shape shape = LK_SHAPE(1, network->input.channels, 1, 1);
        lk__onnx_floats(&o->graph, "images//mean", shape, network->mean);
        lk__onnx_floats(&o->graph, "images//divisor", shape, network->divisor);
        lk__onnx_node(&o->graph, "Sub", "images//centered", INPUTS("images", "images//mean"), "images//centered");
        lk__onnx_node(&o->graph, "Div", "images//prepared", INPUTS("images//centered", "images//divisor"),
                      "images//prepared");
    }
    for (int i = 1; i < graph->n; i++) {
        const lk_node *node = &graph->nodes[i];
        const char *second = node->input[1] < 0 ? NULL : onnx_value_name(o, node->input[1], z);
        onnx_put_layer(o, node, onnx_value_name(o, node->input[0], x), second, onnx_value_name(o, i, y));
    }
    size_t begin = lk__onnx_begin(&o->graph, "Softmax", "logits/softmax", INPUTS("logits"), "probabilities");
    lk__onnx_int(&o->graph, "axis", 1);
    lk__onnx_end(&o->graph, begin);
}

static void onnx_put_graph(onnx *o)
{
    const lk_model_input *in = &o->network->input;
    size_t graph = lk__onnx_open(&o->graph);
    onnx_put_nodes(o);
    onnx_put_variables(o);
    lk__onnx_input(&o->graph, "images", (const int64_t[]){in->channels, in->height, in->width}, 3);
    lk__onnx_output(&o->graph, "logits", &in->classes, 1);
    lk__onnx_output(&o->graph, "probabilities", &in->classes, 1);
    lk__onnx_close(&o->graph, graph);
}

static void onnx_put_metadata(onnx *o)
{
    const lk_network *network = o->network;
    if (!network->class_names)
        return;
    lk_bytes names = {0};
    lk__json_open(&names, NULL, '[');
    for (int64_t i = 0; i < network->input.classes; i++)
        lk__json_field(&names, LK_TEXT(NULL, network->class_names[i]));
    lk__json_close(&names, ']');
    lk__bytes_char(&names, '\0');
    if (names.failed)
        o->graph.model.failed = true;
    else
        lk__onnx_metadata(&o->graph, "class_names", (const char *)names.data);
    lk__bytes_free(&names);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/* Returns "PATH.data"; the caller frees it. `path` is no link: a reader looks for the data beside the model itself.
 * *name: the part without folders. */
static char *onnx_data_path(const char *path, const char **name)
{
    size_t size = strlen(path) + sizeof ".data";
    char *data = lk__calloc(size, 1);
    if (!data)
        return NULL;
    snprintf(data, size, "%s.data", path);
    const char *slash = strrchr(data, '/');
    *name = slash ? slash + 1 : data;
    return data;
}

static lk_status onnx_open_data_file(onnx *o, lk_export_files *files, const char *data)
{
    const char *temporary;
    LK_TRY(lk__export_begin(files, data, &temporary));
    return lk__durable_open(&o->graph.data, temporary);
}

/* The data file is added first, so that it exists when the model that names it does. */
static lk_status onnx_write_files(onnx *o, const char *path, const char *data)
{
    lk_export_files files = {0};
    uint64_t hash;
    lk_status status = o->graph.external ? onnx_open_data_file(o, &files, data) : LK_OK;
    if (status == LK_OK) {
        onnx_put_graph(o);
        onnx_put_metadata(o);
        status = o->graph.status;
    }
    if (o->graph.external && status == LK_OK)
        status = lk__durable_finish(&o->graph.data, &hash);
    lk__durable_abandon(&o->graph.data);
    if (status == LK_OK)
        status = lk__export_put(&files, path, &o->graph.model);
    return lk__export_end(&files, status);
}

static lk_status onnx_write(const lk_network *network, const char *path, const lk_export_opts *opts)
{
    /* protobuf reads at most 2 GiB at once; 64 MiB of it are left for everything but weights. */
    const int64_t most = INT32_MAX - (64 << 20);
    onnx o = {.network = network};
    char target[PATH_MAX];
    LK_TRY(lk__durable_target(path, target));
    o.graph.external = opts->external_data || network->elements * (int64_t)sizeof(float) > most;
    char *data = onnx_data_path(target, &o.graph.data_name);
    if (!data)
        return LK_ERR_MEMORY;
    lk_status status = onnx_write_files(&o, target, data);
    lk__bytes_free(&o.graph.model);
    lk__free(data);
    return status;
}

const lk_export_writer lk__export_onnx = {.name = "onnx", .write = onnx_write};
