#include "train/parameter_server/ps_report.h"

#include "train/parameter_server/ps_times.h"

#include <math.h>
#include <stdio.h>

/* --- workers ------------------------------------------------------------------------------------------------------ */

/* Returns the rest of a step's time, at least 0: by rounding, the sum of its parts may exceed the total. */
static double ps_report_other_seconds(const lk_ps_times *t)
{
    return fmax(t->seconds - t->compute - t->exchange - t->stale - t->input, 0);
}

static void ps_report_name_worker(char *name, size_t size, const lk_ps_worker_record *worker)
{
    snprintf(name, size, "worker %lld on %s", (long long)worker->worker, worker->host);
}

static void ps_report_put_worker(const lk_ps_worker_record *worker, lk_scaling_worker *to)
{
    const lk_ps_times *t = &worker->times;
    double steps = t->steps > 0 ? (double)t->steps : NAN;
    ps_report_name_worker(to->name, sizeof to->name, worker);
    to->devices = worker->devices;
    to->steps = t->steps;
    to->samples = t->samples;
    to->step_seconds = t->seconds / steps;
    to->compute = t->compute / steps;
    to->exchange = t->exchange / steps;
    to->slowest = t->stale / steps;
    to->input = t->input / steps;
    to->other = ps_report_other_seconds(t) / steps;
    to->computing = t->computing / steps;
}

/* Fills in the means over all steps, as of one worker that does all of them. */
static void ps_report_put_means(const lk_ps_times *sum, lk_scaling_report *r)
{
    lk_scaling_worker mean;
    lk_ps_worker_record all = {.times = *sum};
    ps_report_put_worker(&all, &mean);
    r->steps = mean.steps;
    r->step_samples = (double)sum->samples / (double)sum->steps;
    r->step_seconds = mean.step_seconds;
    r->compute = mean.compute;
    r->exchange = mean.exchange;
    r->slowest = mean.slowest;
    r->input = mean.input;
    r->other = mean.other;
    r->computing = mean.computing;
    r->core_share = sum->busiest < sum->compute ? sum->busiest / sum->compute : 1;
}

/* Time per sample of a worker's own work, without waits. Per sample, because steps may differ in size. */
static double ps_report_seconds_per_sample(const lk_ps_times *t)
{
    return t->samples > 0 ? (t->compute + t->exchange) / (double)t->samples : 0;
}

static void ps_report_find_slowest(const lk_ps_worker_record *workers, int n, lk_scaling_report *r)
{
    const lk_ps_worker_record *slowest = &workers[0];
    for (int i = 1; i < n; i++)
        if (workers[i].count == 1 &&
            ps_report_seconds_per_sample(&workers[i].times) > ps_report_seconds_per_sample(&slowest->times))
            slowest = &workers[i];
    if (r->workers > 1)
        ps_report_name_worker(r->slowest_device, sizeof r->slowest_device, slowest);
}

void lk__ps_put_workers(const lk_ps_worker_record *workers, int n, lk_scaling_report *r)
{
    lk_ps_times sum = {0};
    r->devices = r->workers = 0;
    for (int i = 0; i < n; i++) {
        if (i < LK_SCALING_WORKERS)
            ps_report_put_worker(&workers[i], &r->worker[i]);
        lk__ps_times_add(&sum, &workers[i].times);
        r->devices += workers[i].devices;
        r->workers += workers[i].count;
    }
    if (n > 0) {
        ps_report_put_means(&sum, r);
        ps_report_find_slowest(workers, n, r);
    }
    r->processes = n > 0 ? r->workers : 1;
    r->devices = n > 0 ? r->devices : 1;
}

/* --- servers ------------------------------------------------------------------------------------------------------ */

/* Estimates from the worker with the fastest full pull, which the others disturbed least. An empty pull is one message
 * each way. */
static void ps_report_put_latency(const lk_ps_worker_record *workers, int n, double pulled, lk_scaling_report *r)
{
    const lk_ps_times *best = NULL;
    for (int i = 0; i < n; i++) {
        const lk_ps_times *t = &workers[i].times;
        bool is_timed = t->small > 0 && t->large > t->small;
        if (is_timed && (!best || t->large < best->large))
            best = t;
    }
    if (!best)
        return;
    r->latency = best->small / 2;
    r->bandwidth = pulled / (best->large - best->small);
}

void lk__ps_put_servers(const lk_ps_worker_record *workers, int n, const lk_ps_layout *layout,
                        const double *update_seconds, int64_t max_staleness, lk_scaling_report *r)
{
    double pulled = 0, pushed = 0;
    r->servers = layout->placement.servers;
    r->max_staleness = max_staleness < 0 ? NAN : (double)max_staleness;
    r->sliced_bytes = r->server_bytes = r->update = r->server_update = 0;
    for (int s = 0; s < r->servers; s++) {
        double elements = (double)layout->placement.elements[s],
               statistics = (double)lk__ps_layout_statistics(layout, s);
        /* A pull has parameters and running statistics in f32; a push has gradients in f32 and sums of batch-norm in
         * f64. */
        double pull = sizeof(float) * (elements + statistics);
        double push = sizeof(float) * elements + sizeof(double) * statistics;
        pulled += pull;
        pushed += push;
        r->server_bytes = fmax(r->server_bytes, pull + push);
        r->update += update_seconds[s];
        r->server_update = isnan(r->update) ? NAN : fmax(r->server_update, update_seconds[s]);
    }
    r->whole_bytes = pulled + pushed;
    r->computing += r->update;
    /* A worker asks the chief for work, and with a limit on staleness also before it pushes. */
    r->messages = max_staleness > 0 ? 8 : 6;
    ps_report_put_latency(workers, n, pulled, r);
}
