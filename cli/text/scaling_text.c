#include "cli/text/scaling_text.h"

#include "cli/cli.h"
#include "cli/text/progress.h"

#include <math.h>
#include <string.h>

enum { MOST_DEVICES = 1024 };

static double scaling_text_in_milliseconds(double seconds)
{
    return 1e3 * seconds;
}

/* Terms that differ between workers, which step on their own, and devices, which step together. */
typedef struct words {
    const char *one, *many, *step, *exchange, *slowest, *input;
} words;

static words scaling_words(const lk_scaling_report *r)
{
    if (r->servers > 0)
        return (words){"worker",
                       "workers",
                       "a worker's step",
                       "pulling and pushing",
                       "waiting because of --max-staleness",
                       "waiting for work or input"};
    return (words){"device", "devices", "a step", "exposed exchange", "waiting for the slowest", "input wait"};
}

/* --- lines of both reports ---------------------------------------------------------------------------------------- */

static const char *scaling_text_source_of(const lk_scaling_report *r, const lk_speedup *s)
{
    if (s->measured)
        return "against a measured run on one";
    return r->servers > 0 ? "against one as estimated from the workers' computing time"
                          : "against one as estimated from the recorded steps' computing time";
}

static bool scaling_text_is_unlike_run(const lk_scaling_report *r)
{
    return lk_scaling_doubts(r) & LK_SCALING_UNLIKE_RUN;
}

bool cli_is_disturbed(const lk_scaling_report *r)
{
    return lk_scaling_doubts(r) & LK_SCALING_DISTURBED;
}

static bool scaling_text_is_believed(const lk_scaling_report *r, const lk_speedup *s)
{
    return isfinite(s->speedup) && !cli_is_disturbed(r) && (s->measured || !scaling_text_is_unlike_run(r));
}

/* Gives no number that is not believed. */
static void scaling_text_print_speedup(const lk_scaling_report *r, FILE *stream)
{
    lk_speedup s = lk_scaling_speedup(r);
    if (scaling_text_is_believed(r, &s))
        cli_printf_wrapped(stream, "speed-up ", "%.2f on %lld device%s, efficiency %.0f%%, %s", s.speedup,
                           (long long)r->devices, r->devices == 1 ? "" : "s", 100 * s.efficiency,
                           scaling_text_source_of(r, &s));
    else if (isfinite(s.speedup) && cli_is_disturbed(r))
        cli_printf_wrapped(
            stream, "speed-up unclear: ", "other processes, or more devices than cores, took %.0f%% of the cores' time",
            100 * (1 - r->core_share));
    else if (isfinite(s.speedup))
        cli_print_wrapped("speed-up unclear: ", "the recorded steps took other times than the run's", stream);
    else if (r->servers > 0)
        cli_print_wrapped("speed-up not measured: ", "the run is too short", stream);
    else if (strcmp(r->kind, "cpu") != 0)
        cli_print_wrapped("speed-up not measured: ", "it needs a run on one device to compare with", stream);
    else
        cli_print_wrapped("speed-up not measured: ",
                          "no steps were recorded, and there is no run on one device to compare with", stream);
}

static void scaling_text_print_no_steps(const lk_scaling_report *r, FILE *stream)
{
    if (r->servers > 0)
        fputs("a worker's step was not measured: the first few do not count\n", stream);
    else
        fputs("a step's time was not measured: the epochs have too few steps, or --trace recorded the run\n", stream);
}

static void scaling_text_print_no_exchange(const lk_scaling_report *r, FILE *stream)
{
    if (r->servers > 0)
        fputs("servers: latency and bandwidth not measured: no pull of all variables was slower than one of none\n",
              stream);
    else if (strcmp(r->kind, "pjrt") == 0 || strcmp(r->kind, "tpu") == 0)
        fputs("exchange: not measured: its model does not fit devices of a plug-in, which send whole tensors\n",
              stream);
    else if (r->messages > 0)
        fputs("exchange: latency and bandwidth not measured: a long row was not slower than a short one\n", stream);
    else
        fputs("exchange: latency and bandwidth not measured: the run is too short\n", stream);
}

