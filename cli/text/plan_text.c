#include "cli/text/plan_text.h"

#include "cli/cli.h"
#include "cli/text/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `limit`: the number that was asked for; the data may have fewer. */
static void plan_print_count(FILE *out, int64_t count, int64_t limit, const char *what)
{
    fprintf(out, "%lld%s", (long long)count, what);
    if (limit > count)
        fprintf(out, " (all there are, fewer than %lld)", (long long)limit);
}

static void plan_print_data(FILE *out, const lk_plan *plan, const lk_train_config *config)
{
    fputs("  data      ", out);
    plan_print_count(out, plan->train_samples, config->data.limit_train, " training images");
    fputs(", ", out);
    plan_print_count(out, plan->val_samples, config->data.limit_val, " for validation");
    fputs(plan->data_on_devices ? ", on the devices\n" : "\n", out);
    if (plan->data_too_large)
        fputs("            prepared by the host: a quarter of a device's free memory does not take them\n", out);
}

/* Says why cores are idle: without --devices there is at most one device per shard. */
static void plan_print_idle_cores(FILE *out, const lk_plan *plan, const lk_train_config *config)
{
    long long cores = lk_device_available("cpu"), batch = plan->batch_size, shards = plan->shards;
    if (config->devices.spec || plan->devices >= cores)
        return;
    fprintf(out, "            %d of %lld cores: a batch of %lld is %lld shard%s; %s--batch-size uses more\n",
            plan->devices, cores, batch, shards, shards == 1 ? "" : "s",
            config->devices.shards || batch == 1 ? "a larger " : "more --shards or a larger ");
}

static void plan_print_devices(FILE *out, const lk_plan *plan, const lk_train_config *config)
{
    long long shards = plan->shards, devices = plan->devices, batch = plan->batch_size;
    bool is_chief = lk_strategy_kind_of(plan->strategy) == LK_STRATEGY_ASYNCHRONOUS; /* workers train, it evaluates */
    fprintf(out, "  devices   %lld%s, strategy %s", devices, is_chief ? " for the evaluation" : "", plan->strategy);
    if (plan->storage)
        fprintf(out, ", variables on %s", plan->storage);
    if (strcmp(plan->transport, "") != 0 && strcmp(plan->transport, "inproc") != 0)
        fprintf(out, ", exchange by %s", plan->transport);
    if (plan->exchange != LK_EXCHANGE_AUTO)
        fputs(plan->exchange == LK_EXCHANGE_TREE ? ", along the tree" : ", flat", out);
    fputc('\n', out);
    if (plan->compressed)
        fprintf(out, "            gradients exchanged as bf16: the bits depend on the number of devices\n");
    if (plan->reduce == LK_REDUCE_NCCL)
        fprintf(out, "            sums by NCCL: the bits depend on the number of devices\n");
    fprintf(out, "  batch     %lld in %lld shard%s", batch, shards, shards == 1 ? "" : "s");
    if (plan->micro_batch > 0)
        fprintf(out, " in pieces of %lld", (long long)plan->micro_batch);
    fputs(", ", out);
    if (is_chief)
        fputs("on the workers' devices\n", out);
    else if (batch % devices == 0 && shards % devices == 0)
        fprintf(out, "%lld samples a device\n", batch / devices);
    else
        fprintf(out, "about %.0f samples a device\n", (double)batch / (double)devices);
    if (plan->batch_norm_groups > 0)
        fprintf(out, "            batch-norm over %lld group%s of shards\n", (long long)plan->batch_norm_groups,
                plan->batch_norm_groups == 1 ? "" : "s");
    if (plan->memory_there > 0)
        fprintf(out, "  memory    %.1f of %.1f MiB are needed, by estimate\n", (double)plan->memory_needed / (1 << 20),
                (double)plan->memory_there / (1 << 20));
    plan_print_idle_cores(out, plan, config);
}

/* Prints the optimizer and its rate, and the other settings only if they have an effect. */
static void plan_print_optimizer(FILE *out, const lk_plan *plan)
{
    const lk_optimizer_opts *opts = &plan->optimizer_opts;
    const lk_schedule *schedule = &plan->schedule;
    fprintf(out, "%s, rate %g", plan->optimizer, schedule->base);
    if (schedule->kind == LK_SCHEDULE_STEP)
        fprintf(out, " in steps");
    else if (schedule->kind == LK_SCHEDULE_COSINE)
        fprintf(out, " falling to %g", schedule->minimum);
    if (schedule->warmup_epochs > 0)
        fprintf(out, " with %g epoch%s of warm-up from %g", schedule->warmup_epochs,
                schedule->warmup_epochs == 1 ? "" : "s", schedule->base * schedule->warmup_start);
    if (opts->momentum > 0)
        fprintf(out, ", %smomentum %g", opts->nesterov ? "Nesterov " : "", opts->momentum);
    if (opts->weight_decay > 0)
        fprintf(out, ", weight decay %g", opts->weight_decay);
    if (opts->clip_norm > 0)
        fprintf(out, ", gradients clipped at %g", opts->clip_norm);
    if (plan->plateau_epochs > 0)
        fprintf(out, ", rate times %g after %lld epoch%s without a smaller validation loss", plan->plateau_factor,
                (long long)plan->plateau_epochs, plan->plateau_epochs == 1 ? "" : "s");
    if (opts->average > 0)
        fprintf(out, ", average of parameters with decay %g", opts->average);
    if (plan->class_weights)
        fputs(", weighted classes", out);
}

