/* The cost model of training with parameter servers; docs/scaling.md derives the formulas. */
#pragma once

#include "lockstep/scaling.h"

/* The seconds that one device would need for a batch and its update, without exchange. */
double lk__servers_one_device_seconds(const lk_scaling_report *report);

/* lk_scaling_exchange_seconds and lk_scaling_predict for training with parameter servers. Without a prediction
 * *prediction is unchanged. */
double lk__servers_exchange_seconds(const lk_scaling_report *report, int64_t workers);
bool lk__servers_predict(const lk_scaling_report *report, int64_t workers, bool weak,
                         lk_scaling_prediction *prediction);
