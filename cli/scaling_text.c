#include "scaling_text.h"

#include "cli.h"

#include <math.h>
#include <string.h>

enum { MOST_DEVICES = 1024 };

static double milliseconds(double seconds)
{
    return 1e3 * seconds;
}

/* What things are called where workers take steps by themselves, and where all devices take a step together. */
typedef struct words {
    const char *one, *many, *step, *exchange, *slowest, *input;
} words;

static words words_of(const lk_scaling_report *r)
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

/* --- what both say ------------------------------------------------------------------------------------------------ */

static const char *source_of(const lk_scaling_report *r, const lk_speedup *s)
{
    if (s->measured)
        return "against a measured run on one";
    return r->servers > 0 ? "against one as estimated from the workers' computing time"
                          : "against one as estimated from the recorded steps' computing time";
}

static void print_speedup(const lk_scaling_report *r, FILE *stream)
{
    lk_speedup s = lk_scaling_speedup(r);
    if (isfinite(s.speedup))
        fprintf(stream, "speed-up %.2f on %lld device%s, efficiency %.0f%%, %s\n", s.speedup, (long long)r->devices,
                r->devices == 1 ? "" : "s", 100 * s.efficiency, source_of(r, &s));
    else if (r->servers > 0)
        fputs("speed-up not measured: the run is too short\n", stream);
    else if (strcmp(r->kind, "cpu") != 0)
        fputs("speed-up not measured: of GPUs a run on one device is needed to compare with\n", stream);
    else
        fputs("speed-up not measured: no steps were recorded, and there is no run on one device to compare with\n",
              stream);
}

static void print_no_steps(const lk_scaling_report *r, FILE *stream)
{
    if (r->servers > 0)
        fputs("a worker's step was not measured: the first few do not count\n", stream);
    else
        fputs("a step's time was not measured: no epoch has the steps that it takes, or --trace records the run\n",
              stream);
}

static void print_no_exchange(const lk_scaling_report *r, FILE *stream)
{
    if (r->servers > 0)
        fputs("servers: latency and bandwidth not measured: no pull of all variables was slower than one of none\n",
              stream);
    else if (r->messages > 0)
        fputs("exchange: latency and bandwidth not measured: a long row was not slower than a short one\n", stream);
    else
        fputs("exchange: latency and bandwidth not measured: the run is too short\n", stream);
}

/* Where it makes figures unlike those of an idle machine. */
static void print_other_processes(const lk_scaling_report *r, FILE *stream)
{
    if (r->steps > 0 && r->core_share < 0.9)
        fprintf(stream, "other processes, or more devices than cores, took the cores for %.0f%% of the %s time\n",
                100 * (1 - r->core_share), r->servers > 0 ? "computing" : "operators'");
}

/* A window that something else came into says little of the run. */
static bool is_unlike_run(const lk_scaling_report *r)
{
    double run_step = (double)r->batch_size / r->images_per_second;
    return r->servers == 0 && r->steps > 0 && (r->step_seconds > 1.2 * run_step || r->step_seconds < run_step / 1.2);
}

static void print_unlike_run(const lk_scaling_report *r, FILE *stream)
{
    fprintf(stream, "the run's steps took %.2f ms in the mean: those that were recorded are not like them\n",
            milliseconds((double)r->batch_size / r->images_per_second));
}

static void print_exchange(const lk_scaling_report *r, FILE *stream)
{
    fputs(r->servers > 0 ? "servers: latency " : "exchange: latency ", stream);
    if (r->latency > 0)
        fprintf(stream, "%.1f us", 1e6 * r->latency);
    else
        fputs("too short to tell", stream);
    fprintf(stream, ", bandwidth %.2f GB/s", 1e-9 * r->bandwidth);
    if (r->servers > 0 && isfinite(r->server_update))
        fprintf(stream, ", an update takes %.3f ms", milliseconds(r->server_update));
    if (isfinite(lk_scaling_most_updates(r)))
        fprintf(stream, ", at most %.0f a second", lk_scaling_most_updates(r));
}

/* --- a few lines -------------------------------------------------------------------------------------------------- */

