/* Options that are not given take the values of the model's recipe. Everything is checked before data are read or
 * devices opened. */
#include "train/plan/plan.h"

#include "base/minmax.h"
#include "base/number.h"
#include "base/status.h"
#include "train/plan/recipes.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- checks ------------------------------------------------------------------------------------------------------- */

int64_t lk__plan_shards(const lk_train_config *config, int64_t batch_size, int devices)
{
    int64_t shards = lk_default_shards(batch_size);
    while (shards < devices)
        shards *= 2;
    return config->devices.shards ? config->devices.shards : shards;
}

lk_status lk__check_shards(int64_t shards, int64_t batch_size, int devices)
{
    if (devices > batch_size)
        LK_FAIL(LK_ERR_ARGUMENT, "--devices: %d devices need as many shards, more than the batch size, %lld", devices,
                (long long)batch_size);
    if (shards > batch_size)
        LK_FAIL(LK_ERR_ARGUMENT, "--shards %lld: must be at most the batch size, %lld", (long long)shards,
                (long long)batch_size);
    if (devices > shards)
        LK_FAIL(LK_ERR_ARGUMENT, "--shards %lld: %d devices need at least as many shards", (long long)shards, devices);
    return LK_OK;
}

static lk_status plan_check_choice(const lk_option *option, const lk_train_config *config)
{
    int value = *(const int *)((const char *)config + option->offset), count = 0;
    while (option->choices[count])
        count++;
    if (value < 0 || value >= count)
        LK_FAIL(LK_ERR_ARGUMENT, "--%s: %d is none of its %d choices", option->name, value, count);
    return LK_OK;
}

/* A configuration may not come from a command line, so its numbers are checked against the table of options again. A
 * default that is out of its option's range means "unset". */
static lk_status plan_check_table(const lk_train_config *config)
{
    char text[64];
    lk_train_config scratch = *config;
    if (!config->model || !config->data.name)
        LK_FAIL(LK_ERR_ARGUMENT, "--%s: a name is needed", config->model ? "data" : "model");
    if (!config->execution.algorithms || !*config->execution.algorithms)
        LK_FAIL(LK_ERR_ARGUMENT, "--algorithms: must be fast, direct or the file of a tuning");
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT; i++) {
        const lk_option *option = &lk_train_options[i];
        if (option->type == LK_OPTION_CHOICE)
            LK_TRY(plan_check_choice(option, config));
        if (option->type != LK_OPTION_INT64 && option->type != LK_OPTION_DOUBLE)
            continue;
        LK_TRY(lk_options_text(option, config, text, sizeof text));
        if (strcmp(text, option->default_text) != 0)
            LK_TRY(lk_options_set(lk_train_options, LK_TRAIN_OPTION_COUNT, &scratch, option->name, text));
    }
    return LK_OK;
}

/* --- optimizer and schedule --------------------------------------------------------------------------------------- */

static lk_status plan_optimizer(const lk_train_config *config, const char *name, lk_plan *plan)
{
    int kind = 0;
    while (lk_optimizer_name(kind) && strcmp(lk_optimizer_name(kind), name) != 0)
        kind++;
    plan->optimizer = lk_optimizer_name(kind);
    if (!plan->optimizer)
        LK_FAIL(LK_ERR_ARGUMENT, "--optimizer %s: must be sgd, adam, adamw or lars", name);
    bool takes_momentum = kind == LK_SGD || kind == LK_LARS;
    if (config->optimizer.momentum > 0 && !takes_momentum)
        LK_FAIL(LK_ERR_ARGUMENT, "--momentum: %s has none; it is for sgd and lars", name);
    lk_optimizer_opts *opts = &plan->optimizer_opts;
    opts->kind = (lk_optimizer_kind)kind;
    if (takes_momentum)
        opts->momentum = config->optimizer.momentum >= 0 ? config->optimizer.momentum : kind == LK_LARS ? 0.9 : 0;
    if (config->optimizer.nesterov && (kind != LK_SGD || opts->momentum == 0))
        LK_FAIL(LK_ERR_ARGUMENT, "--nesterov: must be with --optimizer sgd and a --momentum above 0");
    opts->nesterov = config->optimizer.nesterov;
    opts->weight_decay = config->optimizer.weight_decay;
    opts->clip_norm = config->optimizer.clip_norm;
    opts->average = config->optimizer.average;
    opts->skip_nonfinite = config->checks.nan_guard != LK_NAN_GUARD_OFF;
    opts->sticky = config->checks.nan_guard == LK_NAN_GUARD_STOP;
    return LK_OK;
}

/* A rate that was raised for larger updates is warmed up from the recipe's own rate (Goyal et al. 2017). A rate that
 * was not raised has no warm-up unless it is asked for. */
