/* Layers inside the library: their data, and what the files of layers/ need in addition to the public functions. */
#pragma once

#include "lockstep/nn.h"

struct lk_model_text; /* nn/model_text.h */

struct lk_layer {
    const lk_layer_table *table;
    void *config;
    char *name;                                                      /* NULL: unnamed */
    void (*write)(const lk_layer *layer, struct lk_model_text *out); /* see lk__layer_writes */
    lk_layer **children;
    int n_children;
    int line;    /* of the model file that describes it; 0: none */
    bool frozen; /* true: training leaves its parameters, and those of layers in it, as they are */
    bool taken;  /* true: it has a parent, or is a model's root */

    /* Set when the model's layers are named. */
    char *path;            /* of an unnamed sequential: its scope's path */
    int number;            /* with which an unnamed layer's path ends; 1: none is written */
    const lk_layer *scope; /* the nearest layer above whose path begins this one's; NULL: none */

    /* Set by the build. */
    bool built;
    int *variables; /* positions in the model's variables, in the order of lk_layer_call_variable */
    int n_variables;
    int statistics;  /* number among the layers with statistics in training; -1: none */
    int64_t samples; /* of statistics: elements per channel and sample */
    lk_shape output; /* of one sample */
    int64_t parameters;
    double flops;
    int needs;        /* enum lk_layer_needs */
    int64_t bytes;    /* kept for backward in addition to inputs and outputs */
    bool output_kept; /* true: some layer's backward reads the output */
};

struct lk_layer_builder {
    lk_model *model;
    lk_layer *layer;
};

struct lk_layer_call {
    const lk_model *model;
    const lk_layer *layer;
    const lk_forward_opts *opts;
    int first, n;                       /* shards [first, first + n) of the forward pass */
    lk_tensor *const *const *variables; /* variables of shard s of the call: [first + s] */
};

/* A growing list; it does not own its layers. */
typedef struct lk_layer_list {
    lk_layer **layers;
    int n;
    int64_t capacity;
} lk_layer_list;

lk_status lk__layer_list_add(lk_layer_list *list, lk_layer *layer);

/* Returns the layer, or NULL for NULL. write: puts the layer's line, without its name, into a model file. Without it a
 * network with the layer has no such file. */
lk_layer *lk__layer_writes(lk_layer *layer, void (*write)(const lk_layer *layer, struct lk_model_text *out));

/* For layers without settings: their line is their kind. */
lk_layer *lk__layer_writes_kind(lk_layer *layer);

extern const lk_layer_table lk__layer_sequential_table, lk__layer_add_table, lk__layer_multiply_table,
    lk__layer_concat_table;

/* Returns whether the layer joins two branches of layers. */
bool lk__layer_is_join(const lk_layer *layer);

/* Returns whether the layer is a sequential. A sequential computes nothing, so visitors and summaries skip it. */
bool lk__layer_is_container(const lk_layer *layer);

/* Returns the number of elements of one sample. */
int64_t lk__layer_count(lk_shape shape);

/* Checks an argument of a constructor. Errors: LK_ERR_ARGUMENT, as in "conv2d: kernel is 0; it must be 1 to 4096". */
lk_status lk__layer_range(const char *kind, const char *what, int64_t value, int64_t low, int64_t high);

/* The same of a real number. */
lk_status lk__layer_real_range(const char *kind, const char *what, double value, double low, double high);

/* Returns whether the name consists of letters, digits, '_' and '-', at least one. */
bool lk__layer_name_ok(const char *name);

/* Limits of networks, far beyond what can be trained: they make a mistyped size an error, not a request for all
 * memory. */
#define LK_LAYER_MAX_SIZE (1 << 24) /* channels, units and other single sizes of a shape */
#define LK_LAYER_MAX_KERNEL 4096
#define LK_LAYER_LEAST_REAL 1e-37 /* epsilons and initial values stay finite in f32, and epsilons above 0 */
#define LK_LAYER_MAX_REAL 1e37
#define LK_LAYER_MAX_DEPTH 96           /* one block of a model file can be two layers */
#define LK_MODEL_MAX_ELEMENTS INT32_MAX /* of a sample's output, and of all variables together */
