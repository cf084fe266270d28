/* How a model's variables lie on the servers: its parameters by placement (dist/placement.h), and batch-norm's running
 * statistics, all on one of them. */
#ifndef LK_TRAIN_PS_LAYOUT_H
#define LK_TRAIN_PS_LAYOUT_H

#include "dist/placement.h"
#include "lockstep/nn.h"
#include "train/ps_protocol.h"

typedef struct ps_running {
    int mean, variance; /* variables of the model */
} ps_running;

typedef struct ps_layout {
    const lk_model *model;
    lk_placement placement;
    int n_layers;
    ps_layer *layers; /* [n_layers], and running: of batch-norm */
    ps_running *running;
    int64_t statistics; /* f32 elements of running statistics, and f64 elements of their sums: 2 a channel */
} ps_layout;

/* Keeps the model. Errors: LK_ERR_ARGUMENT (more servers than there is something for), LK_ERR_MEMORY. */
lk_status lk__ps_layout_new(const lk_model *model, int servers, ps_layout *layout);
void lk__ps_layout_free(ps_layout *layout);

/* Elements of running statistics that a server holds: all or 0. */
int64_t lk__ps_layout_statistics(const ps_layout *layout, int server);

/* The first variable that is split; -1: none is. */
int lk__ps_layout_split(const ps_layout *layout);

/* What a server keeps: flat[placement.elements[server]], running[statistics], from a model's variables and back.
 * Writing goes to all of n_sets sets of variables; `scratch` has room for the largest variable. */
lk_status lk__ps_layout_read(const ps_layout *layout, lk_tensor *const *variables, int server, float *flat,
                             float *running, float *scratch);
lk_status lk__ps_layout_write(const ps_layout *layout, lk_tensor *const *const *sets, int n_sets,
                              const float *const *flats, const float *running, float *scratch);

/* The same without running statistics: of what there is for each parameter, as an optimiser's state. */
lk_status lk__ps_layout_read_parameters(const ps_layout *layout, lk_tensor *const *parameters, int server, float *flat,
                                        float *scratch);
lk_status lk__ps_layout_write_parameters(const ps_layout *layout, lk_tensor *const *const *sets, int n_sets,
                                         const float *const *flats, float *scratch);

/* A server's part of gradients and of batch-norm's sums; an absent gradient is zeros. */
lk_status lk__ps_layout_gradients(const ps_layout *layout, lk_tensor *const *values, float *const *flats, double *sums,
                                  float *scratch);

/* Elements of the largest variable. */
int64_t lk__ps_layout_largest(const ps_layout *layout);

#endif
