#include "cli/text/plan_text.h"

#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

/* `limit`: the number that was asked for; the data may have fewer. */
static void plan_print_count(int64_t count, int64_t limit, const char *what)
{
    fprintf(stderr, "%lld%s", (long long)count, what);
    if (limit > count)
        fprintf(stderr, " (all there are, fewer than %lld)", (long long)limit);
}

static void plan_print_data(const lk_plan *plan, const lk_train_config *config)
{
    fputs("  data      ", stderr);
    plan_print_count(plan->train_samples, config->data.limit_train, " training images");
    fputs(", ", stderr);
    plan_print_count(plan->val_samples, config->data.limit_val, " for validation");
    fputs(plan->data_on_devices ? ", on the devices\n" : "\n", stderr);
    if (plan->data_too_large)
        fputs("            prepared by the host: a quarter of a device's free memory does not take them\n", stderr);
}

/* Says why cores are idle: without --devices there is at most one device per shard. */
static void plan_print_idle_cores(const lk_plan *plan, const lk_train_config *config)
{
    long long cores = lk_device_available("cpu"), batch = plan->batch_size, shards = plan->shards;
    if (config->devices.spec || plan->devices >= cores)
        return;
    fprintf(stderr, "            %d of %lld cores: a batch of %lld is %lld shard%s; %s--batch-size uses more\n",
            plan->devices, cores, batch, shards, shards == 1 ? "" : "s",
            config->devices.shards || batch == 1 ? "a larger " : "more --shards or a larger ");
}

static void plan_print_devices(const lk_plan *plan, const lk_train_config *config)
{
    long long shards = plan->shards, devices = plan->devices, batch = plan->batch_size;
    bool is_chief = lk_strategy_kind_of(plan->strategy) == LK_STRATEGY_ASYNCHRONOUS; /* workers train, it evaluates */
    fprintf(stderr, "  devices   %lld%s, strategy %s", devices, is_chief ? " for the evaluation" : "", plan->strategy);
    if (plan->storage)
        fprintf(stderr, ", variables on %s", plan->storage);
    if (strcmp(plan->transport, "") != 0 && strcmp(plan->transport, "inproc") != 0)
        fprintf(stderr, ", exchange by %s", plan->transport);
    if (plan->exchange != LK_EXCHANGE_AUTO)
        fputs(plan->exchange == LK_EXCHANGE_TREE ? ", along the tree" : ", flat", stderr);
    fputc('\n', stderr);
    if (plan->compressed)
        fprintf(stderr, "            gradients exchanged as bf16: the bits depend on the number of devices\n");
    if (plan->reduce == LK_REDUCE_NCCL)
        fprintf(stderr, "            sums by NCCL: the bits depend on the number of devices\n");
    fprintf(stderr, "  batch     %lld in %lld shard%s", batch, shards, shards == 1 ? "" : "s");
    if (plan->micro_batch > 0)
        fprintf(stderr, " in pieces of %lld", (long long)plan->micro_batch);
    fputs(", ", stderr);
    if (is_chief)
        fputs("on the workers' devices\n", stderr);
    else if (batch % devices == 0 && shards % devices == 0)
        fprintf(stderr, "%lld samples a device\n", batch / devices);
    else
        fprintf(stderr, "about %.0f samples a device\n", (double)batch / (double)devices);
    if (plan->batch_norm_groups > 0)
        fprintf(stderr, "            batch-norm over %lld group%s of shards\n", (long long)plan->batch_norm_groups,
                plan->batch_norm_groups == 1 ? "" : "s");
    if (plan->memory_there > 0)
        fprintf(stderr, "  memory    %.1f of %.1f MiB are needed, by estimate\n",
                (double)plan->memory_needed / (1 << 20), (double)plan->memory_there / (1 << 20));
    plan_print_idle_cores(plan, config);
}

/* Prints the optimizer and its rate, and the other settings only if they have an effect. */
static void plan_print_optimizer(const lk_plan *plan)
{
    const lk_optimizer_opts *opts = &plan->optimizer_opts;
    const lk_schedule *schedule = &plan->schedule;
    fprintf(stderr, "%s, rate %g", plan->optimizer, schedule->base);
    if (schedule->kind == LK_SCHEDULE_STEP)
        fprintf(stderr, " in steps");
    else if (schedule->kind == LK_SCHEDULE_COSINE)
        fprintf(stderr, " falling to %g", schedule->minimum);
    if (schedule->warmup_epochs > 0)
        fprintf(stderr, " with %g epoch%s of warm-up from %g", schedule->warmup_epochs,
                schedule->warmup_epochs == 1 ? "" : "s", schedule->base * schedule->warmup_start);
    if (opts->momentum > 0)
        fprintf(stderr, ", %smomentum %g", opts->nesterov ? "Nesterov " : "", opts->momentum);
    if (opts->weight_decay > 0)
        fprintf(stderr, ", weight decay %g", opts->weight_decay);
    if (opts->clip_norm > 0)
        fprintf(stderr, ", gradients clipped at %g", opts->clip_norm);
    if (plan->plateau_epochs > 0)
        fprintf(stderr, ", rate times %g after %lld epoch%s without a smaller validation loss", plan->plateau_factor,
                (long long)plan->plateau_epochs, plan->plateau_epochs == 1 ? "" : "s");
    if (opts->average > 0)
        fprintf(stderr, ", average of parameters with decay %g", opts->average);
    if (plan->class_weights)
        fputs(", weighted classes", stderr);
}

