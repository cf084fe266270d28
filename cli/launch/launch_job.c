#include "cli/launch/launch_job.h"

#include "cli/cli.h"
#include "cli/cli_clock.h"
#include "cli/launch/launch_mpirun.h"
#include "cli/launch/launch_ranks.h"
#include "cli/launch/launch_roles.h"
#include "cli/launch/launch_starters.h"
#include "cli/launch/mpi_leftovers.h"
#include "cli/text/progress.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Milliseconds to wait. */
enum {
    TICK = 100,                /* for output, between two checks of the ranks */
    FOR_OTHER_FAILURES = 1500, /* after an error, for the failure that caused it */
    FOR_THE_CAUSE = 5000,      /* the same if the rank only reports that another one gave up */
    FOR_WRITERS = 200,         /* elastic: after a failure, for survivors to write their state, */
    FOR_LONG_WRITERS = 2000,   /* at most, if they are known to be writing */
    BETWEEN_STOPS = 1000,      /* between two calls of wants_stop */
    FOR_THE_END = 1000,        /* for the ranks to end; then mpirun is killed, and ranks it could not reach end too */
    AFTER_THE_FIRST = 5000     /* for the others, after the chief or the first interrupted rank has ended properly */
};

enum { MOST_RESTARTS = 10 }; /* of servers */

typedef enum job_outcome { RUNNING, FAILED, STALLED, ENDED_AT_ONCE, LEFT_BEHIND } job_outcome;

typedef struct job {
    const cli_job_opts *opts;
    cli_ranks *ranks;
    cli_starters *starters;
    char said[4096];  /* the latest output of mpirun itself, a string */
    char mpi_job[16]; /* mpirun's number of the job; "": not known */
    size_t n_said;
    int interrupts; /* number passed on to the ranks */
    int n_told;     /* ranks present when an interrupt was last passed on */
    job_outcome outcome;
    cli_job_end *end; /* the ranks that are gone are noted before the others are ended */
    bool is_stopping; /* wants_stop asked for it */
    int64_t asked;    /* time of the last call of wants_stop */
    int restarts;
    /* Times in milliseconds; 0: it has not happened. failed: first failure seen; ended: the job was told to end; left:
     * the chief, or the first interrupted rank, ended. */
    int64_t now, failed, ended, left;
} job;

static volatile sig_atomic_t interrupts;
static volatile int64_t requested; /* time of the first; used by the handler alone */

static void job_on_interrupt(int signal)
{
    (void)signal;
    int64_t now = cli_milliseconds();
    if (interrupts == 0)
        requested = now;
    else if (now - requested < CLI_SAME_REQUEST_MS)
        return;
    interrupts++;
}

/* SA_RESTART is not set, so that an interrupt ends poll. */
static void job_catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = job_on_interrupt};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* --- output and ends of ranks ------------------------------------------------------------------------------------- */

static void job_take_record(void *self, const cli_record *record)
{
    job *j = self;
    if (record->kind == CLI_RECORD_JOB)
        snprintf(j->mpi_job, sizeof j->mpi_job, "%.*s", record->bytes, record->data);
    cli_ranks_take(j->ranks, record);
}

/* Keeps the latest output of mpirun; returns how many of `bytes` were kept. */
static size_t job_keep_text(job *j, const char *text, size_t bytes)
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

/* Records that a supervisor has ended. A signal of the launcher that arrives before the supervisor catches signals
 * kills it. An interrupt then counts as an interrupted rank, and the signal that ends the job as no failure. Nor is the
 * status 1 of a supervisor that the launcher ends. */
static void job_lose_supervisor(job *j, int rank, bool by_signal, int number)
{
    bool is_interrupt = (j->interrupts > 0 || j->is_stopping) && by_signal && number == SIGUSR1;
    bool is_end = j->ended && number == (by_signal ? SIGTERM : 1);
    int status = is_interrupt ? CLI_RANK_INTERRUPTED : is_end ? 0 : number;
    cli_ranks_note_lost(j->ranks, rank, by_signal && !is_interrupt && !is_end, status);
}

/* Handles mpirun's own output. A supervisor that was killed cannot report its end, but mpirun reports it and ends the
 * others. */
static void job_take_text(void *self, const char *text, size_t bytes)
{
    job *j = self;
    int rank, signal;
    bool is_echo = j->failed || j->ended || j->interrupts || j->is_stopping;
    if (!is_echo && bytes > 0) {
        cli_clear_line();
        fwrite(text, 1, bytes, stderr);
    }
    for (size_t done = 0; done < bytes && !j->ended;) {
        done += job_keep_text(j, text + done, bytes - done);
        if (cli_mpirun_names_killed(j->said, &rank, &signal))
            job_lose_supervisor(j, rank, true, signal);
    }
}

