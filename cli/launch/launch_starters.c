#include "cli/launch/launch_starters.h"

#include "cli/cli.h"
#include "cli/launch/descendants.h"
#include "cli/launch/launch_mpirun.h"
#include "cli/launch/launch_roles.h"
#include "cli/launch/mpi_leftovers.h"

#include "lockstep/dist.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct cli_starters {
    const cli_job_opts *opts;
    const cli_starters_events *events;
    pid_t mpirun; /* 0: there is none */
    int status;   /* mpirun's wait status, once it has ended */
    cli_meeting meeting;
    int memory; /* shared, for the messages of ranks that the launcher starts; -1: none */
    /* The pipe for the output of all processes; -1: closed. `from` is closed once all have ended. `to` stays open while
     * processes may still be started. */
    int from, to;
    char bytes[1 << 16];
    size_t n_bytes;
    int n;
    pid_t processes[]; /* mpirun, or the supervisor of each rank; 0: it has ended */
};

/* --- beginning ---------------------------------------------------------------------------------------------------- */

cli_starters *cli_starters_new(const cli_job_opts *opts, const cli_starters_events *events)
{
    int n = opts->on_several_machines ? 1 : opts->ranks;
    cli_starters *s = calloc(1, sizeof *s + (size_t)n * sizeof *s->processes);
    if (!s)
        return NULL;
    s->opts = opts;
    s->events = events;
    s->n = n;
    s->from = s->to = s->meeting.socket = s->memory = -1;
    return s;
}

void cli_starters_release(cli_starters *s)
{
    if (s)
        cli_meeting_close(&s->meeting);
    free(s);
}

static bool starters_start_all(cli_starters *s)
{
    if (s->opts->on_several_machines)
        return (s->mpirun = s->processes[0] = cli_mpirun_start(s->opts, s->to)) > 0;
    if (s->opts->workers > 0 && !cli_meeting_open(&s->meeting))
        return false;
    if (s->opts->workers == 0 && lk_processes_share(s->opts->ranks, &s->memory) != LK_OK) {
        cli_error("launch: %s", lk_error_message());
        return false;
    }
    for (int i = 0; i < s->n; i++)
        if (!cli_starters_start_again(s, i))
            return false;
    return true;
}

bool cli_starters_start_again(cli_starters *s, int rank)
{
    s->processes[rank] = cli_role_start(s->opts, &s->meeting, s->memory, rank, s->to);
    return s->processes[rank] > 0;
}

static void starters_close_descriptor(int *descriptor)
{
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

bool cli_starters_start(cli_starters *s)
{
    int output[2];
    cli_adopt_descendants();
    if (pipe2(output, O_CLOEXEC) != 0) {
        cli_error("launch: %s", strerror(errno));
        return false;
    }
    s->from = output[0];
    s->to = output[1];
    bool is_started = starters_start_all(s);
    starters_close_descriptor(&s->memory); /* the ranks have inherited it */
    if (s->opts->workers == 0)
        starters_close_descriptor(&s->to);
    return is_started;
}

/* --- output ------------------------------------------------------------------------------------------------------- */

static void starters_receive(cli_starters *s)
{
    const cli_starters_events *events = s->events;
    ssize_t n = read(s->from, s->bytes + s->n_bytes, sizeof s->bytes - s->n_bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        events->on_text(events->user, s->bytes, s->n_bytes); /* an incomplete record */
        starters_close_descriptor(&s->from);
        return;
    }
    s->n_bytes += (size_t)n;
    size_t done = cli_record_parse(s->bytes, s->n_bytes, events->user, events->on_record, events->on_text);
    s->n_bytes -= done;
    memmove(s->bytes, s->bytes + done, s->n_bytes);
}

void cli_starters_listen(cli_starters *s, int milliseconds)
{
    struct pollfd watched = {.fd = s->from, .events = POLLIN};
    if (poll(&watched, 1, milliseconds) > 0)
        starters_receive(s);
}

bool cli_starters_output_is_open(const cli_starters *s)
{
    return s->from >= 0;
}

/* Passes on all output that is available now. */
static void starters_drain(cli_starters *s)
{
    enum { MOST = 64 };
    struct pollfd watched = {.fd = s->from, .events = POLLIN};
    for (int i = 0; i < MOST && s->from >= 0 && poll(&watched, 1, 0) > 0; i++)
        starters_receive(s);
}

/* --- processes ---------------------------------------------------------------------------------------------------- */

static void starters_note_end(cli_starters *s, int i, int status)
{
    s->processes[i] = 0;
    if (s->opts->on_several_machines) {
        s->status = status;
        return;
    }
    starters_drain(s);
    s->events->on_ended(s->events->user, i, status);
}

void cli_starters_reap(cli_starters *s)
{
    int status;
    for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int i = 0; i < s->n; i++)
            if (s->processes[i] == ended)
                starters_note_end(s, i, status);
}

void cli_starters_signal_all(const cli_starters *s, int signal)
{
    for (int i = 0; i < s->n; i++)
        if (s->processes[i] > 0)
            kill(s->processes[i], signal);
}

void cli_starters_kill(const cli_starters *s, int rank)
{
    if (s->processes[rank] > 0)
        kill(s->processes[rank], SIGKILL);
}

void cli_starters_interrupt(const cli_starters *s)
{
    if (s->opts->workers == 0)
        cli_starters_signal_all(s, SIGUSR1);
    else if (s->processes[0] > 0)
        kill(s->processes[0], SIGUSR1);
}

int cli_starters_end(cli_starters *s)
{
    if (s->from >= 0)
        cli_starters_signal_all(s, SIGKILL);
    starters_close_descriptor(&s->from);
    while (s->opts->on_several_machines && s->processes[0] > 0 && waitpid(s->processes[0], &s->status, 0) < 0 &&
           errno == EINTR)
        continue;
    cli_kill_descendants();
    if (s->mpirun > 0)
        cli_remove_mpi_session(s->mpirun);
    starters_close_descriptor(&s->to);
    return s->status;
}
