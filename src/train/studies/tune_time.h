/* Measures implementations. */
#pragma once

#include "train/studies/tune.h"

/* Measures the processor time of one call on `device` with the device's current tuning: the median of `samples`. Waits
 * for the device. */
lk_status lk__tune_time(lk_device *device, const lk_tune_problem *problem, int64_t samples, double *seconds);

/* Sorts the times and returns the median. */
double lk__tune_median(double *times, int64_t n);
