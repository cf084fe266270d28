/* An optimizer's data, shared by the files of this folder. */
#pragma once

#include "base/status.h"
#include "lockstep/optim.h"

enum { LK_OPTIMIZER_SLOTS = 2 };

struct lk_optimizer {
    lk_optimizer_opts opts; /* with defaults filled in */
    lk_tensor *flat;
    lk_tensor **parameters; /* [n] */
    int n;

    /* The gradients in the layout of `flat`, and a view for each parameter. zeroed[i]: slices[i] holds zeros. */
    lk_tensor *gradients;
    lk_tensor **slices;
    bool *zeroed;
    lk_tensor *zero; /* f32 scalar */

    lk_tensor *slots[LK_OPTIMIZER_SLOTS]; /* the optimizer's state in the layout of `flat`; NULL: not needed */
    lk_tensor *offsets;                   /* i64 [n + 1]: where each parameter begins in `flat`, and the end */
    lk_tensor *adapted;                   /* f32 [n], for LARS: 1 if the parameter has two axes or more, else 0 */

    int64_t steps;
    double power1, power2;  /* beta1 and beta2 to the power of `steps` */
    lk_tensor *skip, *norm; /* of the last step */
    bool is_recorded;       /* skip and norm must not be replaced: recorded steps write to them */
    bool has_gradients;     /* from a step that was not recorded */
};
