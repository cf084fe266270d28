/* A strategy's exchange, as the scaling report describes it. */
#pragma once

#include "lockstep/scaling.h"

/* Seconds of the exchange of a small and of a large row; NAN: there is one device. */
lk_status lk__time_rows(const lk_trainer *trainer, double *small, double *large);

/* Sets the report's latency and bandwidth from these times, and the bytes and messages of a step, if the times are not
 * NAN. The report's `devices` and `storing_devices` are set already. */
void lk__put_exchange(const lk_trainer *trainer, double small, double large, lk_scaling_report *report);
