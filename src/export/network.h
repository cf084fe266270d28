/* A network that is to be exported: its checked nodes and its values. Each format is a file that defines one
 * lk_export_writer. */
#pragma once

#include "lockstep/export.h"

/* The most bytes of a layer's path. */
enum { LK__EXPORT_MAX_PATH = 512 };

typedef struct lk_network {
    const lk_model *model;
    lk_model_input input;
    lk_graph graph;
    const float *const *variables;
    /* y = (x - mean) / divisor for each channel, as training computes it; NULL: images are used as they are. */
    float *mean, *divisor;
    const char *const *class_names; /* NULL: none */
    int64_t elements;               /* in all variables together */
} lk_network;

typedef struct lk_export_writer {
    const char *name;
    bool variables_only; /* needs no nodes and no checks of values */
    lk_status (*write)(const lk_network *network, const char *path, const lk_export_opts *opts);
} lk_export_writer;

extern const lk_export_writer lk__export_safetensors, lk__export_onnx, lk__export_savedmodel, lk__export_c;

/* Returns the number of elements of a variable. */
int64_t lk__network_count(const lk_network *network, int variable);

/* Returns the number of elements of a node's output for one sample. */
int64_t lk__node_count(const lk_node *node);

/* Expresses a batch-norm node as y = scale x + shift for each channel. scale, shift: [channels]. */
void lk__node_scale_shift(const lk_network *network, const lk_node *node, float *scale, float *shift);