/* Returns the separator to print now, and sets *separator to the one between items. */
static const char *plan_take_separator(const char **separator)
{
    const char *now = *separator;
    *separator = ", ";
    return now;
}

static void plan_print_augmentation(FILE *out, const lk_augment_opts *opts)
{
    const char *separator = "  images    ";
    if (opts->width_shift > 0 || opts->height_shift > 0)
        fprintf(out, "%sshifted by up to %g x %g of their size", plan_take_separator(&separator), opts->width_shift,
                opts->height_shift);
    if (opts->horizontal_flip)
        fprintf(out, "%sflipped", plan_take_separator(&separator));
    if (opts->vertical_flip)
        fprintf(out, "%supside down", plan_take_separator(&separator));
    if (opts->rotation > 0)
        fprintf(out, "%sturned by up to %g degrees", plan_take_separator(&separator), opts->rotation);
    if (opts->crop_padding > 0)
        fprintf(out, "%spadded by %lld and cropped", plan_take_separator(&separator), (long long)opts->crop_padding);
    if (opts->brightness > 0)
        fprintf(out, "%sbrightness changed by up to %g", plan_take_separator(&separator), opts->brightness);
    if (opts->contrast > 0)
        fprintf(out, "%scontrast changed by up to %g", plan_take_separator(&separator), opts->contrast);
    if (opts->rand_augment > 0)
        fprintf(out, "%sRandAugment of magnitude %lld", plan_take_separator(&separator), (long long)opts->rand_augment);
    if (opts->center || opts->standardize)
        fprintf(out, "%s%s", plan_take_separator(&separator), opts->standardize ? "standardized" : "centered");
    if (opts->cutout > 0)
        fprintf(out, "%sa square of %lld cut out", plan_take_separator(&separator), (long long)opts->cutout);
    if (opts->erase > 0)
        fprintf(out, "%sa rectangle erased in %g%%", plan_take_separator(&separator), 100 * opts->erase);
    if (opts->mixup > 0)
        fprintf(out, "%smixed with another, alpha %g", plan_take_separator(&separator), opts->mixup);
    if (*separator == ',')
        fputc('\n', out);
}

/* Prints the choices of kernels, which may change the bits of the results. */
static void plan_print_kernels(FILE *out, const lk_plan *plan, const lk_train_config *config)
{
    fputs("  kernels   ", out);
    cli_print_clean(plan->algorithms, out);
    if (config->execution.executor == LK_EXECUTOR_EAGER)
        fputs(", executor eager", out);
    if (config->execution.fuse == LK_FUSE_OFF)
        fputs(", fuse off", out);
    if (plan->tf32)
        fputs(", tf32", out);
    fprintf(out, ", hash %016llx\n", (unsigned long long)plan->implementations);
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
        cli_printf_wrapped(stderr, "warning: ",
                           "a step is about %.2g flops, which take %.1f %s at %g GFLOP/s a device; an interrupt waits "
                           "for the step's end, a second one does not",
                           plan->step_flops, time, unit, plan->assumed_rate / 1e9);
}

static void plan_write(FILE *out, const lk_plan *plan, const lk_train_config *config)
{
    cli_print_clean(plan->model, out);
    fprintf(out, " (%lld parameters", (long long)plan->parameters);
    if (plan->frozen > 0)
        fprintf(out, ", %lld frozen", (long long)plan->frozen);
    fprintf(out, ") on ");
    cli_print_clean(plan->data, out);
    fputs(" (", out);
    cli_print_clean(plan->source, out);
    fputs(")\n", out);
    plan_print_data(out, plan, config);
    plan_print_augmentation(out, &plan->augment);
    plan_print_devices(out, plan, config);
    fprintf(out, "  training  %lld epoch%s of %lld step%s, ", (long long)plan->epochs, plan->epochs == 1 ? "" : "s",
            (long long)plan->steps_per_epoch, plan->steps_per_epoch == 1 ? "" : "s");
    if (plan->accumulate > 1)
        fprintf(out, "%lld an update, ", (long long)plan->accumulate);
    plan_print_optimizer(out, plan);
    if (plan->dtype != LK_F32 || plan->dtype_reason)
        fprintf(out, ", dtype %s", lk_dtype_name(plan->dtype));
    if (plan->dtype_reason)
        fprintf(out, " (auto: %s)", plan->dtype_reason);
    if (config->execution.recompute)
        fputs(", with recomputation", out);
    fprintf(out, ", seed %llu\n", (unsigned long long)plan->seed);
    plan_print_kernels(out, plan, config);
}

/* Prints lines, of which those that begin with a space have a name of twelve columns in front. */
static void plan_print_lines(char *text)
{
    enum { NAME = 12 };
    char name[NAME + 1] = "";
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        int before = *line == ' ' && end - line > NAME ? NAME : 0;
        *end = '\0';
        snprintf(name, sizeof name, "%.*s", before, line);
        cli_print_wrapped(name, line + before, stderr);
    }
}

void cli_print_plan(const lk_plan *plan, const lk_train_config *config)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out) {
        plan_write(out, plan, config);
        fclose(out);
    }
    if (text)
        plan_print_lines(text);
    free(text);
    plan_warn_of_long_steps(plan);
}
