/* The supervisor of one rank: `lockstep launch` starts it, and it starts the rank, watches it and reports to the
 * launcher. The rank never outlives it. */
#include "cli/cli.h"
#include "cli/cli_clock.h"
#include "cli/launch/launch_memory.h"
#include "cli/launch/mpi_leftovers.h"
#include "cli/launch/rank_record.h"
#include "cli/launch/remove_tree.h"

#include "lockstep/checkpoint.h"
#include "lockstep/dist.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { LOOK_MS = 250, REPORT_MS = 500 };

typedef struct supervised {
    int rank;
    pid_t process;
    int output, errors; /* from its standard streams: pipes, or a pseudo-terminal; -1: closed */
    lk_heartbeat *heartbeat;
    lk_heart_report told;
    int64_t told_ms;
    bool is_heard;       /* the launcher still reads what is sent */
    bool is_interrupted; /* it was asked to end after its step */
    bool leaves;         /* it was asked to leave after its step */
} supervised;

static volatile sig_atomic_t wants_end, wants_interrupt;
static volatile sig_atomic_t is_elastic, wants_to_leave; /* see rank_on_signal */
static volatile sig_atomic_t ended_by;                   /* the signal, if not from the starter; 0: none */
static pid_t starter;
static int wake[2]; /* a pipe that gets a byte for each signal */

static void rank_on_signal(int signal, siginfo_t *info, void *context)
{
    int saved = errno;
    (void)context;
    if (signal == SIGUSR1) {
        wants_interrupt = 1;
    } else if (signal == SIGTERM && is_elastic && info->si_pid != starter && !wants_to_leave) {
        wants_to_leave = 1; /* a notice that this machine, or a part of it, goes away: the others go on */
    } else if (signal != SIGCHLD) {
        wants_end = 1;
        if (info->si_pid != starter && !ended_by)
            ended_by = signal;
    }
    (void)!write(wake[1], "", 1);
    errno = saved;
}

/* An interrupt reaches all machines as SIGUSR1, which mpirun passes on. mpirun ends processes with SIGTERM. */
static const int caught[] = {SIGCHLD, SIGUSR1, SIGTERM, SIGINT, SIGHUP};
enum { CAUGHT = sizeof caught / sizeof caught[0] };

static void rank_unblock_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void rank_block_signals(void)
{
    sigset_t held;
    sigemptyset(&held);
    for (int i = 0; i < CAUGHT; i++)
        sigaddset(&held, caught[i]);
    sigprocmask(SIG_BLOCK, &held, NULL);
}