static void plan_warmup(const lk_train_config *config, double factor, lk_schedule *schedule)
{
    enum { EPOCHS = 5 };
    bool raised = factor > 1;
    schedule->warmup_epochs = config->optimizer.warmup_epochs >= 0 ? config->optimizer.warmup_epochs
                              : raised                             ? EPOCHS
                                                                   : 0;
    schedule->warmup_start = raised ? 1 / factor : 0;
}

static lk_status plan_schedule_kind(const lk_train_config *config, const lk_train_config *recipe, lk_plan *plan)
{
    const char *name = config->optimizer.schedule   ? config->optimizer.schedule
                       : config->optimizer.lr_steps ? "step"
                                                    : recipe->optimizer.schedule;
    const char *steps = config->optimizer.lr_steps ? config->optimizer.lr_steps : recipe->optimizer.lr_steps;
    if (strcmp(name, "constant") == 0) {
        plan->schedule.kind = LK_SCHEDULE_CONSTANT;
    } else if (strcmp(name, "cosine") == 0) {
        plan->schedule.kind = LK_SCHEDULE_COSINE;
        plan->schedule.minimum = config->optimizer.min_lr;
    } else if (strcmp(name, "step") == 0) {
        plan->schedule.kind = LK_SCHEDULE_STEP;
        if (!steps)
            LK_FAIL(LK_ERR_ARGUMENT, "--schedule step: --lr-steps must say when, as in 15:0.1,25:0.01");
        LK_TRY(lk_schedule_parse_steps(steps, &plan->schedule));
    } else {
        LK_FAIL(LK_ERR_ARGUMENT, "--schedule %s: must be constant, step or cosine", name);
    }
    if (config->optimizer.lr_steps && plan->schedule.kind != LK_SCHEDULE_STEP)
        LK_FAIL(LK_ERR_ARGUMENT, "--lr-steps %s: must be with --schedule step, not --schedule %s",
                config->optimizer.lr_steps, name);
    if (config->optimizer.min_lr > 0 && plan->schedule.kind != LK_SCHEDULE_COSINE)
        LK_FAIL(LK_ERR_ARGUMENT, "--min-lr %g: must be with --schedule cosine, not --schedule %s",
                config->optimizer.min_lr, name);
    return LK_OK;
}

lk_status lk__plan_schedule(const lk_train_config *asked, const char *model, lk_plan *plan)
{
    lk_train_config named = *asked, made, *config = &named, *recipe = &made;
    named.model = model;
    LK_TRY(lk__recipe_of(config, recipe));
    LK_TRY(plan_schedule_kind(config, recipe, plan));
    double factor = 1; /* of --scale-lr: samples in an update, relative to the recipe's */
    int64_t samples = plan->batch_size * plan->accumulate;
    if (plan->train_samples > 0) /* an update ends with its epoch */
        samples = lk__min(samples, plan->train_samples);
    if (config->optimizer.scale_lr)
        factor = (double)samples / (double)recipe->batch_size;
    plan->base_lr = config->optimizer.base_lr != 0 ? config->optimizer.base_lr : recipe->optimizer.base_lr;
    plan->schedule.base = factor * plan->base_lr;
    for (int i = 0; i < plan->schedule.n_steps; i++)
        if (!isfinite((float)(plan->schedule.base * plan->schedule.factor[i])))
            LK_FAIL(LK_ERR_ARGUMENT, "--lr-steps: factor %g makes a rate of %g; it must be finite in f32",
                    plan->schedule.factor[i], plan->schedule.base * plan->schedule.factor[i]);
    plan->schedule.epochs = (double)plan->epochs;
    plan_warmup(config, factor, &plan->schedule);
    if (plan->schedule.kind == LK_SCHEDULE_COSINE && plan->schedule.minimum > plan->schedule.base)
        LK_FAIL(LK_ERR_ARGUMENT, "--min-lr %g: must be at most the rate to begin with, %g", plan->schedule.minimum,
                plan->schedule.base);
    return LK_OK;
}

