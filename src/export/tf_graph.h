/* Writes TensorFlow's saved_model.pb with one graph for serving. Nodes are added one by one. A failed allocation is
 * remembered in `bytes`, as lk_bytes does. */
#pragma once

#include "io/bytes.h"
#include "lockstep/tensor.h"

typedef struct lk_tf_graph {
    lk_bytes bytes;
    size_t graph, node; /* offsets at which the graph and the current node begin */
} lk_tf_graph;

/* Numbers from types.proto. */
typedef enum lk_tf_dtype { LK__TF_FLOAT = 1, LK__TF_INT32 = 3 } lk_tf_dtype;

/* An input or output that the signature names. */
typedef struct lk_tf_value {
    const char *name;
    lk_shape shape; /* -1: free */
} lk_tf_value;

/* Begins the graph. */
size_t lk__tf_open(lk_tf_graph *graph);

/* Ends the graph and adds its signature; all values are f32. begin: what lk__tf_open returned. */
void lk__tf_close(lk_tf_graph *graph, size_t begin, const char *signature, const lk_tf_value *input,
                  const lk_tf_value *outputs, int n);

/* Begins a node; `inputs` ends with NULL. Then add attributes, and call lk__tf_end. */
void lk__tf_begin(lk_tf_graph *graph, const char *op, const char *name, const char *const *inputs);
void lk__tf_type(lk_tf_graph *graph, const char *attribute, lk_tf_dtype value);
void lk__tf_text(lk_tf_graph *graph, const char *attribute, const char *value);
void lk__tf_int(lk_tf_graph *graph, const char *attribute, int64_t value);
void lk__tf_flag(lk_tf_graph *graph, const char *attribute, bool value);
void lk__tf_float(lk_tf_graph *graph, const char *attribute, float value);
/* [1, size[0], size[1], 1]. size: along H and W. */
void lk__tf_window(lk_tf_graph *graph, const char *attribute, const int64_t size[2]);
void lk__tf_end(lk_tf_graph *graph);

/* Adds a whole node. A shape without axes is a scalar. */
void lk__tf_input(lk_tf_graph *graph, const char *name, lk_shape shape);
void lk__tf_floats(lk_tf_graph *graph, const char *name, lk_shape shape, const float *values);
void lk__tf_integers(lk_tf_graph *graph, const char *name, lk_shape shape, const int32_t *values);
