/* Measures the overhead of the engine: operators on 16 elements, whose arithmetic takes almost no time.
 *
 * Clock times are the median, least and largest of several rounds. Processor times are medians, of the thread that
 * pushes and of the device's thread; they include spinning while one waits for the other. --quick: one short round. */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_ROUNDS = 9, ELEMENTS = 16 };

typedef struct setup {
    lk_device *devices[2];
    int n_devices;
    int rounds, pushes;
} setup;

/* Seconds, since some time in the past or per unit of work. */
typedef struct cost {
    double clock, caller, device;
} cost;

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Reads the clocks once everything pushed has run. */
static cost spent(const setup *s)
{
    cost now = {0};
    lk_wait_all();
    now.clock = seconds(CLOCK_MONOTONIC);
    now.caller = seconds(CLOCK_THREAD_CPUTIME_ID);
    lk_device_processor_seconds(s->devices[0], &now.device);
    return now;
}

static cost each(const setup *s, cost began, int count)
{
    cost now = spent(s);
    return (cost){(now.clock - began.clock) / count, (now.caller - began.caller) / count,
                  (now.device - began.device) / count};
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static lk_tensor *small_tensor(lk_device *device)
{
    lk_tensor *x = lk_ones(device, LK_F32, LK_SHAPE(ELEMENTS));
    lk_tensor_wait(x);
    return x;
}

/* --- what is measured --------------------------------------------------------------------------------------------- */

/* Operators that each make a tensor: all are pushed, then waited for together. */
static cost stream(const setup *s)
{
    lk_tensor *x = small_tensor(s->devices[0]);
    cost began = spent(s);
    for (int i = 0; i < s->pushes; i++) {
        lk_scope_begin();
        lk_add(x, x);
        lk_scope_end();
    }
    return each(s, began, s->pushes);
}

/* The same in place, without new tensors. */
static cost stream_in_place(const setup *s)
{
    lk_tensor *x = small_tensor(s->devices[0]), *one = small_tensor(s->devices[0]);
    cost began = spent(s);
    for (int i = 0; i < s->pushes; i++)
        lk_add_into(x, x, one);
    return each(s, began, s->pushes);
}

/* Pushes one operator at a time, and waits for it. */
static cost latency(const setup *s)
{
    lk_tensor *x = small_tensor(s->devices[0]), *one = small_tensor(s->devices[0]);
    int count = s->pushes / 20;
    cost began = spent(s);
    for (int i = 0; i < count; i++) {
        lk_add_into(x, x, one);
        lk_tensor_wait(x);
    }
    return each(s, began, count);
}

/* Sends a tensor to the other device and back, repeatedly: two hops, each of which waits for the one before. */
static cost hop(const setup *s)
{
    lk_tensor *here = small_tensor(s->devices[0]), *there = small_tensor(s->devices[1]);
    int count = s->pushes / 20;
    cost began = spent(s);
    for (int i = 0; i < count; i++) {
        lk_copy_into(there, here);
        lk_copy_into(here, there);
    }
    return each(s, began, 2 * count);
}

typedef struct row {
    const char *what;
    cost (*measure)(const setup *s);
    int devices;
} row;

static const row rows[] = {
    {"operator that makes a tensor, in a stream", stream, 1},
    {"operator in place, in a stream", stream_in_place, 1},
    {"push, run, wait", latency, 1},
    {"hop between devices", hop, 2},
};

static double median(double *samples, int n)
{
    qsort(samples, (size_t)n, sizeof *samples, by_size);
    return samples[n / 2];
}

static void print_row(const setup *s, const row *r)
{
    if (s->n_devices < r->devices) {
        printf("| %-41s | not measured: one core |\n", r->what);
        return;
    }
    double clock[MAX_ROUNDS] = {0}, caller[MAX_ROUNDS] = {0}, device[MAX_ROUNDS] = {0};
    for (int i = 0; i < s->rounds; i++) {
        lk_scope_begin();
        cost c = r->measure(s);
        lk_scope_end();
        clock[i] = 1e6 * c.clock;
        caller[i] = 1e6 * c.caller;
        device[i] = 1e6 * c.device;
    }
    double middle = median(clock, s->rounds);
    printf("| %-41s | %8.2f | %8.2f | %8.2f | %8.2f | %8.2f |\n", r->what, middle, clock[0], clock[s->rounds - 1],
           median(caller, s->rounds), median(device, s->rounds));
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    setup s = {.rounds = quick ? 1 : MAX_ROUNDS, .pushes = quick ? 2000 : 100000};
    if (lk_devices_open(lk_device_available("cpu") > 1 ? "2xcpu" : "cpu", s.devices, 2, &s.n_devices) == LK_OK) {
        printf("| %-41s | %8s | %8s | %8s | %8s | %8s |\n", "engine, microseconds", "median", "least", "largest",
               "caller", "device");
        printf(
            "| ----------------------------------------- | -------- | -------- | -------- | -------- | -------- |\n");
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            print_row(&s, &rows[i]);
        lk_devices_release(s.devices, s.n_devices);
    }
    if (lk_error_status() == LK_OK)
        return 0;
    fprintf(stderr, "bench_engine: %s\n", lk_error_message());
    return 1;
}
