/* The chief's scaling report, from what workers and servers have reported. docs/scaling.md explains its numbers. */
#pragma once

#include "train/parameter_server/ps_coordinator.h"
#include "lockstep/scaling.h"

/* Fills in where the workers' time went. workers: as lk__ps_worker_records_list gives them. */
void lk__ps_put_workers(const lk_ps_worker_record *workers, int n, lk_scaling_report *report);

/* Fills in servers, latency and bandwidth; call it after lk__ps_put_workers. update_seconds[servers]: NAN if unknown;
 * max_staleness negative: no limit. */
void lk__ps_put_servers(const lk_ps_worker_record *workers, int n, const lk_ps_layout *layout,
                        const double *update_seconds, int64_t max_staleness, lk_scaling_report *report);
