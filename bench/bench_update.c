/* Compares the time of an optimizer's step with the memory that it must move: the parameters of resnet18 on one device.
 *
 * Values are medians of several rounds. --quick: one short round. */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ELEMENTS = 11175818, MAX_ROUNDS = 11 };

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

/* passes: how often a step reads or writes every element, including the copy of the gradients (2). */
typedef struct row {
    const char *what;
    int passes;
    lk_optimizer_opts opts;
} row;

static const row rows[] = {
    {"sgd", 2 + 3, {.kind = LK_SGD}},
    {"sgd, momentum", 2 + 5, {.kind = LK_SGD, .momentum = 0.9, .weight_decay = 1e-4}},
    {"sgd, momentum, clipped", 2 + 1 + 5, {.kind = LK_SGD, .momentum = 0.9, .clip_norm = 1}},
    {"adam", 2 + 7, {.kind = LK_ADAM}},
    {"adamw", 2 + 7, {.kind = LK_ADAMW, .weight_decay = 0.01}},
    {"lars", 2 + 2 + 5, {.kind = LK_LARS, .momentum = 0.9, .weight_decay = 1e-4}},
};

static void print_times(const char *what, int passes, double *samples, int rounds)
{
    qsort(samples, (size_t)rounds, sizeof *samples, by_size);
    double middle = samples[rounds / 2], bytes = (double)passes * ELEMENTS * sizeof(float);
    printf("| %-22s | %6d | %8.2f | %8.2f | %8.2f | %6.2f |\n", what, passes, 1e3 * middle, 1e3 * samples[0],
           1e3 * samples[rounds - 1], 1e-9 * bytes / middle);
}

/* A kernel that only moves memory, for comparison. */
static lk_status measure_copy(lk_device *device, int rounds)
{
    double samples[MAX_ROUNDS];
    lk_tensor *from = lk_ones(device, LK_F32, LK_SHAPE(ELEMENTS)), *to = lk_copy(from, device);
    for (int i = 0; i < rounds && lk_device_sync(device) == LK_OK; i++) {
        double began = seconds();
        lk_copy_into(to, from);
        lk_device_sync(device);
        samples[i] = seconds() - began;
    }
    if (lk_error_status() == LK_OK)
        print_times("copy", 2, samples, rounds);
    return lk_error_status();
}

static void time_steps(lk_optimizer *optimizer, lk_tensor *gradient, double *samples, int rounds)
{
    lk_device *device = lk_tensor_device(gradient);
    lk_optimizer_step(optimizer, &gradient, 0.01);
    for (int i = 0; i < rounds && lk_device_sync(device) == LK_OK; i++) {
        double began = seconds();
        lk_optimizer_step(optimizer, &gradient, 0.01);
        lk_device_sync(device);
        samples[i] = seconds() - began;
    }
}

static lk_status measure(lk_device *device, const row *r, int rounds)
{
    lk_random_key key = {.seed = 1};
    double samples[MAX_ROUNDS];
    lk_tensor *packed, *parameter = lk_tensor_retain(lk_uniform(device, LK_F32, LK_SHAPE(2, ELEMENTS / 2), -1, 1, key));
    lk_tensor *gradient = lk_uniform(device, LK_F32, LK_SHAPE(2, ELEMENTS / 2), -1, 1, key);
    lk_optimizer *optimizer =
        lk_pack(&parameter, 1, &packed) == LK_OK ? lk_optimizer_new(&r->opts, packed, &parameter, 1) : NULL;
    if (optimizer)
        time_steps(optimizer, gradient, samples, rounds);
    lk_optimizer_release(optimizer);
    lk_tensor_release(parameter);
    if (lk_error_status() == LK_OK)
        print_times(r->what, r->passes, samples, rounds);
    return lk_error_status();
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    int rounds = quick ? 1 : MAX_ROUNDS;
    lk_device *device = lk_device_open("cpu");
    lk_status status = device ? LK_OK : lk_error_status();
    printf("| %-22s | passes | %8s | %8s | %8s | %6s |\n", "step, milliseconds", "median", "least", "largest", "GB/s");
    printf("| ---------------------- | ------ | -------- | -------- | -------- | ------ |\n");
    if (status == LK_OK) {
        lk_scope_begin();
        status = measure_copy(device, rounds);
        lk_scope_end();
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows && status == LK_OK; i++) {
        lk_scope_begin();
        status = measure(device, &rows[i], rounds);
        lk_scope_end();
    }
    lk_device_release(device);
    if (status == LK_OK)
        return 0;
    fprintf(stderr, "bench_update: %s\n", lk_error_message());
    return 1;
}
