#include "train/parameter_server/ps_totals.h"

#include "train/checkpoint/callback_state.h"

#include <limits.h>

enum { COUNTS = 10, NUMBERS = COUNTS + LK_STALENESS_BINS };

static const char name[] = "asynchronous";

void lk__ps_totals_add(lk_async_report *sum, const lk_async_report *report)
{
    sum->workers_joined += report->workers_joined;
    sum->workers_lost += report->workers_lost;
    sum->server_restarts += report->server_restarts;
    sum->handed_out += report->handed_out;
    sum->handed_again += report->handed_again;
    sum->repeated_pushes += report->repeated_pushes;
    sum->refused_pushes += report->refused_pushes;
    sum->updates += report->updates;
    sum->lost_updates += report->lost_updates;
    for (int s = 0; s < LK_STALENESS_BINS; s++)
        sum->staleness[s] += report->staleness[s];
    if (report->max_staleness > sum->max_staleness)
        sum->max_staleness = report->max_staleness;
}

void lk__ps_totals_save(const lk_async_report *r, lk_state *state)
{
    double numbers[NUMBERS] = {(double)r->workers_joined, (double)r->workers_lost, (double)r->server_restarts,
                               (double)r->handed_out,     (double)r->handed_again, (double)r->repeated_pushes,
                               (double)r->refused_pushes, (double)r->updates,      (double)r->lost_updates,
                               (double)r->max_staleness};
    for (int s = 0; s < LK_STALENESS_BINS; s++)
        numbers[COUNTS + s] = (double)r->staleness[s];
    lk_state_set(state, name, numbers, NUMBERS);
}

void lk__ps_totals_resume(lk_async_report *r, const lk_state *state)
{
    double n[NUMBERS];
    *r = (lk_async_report){0};
    if (lk_state_get(state, name, n, NUMBERS) != NUMBERS)
        return;
    for (int i = 0; i < 3; i++)
        n[i] = n[i] >= 0 && n[i] < INT_MAX / 2 ? n[i] : 0; /* these are added up as ints */
    *r = (lk_async_report){.workers_joined = (int)n[0],
                           .workers_lost = (int)n[1],
                           .server_restarts = (int)n[2],
                           .handed_out = lk__state_integer(n[3]),
                           .handed_again = lk__state_integer(n[4]),
                           .repeated_pushes = lk__state_integer(n[5]),
                           .refused_pushes = lk__state_integer(n[6]),
                           .updates = lk__state_integer(n[7]),
                           .lost_updates = lk__state_integer(n[8]),
                           .max_staleness = lk__state_integer(n[9])};
    for (int s = 0; s < LK_STALENESS_BINS; s++)
        r->staleness[s] = lk__state_integer(n[COUNTS + s]);
}
