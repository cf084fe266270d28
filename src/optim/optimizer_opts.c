#include "optim/optimizer_opts.h"
#include "optim/optimizer.h"

#include <float.h>

static const char *const names[LK_OPTIMIZER_COUNT] = {
    [LK_SGD] = "sgd",
    [LK_ADAM] = "adam",
    [LK_ADAMW] = "adamw",
    [LK_LARS] = "lars",
};

const char *lk_optimizer_name(int kind)
{
    return kind >= 0 && kind < LK_OPTIMIZER_COUNT ? names[kind] : NULL;
}

bool lk__optimizer_is_adam(lk_optimizer_kind kind)
{
    return kind == LK_ADAM || kind == LK_ADAMW;
}

static lk_status optimizer_check_share(const char *option, double value)
{
    if (!(value >= 0 && value < 1))
        LK_FAIL(LK_ERR_ARGUMENT, "optimizer: %s is %g; it must be at least 0 and below 1", option, value);
    return LK_OK;
}

static lk_status optimizer_check_not_negative(const char *option, double value)
{
    if (!(value >= 0 && value <= (double)FLT_MAX))
        LK_FAIL(LK_ERR_ARGUMENT, "optimizer: %s is %g; it must be 0 or more, and a float", option, value);
    return LK_OK;
}

static void optimizer_set_default(double *option, double value)
{
    if (*option == 0)
        *option = value;
}

/* Elements in the gaps of lk_pack have second moments of 0: an epsilon that is 0 in f32 would make them NaN. */
static lk_status optimizer_check_epsilon(double epsilon)
{
    if (!(epsilon >= (double)FLT_MIN && epsilon <= (double)FLT_MAX))
        LK_FAIL(LK_ERR_ARGUMENT, "optimizer: epsilon is %g; it must be a float of at least %g", epsilon,
                (double)FLT_MIN);
    return LK_OK;
}

lk_status lk__optimizer_check(lk_optimizer_opts *opts)
{
    if ((unsigned)opts->kind >= LK_OPTIMIZER_COUNT)
        LK_FAIL(LK_ERR_ARGUMENT, "optimizer: there is no kind %d; sgd, adam, adamw and lars are 0 to 3",
                (int)opts->kind);
    optimizer_set_default(&opts->beta1, 0.9);
    optimizer_set_default(&opts->beta2, 0.999);
    optimizer_set_default(&opts->epsilon, 1e-7);
    optimizer_set_default(&opts->trust, 0.001);
    LK_TRY(optimizer_check_share("momentum", opts->momentum));
    if ((float)opts->momentum == 1) /* kernels compute with it in f32 */
        LK_FAIL(LK_ERR_ARGUMENT, "optimizer: momentum is %.10g, which is 1 in f32; it must be less", opts->momentum);
    if (opts->nesterov && (opts->kind != LK_SGD || opts->momentum == 0))
        LK_FAIL(LK_ERR_ARGUMENT,
                "optimizer: nesterov goes with sgd and a momentum above 0, not with %s and momentum %g",
                names[opts->kind], opts->momentum);
    LK_TRY(optimizer_check_not_negative("weight_decay", opts->weight_decay));
    LK_TRY(optimizer_check_share("beta1", opts->beta1));
    LK_TRY(optimizer_check_share("beta2", opts->beta2));
    LK_TRY(optimizer_check_share("average", opts->average));
    LK_TRY(optimizer_check_epsilon(opts->epsilon));
    LK_TRY(optimizer_check_not_negative("trust", opts->trust));
    LK_TRY(optimizer_check_not_negative("clip_norm", opts->clip_norm));
    if (opts->sticky && !opts->skip_nonfinite)
        LK_FAIL(LK_ERR_ARGUMENT, "optimizer: sticky goes with skip_nonfinite: nothing is skipped without it");
    return LK_OK;
}

void lk__optimizer_slots(const lk_optimizer_opts *opts, const char *slots[LK_OPTIMIZER_SLOTS])
{
    bool adam = lk__optimizer_is_adam(opts->kind), momentum = opts->kind == LK_LARS || opts->momentum > 0;
    int n = 0;
    if (momentum && !adam)
        slots[n++] = "momentum";
    if (adam) {
        slots[n++] = "m";
        slots[n++] = "v";
    }
    if (opts->average > 0)
        slots[n++] = LK_AVERAGE;
    while (n < LK_OPTIMIZER_SLOTS)
        slots[n++] = NULL;
}