static bool rank_catch_signals(void)
{
    struct sigaction action = {.sa_sigaction = rank_on_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
    starter = getppid();
    sigemptyset(&action.sa_mask);
    if (pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    for (int i = 0; i < CAUGHT; i++)
        sigaction(caught[i], &action, NULL);
    rank_unblock_signals();
    return true;
}

/* --- starting ----------------------------------------------------------------------------------------------------- */

/* Runs in the child. The rank gets a process group of its own, so that signals to the supervisor's group do not reach
 * it. */
static _Noreturn void become_rank(const supervised *s, pid_t parent, const char *program, char **arguments,
                                  const int output[2], const int errors[2])
{
    char number[16];
    int descriptor = lk_heartbeat_descriptor(s->heartbeat);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    signal(SIGUSR1, SIG_IGN); /* the supervisor handles one that came to its group */
    for (int i = 0; i < CAUGHT; i++)
        signal(caught[i], SIG_DFL);
    rank_unblock_signals();
    fcntl(descriptor, F_SETFD, 0);
    snprintf(number, sizeof number, "%d", descriptor);
    setenv("LOCKSTEP_HEARTBEAT", number, 1);
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 && dup2(output[1], STDOUT_FILENO) >= 0 &&
        dup2(errors[1], STDERR_FILENO) >= 0)
        execv(program, arguments);
    dprintf(STDERR_FILENO, "lockstep: %s could not be started: %s\n", program, strerror(errno));
    _exit(1);
}

/* Opens a pseudo-terminal that passes bytes on unchanged. ends: for the supervisor and for the rank. */
static bool rank_open_terminal(const char *columns, int ends[2])
{
    const struct winsize size = {.ws_col = (unsigned short)strtoul(columns, NULL, 10)};
    struct termios mode;
    char name[64];
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[0] < 0)
        return false;
    bool is_named = grantpt(ends[0]) == 0 && unlockpt(ends[0]) == 0 && ptsname_r(ends[0], name, sizeof name) == 0;
    ends[1] = is_named ? open(name, O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
    if (ends[1] >= 0 && tcgetattr(ends[1], &mode) == 0) {
        cfmakeraw(&mode);
        if (tcsetattr(ends[1], TCSANOW, &mode) == 0 && ioctl(ends[1], TIOCSWINSZ, &size) == 0)
            return true;
    }
    close(ends[0]);
    if (ends[1] >= 0)
        close(ends[1]);
    return false;
}

/* Opens what the rank's standard error becomes. Without pseudo-terminals the rank draws no bar. */
static bool rank_open_errors(const supervised *s, int ends[2])
{
    const char *columns = getenv(CLI_TERMINAL_VARIABLE);
    bool is_terminal = columns && s->rank == 0 && rank_open_terminal(columns, ends);
    unsetenv(CLI_TERMINAL_VARIABLE);
    return is_terminal || pipe2(ends, O_CLOEXEC) == 0;
}

/* Sets arguments[0] to the path of the program, so that a list of processes tells the rank from its supervisor. */
static bool rank_start(supervised *s, char **arguments)
{
    static char program[PATH_MAX];
    int output[2], errors[2];
    if (!realpath("/proc/self/exe", program) || pipe2(output, O_CLOEXEC) != 0 || !rank_open_errors(s, errors))
        return false;
    arguments[0] = program;
    pid_t parent = getpid();
    rank_block_signals(); /* the child would handle one as if it were the supervisor */
    s->process = fork();
    if (s->process == 0)
        become_rank(s, parent, program, arguments, output, errors);
    rank_unblock_signals();
    close(output[1]);
    close(errors[1]);
    s->output = output[0];
    s->errors = errors[0];
    fcntl(s->output, F_SETFL, O_NONBLOCK);
    fcntl(s->errors, F_SETFL, O_NONBLOCK);
    return s->process > 0;
}

/* --- watching ----------------------------------------------------------------------------------------------------- */

static void rank_send(supervised *s, cli_record_kind kind, const void *data, size_t bytes)
{
    if (s->is_heard && !cli_record_send(s->rank, kind, data, bytes))
        s->is_heard = false;
}

/* Passes on what the pipe holds now, up to a limit: a rank may write without pause. */
static void rank_pass_on(supervised *s, int *from, cli_record_kind kind)
{
    char bytes[16 * CLI_RECORD_DATA];
    ssize_t n = *from >= 0 ? read(*from, bytes, sizeof bytes) : -1;
    if (n > 0)
        rank_send(s, kind, bytes, (size_t)n);
    if (n == 0 || (n < 0 && *from >= 0 && errno == EIO)) { /* EIO: no process has the terminal open any more */
        close(*from);
        *from = -1;
    }
}

static void rank_report_heartbeat(supervised *s)
{
    lk_heart_report report;
    lk_heartbeat_look(s->heartbeat, s->process, &report);
    int64_t now = cli_milliseconds();
    bool is_same = report.state == s->told.state && report.step == s->told.step && s->told.silent == 0 &&
                   report.silent == 0 && strcmp(report.operation, s->told.operation) == 0;
    if (report.state == LK_HEART_GONE || (is_same && now - s->told_ms < REPORT_MS))
        return;
    s->told = report;
    s->told_ms = now;
    rank_send(s, CLI_RECORD_HEART, &report, sizeof report);
}

static void rank_kill(const supervised *s)
{
    kill(-s->process, SIGKILL);
    kill(s->process, SIGKILL); /* in case it has no group yet */
}

static void rank_wait_for_something(const supervised *s)
{
    char bytes[64];
    struct pollfd watched[] = {
        {.fd = wake[0], .events = POLLIN},
        {.fd = s->output, .events = POLLIN},
        {.fd = s->errors, .events = POLLIN},
        {.fd = STDERR_FILENO}, /* polled for errors alone: the other end is closed */
    };
    poll(watched, sizeof watched / sizeof watched[0], LOOK_MS);
    if (watched[3].revents & (POLLERR | POLLHUP | POLLNVAL))
        wants_end = 1;
    while (read(wake[0], bytes, sizeof bytes) > 0)
        continue;
}

/* Returns whether the rank has ended by itself. If so, passes on its last output. */
static bool rank_has_ended(supervised *s, int *status)
{
    if (waitpid(s->process, status, WNOHANG) != s->process)
        return false;
    for (int tries = 0; tries < 64; tries++) { /* not until the end of the pipe: another process may hold it open */
        rank_pass_on(s, &s->errors, CLI_RECORD_STDERR);
        rank_pass_on(s, &s->output, CLI_RECORD_STDOUT);
    }
    return true;
}

static void rank_tell_end(supervised *s, cli_rank_end end)
{
    lk_heartbeat_look(s->heartbeat, s->process, &end.heart);
    kill(-s->process, SIGKILL); /* processes that the rank has started */
    rank_send(s, CLI_RECORD_END, &end, sizeof end);
}

/* An interrupt that comes before the rank can catch it kills the rank. That counts as an interrupted rank, not as a
 * failed one. An interrupted rank leaves if a notice came too. */
static cli_rank_end rank_end_of(const supervised *s, int status)
{
    bool by_signal = WIFSIGNALED(status);
    int number = by_signal ? WTERMSIG(status) : WEXITSTATUS(status);
    bool is_interrupted = by_signal ? s->is_interrupted && number == SIGINT : number == CLI_RANK_INTERRUPTED;
    bool has_left = by_signal && s->leaves && number == SIGTERM;
    if (has_left || (is_interrupted && wants_to_leave))
        return (cli_rank_end){.number = CLI_RANK_LEFT};
    if (is_interrupted)
        return (cli_rank_end){.number = CLI_RANK_INTERRUPTED};
    return (cli_rank_end){.by_signal = by_signal, .number = number};
}

/* Returns whether the launcher is gone, so that nobody goes on from the states in memory. On another machine the daemon
 * of mpirun tells, which ends with the launcher. On the launcher's own one mpirun may have ended alone. */
static bool rank_has_lost_launcher(const char *memory)
{
    bool is_told_by_starter = !cli_mpi_job() || !cli_memory_is_of_this_machine(memory);
    return cli_memory_is_orphan(memory) || (is_told_by_starter && getppid() != starter);
}

/* Ends the rank before its time. The starter asks for that after another rank has failed, and needs no report. Only a
 * signal from another process is reported. */
static int rank_end_early(supervised *s)
{
    rank_kill(s);
    waitpid(s->process, NULL, 0);
    if (cli_mpi_job())
        cli_remove_mpi_memory(cli_mpi_job(), "*"); /* this supervisor may be the last one alive on its machine */
    const char *memory = getenv(LK_MEMORY_VARIABLE);
    if (memory && rank_has_lost_launcher(memory))
        cli_remove_tree(memory);
    if (!ended_by)
        return 1;
    rank_tell_end(s, (cli_rank_end){.of_supervisor = true, .by_signal = true, .number = ended_by});
    return 0;
}

/* Returns 0 if the rank ended by itself, whatever its status was: otherwise mpirun would kill all other ranks, even
 * those that are ending properly. */
static int rank_watch(supervised *s)
{
    int status;
    for (;;) {
        rank_wait_for_something(s);
        if (rank_has_ended(s, &status)) {
            if (cli_mpi_job())
                cli_remove_mpi_memory(cli_mpi_job(), getenv("OMPI_COMM_WORLD_LOCAL_RANK"));
            rank_tell_end(s, rank_end_of(s, status));
            return 0;
        }
        if (wants_end || !s->is_heard)
            break;
        if (wants_interrupt && !s->is_interrupted && !s->leaves) { /* a second one would end the rank at once */
            s->is_interrupted = true;
            kill(s->process, SIGINT);
        }
        if (wants_to_leave && !s->leaves && !s->is_interrupted) {
            s->leaves = true;
            kill(s->process, SIGTERM);
        }
        rank_pass_on(s, &s->errors, CLI_RECORD_STDERR);
        rank_pass_on(s, &s->output, CLI_RECORD_STDOUT);
        rank_report_heartbeat(s);
    }
    return rank_end_early(s);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static bool rank_find_own(int *rank)
{
    static const char *const variables[] = {LK_RANK_VARIABLE, "OMPI_COMM_WORLD_RANK", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *text = getenv(variables[i]);
        char *end;
        long number = text ? strtol(text, &end, 10) : -1;
        if (text && end != text && !*end && number >= 0 && number <= INT_MAX) {
            *rank = (int)number;
            return true;
        }
    }
    return false;
}

static int rank_run(int argc, char **argv)
{
    char host[256] = "";
    supervised s = {.output = -1, .errors = -1, .is_heard = true};
    if (argc < 2 || strcmp(argv[0], "--") != 0 || !rank_find_own(&s.rank))
        return cli_usage_error("'rank' is what 'lockstep launch' starts, and cannot be used alone");
    gethostname(host, sizeof host - 1);
    is_elastic = getenv(LK_MEMORY_VARIABLE) != NULL;
    if (!rank_catch_signals() || lk_heartbeat_new(&s.heartbeat) != LK_OK || !rank_start(&s, argv)) {
        int failed = errno;
        lk_heartbeat_release(s.heartbeat);
        return cli_error("rank %d on %s could not be started: %s", s.rank, host, strerror(failed));
    }
    rank_send(&s, CLI_RECORD_HOST, host, strlen(host));
    if (cli_mpi_job())
        rank_send(&s, CLI_RECORD_JOB, cli_mpi_job(), strlen(cli_mpi_job()));
    int status = rank_watch(&s);
    lk_heartbeat_release(s.heartbeat);
    return status;
}

const cli_command cmd_rank = {
    .name = "rank",
    .summary = "Start and watch one process of `lockstep launch`",
    .arguments = "-- COMMAND [OPTION…]",
    .is_internal = true,
    .run = rank_run,
};
