/* Optimizers and learning-rate schedules. Updates use only + - * / and sqrt, each rounded, in a fixed order, so the
 * same gradients give the same bits on every device.
 *
 *     lk_pack(parameters, n, &packed);
 *     lk_optimizer *optimizer = lk_optimizer_new(&(lk_optimizer_opts){.kind = LK_ADAM}, packed, parameters, n);
 *     lk_optimizer_step(optimizer, gradients, 0.001); */
#ifndef LOCKSTEP_OPTIM_H
#define LOCKSTEP_OPTIM_H

#include "lockstep/tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Plain stochastic gradient descent: parameters[i] -= rate * gradients[i], in place, for i in [0, n). A NULL gradient
 * leaves its parameter as it is. Asynchronous. Errors: those of lk_sgd_update. */
LK_API lk_status lk_sgd_at(lk_call_site at, lk_tensor *const *parameters, lk_tensor *const *gradients, int n,
                           double rate);
#define lk_sgd(...) lk_sgd_at(LK_HERE, __VA_ARGS__)

/* Moves tensors[0 … n), f32 on one device, into one block of memory. *packed is a new tensor [elements] over the block;
 * each tensors[i] is replaced by a view of it with the same shape and values. Views lie in order, each at a multiple of
 * 16 elements; gaps hold 0. The caller's reference to the old tensors[i] is released, and the caller owns a reference
 * to the view instead, even if a scope is open. On failure nothing changes. Asynchronous. Errors: LK_ERR_ARGUMENT (no
 * tensors), LK_ERR_DTYPE, LK_ERR_DEVICE, LK_ERR_MEMORY. */
LK_API lk_status lk_pack(lk_tensor **tensors, int n, lk_tensor **packed);

typedef enum lk_optimizer_kind { LK_SGD, LK_ADAM, LK_ADAMW, LK_LARS, LK_OPTIMIZER_COUNT } lk_optimizer_kind;

/* clang-format off */
/* Zeroes are the defaults. Formulas, with g the gradient (after clipping), w the parameter, l the rate, t the update:
 * LK_SGD    g += weight_decay w;  v = momentum v + g;  w -= l v                          (PyTorch's SGD)
 *           with nesterov w -= l (g + momentum v)
 * LK_ADAM   g += weight_decay w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
 *           w -= l (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)                   (Kingma, Ba 2015)
 * LK_ADAMW  the same, with w -= l weight_decay w before it instead of g += …             (Loshchilov, Hutter 2019)
 * LK_LARS   g' = r (g + weight_decay w);  v = momentum v + l g';  w -= v                 (You, Gitman, Ginsburg 2017)
 *           r = trust |w| / (|g| + weight_decay |w|) for each tensor; r is 1 if |w| or |g| is 0, where l r would
 *           not be finite in f32, and for tensors of one dimension, which have no weight decay either */
/* clang-format on */
typedef struct lk_optimizer_opts {
    lk_optimizer_kind kind;
    double momentum;     /* of LK_SGD and LK_LARS */
    bool nesterov;       /* of LK_SGD, with momentum */
    double weight_decay; /* L2; added once, after the sum over shards */
    double beta1, beta2; /* b1 and b2; 0: 0.9 and 0.999 */
    double epsilon;      /* 0: 1e-7, Keras' default, added where Kingma and Ba add it */
    double trust;        /* of LK_LARS; 0: 0.001 */
    /* Gradients are scaled down if the norm of all of them together is larger; 0: no clipping. Gradients that are not
     * all finite are not scaled. */
    double clip_norm;
    /* skip_nonfinite: a step whose gradients are not all finite changes nothing but t. sticky, which must be with
     * skip_nonfinite: steps after it change nothing either. */
    bool skip_nonfinite, sticky;
    /* Decay d, below 1, of an exponential moving average a of the parameters, which is part of the state: after update
     * t = 0, 1, …  a += (1 - min(d, (1 + t) / (10 + t))) (w - a). It begins with the first parameters; the smaller
     * decay of the first updates, as in TensorFlow's ExponentialMovingAverage, forgets them. 0: no average. */
    double average;
} lk_optimizer_opts;

/* An optimizer of one set of parameters on one device, with its state. */
typedef struct lk_optimizer lk_optimizer;

/* packed, parameters[0 … n): from lk_pack; the optimizer keeps references. opts NULL: plain LK_SGD. Options of other
 * kinds must be in their range and are ignored, except nesterov, which is an error. NULL on failure. Errors:
 * LK_ERR_ARGUMENT (an option out of range, parameters that are not packed), LK_ERR_MEMORY. */
LK_API lk_optimizer *lk_optimizer_new(const lk_optimizer_opts *opts, lk_tensor *packed, lk_tensor *const *parameters,
                                      int n);
LK_API void lk_optimizer_release(lk_optimizer *optimizer);

