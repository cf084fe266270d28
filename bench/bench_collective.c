/* Compares lk_allreduce over the CPU devices of one process with memcpy on two cores.
 *
 * Both move the same bytes: an all-reduce over k devices reads k tensors and writes k; each of two copying threads
 * reads and writes k / 2 tensors, in memory that was used before. They are measured in turns. Speeds are bytes read and
 * written per second, of the fastest round and of the median round. The last column is the ratio of processor times of
 * the median rounds, without waiting, which other work on the machine disturbs least. --quick: one short round. */
#include <lockstep/lockstep.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_ROUNDS = 15, MAX_DEVICES = 4, COPIERS = 2 };

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef struct sample {
    double elapsed, processor; /* seconds per repetition; processor: time of all threads */
} sample;

/* --- all-reduce --------------------------------------------------------------------------------------------------- */

static sample allreduce(lk_tensor *const *tensors, int k, int count)
{
    double began = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < count; i++)
        lk_allreduce(tensors, k);
    lk_wait_all();
    return (sample){(seconds(CLOCK_MONOTONIC) - began) / count, (seconds(CLOCK_PROCESS_CPUTIME_ID) - used) / count};
}

/* --- memcpy ------------------------------------------------------------------------------------------------------- */

/* Offsets of source and destination in a page differ by half a page: with equal offsets copying is ten times slower on
 * processors that assume loads depend on stores at the same offset. */
enum { PAGE = 4096 };

typedef struct copier {
    pthread_t thread;
    pthread_barrier_t *start;
    char *memory, *from, *to;
    size_t bytes;
    int count;
    double began, ended, used;
} copier;

static bool make_copier(copier *c, size_t bytes)
{
    size_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    c->bytes = bytes;
    c->memory = aligned_alloc(PAGE, 2 * pages + PAGE);
    if (!c->memory)
        return false;
    memset(c->memory, 1, 2 * pages + PAGE);
    c->from = c->memory;
    c->to = c->memory + pages + PAGE / 2;
    return true;
}

static void *copy_main(void *argument)
{
    copier *c = argument;
    pthread_barrier_wait(c->start);
    c->began = seconds(CLOCK_MONOTONIC);
    double used = seconds(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < c->count; i++) {
        memcpy(c->to, c->from, c->bytes);
        __asm__ volatile("" : : "r"(c->to) : "memory"); /* keeps the compiler from leaving a copy out */
    }
    c->used = seconds(CLOCK_THREAD_CPUTIME_ID) - used;
    c->ended = seconds(CLOCK_MONOTONIC);
    return NULL;
}

/* Seconds from the start of the first thread to the end of the last. */
static sample copy(copier *copiers, int count)
{
    pthread_barrier_t start;
    sample result = {0};
    pthread_barrier_init(&start, NULL, COPIERS);
    for (int t = 0; t < COPIERS; t++) {
        copiers[t].start = &start;
        copiers[t].count = count;
        if (pthread_create(&copiers[t].thread, NULL, copy_main, &copiers[t]) != 0)
            abort();
    }
    double began = 0, ended = 0;
    for (int t = 0; t < COPIERS; t++) {
        pthread_join(copiers[t].thread, NULL);
        began = t == 0 || copiers[t].began < began ? copiers[t].began : began;
        ended = t == 0 || copiers[t].ended > ended ? copiers[t].ended : ended;
        result.processor += copiers[t].used / count;
    }
    pthread_barrier_destroy(&start);
    result.elapsed = (ended - began) / count;
    return result;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct summary {
    double best, median, processor;
} summary;

static summary summarize(const sample *samples, int n)
{
    double elapsed[MAX_ROUNDS], processor[MAX_ROUNDS];
    for (int i = 0; i < n; i++) {
        elapsed[i] = samples[i].elapsed;
        processor[i] = samples[i].processor;
    }
    qsort(elapsed, (size_t)n, sizeof *elapsed, by_value);
    qsort(processor, (size_t)n, sizeof *processor, by_value);
    return (summary){elapsed[0], elapsed[n / 2], processor[n / 2]};
}

/* The number of repetitions that move about `total` bytes. */
static int repetitions(double moved, double total)
{
    double count = total / moved;
    return count < 2 ? 2 : count > 4000 ? 4000 : (int)count;
}

static void measure(lk_tensor *const *tensors, int k, copier *copiers, size_t bytes, bool quick)
{
    sample reduced[MAX_ROUNDS], copied[MAX_ROUNDS];
    double moved = 2.0 * k * (double)bytes;
    int rounds = quick ? 1 : MAX_ROUNDS, count = repetitions(moved, quick ? 1 << 20 : 1 << 29);
    allreduce(tensors, k, 1);
    copy(copiers, 1);
    for (int i = 0; i < rounds; i++) {
        reduced[i] = allreduce(tensors, k, count);
        copied[i] = copy(copiers, count);
    }
    summary sum = summarize(reduced, rounds), plain = summarize(copied, rounds);
    printf("| %7d | %9zu | %10.1f | %5.2f, %5.2f | %5.2f, %5.2f | %4.2f, %4.2f | %4.2f |\n", k, bytes, 1e6 * sum.median,
           moved / sum.best / 1e9, moved / sum.median / 1e9, moved / plain.best / 1e9, moved / plain.median / 1e9,
           plain.best / sum.best, plain.median / sum.median, plain.processor / sum.processor);
    fflush(stdout);
}

/* Sums zeros, so that values stay finite. */
static void print_row(lk_device *const *devices, int k, size_t bytes, bool quick)
{
    lk_tensor *tensors[MAX_DEVICES];
    copier copiers[COPIERS] = {{0}};
    bool complete = true;
    lk_scope_begin();
    for (int d = 0; d < k; d++)
        tensors[d] = lk_zeros(devices[d], LK_F32, LK_SHAPE((int64_t)(bytes / sizeof(float))));
    for (int t = 0; t < COPIERS; t++)
        complete = make_copier(&copiers[t], bytes * (size_t)k / COPIERS) && complete;
    if (complete)
        measure(tensors, k, copiers, bytes, quick);
    for (int t = 0; t < COPIERS; t++)
        free(copiers[t].memory);
    lk_scope_end();
}

static void print_table(lk_device *const *devices, bool quick)
{
    static const size_t sizes[] = {1 << 10, 1 << 14, 1 << 18, 1 << 22, 68000000};
    printf("| devices | bytes     | all-reduce | all-reduce   | memcpy       | ratio      | processor |\n");
    printf("|         |           | us, median | GB/s         | GB/s         |            | time      |\n");
    printf("| ------- | --------- | ---------- | ------------ | ------------ | ---------- | --------- |\n");
    for (int k = 2; k <= MAX_DEVICES; k += 2)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            print_row(devices, k, sizes[i], quick);
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    if (lk_device_available("cpu") < COPIERS) {
        printf("collective: not measured: one core\n");
        return 0;
    }
    lk_device *devices[MAX_DEVICES];
    int n_devices;
    if (lk_devices_open("4xcpu", devices, MAX_DEVICES, &n_devices) == LK_OK) {
        print_table(devices, quick);
        lk_devices_release(devices, n_devices);
    }
    if (lk_error_status() == LK_OK)
        return 0;
    fprintf(stderr, "bench_collective: %s\n", lk_error_message());
    return 1;
}
