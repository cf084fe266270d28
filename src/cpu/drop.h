/* Dropout over a run of elements of one sample, or over eight runs in neighboring lanes. Whether an element is kept
 * depends only on its sample and its number in it (lk_dropout_at), so every layout drops the same ones. */
#pragma once

#include "lockstep/random.h"

#include <stdbool.h>
#include <stdint.h>

enum { LK_DROP_LANES = 8 };

typedef struct lk_drop {
    uint32_t key[2];     /* Philox's */
    uint32_t counter[4]; /* [0], the block of four words, and [1], the sample, change from run to run */
    uint32_t last;       /* a word up to this one drops its element */
    double scale;        /* factor of the elements that are kept */
    bool bf16;           /* elements are bf16, otherwise f32 */
} lk_drop;

/* Prepares dropout of f32 elements; 0 < rate < 1. */
lk_drop lk__drop_start(const lk_random_key *key, double rate);

/* Drops a run. Element i of the run is element `first` + i of `sample`, and is element
 * at + i * stride of x and y. */
void lk__drop_run(const lk_drop *drop, uint32_t sample, int64_t first, int64_t count, int64_t stride, const void *x,
                  void *y, int64_t at);

/* A lane: elements first, first + 1, ... of a sample. A lane that is not present is padding and becomes 0. */
typedef struct lk_drop_lane {
    bool present;
    uint32_t sample;
    int64_t first;
} lk_drop_lane;

/* Drops eight lanes. Element i of lane l is element at + i * stride + l of x and y. */
void lk__drop_lanes(const lk_drop *drop, const lk_drop_lane lanes[LK_DROP_LANES], int64_t count, int64_t stride,
                    const void *x, void *y, int64_t at);
