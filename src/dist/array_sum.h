/* Adds up arrays of f32 in a given order of additions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The most values that may wait at one time for their partner: one per level of a tree. */
enum { LK_ARRAY_SUM_LEVELS = 64 };

/* A tree in postfix order: after addend i come additions[i] additions, each of the two values before it. */
typedef struct lk_array_sum {
    const float *const *addends;
    const unsigned char *additions;
    int n_addends; /* at least 1 */
    float *const *results;
    int n_results;
} lk_array_sum;

/* Adds up elements [begin, end). Each addend is read once and each result written once. A result may be one of the
 * addends; apart from that no two arrays may overlap. */
void lk__array_sum(const lk_array_sum *sum, int64_t begin, int64_t end);
