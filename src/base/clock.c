#include "base/clock.h"

#include <time.h>

int64_t lk__nanoseconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

double lk__seconds(void)
{
    return (double)lk__nanoseconds() * 1e-9;
}