static const lk_scaling_worker *slowest_worker(const lk_scaling_report *r)
{
    for (int w = 0; w < r->workers && w < LK_SCALING_WORKERS; w++)
        if (strcmp(r->worker[w].name, r->slowest_device) == 0)
            return &r->worker[w];
    return NULL;
}

static void print_parts(const lk_scaling_report *r, FILE *stream)
{
    words w = words_of(r);
    const lk_scaling_worker *slowest = slowest_worker(r);
    fprintf(stream, "%s of %.2f ms: %.2f compute, %.2f %s, %.2f %s", w.step, milliseconds(r->step_seconds),
            milliseconds(r->compute), milliseconds(r->exchange), w.exchange, milliseconds(r->slowest), w.slowest);
    if (r->servers == 0) {
        fputs(" (", stream);
        cli_print_clean(r->slowest_device, stream);
        fputc(')', stream);
    }
    fprintf(stream, ", %.2f %s, %.2f other\n", milliseconds(r->input), w.input, milliseconds(r->other));
    if (!slowest)
        return;
    fputs("  the slowest is ", stream);
    cli_print_clean(slowest->name, stream);
    fprintf(stream, ", with %lld steps of %.2f ms: %.2f compute, %.2f %s\n", (long long)slowest->steps,
            milliseconds(slowest->step_seconds), milliseconds(slowest->compute), milliseconds(slowest->exchange),
            w.exchange);
}

static void print_predicted(const lk_scaling_report *r, FILE *stream)
{
    lk_scaling_prediction p;
    for (int64_t k = 2; k <= MOST_DEVICES && lk_scaling_predict(r, k, true, &p); k *= 2) {
        if (k == 2)
            fprintf(stream, "; predicted efficiency, of as many samples a %s:", words_of(r).one);
        fprintf(stream, "%s %lld %.0f%%", k == 2 ? "" : ",", (long long)k, 100 * p.efficiency);
    }
    fputc('\n', stream);
}

void cli_print_scaling(const lk_scaling_report *r, FILE *stream)
{
    print_speedup(r, stream);
    fputs("  ", stream);
    if (r->steps > 0)
        print_parts(r, stream);
    else
        print_no_steps(r, stream);
    fputs("  ", stream);
    if (isfinite(r->bandwidth)) {
        print_exchange(r, stream);
        print_predicted(r, stream);
    } else {
        print_no_exchange(r, stream);
    }
    if (r->steps > 0 && r->core_share < 0.9)
        fputs("  ", stream);
    print_other_processes(r, stream);
    if (is_unlike_run(r)) {
        fputs("  ", stream);
        print_unlike_run(r, stream);
    }
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static void print_run(const lk_scaling_report *r, FILE *stream)
{
    cli_print_clean(r->model, stream);
    fputs(" on ", stream);
    cli_print_clean(r->data, stream);
    fprintf(stream, ", %lld %s device%s", (long long)r->devices, r->kind, r->devices == 1 ? "" : "s");
    if (r->servers > 0)
        fprintf(stream, " of %lld worker%s, %lld server%s", (long long)r->workers, r->workers == 1 ? "" : "s",
                (long long)r->servers, r->servers == 1 ? "" : "s");
    fprintf(stream, ", strategy %s", r->strategy);
    if (*r->transport)
        fprintf(stream, " over %s", r->transport);
    if (*r->storage) {
        fputs(", variables on ", stream);
        cli_print_clean(r->storage, stream);
    }
    fprintf(stream, ", batch %lld in %lld shard%s, %s\n", (long long)r->batch_size, (long long)r->shards,
            r->shards == 1 ? "" : "s", r->dtype);
}

static void print_throughput(const lk_scaling_report *r, FILE *stream)
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
        print_speedup(r, stream);
}

static void print_part(const lk_scaling_report *r, const char *name, double seconds, FILE *stream)
{
    fprintf(stream, "%-36s %10.3f %6.1f%%", name, milliseconds(seconds), 100 * seconds / r->step_seconds);
}

