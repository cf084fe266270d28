/* ONNX (onnx.proto, IR version 7; operators of opset 13). Nodes have their layers' paths as names, what they give is
 * PATH/output, and weights have the variables' names. */
#include "export/network.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/durable.h"
#include "io/json.h"
#include "io/protobuf.h"
#include "lockstep/build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IR_VERSION = 7, OPSET = 13 };

/* Numbers of fields and of enumerations in onnx.proto. */
enum {
    MODEL_IR_VERSION = 1,
    MODEL_PRODUCER = 2,
    MODEL_PRODUCER_VERSION = 3,
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    MODEL_METADATA = 14,
    OPSET_VERSION = 2,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    GRAPH_NODE = 1,
    GRAPH_NAME = 2,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_NAME = 3,
    NODE_OP = 4,
    NODE_ATTRIBUTE = 5,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_F = 2,
    ATTRIBUTE_I = 3,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_TYPE = 20,
    ATTRIBUTE_IS_FLOAT = 1,
    ATTRIBUTE_IS_INT = 2,
    ATTRIBUTE_IS_INTS = 7,
    TENSOR_DIMS = 1,
    TENSOR_TYPE = 2,
    TENSOR_NAME = 8,
    TENSOR_RAW = 9,
    TENSOR_EXTERNAL = 13,
    TENSOR_LOCATION = 14,
    TENSOR_IS_FLOAT = 1,
    TENSOR_IS_INT64 = 7,
    LOCATION_IS_EXTERNAL = 1,
    VALUE_NAME = 1,
    VALUE_TYPE = 2,
    TYPE_TENSOR = 1,
    TENSOR_TYPE_ELEMENT = 1,
    TENSOR_TYPE_SHAPE = 2,
    SHAPE_DIM = 1,
    DIM_VALUE = 1,
    DIM_PARAM = 2
};

/* Of weights beside the file, each begins at a page of memory, so that it can be mapped. */
enum { DATA_ALIGNMENT = 4096, NAME_BYTES = LK__EXPORT_MAX_PATH + 64 };

typedef struct onnx {
    const lk__network *network;
    lk__bytes model;
    bool beside; /* weights go to `data` */
    lk__durable_file data;
    const char *data_name;
    lk_status status; /* of `data` */
} onnx;

/* --- values ------------------------------------------------------------------------------------------------------- */

static void put_dims(lk__bytes *out, lk_shape shape)
{
    for (int i = 0; i < shape.ndim; i++)
        lk__pb_varint(out, TENSOR_DIMS, (uint64_t)shape.dim[i]);
}

static void put_entry(lk__bytes *out, int field, const char *key, const char *value)
{
    size_t begin = lk__pb_begin(out, field);
    lk__pb_string(out, ENTRY_KEY, key);
    lk__pb_string(out, ENTRY_VALUE, value);
    lk__pb_end(out, begin);
}

static void put_number_entry(lk__bytes *out, int field, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    put_entry(out, field, key, text);
}

static lk_status write_data(onnx *o, const float *values, int64_t count)
{
    enum { PIECE = 1 << 16 };
    lk_status status = LK_OK;
    lk__bytes little = {0};
    for (int64_t i = 0; i < count && status == LK_OK; i += PIECE) {
        lk__bytes_clear(&little);
        lk__put_floats(&little, values + i, (size_t)(count - i < PIECE ? count - i : PIECE));
        status = lk__bytes_status(&little);
        if (status == LK_OK)
            status = lk__durable_put(&o->data, little.data, little.size);
    }
    lk__bytes_free(&little);
    return status;
}

/* Where the values lie in the file beside. */
static void put_external(onnx *o, const float *values, int64_t count)
{
    static const char zeros[DATA_ALIGNMENT];
    int64_t bytes = count * (int64_t)sizeof *values;
    put_entry(&o->model, TENSOR_EXTERNAL, "location", o->data_name);
    put_number_entry(&o->model, TENSOR_EXTERNAL, "offset", o->data.bytes);
    put_number_entry(&o->model, TENSOR_EXTERNAL, "length", bytes);
    lk__pb_varint(&o->model, TENSOR_LOCATION, LOCATION_IS_EXTERNAL);
    if (o->status == LK_OK)
        o->status = write_data(o, values, count);
    if (o->status == LK_OK)
        o->status =
            lk__durable_put(&o->data, zeros, (size_t)((DATA_ALIGNMENT - bytes % DATA_ALIGNMENT) % DATA_ALIGNMENT));
}

