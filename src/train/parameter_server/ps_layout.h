/* Distributes a model's variables over the servers: parameters by placement (train/parameter_server/placement.h), and
 * all of batch-norm's running statistics to one server. */
#pragma once

#include "train/parameter_server/placement.h"
#include "train/parameter_server/ps_protocol.h"
#include "lockstep/nn.h"

typedef struct lk_ps_running {
    int mean, variance; /* variables of the model */
} lk_ps_running;

typedef struct lk_ps_layout {
    const lk_model *model;
    lk_placement placement;
    int n_layers;           /* batch-norm layers */
    lk_ps_layer *layers;    /* [n_layers] */
    lk_ps_running *running; /* [n_layers] */
    int64_t statistics;     /* 2 per channel: f32 elements of running statistics, and f64 elements of their sums */
} lk_ps_layout;

/* The model must outlive the layout. slots: values of the optimizer's state that are sent for each parameter; 0: none.
 * Errors: LK_ERR_ARGUMENT (more servers than there are variables to place, or too few for their messages),
 * LK_ERR_MEMORY. */
lk_status lk__ps_layout_new(const lk_model *model, int servers, int slots, lk_ps_layout *layout);
void lk__ps_layout_free(lk_ps_layout *layout);

/* Elements of running statistics on a server: all, or 0. */
int64_t lk__ps_layout_statistics(const lk_ps_layout *layout, int server);

/* The first variable that is split over servers; -1: none. */
int lk__ps_layout_split(const lk_ps_layout *layout);

/* Copies a server's part, packed[placement.elements[server]] and running[statistics], from a model's variables and
 * back. Writing goes to each of n_sets sets of variables. scratch: as many elements as the largest variable. */
lk_status lk__ps_layout_read(const lk_ps_layout *layout, lk_tensor *const *variables, int server, float *packed,
                             float *running, float *scratch);
lk_status lk__ps_layout_write(const lk_ps_layout *layout, lk_tensor *const *const *sets, int n_sets,
                              const float *const *packed, const float *running, float *scratch);

/* The same without running statistics, for any tensors that correspond to parameters, such as an optimizer's state. */
lk_status lk__ps_layout_read_parameters(const lk_ps_layout *layout, lk_tensor *const *parameters, int server,
                                        float *packed, float *scratch);
lk_status lk__ps_layout_write_parameters(const lk_ps_layout *layout, lk_tensor *const *const *sets, int n_sets,
                                         const float *const *packed, float *scratch);

/* Distributes gradients to the servers' parts, and reads the sums of batch-norm. An absent gradient gives zeros. */
lk_status lk__ps_layout_gradients(const lk_ps_layout *layout, lk_tensor *const *values, float *const *packed,
                                  double *sums, float *scratch);

/* Elements of the largest variable. */
int64_t lk__ps_layout_largest(const lk_ps_layout *layout);