static void print_step(const lk_scaling_report *r, FILE *stream)
{
    words w = words_of(r);
    char title[48];
    snprintf(title, sizeof title, "%s%s", w.step, r->servers > 0 ? "" : "'s time");
    fprintf(stream, "\n%-36s %10s %7s\n", title, "ms", "share");
    print_part(r, "compute", r->compute, stream);
    fputc('\n', stream);
    print_part(r, w.exchange, r->exchange, stream);
    fputc('\n', stream);
    print_part(r, w.slowest, r->slowest, stream);
    if (*r->slowest_device && r->servers == 0) {
        fputs("  ", stream);
        cli_print_clean(r->slowest_device, stream);
    }
    fputc('\n', stream);
    print_part(r, w.input, r->input, stream);
    fputc('\n', stream);
    print_part(r, "other", r->other, stream);
    fputc('\n', stream);
    print_part(r, "all", r->step_seconds, stream);
    fprintf(stream, "  %lld steps", (long long)r->steps);
    if (r->devices > 1 || r->workers > 1)
        fprintf(stream, ", mean of all %s", w.many);
    fputc('\n', stream);
    print_other_processes(r, stream);
    if (is_unlike_run(r))
        print_unlike_run(r, stream);
}

static void print_worker(const lk_scaling_report *r, const lk_scaling_worker *worker, FILE *stream)
{
    const double parts[] = {worker->step_seconds, worker->compute, worker->exchange,
                            worker->slowest,      worker->input,   worker->other};
    fprintf(stream, "%8lld", (long long)worker->steps);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        fprintf(stream, " %9.3f", milliseconds(parts[i]));
    fputs("  ", stream);
    cli_print_clean(worker->name, stream);
    fprintf(stream, "%s\n", strcmp(worker->name, r->slowest_device) == 0 ? ", the slowest" : "");
}

/* In ms a step. */
static void print_workers(const lk_scaling_report *r, FILE *stream)
{
    static const char *const columns[] = {"a step", "compute", "pull+push", "staleness", "work", "other"};
    fprintf(stream, "\n%8s", "steps");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        fprintf(stream, " %9s", columns[i]);
    fputs("  ms of each\n", stream);
    for (int w = 0; w < r->workers && w < LK_SCALING_WORKERS; w++)
        print_worker(r, &r->worker[w], stream);
    if (r->workers > LK_SCALING_WORKERS)
        fprintf(stream, "%8s and %lld workers that joined later\n", "", (long long)r->workers - LK_SCALING_WORKERS);
}

static void print_prediction(const lk_scaling_report *r, int64_t devices, bool weak, FILE *stream)
{
    lk_scaling_prediction p;
    if (lk_scaling_predict(r, devices, weak, &p))
        fprintf(stream, "  %10.3f %8.2f %9.1f%%", milliseconds(p.step_seconds), p.speedup, 100 * p.efficiency);
    else
        fprintf(stream, "  %10s %8s %10s", "-", "-", "-");
}

static void print_predictions(const lk_scaling_report *r, FILE *stream)
{
    words w = words_of(r);
    char title[48];
    snprintf(title, sizeof title, "as many samples a %s", w.one);
    fprintf(stream, "\n%-8s %12s  %-30s  %s\n", "", "", title, "the same batch");
    fprintf(stream, "%-8s %12s  %10s %8s %10s  %10s %8s %10s\n", w.many, "exchange ms", "step ms", "speed-up",
            "efficiency", "step ms", "speed-up", "efficiency");
    for (int64_t k = 2; k <= MOST_DEVICES; k *= 2) {
        fprintf(stream, "%-8lld %12.3f", (long long)k, milliseconds(lk_scaling_exchange_seconds(r, k)));
        print_prediction(r, k, true, stream);
        print_prediction(r, k, false, stream);
        fputc('\n', stream);
    }
}

static void print_amounts(const lk_scaling_report *r, FILE *stream)
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
    print_run(r, stream);
    print_throughput(r, stream);
    if (r->steps > 0)
        print_step(r, stream);
    else
        print_no_steps(r, stream);
    if (r->workers > 0)
        print_workers(r, stream);
    if (r->devices == 1 && r->servers == 0)
        return;
    fputc('\n', stream);
    if (!isfinite(r->bandwidth)) {
        print_no_exchange(r, stream);
        return;
    }
    print_exchange(r, stream);
    print_amounts(r, stream);
    if (lk_scaling_predict(r, 2, true, &p))
        print_predictions(r, stream);
}
