/* Models inside the library. */
#ifndef LK_NN_MODEL_H
#define LK_NN_MODEL_H

#include "nn/layer.h"

typedef struct lk_variable_spec {
    char *name;
    lk_layer *layer;
    lk_shape shape;
    lk_init init; /* not LK_INIT_DEFAULT */
    int64_t fan_in, fan_out;
    bool buffer;
} lk_variable_spec;

struct lk_model {
    char *name;
    const char *file; /* `name` where it is a file's; NULL: it is not */
    char *text;       /* the file's, as it was read; NULL: it is no file's */
    bool reference;   /* `name` is a reference model's */
    lk_model_input input;
    lk_layer *root;
    lk_variable_spec *variables; /* parameters, then buffers, once it is built */
    int n_variables, variables_capacity, n_parameters;
    int64_t n_elements;       /* of all variables */
    lk_layer_list layers;     /* every one, parents first */
    lk_layer_list rows;       /* those that do something, in the order of the forward pass */
    lk_layer_list statistics; /* batch-norm layers */
    lk_layer *source;         /* while building: whose output comes next; NULL: the images */
};

/* A file of models/ provides one of these, and model.c has a row for it. */
typedef struct lk_reference_model {
    const char *name, *about;
    lk_layer *(*make)(lk_model_input input);
} lk_reference_model;

extern const lk_reference_model lk__model_lenet, lk__model_keras_cnn, lk__model_resnet18, lk__model_wrn_16_10;

/* The root layer that a model file describes, or NULL with the error. given: what the file says, where it was read
 * already; NULL: it is read. *text: what it says, to be freed, NULL on failure. */
lk_layer *lk__model_file_read(const char *path, const char *given, lk_model_input input, char **text);

/* lk_model_new of a file that was read already. */
lk_model *lk__model_from_text(const char *path, const char *text, lk_model_input input);

lk_status lk__model_check_input(const char *name, lk_model_input input);

/* A model whose layers have names and no shapes yet; takes `root`. file: `name` is what its messages name, with the
 * layers' lines. */
lk_model *lk__model_of(const char *name, bool file, lk_layer *root, lk_model_input input);

/* Builds it for its input: takes `model`, and gives it back or, on failure and for NULL, NULL. */
lk_model *lk__model_finish(lk_model *model);

/* "prefix.name", or "name" where the prefix is empty, with `number` after it from 2 on; to be freed. */
char *lk__join_path(const char *prefix, const char *name, int number);

/* Gives every layer its path. Errors: LK_ERR_ARGUMENT or, of a file, LK_ERR_FORMAT (a name used twice). */
lk_status lk__model_name_layers(lk_model *model);

/* A variable as it starts; new tensor. */
lk_tensor *lk__initial_value(const lk_variable_spec *spec, lk_device *device, uint64_t seed);

/* LK_OK if `init` makes sense. `kind`, `what`: "conv2d", "weight". */
lk_status lk__init_check(const char *kind, const char *what, lk_init init);

/* `init`, or `kind` where it is the default. */
lk_init lk__init_or(lk_init init, lk_init_kind kind);

/* Which variables are a batch-norm layer's running mean and variance. Gives their momentum. */
double lk__batch_norm_running(const lk_layer *layer, int *mean, int *variance);

/* lk_batch_norm_update of a batch-norm layer's running statistics. momentum 0: the layer's own. */
lk_status lk__batch_norm_update(const lk_layer *layer, lk_tensor *const *variables, lk_tensor *sums, int64_t samples,
                                double momentum, lk_tensor *skip);

#endif
