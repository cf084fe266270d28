#include "train/ps_crew.h"

#include "base/mem.h"
#include "base/status.h"
#include "train/ps_times.h"

#include <stdlib.h>
#include <string.h>

/* Whether there is anything to say of it. */
static bool has_worked(const ps_seat *seat)
{
    return seat->worker >= 0 && seat->times.steps > 0;
}

static ps_worked worked(const ps_seat *seat)
{
    ps_worked one = {.worker = seat->worker, .count = 1, .devices = seat->devices, .times = seat->times};
    memcpy(one.host, seat->host, sizeof one.host);
    return one;
}

void lk__ps_crew_part(ps_crew *crew, const ps_seat *seat)
{
    if (!has_worked(seat))
        return;
    if (crew->n <= LK_SCALING_WORKERS) {
        crew->gone[crew->n++] = worked(seat);
        return;
    }
    ps_worked *last = &crew->gone[LK_SCALING_WORKERS];
    last->count++;
    last->devices += seat->devices;
    lk__ps_times_add(&last->times, &seat->times);
}

static int compare(const void *a, const void *b)
{
    const ps_worked *x = a, *y = b;
    if ((x->count > 1) != (y->count > 1))
        return x->count > 1 ? 1 : -1;
    return (x->worker > y->worker) - (x->worker < y->worker);
}

lk_status lk__ps_crew_list(const ps_crew *crew, const ps_seats *seats, ps_worked **workers, int *n)
{
    *n = 0;
    *workers = lk__calloc((size_t)(crew->n + seats->n) + 1, sizeof **workers);
    if (!*workers)
        return LK_ERR_MEMORY;
    for (int i = 0; i < crew->n; i++)
        (*workers)[(*n)++] = crew->gone[i];
    for (int i = 0; i < seats->n; i++)
        if (has_worked(&seats->seats[i]))
            (*workers)[(*n)++] = worked(&seats->seats[i]);
    qsort(*workers, (size_t)*n, sizeof **workers, compare);
    return LK_OK;
}