/* "sgd", "adam", "adamw" or "lars", by lk_optimizer_kind; NULL past the end. Static. */
LK_API const char *lk_optimizer_name(int kind);

/* Updates all parameters in place, with one fused operator. gradients: n tensors, f32, with the shapes and the device
 * of the parameters; NULL counts as zeros. Asynchronous. On failure parameters and state are unchanged. Errors:
 * LK_ERR_SHAPE, LK_ERR_DTYPE, LK_ERR_DEVICE (a gradient), LK_ERR_ARGUMENT (the rate, or what Adam makes of it, is not
 * finite in f32; a gradient is a view of lk_optimizer_gradients other than the parameter's own), LK_ERR_MEMORY. */
LK_API lk_status lk_optimizer_step_at(lk_call_site at, lk_optimizer *optimizer, lk_tensor *const *gradients,
                                      double rate);
#define lk_optimizer_step(...) lk_optimizer_step_at(LK_HERE, __VA_ARGS__)

/* The number of updates so far, t above, including skipped ones. */
LK_API int64_t lk_optimizer_steps(const lk_optimizer *optimizer);

/* An f32 scalar on the device: 1 if the last step was skipped, else 0. Borrowed; every step makes a new tensor, so one
 * that the caller retains keeps its value. NULL without skip_nonfinite, and before the first step. */
LK_API lk_tensor *lk_optimizer_skipped(const lk_optimizer *optimizer);

/* The norm of all gradients of the last step, before clipping: an f64 scalar on the device. Borrowed; every step makes
 * a new tensor. NULL before the first step, and unless clipping, skip_nonfinite or LK_LARS need it. */
LK_API lk_tensor *lk_optimizer_gradient_norm(const lk_optimizer *optimizer);

/* The gradients of the last step, one per parameter, zeros for those that were NULL. Borrowed until the next step. NULL
 * before the first step, and before the first step after a checkpoint was restored. */
LK_API lk_tensor *const *lk_optimizer_gradients(const lk_optimizer *optimizer);

/* State tensor `index`, f32 in the layout of `packed`, or of the slice that this device updates if replicas share the
 * state (lk_strategy_set_sharded); *name (NULL: not wanted) is "momentum", "m", "v" or "average". Borrowed.
 * NULL past the end. */
LK_API lk_tensor *lk_optimizer_state(const lk_optimizer *optimizer, int index, const char **name);

/* --- learning rate ------------------------------------------------------------------------------------------------ */

typedef enum lk_schedule_kind { LK_SCHEDULE_CONSTANT, LK_SCHEDULE_STEP, LK_SCHEDULE_COSINE } lk_schedule_kind;

enum { LK_SCHEDULE_MAX_STEPS = 32 };

typedef struct lk_schedule {
    lk_schedule_kind kind;
    double base;               /* learning rate */
    double minimum;            /* of LK_SCHEDULE_COSINE: rate at the end */
    double warmup_epochs;      /* epochs, or a fraction, in which a ramp multiplies the schedule; 0: none */
    double warmup_start;       /* value at which the ramp to 1 begins: 0 … 1 */
    int64_t updates_per_epoch; /* for the ramp; 0: it depends on the epoch alone, see lk_schedule_rate */
    double epochs;             /* of LK_SCHEDULE_COSINE: length of the run */
    int n_steps; /* of LK_SCHEDULE_STEP: the rate is base * factor[i] from epoch at[i] on, counted from 0 */
    double at[LK_SCHEDULE_MAX_STEPS], factor[LK_SCHEDULE_MAX_STEPS];
} lk_schedule;

/* The learning rate of an update. epoch: (updates so far) / (updates per epoch), a fraction; without accumulation every
 * step is an update. constant: base. step: base times the last factor whose epoch has come. cosine: minimum + (base -
 * minimum) (1 + cos(pi epoch / epochs)) / 2 (Loshchilov, Hutter 2017).
 *
 * Warm-up lasts n = warmup_epochs * updates_per_epoch updates (Goyal et al. 2017). It multiplies the rate of update i =
 * 0 … ceil(n) - 1 by warmup_start + (1 - warmup_start) min(1, (i + 1) / n), so that the first update is above
 * warmup_start and the last one has the full rate. With updates_per_epoch 0, epoch / warmup_epochs replaces (i + 1) /
 * n. Warm-up delays nothing: steps come in their epochs, and a cosine takes the whole run. */
LK_API double lk_schedule_rate(const lk_schedule *schedule, double epoch);

/* Reads "15:0.1,25:0.01,35:0.001", with ascending epochs, into at[], factor[] and n_steps. The rest of *schedule stays
 * as it is; on failure all of it does. Errors: LK_ERR_ARGUMENT (the message says what was expected where). */
LK_API lk_status lk_schedule_parse_steps(const char *text, lk_schedule *schedule);

#ifdef __cplusplus
}
#endif

#endif
