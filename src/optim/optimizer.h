/* What the files of optimisers share. */
#ifndef LK_OPTIM_OPTIMIZER_H
#define LK_OPTIM_OPTIMIZER_H

#include "base/status.h"
#include "lockstep/optim.h"

enum { LK_OPTIMIZER_SLOTS = 2 };

struct lk_optimizer {
    lk_optimizer_opts opts; /* defaults filled in */
    lk_tensor *flat;
    lk_tensor **parameters; /* [n] */
    int n;

    /* The gradients in the layout of `flat`, and a view for each parameter. zeroed[i]: slices[i] holds zeros. */
    lk_tensor *gradients;
    lk_tensor **slices;
    bool *zeroed;
    lk_tensor *zero; /* f32 scalar */

    lk_tensor *slots[LK_OPTIMIZER_SLOTS]; /* in the layout of `flat`; NULL: not needed */
    lk_tensor *offsets;                   /* i64 [n + 1]: where parameters begin in `flat`, and its end */
    lk_tensor *adapted;                   /* f32 [n], of LARS: 1 where a parameter has two axes or more, else 0 */

    int64_t steps;
    double power1, power2;  /* beta1 and beta2 to the power of `steps` */
    lk_tensor *skip, *norm; /* of the last step */
    bool is_recorded;       /* skip and norm stay where they are: recorded steps write them */
    bool has_gradients;     /* of a step that it has taken itself */
};

/* Fills in the defaults. Errors: LK_ERR_ARGUMENT. */
lk_status lk__optimizer_check(lk_optimizer_opts *opts);

/* lk_optimizer_step, where a loss that is not finite counts as a gradient that is not. loss: f32 scalar on the
 * parameters' device, or NULL. */
lk_status lk__optimizer_step(lk_place at, lk_optimizer *optimizer, lk_tensor *const *gradients, lk_tensor *loss,
                             double rate);

/* A step that is recorded in a program, and replayed:
 *
 *     lk__optimizer_prepare_recording(o);                  … once, before anything is recorded
 *     lk__optimizer_record(at, o, gradients, loss, rates); … within the recorded function
 *     lk__optimizer_rates(o, rate, values);                … for each replay: what `rates` is to hold
 *     lk__optimizer_replayed(o);                           … once it is pushed
 *
 * rates: f64 [LK_UPDATE_RATES] on the parameters' device. Errors: those of lk_optimizer_step. */
lk_status lk__optimizer_prepare_recording(lk_optimizer *optimizer);
lk_status lk__optimizer_record(lk_place at, lk_optimizer *optimizer, lk_tensor *const *gradients, lk_tensor *loss,
                               lk_tensor *rates);
lk_status lk__optimizer_rates(lk_optimizer *optimizer, double rate, double values[]);
void lk__optimizer_replayed(lk_optimizer *optimizer);

/* Has it taken so many steps, as one that is restored. */
void lk__optimizer_resume(lk_optimizer *optimizer, int64_t steps);

/* The names of the slots that `opts` needs, NULL for the others. */
void lk__optimizer_slots(const lk_optimizer_opts *opts, const char *names[LK_OPTIMIZER_SLOTS]);

#endif
