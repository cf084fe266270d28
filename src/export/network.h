/* What the writers share: the network as a list of nodes, checked, with its values at hand. A format is a file that
 * exports one lk__export_writer. */
#ifndef LK_EXPORT_NETWORK_H
#define LK_EXPORT_NETWORK_H

#include "lockstep/export.h"

/* Bytes of a layer's path. */
enum { LK__EXPORT_MAX_PATH = 512 };

typedef struct lk__network {
    const lk_model *model;
    lk_model_input input;
    lk_graph graph;
    const float *const *variables;
    /* y = (x - mean) / divisor for each channel, as training computes it; NULL: images are taken as they are. */
    float *mean, *divisor;
    const char *const *class_names;
    int64_t elements; /* of all variables */
} lk__network;

typedef struct lk__export_writer {
    const char *name;
    bool variables_only; /* neither nodes nor values are looked at */
    lk_status (*write)(const lk__network *network, const char *path, const lk_export_opts *opts);
} lk__export_writer;

extern const lk__export_writer lk__export_safetensors, lk__export_onnx, lk__export_savedmodel, lk__export_c;

int64_t lk__network_count(const lk__network *network, int variable); /* elements */

/* Elements of one sample of a node's output. */
int64_t lk__node_count(const lk_node *node);

/* A batch-norm node as y = scale x + shift, for each channel; scale and shift: [channels]. */
void lk__node_scale_shift(const lk__network *network, const lk_node *node, float *scale, float *shift);

#endif
