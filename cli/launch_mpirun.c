#include "launch_job.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

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
    signal(SIGXFSZ, SIG_DFL);
    set_environment(opts);
    if (dup2(nothing, STDIN_FILENO) >= 0 && dup2(nothing, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0)
        execvp(arguments[0], arguments);
    int error = errno;
    (void)!write(failed, &error, sizeof error);
    _exit(1);
}

static pid_t start(const cli_job_opts *opts, char **arguments, int output)
{
    int failed[2], error = 0;
    if (pipe2(failed, O_CLOEXEC) != 0) {
        cli_usage_error("launch: %s", strerror(errno));
        return -1;
    }
    pid_t parent = getpid(), mpirun = fork();
    if (mpirun == 0)
        become_mpirun(opts, arguments, parent, output, failed[1]);
    close(failed[1]);
    ssize_t told;
    do
        told = read(failed[0], &error, sizeof error);
    while (told < 0 && errno == EINTR); /* an interrupt is looked at when there is something to pass it on to */
    bool is_started = mpirun > 0 && told == 0;
    close(failed[0]);
    if (is_started)
        return mpirun;
    if (error == ENOENT)
        cli_usage_error("launch: there is no mpirun: install Open MPI (Debian and Ubuntu: openmpi-bin)");
    else
        cli_usage_error("launch: mpirun could not be started: %s", strerror(error ? error : errno));
    return -1;
}

pid_t cli_mpirun_start(const cli_job_opts *opts, int output)
{
    static char program[PATH_MAX];
    char **arguments = realpath("/proc/self/exe", program) ? make_arguments(opts, program) : NULL;
    if (!arguments) {
        cli_usage_error("launch: %s", strerror(errno));
        return -1;
    }
    pid_t mpirun = start(opts, arguments, output);
    free(arguments);
    return mpirun;
}

/* "mpirun noticed that process rank 1 with PID 7963 on node HOST exited on signal 9 (Killed)." */
bool cli_mpirun_names_killed(const char *text, int *rank, int *signal)
{
    char number[10], signal_number[10], behind; /* behind: the number is whole */
    for (const char *at = text; (at = strstr(at, "process rank ")); at++)
        if (sscanf(at, "process rank %9[0-9] with PID %*[0-9] on node %*s exited on signal %9[0-9]%c", number,
                   signal_number, &behind) == 3) {
            *rank = (int)strtol(number, NULL, 10);
            *signal = (int)strtol(signal_number, NULL, 10);
            return true;
        }
    return false;
}
