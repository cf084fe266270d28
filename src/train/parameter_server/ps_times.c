#include "train/parameter_server/ps_times.h"

#include "base/clock.h"
#include "base/status.h"
#include "train/parameter_server/ps_store.h"

#include <math.h>
#include <string.h>

/* The first steps: those that do not count, and those that time an empty pull. */
enum { LEFT_OUT = 5, PROBED = 25 };

void lk__ps_watch_start(lk_ps_watch *w)
{
    w->mark = lk__nanoseconds();
}

void lk__ps_watch_lap(lk_ps_watch *w, double *part)
{
    int64_t now = lk__nanoseconds();
    double seconds = 1e-9 * (double)(now - w->mark);
    *part += seconds;
    w->step.seconds += seconds;
    w->mark = now;
}

/* The chief uses its own clock, so its times are limited to what this worker has waited. */
void lk__ps_watch_waited(lk_ps_watch *w, const lk_ps_task *task)
{
    double waited = 0;
    lk__ps_watch_lap(w, &waited);
    double stale = fmin(task->held_back, waited), between = fmin(task->between, waited - stale);
    w->step.stale += stale;
    w->step.input += waited - stale - between;
    w->step.seconds -= between;
}

static void ps_times_keep_least(double *least, double seconds)
{
    if (*least == 0 || seconds < *least)
        *least = seconds;
}

lk_status lk__ps_watch_pull(lk_ps_watch *w, lk_ps_client *client, int64_t batch, lk_tensor *const *const *sets,
                            int n_sets)
{
    double before = w->step.exchange;
    if (w->ended < PROBED) {
        lk__ps_watch_start(w);
        LK_TRY(lk__ps_client_pull_nothing(client, false));
        ps_times_keep_least(&w->times.small, 1e-9 * (double)(lk__nanoseconds() - w->mark));
        lk__ps_watch_start(w);
    }
    LK_TRY(lk__ps_client_pull(client, batch, sets, n_sets));
    lk__ps_watch_lap(w, &w->step.exchange);
    ps_times_keep_least(&w->times.large, w->step.exchange - before);
    return LK_OK;
}

/* Adds the processor time since the previous step; between steps a device does next to nothing. */
static lk_status ps_times_add_processor_time(lk_ps_watch *w, const lk_trainer *trainer)
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

lk_status lk__ps_watch_computed(lk_ps_watch *w, const lk_trainer *trainer)
{
    LK_TRY(ps_times_add_processor_time(w, trainer));
    lk__ps_watch_lap(w, &w->step.compute);
    /* The processor time of an offload device covers only the launching of work. */
    if (strcmp(lk_device_kind(trainer->devices[0]), "cpu") != 0)
        w->step.computing = w->step.busiest = w->step.compute;
    return LK_OK;
}

void lk__ps_times_add(lk_ps_times *sum, const lk_ps_times *t)
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

void lk__ps_watch_end_step(lk_ps_watch *w, int64_t samples)
{
    w->step.steps = samples > 0;
    w->step.samples = samples;
    if (w->ended++ >= LEFT_OUT)
        lk__ps_times_add(&w->times, &w->step);
    w->step = (lk_ps_times){0};
}

void lk__ps_watch_restart(lk_ps_watch *w)
{
    w->times = (lk_ps_times){.small = w->times.small, .large = w->times.large};
    w->step = (lk_ps_times){0};
    lk__ps_watch_start(w);
}

lk_status lk__ps_times_check(const lk_ps_times *t)
{
    const double numbers[] = {t->seconds, t->compute, t->computing, t->busiest, t->exchange,
                              t->stale,   t->input,   t->small,     t->large};
    const double most = 1e12; /* seconds; sums of many stay finite */
    bool is_good = lk__ps_is_count(t->steps, 0) && lk__ps_is_count(t->samples, 0);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        is_good = is_good && numbers[i] >= 0 && numbers[i] <= most;
    if (!is_good)
        LK_FAIL(LK_ERR_FORMAT, "work: times of %lld steps that no worker can have", (long long)t->steps);
    return LK_OK;
}
