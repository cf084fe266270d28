/* An optimizer's data, shared by the files of this folder. */
#pragma once

#include "base/status.h"
#include "lockstep/optim.h"

enum { LK_OPTIMIZER_SLOTS = 3 };

/* The name of the slot that averages the parameters. */
#define LK_AVERAGE "average"

struct lk_optimizer {
    lk_optimizer_opts opts; /* with defaults filled in */
    lk_tensor *packed;
    lk_tensor **parameters; /* [n] */
    int n;

    /* The gradients in the layout of `packed`, and a view for each parameter. zeroed[i]: slices[i] holds zeros. */
    lk_tensor *gradients;
    lk_tensor **slices;
    bool *zeroed;
    lk_tensor *zero; /* f32 scalar */

    /* The slice that steps update: all of `packed`, or the part of it from element own_begin on. `own` may be another
     * tensor over the same memory. */
    lk_tensor *own, *own_gradients;
    lk_tensor *own_offsets; /* `offsets`, cut to the slice and counted from its begin */
    int64_t own_begin;

    lk_tensor *slots[LK_OPTIMIZER_SLOTS]; /* the state of the slice, in its layout; NULL: not needed */
    lk_tensor *average;                   /* the slot LK_AVERAGE; NULL: there is none */
    lk_tensor *offsets;                   /* i64 [n + 1]: where each parameter begins in `packed`, and the end */
    lk_tensor *adapted;                   /* f32 [n], for LARS: 1 if the parameter has two axes or more, else 0 */

    int64_t steps;
    double power1, power2;  /* beta1 and beta2 to the power of `steps` */
    lk_tensor *skip, *norm; /* of the last step */
    bool is_recorded;       /* skip and norm must not be replaced: recorded steps write to them */
    bool has_gradients;     /* from a step that was not recorded */
};

/* lk_optimizer_new for a device that updates only the slice `own`, which begins at element `begin` of `packed`, and has
 * only its state. Norms are still those of all gradients and parameters. */
lk_optimizer *lk__optimizer_new_slice(const lk_optimizer_opts *opts, lk_tensor *packed, lk_tensor *const *parameters,
                                      int n, lk_tensor *own, int64_t begin);

/* Exchanges the slice of the parameters and its average. Asynchronous. */
lk_status lk__optimizer_swap_average(lk_optimizer *optimizer);
