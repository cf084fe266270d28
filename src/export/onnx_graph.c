#include "export/onnx_graph.h"

#include "io/records/protobuf.h"
#include "lockstep/build.h"

#include <stdio.h>

enum { IR_VERSION = 7, OPSET = 13 };

/* Numbers of fields and of enumerations in onnx.proto. */
/* clang-format off */
enum {
    MODEL_IR_VERSION = 1, MODEL_PRODUCER = 2, MODEL_PRODUCER_VERSION = 3, MODEL_GRAPH = 7, MODEL_OPSET = 8,
    MODEL_METADATA = 14, OPSET_VERSION = 2, ENTRY_KEY = 1, ENTRY_VALUE = 2,
    GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12,
    NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5,
    ATTRIBUTE_NAME = 1, ATTRIBUTE_F = 2, ATTRIBUTE_I = 3, ATTRIBUTE_INTS = 8, ATTRIBUTE_TYPE = 20,
    ATTRIBUTE_IS_FLOAT = 1, ATTRIBUTE_IS_INT = 2, ATTRIBUTE_IS_INTS = 7,
    TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9, TENSOR_EXTERNAL = 13, TENSOR_LOCATION = 14,
    TENSOR_IS_FLOAT = 1, TENSOR_IS_INT64 = 7, LOCATION_IS_EXTERNAL = 1,
    VALUE_NAME = 1, VALUE_TYPE = 2, TYPE_TENSOR = 1, TENSOR_TYPE_ELEMENT = 1, TENSOR_TYPE_SHAPE = 2,
    SHAPE_DIM = 1, DIM_VALUE = 1, DIM_PARAM = 2
};
/* clang-format on */

/* Each constant in the data file begins at a page, so that it can be mapped. */
enum { DATA_ALIGNMENT = 4096 };

/* --- values ------------------------------------------------------------------------------------------------------- */

static void onnx_graph_put_map_entry(lk_bytes *out, int field, const char *key, const char *value)
{
    size_t begin = lk__pb_begin(out, field);
    lk__pb_string(out, ENTRY_KEY, key);
    lk__pb_string(out, ENTRY_VALUE, value);
    lk__pb_end(out, begin);
}

static void onnx_graph_put_number_entry(lk_bytes *out, int field, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    onnx_graph_put_map_entry(out, field, key, text);
}

