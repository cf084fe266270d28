#include "cli/cli.h"
#include "cli/interrupts.h"
#include "cli/text/progress.h"
#include "cli/train_flags.h"

#include "lockstep/trace.h"

#include <stdlib.h>
#include <string.h>

typedef struct profile_config {
    lk_train_config train; /* first, as cli_parse_train requires */
    int64_t steps, warmup, rows;
    const char *trace;
} profile_config;

#define AT(field) .offset = offsetof(profile_config, field)

/* clang-format off: one paragraph per option */
static const lk_option own_options[] = {
    CLI_STEPS_OPTION(profile_config, "number of steps to measure"),
    {.name = "warmup",
     .type = LK_OPTION_INT64,
     AT(warmup),
     .default_text = "3",
     .minimum = 0,
     .maximum = 1000000,
     .value = "N",
     .help = "number of steps to train before measuring"},
    {.name = "rows",
     .type = LK_OPTION_INT64,
     AT(rows),
     .default_text = "25",
     .minimum = 0,
     .maximum = 1000000,
     .value = "N",
     .help = "number of operators to list, those that take longest first"},
    {.name = "trace",
     .type = LK_OPTION_STRING,
     AT(trace),
     .value = "FILE",
     .help = "file for a recording of the measured steps, which ui.perfetto.dev shows (default: none)"},
};
/* clang-format on */

enum { OWN_OPTION_COUNT = sizeof own_options / sizeof own_options[0] };

static size_t profile_make_options(lk_option *table)
{
    static const char *const without[] = {CLI_EVALUATION_OPTIONS, NULL};
    return cli_train_options(own_options, OWN_OPTION_COUNT, without, table);
}

static void profile_amend(void *config)
{
    lk_train_config *train = &((profile_config *)config)->train;
    cli_leave_out_records(train);
    train->data.limit_val = 0; /* no evaluation, and nothing that needs one, which a recipe may ask for */
    train->stop = (lk_stop_config){.target_accuracy = -1, .patience = -1};
    train->optimizer.lr_plateau = NULL;
    train->batch_norm.precise = 0;
}

/* --- measuring ---------------------------------------------------------------------------------------------------- */

typedef struct profile {
    profile_config config;
    lk_trainer *trainer;
    int n_devices;    /* those that compute */
    int n_all;        /* and a storing one that does not */
    lk_dtype dtype;   /* of the peaks */
    double *peaks;    /* of each device that computes, in operations per second; 0: they cannot be measured */
    double copy;      /* mean bytes per second that a device copies; 0: not all devices are GPUs */
    double processor; /* processor time of all devices' threads, in seconds */
    lk_trace_summary *summary;
} profile;

static lk_device *profile_device(const profile *p, int d)
{
    lk_strategy *strategy = lk_trainer_strategy(p->trainer);
    return d < p->n_devices ? lk_strategy_device(strategy, d) : lk_strategy_storage(strategy);
}

static void profile_count_devices(profile *p)
{
    lk_device *storage = lk_strategy_storage(lk_trainer_strategy(p->trainer));
    p->n_devices = lk_trainer_plan(p->trainer)->devices;
    p->n_all = p->n_devices + (storage != NULL);
    for (int d = 0; d < p->n_devices; d++)
        if (profile_device(p, d) == storage)
            p->n_all = p->n_devices;
}

static int profile_count_gpus(const profile *p, int n_devices)
{
    int gpus = 0;
    for (int d = 0; d < n_devices; d++)
        gpus += strcmp(lk_device_kind(profile_device(p, d)), "cuda") == 0;
    return gpus;
}

/* Measures each device's peak: for the run's dtype if every device is a GPU, else for f32. For GPUs also measures a
 * copy. */
static lk_status profile_measure_peaks(profile *p)
{
    bool all_gpus = profile_count_gpus(p, p->n_devices) == p->n_devices;
    p->dtype = all_gpus ? lk_trainer_plan(p->trainer)->dtype : LK_F32;
    for (int d = 0; d < p->n_devices; d++) {
        double copy = 0;
        lk_device *device = profile_device(p, d);
        lk_status status = lk_device_measure_peak(device, p->dtype, &p->peaks[d]);
        if (status == LK_ERR_UNSUPPORTED) { /* the devices are of one kind */
            lk_error_clear();
            return LK_OK;
        }
        if (status == LK_OK && all_gpus)
            status = lk_device_measure_copy(device, &copy);
        if (status != LK_OK)
            return status;
        p->copy += copy / p->n_devices;
    }
    return LK_OK;
}

