#include "launch_job.h"

#include "cli.h"
#include "launch_ranks.h"
#include "launch_starters.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

/* Milliseconds. What mpirun has not ended by then, as on a machine that does not answer, ends when it is gone. */
enum {
    TICK = 100,
    FOR_OTHER_FAILURES = 1500,
    FOR_THE_CAUSE = 5000,
    FOR_THE_END = 1000,
    AFTER_THE_FIRST = 5000, /* that has ended as it should: the chief, or an interrupted rank */
    MOST_RESTARTS = 10
};

typedef enum job_outcome { RUNNING, FAILED, STALLED, ENDED_AT_ONCE, LEFT_BEHIND } job_outcome;

typedef struct job {
    const cli_job_opts *opts;
    cli_ranks *ranks;
    cli_starters *starters;
    char said[4096]; /* by mpirun itself: the last of it, a string */
    size_t n_said;
    int interrupts; /* that were passed on */
    int told;       /* ranks that were there when one was last */
    job_outcome outcome;
    int restarts;
    /* 0: it was not. failed: when a failure was seen first; ended: when the job was told to end; left: when the chief,
     * or the first rank that was interrupted, had ended */
    int64_t now, failed, ended, left;
} job;

static volatile sig_atomic_t interrupts;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupts++;
}

/* Without SA_RESTART: poll comes back. */
static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int64_t clock_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* --- what comes --------------------------------------------------------------------------------------------------- */

static void take_record(void *self, const cli_record *record)
{
    cli_ranks_take(((job *)self)->ranks, record);
}

/* Of `bytes` that mpirun says, gives how many were kept. */
static size_t keep_text(job *j, const char *text, size_t bytes)
{
    size_t half = sizeof j->said / 2, n = bytes < half ? bytes : half;
    if (j->n_said + n >= sizeof j->said) {
        j->n_said -= half;
        memmove(j->said, j->said + half, j->n_said);
    }
    for (size_t i = 0; i < n; i++)
        j->said[j->n_said + i] = (char)(text[i] ? text[i] : ' ');
    j->n_said += n;
    j->said[j->n_said] = '\0';
    return n;
}

/* An interrupt that comes before a supervisor is ready to hand it on ends that instead. */
static void lose(job *j, int rank, bool by_signal, int number)
{
    bool is_interrupt = j->interrupts > 0 && by_signal && number == SIGUSR1;
    cli_ranks_lose(j->ranks, rank, by_signal && !is_interrupt, is_interrupt ? CLI_RANK_INTERRUPTED : number);
}

/* A supervisor that was killed can say nothing of it; mpirun does, and ends the others. */
static void take_text(void *self, const char *text, size_t bytes)
{
    job *j = self;
    int rank, signal;
    bool is_echo = j->failed || j->ended || j->interrupts;
    if (!is_echo)
        fwrite(text, 1, bytes, stderr);
    for (size_t done = 0; done < bytes && !j->ended;) {
        done += keep_text(j, text + done, bytes - done);
        if (cli_mpirun_names_killed(j->said, &rank, &signal))
            lose(j, rank, true, signal);
    }
}

/* A supervisor tells of its rank's end before its own; one that has not was killed, and has taken its rank along, or
 * could not start it. */
