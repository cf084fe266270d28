#include "train/ps_times.h"

#include "base/status.h"
#include "core/trace.h"

#include <math.h>
#include <string.h>

enum { LEFT_OUT = 5, PROBED = 25 }; /* steps */

void lk__ps_watch_start(ps_watch *w)
{
    w->mark = lk__trace_clock();
}

void lk__ps_watch_lap(ps_watch *w, double *part)
{
    int64_t now = lk__trace_clock();
    double seconds = 1e-9 * (double)(now - w->mark);
    *part += seconds;
    w->step.seconds += seconds;
    w->mark = now;
}

/* The chief looks at its own clock: it cannot have kept anybody waiting longer than that one has waited. */
void lk__ps_watch_waited(ps_watch *w, const ps_task *task)
{
    double waited = 0;
    lk__ps_watch_lap(w, &waited);
    double stale = fmin(task->held_back, waited), between = fmin(task->between, waited - stale);
    w->step.stale += stale;
    w->step.input += waited - stale - between;
    w->step.seconds -= between;
}

static void keep_least(double *least, double seconds)
{
    if (*least == 0 || seconds < *least)
        *least = seconds;
}

lk_status lk__ps_watch_pull(ps_watch *w, ps_client *client, lk_tensor *const *const *sets, int n_sets)
{
    double before = w->step.exchange;
    if (w->begun < PROBED) {
        lk__ps_watch_start(w);
        LK_TRY(lk__ps_client_pull_nothing(client, false));
        keep_least(&w->times.small, 1e-9 * (double)(lk__trace_clock() - w->mark));
        lk__ps_watch_start(w);
    }
    LK_TRY(lk__ps_client_pull(client, sets, n_sets));
    lk__ps_watch_lap(w, &w->step.exchange);
    keep_least(&w->times.large, w->step.exchange - before);
    return LK_OK;
}

/* Processor time since the step before: between that and this one a device does next to nothing. */
static lk_status add_processor_time(ps_watch *w, const lk_trainer *trainer)
{
    for (int d = 0; d < trainer->n_devices; d++) {
        double seconds;
        LK_TRY(lk_device_processor_seconds(trainer->devices[d], &seconds));
        double since = seconds - w->processor[d];
        w->processor[d] = seconds;
        w->step.computing += since / trainer->n_devices;
        w->step.busiest = since > w->step.busiest ? since : w->step.busiest;
    }
    return LK_OK;
}

lk_status lk__ps_watch_computed(ps_watch *w, const lk_trainer *trainer)
{
    LK_TRY(add_processor_time(w, trainer));
    lk__ps_watch_lap(w, &w->step.compute);
    if (strcmp(lk_device_kind(trainer->devices[0]), "cpu") != 0) /* whose threads only start work */
        w->step.computing = w->step.busiest = w->step.compute;
    return LK_OK;
}

void lk__ps_times_add(ps_times *sum, const ps_times *t)
{
    sum->steps += t->steps;
    sum->samples += t->samples;
    sum->seconds += t->seconds;
    sum->compute += t->compute;
    sum->computing += t->computing;
    sum->busiest += t->busiest;
    sum->exchange += t->exchange;
    sum->stale += t->stale;
    sum->input += t->input;
}

void lk__ps_watch_end_step(ps_watch *w, int64_t samples)
{
    w->step.steps = samples > 0;
    w->step.samples = samples;
    if (w->begun++ >= LEFT_OUT)
        lk__ps_times_add(&w->times, &w->step);
    w->step = (ps_times){0};
}

void lk__ps_watch_restart(ps_watch *w)
{
    w->times = (ps_times){.small = w->times.small, .large = w->times.large};
    w->step = (ps_times){0};
    lk__ps_watch_start(w);
}

lk_status lk__ps_times_check(const ps_times *t)
{
    const double numbers[] = {t->seconds, t->compute, t->computing, t->busiest, t->exchange,
                              t->stale,   t->input,   t->small,     t->large};
    bool is_good = t->steps >= 0 && t->samples >= 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        is_good = is_good && isfinite(numbers[i]) && numbers[i] >= 0;
    if (!is_good)
        LK_FAIL(LK_ERR_FORMAT, "work: times of %lld steps that no worker can have", (long long)t->steps);
    return LK_OK;
}
