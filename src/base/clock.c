#include "base/clock.h"

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

struct timespec lk__deadline_after(int64_t milliseconds)
{
    int64_t nanoseconds = lk__nanoseconds() + milliseconds * 1000000;
    return (struct timespec){.tv_sec = (time_t)(nanoseconds / 1000000000), .tv_nsec = (long)(nanoseconds % 1000000000)};
}
