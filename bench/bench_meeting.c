/* Measures what it costs two cores of this machine to wait for each other after every step, whatever runs on them.
 *
 * Two threads, each bound to a core, do the same arithmetic on 256 KB of their own, in steps. "Free": each runs its
 * steps. "Meeting": they wait for each other after each step by spinning, the fastest way. If something takes a core
 * away for a moment, or slows it down, both threads lose that time. So the ratio is about the most that two devices of
 * one process can reach, compared with two processes of one device each. Both are measured in turns, in steps per
 * second; medians, with the least and largest ratio of neighbors. --quick: one short round. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 2, ELEMENTS = 65536, MAX_ROUNDS = 15 };

typedef struct worker {
    struct run *run;
    int core;
    pthread_t thread;
    double seconds;
    float x[ELEMENTS];
} worker;

typedef struct run {
    worker *workers; /* [THREADS] */
    int sweeps;      /* over x[], per step */
    int steps;
    bool meeting;
    pthread_barrier_t start;
    _Atomic int arrived;
} run;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Values stay near 1. */
static void sweep(float *x)
{
    for (int i = 0; i < ELEMENTS; i++)
        x[i] = x[i] * 0.5f + 0.5f;
}

static void meet(run *r, int step)
{
    atomic_fetch_add(&r->arrived, 1);
    while (atomic_load_explicit(&r->arrived, memory_order_acquire) < THREADS * (step + 1))
        continue;
}

static void *work(void *argument)
{
    worker *w = argument;
    run *r = w->run;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)w->core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    pthread_barrier_wait(&r->start);
    double began = now();
    for (int step = 0; step < r->steps; step++) {
        for (int i = 0; i < r->sweeps; i++)
            sweep(w->x);
        if (r->meeting)
            meet(r, step);
    }
    w->seconds = now() - began;
    return NULL;
}

/* Steps per second of a thread. */
static double speed(run *r, bool meeting)
{
    r->meeting = meeting;
    atomic_store(&r->arrived, 0);
    pthread_barrier_init(&r->start, NULL, THREADS);
    for (int t = 0; t < THREADS; t++) {
        r->workers[t].run = r;
        if (pthread_create(&r->workers[t].thread, NULL, work, &r->workers[t]) != 0) {
            fprintf(stderr, "bench_meeting: no thread could be started\n");
            exit(1);
        }
    }
    double sum = 0;
    for (int t = 0; t < THREADS; t++) {
        pthread_join(r->workers[t].thread, NULL);
        sum += r->steps / r->workers[t].seconds;
    }
    pthread_barrier_destroy(&r->start);
    return sum / THREADS;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return values[n / 2];
}

static void measure(run *r, double milliseconds, int rounds, double seconds)
{
    double free_speed[MAX_ROUNDS], meeting[MAX_ROUNDS], ratios[MAX_ROUNDS];
    r->sweeps = 1;
    r->steps = 200;
    r->sweeps = (int)(milliseconds * 1e-3 * speed(r, false)) + 1;
    r->steps = (int)(seconds / (milliseconds * 1e-3)) + 1;
    for (int i = 0; i < rounds; i++) {
        free_speed[i] = speed(r, false);
        meeting[i] = speed(r, true);
        ratios[i] = meeting[i] / free_speed[i];
    }
    double middle = median(ratios, rounds);
    printf("%8.0f %12.1f %12.1f %10.3f %13.3f-%.3f\n", milliseconds, median(free_speed, rounds),
           median(meeting, rounds), middle, ratios[0], ratios[rounds - 1]);
    fflush(stdout);
}

static bool find_cores(worker *workers)
{
    cpu_set_t set;
    int n = 0;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (int core = 0; core < CPU_SETSIZE && n < THREADS; core++)
        if (CPU_ISSET((size_t)core, &set))
            workers[n++].core = core;
    return n == THREADS;
}

int main(int argc, char **argv)
{
    static worker workers[THREADS];
    static const double lengths[] = {2, 15, 60, 250};
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    run r = {.workers = workers};
    if (!find_cores(workers)) {
        printf("meeting: not measured: there is one core\n");
        return 0;
    }
    printf("Two cores that meet after every step, beside the same two that do not; steps a second of each:\n\n");
    printf("%8s %12s %12s %10s %19s\n", "step, ms", "free", "meeting", "ratio", "(least-largest)");
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        measure(&r, lengths[i], quick ? 1 : MAX_ROUNDS, quick ? 0.1 : 1);
    return 0;
}
