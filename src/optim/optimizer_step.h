/* Steps of an optimizer. */
#pragma once

#include "ops/update.h"
#include "optim/optimizer.h"

/* lk_optimizer_step that also treats a loss that is not finite like a gradient that is not. loss: f32 scalar on the
 * parameters' device, or NULL. */
lk_status lk__optimizer_step(lk_call_site at, lk_optimizer *optimizer, lk_tensor *const *gradients, lk_tensor *loss,
                             double rate);

/* Checks what lk__optimizer_step would be given, and changes nothing. Errors: those of lk_optimizer_step. */
lk_status lk__optimizer_check_step(lk_optimizer *optimizer, lk_tensor *const *gradients, double rate);

/* A step that is recorded in a program and replayed:
 *   lk__optimizer_prepare_recording(o);                  … once, before anything is recorded
 *   lk__optimizer_record(at, o, gradients, loss, rates); … in the recorded function
 *   lk__optimizer_rates(o, rate, values);                … for each replay: the values that `rates` must hold
 *   lk__optimizer_replayed(o);                           … once the replay is pushed
 * rates: f64 [lk__optimizer_rate_count(o)] on the parameters' device. Errors: those of lk_optimizer_step. */
enum { LK_OPTIMIZER_RATES = 2 * LK_UPDATE_RATES }; /* the most rates there are: the update's, then the average's */
int lk__optimizer_rate_count(const lk_optimizer *optimizer);
lk_status lk__optimizer_prepare_recording(lk_optimizer *optimizer);
lk_status lk__optimizer_record(lk_call_site at, lk_optimizer *optimizer, lk_tensor *const *gradients, lk_tensor *loss,
                               lk_tensor *rates);
lk_status lk__optimizer_rates(lk_optimizer *optimizer, double rate, double values[LK_OPTIMIZER_RATES]);
void lk__optimizer_replayed(lk_optimizer *optimizer);

/* Sets the number of steps taken, for an optimizer that is restored. Errors: LK_ERR_UNSUPPORTED (2^28 steps with a beta
 * so near 1 that they would have to be counted one by one). */
lk_status lk__optimizer_resume(lk_optimizer *optimizer, int64_t steps);
