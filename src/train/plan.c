/* From a configuration to a plan's numbers: blanks filled in from the model's recipe, everything checked before data
 * are read or devices opened. */
#include "train/recipes.h"
#include "train/trainer.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- checks ------------------------------------------------------------------------------------------------------- */

/* `explicit_shards` is what the user asked for, or 0. */
lk_status lk__check_shards(int64_t explicit_shards, int64_t shards, int64_t batch_size, int devices)
{
    if (explicit_shards > batch_size)
        LK_FAIL(LK_ERR_ARGUMENT, "--shards %lld: must be at most the batch size, %lld", (long long)shards,
                (long long)batch_size);
    if (shards > batch_size)
        LK_FAIL(LK_ERR_ARGUMENT, "--devices: %d devices need %lld shards, more than the batch size, %lld", devices,
                (long long)shards, (long long)batch_size);
    if (devices > shards)
        LK_FAIL(LK_ERR_ARGUMENT, "--shards %lld: %d devices need at least as many shards", (long long)shards, devices);
    return LK_OK;
}

static lk_status check_choice(const lk_option *option, const lk_train_config *config)
{
    int value = *(const int *)((const char *)config + option->offset), count = 0;
    while (option->choices[count])
        count++;
    if (value < 0 || value >= count)
        LK_FAIL(LK_ERR_ARGUMENT, "--%s: %d is none of its %d choices", option->name, value, count);
    return LK_OK;
}

/* A configuration need not come from a command line: its numbers go through the table once more. A default may be out
 * of its option's range; it then means "unset". */
static lk_status check_table(const lk_train_config *config)
{
    char text[64];
    lk_train_config scratch = *config;
    if (!config->model || !config->data)
        LK_FAIL(LK_ERR_ARGUMENT, "--%s: a name is needed", config->model ? "data" : "model");
    if (!config->algorithms || !*config->algorithms)
        LK_FAIL(LK_ERR_ARGUMENT, "--algorithms: must be fast, direct or the file of a tuning");
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT; i++) {
        const lk_option *option = &lk_train_options[i];
        if (option->type == LK_OPTION_CHOICE)
            LK_TRY(check_choice(option, config));
        if (option->type != LK_OPTION_INT64 && option->type != LK_OPTION_DOUBLE)
            continue;
        LK_TRY(lk_options_text(option, config, text, sizeof text));
        if (strcmp(text, option->default_text) != 0)
            LK_TRY(lk_options_set(lk_train_options, LK_TRAIN_OPTION_COUNT, &scratch, option->name, text));
    }
    return LK_OK;
}

/* --- optimiser and schedule --------------------------------------------------------------------------------------- */

static lk_status plan_optimizer(const lk_train_config *config, const char *name, lk_plan *plan)
{
    int kind = 0;
    while (lk_optimizer_name(kind) && strcmp(lk_optimizer_name(kind), name) != 0)
        kind++;
    plan->optimizer = lk_optimizer_name(kind);
    if (!plan->optimizer)
        LK_FAIL(LK_ERR_ARGUMENT, "--optimizer %s: must be sgd, adam, adamw or lars", name);
    bool takes_momentum = kind == LK_SGD || kind == LK_LARS;
    if (config->momentum > 0 && !takes_momentum)
        LK_FAIL(LK_ERR_ARGUMENT, "--momentum: %s has none; it is for sgd and lars", name);
    lk_optimizer_opts *opts = &plan->optimizer_opts;
    opts->kind = (lk_optimizer_kind)kind;
    if (takes_momentum)
        opts->momentum = config->momentum >= 0 ? config->momentum : kind == LK_LARS ? 0.9 : 0;
    if (config->nesterov && (kind != LK_SGD || opts->momentum == 0))
        LK_FAIL(LK_ERR_ARGUMENT, "--nesterov: must be with --optimizer sgd and a --momentum above 0");
    opts->nesterov = config->nesterov;
    opts->weight_decay = config->weight_decay;
    opts->clip_norm = config->clip_norm;
    opts->skip_nonfinite = config->nan_guard != LK_NAN_GUARD_OFF;
    opts->sticky = config->nan_guard == LK_NAN_GUARD_STOP;
    return LK_OK;
}

/* Of the recipe's rate, by --scale-lr. */
static double rate_factor(const lk_train_config *config, const lk_train_config *recipe, const lk_plan *plan)
{
    if (!config->scale_lr)
        return 1;
    return (double)plan->batch_size * (double)plan->accumulate / (double)recipe->batch_size;
}

/* Warm-up to the rate of many samples an update begins at the recipe's own (Goyal et al. 2017). A rate that is not
 * raised has no warm-up unless asked for. */
static void plan_warmup(const lk_train_config *config, double factor, lk_schedule *schedule)
{
    enum { EPOCHS = 5 };
    bool raised = factor > 1;
    schedule->warmup_epochs = config->warmup_epochs >= 0 ? config->warmup_epochs : raised ? EPOCHS : 0;
    schedule->warmup_start = raised ? 1 / factor : 0;
}