static lk_status profile_processor_seconds(const profile *p, double *sum)
{
    *sum = 0;
    for (int d = 0; d < p->n_all; d++) {
        double seconds = 0;
        lk_status status = lk_device_processor_seconds(profile_device(p, d), &seconds);
        if (status != LK_OK)
            return status;
        *sum += seconds;
    }
    return LK_OK;
}

static lk_status profile_run_recorded(profile *p, lk_trace **trace)
{
    double before, after;
    lk_status status = profile_processor_seconds(p, &before);
    if (status == LK_OK)
        status = lk_trace_start(NULL);
    if (status != LK_OK)
        return status;
    status = lk_trainer_run(p->trainer, p->config.steps);
    if (status == LK_OK)
        status = lk_wait_all();
    *trace = lk_trace_stop();
    if (status == LK_OK)
        status = profile_processor_seconds(p, &after);
    if (status == LK_OK)
        p->processor = after - before;
    return status;
}

static lk_status profile_use_recording(profile *p, const lk_trace *trace)
{
    long long dropped = (long long)lk_trace_dropped(trace);
    if (dropped > 0)
        fprintf(stderr, "lockstep: %lld events did not fit and are missing below; measure fewer --steps\n", dropped);
    p->summary = lk_trace_summarize(trace);
    if (!p->summary)
        return lk_error_status();
    return p->config.trace ? lk_trace_write(trace, p->config.trace) : LK_OK;
}

static lk_status profile_measure(profile *p)
{
    lk_trace *trace = NULL;
    lk_status status = p->config.trace ? lk_trace_write(NULL, p->config.trace) : LK_OK;
    if (status == LK_OK)
        status = profile_measure_peaks(p);
    if (status == LK_OK && p->config.warmup > 0)
        status = lk_trainer_run(p->trainer, p->config.warmup);
    if (status == LK_OK)
        status = lk_wait_all();
    if (status == LK_OK)
        status = profile_run_recorded(p, &trace);
    if (status == LK_OK)
        status = profile_use_recording(p, trace);
    lk_trace_release(trace);
    return status;
}

/* --- the operators ------------------------------------------------------------------------------------------------ */

static bool profile_has_peaks(const profile *p)
{
    return p->peaks[0] > 0;
}

static double profile_least_peak(const profile *p)
{
    double least = p->peaks[0];
    for (int d = 1; d < p->n_devices; d++)
        least = p->peaks[d] < least ? p->peaks[d] : least;
    return least;
}

static double profile_mean_peak(const profile *p)
{
    double sum = 0;
    for (int d = 0; d < p->n_devices; d++)
        sum += p->peaks[d];
    return sum / p->n_devices;
}

/* Returns the measured time, in seconds, summed over all devices. */
static double profile_device_seconds(const profile *p)
{
    return p->summary->seconds * p->summary->n_devices;
}

static double profile_per_step(const profile *p, double seconds)
{
    return 1e3 * seconds / (double)p->config.steps;
}

/* Counts the samples of the measured steps; an epoch's last batch may be smaller. */
static int64_t profile_count_samples(const profile *p)
{
    const lk_plan *plan = lk_trainer_plan(p->trainer);
    int64_t samples = 0;
    for (int64_t step = p->config.warmup; step < p->config.warmup + p->config.steps; step++) {
        int64_t before = step % plan->steps_per_epoch * plan->batch_size, left = plan->train_samples - before;
        samples += left < plan->batch_size ? left : plan->batch_size;
    }
    return samples;
}

