/* Sums of arrays in a given order of additions. */
#ifndef LK_DIST_ARRAY_SUM_H
#define LK_DIST_ARRAY_SUM_H

#include <stdbool.h>
#include <stdint.h>

/* The most additions that one may be nested in: the levels of a tree. */
enum { LK_ARRAY_SUM_LEVELS = 64 };

/* A tree in postfix: behind addend i follow additions[i] additions, each of the two values before it. */
typedef struct lk_array_sum {
    const float *const *addends;
    const unsigned char *additions;
    int n_addends; /* at least 1 */
    float *const *results;
    int n_results;
} lk_array_sum;

/* Elements [begin, end): each addend is read once, each result written once. A result may be an addend; otherwise
 * arrays may not overlap. */
void lk__array_sum(const lk_array_sum *sum, int64_t begin, int64_t end);

#endif