/* Reads "3:0.5". */
static lk_status plan_plateau(const lk_train_config *config, lk_plan *plan)
{
    const char *text = config->optimizer.lr_plateau;
    char *end;
    if (!text || !*text)
        return LK_OK;
    double epochs = lk__number_starts(text) ? lk__number_parse(text, &end) : 0;
    bool is_whole =
        epochs >= 1 && epochs <= 1e6 && epochs == floor(epochs) && *end == ':' && lk__number_starts(end + 1);
    double factor = is_whole ? lk__number_parse(end + 1, &end) : 0;
    if (!(factor > 0 && factor < 1) || *end)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--lr-plateau %s: must be a number of epochs and a factor above 0 and below 1, as in 3:0.5", text);
    plan->plateau_epochs = (int64_t)epochs;
    plan->plateau_factor = factor;
    return LK_OK;
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

void lk__leave_out_evaluation(lk_train_config *config)
{
    config->data.limit_val = 0;
    config->data.val_set = NULL;
    config->stop = (lk_stop_config){.target_accuracy = -1, .patience = -1};
    config->optimizer.lr_plateau = NULL;
    config->batch_norm.precise = 0;
}

/* Options that need an evaluation. */
static lk_status plan_check_evaluation(const lk_train_config *config)
{
    if (config->data.limit_val != 0)
        return LK_OK;
    if (config->stop.target_accuracy >= 0)
        LK_FAIL(LK_ERR_ARGUMENT,
                "--target-accuracy %g: needs an evaluation, and --limit-val 0 leaves it out (--target-accuracy -1: no "
                "target)",
                config->stop.target_accuracy);
    if (config->stop.early_stop > 0)
        LK_FAIL(LK_ERR_ARGUMENT, "--early-stop %lld: needs an evaluation, and --limit-val 0 leaves it out",
                (long long)config->stop.early_stop);
    if (config->stop.restore_best || (config->optimizer.lr_plateau && *config->optimizer.lr_plateau))
        LK_FAIL(LK_ERR_ARGUMENT, "--%s: needs an evaluation, and --limit-val 0 leaves it out",
                config->stop.restore_best ? "restore-best" : "lr-plateau");
    return LK_OK;
}

static lk_status plan_patience(const lk_train_config *config, lk_plan *plan)
{
    enum { PATIENCE = 2 };
    if (config->stop.patience >= 0 && config->stop.target_accuracy < 0)
        LK_FAIL(LK_ERR_ARGUMENT, "--patience %g: must be with --target-accuracy", config->stop.patience);
    plan->patience = config->stop.patience >= 0 ? config->stop.patience : PATIENCE;
    return LK_OK;
}

static lk_status plan_augment(const lk_train_config *config, lk_plan *plan)
{
    if (config->data.augment)
        LK_TRY(lk_augment_parse(config->data.augment, &plan->augment));
    plan->augment.center = config->data.normalize != LK_NORMALIZE_NONE;
    plan->augment.standardize = config->data.normalize == LK_NORMALIZE_STANDARD;
    return LK_OK;
}

/* Recomputation rewrites a program, which operators that are pushed one by one do not have. */
static lk_status plan_check_recompute(const lk_train_config *config)
{
    if (config->execution.recompute && config->execution.executor == LK_EXECUTOR_EAGER)
        LK_FAIL(LK_ERR_ARGUMENT, "--recompute: must be with --executor program, not --executor eager");
    return LK_OK;
}

lk_status lk__plan_batch_norm(const lk_train_config *config, lk_plan *plan)
{
    enum { GROUP = 32 };
    const lk_batch_norm_config *asked = &config->batch_norm;
    if (asked->group && asked->mode != LK_BN_GROUP)
        LK_FAIL(LK_ERR_ARGUMENT, "--bn-group %lld: must be with --bn group", (long long)asked->group);
    plan->batch_norm = (lk_batch_norm_mode)asked->mode;
    plan->batch_norm_group = asked->mode == LK_BN_SHARD  ? 1
                             : asked->mode == LK_BN_SYNC ? plan->batch_size
                             : asked->group              ? asked->group
                                                         : GROUP;
    plan->precise_batch_norm = asked->precise;
    return LK_OK;
}

lk_status lk__plan_numbers(const lk_train_config *config, const char *model, lk_plan *plan)
{
    lk_train_config recipe, named = *config;
    named.model = model;
    LK_TRY(plan_check_table(&named));
    LK_TRY(plan_check_evaluation(config));
    LK_TRY(plan_check_recompute(config));
    LK_TRY(lk__recipe_of(&named, &recipe));
    plan->recipe = config->recipe;
    plan->batch_size = config->batch_size ? config->batch_size : recipe.batch_size;
    plan->val_batch_size = config->val_batch_size ? config->val_batch_size : plan->batch_size;
    plan->epochs = config->epochs ? config->epochs : recipe.epochs;
    plan->accumulate = config->accumulate;
    plan->label_smoothing = config->optimizer.label_smoothing;
    plan->top_k = config->checks.top_k;
    plan->dtype = config->execution.dtype == LK_PRECISION_BF16 ? LK_BF16 : LK_F32;
    plan->tf32 = config->execution.tf32;
    plan->seed = (uint64_t)config->seed;
    plan->algorithms = config->execution.algorithms;
    LK_TRY(lk__plan_batch_norm(config, plan));
    LK_TRY(plan_optimizer(config, config->optimizer.name ? config->optimizer.name : recipe.optimizer.name, plan));
    LK_TRY(lk__plan_schedule(config, model, plan));
    LK_TRY(plan_plateau(config, plan));
    LK_TRY(plan_patience(config, plan));
    return plan_augment(config, plan);
}