static void profile_print_head(const profile *p)
{
    const lk_plan *plan = lk_trainer_plan(p->trainer);
    printf("%s on %s, %d device%s, batch %lld in %lld shard%s: %lld step%s of %.2f ms after %lld, %.0f images/s\n",
           plan->model, plan->data, p->n_devices, p->n_devices == 1 ? "" : "s", (long long)plan->batch_size,
           (long long)plan->shards, plan->shards == 1 ? "" : "s", (long long)p->config.steps,
           p->config.steps == 1 ? "" : "s", profile_per_step(p, p->summary->seconds), (long long)p->config.warmup,
           (double)profile_count_samples(p) / p->summary->seconds);
    if (strcmp(plan->algorithms, "fast") != 0) {
        fputs("algorithms ", stdout);
        cli_print_clean(plan->algorithms, stdout);
        printf(", hash %016llx\n", (unsigned long long)plan->implementations);
    }
    if (!profile_has_peaks(p)) {
        printf("peak of a device: not known for %s\n\n", lk_device_name(profile_device(p, 0)));
        return;
    }
    printf("peak of a device, %s, measured: %.1f GFLOP/s",
           p->dtype == LK_BF16 ? "bf16"
           : plan->tf32        ? "tf32"
                               : "f32",
           1e-9 * profile_mean_peak(p));
    if (p->n_devices > 1)
        printf(" (mean; the least is %.1f)", 1e-9 * profile_least_peak(p));
    if (p->copy > 0)
        printf("; a copy in its memory: %.1f GB/s", 1e-9 * p->copy);
    printf("\n\n");
}

/* These return the share of the peak that an operator reaches, and the share of a copy's bytes per second. */
static double profile_peak_share(const profile *p, const lk_trace_operator *row)
{
    return row->seconds > 0 && profile_has_peaks(p) ? row->flops / row->seconds / profile_mean_peak(p) : 0;
}

static double profile_copy_share(const profile *p, const lk_trace_operator *row)
{
    return row->seconds > 0 && p->copy > 0 ? row->bytes / row->seconds / p->copy : 0;
}

static void profile_print_operator(const profile *p, const lk_trace_operator *row)
{
    bool counts = row->flops > 0 && row->seconds > 0;
    printf("%-34s %8lld %10.3f %6.1f%%", row->name, (long long)row->calls, profile_per_step(p, row->seconds),
           100 * row->seconds / profile_device_seconds(p));
    if (counts)
        printf(" %9.1f", 1e-9 * row->flops / row->seconds);
    else
        printf(" %9s", "");
    if (profile_has_peaks(p) && counts)
        printf(" %6.0f%%", 100 * profile_peak_share(p, row));
    else if (profile_has_peaks(p))
        printf(" %7s", "");
    if (p->copy > 0)
        printf(" %7.0f%%", 100 * profile_copy_share(p, row));
    printf("  %s", row->problem);
    if (strcmp(row->category, "operator") != 0)
        printf("  (%s)", row->category);
    putchar('\n');
}

static lk_trace_operator profile_sum_of_rows(const lk_trace_summary *summary, int first)
{
    lk_trace_operator sum = {.category = "operator"};
    for (int i = first; i < summary->n_operators; i++) {
        sum.calls += summary->operators[i].calls;
        sum.seconds += summary->operators[i].seconds;
        sum.flops += summary->operators[i].flops;
        sum.bytes += summary->operators[i].bytes;
    }
    return sum;
}

static void profile_print_operators(const profile *p)
{
    const lk_trace_summary *summary = p->summary;
    int rows = p->config.rows < summary->n_operators ? (int)p->config.rows : summary->n_operators;
    printf("%-34s %8s %10s %7s %9s%s%s  %s\n", "operator", "calls", "ms a step", "share", "GFLOP/s",
           profile_has_peaks(p) ? " of peak" : "", p->copy > 0 ? "  of copy" : "", "inputs -> outputs");
    for (int i = 0; i < rows; i++)
        profile_print_operator(p, &summary->operators[i]);
    lk_trace_operator rest = profile_sum_of_rows(summary, rows), all = profile_sum_of_rows(summary, 0);
    char name[64];
    snprintf(name, sizeof name, "%d others", summary->n_operators - rows);
    rest.name = name;
    rest.problem = "";
    all.name = "all operators";
    all.problem = "";
    if (rows < summary->n_operators)
        profile_print_operator(p, &rest);
    profile_print_operator(p, &all);
    for (int i = 0; i < rows; i++) {
        if (profile_peak_share(p, &summary->operators[i]) <= 1.005) /* printed as 100% */
            continue;
        fputs("Above 100% of peak: Winograd's convolution counts the operations of a direct one, and does fewer.\n",
              stdout);
        break;
    }
}

