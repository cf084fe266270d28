/* Records of what workers have reported about their times: workers with a seat, and those that had one. The list of
 * past workers is no longer than a report's, however many come and go; workers beyond that share one last entry. */
#pragma once

#include "train/parameter_server/ps_seats.h"
#include "lockstep/scaling.h"

typedef struct lk_ps_worker_record {
    int64_t worker; /* its number; the last entry has that of its first worker */
    int64_t count;  /* 1, or the number of workers in the last entry */
    int64_t devices;
    char host[64];
    lk_ps_times times; /* of at least one step */
} lk_ps_worker_record;

/* Workers that have lost their seat. */
typedef struct lk_ps_worker_records {
    lk_ps_worker_record past[LK_SCALING_WORKERS + 1];
    int n;
} lk_ps_worker_records;

/* Records the worker of a seat that is about to be given away. */
void lk__ps_worker_records_add(lk_ps_worker_records *records, const lk_ps_seat *seat);

/* Lists all workers with at least one step that counts, by number, the shared entry last. The caller frees *workers.
 * Errors: LK_ERR_MEMORY. */
lk_status lk__ps_worker_records_list(const lk_ps_worker_records *records, const lk_ps_seats *seats,
                                     lk_ps_worker_record **workers, int *n);
