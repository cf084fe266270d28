#include "launch_job.h"

#include "cli.h"
#include "descendants.h"
#include "launch_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Milliseconds. What mpirun has not ended by then, as on a machine that does not answer, ends when it is gone. */
enum { TICK = 100, FOR_OTHER_FAILURES = 200, FOR_THE_END = 1000 };

typedef enum job_outcome { RUNNING, FAILED, STALLED, ENDED_AT_ONCE } job_outcome;

typedef struct job {
    const cli_job_opts *opts;
    cli_ranks *ranks;
    pid_t starter; /* mpirun */
    int from;      /* what it and the ranks write; -1: they have ended */
    char bytes[1 << 16];
    size_t n_bytes;
    FILE *said; /* what mpirun says of its own when a failure is known: memory, printed where it was none of a rank's */
    char *said_text;
    size_t said_bytes;
    int interrupts; /* that were passed on */
    job_outcome outcome;
    int64_t now, failed, ended; /* failed: when a failure was seen first; ended: when the job was told to end; 0: not */
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

/* --- starting ----------------------------------------------------------------------------------------------------- */

typedef struct argument_list {
    char **items;
    int n;
} argument_list;

static void add(argument_list *list, const char *argument)
{
    list->items[list->n++] = (char *)(uintptr_t)argument;
}

/* Settings of the library's go to other machines too. */
static void add_environment(argument_list *list)
{
    extern char **environ;
    for (char **variable = environ; *variable; variable++) {
        if (strncmp(*variable, "LOCKSTEP_", 9) != 0)
            continue;
        add(list, "-x");
        add(list, *variable);
    }
}

static int count_strings(char *const *strings)
{
    int n = 0;
    while (strings[n])
        n++;
    return n;
}

/* Ranks choose their cores themselves. */
static char **make_arguments(const cli_job_opts *opts, const char *program)
{
    extern char **environ;
    static char number[16];
    static const char *const first[] = {
        "mpirun", "--allow-run-as-root", "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none", "--stdin", "none"};
    enum { FIRST = sizeof first / sizeof first[0], OTHERS = 8 };
    size_t room = FIRST + OTHERS + 2 * (size_t)count_strings(environ) + (size_t)count_strings(opts->command);
    argument_list list = {.items = calloc(room, sizeof(char *))};
    if (!list.items)
        return NULL;
    for (int i = 0; i < FIRST; i++)
        add(&list, first[i]);
    snprintf(number, sizeof number, "%d", opts->ranks);
    add(&list, "-n");
    add(&list, number);
    if (opts->hosts) {
        add(&list, "--host");
        add(&list, opts->hosts);
    }
    add_environment(&list);
    add(&list, program);
    add(&list, "rank");
    add(&list, "--");
    for (char *const *argument = opts->command; *argument; argument++)
        add(&list, *argument);
    return list.items;
}

/* Within one machine nothing goes over a network. Nobody is there to type a password. What the user has set stays. */
static void set_environment(const cli_job_opts *opts)
{
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0); /* there is nothing that ranks could put in order then */
    if (opts->hosts) {
        if (!getenv("OMPI_MCA_plm_rsh_agent"))
            setenv("OMPI_MCA_plm_rsh_args", "-o BatchMode=yes -o ConnectTimeout=10", 0);
        return;
    }
    setenv("OMPI_MCA_btl_tcp_if_include", "lo", 0);
    setenv("OMPI_MCA_oob_tcp_if_include", "lo", 0);
}

/* In a group of its own: control-C is for the launcher to pass on. `failed` tells of what goes wrong before mpirun
 * runs, and closes when it does. */
