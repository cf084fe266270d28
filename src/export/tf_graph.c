#include "export/tf_graph.h"

#include "io/records/protobuf.h"

#include <stdio.h>

/* GRAPH_PRODUCER: the graph version of TensorFlow 2.3, which has all operators used here. */
enum { SCHEMA_VERSION = 1, GRAPH_PRODUCER = 440 };

/* Field numbers from saved_model.proto, meta_graph.proto, graph.proto, versions.proto, node_def.proto,
 * attr_value.proto, tensor.proto and tensor_shape.proto. */
/* clang-format off */
enum {
    SAVED_SCHEMA = 1, SAVED_META_GRAPH = 2,
    META_INFO = 1, META_GRAPH = 2, META_SIGNATURE = 5, INFO_TAGS = 4, INFO_STRIPPED_DEFAULTS = 7,
    SIGNATURE_INPUTS = 1, SIGNATURE_OUTPUTS = 2, SIGNATURE_METHOD = 3, INFO_NAME = 1, INFO_DTYPE = 2, INFO_SHAPE = 3,
    GRAPH_NODE = 1, GRAPH_VERSIONS = 4, VERSIONS_PRODUCER = 1,
    NODE_NAME = 1, NODE_OP = 2, NODE_INPUT = 3, NODE_ATTRIBUTE = 5, ENTRY_KEY = 1, ENTRY_VALUE = 2,
    VALUE_LIST = 1, VALUE_TEXT = 2, VALUE_INTEGER = 3, VALUE_FLOAT = 4, VALUE_FLAG = 5, VALUE_TYPE = 6, VALUE_SHAPE = 7,
    VALUE_TENSOR = 8, LIST_INTS = 3,
    TENSOR_DTYPE = 1, TENSOR_SHAPE = 2, TENSOR_CONTENT = 4, SHAPE_DIM = 2, DIM_SIZE = 1
};
/* clang-format on */

