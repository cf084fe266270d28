/* Writes saved_model.pb of TensorFlow: one graph for serving, whose nodes are added one by one. Failed allocations are
 * kept in `bytes`, as lk__bytes does. */
#ifndef LK_EXPORT_TF_GRAPH_H
#define LK_EXPORT_TF_GRAPH_H

#include "io/bytes.h"
#include "lockstep/tensor.h"

typedef struct lk__tf_graph {
    lk__bytes bytes;
    size_t graph, node; /* where what is being written begins */
} lk__tf_graph;

/* of types.proto */
typedef enum lk__tf_dtype { LK__TF_FLOAT = 1, LK__TF_INT32 = 3 } lk__tf_dtype;

/* The graph's values that a signature names. */
typedef struct lk__tf_value {
    const char *name;
    lk_shape shape; /* -1: free */
} lk__tf_value;

size_t lk__tf_open(lk__tf_graph *graph);

/* Ends the graph and gives it the signature serving_default, f32 all of it; `begin` is what lk__tf_open gave. */
void lk__tf_close(lk__tf_graph *graph, size_t begin, const lk__tf_value *input, const lk__tf_value *outputs, int n);

/* A node; inputs: up to the first NULL. Attributes follow, then lk__tf_end. */
void lk__tf_begin(lk__tf_graph *graph, const char *op, const char *name, const char *const *inputs);
void lk__tf_type(lk__tf_graph *graph, const char *attribute, lk__tf_dtype value);
void lk__tf_text(lk__tf_graph *graph, const char *attribute, const char *value);
void lk__tf_float(lk__tf_graph *graph, const char *attribute, float value);
void lk__tf_window(lk__tf_graph *graph, const char *attribute, int64_t size); /* [1, size, size, 1] */
void lk__tf_end(lk__tf_graph *graph);

/* Whole nodes. A shape of no axes: a scalar. */
void lk__tf_input(lk__tf_graph *graph, const char *name, lk_shape shape);
void lk__tf_floats(lk__tf_graph *graph, const char *name, lk_shape shape, const float *values);
void lk__tf_integers(lk__tf_graph *graph, const char *name, lk_shape shape, const int32_t *values);

#endif