void cli_print_other_processes(const lk_scaling_report *r, const char *indent, FILE *stream)
{
    if (cli_is_disturbed(r))
        fprintf(stream, "%sother processes, or more devices than cores, took the cores for %.0f%% of the %s time\n",
                indent, 100 * (1 - r->core_share), r->servers > 0 ? "computing" : "operators'");
}

static void scaling_text_print_unlike_run(const lk_scaling_report *r, const char *indent, FILE *stream)
{
    if (scaling_text_is_unlike_run(r))
        fprintf(stream, "%sthe run's steps took %.2f ms on average: the recorded ones are not typical\n", indent,
                scaling_text_in_milliseconds((double)r->batch_size / r->images_per_second));
}

static void scaling_text_print_exchange(const lk_scaling_report *r, FILE *stream)
{
    fputs(r->servers > 0 ? "servers: latency " : "exchange: latency ", stream);
    if (r->latency > 0)
        fprintf(stream, "%.1f us", 1e6 * r->latency);
    else
        fputs("too short to tell", stream);
    fprintf(stream, ", bandwidth %.2f GB/s", 1e-9 * r->bandwidth);
    if (r->servers > 0 && isfinite(r->server_update))
        fprintf(stream, ", an update takes %.3f ms", scaling_text_in_milliseconds(r->server_update));
    if (isfinite(lk_scaling_most_updates(r)))
        fprintf(stream, ", at most %.0f a second", lk_scaling_most_updates(r));
}

/* --- the short report --------------------------------------------------------------------------------------------- */

static const lk_scaling_worker *scaling_text_slowest_worker(const lk_scaling_report *r)
{
    for (int w = 0; w < r->workers && w < LK_SCALING_WORKERS; w++)
        if (strcmp(r->worker[w].name, r->slowest_device) == 0)
            return &r->worker[w];
    return NULL;
}

static void scaling_print_parts(const lk_scaling_report *r, FILE *stream)
{
    words w = scaling_words(r);
    const lk_scaling_worker *slowest = scaling_text_slowest_worker(r);
    fprintf(stream, "%s of %.2f ms: %.2f compute, %.2f %s, %.2f %s", w.step,
            scaling_text_in_milliseconds(r->step_seconds), scaling_text_in_milliseconds(r->compute),
            scaling_text_in_milliseconds(r->exchange), w.exchange, scaling_text_in_milliseconds(r->slowest), w.slowest);
    if (r->servers == 0) {
        fputs(" (", stream);
        cli_print_clean(r->slowest_device, stream);
        fputc(')', stream);
    }
    fprintf(stream, ", %.2f %s, %.2f other\n", scaling_text_in_milliseconds(r->input), w.input,
            scaling_text_in_milliseconds(r->other));
    if (!slowest)
        return;
    fputs("  the slowest is ", stream);
    cli_print_clean(slowest->name, stream);
    fprintf(stream, ", with %lld steps of %.2f ms: %.2f compute, %.2f %s\n", (long long)slowest->steps,
            scaling_text_in_milliseconds(slowest->step_seconds), scaling_text_in_milliseconds(slowest->compute),
            scaling_text_in_milliseconds(slowest->exchange), w.exchange);
}

static void scaling_text_print_predicted(const lk_scaling_report *r, FILE *stream)
{
    lk_scaling_prediction p;
    for (int64_t k = 2; k <= MOST_DEVICES && lk_scaling_predict(r, k, true, &p); k *= 2) {
        if (k == 2)
            fprintf(stream, "; predicted efficiency, of as many samples a %s:", scaling_words(r).one);
        fprintf(stream, "%s %lld %.0f%%", k == 2 ? "" : ",", (long long)k, 100 * p.efficiency);
    }
    fputc('\n', stream);
}

void cli_print_scaling(const lk_scaling_report *r, bool verbose, FILE *stream)
{
    scaling_text_print_speedup(r, stream);
    if (!verbose)
        return;
    fputs("  ", stream);
    if (r->steps > 0)
        scaling_print_parts(r, stream);
    else
        scaling_text_print_no_steps(r, stream);
    fputs("  ", stream);
    if (isfinite(r->bandwidth)) {
        scaling_text_print_exchange(r, stream);
        scaling_text_print_predicted(r, stream);
    } else {
        scaling_text_print_no_exchange(r, stream);
    }
    cli_print_other_processes(r, "  ", stream);
    scaling_text_print_unlike_run(r, "  ", stream);
}

