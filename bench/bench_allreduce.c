/* Compares sums over shards between processes of one machine with MPI's own all-reduce, in turns. Start it with mpirun,
 * one process per rank:
 *
 *     mpirun -n 2 build/bench/bench_allreduce [SAMPLES [mpi]]
 *
 * Ours go through shared memory, as with `lockstep launch -n`, or through MPI's messages. */
#include <lockstep/lockstep.h>

#include <fcntl.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_SAMPLES = 101 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void check(lk_status status)
{
    if (status == LK_OK)
        return;
    fprintf(stderr, "bench_allreduce: %s\n", lk_error_message());
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

/* --- the two ways ------------------------------------------------------------------------------------------------- */

typedef struct way {
    lk_device *device;
    lk_strategy *strategy;
    lk_shard_sum *sum;
    lk_tensor *value;
    float *mine, *all;
    int64_t count;
} way;

/* Sums the gradient in one tensor into another. */
static double ours(const way *w)
{
    lk_tensor *sum = NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    double began = now();
    check(lk_shard_sum_add(w->sum, lk_strategy_first_rank(w->strategy), &w->value));
    check(lk_shard_sum_finish(w->sum, &sum));
    check(lk_tensor_wait(sum));
    double seconds = now() - began;
    lk_tensor_release(sum);
    return seconds;
}

static double library(const way *w)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double began = now();
    MPI_Allreduce(w->mine, w->all, (int)w->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return now() - began;
}

/* The time of the slowest rank. */
static double slowest(double seconds)
{
    double most;
    MPI_Allreduce(&seconds, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

/* --- a size ------------------------------------------------------------------------------------------------------- */

static void measure(way *w, int64_t bytes, int samples, int rank)
{
    double mine[MAX_SAMPLES], theirs[MAX_SAMPLES], ratio[MAX_SAMPLES];
    w->count = bytes / (int64_t)sizeof(float);
    w->mine = malloc((size_t)bytes);
    w->all = malloc((size_t)bytes);
    if (!w->mine || !w->all)
        exit(1);
    for (int64_t i = 0; i < w->count; i++)
        w->mine[i] = (float)(i % 1000 + rank);
    w->value = lk_tensor_from(w->device, LK_F32, LK_SHAPE(w->count), w->mine);
    w->sum = lk_shard_sum_new(w->strategy, lk_strategy_ranks(w->strategy), 1);
    check(w->value && w->sum ? LK_OK : lk_error_status());
    ours(w), library(w); /* warm-up: allocates memory, connects */
    for (int s = 0; s < samples; s++) {
        mine[s] = slowest(ours(w));
        theirs[s] = slowest(library(w));
        ratio[s] = theirs[s] / mine[s];
    }
    if (rank == 0)
        printf("%6.0f kB  %8.3f ms  %8.3f ms  %6.2f\n", (double)bytes / 1e3, 1e3 * median(mine, samples),
               1e3 * median(theirs, samples), median(ratio, samples));
    lk_shard_sum_release(w->sum);
    lk_tensor_release(w->value);
    free(w->mine);
    free(w->all);
}

/* Lets multi-worker use shared memory, as `lockstep launch` does: rank 0 makes it, and the others open it. */
static void share_memory(void)
{
    int rank, ranks, descriptor = -1;
    char text[64];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0)
        check(lk_processes_share(ranks, &descriptor));
    snprintf(text, sizeof text, "/proc/%d/fd/%d", (int)getpid(), descriptor);
    MPI_Bcast(text, sizeof text, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank > 0)
        descriptor = open(text, O_RDWR);
    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(text, sizeof text, "%d", descriptor);
    setenv(LK_SHARED_MEMORY_VARIABLE, text, 1);
    snprintf(text, sizeof text, "%d", rank);
    setenv(LK_RANK_VARIABLE, text, 1);
}

int main(int argc, char **argv)
{
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    bool by_mpi = argc > 2 && strcmp(argv[2], "mpi") == 0; /* then the library starts and ends MPI */
    int samples = argc > 1 ? atoi(argv[1]) : 21, rank;
    char core[32];
    if (samples < 1 || samples > MAX_SAMPLES) {
        fprintf(stderr, "bench_allreduce: 1 to %d samples\n", MAX_SAMPLES);
        return 2;
    }
    if (!by_mpi) {
        MPI_Init(NULL, NULL);
        share_memory();
    }
    snprintf(core, sizeof core, "cpu:%d", (local ? atoi(local) : 0) % lk_device_available("cpu"));
    way w = {.device = lk_device_open(core)};
    check(w.device ? LK_OK : lk_error_status());
    w.strategy = lk_strategy_new("multi-worker", &w.device, 1);
    check(w.strategy ? LK_OK : lk_error_status());
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("%s\n     size        ours         MPI  ours/MPI's speed\n", lk_strategy_transport(w.strategy));
    for (int64_t bytes = 4 << 10; bytes <= 64 << 20; bytes *= 4)
        measure(&w, bytes, samples, rank);
    lk_strategy_release(w.strategy);
    lk_device_release(w.device);
    check(lk_leave_processes());
    if (!by_mpi)
        MPI_Finalize();
    return 0;
}
