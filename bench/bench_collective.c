/* lk_allreduce over the CPU devices of one process, beside memcpy: bytes of one tensor divided by the time until every
 * device has the sum, and the bytes that one thread copies in a second.
 *
 * Each value is the median of several rounds. --quick: one short round. */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_ROUNDS = 9, DEVICES = 2 };

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

/* Repetitions that move about `total` bytes. */
static int repetitions(size_t bytes, size_t total)
{
    size_t count = total / bytes;
    return count < 4 ? 4 : count > 4000 ? 4000 : (int)count;
}

/* Seconds an all-reduce. The values stay finite: zeros are added up. */
static double allreduce(lk_device *const *devices, size_t bytes, int count)
{
    lk_tensor *tensors[DEVICES];
    for (int d = 0; d < DEVICES; d++)
        tensors[d] = lk_zeros(devices[d], LK_F32, LK_SHAPE((int64_t)(bytes / sizeof(float))));
    lk_allreduce(tensors, DEVICES);
    lk_wait_all();
    double began = seconds();
    for (int i = 0; i < count; i++)
        lk_allreduce(tensors, DEVICES);
    lk_wait_all();
    return (seconds() - began) / count;
}

/* Seconds a copy by one thread. */
static double copy(size_t bytes, int count)
{
    char *from = calloc(1, bytes), *to = calloc(1, bytes);
    double result = 0;
    if (from && to) {
        memcpy(to, from, bytes);
        double began = seconds();
        for (int i = 0; i < count; i++) {
            from[i % (int)bytes]++; /* so that no copy can be left out */
            memcpy(to, from, bytes);
            __asm__ volatile("" : : "r"(to) : "memory");
        }
        result = (seconds() - began) / count;
    }
    free(from);
    free(to);
    return result;
}

static void print_row(lk_device *const *devices, size_t bytes, bool quick)
{
    double reduced[MAX_ROUNDS], copied[MAX_ROUNDS];
    int rounds = quick ? 1 : MAX_ROUNDS, count = repetitions(bytes, quick ? 1u << 20 : 1u << 27);
    for (int i = 0; i < rounds; i++) {
        lk_scope_begin();
        reduced[i] = allreduce(devices, bytes, count);
        lk_scope_end();
        copied[i] = copy(bytes, count);
    }
    qsort(reduced, (size_t)rounds, sizeof *reduced, by_size);
    qsort(copied, (size_t)rounds, sizeof *copied, by_size);
    double sum = reduced[rounds / 2], plain = copied[rounds / 2];
    printf("| %10zu | %10.1f | %13.2f | %11.2f | %5.2f |\n", bytes, 1e6 * sum, (double)bytes / sum / 1e9,
           (double)bytes / plain / 1e9, plain / sum);
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    if (lk_device_available("cpu") < DEVICES) {
        printf("collective: not measured: one core\n");
        return 0;
    }
    lk_device *devices[DEVICES];
    int n_devices;
    if (lk_devices_open("2xcpu", devices, DEVICES, &n_devices) == LK_OK) {
        printf("| %10s | %10s | %13s | %11s | %5s |\n", "bytes", "all-reduce", "all-reduce", "memcpy", "ratio");
        printf("| %10s | %10s | %13s | %11s | %5s |\n", "", "us", "GB/s", "GB/s", "");
        printf("| ---------- | ---------- | ------------- | ----------- | ----- |\n");
        for (size_t bytes = 1 << 10; bytes <= 1 << 26; bytes <<= 4)
            print_row(devices, bytes, quick);
        lk_devices_release(devices, n_devices);
    }
    if (lk_error_status() == LK_OK)
        return 0;
    fprintf(stderr, "bench_collective: %s\n", lk_error_message());
    return 1;
}