/* --- parts of the time -------------------------------------------------------------------------------------------- */

enum { COMPUTE, SHARD_SUMS, EXCHANGE, SLOWEST, INPUT, OTHER, PART_COUNT };

static const char *const part_names[PART_COUNT] = {
    "compute", "sums over own shards", "exposed exchange", "waiting for the slowest device", "input wait", "other",
};

static double profile_part(const lk_trace_device *device, int part)
{
    const double parts[PART_COUNT] = {device->compute, device->shard_sums, device->exchange,
                                      device->slowest, device->input,      device->other};
    return parts[part];
}

static bool profile_computes(const profile *p, const lk_trace_device *device)
{
    for (int d = 0; d < p->n_devices; d++)
        if (strcmp(lk_device_name(profile_device(p, d)), device->name) == 0)
            return true;
    return false;
}

/* Returns the share of a part in the time of the devices that compute. A device that only stores waits for them most
 * of the time, which bounds nothing. */
static double profile_part_share(const profile *p, int part)
{
    double seconds = 0;
    for (int d = 0; d < p->summary->n_devices; d++)
        if (profile_computes(p, &p->summary->devices[d]))
            seconds += profile_part(&p->summary->devices[d], part);
    return seconds / (p->summary->seconds * p->n_devices);
}

static void profile_print_parts(const profile *p)
{
    enum { SHOWN = 8 };
    int columns = p->summary->n_devices > 1 && p->summary->n_devices <= SHOWN ? p->summary->n_devices : 0;
    printf("\n%-32s %10s %7s", "a step's time", "ms a step", "share");
    for (int d = 0; d < columns; d++)
        printf(" %8s", p->summary->devices[d].name);
    putchar('\n');
    for (int part = 0; part < PART_COUNT; part++) {
        printf("%-32s %10.3f %6.1f%%", part_names[part],
               profile_per_step(p, profile_part_share(p, part) * p->summary->seconds),
               100 * profile_part_share(p, part));
        for (int d = 0; d < columns; d++)
            printf(" %7.1f%%", 100 * profile_part(&p->summary->devices[d], part) / p->summary->seconds);
        putchar('\n');
    }
}

/* Returns the share of the operators' time in which their threads had no core; 0 for devices whose operators need
 * none. */
static double profile_other_processes_share(const profile *p)
{
    if (profile_count_gpus(p, p->n_all) > 0 || !profile_has_peaks(p))
        return 0;
    double seconds = profile_sum_of_rows(p->summary, 0).seconds;
    return p->processor < seconds ? 1 - p->processor / seconds : 0;
}

/* Prints what bounds the run. Other processes do if they had the cores for a tenth of the operators' time. Else the
 * largest part other than compute does, if it takes a tenth of all time. Else compute does, and in it the operator that
 * takes longest. */