/* A supervisor reports its rank's end before it ends itself. One that has not done so could not start the rank, or was
 * killed, and its rank with it. */
static void job_on_ended(void *self, int rank, int status)
{
    bool by_signal = WIFSIGNALED(status);
    job_lose_supervisor(self, rank, by_signal, by_signal ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* --- watching ----------------------------------------------------------------------------------------------------- */

/* Notes the ranks that are gone, in an elastic training. */
static void job_note_gone(job *j)
{
    int stalled = j->outcome == STALLED ? cli_ranks_stalled(j->ranks, j->opts->stall_timeout) : -1;
    for (int i = 0; i < j->opts->ranks && j->end->is_gone; i++) {
        bool is_lost = cli_ranks_was_killed(j->ranks, i) || i == stalled;
        bool has_left = cli_ranks_has_left(j->ranks, i);
        j->end->lost += is_lost;
        j->end->left += has_left;
        j->end->is_gone[i] = is_lost || has_left;
    }
}

static void job_end(job *j, job_outcome outcome)
{
    j->outcome = outcome;
    job_note_gone(j);
    j->ended = j->now;
    cli_starters_signal_all(j->starters, SIGTERM);
}

/* Asks the ranks to end after their step; again if more are present than were told. */
static void job_tell_ranks(job *j)
{
    int present = cli_ranks_count_present(j->ranks);
    if (present > j->n_told)
        cli_starters_interrupt(j->starters);
    j->n_told = present;
}

/* Passes interrupts on. After the first one the ranks end by themselves; in a parameter-server training the chief ends,
 * and with it the others. The second one ends all at once. mpirun passes the first only to ranks already started, so it
 * is signaled again when more ranks are present. */
static void job_pass_interrupts_on(job *j)
{
    if (interrupts == 0 || j->ended)
        return;
    if (j->interrupts == 0) {
        cli_clear_line();
        fputs("lockstep: finishing this step; a second interrupt ends at once\n", stderr);
        j->n_told = -1;
        j->interrupts = 1;
    }
    job_tell_ranks(j);
    if (interrupts > 1)
        job_end(j, ENDED_AT_ONCE);
}

/* Has an elastic training stop if the machines have changed. A rank that has not begun would end at once, so there must
 * be a step of all. */
static void job_stop_if_wanted(job *j)
{
    if (!j->opts->wants_stop || j->ended || j->failed || j->interrupts)
        return;
    if (j->is_stopping) {
        job_tell_ranks(j);
    } else if (j->now - j->asked >= BETWEEN_STOPS && cli_ranks_step(j->ranks, true) > 0) {
        j->asked = j->now;
        j->n_told = -1;
        j->is_stopping = j->opts->wants_stop(j->opts->elastic);
    }
}

static bool job_is_stalled(job *j)
{
    double timeout = j->opts->stall_timeout;
    return timeout > 0 && cli_ranks_any_stalled(j->ranks, timeout, j->opts->workers > 0, !j->opts->on_several_machines);
}

/* Returns the time to wait after a failure, in which another rank may report the cause. */
static int64_t launch_job_patience_after(cli_failure failure)
{
    return failure == CLI_FAILURE_SIGNAL ? 0 : failure == CLI_FAILURE_ERROR ? FOR_OTHER_FAILURES : FOR_THE_CAUSE;
}

/* The same in an elastic training. What survivors have finished is of use once it is written. */
static bool job_waits_for_writers(const job *j)
{
    int64_t waited = j->now - j->failed;
    return j->opts->is_writing &&
           (waited < FOR_WRITERS || (waited < FOR_LONG_WRITERS && j->opts->is_writing(j->opts->elastic)));
}

/* Interrupted ranks end together. But one that had not begun training ends at once, and the others would wait for it.
 * So they are ended AFTER_THE_FIRST milliseconds later. */
static void job_check_ranks(job *j)
{
    if (j->ended)
        return;
    cli_failure failure = cli_ranks_failure(j->ranks);
    if (failure != CLI_NO_FAILURE) {
        j->failed = j->failed ? j->failed : j->now;
        if (j->now - j->failed >= launch_job_patience_after(failure) && !job_waits_for_writers(j))
            job_end(j, FAILED);
    } else if (cli_ranks_status(j->ranks, j->opts->ranks) != 0) {
        j->left = j->left ? j->left : j->now;
        if (j->now - j->left >= AFTER_THE_FIRST)
            job_end(j, LEFT_BEHIND);
    } else if (job_is_stalled(j)) {
        job_end(j, STALLED);
    }
}

/* --- a parameter-server training ---------------------------------------------------------------------------------- */

/* A server that ended with an error of its own, such as a full disk, would end with the same error again. */
static bool job_restart_server(job *j, int rank)
{
    bool may_start = cli_ranks_was_killed(j->ranks, rank) || cli_ranks_was_interrupted(j->ranks, rank);
    if (!j->opts->restarts_servers || j->restarts == MOST_RESTARTS || !may_start)
        return false;
    j->restarts++;
    return cli_starters_start_again(j->starters, rank);
}

/* Decides what the end of a rank means: the job ends with the chief, the last worker, or a server that cannot be
 * started again. A server or worker that is interrupted alone is lost to the others. */
static void job_check_ended(job *j, int rank)
{
    bool is_lost = cli_ranks_has_failed(j->ranks, rank) || cli_ranks_was_interrupted(j->ranks, rank);
    bool is_server = cli_role_is_server(j->opts, rank);
    if (rank == 0) {
        j->left = j->now;
        if (cli_ranks_has_failed(j->ranks, 0)) {
            cli_ranks_blame(j->ranks, 0);
            job_end(j, FAILED);
        }
    } else if (is_lost && !j->left && !j->interrupts) {
        bool starts = is_server && job_restart_server(j, rank);
        bool is_last = is_server ? !starts : cli_ranks_all_ended(j->ranks, 1 + j->opts->servers);
        if (is_last) {
            cli_ranks_blame(j->ranks, rank);
            job_end(j, cli_ranks_is_stopped(j->ranks, 0) ? STALLED : FAILED);
            return;
        }
        cli_ranks_print_end(j->ranks, rank);
        if (starts)
            cli_ranks_begin_again(j->ranks, rank);
    }
}

/* A stopped supervisor cannot report the end of its rank, and all would wait for that. It is killed, so that its rank
 * counts as lost. */
static void job_end_unheard(job *j)
{
    double timeout = j->opts->stall_timeout;
    for (int rank; timeout > 0 && (rank = cli_ranks_next_unheard(j->ranks, timeout)) >= 0;)
        cli_starters_kill(j->starters, rank);
}

static void job_check_roles(job *j)
{
    const double patience = 3;
    job_end_unheard(j);
    for (int rank; !j->ended && (rank = cli_ranks_next_ended(j->ranks, patience)) >= 0;)
        job_check_ended(j, rank);
    if (!j->ended && j->left && j->now - j->left >= AFTER_THE_FIRST)
        job_end(j, LEFT_BEHIND);
    else if (!j->ended && !j->left && job_is_stalled(j))
        job_end(j, STALLED);
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

static bool job_goes_on(const job *j)
{
    bool is_over = j->opts->workers > 0 ? cli_ranks_all_ended(j->ranks, 0) && (j->left || j->ended)
                                        : !cli_starters_output_is_open(j->starters);
    return !is_over && (!j->ended || j->now - j->ended < FOR_THE_END);
}

static void job_watch(job *j)
{
    j->now = cli_milliseconds();
    while (job_goes_on(j)) {
        cli_starters_listen(j->starters, TICK);
        int64_t before = j->now;
        j->now = cli_milliseconds();
        cli_ranks_advance_time(j->ranks, 1e-3 * (double)(j->now - before));
        job_pass_interrupts_on(j);
        job_stop_if_wanted(j);
        cli_starters_reap(j->starters);
        if (j->opts->workers > 0)
            job_check_roles(j);
        else
            job_check_ranks(j);
    }
}

/* --- the exit status ---------------------------------------------------------------------------------------------- */

/* Returns the exit status when mpirun has ended and no rank has failed. Prints why it is not 0. */
static int job_status_without_failure(job *j, int status)
{
    int rank_status = cli_ranks_status(j->ranks, j->opts->ranks);
    if (j->interrupts > 0 || rank_status)
        return 130;
    if (status == 0 && cli_ranks_all_ended(j->ranks, 0))
        return 0;
    if (WIFSIGNALED(status))
        fprintf(stderr, "lockstep: mpirun was killed by signal %d\n", WTERMSIG(status));
    else
        fprintf(stderr, "lockstep: mpirun ended with status %d%s\n", WEXITSTATUS(status),
                cli_ranks_all_ended(j->ranks, 0) ? "" : " before all ranks had ended");
    return 1;
}

static int job_status(job *j, int status)
{
    if (j->outcome == ENDED_AT_ONCE)
        return 130;
    if (j->outcome == STALLED)
        return cli_ranks_print_stalled(j->ranks);
    if (j->opts->workers > 0) /* the chief decides when training ends */
        return j->outcome == FAILED ? cli_ranks_print_failed(j->ranks) : cli_ranks_status(j->ranks, 1);
    if (cli_ranks_failure(j->ranks) != CLI_NO_FAILURE)
        return cli_ranks_print_failed(j->ranks);
    return job_status_without_failure(j, status);
}

/* Returns whether a restart may help. It cannot after an interrupt, of the launcher or of a rank, or if the ranks'
 * command line was wrong. */
static bool job_may_restart(const job *j, int status)
{
    return status != 0 && status != 2 && status != CLI_RANK_INTERRUPTED && j->interrupts == 0 && interrupts == 0 &&
           j->outcome != ENDED_AT_ONCE;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* Lets rank 0 draw its bar, if there is a terminal for it. `name`: printed before its lines. */
static void job_offer_terminal(const char *name)
{
    char number[16];
    int columns = cli_columns(stderr), before = (int)strlen(name) + 3;
    snprintf(number, sizeof number, "%d", columns < INT_MAX && columns > before ? columns - before : 0);
    if (cli_can_redraw())
        setenv(CLI_TERMINAL_VARIABLE, number, 1);
    else
        unsetenv(CLI_TERMINAL_VARIABLE);
}

static int job_run(job *j)
{
    job_catch_interrupts();
    bool is_started = cli_starters_start(j->starters);
    if (is_started)
        job_watch(j);
    int status = cli_starters_end(j->starters);
    if (*j->mpi_job)
        cli_remove_mpi_memory(j->mpi_job, "*");
    return is_started ? job_status(j, status) : 1;
}

/* Returns the names of a parameter-server training's ranks, or NULL for other jobs. */
static char (*job_names(const cli_job_opts *opts))[CLI_RANK_NAME]
{
    char(*names)[CLI_RANK_NAME] = opts->workers > 0 ? calloc((size_t)opts->ranks, sizeof *names) : NULL;
    for (int i = 0; names && i < opts->ranks; i++)
        cli_role_name(opts, i, names[i], sizeof names[i]);
    return names;
}

void cli_job_run_once(const cli_job_opts *opts, bool is_again, cli_job_end *end)
{
    *end = (cli_job_end){.status = 1, .is_gone = end->is_gone};
    job *j = calloc(1, sizeof *j);
    if (!j) {
        cli_error("launch: %s", strerror(errno));
        return;
    }
    const cli_starters_events events = {j, job_take_record, job_take_text, job_on_ended};
    char(*names)[CLI_RANK_NAME] = job_names(opts);
    j->opts = opts;
    j->end = end;
    job_offer_terminal(names ? names[0] : "0");
    j->starters = cli_starters_new(opts, &events);
    if (j->starters)
        j->ranks = cli_ranks_new(opts->ranks, (const char(*)[CLI_RANK_NAME])names, opts->log_dir, is_again);
    else
        cli_error("launch: %s", strerror(errno));
    if (j->ranks) {
        end->status = job_run(j);
        if (!j->ended)
            job_note_gone(j);
        end->is_interrupted = j->interrupts > 0 || interrupts > 0;
        end->was_stopped = j->is_stopping;
        end->has_stalled = j->outcome == STALLED;
        end->may_again = job_may_restart(j, end->status);
        end->step = cli_ranks_step(j->ranks, false);
        snprintf(end->last, sizeof end->last, "%s", cli_ranks_last_line(j->ranks));
    }
    if (!cli_ranks_release(j->ranks) && end->status == 0)
        end->status = 1;
    cli_starters_release(j->starters);
    free(names);
    free(j);
}

int cli_job_run(const cli_job_opts *opts)
{
    cli_job_end end = {.is_gone = NULL};
    cli_job_run_once(opts, false, &end);
    for (int n = 1; end.may_again && n <= opts->max_restarts; n++) {
        cli_job_opts again = *opts;
        again.command = opts->again;
        fprintf(stderr, "lockstep: starting all ranks again, from the last checkpoint: restart %d of at most %d\n", n,
                opts->max_restarts);
        cli_job_run_once(&again, true, &end);
    }
    return end.status;
}
