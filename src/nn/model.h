/* Models inside the library. */
#pragma once

#include "nn/layer.h"

typedef struct lk_variable_spec {
    char *name;
    lk_layer *layer;
    lk_shape shape;
    lk_init init; /* never LK_INIT_DEFAULT */
    int64_t fan_in, fan_out;
    bool buffer, frozen;
    int number; /* in the order in which layers asked for variables */
} lk_variable_spec;

struct lk_model {
    char *name;
    const char *file; /* `name`, if it is a file's; else NULL */
    char *text;     /* of the model file as it was read; of a network built in C as a model file would describe it, NULL
                     * if none could; NULL: a reference model's */
    bool reference; /* true: `name` is a reference model's */
    lk_model_input input;
    lk_layer *root;
    lk_variable_spec *variables;   /* once built: trainable parameters, frozen ones, buffers */
    int n_variables, n_parameters; /* n_parameters: trainable ones */
    int64_t variables_capacity;
    int64_t n_elements;       /* of all variables */
    lk_layer_list layers;     /* all, parents first */
    lk_layer_list rows;       /* those that compute something, in the order of the forward pass */
    lk_layer_list statistics; /* batch-norm layers that take statistics in training */
    lk_layer *source;         /* while building: the layer whose output the next one gets; NULL: the images */
};

/* Each file of models/ defines one of these, and model.c lists it. */
typedef struct lk_reference_model {
    const char *name, *about;
    lk_layer *(*make)(lk_model_input input);
} lk_reference_model;

extern const lk_reference_model lk__model_lenet, lk__model_keras_cnn, lk__model_resnet18, lk__model_wrn_16_10,
    lk__model_fast_cnn;

/* Like lk_model_new, for a model file that was read already. */
lk_model *lk__model_from_text(const char *path, const char *text, lk_model_input input);
