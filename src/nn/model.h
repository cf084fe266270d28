/* What a file that defines a model provides: one lk_model_table. */
#ifndef LK_NN_MODEL_H
#define LK_NN_MODEL_H

#include "lockstep/nn.h"

enum { LK_MODEL_MAX_PARAMETERS = 256 };

typedef struct lk_parameter_spec {
    const char *name; /* static */
    lk_shape shape;
    double std; /* starts as N(0, std); 0: zeros */
} lk_parameter_spec;

typedef struct lk_model_table {
    const char *name;
    lk_recipe recipe;
    int parameter_count;
    /* Checks the input and lays out the parameters. */
    lk_status (*layout)(lk_model_input input, lk_parameter_spec *parameters);
    lk_tensor *(*forward)(lk_tensor *const *parameters, lk_tensor *x);
} lk_model_table;

struct lk_model {
    const lk_model_table *table;
    lk_model_input input;
    lk_parameter_spec parameters[LK_MODEL_MAX_PARAMETERS];
};

extern const lk_model_table lk__model_lenet;

#endif
