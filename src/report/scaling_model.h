/* The cost model behind scaling reports; docs/scaling.md derives the formulas. */
#pragma once

#include "lockstep/scaling.h"

/* Return the number of latencies in a phase of an exchange, and the number of times that a device sends the bytes that
 * go whole to every other device and those that are summed in slices. A storing device, which does not compute, is one
 * more device. */
double lk__scaling_hops(const lk_scaling_report *report, int64_t devices);
double lk__scaling_wholes(const lk_scaling_report *report, int64_t devices);
double lk__scaling_slices(const lk_scaling_report *report, int64_t devices);
