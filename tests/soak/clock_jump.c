/* Preloaded into the programs of a trial: the time of day jumps. LOCKSTEP_SOAK_JUMP=AFTER:BY: seconds after the first
 * look at the clock, and seconds, below zero for back. Clocks that nobody can set stay as they are. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

typedef int clock_read_fn(clockid_t, struct timespec *);

int clock_gettime(clockid_t clock, struct timespec *now);
time_t time(time_t *seconds);
int gettimeofday(struct timeval *restrict now, void *restrict zone);

static _Atomic double clock_began;

static double clock_value(const struct timespec *time)
{
    return (double)time->tv_sec + (double)time->tv_nsec * 1e-9;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static _Atomic(clock_read_fn *) next;
    clock_read_fn *read = atomic_load(&next);
    if (!read) {
        *(void **)&read = dlsym(RTLD_NEXT, "clock_gettime");
        atomic_store(&next, read);
    }
    int status = read(clock, now);
    double after, by, began = 0;
    const char *jump = getenv("LOCKSTEP_SOAK_JUMP");
    if (status != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) || !jump ||
        sscanf(jump, "%lf:%lf", &after, &by) != 2)
        return status;
    if (atomic_compare_exchange_strong(&clock_began, &began, clock_value(now)))
        began = clock_value(now);
    if (clock_value(now) >= began + after)
        now->tv_sec += (time_t)by;
    return status;
}

time_t time(time_t *seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds)
        *seconds = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    *now = (struct timeval){.tv_sec = precise.tv_sec, .tv_usec = precise.tv_nsec / 1000};
    return 0;
}
