/* Writes an ONNX model (onnx.proto) with one graph. Nodes and constants are added one by one. A failed allocation is
 * remembered in `model`, as lk_bytes does, and a failed write in `status`. */
#pragma once

#include "io/bytes.h"
#include "io/durable.h"
#include "lockstep/tensor.h"

typedef struct lk_onnx {
    lk_bytes model;
    bool external; /* lk__onnx_floats writes to `data`, which is open */
    lk_durable_file data;
    const char *data_name; /* the name of `data` in the model */
    lk_status status;      /* of writing to `data` */
} lk_onnx;

/* Everything between open and close belongs to the graph, of opset 13. close takes what open returned. */
size_t lk__onnx_open(lk_onnx *o);
void lk__onnx_close(lk_onnx *o, size_t begin);

/* Adds an entry to the model's metadata. Call it after close. */
void lk__onnx_metadata(lk_onnx *o, const char *key, const char *value);

/* Declares an input or output f32 [N, dims]; N is free. */
void lk__onnx_input(lk_onnx *o, const char *name, const int64_t *dims, int n);
void lk__onnx_output(lk_onnx *o, const char *name, const int64_t *dims, int n);

/* Begins a node; `inputs` ends with NULL. Then add attributes, and call lk__onnx_end with what this returned. */
size_t lk__onnx_begin(lk_onnx *o, const char *op, const char *name, const char *const *inputs, const char *output);
void lk__onnx_int(lk_onnx *o, const char *name, int64_t value);
void lk__onnx_float(lk_onnx *o, const char *name, float value);
void lk__onnx_ints(lk_onnx *o, const char *name, const int64_t *values, int n);
void lk__onnx_end(lk_onnx *o, size_t begin);

/* Adds a node without attributes. */
void lk__onnx_node(lk_onnx *o, const char *op, const char *name, const char *const *inputs, const char *output);

/* Adds a constant. Those of lk__onnx_floats go to `data` if the model is external, all others into the graph. */
void lk__onnx_floats(lk_onnx *o, const char *name, lk_shape shape, const float *values);
void lk__onnx_scalar(lk_onnx *o, const char *name, float value);
void lk__onnx_integers(lk_onnx *o, const char *name, const int64_t *values, int n);
