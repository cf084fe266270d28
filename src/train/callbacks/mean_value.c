#include "lockstep/callbacks.h"

#include <math.h>

double lk_mean_value(lk_mean mean)
{
    double value = mean.count ? mean.sum / (double)mean.count : NAN;
    return isnan(value) ? NAN : value; /* printf would show the sign of a NaN */
}
