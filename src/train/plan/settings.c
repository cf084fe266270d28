#include "train/plan/settings.h"

#include "base/number.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const schedule_names[] = {
    [LK_SCHEDULE_CONSTANT] = "constant", [LK_SCHEDULE_STEP] = "step", [LK_SCHEDULE_COSINE] = "cosine"};

enum { STEPS_BYTES = LK_SCHEDULE_MAX_STEPS * 64 };

/* Writes the steps in the syntax of lk_schedule_parse_steps, which reads them back as the same numbers. */
static void settings_write_steps(const lk_schedule *schedule, char *text, size_t size)
{
    char at[32], factor[32];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < schedule->n_steps && used < size; i++) {
        lk__number_print(schedule->at[i], at, sizeof at);
        lk__number_print(schedule->factor[i], factor, sizeof factor);
        used += (size_t)snprintf(text + used, size - used, "%s%s:%s", i ? "," : "", at, factor);
    }
}

/* The configuration with the plan's values. steps: a buffer of STEPS_BYTES for the text of lr-steps. */
static lk_train_config settings_resolve(const lk_train_config *asked, const lk_plan *plan, char *steps)
{
    lk_train_config config = *asked;
    config.model = plan->model;
    config.data.name = plan->data;
    config.devices.strategy = plan->strategy;
    config.devices.storage = plan->storage;
    config.devices.shards = plan->shards;
    config.execution.micro_batch = plan->micro_batch;
    config.execution.dtype = plan->dtype == LK_BF16 ? LK_PRECISION_BF16 : LK_PRECISION_F32;
    config.batch_norm.group = plan->batch_norm == LK_BN_GROUP ? plan->batch_norm_group : 0;
    config.epochs = plan->epochs;
    config.batch_size = plan->batch_size;
    config.val_batch_size = plan->val_batch_size;
    config.accumulate = plan->accumulate;
    config.data.limit_train = plan->train_samples;
    config.data.limit_val = plan->val_samples;
    config.optimizer.name = plan->optimizer;
    config.optimizer.momentum = plan->optimizer_opts.momentum;
    config.optimizer.schedule = schedule_names[plan->schedule.kind];
    config.optimizer.warmup_epochs = plan->schedule.warmup_epochs;
    if (plan->schedule.kind == LK_SCHEDULE_STEP) {
        settings_write_steps(&plan->schedule, steps, STEPS_BYTES);
        config.optimizer.lr_steps = steps;
    }
    config.optimizer.base_lr = plan->base_lr;
    config.stop.patience = plan->patience;
    if (config.stop.target_accuracy < 0)
        config.stop.target_accuracy = config.stop.patience = NAN; /* in no option's range */
    return config;
}

/* A number outside its option's range means "unset". */
static bool settings_option_is_set(const lk_option *option, const void *value)
{
    if (option->type == LK_OPTION_STRING)
        return *(const char *const *)value != NULL;
    if (option->type == LK_OPTION_INT64 && option->minimum < option->maximum)
        return *(const int64_t *)value >= option->minimum && *(const int64_t *)value <= option->maximum;
    if (option->type == LK_OPTION_DOUBLE && option->least < option->greatest)
        return *(const double *)value >= option->least && *(const double *)value <= option->greatest;
    return true;
}

static lk_field settings_option_field(const lk_option *option, const lk_train_config *config, const char *text)
{
    const void *value = (const char *)config + option->offset;
    lk_field field = LK_TEXT(option->name, text);
    if (!settings_option_is_set(option, value)) {
        field.kind = LK_FIELD_NONE;
        field.text = "";
    } else if (option->type == LK_OPTION_FLAG) {
        field.kind = LK_FIELD_BOOL;
        field.integer = *(const bool *)value;
    } else if (option->type == LK_OPTION_INT64) {
        field.kind = LK_FIELD_INT;
        field.integer = *(const int64_t *)value;
    } else if (option->type == LK_OPTION_DOUBLE) {
        field.kind = LK_FIELD_REAL;
        field.real = *(const double *)value;
    }
    return field;
}

/* The buckets decide which rank adds up what, which the bits of compressed gradients depend on. */
static bool settings_is_recorded(const lk_option *option, const lk_train_config *config)
{
    return option->recorded || (config->devices.compress != 0 && strcmp(option->name, "bucket-mb") == 0);
}

static lk_status settings_visit_options(const lk_train_config *config, lk__setting_fn fn, void *user)
{
    for (int i = 0; i < LK_TRAIN_OPTION_COUNT; i++) {
        const lk_option *option = &lk_train_options[i];
        char number[64];
        const char *text = number;
        if (!settings_is_recorded(option, config))
            continue;
        if (option->type == LK_OPTION_STRING) /* of any length */
            text = *(const char *const *)(const void *)((const char *)config + option->offset);
        else
            LK_TRY(lk_options_text(option, config, number, sizeof number));
        lk_field field = settings_option_field(option, config, text ? text : "");
        LK_TRY(fn(user, &field));
    }
    return LK_OK;
}

static lk_status settings_visit_count(const char *name, int64_t count, lk__setting_fn fn, void *user)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, count);
    lk_field field = LK_INT(name, count);
    field.text = text;
    return fn(user, &field);
}

static lk_status settings_visit_devices(const lk_trainer *trainer, lk__setting_fn fn, void *user)
{
    lk_strategy *strategy = lk_trainer_strategy(trainer);
    char text[2048] = "";
    size_t used = 0;
    for (int r = 0; r < lk_strategy_num_replicas(strategy) && used < sizeof text; r++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", r ? "," : "",
                                 lk_device_name(lk_strategy_device(strategy, r)));
    int processes = lk_trainer_plan(trainer)->processes;
    if (processes > 1 && used < sizeof text)
        snprintf(text + used, sizeof text - used, " in each of %d processes", processes);
    LK_TRY(fn(user, &LK_TEXT("strategy in use", lk_trainer_plan(trainer)->strategy)));
    return fn(user, &LK_TEXT("devices in use", text));
}

lk_status lk__settings_visit(const lk_trainer *trainer, lk__setting_fn fn, void *user)
{
    const lk_plan *plan = lk_trainer_plan(trainer);
    char steps[STEPS_BYTES], implementations[24], rate_text[32];
    lk_train_config config = settings_resolve(lk_trainer_config(trainer), plan, steps);
    lk_status status = settings_visit_options(&config, fn, user);
    snprintf(implementations, sizeof implementations, "%016" PRIx64, plan->implementations);
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {
        {"parameters", plan->parameters},
        {"frozen parameters", plan->frozen},
        {"training samples", plan->train_samples},
        {"validation samples", plan->val_samples},
        {"validation micro-batch", plan->val_micro_batch},
        {"batches an epoch", plan->steps_per_epoch},
        {"updates an epoch", plan->updates_per_epoch},
    };
    for (size_t i = 0; status == LK_OK && i < sizeof counts / sizeof counts[0]; i++)
        status = settings_visit_count(counts[i].name, counts[i].value, fn, user);
    lk__number_print(plan->schedule.base, rate_text, sizeof rate_text);
    lk_field rate = LK_REAL("rate in use", plan->schedule.base);
    rate.text = rate_text;
    if (status == LK_OK)
        status = fn(user, &rate);
    if (status == LK_OK)
        status = settings_visit_devices(trainer, fn, user);
    if (status == LK_OK)
        status = fn(user, &LK_TEXT("implementations", implementations));
    return status == LK_OK ? fn(user, &LK_TEXT("source of the samples", plan->source)) : status;
}