static lk_status onnx_graph_write_data(lk_onnx *o, const float *values, int64_t count)
{
    enum { PIECE = 1 << 16 };
    lk_status status = LK_OK;
    lk_bytes little = {0};
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

/* Writes the values to the data file, and their location to the model. */
static void onnx_graph_put_external(lk_onnx *o, const float *values, int64_t count)
{
    static const char zeros[DATA_ALIGNMENT];
    int64_t bytes = count * (int64_t)sizeof *values;
    onnx_graph_put_map_entry(&o->model, TENSOR_EXTERNAL, "location", o->data_name);
    onnx_graph_put_number_entry(&o->model, TENSOR_EXTERNAL, "offset", o->data.bytes);
    onnx_graph_put_number_entry(&o->model, TENSOR_EXTERNAL, "length", bytes);
    lk__pb_varint(&o->model, TENSOR_LOCATION, LOCATION_IS_EXTERNAL);
    if (o->status == LK_OK)
        o->status = onnx_graph_write_data(o, values, count);
    if (o->status == LK_OK)
        o->status =
            lk__durable_put(&o->data, zeros, (size_t)((DATA_ALIGNMENT - bytes % DATA_ALIGNMENT) % DATA_ALIGNMENT));
}

/* Begins a constant in the graph. The caller adds its elements and ends it with lk__pb_end. */
static size_t onnx_graph_begin_constant(lk_bytes *out, const char *name, const int64_t *dims, int n, int type)
{
    size_t begin = lk__pb_begin(out, GRAPH_INITIALIZER);
    for (int i = 0; i < n; i++)
        lk__pb_varint(out, TENSOR_DIMS, (uint64_t)dims[i]);
    lk__pb_varint(out, TENSOR_TYPE, (uint64_t)type);
    lk__pb_string(out, TENSOR_NAME, name);
    return begin;
}

void lk__onnx_floats(lk_onnx *o, const char *name, lk_shape shape, const float *values)
{
    int64_t count = lk_shape_count(shape);
    size_t begin = onnx_graph_begin_constant(&o->model, name, shape.dim, shape.ndim, TENSOR_IS_FLOAT);
    if (o->external) {
        onnx_graph_put_external(o, values, count);
    } else {
        lk__pb_bytes(&o->model, TENSOR_RAW, (size_t)count * sizeof *values);
        lk__put_floats(&o->model, values, (size_t)count);
    }
    lk__pb_end(&o->model, begin);
}

void lk__onnx_scalar(lk_onnx *o, const char *name, float value)
{
    lk_bytes *out = &o->model;
    size_t begin = onnx_graph_begin_constant(out, name, NULL, 0, TENSOR_IS_FLOAT);
    lk__pb_bytes(out, TENSOR_RAW, sizeof value);
    lk__put_floats(out, &value, 1);
    lk__pb_end(out, begin);
}

void lk__onnx_integers(lk_onnx *o, const char *name, const int64_t *values, int n)
{
    lk_bytes *out = &o->model;
    size_t begin = onnx_graph_begin_constant(out, name, &(int64_t){n}, 1, TENSOR_IS_INT64);
    lk__pb_bytes(out, TENSOR_RAW, (size_t)n * sizeof *values);
    for (int i = 0; i < n; i++)
        lk__put_u64(out, (uint64_t)values[i]);
    lk__pb_end(out, begin);
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

size_t lk__onnx_begin(lk_onnx *o, const char *op, const char *name, const char *const *inputs, const char *output)
{
    lk_bytes *out = &o->model;
    size_t begin = lk__pb_begin(out, GRAPH_NODE);
    for (int i = 0; inputs[i]; i++)
        lk__pb_string(out, NODE_INPUT, inputs[i]);
    lk__pb_string(out, NODE_OUTPUT, output);
    lk__pb_string(out, NODE_NAME, name);
    lk__pb_string(out, NODE_OP, op);
    return begin;
}

void lk__onnx_end(lk_onnx *o, size_t begin)
{
    lk__pb_end(&o->model, begin);
}

void lk__onnx_node(lk_onnx *o, const char *op, const char *name, const char *const *inputs, const char *output)
{
    lk__onnx_end(o, lk__onnx_begin(o, op, name, inputs, output));
}

void lk__onnx_int(lk_onnx *o, const char *name, int64_t value)
{
    lk_bytes *out = &o->model;
    size_t begin = lk__pb_begin(out, NODE_ATTRIBUTE);
    lk__pb_string(out, ATTRIBUTE_NAME, name);
    lk__pb_varint(out, ATTRIBUTE_I, (uint64_t)value);
    lk__pb_varint(out, ATTRIBUTE_TYPE, ATTRIBUTE_IS_INT);
    lk__pb_end(out, begin);
}

void lk__onnx_float(lk_onnx *o, const char *name, float value)
{
    lk_bytes *out = &o->model;
    size_t begin = lk__pb_begin(out, NODE_ATTRIBUTE);
    lk__pb_string(out, ATTRIBUTE_NAME, name);
    lk__pb_float(out, ATTRIBUTE_F, value);
    lk__pb_varint(out, ATTRIBUTE_TYPE, ATTRIBUTE_IS_FLOAT);
    lk__pb_end(out, begin);
}

void lk__onnx_ints(lk_onnx *o, const char *name, const int64_t *values, int n)
{
    lk_bytes *out = &o->model;
    size_t begin = lk__pb_begin(out, NODE_ATTRIBUTE);
    lk__pb_string(out, ATTRIBUTE_NAME, name);
    for (int i = 0; i < n; i++)
        lk__pb_varint(out, ATTRIBUTE_INTS, (uint64_t)values[i]);
    lk__pb_varint(out, ATTRIBUTE_TYPE, ATTRIBUTE_IS_INTS);
    lk__pb_end(out, begin);
}

/* --- around the graph --------------------------------------------------------------------------------------------- */

/* Writes the name and type of an input or output: f32 [N, dims]. */
static void onnx_graph_put_value_info(lk_onnx *o, int field, const char *name, const int64_t *dims, int n)
{
    lk_bytes *out = &o->model;
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

void lk__onnx_input(lk_onnx *o, const char *name, const int64_t *dims, int n)
{
    onnx_graph_put_value_info(o, GRAPH_INPUT, name, dims, n);
}

void lk__onnx_output(lk_onnx *o, const char *name, const int64_t *dims, int n)
{
    onnx_graph_put_value_info(o, GRAPH_OUTPUT, name, dims, n);
}

size_t lk__onnx_open(lk_onnx *o)
{
    lk_bytes *out = &o->model;
    lk__pb_varint(out, MODEL_IR_VERSION, IR_VERSION);
    lk__pb_string(out, MODEL_PRODUCER, "lockstep");
    lk__pb_string(out, MODEL_PRODUCER_VERSION, lk_build_version());
    size_t opset = lk__pb_begin(out, MODEL_OPSET);
    lk__pb_varint(out, OPSET_VERSION, OPSET);
    lk__pb_end(out, opset);
    size_t graph = lk__pb_begin(out, MODEL_GRAPH);
    lk__pb_string(out, GRAPH_NAME, "lockstep");
    return graph;
}

void lk__onnx_close(lk_onnx *o, size_t begin)
{
    lk__pb_end(&o->model, begin);
}

void lk__onnx_metadata(lk_onnx *o, const char *key, const char *value)
{
    onnx_graph_put_map_entry(&o->model, MODEL_METADATA, key, value);
}