static void tf_graph_put_shape(lk_bytes *out, int field, lk_shape shape)
{
    size_t begin = lk__pb_begin(out, field);
    for (int i = 0; i < shape.ndim; i++) {
        size_t dim = lk__pb_begin(out, SHAPE_DIM);
        lk__pb_varint(out, DIM_SIZE, (uint64_t)shape.dim[i]);
        lk__pb_end(out, dim);
    }
    lk__pb_end(out, begin);
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

void lk__tf_begin(lk_tf_graph *graph, const char *op, const char *name, const char *const *inputs)
{
    lk_bytes *out = &graph->bytes;
    graph->node = lk__pb_begin(out, GRAPH_NODE);
    lk__pb_string(out, NODE_NAME, name);
    lk__pb_string(out, NODE_OP, op);
    for (int i = 0; inputs[i]; i++)
        lk__pb_string(out, NODE_INPUT, inputs[i]);
}

void lk__tf_end(lk_tf_graph *graph)
{
    lk__pb_end(&graph->bytes, graph->node);
}

/* Offsets of an entry in the map of attributes, and of the value inside it. */
typedef struct attribute {
    size_t entry, value;
} attribute;

static attribute tf_graph_begin_attribute(lk_bytes *out, const char *name)
{
    attribute a = {.entry = lk__pb_begin(out, NODE_ATTRIBUTE)};
    lk__pb_string(out, ENTRY_KEY, name);
    a.value = lk__pb_begin(out, ENTRY_VALUE);
    return a;
}

static void tf_graph_end_attribute(lk_bytes *out, attribute a)
{
    lk__pb_end(out, a.value);
    lk__pb_end(out, a.entry);
}

void lk__tf_type(lk_tf_graph *graph, const char *name, lk_tf_dtype value)
{
    attribute a = tf_graph_begin_attribute(&graph->bytes, name);
    lk__pb_varint(&graph->bytes, VALUE_TYPE, value);
    tf_graph_end_attribute(&graph->bytes, a);
}

void lk__tf_text(lk_tf_graph *graph, const char *name, const char *value)
{
    attribute a = tf_graph_begin_attribute(&graph->bytes, name);
    lk__pb_string(&graph->bytes, VALUE_TEXT, value);
    tf_graph_end_attribute(&graph->bytes, a);
}

void lk__tf_int(lk_tf_graph *graph, const char *name, int64_t value)
{
    attribute a = tf_graph_begin_attribute(&graph->bytes, name);
    lk__pb_varint(&graph->bytes, VALUE_INTEGER, (uint64_t)value);
    tf_graph_end_attribute(&graph->bytes, a);
}

void lk__tf_flag(lk_tf_graph *graph, const char *name, bool value)
{
    attribute a = tf_graph_begin_attribute(&graph->bytes, name);
    lk__pb_varint(&graph->bytes, VALUE_FLAG, value);
    tf_graph_end_attribute(&graph->bytes, a);
}

void lk__tf_float(lk_tf_graph *graph, const char *name, float value)
{
    attribute a = tf_graph_begin_attribute(&graph->bytes, name);
    lk__pb_float(&graph->bytes, VALUE_FLOAT, value);
    tf_graph_end_attribute(&graph->bytes, a);
}

void lk__tf_window(lk_tf_graph *graph, const char *name, const int64_t size[2])
{
    attribute a = tf_graph_begin_attribute(&graph->bytes, name);
    size_t list = lk__pb_begin(&graph->bytes, VALUE_LIST);
    lk__pb_varints(&graph->bytes, LIST_INTS, (const int64_t[]){1, size[0], size[1], 1}, 4);
    lk__pb_end(&graph->bytes, list);
    tf_graph_end_attribute(&graph->bytes, a);
}

void lk__tf_input(lk_tf_graph *graph, const char *name, lk_shape shape)
{
    lk__tf_begin(graph, "Placeholder", name, (const char *const[]){NULL});
    lk__tf_type(graph, "dtype", LK__TF_FLOAT);
    attribute a = tf_graph_begin_attribute(&graph->bytes, "shape");
    tf_graph_put_shape(&graph->bytes, VALUE_SHAPE, shape);
    tf_graph_end_attribute(&graph->bytes, a);
    lk__tf_end(graph);
}

typedef struct constant {
    attribute value;
    size_t tensor;
} constant;

/* Begins a constant. The caller appends its contents, `size` bytes, and calls tf_graph_end_constant. */
static constant tf_graph_begin_constant(lk_tf_graph *graph, const char *name, lk_shape shape, lk_tf_dtype dtype,
                                        size_t size)
{
    lk_bytes *out = &graph->bytes;
    constant c;
    lk__tf_begin(graph, "Const", name, (const char *const[]){NULL});
    lk__tf_type(graph, "dtype", dtype);
    c.value = tf_graph_begin_attribute(out, "value");
    c.tensor = lk__pb_begin(out, VALUE_TENSOR);
    lk__pb_varint(out, TENSOR_DTYPE, dtype);
    tf_graph_put_shape(out, TENSOR_SHAPE, shape);
    lk__pb_bytes(out, TENSOR_CONTENT, size);
    return c;
}

static void tf_graph_end_constant(lk_tf_graph *graph, constant c)
{
    lk__pb_end(&graph->bytes, c.tensor);
    tf_graph_end_attribute(&graph->bytes, c.value);
    lk__tf_end(graph);
}

void lk__tf_floats(lk_tf_graph *graph, const char *name, lk_shape shape, const float *values)
{
    size_t count = (size_t)lk_shape_count(shape);
    constant c = tf_graph_begin_constant(graph, name, shape, LK__TF_FLOAT, count * sizeof *values);
    lk__put_floats(&graph->bytes, values, count);
    tf_graph_end_constant(graph, c);
}

void lk__tf_integers(lk_tf_graph *graph, const char *name, lk_shape shape, const int32_t *values)
{
    size_t count = (size_t)lk_shape_count(shape);
    constant c = tf_graph_begin_constant(graph, name, shape, LK__TF_INT32, count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        lk__put_u32(&graph->bytes, (uint32_t)values[i]);
    tf_graph_end_constant(graph, c);
}

/* --- around the graph --------------------------------------------------------------------------------------------- */

size_t lk__tf_open(lk_tf_graph *graph)
{
    lk_bytes *out = &graph->bytes;
    lk__pb_varint(out, SAVED_SCHEMA, SCHEMA_VERSION);
    size_t begin = lk__pb_begin(out, SAVED_META_GRAPH), info = lk__pb_begin(out, META_INFO);
    lk__pb_string(out, INFO_TAGS, "serve");
    lk__pb_varint(out, INFO_STRIPPED_DEFAULTS, 1);
    lk__pb_end(out, info);
    graph->graph = lk__pb_begin(out, META_GRAPH);
    return begin;
}

static void tf_graph_put_signature_value(lk_bytes *out, int field, const lk_tf_value *value)
{
    char tensor[256];
    size_t entry = lk__pb_begin(out, field);
    lk__pb_string(out, ENTRY_KEY, value->name);
    size_t info = lk__pb_begin(out, ENTRY_VALUE);
    snprintf(tensor, sizeof tensor, "%s:0", value->name);
    lk__pb_string(out, INFO_NAME, tensor);
    lk__pb_varint(out, INFO_DTYPE, LK__TF_FLOAT);
    tf_graph_put_shape(out, INFO_SHAPE, value->shape);
    lk__pb_end(out, info);
    lk__pb_end(out, entry);
}

void lk__tf_close(lk_tf_graph *graph, size_t begin, const char *signature_name, const lk_tf_value *input,
                  const lk_tf_value *outputs, int n)
{
    lk_bytes *out = &graph->bytes;
    size_t versions = lk__pb_begin(out, GRAPH_VERSIONS);
    lk__pb_varint(out, VERSIONS_PRODUCER, GRAPH_PRODUCER);
    lk__pb_end(out, versions);
    lk__pb_end(out, graph->graph);
    size_t entry = lk__pb_begin(out, META_SIGNATURE);
    lk__pb_string(out, ENTRY_KEY, signature_name);
    size_t signature = lk__pb_begin(out, ENTRY_VALUE);
    tf_graph_put_signature_value(out, SIGNATURE_INPUTS, input);
    for (int i = 0; i < n; i++)
        tf_graph_put_signature_value(out, SIGNATURE_OUTPUTS, &outputs[i]);
    lk__pb_string(out, SIGNATURE_METHOD, "tensorflow/serving/predict");
    lk__pb_end(out, signature);
    lk__pb_end(out, entry);
    lk__pb_end(out, begin);
}
