/* Which gradients are exchanged together. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Assigns quantities of bytes[0 … n) to buckets, the last quantity first, since backward finishes that first:
 * buckets[i] is the bucket of quantity i, 0, 1, … A bucket is full with `full` bytes. tapers: or with three quarters of
 * what is left, but what can be exchanged whole is not divided. So only little is left for the last bucket, which
 * backward cannot hide. Returns the number of buckets. A function of its arguments alone: all processes form the same
 * buckets. */
int lk__bucket_plan(const int64_t *bytes, int n, int64_t full, bool tapers, int *buckets);
