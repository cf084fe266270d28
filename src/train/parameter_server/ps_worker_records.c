#include "train/parameter_server/ps_worker_records.h"

#include "base/mem.h"
#include "base/status.h"
#include "train/parameter_server/ps_times.h"

#include <stdlib.h>
#include <string.h>

/* Returns whether there is anything to report about it. */
static bool ps_worker_records_has_worked(const lk_ps_seat *seat)
{
    return seat->worker >= 0 && seat->times.steps > 0;
}

static lk_ps_worker_record ps_worker_records_of_seat(const lk_ps_seat *seat)
{
    lk_ps_worker_record one = {.worker = seat->worker, .count = 1, .devices = seat->devices, .times = seat->times};
    memcpy(one.host, seat->host, sizeof one.host);
    return one;
}

void lk__ps_worker_records_add(lk_ps_worker_records *records, const lk_ps_seat *seat)
{
    if (!ps_worker_records_has_worked(seat))
        return;
    if (records->n <= LK_SCALING_WORKERS) {
        records->past[records->n++] = ps_worker_records_of_seat(seat);
        return;
    }
    lk_ps_worker_record *last = &records->past[LK_SCALING_WORKERS];
    last->count++;
    last->devices += seat->devices;
    lk__ps_times_add(&last->times, &seat->times);
}

static int ps_worker_records_compare(const void *a, const void *b)
{
    const lk_ps_worker_record *x = a, *y = b;
    if ((x->count > 1) != (y->count > 1))
        return x->count > 1 ? 1 : -1;
    return (x->worker > y->worker) - (x->worker < y->worker);
}

lk_status lk__ps_worker_records_list(const lk_ps_worker_records *records, const lk_ps_seats *seats,
                                     lk_ps_worker_record **workers, int *n)
{
    *n = 0;
    *workers = lk__calloc((size_t)(records->n + seats->n) + 1, sizeof **workers);
    if (!*workers)
        return LK_ERR_MEMORY;
    for (int i = 0; i < records->n; i++)
        (*workers)[(*n)++] = records->past[i];
    for (int i = 0; i < seats->n; i++)
        if (ps_worker_records_has_worked(&seats->seats[i]))
            (*workers)[(*n)++] = ps_worker_records_of_seat(&seats->seats[i]);
    qsort(*workers, (size_t)*n, sizeof **workers, ps_worker_records_compare);
    return LK_OK;
}
