#include "train/studies/study_statistics.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

/* P(|T| <= t), by the finite sums for whole degrees of freedom in Abramowitz and Stegun, Handbook of Mathematical
 * Functions: 26.7.3 for odd df, 26.7.4 for even. */
static double study_student_probability(double t, int df)
{
    double angle = atan(t / sqrt(df)), cosine = cos(angle), sum = 0;
    int odd = df % 2;
    double term = odd ? cosine : 1;
    for (int k = odd; k <= df - 2; k += 2) {
        sum += term;
        term *= cosine * cosine * (k + 1) / (k + 2);
    }
    return odd ? 2 / PI * (angle + sin(angle) * sum) : sin(angle) * sum;
}

double lk__student_t(int df, double probability)
{
    double low = 0, high = 1;
    while (study_student_probability(high, df) < probability)
        high *= 2;
    for (;;) {
        double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high)
            return middle;
        *(study_student_probability(middle, df) < probability ? &low : &high) = middle;
    }
}

lk_interval lk__mean_interval(const double *values, int n)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += values[i];
    double mean = n > 0 ? sum / n : NAN;
    if (n < 2)
        return (lk_interval){mean, mean, mean};
    for (int i = 0; i < n; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    double half = lk__student_t(n - 1, 0.95) * sqrt(squares / (n - 1) / n);
    return (lk_interval){mean, mean - half, mean + half};
}
