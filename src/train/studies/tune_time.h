/* Measures implementations. */
#pragma once

#include "train/studies/tune.h"

/* Waits for the device, and sets *seconds to a time since some moment: the processor time that its thread has used. For
 * an offload device, whose thread only starts work, waits for all devices, and it is the time on the clock. */
lk_status lk__tune_seconds(lk_device *device, double *seconds);

/* Measures the time of one call on `device` with the device's current tuning: the median of `samples`. A sample is many
 * calls with one wait at the end. Waits for the device. */
lk_status lk__tune_time(lk_device *device, const lk_tune_problem *problem, int64_t samples, double *seconds);

/* Sorts the times and returns the median. */
double lk__tune_median(double *times, int64_t n);