/* Returns the separator to print now, and sets *separator to the one between items. */
static const char *plan_take_separator(const char **separator)
{
    const char *now = *separator;
    *separator = ", ";
    return now;
}

static void plan_print_augmentation(const lk_augment_opts *opts)
{
    const char *separator = "  images    ";
    if (opts->width_shift > 0 || opts->height_shift > 0)
        fprintf(stderr, "%sshifted by up to %g x %g of their size", plan_take_separator(&separator), opts->width_shift,
                opts->height_shift);
    if (opts->horizontal_flip)
        fprintf(stderr, "%sflipped", plan_take_separator(&separator));
    if (opts->vertical_flip)
        fprintf(stderr, "%supside down", plan_take_separator(&separator));
    if (opts->rotation > 0)
        fprintf(stderr, "%sturned by up to %g degrees", plan_take_separator(&separator), opts->rotation);
    if (opts->crop_padding > 0)
        fprintf(stderr, "%spadded by %lld and cropped", plan_take_separator(&separator), (long long)opts->crop_padding);
    if (opts->brightness > 0)
        fprintf(stderr, "%sbrightness changed by up to %g", plan_take_separator(&separator), opts->brightness);
    if (opts->contrast > 0)
        fprintf(stderr, "%scontrast changed by up to %g", plan_take_separator(&separator), opts->contrast);
    if (opts->rand_augment > 0)
        fprintf(stderr, "%sRandAugment of magnitude %lld", plan_take_separator(&separator),
                (long long)opts->rand_augment);
    if (opts->center || opts->standardize)
        fprintf(stderr, "%s%s", plan_take_separator(&separator), opts->standardize ? "standardized" : "centered");
    if (opts->cutout > 0)
        fprintf(stderr, "%sa square of %lld cut out", plan_take_separator(&separator), (long long)opts->cutout);
    if (opts->erase > 0)
        fprintf(stderr, "%sa rectangle erased in %g%%", plan_take_separator(&separator), 100 * opts->erase);
    if (opts->mixup > 0)
        fprintf(stderr, "%smixed with another, alpha %g", plan_take_separator(&separator), opts->mixup);
    if (*separator == ',')
        fputc('\n', stderr);
}

/* Prints the choices of kernels, which may change the bits of the results. */
static void plan_print_kernels(const lk_plan *plan, const lk_train_config *config)
{
    fputs("  kernels   ", stderr);
    cli_print_clean(plan->algorithms, stderr);
    if (config->execution.executor == LK_EXECUTOR_EAGER)
        fputs(", executor eager", stderr);
    if (config->execution.fuse == LK_FUSE_OFF)
        fputs(", fuse off", stderr);
    if (plan->tf32)
        fputs(", tf32", stderr);
    fprintf(stderr, ", hash %016llx\n", (unsigned long long)plan->implementations);
}

/* Warns if a step is estimated to take more than a minute. A worker of a parameter server takes whole batches; how many
 * devices it has is not known here. */
static void plan_warn_of_long_steps(const lk_plan *plan)
{
    bool is_chief = lk_strategy_kind_of(plan->strategy) == LK_STRATEGY_ASYNCHRONOUS;
    double rate = plan->assumed_rate * (is_chief ? 1 : plan->devices), minutes = plan->step_flops / rate / 60;
    bool in_days = minutes >= 48 * 60, in_hours = minutes >= 2 * 60;
    const char *unit = in_days ? "days" : in_hours ? "hours" : "minutes";
    double time = in_days ? minutes / (24 * 60) : in_hours ? minutes / 60 : minutes;
    if (minutes > 1)
        fprintf(
            stderr,
            "warning: a step is about %.2g flops, which take %.1f %s at %g GFLOP/s a device; an interrupt waits for "
            "the step's end, a second one does not\n",
            plan->step_flops, time, unit, plan->assumed_rate / 1e9);
}

void cli_print_plan(const lk_plan *plan, const lk_train_config *config)
{
    cli_print_clean(plan->model, stderr);
    fprintf(stderr, " (%lld parameters", (long long)plan->parameters);
    if (plan->frozen > 0)
        fprintf(stderr, ", %lld frozen", (long long)plan->frozen);
    fprintf(stderr, ") on ");
    cli_print_clean(plan->data, stderr);
    fputs(" (", stderr);
    cli_print_clean(plan->source, stderr);
    fputs(")\n", stderr);
    plan_print_data(plan, config);
    plan_print_augmentation(&plan->augment);
    plan_print_devices(plan, config);
    fprintf(stderr, "  training  %lld epoch%s of %lld step%s, ", (long long)plan->epochs, plan->epochs == 1 ? "" : "s",
            (long long)plan->steps_per_epoch, plan->steps_per_epoch == 1 ? "" : "s");
    if (plan->accumulate > 1)
        fprintf(stderr, "%lld an update, ", (long long)plan->accumulate);
    plan_print_optimizer(plan);
    if (plan->dtype != LK_F32 || plan->dtype_reason)
        fprintf(stderr, ", dtype %s", lk_dtype_name(plan->dtype));
    if (plan->dtype_reason)
        fprintf(stderr, " (auto: %s)", plan->dtype_reason);
    if (config->execution.recompute)
        fputs(", with recomputation", stderr);
    fprintf(stderr, ", seed %llu\n", (unsigned long long)plan->seed);
    plan_print_kernels(plan, config);
    plan_warn_of_long_steps(plan);
}
