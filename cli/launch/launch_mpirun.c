#include "cli/launch/launch_mpirun.h"

#include "cli/cli.h"
#include "cli/launch/descendants.h"
#include "cli/launch/launch_hosts.h"

#include "lockstep/dist.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct argument_list {
    char **items;
    int n;
} argument_list;

static void arguments_add(argument_list *list, const char *argument)
{
    list->items[list->n++] = (char *)(uintptr_t)argument;
}

/* Passes the library's environment variables to other machines too. */
static void arguments_add_environment(argument_list *list)
{
    for (char **variable = environ; *variable; variable++) {
        if (strncmp(*variable, "LOCKSTEP_", 9) != 0)
            continue;
        arguments_add(list, "-x");
        arguments_add(list, *variable);
    }
}

/* Returns the list for mpirun, which the caller frees. Whole names are looked for, and of this machine's own names Open
 * MPI then knows for certain only this one. */
static char *mpirun_hosts(const char *hosts)
{
    char *text = NULL, name[CLI_HOST_NAME];
    size_t size;
    int slots;
    const char *between = "";
    FILE *list = open_memstream(&text, &size);
    for (; list && *hosts && cli_hosts_next(&hosts, name, &slots); between = ",")
        fprintf(list, "%s%s:%d", between, cli_host_is_local(name) ? "localhost" : name, slots);
    if (list && fclose(list) == 0)
        return text;
    free(text);
    return NULL;
}

static int launch_mpirun_count_strings(char *const *strings)
{
    int n = 0;
    while (strings[n])
        n++;
    return n;
}

/* Makes mpirun's arguments. Binds no rank to cores, because ranks choose their cores themselves. */
static char **mpirun_arguments(const cli_job_opts *opts, const char *hosts, const char *program)
{
    static char number[16];
    static const char *const first[] = {
        "mpirun", "--allow-run-as-root", "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none", "--stdin", "none"};
    enum { FIRST = sizeof first / sizeof first[0], OTHERS = 14 };
    size_t capacity = FIRST + OTHERS + 2 * (size_t)launch_mpirun_count_strings(environ) +
                      (size_t)launch_mpirun_count_strings(opts->command);
    argument_list list = {.items = calloc(capacity, sizeof(char *))};
    if (!list.items)
        return NULL;
    for (int i = 0; i < FIRST; i++)
        arguments_add(&list, first[i]);
    snprintf(number, sizeof number, "%d", opts->ranks);
    arguments_add(&list, "-n");
    arguments_add(&list, number);
    if (hosts) {
        arguments_add(&list, "--host");
        arguments_add(&list, hosts);
    }
    static const char *const interfaces[] = {"oob_tcp_if_include", "btl_tcp_if_include"};
    for (size_t i = 0; i < sizeof interfaces / sizeof interfaces[0] && opts->interfaces; i++) {
        arguments_add(&list, "--mca");
        arguments_add(&list, interfaces[i]);
        arguments_add(&list, opts->interfaces);
    }
    arguments_add_environment(&list);
    arguments_add(&list, program);
    arguments_add(&list, "rank");
    arguments_add(&list, "--");
    for (char *const *argument = opts->command; *argument; argument++)
        arguments_add(&list, *argument);
    return list.items;
}

/* Sets mpirun's environment, except for variables that the user has set. ssh must not ask for a password. Ranks that
 * are all on this machine exchange messages through shared memory alone, and then listen nowhere. */
static void mpirun_set_environment(const cli_job_opts *opts)
{
    if (opts->interfaces && strcmp(opts->interfaces, CLI_LOOPBACK) == 0)
        setenv("OMPI_MCA_btl", "self,vader", 0);
    if (opts->hosts)
        setenv("OMPI_MCA_orte_keep_fqdn_hostnames", "1", 0); /* else a.x and b.x are looked for as a and b */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0); /* ranks have nothing to clean up by then */
    if (!getenv("OMPI_MCA_plm_rsh_agent"))
        setenv("OMPI_MCA_plm_rsh_args", "-o BatchMode=yes -o ConnectTimeout=10", 0);
}

/* Becomes mpirun. Errors before mpirun runs are written to `failed`, which is closed when it starts. */
static _Noreturn void become_mpirun(const cli_job_opts *opts, char **arguments, pid_t parent, int output, int failed)
{
    if (cli_prepare_child(parent, output)) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        signal(SIGPIPE, SIG_DFL);
        signal(SIGXFSZ, SIG_DFL);
        mpirun_set_environment(opts);
        execvp(arguments[0], arguments);
    }
    int error = errno;
    (void)!write(failed, &error, sizeof error);
    _exit(1);
}

static pid_t mpirun_start(const cli_job_opts *opts, char **arguments, int output)
{
    int failed[2], error = 0;
    if (pipe2(failed, O_CLOEXEC) != 0) {
        cli_error("launch: %s", strerror(errno));
        return -1;
    }
    pid_t parent = getpid(), mpirun = fork();
    if (mpirun == 0)
        become_mpirun(opts, arguments, parent, output, failed[1]);
    close(failed[1]);
    ssize_t told;
    do
        told = read(failed[0], &error, sizeof error);
    while (told < 0 && errno == EINTR); /* an interrupt is handled once there is something to pass it on to */
    bool is_started = mpirun > 0 && told == 0;
    close(failed[0]);
    if (is_started)
        return mpirun;
    if (error == ENOENT)
        cli_error("launch: there is no mpirun: install Open MPI (Debian and Ubuntu: openmpi-bin)");
    else
        cli_error("launch: mpirun could not be started: %s", strerror(error ? error : errno));
    return -1;
}

pid_t cli_mpirun_start(const cli_job_opts *opts, int output)
{
    static char program[PATH_MAX];
    bool has_program = realpath("/proc/self/exe", program);
    char *hosts = has_program && opts->hosts ? mpirun_hosts(opts->hosts) : NULL;
    bool has_hosts = !opts->hosts || hosts;
    char **arguments = has_program && has_hosts ? mpirun_arguments(opts, hosts, program) : NULL;
    pid_t mpirun = -1;
    if (arguments)
        mpirun = mpirun_start(opts, arguments, output);
    else
        cli_error("launch: %s", strerror(errno));
    free(arguments);
    free(hosts);
    return mpirun;
}

/* mpirun writes: "mpirun noticed that process rank 1 with PID 7963 on node HOST exited on signal 9 (Killed)." */
bool cli_mpirun_names_killed(const char *text, int *rank, int *signal)
{
    char number[10], signal_number[10], last; /* last: matches only after a complete number */
    for (const char *at = text; (at = strstr(at, "process rank ")); at++)
        if (sscanf(at, "process rank %9[0-9] with PID %*[0-9] on node %*s exited on signal %9[0-9]%c", number,
                   signal_number, &last) == 3) {
            *rank = (int)strtol(number, NULL, 10);
            *signal = (int)strtol(signal_number, NULL, 10);
            return true;
        }
    return false;
}