static lk_status plan_schedule_kind(const lk_train_config *config, const lk_train_config *recipe, lk_plan *plan)
{
    const char *name = config->schedule ? config->schedule : config->lr_steps ? "step" : recipe->schedule;
    const char *steps = config->lr_steps ? config->lr_steps : recipe->lr_steps;
    if (strcmp(name, "constant") == 0) {
        plan->schedule.kind = LK_SCHEDULE_CONSTANT;
    } else if (strcmp(name, "cosine") == 0) {
        plan->schedule.kind = LK_SCHEDULE_COSINE;
        plan->schedule.minimum = config->min_lr;
    } else if (strcmp(name, "step") == 0) {
        plan->schedule.kind = LK_SCHEDULE_STEP;
        if (!steps)
            LK_FAIL(LK_ERR_ARGUMENT, "--schedule step: --lr-steps must say when, as in 15:0.1,25:0.01");
        LK_TRY(lk_schedule_parse_steps(steps, &plan->schedule));
    } else {
        LK_FAIL(LK_ERR_ARGUMENT, "--schedule %s: must be constant, step or cosine", name);
    }
    if (config->lr_steps && plan->schedule.kind != LK_SCHEDULE_STEP)
        LK_FAIL(LK_ERR_ARGUMENT, "--lr-steps %s: must be with --schedule step, not --schedule %s", config->lr_steps,
                name);
    if (config->min_lr > 0 && plan->schedule.kind != LK_SCHEDULE_COSINE)
        LK_FAIL(LK_ERR_ARGUMENT, "--min-lr %g: must be with --schedule cosine, not --schedule %s", config->min_lr,
                name);
    return LK_OK;
}

static lk_status plan_schedule(const lk_train_config *config, const lk_train_config *recipe, lk_plan *plan)
{
    LK_TRY(plan_schedule_kind(config, recipe, plan));
    double factor = rate_factor(config, recipe, plan);
    plan->base_lr = config->base_lr != 0 ? config->base_lr : recipe->base_lr;
    plan->schedule.base = factor * plan->base_lr;
    plan->schedule.epochs = (double)plan->epochs;
    plan_warmup(config, factor, &plan->schedule);
    if (plan->schedule.kind == LK_SCHEDULE_COSINE && plan->schedule.minimum > plan->schedule.base)
        LK_FAIL(LK_ERR_ARGUMENT, "--min-lr %g: must be at most the rate to begin with, %g", plan->schedule.minimum,
                plan->schedule.base);
    return LK_OK;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

/* What is measured by the evaluation has to have one. */
static lk_status check_evaluation(const lk_train_config *config)
{
    if (config->limit_val != 0)
        return LK_OK;
    if (config->target_accuracy >= 0)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--target-accuracy %g: needs an evaluation, and --limit-val 0 leaves it out (--target-accuracy -1: no "
                "target)",
                config->target_accuracy);
    if (config->early_stop > 0)
        LK_FAIL(LK_ERR_ARGUMENT, "--early-stop %lld: needs an evaluation, and --limit-val 0 leaves it out",
                (long long)config->early_stop);
    return LK_OK;
}

static lk_status plan_patience(const lk_train_config *config, lk_plan *plan)
{
    enum { PATIENCE = 2 };
    if (config->patience >= 0 && config->target_accuracy < 0)
        LK_FAIL(LK_ERR_ARGUMENT, "--patience %g: must be with --target-accuracy", config->patience);
    plan->patience = config->patience >= 0 ? config->patience : PATIENCE;
    return LK_OK;
}

static lk_status plan_augment(const lk_train_config *config, lk_plan *plan)
{
    if (config->augment)
        LK_TRY(lk_augment_parse(config->augment, &plan->augment));
    plan->augment.center = config->normalize != LK_NORMALIZE_NONE;
    plan->augment.standardize = config->normalize == LK_NORMALIZE_STANDARD;
    return LK_OK;
}

/* A pass over several shards, and one that is pushed operator by operator, have no program that could be rewritten. */
static lk_status check_recompute(const lk_train_config *config)
{
    if (!config->recompute)
        return LK_OK;
    if (config->executor == LK_EXECUTOR_EAGER)
        LK_FAIL(LK_ERR_ARGUMENT, "--recompute: must be with --executor program, not --executor eager");
    if (config->batch_norm == LK_BN_SYNC)
        LK_FAIL(LK_ERR_ARGUMENT, "--recompute: must be with --bn shard, not --bn sync");
    return LK_OK;
}

lk_status lk__plan_numbers(const lk_train_config *config, const char *model, lk_plan *plan)
{
    lk_train_config recipe, named = *config;
    named.model = model;
    LK_TRY(check_table(&named));
    LK_TRY(check_evaluation(config));
    LK_TRY(check_recompute(config));
    LK_TRY(lk__recipe_of(&named, &recipe));
    plan->recipe = config->recipe;
    plan->batch_size = config->batch_size ? config->batch_size : recipe.batch_size;
    plan->val_batch_size = config->val_batch_size ? config->val_batch_size : plan->batch_size;
    plan->epochs = config->epochs ? config->epochs : recipe.epochs;
    plan->accumulate = config->accumulate;
    plan->label_smoothing = config->label_smoothing;
    plan->top_k = config->top_k;
    plan->batch_norm = (lk_batch_norm_mode)config->batch_norm;
    plan->precise_batch_norm = config->precise_batch_norm;
    plan->dtype = config->dtype == LK_PRECISION_BF16 ? LK_BF16 : LK_F32;
    plan->tf32 = config->tf32;
    plan->seed = (uint64_t)config->seed;
    plan->algorithms = config->algorithms;
    LK_TRY(plan_optimizer(config, config->optimizer ? config->optimizer : recipe.optimizer, plan));
    LK_TRY(plan_schedule(&named, &recipe, plan));
    LK_TRY(plan_patience(config, plan));
    return plan_augment(config, plan);
}
