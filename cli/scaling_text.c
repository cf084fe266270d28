#include "scaling_text.h"

#include "cli.h"

#include <math.h>
#include <string.h>

enum { MOST_DEVICES = 1024 };

static double milliseconds(double seconds)
{
    return 1e3 * seconds;
}

/* --- what both say ------------------------------------------------------------------------------------------------ */

static const char *source_of(const lk_speedup *s)
{
    return s->measured ? "against a measured run on one"
                       : "against one as estimated from the recorded steps' computing time";
}

static void print_speedup(const lk_scaling_report *r, FILE *stream)
{
    lk_speedup s = lk_scaling_speedup(r);
    if (isfinite(s.speedup))
        fprintf(stream, "speed-up %.2f on %lld devices, efficiency %.0f%%, %s\n", s.speedup, (long long)r->devices,
                100 * s.efficiency, source_of(&s));
    else if (strcmp(r->kind, "cpu") != 0)
        fputs("speed-up not measured: of GPUs a run on one device is needed to compare with\n", stream);
    else
        fputs("speed-up not measured: no steps were recorded, and there is no run on one device to compare with\n",
              stream);
}

static void print_no_steps(FILE *stream)
{
    fputs("a step's time was not measured: no epoch has the steps that it takes, or --trace records the run\n", stream);
}

static void print_no_exchange(const lk_scaling_report *r, FILE *stream)
{
    if (r->messages > 0)
        fputs("exchange: latency and bandwidth not measured: a long row was not slower than a short one\n", stream);
    else
        fputs("exchange: latency and bandwidth not measured: the run is too short\n", stream);
}

/* Where it makes figures unlike those of an idle machine. */
static void print_other_processes(const lk_scaling_report *r, FILE *stream)
{
    if (r->steps > 0 && r->core_share < 0.9)
        fprintf(stream,
                "other processes, or more devices than cores, took the cores for %.0f%% of the operators' time\n",
                100 * (1 - r->core_share));
}

/* A window that something else came into says little of the run. */
static bool is_unlike_run(const lk_scaling_report *r)
{
    double run_step = (double)r->batch_size / r->images_per_second;
    return r->steps > 0 && (r->step_seconds > 1.2 * run_step || r->step_seconds < run_step / 1.2);
}

static void print_unlike_run(const lk_scaling_report *r, FILE *stream)
{
    fprintf(stream, "the run's steps took %.2f ms in the mean: those that were recorded are not like them\n",
            milliseconds((double)r->batch_size / r->images_per_second));
}

static void print_exchange(const lk_scaling_report *r, FILE *stream)
{
    if (r->latency > 0)
        fprintf(stream, "exchange: latency %.1f us", 1e6 * r->latency);
    else
        fputs("exchange: latency too short to tell", stream);
    fprintf(stream, ", bandwidth %.2f GB/s", 1e-9 * r->bandwidth);
}

/* --- a few lines -------------------------------------------------------------------------------------------------- */

static void print_parts(const lk_scaling_report *r, FILE *stream)
{
    fprintf(stream, "a step of %.2f ms: %.2f compute, %.2f exposed exchange, %.2f waiting for the slowest",
            milliseconds(r->step_seconds), milliseconds(r->compute), milliseconds(r->exchange),
            milliseconds(r->slowest));
    fputs(" (", stream);
    cli_print_clean(r->slowest_device, stream);
    fprintf(stream, "), %.2f input wait, %.2f other\n", milliseconds(r->input), milliseconds(r->other));
}

static void print_predicted(const lk_scaling_report *r, FILE *stream)
{
    lk_scaling_prediction p;
    const char *separator = "; predicted efficiency, of as many samples a device:";
    for (int64_t k = 2; k <= MOST_DEVICES; k *= 2) {
        if (!lk_scaling_predict(r, k, true, &p))
            break;
        fprintf(stream, "%s %lld %.0f%%", separator, (long long)k, 100 * p.efficiency);
        separator = ",";
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
        print_no_steps(stream);
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
    if (isfinite(r->one_device_images_per_second) && r->devices > 1)
        fprintf(stream, ", on one device %.0f", r->one_device_images_per_second);
    fputc('\n', stream);
    if (r->devices > 1)
        print_speedup(r, stream);
}

static void print_part(const lk_scaling_report *r, const char *name, double seconds, FILE *stream)
{
    fprintf(stream, "%-36s %10.3f %6.1f%%", name, milliseconds(seconds), 100 * seconds / r->step_seconds);
}

static void print_step(const lk_scaling_report *r, FILE *stream)
{
    fprintf(stream, "\n%-36s %10s %7s\n", "a step's time", "ms", "share");
    print_part(r, "compute", r->compute, stream);
    fputc('\n', stream);
    print_part(r, "exposed exchange", r->exchange, stream);
    fputc('\n', stream);
    print_part(r, "waiting for the slowest", r->slowest, stream);
    if (*r->slowest_device) {
        fputs("  ", stream);
        cli_print_clean(r->slowest_device, stream);
    }
    fputc('\n', stream);
    print_part(r, "input wait", r->input, stream);
    fputc('\n', stream);
    print_part(r, "other", r->other, stream);
    fputc('\n', stream);
    print_part(r, "all", r->step_seconds, stream);
    fprintf(stream, "  %lld steps%s\n", (long long)r->steps, r->devices > 1 ? ", mean of all devices" : "");
    print_other_processes(r, stream);
    if (is_unlike_run(r))
        print_unlike_run(r, stream);
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
    fprintf(stream, "\n%-8s %12s  %-30s  %s\n", "", "", "as many samples a device", "the same batch");
    fprintf(stream, "%-8s %12s  %10s %8s %10s  %10s %8s %10s\n", "devices", "exchange ms", "step ms", "speed-up",
            "efficiency", "step ms", "speed-up", "efficiency");
    for (int64_t k = 2; k <= MOST_DEVICES; k *= 2) {
        fprintf(stream, "%-8lld %12.3f", (long long)k, milliseconds(lk_scaling_exchange_seconds(r, k)));
        print_prediction(r, k, true, stream);
        print_prediction(r, k, false, stream);
        fputc('\n', stream);
    }
}

void cli_print_scaling_table(const lk_scaling_report *r, FILE *stream)
{
    lk_scaling_prediction p;
    print_run(r, stream);
    print_throughput(r, stream);
    if (r->steps > 0)
        print_step(r, stream);
    else
        print_no_steps(stream);
    if (r->devices == 1)
        return;
    fputc('\n', stream);
    if (!isfinite(r->bandwidth)) {
        print_no_exchange(r, stream);
        return;
    }
    print_exchange(r, stream);
    fprintf(stream, "; a step's gradients%s: %.3f MB, %lld message%s to each device\n",
            *r->storage ? " and variables" : "", 1e-6 * (r->sliced_bytes + r->whole_bytes), (long long)r->messages,
            r->messages == 1 ? "" : "s");
    if (lk_scaling_predict(r, 2, true, &p))
        print_predictions(r, stream);
}