static void put_floats(onnx *o, const char *name, lk_shape shape, const float *values)
{
    int64_t count = lk_shape_count(shape);
    size_t begin = lk__pb_begin(&o->model, GRAPH_INITIALIZER);
    put_dims(&o->model, shape);
    lk__pb_varint(&o->model, TENSOR_TYPE, TENSOR_IS_FLOAT);
    lk__pb_string(&o->model, TENSOR_NAME, name);
    if (o->beside) {
        put_external(o, values, count);
    } else {
        lk__pb_bytes(&o->model, TENSOR_RAW, (size_t)count * sizeof *values);
        lk__put_floats(&o->model, values, (size_t)count);
    }
    lk__pb_end(&o->model, begin);
}

static void put_scalar(onnx *o, const char *name, float value)
{
    lk__bytes *out = &o->model;
    size_t begin = lk__pb_begin(out, GRAPH_INITIALIZER);
    lk__pb_varint(out, TENSOR_TYPE, TENSOR_IS_FLOAT);
    lk__pb_string(out, TENSOR_NAME, name);
    lk__pb_bytes(out, TENSOR_RAW, sizeof value);
    lk__put_floats(out, &value, 1);
    lk__pb_end(out, begin);
}

static void put_integers(onnx *o, const char *name, const int64_t *values, int n)
{
    lk__bytes *out = &o->model;
    size_t begin = lk__pb_begin(out, GRAPH_INITIALIZER);
    lk__pb_varint(out, TENSOR_DIMS, (uint64_t)n);
    lk__pb_varint(out, TENSOR_TYPE, TENSOR_IS_INT64);
    lk__pb_string(out, TENSOR_NAME, name);
    lk__pb_bytes(out, TENSOR_RAW, (size_t)n * sizeof *values);
    for (int i = 0; i < n; i++)
        lk__put_u64(out, (uint64_t)values[i]);
    lk__pb_end(out, begin);
}

