#include "cli/launch/launch_roles.h"

#include "cli/cli.h"
#include "cli/launch/descendants.h"

#include "lockstep/dist.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- the meeting address ------------------------------------------------------------------------------------------ */

/* The socket does not listen, so the chief can bind the same port, but a process that asks for any free port does not
 * get it. */
bool cli_meeting_open(cli_meeting *meeting)
{
    int yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    meeting->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (meeting->socket < 0 || setsockopt(meeting->socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(meeting->socket, (struct sockaddr *)&address, size) != 0 ||
        getsockname(meeting->socket, (struct sockaddr *)&address, &size) != 0) {
        cli_error("launch: no port of 127.0.0.1 is to be had: %s", strerror(errno));
        return false;
    }
    snprintf(meeting->address, sizeof meeting->address, "127.0.0.1:%d", ntohs(address.sin_port));
    return true;
}

void cli_meeting_close(cli_meeting *meeting)
{
    if (meeting->socket >= 0)
        close(meeting->socket);
    meeting->socket = -1;
}

/* --- roles -------------------------------------------------------------------------------------------------------- */

bool cli_role_is_server(const cli_job_opts *opts, int rank)
{
    return rank >= 1 && rank <= opts->servers;
}

void cli_role_name(const cli_job_opts *opts, int rank, char *name, size_t size)
{
    if (rank == 0)
        snprintf(name, size, "chief");
    else if (cli_role_is_server(opts, rank))
        snprintf(name, size, "ps-%d", rank - 1);
    else
        snprintf(name, size, "worker-%d", rank - 1 - opts->servers);
}

/* --- starting ----------------------------------------------------------------------------------------------------- */

enum { OWN_ARGUMENTS = 16 };

typedef struct role_arguments {
    char index[16], servers[16];
    char *items[]; /* NULL after the last */
} role_arguments;

/* Makes the arguments of a rank. Those of a role come last, so that they take precedence. */
static role_arguments *role_make_arguments(const cli_job_opts *opts, const cli_meeting *meeting, int rank)
{
    int n = 0, at = 0;
    while (opts->command[n])
        n++;
    role_arguments *a = calloc(1, sizeof *a + ((size_t)n + OWN_ARGUMENTS) * sizeof(char *));
    if (!a)
        return NULL;
    snprintf(a->index, sizeof a->index, "%d", cli_role_is_server(opts, rank) ? rank - 1 : 0);
    snprintf(a->servers, sizeof a->servers, "%d", opts->servers);
    const char *role = rank == 0 ? "chief" : cli_role_is_server(opts, rank) ? "ps" : "worker";
    const char *const first[] = {"lockstep", "rank", "--"};
    const char *const last[] = {"--role",    role,       "--task-index",  a->index,
                                "--servers", a->servers, "--coordinator", meeting->address};
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
        a->items[at++] = (char *)(uintptr_t)first[i];
    for (int i = 0; i < n; i++)
        a->items[at++] = opts->command[i];
    for (size_t i = 0; i < sizeof last / sizeof last[0] && opts->workers > 0; i++)
        a->items[at++] = (char *)(uintptr_t)last[i];
    return a;
}

/* Restricts a worker to its share of the cores, if there are enough. It chooses among these. */
static void launch_roles_worker_set_cores(const cli_job_opts *opts, int rank)
{
    cpu_set_t all, own;
    int worker = rank - 1 - opts->servers, seen = 0;
    if (opts->workers == 0 || worker < 0 || sched_getaffinity(0, sizeof all, &all) != 0 ||
        CPU_COUNT(&all) < opts->workers)
        return;
    int n = CPU_COUNT(&all), begin = worker * n / opts->workers, end = (worker + 1) * n / opts->workers;
    CPU_ZERO(&own);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &all))
            continue;
        if (seen >= begin && seen < end)
            CPU_SET(core, &own);
        seen++;
    }
    sched_setaffinity(0, sizeof own, &own);
}

static void launch_roles_set_number(const char *variable, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(variable, text, 1);
}

static _Noreturn void launch_roles_become_supervisor(const cli_job_opts *opts, char *const *arguments, int memory,
                                                     int rank, pid_t parent, int output)
{
    if (cli_prepare_child(parent, output)) {
        launch_roles_set_number(LK_RANK_VARIABLE, rank);
        if (memory >= 0) {
            launch_roles_set_number(LK_SHARED_MEMORY_VARIABLE, memory);
            fcntl(memory, F_SETFD, 0); /* the rank inherits it */
        }
        launch_roles_worker_set_cores(opts, rank);
        execv("/proc/self/exe", arguments);
    }
    dprintf(output, "lockstep: launch: process %d could not be started: %s\n", rank, strerror(errno));
    _exit(1);
}

pid_t cli_role_start(const cli_job_opts *opts, const cli_meeting *meeting, int memory, int rank, int output)
{
    role_arguments *arguments = role_make_arguments(opts, meeting, rank);
    pid_t parent = getpid(), supervisor = arguments ? fork() : -1;
    if (supervisor == 0)
        launch_roles_become_supervisor(opts, arguments->items, memory, rank, parent, output);
    if (supervisor < 0)
        cli_error("launch: process %d could not be started: %s", rank, strerror(errno));
    free(arguments);
    return supervisor;
}
