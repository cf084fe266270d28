/* Optimisers and learning-rate schedules. Updates use only + - * / sqrt and explicit fma, in a fixed order, so every
 * device makes the same of the same gradients. */
#ifndef LOCKSTEP_OPTIM_H
#define LOCKSTEP_OPTIM_H

#include "lockstep/tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Stochastic gradient descent: parameters[i] -= rate * gradients[i], in place, for i in [0, n). A NULL gradient leaves
 * its parameter as it is. Asynchronous. */
LK_API lk_status lk_sgd_at(lk_place at, lk_tensor *const *parameters, lk_tensor *const *gradients, int n, double rate);
#define lk_sgd(...) lk_sgd_at(LK_HERE, __VA_ARGS__)

/* Moves tensors[0 … n), f32 of one device, into one piece of memory: *flat is it, a new tensor [elements], and each
 * tensors[i] is replaced by a view of it with the same shape and values, in order, each starting at a multiple of 16
 * elements; gaps hold 0. The caller's reference to the tensor that was at tensors[i] is released, and one to the view
 * is the caller's instead, whatever scope is open. On failure nothing is changed. Asynchronous. Errors:
 * LK_ERR_ARGUMENT (no tensors), LK_ERR_DTYPE, LK_ERR_DEVICE, LK_ERR_MEMORY. */
LK_API lk_status lk_pack(lk_tensor **tensors, int n, lk_tensor **flat);

typedef enum lk_optimizer_kind { LK_SGD, LK_ADAM, LK_ADAMW, LK_LARS, LK_OPTIMIZER_COUNT } lk_optimizer_kind;

/* clang-format off */
/* Zeroes mean the defaults. With g the gradient (after clipping), w the parameter, l the rate:
 * LK_SGD    g += weight_decay w;  v = momentum v + g;  w -= l v, with nesterov w -= l (g + momentum v)
 *                                                                                        (PyTorch's SGD)
 * LK_ADAM   g += weight_decay w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
 *           w -= l (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)                   (Kingma, Ba 2015)
 * LK_ADAMW  the same, with w -= l weight_decay w before it instead of g += …             (Loshchilov, Hutter 2019)
 * LK_LARS   g' = r (g + weight_decay w);  v = momentum v + l g';  w -= v                 (You, Gitman, Ginsburg 2017)
 *           r = trust |w| / (|g| + weight_decay |w|) for each tensor; 1 where |w| or |g| is 0, and for tensors of one
 *           dimension, which are not decayed either */
/* clang-format on */
typedef struct lk_optimizer_opts {
    lk_optimizer_kind kind;
    double momentum;     /* LK_SGD, LK_LARS */
    bool nesterov;       /* LK_SGD with momentum */
    double weight_decay; /* L2; added once, after the sum over shards */
    double beta1, beta2; /* 0: 0.9, 0.999 */
    double epsilon;      /* 0: 1e-7, Keras' value, in Kingma's and Ba's place */
    double trust;        /* 0: 0.001 */
    /* Where the norm of all gradients together is larger they are scaled down to it; 0: no clipping. Gradients that are
     * not all finite are not scaled. */
    double clip_norm;
    /* A step whose gradients are not all finite changes nothing but t, which counts it. `sticky`, which needs it: nor
     * does any after it. */
    bool skip_nonfinite, sticky;
} lk_optimizer_opts;

/* One set of parameters on one device, and what the optimiser remembers about them. */
typedef struct lk_optimizer lk_optimizer;

/* Keeps references. `flat` and parameters[0 … n) are what lk_pack gave; opts NULL: plain LK_SGD. Options of other kinds
 * are ignored, but for nesterov. Errors: LK_ERR_ARGUMENT (an option out of range, parameters that are not packed),
 * LK_ERR_MEMORY. */
LK_API lk_optimizer *lk_optimizer_new(const lk_optimizer_opts *opts, lk_tensor *flat, lk_tensor *const *parameters,
                                      int n);
LK_API void lk_optimizer_release(lk_optimizer *optimizer);

/* "sgd", "adam", "adamw", "lars"; NULL past the end. */
LK_API const char *lk_optimizer_name(int kind);