static void put_variables(onnx *o)
{
    const lk_model *model = o->network->model;
    for (int v = 0; v < lk_model_variable_count(model); v++)
        put_floats(o, lk_model_variable_name(model, v), lk_model_variable_shape(model, v), o->network->variables[v]);
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static void put_int(lk__bytes *out, const char *name, int64_t value)
{
    size_t begin = lk__pb_begin(out, NODE_ATTRIBUTE);
    lk__pb_string(out, ATTRIBUTE_NAME, name);
    lk__pb_varint(out, ATTRIBUTE_I, (uint64_t)value);
    lk__pb_varint(out, ATTRIBUTE_TYPE, ATTRIBUTE_IS_INT);
    lk__pb_end(out, begin);
}

static void put_float(lk__bytes *out, const char *name, float value)
{
    size_t begin = lk__pb_begin(out, NODE_ATTRIBUTE);
    lk__pb_string(out, ATTRIBUTE_NAME, name);
    lk__pb_float(out, ATTRIBUTE_F, value);
    lk__pb_varint(out, ATTRIBUTE_TYPE, ATTRIBUTE_IS_FLOAT);
    lk__pb_end(out, begin);
}

static void put_ints(lk__bytes *out, const char *name, int64_t value, int times)
{
    size_t begin = lk__pb_begin(out, NODE_ATTRIBUTE);
    lk__pb_string(out, ATTRIBUTE_NAME, name);
    for (int i = 0; i < times; i++)
        lk__pb_varint(out, ATTRIBUTE_INTS, (uint64_t)value);
    lk__pb_varint(out, ATTRIBUTE_TYPE, ATTRIBUTE_IS_INTS);
    lk__pb_end(out, begin);
}

/* "PATH/suffix": no layer's name has a '/'. */
static const char *name_in(const lk_node *node, const char *suffix, char text[NAME_BYTES])
{
    snprintf(text, NAME_BYTES, "%s/%s", node->name, suffix);
    return text;
}

/* inputs: up to the first NULL. Attributes may follow, then end_node. */
static size_t begin_node(onnx *o, const char *op, const char *name, const char *const *inputs, const char *output)
{
    lk__bytes *out = &o->model;
    size_t begin = lk__pb_begin(out, GRAPH_NODE);
    for (int i = 0; inputs[i]; i++)
        lk__pb_string(out, NODE_INPUT, inputs[i]);
    lk__pb_string(out, NODE_OUTPUT, output);
    lk__pb_string(out, NODE_NAME, name);
    lk__pb_string(out, NODE_OP, op);
    return begin;
}

static void end_node(onnx *o, size_t begin)
{
    lk__pb_end(&o->model, begin);
}

#define INPUTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void put_node(onnx *o, const char *op, const char *name, const char *const *inputs, const char *output)
{
    end_node(o, begin_node(o, op, name, inputs, output));
}

static const char *variable_of(const onnx *o, const lk_node *node, int i)
{
    return node->variable[i] < 0 ? NULL : lk_model_variable_name(o->network->model, node->variable[i]);
}

static void put_window(onnx *o, const lk_node *node)
{
    put_ints(&o->model, "kernel_shape", node->kernel, 2);
    put_ints(&o->model, "strides", node->stride, 2);
    put_ints(&o->model, "pads", node->padding, 4);
}

static void put_gelu(onnx *o, const lk_node *node, const char *x, const char *y)
{
    char root[NAME_BYTES], half[NAME_BYTES], one[NAME_BYTES], scaled[NAME_BYTES], erf[NAME_BYTES], sum[NAME_BYTES],
        product[NAME_BYTES];
    put_scalar(o, name_in(node, "root_of_half", root), (float)sqrt(0.5));
    put_scalar(o, name_in(node, "half", half), 0.5f);
    put_scalar(o, name_in(node, "one", one), 1);
    put_node(o, "Mul", name_in(node, "scaled", scaled), INPUTS(x, root), scaled);
    put_node(o, "Erf", name_in(node, "erf", erf), INPUTS(scaled), erf);
    put_node(o, "Add", name_in(node, "sum", sum), INPUTS(erf, one), sum);
    put_node(o, "Mul", name_in(node, "product", product), INPUTS(x, sum), product);
    put_node(o, "Mul", node->name, INPUTS(product, half), y);
}

static void put_activation(onnx *o, const lk_node *node, const char *x, const char *y)
{
    static const char *const ops[LK_ACTIVATION_COUNT] = {
        [LK_RELU] = "Relu", [LK_LEAKY_RELU] = "LeakyRelu", [LK_ELU] = "Elu", [LK_SIGMOID] = "Sigmoid",
        [LK_TANH] = "Tanh", [LK_SOFTPLUS] = "Softplus"};
    char inner[NAME_BYTES];
    if (node->activation == LK_GELU) {
        put_gelu(o, node, x, y);
    } else if (node->activation == LK_SILU) {
        put_node(o, "Sigmoid", name_in(node, "sigmoid", inner), INPUTS(x), inner);
        put_node(o, "Mul", node->name, INPUTS(x, inner), y);
    } else {
        size_t begin = begin_node(o, ops[node->activation], node->name, INPUTS(x), y);
        if (node->activation == LK_LEAKY_RELU || node->activation == LK_ELU)
            put_float(&o->model, "alpha", (float)node->alpha);
        end_node(o, begin);
    }
}

static void put_global_pool(onnx *o, const lk_node *node, const char *op, const char *x, const char *y)
{
    char pooled[NAME_BYTES];
    put_node(o, op, name_in(node, "pooled", pooled), INPUTS(x), pooled);
    put_node(o, "Flatten", node->name, INPUTS(pooled), y);
}

static void put_reshape(onnx *o, const lk_node *node, const char *x, const char *y)
{
    char shape[NAME_BYTES];
    int64_t dims[LK_MAX_DIMS] = {0}; /* 0: the input's own size, of the batch */
    for (int i = 1; i < node->output.ndim; i++)
        dims[i] = node->output.dim[i];
    put_integers(o, name_in(node, "shape", shape), dims, node->output.ndim);
    put_node(o, "Reshape", node->name, INPUTS(x, shape), y);
}

static void put_layer(onnx *o, const lk_node *node, const char *x, const char *z, const char *y)
{
    const char *weight = variable_of(o, node, 0), *bias = variable_of(o, node, 1);
    size_t begin;
    switch (node->kind) {
    case LK_NODE_CONV2D:
        begin = begin_node(o, "Conv", node->name, INPUTS(x, weight, bias), y);
        put_window(o, node);
        end_node(o, begin);
        break;
    case LK_NODE_DENSE:
        put_node(o, "Gemm", node->name, INPUTS(x, weight, bias), y);
        break;
    case LK_NODE_BATCH_NORM:
        begin = begin_node(o, "BatchNormalization", node->name,
                           INPUTS(x, weight, bias, variable_of(o, node, 2), variable_of(o, node, 3)), y);
        put_float(&o->model, "epsilon", (float)node->epsilon);
        end_node(o, begin);
        break;
    case LK_NODE_ACTIVATION:
        put_activation(o, node, x, y);
        break;
    case LK_NODE_MAX_POOL:
    case LK_NODE_AVG_POOL:
        begin = begin_node(o, node->kind == LK_NODE_MAX_POOL ? "MaxPool" : "AveragePool", node->name, INPUTS(x), y);
        put_window(o, node);
        end_node(o, begin);
        break;
    case LK_NODE_GLOBAL_MAX_POOL:
        put_global_pool(o, node, "GlobalMaxPool", x, y);
        break;
    case LK_NODE_GLOBAL_AVG_POOL:
        put_global_pool(o, node, "GlobalAveragePool", x, y);
        break;
    case LK_NODE_RESHAPE:
        put_reshape(o, node, x, y);
        break;
    default:
        put_node(o, "Add", node->name, INPUTS(x, z), y);
        break;
    }
}

/* --- the graph ---------------------------------------------------------------------------------------------------- */

static const char *value_of(const onnx *o, int node, char text[NAME_BYTES])
{
    if (node == 0)
        return o->network->mean ? "images/prepared" : "images";
    if (node == o->network->graph.n - 1)
        return "logits";
    return name_in(&o->network->graph.nodes[node], "output", text);
}

static void put_nodes(onnx *o)
{
    const lk__network *network = o->network;
    const lk_graph *graph = &network->graph;
    char x[NAME_BYTES], z[NAME_BYTES], y[NAME_BYTES];
    if (network->mean) {
        lk_shape shape = LK_SHAPE(1, network->input.channels, 1, 1);
        put_floats(o, "images/mean", shape, network->mean);
        put_floats(o, "images/divisor", shape, network->divisor);
        put_node(o, "Sub", "images/centred", INPUTS("images", "images/mean"), "images/centred");
        put_node(o, "Div", "images/prepared", INPUTS("images/centred", "images/divisor"), "images/prepared");
    }
    for (int i = 1; i < graph->n; i++) {
        const lk_node *node = &graph->nodes[i];
        const char *second = node->input[1] < 0 ? NULL : value_of(o, node->input[1], z);
        put_layer(o, node, value_of(o, node->input[0], x), second, value_of(o, i, y));
    }
    size_t begin = begin_node(o, "Softmax", "logits/softmax", INPUTS("logits"), "probabilities");
    put_int(&o->model, "axis", 1);
    end_node(o, begin);
}

/* [N, dims]: the batch is free. */
static void put_value(onnx *o, int field, const char *name, const int64_t *dims, int n)
{
    lk__bytes *out = &o->model;
    size_t value = lk__pb_begin(out, field);
    lk__pb_string(out, VALUE_NAME, name);
    size_t type = lk__pb_begin(out, VALUE_TYPE), tensor = lk__pb_begin(out, TYPE_TENSOR);
    lk__pb_varint(out, TENSOR_TYPE_ELEMENT, TENSOR_IS_FLOAT);
    size_t shape = lk__pb_begin(out, TENSOR_TYPE_SHAPE), dim = lk__pb_begin(out, SHAPE_DIM);
    lk__pb_string(out, DIM_PARAM, "N");
    lk__pb_end(out, dim);
    for (int i = 0; i < n; i++) {
        dim = lk__pb_begin(out, SHAPE_DIM);
        lk__pb_varint(out, DIM_VALUE, (uint64_t)dims[i]);
        lk__pb_end(out, dim);
    }
    lk__pb_end(out, shape);
    lk__pb_end(out, tensor);
    lk__pb_end(out, type);
    lk__pb_end(out, value);
}

static void put_graph(onnx *o)
{
    const lk_model_input *in = &o->network->input;
    size_t graph = lk__pb_begin(&o->model, MODEL_GRAPH);
    put_nodes(o);
    lk__pb_string(&o->model, GRAPH_NAME, "lockstep");
    put_variables(o);
    put_value(o, GRAPH_INPUT, "images", (const int64_t[]){in->channels, in->height, in->width}, 3);
    put_value(o, GRAPH_OUTPUT, "logits", &in->classes, 1);
    put_value(o, GRAPH_OUTPUT, "probabilities", &in->classes, 1);
    lk__pb_end(&o->model, graph);
}

static void put_metadata(onnx *o)
{
    const lk__network *network = o->network;
    if (!network->class_names)
        return;
    lk__bytes names = {0};
    lk__json_open(&names, NULL, '[');
    for (int64_t i = 0; i < network->input.classes; i++)
        lk__json_field(&names, LK_TEXT(NULL, network->class_names[i]));
    lk__json_close(&names, ']');
    lk__bytes_char(&names, '\0');
    if (names.failed)
        o->model.failed = true;
    else
        put_entry(&o->model, MODEL_METADATA, "class_names", (const char *)names.data);
    lk__bytes_free(&names);
}

static void put_model(onnx *o)
{
    lk__bytes *out = &o->model;
    lk__pb_varint(out, MODEL_IR_VERSION, IR_VERSION);
    lk__pb_string(out, MODEL_PRODUCER, "lockstep");
    lk__pb_string(out, MODEL_PRODUCER_VERSION, lk_build_version());
    size_t opset = lk__pb_begin(out, MODEL_OPSET);
    lk__pb_varint(out, OPSET_VERSION, OPSET);
    lk__pb_end(out, opset);
    put_graph(o);
    put_metadata(o);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/* "FILE.data", and where in it its name without folders begins. */
static char *data_path(const char *path, const char **name)
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

/* Weights that are beside come to disk before the file that names them. */
static lk_status write_model(onnx *o, const char *path, const char *data)
{
    char beside[PATH_MAX];
    uint64_t hash;
    if (o->beside) {
        LK_TRY(lk__durable_beside(data, beside));
        LK_TRY(lk__durable_open(&o->data, beside));
    }
    put_model(o);
    lk_status status = o->status == LK_OK ? lk__bytes_status(&o->model) : o->status;
    if (o->beside && status == LK_OK)
        status = lk__durable_finish(&o->data, &hash);
    if (o->beside) {
        lk__durable_abandon(&o->data);
        status = lk__durable_rename(beside, data, status);
    }
    return status == LK_OK ? lk__durable_write(path, o->model.data, o->model.size) : status;
}

static lk_status write_onnx(const lk__network *network, const char *path, const lk_export_opts *opts)
{
    /* What protobuf can read at once, with room for what is no weight. */
    const int64_t most = INT32_MAX - (64 << 20);
    onnx o = {.network = network};
    o.beside = opts->external_data || network->elements * (int64_t)sizeof(float) > most;
    char *data = data_path(path, &o.data_name);
    if (!data)
        return LK_ERR_MEMORY;
    lk_status status = write_model(&o, path, data);
    lk__bytes_free(&o.model);
    lk__free(data);
    return status;
}

const lk__export_writer lk__export_onnx = {.name = "onnx", .write = write_onnx};
