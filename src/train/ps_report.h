/* The chief's scaling report, of what workers and servers have told. docs/scaling.md says what its numbers are. */
#ifndef LK_TRAIN_PS_REPORT_H
#define LK_TRAIN_PS_REPORT_H

#include "lockstep/scaling.h"
#include "train/ps_coordinator.h"

/* Where workers' time went: as lk__ps_crew_list has them. */
void lk__ps_put_workers(const ps_worked *workers, int n, lk_scaling_report *report);

/* Servers, latency and bandwidth: behind lk__ps_put_workers. update_seconds[servers]: NAN where it is not known;
 * max_staleness below 0: no limit. */
void lk__ps_put_servers(const ps_worked *workers, int n, const ps_layout *layout, const double *update_seconds,
                        int64_t max_staleness, lk_scaling_report *report);

#endif
