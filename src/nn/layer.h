/* Layers inside the library: what one holds, and what the files of layers/ need beyond the public functions. */
#ifndef LK_NN_LAYER_H
#define LK_NN_LAYER_H

#include "lockstep/nn.h"

struct lk_layer {
    const lk_layer_table *table;
    void *config;
    char *name; /* NULL: not named */
    lk_layer **children;
    int n_children;
    int line;   /* of the model file that says it; 0: none */
    bool taken; /* it has a parent, or is a model's root */

    /* Set when the model's layers are named. */
    char *path;            /* of a sequential without a name: the scope's */
    const lk_layer *scope; /* the nearest layer above whose path this one's begins with; NULL: none */

    /* Set by the build. */
    bool built;
    int *variables; /* of the model, in the order of lk_layer_call_variable */
    int n_variables;
    int statistics;  /* which batch-norm layer this is; -1: none */
    int64_t samples; /* of statistics: elements a channel and sample */
    lk_shape output; /* of one sample */
    int64_t parameters;
    double flops;
    int needs;        /* enum lk_layer_needs */
    int64_t bytes;    /* kept for backward beside inputs and outputs */
    bool output_kept; /* somebody's backward reads it */
};

struct lk_layer_builder {
    lk_model *model;
    lk_layer *layer;
};

struct lk_layer_call {
    const lk_model *model;
    const lk_layer *layer;
    const lk_forward_opts *opts;
    int first, n;                       /* shards [first, first + n) of those of the forward pass */
    lk_tensor *const *const *variables; /* [first + shard] */
};

/* A list that grows; it does not own its layers. */
typedef struct lk_layer_list {
    lk_layer **layers;
    int n, capacity;
} lk_layer_list;

lk_status lk__layer_list_add(lk_layer_list *list, lk_layer *layer);

extern const lk_layer_table lk__layer_sequential_table, lk__layer_add_table;

/* A sequential: it computes nothing itself, so nothing is told of it. */
bool lk__layer_is_container(const lk_layer *layer);

/* While building: gives the layer a place among the model's statistics, over `samples` elements a channel and sample.
 */
lk_status lk__layer_statistics(lk_layer_builder *builder, int64_t samples);

/* Fails unless `in` has `ndim` axes; `want`: "[N, C, H, W]". */
lk_status lk__layer_check_ndim(lk_layer_builder *builder, lk_shape in, int ndim, const char *want);

/* *count = how many places a window has along an axis. Errors: LK_ERR_SHAPE (the kernel does not fit). */
lk_status lk__layer_window(lk_layer_builder *builder, const char *axis, int64_t size, int64_t kernel, int64_t stride,
                           int64_t padding, int64_t *count);

/* Elements of a sample. */
int64_t lk__layer_count(lk_shape shape);

/* x[s] → y[s] for the call's shards; y belongs to the open scope. call->layer is the parent. */
lk_status lk__layer_run(const lk_layer_call *call, const lk_layer *layer, lk_tensor *const *x, lk_tensor **y);

/* lk_layer_call_variable in f32, whatever the pass computes in. */
lk_tensor *lk__layer_master(const lk_layer_call *call, int shard, int variable);

/* What every constructor checks: LK_OK, or LK_ERR_ARGUMENT "conv2d: kernel is 0; it must be 1 to 4096". */
lk_status lk__layer_range(const char *kind, const char *what, int64_t value, int64_t low, int64_t high);

/* Letters, digits, '_' and '-', at least one. */
bool lk__layer_name_ok(const char *name);

/* What a network may have, far beyond what trains: a mistyped size is an error, not a request for all memory. */
#define LK_LAYER_MAX_SIZE (1 << 24) /* channels, units, and what else one number of a shape is */
#define LK_LAYER_MAX_KERNEL 4096
#define LK_LAYER_MAX_DEPTH 96           /* a block of a model file can be two layers */
#define LK_MODEL_MAX_ELEMENTS INT32_MAX /* of a sample's output, and of all variables together */

#endif
