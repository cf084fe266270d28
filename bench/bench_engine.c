/* What the engine itself costs: operators on 16 elements, where the arithmetic takes next to no time.
 *
 * Each value is the median of several rounds. --quick: one short round. */
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

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
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

/* --- what is measured: each gives the microseconds of one unit ---------------------------------------------------- */

/* Operators that each make a tensor, pushed without waiting, then waited for all together. */
static double stream(const setup *s)
{
    lk_tensor *x = small_tensor(s->devices[0]);
    double began = seconds();
    for (int i = 0; i < s->pushes; i++) {
        lk_scope_begin();
        lk_add_scalar(x, 1);
        lk_scope_end();
    }
    lk_device_sync(s->devices[0]);
    return 1e6 * (seconds() - began) / s->pushes;
}

/* The same in place: no tensor is made. */
static double stream_in_place(const setup *s)
{
    lk_tensor *x = small_tensor(s->devices[0]);
    double began = seconds();
    for (int i = 0; i < s->pushes; i++)
        lk_add_into(x, x, x);
    lk_device_sync(s->devices[0]);
    return 1e6 * (seconds() - began) / s->pushes;
}

/* Push, run, wait: one at a time. */
static double latency(const setup *s)
{
    lk_tensor *x = small_tensor(s->devices[0]);
    int count = s->pushes / 20;
    double began = seconds();
    for (int i = 0; i < count; i++) {
        lk_add_into(x, x, x);
        lk_tensor_wait(x);
    }
    return 1e6 * (seconds() - began) / count;
}

/* A tensor sent to the other device and back, over and over: two hops, each waiting for the one before. */
static double hop(const setup *s)
{
    lk_tensor *here = small_tensor(s->devices[0]), *there = small_tensor(s->devices[1]);
    int count = s->pushes / 20;
    double began = seconds();
    for (int i = 0; i < count; i++) {
        lk_copy_into(there, here);
        lk_copy_into(here, there);
    }
    lk_wait_all();
    return 1e6 * (seconds() - began) / (2 * count);
}

typedef struct row {
    const char *what;
    double (*measure)(const setup *s);
    int devices;
} row;

static const row rows[] = {
    {"operator that makes a tensor, in a stream", stream, 1},
    {"operator in place, in a stream", stream_in_place, 1},
    {"push, run, wait", latency, 1},
    {"hop between devices", hop, 2},
};

static void print_row(const setup *s, const row *r)
{
    if (s->n_devices < r->devices) {
        printf("| %-41s | not measured: one core |\n", r->what);
        return;
    }
    double samples[MAX_ROUNDS];
    for (int i = 0; i < s->rounds; i++) {
        lk_scope_begin();
        samples[i] = r->measure(s);
        lk_scope_end();
    }
    qsort(samples, (size_t)s->rounds, sizeof *samples, by_size);
    printf("| %-41s | %8.2f | %8.2f | %8.2f |\n", r->what, samples[s->rounds / 2], samples[0], samples[s->rounds - 1]);
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    setup s = {.rounds = quick ? 1 : MAX_ROUNDS, .pushes = quick ? 2000 : 100000};
    if (lk_devices_open(lk_device_available("cpu") > 1 ? "2xcpu" : "cpu", s.devices, 2, &s.n_devices) == LK_OK) {
        printf("| %-41s | %8s | %8s | %8s |\n", "engine, microseconds", "median", "least", "largest");
        printf("| ----------------------------------------- | -------- | -------- | -------- |\n");
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            print_row(&s, &rows[i]);
        lk_devices_release(s.devices, s.n_devices);
    }
    if (lk_error_status() == LK_OK)
        return 0;
    fprintf(stderr, "bench_engine: %s\n", lk_error_message());
    return 1;
}
