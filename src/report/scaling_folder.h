/* Scaling reports in a folder of records. */
#pragma once

#include "lockstep/scaling.h"

/* Searches a folder of records for the last run on one device, on the same host, that lk_scaling_compare accepts, and
 * lets it fill in `report`. Call it before this run's own records exist. Finding none is no error. */
lk_status lk__scaling_find_one_device(const char *dir, lk_scaling_report *report);