/* --- the full report ---------------------------------------------------------------------------------------------- */

static void print_scaling_run(const lk_scaling_report *r, FILE *stream)
{
    cli_print_clean(r->model, stream);
    fputs(" on ", stream);
    cli_print_clean(r->data, stream);
    fprintf(stream, ", %lld ", (long long)r->devices);
    cli_print_clean(r->kind, stream);
    fprintf(stream, " device%s", r->devices == 1 ? "" : "s");
    if (r->servers > 0)
        fprintf(stream, " of %lld worker%s, %lld server%s", (long long)r->workers, r->workers == 1 ? "" : "s",
                (long long)r->servers, r->servers == 1 ? "" : "s");
    fputs(", strategy ", stream);
    cli_print_clean(r->strategy, stream);
    if (*r->transport) {
        fputs(" over ", stream);
        cli_print_clean(r->transport, stream);
    }
    if (*r->storage) {
        fputs(", variables on ", stream);
        cli_print_clean(r->storage, stream);
    }
    fprintf(stream, ", batch %lld in %lld shard%s, ", (long long)r->batch_size, (long long)r->shards,
            r->shards == 1 ? "" : "s");
    cli_print_clean(r->dtype, stream);
    fputc('\n', stream);
}

static void scaling_print_throughput(const lk_scaling_report *r, FILE *stream)
{
    if (isfinite(r->images_per_second))
        fprintf(stream, "%.0f images/s", r->images_per_second);
    else
        fputs("images/s not measured", stream);
    bool is_alone = r->devices == 1 && r->servers == 0;
    if (isfinite(r->one_device_images_per_second) && !is_alone)
        fprintf(stream, ", on one device %.0f", r->one_device_images_per_second);
    fputc('\n', stream);
    if (!is_alone)
        scaling_text_print_speedup(r, stream);
}

static void scaling_text_print_step(const lk_scaling_report *r, FILE *stream)
{
    enum { SLOWEST = 2, ALL = 5 };
    words w = scaling_words(r);
    const struct {
        const char *name;
        double seconds;
    } parts[] = {{"compute", r->compute}, {w.exchange, r->exchange}, {w.slowest, r->slowest},
                 {w.input, r->input},     {"other", r->other},       {"all", r->step_seconds}};
    char title[48];
    snprintf(title, sizeof title, "%s%s", w.step, r->servers > 0 ? "" : "'s time");
    fprintf(stream, "\n%-36s %10s %7s\n", title, "ms", "share");
    for (int i = 0; i <= ALL; i++) {
        fprintf(stream, "%-36s %10.3f %6.1f%%", parts[i].name, scaling_text_in_milliseconds(parts[i].seconds),
                100 * parts[i].seconds / r->step_seconds);
        if (i == SLOWEST && *r->slowest_device && r->servers == 0) {
            fputs("  ", stream);
            cli_print_clean(r->slowest_device, stream);
        }
        if (i < ALL)
            fputc('\n', stream);
    }
    fprintf(stream, "  %lld step%s", (long long)r->steps, r->steps == 1 ? "" : "s");
    if (r->devices > 1 || r->workers > 1)
        fprintf(stream, ", mean of all %s", w.many);
    fputc('\n', stream);
    cli_print_other_processes(r, "", stream);
    scaling_text_print_unlike_run(r, "", stream);
}

/* A worker's gain is its part of the speed-up, by the share of the samples that it took. */
static void scaling_text_print_gain(const lk_scaling_report *r, const lk_scaling_worker *worker, FILE *stream)
{
    double share = (double)worker->samples / (r->step_samples * (double)r->steps);
    lk_speedup s = lk_scaling_speedup(r);
    if (scaling_text_is_believed(r, &s))
        fprintf(stream, " %9.0f %6.2f", share * r->images_per_second, share * s.speedup);
    else
        fprintf(stream, " %9.0f %6s", share * r->images_per_second, "-");
}