static void profile_print_bound(const profile *p)
{
    static const char *const cures[PART_COUNT] = {
        [SHARD_SUMS] = "fewer --shards make fewer sums",
        [EXCHANGE] = "a larger --batch-size exchanges the same for more samples",
        [SLOWEST] = "the devices have unequal work or cores, or other processes have one of the cores",
        [INPUT] = "more --workers prepare more batches",
        [OTHER] = "other processes keep threads from running, or calls cost too much in steps this small",
    };
    int largest = SHARD_SUMS;
    for (int part = SHARD_SUMS; part < PART_COUNT; part++)
        largest = profile_part_share(p, part) > profile_part_share(p, largest) ? part : largest;
    putchar('\n');
    if (profile_other_processes_share(p) >= 0.1) {
        printf("Bound by other processes, which had the cores for %.0f%% of the operators' time: figures are that much "
               "too low.\n",
               100 * profile_other_processes_share(p));
        return;
    }
    if (profile_part_share(p, largest) >= 0.1) {
        printf("Bound by %s, %.0f%% of the time: %s.\n", part_names[largest], 100 * profile_part_share(p, largest),
               cures[largest]);
        return;
    }
    const lk_trace_operator *first = p->summary->operators;
    bool by_memory = profile_copy_share(p, first) > profile_peak_share(p, first);
    printf("Bound by compute, %.0f%% of the time: %s %s takes most, %.0f%%", 100 * profile_part_share(p, COMPUTE),
           first->name, first->problem, 100 * first->seconds / profile_device_seconds(p));
    if (by_memory)
        printf(", bound by memory, at %.0f%% of a copy", 100 * profile_copy_share(p, first));
    else if (first->flops > 0 && profile_has_peaks(p))
        printf(", at %.0f%% of the peak", 100 * profile_peak_share(p, first));
    printf(".\n");
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static lk_status profile_trainer(profile *p)
{
    profile_count_devices(p);
    p->peaks = calloc((size_t)p->n_devices, sizeof *p->peaks);
    if (!p->peaks)
        return LK_ERR_MEMORY;
    lk_status status = profile_measure(p);
    if (status != LK_OK)
        return status;
    profile_print_head(p);
    profile_print_operators(p);
    profile_print_parts(p);
    profile_print_bound(p);
    return LK_OK;
}

static int profile_run(int argc, char **argv)
{
    profile p = {0};
    lk_option options[CLI_MAX_OPTIONS];
    size_t count = profile_make_options(options);
    const char *engine = getenv("LOCKSTEP_ENGINE");
    if (cli_parse_train(options, count, argc, argv, &p.config, profile_amend) != LK_OK)
        return cli_fail();
    if (cli_check_one_process(&p.config.train) != 0)
        return 2;
    if (engine && strcmp(engine, "sync") == 0)
        return cli_usage_error(
            "profile: LOCKSTEP_ENGINE must not be sync: devices then have no threads whose time could be measured");
    if (p.config.trace && *p.config.trace && cli_check_file("trace", p.config.trace) != 0)
        return 1;
    lk_log_set(cli_print_log, NULL, LK_LOG_INFO);
    cli_catch_interrupts(cli_interrupt_trainer);
    p.trainer = lk_trainer_new(&p.config.train);
    cli_set_work(p.trainer);
    lk_status status = p.trainer ? profile_trainer(&p) : lk_error_status();
    cli_set_work(NULL);
    lk_trainer_release(p.trainer);
    lk_trace_summary_release(p.summary);
    free(p.peaks);
    return status == LK_OK ? 0 : cli_fail();
}

const cli_command cmd_profile = {
    .name = "profile",
    .summary = "Train some steps and show where their time goes",
    .details =
        "Prints for each operator its calls, its time, its share of the devices' time, its floating-point operations\n"
        "per second, and their share of the peak that was measured on the devices. Then it prints where the devices'\n"
        "time went; one that only stores the variables has a column, but no part in the shares:\n"
        "  compute             operators other than the following\n"
        "  sums over own shards\n"
        "                      operators that sum over the shards of one device\n"
        "  exposed exchange    operators that sum over several devices, and waits while they run on another device\n"
        "  waiting for the slowest device\n"
        "                      other waits for other devices\n"
        "  input wait          idle because a batch was not ready\n"
        "  other               idle for another reason, waits for a core, and time between operators\n"
        "\n"
        "The last line says what bounds the run: other processes, if they had the cores for at least a tenth of the\n"
        "operators' time; else the largest part other than compute, if it takes at least a tenth of the time; else\n"
        "compute. Winograd's convolution counts the operations that it saves, so it can exceed the peak.\n"
        "\n"
        "On GPUs, operators are timed by the GPU, and other processes are not told apart. Next to the share of the\n"
        "peak stands the share of a copy: the bytes of an operator's inputs and outputs, compared with those that a\n"
        "copy in the GPU's memory reads and writes in the same time. The larger share is what bounds the operator.\n"
        "It may exceed 100% for data in the GPU's caches.\n",
    .make_options = profile_make_options,
    .run = profile_run,
};