static void lose_rank(void *self, int rank, int status)
{
    bool by_signal = WIFSIGNALED(status);
    lose(self, rank, by_signal, by_signal ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* --- watching ----------------------------------------------------------------------------------------------------- */

static void end_job(job *j, job_outcome outcome)
{
    j->outcome = outcome;
    j->ended = j->now;
    cli_starters_signal_all(j->starters, SIGTERM);
}

/* The first interrupt is the ranks' to end by, or the chief's, which ends the others; the second one ends them. mpirun
 * hands it on to the ranks that it has started by then, so it is told again when more of them are there. */
static void pass_interrupts_on(job *j)
{
    if (interrupts == 0 || j->ended)
        return;
    if (j->interrupts == 0) {
        fputs("lockstep: finishing this step; a second interrupt ends at once\n", stderr);
        j->told = -1;
        j->interrupts = 1;
    }
    int there = cli_ranks_count_there(j->ranks);
    if (there > j->told)
        cli_starters_signal_first(j->starters, SIGUSR1);
    j->told = there;
    if (interrupts > 1)
        end_job(j, ENDED_AT_ONCE);
}

static bool is_stalled(job *j)
{
    double timeout = j->opts->stall_timeout;
    return timeout > 0 && cli_ranks_any_stalled(j->ranks, timeout, j->opts->workers > 0);
}

/* One that ended by an error is given some time for another one to turn out to be the cause, and to say what it was. */
static int64_t patience_after(cli_failure failure)
{
    return failure == CLI_FAILURE_SIGNAL ? 0 : failure == CLI_FAILURE_ERROR ? FOR_OTHER_FAILURES : FOR_THE_CAUSE;
}

/* Ranks that are interrupted end together; but one that was not training yet ends at once, and others that were would
 * wait for it. */
static void look_at_ranks(job *j)
{
    if (j->ended)
        return;
    cli_failure failure = cli_ranks_failure(j->ranks);
    if (failure != CLI_NO_FAILURE) {
        j->failed = j->failed ? j->failed : j->now;
        if (j->now - j->failed >= patience_after(failure))
            end_job(j, FAILED);
    } else if (cli_ranks_status(j->ranks) != 0) {
        j->left = j->left ? j->left : j->now;
        if (j->now - j->left >= AFTER_THE_FIRST)
            end_job(j, LEFT_BEHIND);
    } else if (is_stalled(j)) {
        end_job(j, STALLED);
    }
}

/* --- a parameter-server training ---------------------------------------------------------------------------------- */

static bool start_again(job *j, int rank)
{
    if (!j->opts->restarts_servers || j->restarts == MOST_RESTARTS)
        return false;
    j->restarts++;
    return cli_starters_start_again(j->starters, rank);
}

/* Of workers some may go, of servers those that can be started again. */
static void look_at_ended(job *j, int rank)
{
    bool is_server = cli_role_is_server(j->opts, rank);
    if (rank == 0) {
        j->left = j->now;
        if (cli_ranks_has_failed(j->ranks, 0)) {
            cli_ranks_blame(j->ranks, 0);
            end_job(j, FAILED);
        }
    } else if (cli_ranks_has_failed(j->ranks, rank) && !j->left && !j->interrupts) {
        bool starts = is_server && start_again(j, rank);
        bool is_last = is_server ? !starts : cli_ranks_none_left(j->ranks, 1 + j->opts->servers);
        if (is_last) {
            cli_ranks_blame(j->ranks, rank);
            end_job(j, cli_ranks_is_stopped(j->ranks, 0) ? STALLED : FAILED);
            return;
        }
        cli_ranks_print_end(j->ranks, rank);
        if (starts)
            cli_ranks_begin_again(j->ranks, rank);
    }
}

static void look_at_roles(job *j)
{
    const double patience = 3;
    for (int rank; !j->ended && (rank = cli_ranks_next_ended(j->ranks, patience)) >= 0;)
        look_at_ended(j, rank);
    if (!j->ended && j->left && j->now - j->left >= AFTER_THE_FIRST)
        end_job(j, LEFT_BEHIND);
    else if (!j->ended && !j->left && is_stalled(j))
        end_job(j, STALLED);
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

static bool has_time(const job *j)
{
    return !j->ended || j->now - j->ended < FOR_THE_END;
}

static bool goes_on(const job *j)
{
    bool is_over = j->opts->workers > 0 ? cli_ranks_all_ended(j->ranks) && (j->left || j->ended)
                                        : !cli_starters_are_heard(j->starters);
    return !is_over && has_time(j);
}

static void watch(job *j)
{
    j->now = clock_ms();
    while (goes_on(j)) {
        cli_starters_listen(j->starters, TICK);
        int64_t before = j->now;
        j->now = clock_ms();
        cli_ranks_age(j->ranks, 1e-3 * (double)(j->now - before));
        pass_interrupts_on(j);
        cli_starters_reap(j->starters);
        if (j->opts->workers > 0)
            look_at_roles(j);
        else
            look_at_ranks(j);
    }
}

/* --- what became of it -------------------------------------------------------------------------------------------- */

/* mpirun ended, and no rank had failed. */
static int tell_mpirun(job *j, int status)
{
    int rank_status = cli_ranks_status(j->ranks);
    if (j->interrupts > 0 || rank_status)
        return 130;
    if (status == 0 && cli_ranks_all_ended(j->ranks))
        return 0;
    if (WIFSIGNALED(status))
        fprintf(stderr, "lockstep: mpirun was killed by signal %d\n", WTERMSIG(status));
    else
        fprintf(stderr, "lockstep: mpirun ended with status %d%s\n", WEXITSTATUS(status),
                cli_ranks_all_ended(j->ranks) ? "" : " before all ranks had ended");
    return 1;
}

static int tell(job *j, int status)
{
    if (j->outcome == ENDED_AT_ONCE)
        return 130;
    if (j->outcome == STALLED)
        return cli_ranks_print_stalled(j->ranks);
    if (j->opts->workers > 0 && j->outcome != FAILED)
        return cli_ranks_status(j->ranks);
    if (cli_ranks_failure(j->ranks) != CLI_NO_FAILURE)
        return cli_ranks_print_failed(j->ranks);
    return tell_mpirun(j, status);
}

/* Whether to start it again may help: not where somebody wanted the end, nor where the ranks were told nonsense. */
static bool may_start_again(const job *j, int status)
{
    return status != 0 && status != 2 && j->interrupts == 0 && interrupts == 0 && j->outcome != ENDED_AT_ONCE;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static int run(job *j)
{
    catch_interrupts();
    bool is_started = cli_starters_start(j->starters);
    if (is_started)
        watch(j);
    int status = cli_starters_end(j->starters);
    return is_started ? tell(j, status) : 1;
}

static char (*make_names(const cli_job_opts *opts))[CLI_RANK_NAME]
{
    char(*names)[CLI_RANK_NAME] = opts->workers > 0 ? calloc((size_t)opts->ranks, sizeof *names) : NULL;
    for (int i = 0; names && i < opts->ranks; i++)
        cli_role_name(opts, i, names[i], sizeof names[i]);
    return names;
}

/* is_again: a log goes on. */
static int run_once(const cli_job_opts *opts, bool is_again, bool *may_again)
{
    int status = 1;
    *may_again = false;
    job *j = calloc(1, sizeof *j);
    if (!j)
        return cli_usage_error("launch: %s", strerror(errno));
    const cli_starters_events events = {j, take_record, take_text, lose_rank};
    char(*names)[CLI_RANK_NAME] = make_names(opts);
    j->opts = opts;
    j->starters = cli_starters_new(opts, &events);
    if (j->starters)
        j->ranks = cli_ranks_new(opts->ranks, (const char(*)[CLI_RANK_NAME])names, opts->log_dir, is_again);
    else
        cli_usage_error("launch: %s", strerror(errno));
    if (j->ranks) {
        status = run(j);
        *may_again = may_start_again(j, status);
    }
    cli_ranks_release(j->ranks);
    cli_starters_release(j->starters);
    free(names);
    free(j);
    return status;
}

int cli_job_run(const cli_job_opts *opts)
{
    bool may_again;
    int status = run_once(opts, false, &may_again);
    for (int n = 1; may_again && n <= opts->max_restarts; n++) {
        cli_job_opts again = *opts;
        again.command = opts->again;
        fprintf(stderr, "lockstep: starting all ranks again, from the last checkpoint: restart %d of at most %d\n", n,
                opts->max_restarts);
        status = run_once(&again, true, &may_again);
    }
    return status;
}
