/* Means and confidence intervals. */
#pragma once

/* The t for which a variable with Student's distribution, of df >= 1 degrees of freedom, lies in [-t, t] with the given
 * probability, 0 <= probability < 1. */
double lk__student_t(int df, double probability);

typedef struct lk_interval {
    double mean, low, high;
} lk_interval;

/* The mean of values[n] and its 95% interval. For n == 1, low == high == mean; for n == 0 all are NAN. */
lk_interval lk__mean_interval(const double *values, int n);
