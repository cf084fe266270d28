/* The cost model behind scaling reports; docs/scaling.md derives the formulas. */
#pragma once

#include "lockstep/scaling.h"

/* What a phase of an exchange takes in latencies, and how often a device sends the bytes that go whole to every other
 * one, and those that are summed in slices. A storing device, which does not compute, is one more device. */
double lk__scaling_hops(const lk_scaling_report *report, int64_t devices);
double lk__scaling_wholes(const lk_scaling_report *report, int64_t devices);
double lk__scaling_slices(const lk_scaling_report *report, int64_t devices);