/* One fused update of all parameters, in place. gradients: n, f32 of the parameters' shapes, on their device; NULL
 * counts as zeros. Asynchronous. On failure no parameter and nothing remembered has changed. Errors: LK_ERR_SHAPE,
 * LK_ERR_DTYPE, LK_ERR_DEVICE (a gradient), LK_ERR_ARGUMENT (a rate that is not finite), LK_ERR_MEMORY. */
LK_API lk_status lk_optimizer_step_at(lk_place at, lk_optimizer *optimizer, lk_tensor *const *gradients, double rate);
#define lk_optimizer_step(...) lk_optimizer_step_at(LK_HERE, __VA_ARGS__)

/* Updates so far, t above; counts skipped ones too. */
LK_API int64_t lk_optimizer_steps(const lk_optimizer *optimizer);

/* f32 scalar on the device: 1 if the last step was skipped, else 0; borrowed, and each step's own: a reference to it
 * stays what it is. NULL without skip_nonfinite, and before the first step. */
LK_API lk_tensor *lk_optimizer_skipped(const lk_optimizer *optimizer);

/* The norm of all gradients of the last step before clipping, f64 scalar; borrowed, each step's own. NULL where nothing
 * asked for it (clipping, skip_nonfinite, LK_LARS), and before the first step. */
LK_API lk_tensor *lk_optimizer_gradient_norm(const lk_optimizer *optimizer);

/* The gradients that the last step was given: one a parameter, zeros for NULL, borrowed until the next step. NULL
 * before the first, which with a checkpoint's state is the first from then on. */
LK_API lk_tensor *const *lk_optimizer_gradients(const lk_optimizer *optimizer);

/* What it remembers, by name ("momentum", "m", "v"), each f32 in the layout of `flat`; NULL past the end. Borrowed. */
LK_API lk_tensor *lk_optimizer_state(const lk_optimizer *optimizer, int index, const char **name);

/* --- learning rate ----------------------------------------------------------------------------------------------- */

typedef enum lk_schedule_kind { LK_SCHEDULE_CONSTANT, LK_SCHEDULE_STEP, LK_SCHEDULE_COSINE } lk_schedule_kind;

enum { LK_SCHEDULE_MAX_STEPS = 32 };

typedef struct lk_schedule {
    lk_schedule_kind kind;
    double base;
    double minimum;            /* LK_SCHEDULE_COSINE: where it ends */
    double warmup_epochs;      /* how long the schedule is multiplied by a ramp; may be a fraction; 0: none */
    double warmup_start;       /* where the ramp to 1 begins: 0 … 1 */
    int64_t updates_per_epoch; /* for warm-up; 0: an update takes no time */
    double epochs;             /* LK_SCHEDULE_COSINE: the length of the run */
    int n_steps;               /* LK_SCHEDULE_STEP: from epoch at[i] on (counted from 0) base * factor[i] */
    double at[LK_SCHEDULE_MAX_STEPS], factor[LK_SCHEDULE_MAX_STEPS];
} lk_schedule;

/* The rate for an update: `epoch` is a fraction, (updates so far) / (updates an epoch); without accumulation every step
 * is an update. step: the last factor whose epoch has come. cosine: minimum + (base - minimum) (1 + cos(pi epoch /
 * epochs)) / 2 (Loshchilov, Hutter 2017).
 *
 * Warm-up has n = warmup_epochs * updates_per_epoch updates. Update i = 0 … ceil(n) - 1 has what the schedule says of
 * its epoch, times warmup_start + (1 - warmup_start) min(1, (i + 1) / n), as in Goyal et al. 2017: the first is above
 * the share that warm-up begins with, the last has all of the rate. With updates_per_epoch 0 the share of warm-up that
 * is over is epoch / warmup_epochs instead. Nothing is put off: steps come when their epoch does, and a cosine begins
 * with the run and takes all of it, whether or not warm-up is over by then. */
LK_API double lk_schedule_rate(const lk_schedule *schedule, double epoch);

/* Reads "15:0.1,25:0.01,35:0.001", epochs ascending, into at[], factor[] and n_steps; the rest of *schedule is left as
 * it is, on failure all of it. Errors: LK_ERR_ARGUMENT with what was expected where. */
LK_API lk_status lk_schedule_parse_steps(const char *text, lk_schedule *schedule);

#ifdef __cplusplus
}
#endif

#endif
