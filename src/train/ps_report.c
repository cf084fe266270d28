#include "train/ps_report.h"

#include "train/ps_times.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- workers ------------------------------------------------------------------------------------------------------ */

/* A step's time beside its parts; the rounding of what adds up is no time. */
static double other_seconds(const ps_times *t)
{
    return fmax(t->seconds - t->compute - t->exchange - t->stale - t->input, 0);
}

static void name_worker(char *name, size_t size, const ps_worked *worker)
{
    snprintf(name, size, "worker %lld on %s", (long long)worker->worker, worker->host);
}

static void put_worker(const ps_worked *worker, lk_scaling_worker *to)
{
    const ps_times *t = &worker->times;
    double steps = t->steps > 0 ? (double)t->steps : NAN;
    name_worker(to->name, sizeof to->name, worker);
    to->devices = worker->devices;
    to->steps = t->steps;
    to->samples = t->samples;
    to->step_seconds = t->seconds / steps;
    to->compute = t->compute / steps;
    to->exchange = t->exchange / steps;
    to->slowest = t->stale / steps;
    to->input = t->input / steps;
    to->other = other_seconds(t) / steps;
    to->computing = t->computing / steps;
}

/* As a worker would have it that does all of the steps. */
static void put_times(const ps_times *sum, lk_scaling_report *r)
{
    lk_scaling_worker mean;
    ps_worked all = {.times = *sum};
    put_worker(&all, &mean);
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

/* Of what it does itself, and not of what it waits for; by sample, for steps need not be of as many. */
static double pace(const ps_times *t)
{
    return t->samples > 0 ? (t->compute + t->exchange) / (double)t->samples : 0;
}

static void name_slowest(const ps_worked *workers, int n, lk_scaling_report *r)
{
    const ps_worked *slowest = &workers[0];
    for (int i = 1; i < n; i++)
        if (workers[i].count == 1 && pace(&workers[i].times) > pace(&slowest->times))
            slowest = &workers[i];
    if (r->workers > 1)
        name_worker(r->slowest_device, sizeof r->slowest_device, slowest);
}

void lk__ps_put_workers(const ps_worked *workers, int n, lk_scaling_report *r)
{
    ps_times sum = {0};
    r->devices = r->workers = 0;
    for (int i = 0; i < n; i++) {
        if (i < LK_SCALING_WORKERS)
            put_worker(&workers[i], &r->worker[i]);
        lk__ps_times_add(&sum, &workers[i].times);
        r->devices += workers[i].devices;
        r->workers += workers[i].count;
    }
    if (n > 0) {
        put_times(&sum, r);
        name_slowest(workers, n, r);
    }
    r->processes = n > 0 ? r->workers : 1;
    r->devices = n > 0 ? r->devices : 1;
}

/* --- servers ------------------------------------------------------------------------------------------------------ */

/* Pulled: parameters and running statistics in f32; pushed: gradients in f32, and sums of batch-norm in f64. */
static double pulled_bytes(const ps_layout *layout, int server)
{
    return sizeof(float) * (double)(layout->placement.elements[server] + lk__ps_layout_statistics(layout, server));
}

static double pushed_bytes(const ps_layout *layout, int server)
{
    return sizeof(float) * (double)layout->placement.elements[server] +
           sizeof(double) * (double)lk__ps_layout_statistics(layout, server);
}

/* The worker with the quickest pull of everything was the one that others got least into the way of. A pull of nothing
 * is a message there and one back. */
static void put_latency(const ps_worked *workers, int n, double pulled, lk_scaling_report *r)
{
    const ps_times *best = NULL;
    for (int i = 0; i < n; i++) {
        const ps_times *t = &workers[i].times;
        bool is_timed = t->small > 0 && t->large > t->small;
        if (is_timed && (!best || t->large < best->large))
            best = t;
    }
    if (!best)
        return;
    r->latency = best->small / 2;
    r->bandwidth = pulled / (best->large - best->small);
}

void lk__ps_put_servers(const ps_worked *workers, int n, const ps_layout *layout, const double *update_seconds,
                        int64_t max_staleness, lk_scaling_report *r)
{
    double pulled = 0, pushed = 0;
    r->servers = layout->placement.servers;
    r->max_staleness = max_staleness < 0 ? NAN : (double)max_staleness;
    r->sliced_bytes = r->server_bytes = r->update = r->server_update = 0;
    for (int s = 0; s < r->servers; s++) {
        double in = pulled_bytes(layout, s), out = pushed_bytes(layout, s);
        pulled += in;
        pushed += out;
        r->server_bytes = fmax(r->server_bytes, in + out);
        r->update += update_seconds[s];
        r->server_update = isnan(r->update) ? NAN : fmax(r->server_update, update_seconds[s]);
    }
    r->whole_bytes = pulled + pushed;
    r->computing += r->update;
    /* The chief is asked for work; a worker with a limit asks it before it pushes, too. */
    r->messages = max_staleness > 0 ? 8 : 6;
    put_latency(workers, n, pulled, r);
}
