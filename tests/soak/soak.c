/* Trains with random settings, disturbs the trainings in random ways, and compares each with an undisturbed one:
 *
 *     soak LOCKSTEP [HOURS] [--seed N] [--trials N]
 *
 * The seed of a trial is the first one, which is printed, plus its number. --seed N with neither hours nor trials
 * repeats that trial alone and prints all its command lines. A case that goes wrong is printed, made smaller, and
 * printed again; the exit status is then 1. */
#include "soak_draw.h"
#include "soak_place.h"
#include "soak_processes.h"
#include "soak_reduce.h"
#include "soak_rules.h"
#include "soak_trial.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { REDUCTION_SECONDS = 120 };

typedef struct soak_totals {
    int trials, refused, wrong, disturbed[SOAK_DISTURBANCE_KINDS];
} soak_totals;

static volatile sig_atomic_t soak_is_interrupted;

static void soak_interrupt(int signal_number)
{
    (void)signal_number;
    soak_is_interrupted = 1;
}

/* Variables of the caller's must not reach the trials. */
static void soak_clear_environment(void)
{
    extern char **environ;
    char names[64][64];
    int count = 0;
    for (char **variable = environ; *variable && count < 64; variable++)
        if (strncmp(*variable, "LOCKSTEP_", 9) == 0 || strncmp(*variable, "TF_CONFIG=", 10) == 0 ||
            strncmp(*variable, "XDG_CACHE_HOME=", 15) == 0)
            snprintf(names[count++], sizeof names[0], "%.*s", (int)strcspn(*variable, "="), *variable);
    for (int i = 0; i < count; i++)
        unsetenv(names[i]);
}

static bool soak_find_programs(const char *lockstep, soak_programs *programs, soak_means *means)
{
    char path[PATH_MAX], command[PATH_MAX + 64];
    if (!realpath(lockstep, path) || access(path, X_OK) != 0) {
        fprintf(stderr, "soak: %s: no program\n", lockstep);
        return false;
    }
    snprintf(programs->lockstep, sizeof programs->lockstep, "%.500s", path);
    *strrchr(path, '/') = '\0';
    snprintf(programs->clock, sizeof programs->clock, "%.400s/tests/libsoak_clock_jump.so", path);
    snprintf(programs->cuda, sizeof programs->cuda, "%.400s/tests/liblockstep_cuda_emulated.so", path);
    snprintf(programs->pjrt, sizeof programs->pjrt, "%.400s/tests/liblockstep_pjrt_test.so", path);
    snprintf(command, sizeof command, "%.500s doctor 2>/dev/null | grep -q '^  ZeroMQ *[0-9]'", programs->lockstep);
    means->has_cuda = access(programs->cuda, R_OK) == 0;
    means->has_pjrt = access(programs->pjrt, R_OK) == 0;
    means->has_zmq = system(command) == 0;
    means->has_mpi = system("command -v mpirun >/dev/null") == 0;
    return true;
}

static void soak_run_case(uint64_t seed, bool is_shown, const soak_programs *programs, const soak_means *means,
                          soak_totals *totals)
{
    static soak_case drawn;
    soak_result result;
    soak_case_draw(seed, means, &drawn);
    soak_trial_run(&drawn, programs, &result);
    totals->trials++;
    if (is_shown && result.verdict != SOAK_WRONG)
        printf("%s", result.log);
    totals->refused += result.verdict == SOAK_REFUSED;
    for (int i = 0; i < SOAK_DISTURBANCE_KINDS; i++)
        totals->disturbed[i] += result.disturbed[i];
    if (result.verdict == SOAK_WRONG && !soak_is_interrupted) {
        totals->wrong++;
        printf("--- seed %llu: %s\n%s", (unsigned long long)seed, result.reason, result.log);
        fflush(stdout);
        soak_reduce(&drawn, programs, REDUCTION_SECONDS, &result);
        printf("--- seed %llu, reduced: %s\n%s--- repeat with ./dev soak --seed %llu\n", (unsigned long long)seed,
               result.reason, result.log, (unsigned long long)seed);
        fflush(stdout);
    }
    free(result.log);
}

static void soak_print_totals(const soak_totals *totals)
{
    int count, never = 0;
    const soak_row *rows = soak_rows(&count);
    for (int i = 0; i < count; i++)
        if (soak_covered(rows[i].option->name, rows[i].is_launch) == 0)
            printf("%s%s--%s", never++ ? ", " : "options without a trial: ", rows[i].is_launch ? "launch " : "",
                   rows[i].option->name);
    printf("%s%d of %d options had trials\n", never ? "\n" : "", count - never, count);
    int disturbed = 0;
    for (int i = 0; i < SOAK_DISTURBANCE_KINDS; i++) {
        disturbed += totals->disturbed[i];
        printf("%s%s %d", i ? ", " : "disturbances: ", soak_disturbance_names[i], totals->disturbed[i]);
    }
    printf("\n%d trials, %d refused, %d disturbances, %d wrong\n", totals->trials, totals->refused, disturbed,
           totals->wrong);
    printf("%d passed, %d failed\n", totals->trials - totals->wrong, totals->wrong);
}

int main(int argc, char **argv)
{
    static soak_programs programs;
    soak_means means;
    soak_totals totals = {.trials = 0};
    uint64_t seed = (uint64_t)time(NULL) * 1000 % 1000000000;
    double hours = -1;
    long trials = -1;
    bool has_seed = false, is_usage_wrong = argc < 2;
    for (int i = 2; i < argc && !is_usage_wrong; i++) {
        bool is_seed = strcmp(argv[i], "--seed") == 0, is_trials = strcmp(argv[i], "--trials") == 0;
        const char *text = is_seed || is_trials ? argv[++i] : argv[i];
        char *end = NULL;
        double number = text ? strtod(text, &end) : -1;
        is_usage_wrong = !end || end == text || *end || !(number >= 0);
        has_seed |= is_seed;
        if (is_seed)
            seed = (uint64_t)number;
        else if (is_trials)
            trials = (long)number;
        else
            hours = number;
    }
    if (is_usage_wrong) {
        fprintf(stderr, "usage: soak LOCKSTEP [HOURS] [--seed N] [--trials N]\n");
        return 2;
    }
    if (soak_rows_gap()) {
        fprintf(stderr,
                "soak: --%s: its row and the rules of tests/soak/soak_rules.c do not fit: a text needs a rule\n",
                soak_rows_gap());
        return 1;
    }
    soak_clear_environment();
    if (!soak_find_programs(argv[1], &programs, &means))
        return 1;
    soak_place_isolate();
    soak_processes_adopt();
    signal(SIGINT, soak_interrupt);
    signal(SIGTERM, soak_interrupt);
    signal(SIGPIPE, SIG_DFL);
    if (hours < 0 && trials < 0) {
        hours = has_seed ? 0 : 1;
        trials = has_seed ? 1 : -1;
    }
    printf("first seed %llu%s%s%s\n", (unsigned long long)seed, soak_place_has_disks() ? "" : ", no mounts",
           means.has_cuda ? "" : ", no emulated GPUs", means.has_zmq ? "" : ", no ZeroMQ");
    fflush(stdout);
    double ends = soak_seconds() + hours * 3600;
    for (; !soak_is_interrupted && (trials >= 0 ? totals.trials < trials : soak_seconds() < ends); seed++)
        soak_run_case(seed, has_seed && trials == 1, &programs, &means, &totals);
    soak_print_totals(&totals);
    return totals.wrong > 0 ? 1 : 0;
}