static void scaling_text_print_worker(const lk_scaling_report *r, const lk_scaling_worker *worker, FILE *stream)
{
    const double parts[] = {worker->step_seconds, worker->compute, worker->exchange,
                            worker->slowest,      worker->input,   worker->other};
    fprintf(stream, "%8lld", (long long)worker->steps);
    if (worker->steps > 0)
        scaling_text_print_gain(r, worker, stream);
    else
        fprintf(stream, " %9s %6s", "-", "-");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (isfinite(parts[i]))
            fprintf(stream, " %9.3f", scaling_text_in_milliseconds(parts[i]));
        else
            fprintf(stream, " %9s", "-");
    }
    fputs("  ", stream);
    cli_print_clean(worker->name, stream);
    fprintf(stream, "%s\n", strcmp(worker->name, r->slowest_device) == 0 ? ", the slowest" : "");
}

/* Times are milliseconds per step. */
static void scaling_text_print_workers(const lk_scaling_report *r, FILE *stream)
{
    static const char *const columns[] = {"a step", "compute", "pull+push", "staleness", "work", "other"};
    fprintf(stream, "\n%8s %9s %6s", "steps", "images/s", "gain");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        fprintf(stream, " %9s", columns[i]);
    fputs("  ms of each step\n", stream);
    for (int w = 0; w < r->workers && w < LK_SCALING_WORKERS; w++)
        scaling_text_print_worker(r, &r->worker[w], stream);
    if (r->workers > LK_SCALING_WORKERS)
        fprintf(stream, "%8s and %lld workers that joined later\n", "", (long long)r->workers - LK_SCALING_WORKERS);
}

static void scaling_text_print_prediction(const lk_scaling_report *r, int64_t devices, bool weak, FILE *stream)
{
    lk_scaling_prediction p;
    if (lk_scaling_predict(r, devices, weak, &p))
        fprintf(stream, "  %10.3f %8.2f %9.1f%%", scaling_text_in_milliseconds(p.step_seconds), p.speedup,
                100 * p.efficiency);
    else
        fprintf(stream, "  %10s %8s %10s", "-", "-", "-");
}

static void scaling_text_print_predictions(const lk_scaling_report *r, FILE *stream)
{
    words w = scaling_words(r);
    char title[48];
    snprintf(title, sizeof title, "as many samples a %s", w.one);
    fprintf(stream, "\n%-8s %12s  %-30s  %s\n", "", "", title, "the same batch");
    fprintf(stream, "%-8s %12s  %10s %8s %10s  %10s %8s %10s\n", w.many, "exchange ms", "step ms", "speed-up",
            "efficiency", "step ms", "speed-up", "efficiency");
    for (int64_t k = 2; k <= MOST_DEVICES; k *= 2) {
        fprintf(stream, "%-8lld %12.3f", (long long)k, scaling_text_in_milliseconds(lk_scaling_exchange_seconds(r, k)));
        scaling_text_print_prediction(r, k, true, stream);
        scaling_text_print_prediction(r, k, false, stream);
        fputc('\n', stream);
    }
}

static void scaling_text_print_amounts(const lk_scaling_report *r, FILE *stream)
{
    double megabytes = 1e-6 * (r->sliced_bytes + r->whole_bytes);
    const char *plural = r->messages == 1 ? "" : "s";
    if (r->servers > 0)
        fprintf(stream, "; a step's variables and gradients: %.3f MB, %lld message%s to and fro\n", megabytes,
                (long long)r->messages, plural);
    else
        fprintf(stream, "; a step's gradients%s: %.3f MB, %lld message%s to each device\n",
                *r->storage ? " and variables" : "", megabytes, (long long)r->messages, plural);
}

void cli_print_scaling_table(const lk_scaling_report *r, FILE *stream)
{
    lk_scaling_prediction p;
    print_scaling_run(r, stream);
    scaling_print_throughput(r, stream);
    if (r->steps > 0)
        scaling_text_print_step(r, stream);
    else
        scaling_text_print_no_steps(r, stream);
    if (r->steps > 0 && r->workers > 0)
        scaling_text_print_workers(r, stream);
    if (r->devices == 1 && r->servers == 0)
        return;
    fputc('\n', stream);
    if (!isfinite(r->bandwidth)) {
        scaling_text_print_no_exchange(r, stream);
        return;
    }
    scaling_text_print_exchange(r, stream);
    scaling_text_print_amounts(r, stream);
    if (lk_scaling_predict(r, 2, true, &p))
        scaling_text_print_predictions(r, stream);
}