static _Noreturn void become_mpirun(const cli_job_opts *opts, char **arguments, pid_t parent, int output, int failed)
{
    int nothing = open("/dev/null", O_RDWR);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    set_environment(opts);
    if (dup2(nothing, STDIN_FILENO) >= 0 && dup2(nothing, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0)
        execvp(arguments[0], arguments);
    int error = errno;
    (void)!write(failed, &error, sizeof error);
    _exit(1);
}

static bool start(job *j, char **arguments)
{
    int output[2], failed[2], error = 0;
    if (pipe2(output, O_CLOEXEC) != 0 || pipe2(failed, O_CLOEXEC) != 0) {
        cli_usage_error("launch: %s", strerror(errno));
        return false;
    }
    pid_t parent = getpid();
    j->starter = fork();
    if (j->starter == 0)
        become_mpirun(j->opts, arguments, parent, output[1], failed[1]);
    close(output[1]);
    close(failed[1]);
    j->from = output[0];
    bool is_started = j->starter > 0 && read(failed[0], &error, sizeof error) == 0;
    close(failed[0]);
    if (!is_started && error == ENOENT)
        cli_usage_error("launch: there is no mpirun: install Open MPI (Debian and Ubuntu: openmpi-bin)");
    else if (!is_started)
        cli_usage_error("launch: mpirun could not be started: %s", strerror(error ? error : errno));
    return is_started;
}

/* --- what comes --------------------------------------------------------------------------------------------------- */

static void take_record(void *self, const cli_record *record)
{
    cli_ranks_take(((job *)self)->ranks, record);
}

static void take_text(void *self, const char *text, size_t bytes)
{
    job *j = self;
    bool is_echo = j->failed || j->ended || j->interrupts;
    if (!is_echo || j->said)
        fwrite(text, 1, bytes, is_echo ? j->said : stderr);
}

static void receive(job *j)
{
    ssize_t n = read(j->from, j->bytes + j->n_bytes, sizeof j->bytes - j->n_bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        take_text(j, j->bytes, j->n_bytes); /* of a record that was not whole */
        close(j->from);
        j->from = -1;
        return;
    }
    j->n_bytes += (size_t)n;
    size_t done = cli_record_parse(j->bytes, j->n_bytes, j, take_record, take_text);
    j->n_bytes -= done;
    memmove(j->bytes, j->bytes + done, j->n_bytes);
}

/* --- watching ----------------------------------------------------------------------------------------------------- */

static void end_job(job *j, job_outcome outcome)
{
    j->outcome = outcome;
    j->ended = j->now;
    kill(j->starter, SIGTERM);
}

/* The first interrupt is the ranks' to end by; the second one ends them. */
static void pass_interrupts_on(job *j)
{
    if (interrupts == 0 || j->ended)
        return;
    if (j->interrupts == 0) {
        fputs("lockstep: finishing this step; a second interrupt ends at once\n", stderr);
        kill(j->starter, SIGUSR1);
        j->interrupts = 1;
    }
    if (interrupts > 1)
        end_job(j, ENDED_AT_ONCE);
}

/* One that ended by an error is given some time for another one to turn out to be the cause, and to say what it was. */
static void look_at_ranks(job *j)
{
    bool by_signal;
    if (j->ended)
        return;
    if (cli_ranks_any_failed(j->ranks, &by_signal)) {
        j->failed = j->failed ? j->failed : j->now;
        if (by_signal || j->now - j->failed >= FOR_OTHER_FAILURES)
            end_job(j, FAILED);
    } else if (j->opts->stall_timeout > 0 && cli_ranks_any_stalled(j->ranks, j->opts->stall_timeout)) {
        end_job(j, STALLED);
    }
}

static bool has_time(const job *j)
{
    return !j->ended || j->now - j->ended < FOR_THE_END;
}

static void watch(job *j)
{
    j->now = clock_ms();
    while (j->from >= 0 && has_time(j)) {
        struct pollfd watched = {.fd = j->from, .events = POLLIN};
        if (poll(&watched, 1, TICK) > 0)
            receive(j);
        int64_t before = j->now;
        j->now = clock_ms();
        cli_ranks_age(j->ranks, 1e-3 * (double)(j->now - before));
        pass_interrupts_on(j);
        look_at_ranks(j);
    }
    if (j->from >= 0) {
        kill(j->starter, SIGKILL);
        close(j->from);
    }
}

/* --- what became of it -------------------------------------------------------------------------------------------- */

static void print_said(job *j)
{
    if (!j->said || fflush(j->said) != 0)
        return;
    fwrite(j->said_text, 1, j->said_bytes, stderr);
    if (j->said_bytes > 0 && j->said_text[j->said_bytes - 1] != '\n')
        fputc('\n', stderr);
}

/* mpirun ended, and no rank had failed. */
static int tell_mpirun(job *j, int status)
{
    int rank_status = cli_ranks_status(j->ranks);
    if (j->interrupts > 0 || rank_status)
        return 130;
    if (status == 0 && cli_ranks_all_ended(j->ranks))
        return 0;
    print_said(j);
    if (WIFSIGNALED(status))
        fprintf(stderr, "lockstep: mpirun was killed by signal %d\n", WTERMSIG(status));
    else
        fprintf(stderr, "lockstep: mpirun ended with status %d%s\n", WEXITSTATUS(status),
                cli_ranks_all_ended(j->ranks) ? "" : " before all ranks had ended");
    return 1;
}

static int tell(job *j, int status)
{
    bool by_signal;
    if (j->outcome == ENDED_AT_ONCE)
        return 130;
    if (j->outcome == STALLED)
        return cli_ranks_print_stalled(j->ranks);
    if (cli_ranks_any_failed(j->ranks, &by_signal))
        return cli_ranks_print_failed(j->ranks);
    return tell_mpirun(j, status);
}

static int run(job *j, char **arguments)
{
    int status = 0;
    catch_interrupts();
    cli_adopt_descendants();
    if (!start(j, arguments))
        return 1;
    watch(j);
    while (waitpid(j->starter, &status, 0) < 0 && errno == EINTR)
        continue;
    cli_kill_descendants();
    return tell(j, status);
}

int cli_job_run(const cli_job_opts *opts)
{
    static char program[PATH_MAX];
    job *j = calloc(1, sizeof *j);
    char **arguments = realpath("/proc/self/exe", program) ? make_arguments(opts, program) : NULL;
    int status = 1;
    if (!j || !arguments) {
        cli_usage_error("launch: %s", strerror(errno));
    } else {
        j->opts = opts;
        j->from = -1;
        j->ranks = cli_ranks_new(opts->ranks, opts->log_dir);
        j->said = open_memstream(&j->said_text, &j->said_bytes);
        if (j->ranks)
            status = run(j, arguments);
        cli_ranks_release(j->ranks);
        if (j->said)
            fclose(j->said);
        free(j->said_text);
    }
    free(arguments);
    free(j);
    return status;
}
