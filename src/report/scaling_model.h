/* The cost model behind scaling reports; docs/scaling.md derives the formulas. */
#pragma once

#include "lockstep/scaling.h"

/* The number of devices that each of `devices` exchanges with, one after the other: along the tree log2 of them, else
 * all, including storing devices, which do not compute. */
double lk__scaling_others(const lk_scaling_report *report, int64_t devices);

/* The number of times that a device sends the bytes that are summed in slices. */
double lk__scaling_slices(int64_t devices);
