/* Writes ONNX (onnx.proto): a model with one graph, whose nodes and constants are added one by one. Failed allocations
 * are kept in `model`, as lk__bytes does, and failed writes in `status`. */
#ifndef LK_EXPORT_ONNX_GRAPH_H
#define LK_EXPORT_ONNX_GRAPH_H

#include "io/bytes.h"
#include "io/durable.h"
#include "lockstep/tensor.h"

typedef struct lk__onnx {
    lk__bytes model;
    bool beside; /* floats go to `data`, a file that is open */
    lk__durable_file data;
    const char *data_name; /* as the model calls it */
    lk_status status;      /* of `data` */
} lk__onnx;

/* The graph, of opset 13; its nodes, constants, inputs and outputs come in between. Metadata come behind it. */
size_t lk__onnx_open(lk__onnx *o);
void lk__onnx_close(lk__onnx *o, size_t begin);
void lk__onnx_metadata(lk__onnx *o, const char *key, const char *value);

/* f32 [N, dims], N free. */
void lk__onnx_input(lk__onnx *o, const char *name, const int64_t *dims, int n);
void lk__onnx_output(lk__onnx *o, const char *name, const int64_t *dims, int n);

/* A node; inputs: up to the first NULL. Attributes may follow, then lk__onnx_end with what it gave. */
size_t lk__onnx_begin(lk__onnx *o, const char *op, const char *name, const char *const *inputs, const char *output);
void lk__onnx_int(lk__onnx *o, const char *name, int64_t value);
void lk__onnx_float(lk__onnx *o, const char *name, float value);
void lk__onnx_ints(lk__onnx *o, const char *name, int64_t value, int times);
void lk__onnx_end(lk__onnx *o, size_t begin);

/* A node without attributes. */
void lk__onnx_node(lk__onnx *o, const char *op, const char *name, const char *const *inputs, const char *output);

/* Constants: in the graph, or, of lk__onnx_floats, beside it. */
void lk__onnx_floats(lk__onnx *o, const char *name, lk_shape shape, const float *values);
void lk__onnx_scalar(lk__onnx *o, const char *name, float value);
void lk__onnx_integers(lk__onnx *o, const char *name, const int64_t *values, int n);

#endif
