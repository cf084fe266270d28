/* Dropout over one stream of elements, or over eight side by side. Which elements are kept depends on their numbers in
 * their streams alone (lk_dropout_at), so every layout drops the same ones. */
#ifndef LK_CPU_DROP_H
#define LK_CPU_DROP_H

#include "lockstep/random.h"

#include <stdbool.h>
#include <stdint.h>

enum { LK_DROP_LANES = 8 };

typedef struct lk_drop {
    uint32_t key[2];     /* Philox's */
    uint32_t counter[4]; /* 0: of the block, 1: of the sample, are set for each stream */
    uint32_t last;       /* words up to this one drop their element */
    double scale;        /* of those that are kept */
} lk_drop;

/* 0 < rate < 1. */
lk_drop lk__drop_start(const lk_random_key *key, double rate);

/* Element i of the run is element `first` + i of `sample`; it is at x + i * stride. */
void lk__drop_run(const lk_drop *drop, uint32_t sample, int64_t first, int64_t count, int64_t stride, const float *x,
                  float *y);

/* A lane: elements first, first + 1, … of a sample; where absent, padding, which becomes 0. */
typedef struct lk_drop_lane {
    bool present;
    uint32_t sample;
    int64_t first;
} lk_drop_lane;

/* Element i of lane l is at x + i * stride + l. */
void lk__drop_lanes(const lk_drop *drop, const lk_drop_lane lanes[LK_DROP_LANES], int64_t count, int64_t stride,
                    const float *x, float *y);

#endif
