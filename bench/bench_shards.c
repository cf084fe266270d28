/* Measures the cost of shards when one device runs all of them: steps of one shard and of several, in turns.
 *
 * bench_shards [--quick] [MODEL [BATCH [SHARDS [STEPS [ROUNDS]]]]]: a reference model or a model file; by default
 * lenet, a batch of 256, 8 shards, 4 steps per turn, 15 rounds. Times are processor times of the whole process, which a
 * busy machine changes less; images are synthetic. --quick: one round of one step. */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_ROUNDS = 99, WARM = 2, BATCHES = 8 };

typedef struct setting {
    const char *model;
    int64_t batch, shards, steps, rounds;
} setting;

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return values[n / 2];
}

static lk_trainer *new_trainer(const setting *s, int64_t shards)
{
    lk_train_config config;
    if (lk_train_defaults(NULL, &config) != LK_OK)
        return NULL;
    config.model = s->model;
    config.data.name = "synthetic";
    config.devices.spec = "1xcpu";
    config.batch_size = s->batch;
    config.devices.shards = shards;
    config.data.limit_train = BATCHES * s->batch;
    config.data.limit_val = 0;
    return lk_trainer_new(&config);
}

/* Milliseconds per step. */
static double time_steps(lk_trainer *trainer, int64_t steps)
{
    double began = processor_seconds();
    lk_trainer_run(trainer, steps);
    return 1e3 * (processor_seconds() - began) / (double)steps;
}

static lk_status measure(const setting *s, lk_trainer *one, lk_trainer *several)
{
    double times[2][MAX_ROUNDS], ratios[MAX_ROUNDS];
    lk_trainer_run(one, WARM);
    lk_trainer_run(several, WARM);
    for (int64_t i = 0; i < s->rounds && lk_error_status() == LK_OK; i++) {
        times[0][i] = time_steps(one, s->steps);
        times[1][i] = time_steps(several, s->steps);
        ratios[i] = times[1][i] / times[0][i];
    }
    if (lk_error_status() != LK_OK)
        return lk_error_status();
    double single = median(times[0], s->rounds), all = median(times[1], s->rounds);
    printf("| %s | %lld | %lld | %.2f | %.2f | %.3f | %.3f | %.3f |\n", s->model, (long long)s->batch,
           (long long)s->shards, single, all, all / single, median(ratios, s->rounds), times[1][0] / times[0][0]);
    return LK_OK;
}

static int64_t number(const char *text, int64_t least, int64_t most)
{
    char *end;
    long long n = strtoll(text, &end, 10);
    if (*end || n < least || n > most) {
        fprintf(stderr, "bench_shards: '%s'; a number from %lld to %lld is needed\n", text, (long long)least,
                (long long)most);
        exit(2);
    }
    return n;
}

int main(int argc, char **argv)
{
    setting s = {.model = "lenet", .batch = 256, .shards = 8, .steps = 4, .rounds = 15};
    if (argc > 1 && strcmp(argv[1], "--quick") == 0) {
        s.steps = s.rounds = 1;
        argc--;
        argv++;
    }
    if (argc > 1)
        s.model = argv[1];
    int64_t *numbers[] = {&s.batch, &s.shards, &s.steps, &s.rounds};
    for (int i = 2; i < argc && i < 6; i++)
        *numbers[i - 2] = number(argv[i], 1, i == 5 ? MAX_ROUNDS : 1 << 20);
    puts("| network | batch | V | one shard, ms | V shards, ms | of medians | median of ratios | of least |\n"
         "| --- | --- | --- | --- | --- | --- | --- | --- |");
    lk_trainer *one = new_trainer(&s, 1), *several = one ? new_trainer(&s, s.shards) : NULL;
    lk_status status = several ? measure(&s, one, several) : lk_error_status();
    if (status != LK_OK)
        fprintf(stderr, "bench_shards: %s\n", lk_error_message());
    lk_trainer_release(one);
    lk_trainer_release(several);
    return status == LK_OK ? 0 : 1;
}
