/* All ranks of an elastic job end when one is lost or the machines change, and are started again in their new number. A
 * communicator is not repaired, because Open MPI 4.1 cannot do that: its ULFM extension is part of version 5. Each rank
 * keeps its state in a folder of the job in /dev/shm, which outlives it, so no finished step is computed again. */
#include "cli/launch/launch_elastic.h"

#include "cli/cli.h"
#include "cli/cli_clock.h"
#include "cli/launch/launch_hosts.h"
#include "cli/launch/launch_memory.h"
#include "cli/launch/rank_record.h"
#include "cli/launch/remove_tree.h"
#include "cli/text/progress.h"

#include "lockstep/checkpoint.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MOST_LOSSES = 3,      /* of a machine that joins again and again */
    MOST_STANDSTILLS = 3, /* attempts in a row that failed without a step, and no rank is known to be the cause */
    MOST_HOSTS = 4096,
    REACH_SECONDS = 10 /* for a machine to answer */
};

typedef struct world_host {
    char name[CLI_HOST_NAME]; /* "": this machine, if there are no --hosts */
    int slots;                /* as listed; 0: it is not listed any more */
    int lost;                 /* ranks lost since it was listed */
    int going;                /* ranks that the last attempt has lost */
    int losses;               /* times that it joined and lost ranks */
    bool is_local;            /* it is this machine */
    bool has_joined;          /* it was added while the job ran */
    bool is_new;              /* it has not trained a step since it was added */
    bool is_away;             /* it could not be reached */
    bool is_out;              /* it stays out, whatever the list says */
} world_host;

typedef struct elastic {
    const cli_elastic_opts *opts;
    cli_job_opts job; /* of the current attempt */
    char folder[CLI_MEMORY_PATH];
    world_host hosts[MOST_HOSTS];
    int n_hosts;
    world_host *of_rank[MOST_HOSTS]; /* the hosts of the current attempt's ranks */
    char list[CLI_HOSTS_LIST];       /* the hosts of the current attempt */
    char networks[CLI_NETWORKS];     /* their interfaces */
    struct timespec file_time;       /* of the hosts file that was last read */
    char reason[1024];               /* of the changes that no rank has recorded yet */
    int ranks_before;                /* ranks before these changes */
    int standstills;
    int64_t step; /* that training is known to have come to */
} elastic;

/* Returns whether a rank of this machine is writing its state. */
static bool elastic_is_writing(void *self)
{
    const elastic *e = self;
    return cli_memory_is_written(e->folder);
}

/* --- machines ----------------------------------------------------------------------------------------------------- */

static int host_ranks(const world_host *h)
{
    return h->is_out || h->lost >= h->slots ? 0 : h->slots - h->lost;
}

static int elastic_count_ranks(const elastic *e)
{
    int n = 0;
    for (int i = 0; i < e->n_hosts; i++)
        n += host_ranks(&e->hosts[i]);
    return n;
}

/* Sorts the hosts that take ranks as mpirun fills their slots: those of this machine come first, wherever they are in
 * its list. Returns their number. */
static int elastic_sort_hosts(elastic *e, world_host *sorted[MOST_HOSTS])
{
    int n = 0;
    for (int others = 0; others < 2; others++)
        for (int i = 0; i < e->n_hosts; i++)
            if (host_ranks(&e->hosts[i]) > 0 && e->hosts[i].is_local == !others)
                sorted[n++] = &e->hosts[i];
    return n;
}

/* Writes the list of hosts that take ranks. */
static void elastic_list_hosts(elastic *e, char list[CLI_HOSTS_LIST])
{
    world_host *sorted[MOST_HOSTS];
    int n = elastic_sort_hosts(e, sorted);
    size_t used = 0;
    list[0] = '\0';
    for (int i = 0; i < n && used < CLI_HOSTS_LIST; i++)
        used += (size_t)snprintf(list + used, CLI_HOSTS_LIST - used, "%s%s:%d", used ? "," : "", sorted[i]->name,
                                 host_ranks(sorted[i]));
}

/* Notes which host each rank of the next attempt is on. */
static void elastic_place_ranks(elastic *e)
{
    world_host *sorted[MOST_HOSTS];
    int n = elastic_sort_hosts(e, sorted), rank = 0;
    for (int i = 0; i < n; i++)
        for (int slot = 0; slot < host_ranks(sorted[i]) && rank < MOST_HOSTS; slot++)
            e->of_rank[rank++] = sorted[i];
}

/* Starts a command on a host as mpirun would start its daemon. */
static pid_t host_start(const world_host *h, const char *command)
{
    const char *agent = getenv("OMPI_MCA_plm_rsh_agent"), *arguments = getenv("OMPI_MCA_plm_rsh_args");
    char line[4096];
    if (!arguments)
        arguments = agent ? "" : "-o BatchMode=yes -o ConnectTimeout=5";
    snprintf(line, sizeof line, "exec %s %s %s '%s' </dev/null >/dev/null 2>&1", agent ? agent : "ssh", arguments,
             h->name, command);
    pid_t process = fork();
    if (process == 0) {
        setpgid(0, 0);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    return process;
}

/* Runs a command on all hosts for which `is_asked` is set, at the same time. Clears it where the command failed or did
 * not end in time. */
static void elastic_run_on_hosts(const elastic *e, const char *command, bool *is_asked)
{
    pid_t processes[MOST_HOSTS] = {0};
    int running = 0, status;
    for (int i = 0; i < e->n_hosts; i++)
        if (is_asked[i] && !e->hosts[i].is_local) {
            processes[i] = host_start(&e->hosts[i], command);
            running += processes[i] > 0;
        }
    for (int64_t end = cli_milliseconds() + 1000 * REACH_SECONDS; running > 0; usleep(10000)) {
        bool is_late = cli_milliseconds() >= end;
        for (int i = 0; i < e->n_hosts; i++) {
            if (processes[i] <= 0)
                continue;
            if (is_late)
                kill(-processes[i], SIGKILL);
            if (waitpid(processes[i], &status, is_late ? 0 : WNOHANG) != processes[i])
                continue;
            is_asked[i] = WIFEXITED(status) && WEXITSTATUS(status) == 0;
            processes[i] = 0;
            running--;
        }
    }
}

/* --- changes ------------------------------------------------------------------------------------------------------ */

static void elastic_note(elastic *e, const char *what)
{
    size_t used = strlen(e->reason);
    snprintf(e->reason + used, sizeof e->reason - used, "%s%s", used ? ", " : "", what);
}

/* Counts ranks of a host as lost. */
static void elastic_lose(elastic *e, world_host *h, int ranks)
{
    char text[512];
    h->lost += ranks;
    if (!h->has_joined || h->is_out || ++h->losses < MOST_LOSSES)
        return;
    h->is_out = true;
    snprintf(text, sizeof text, "%s has joined and was lost %d times and is left out", h->name, h->losses);
    fprintf(stderr, "lockstep: %s\n", text);
    elastic_note(e, text);
}

/* Counts hosts of which `is_asked` is set and that cannot be reached as lost. */
static void elastic_lose_unreachable(elastic *e, bool *is_asked)
{
    bool is_there[MOST_HOSTS];
    char text[512];
    memcpy(is_there, is_asked, (size_t)e->n_hosts * sizeof *is_there);
    elastic_run_on_hosts(e, "true", is_there);
    for (int i = 0; i < e->n_hosts; i++) {
        if (!is_asked[i] || is_there[i])
            continue;
        snprintf(text, sizeof text, "%s cannot be reached", e->hosts[i].name);
        fprintf(stderr, "lockstep: %s\n", text);
        elastic_note(e, text);
        e->hosts[i].is_away = true;
        elastic_lose(e, &e->hosts[i], host_ranks(&e->hosts[i]));
    }
}

/* The same of all hosts with ranks. */
static void elastic_lose_all_unreachable(elastic *e)
{
    bool is_asked[MOST_HOSTS];
    for (int i = 0; i < e->n_hosts; i++)
        is_asked[i] = host_ranks(&e->hosts[i]) > 0;
    elastic_lose_unreachable(e, is_asked);
}

static world_host *elastic_find(elastic *e, const char *name)
{
    for (int i = 0; i < e->n_hosts; i++)
        if (strcmp(e->hosts[i].name, name) == 0)
            return &e->hosts[i];
    if (e->n_hosts == MOST_HOSTS)
        return NULL;
    world_host *h = &e->hosts[e->n_hosts++];
    *h = (world_host){.lost = 0};
    snprintf(h->name, sizeof h->name, "%s", name);
    h->is_local = !*name || cli_host_is_local(name);
    return h;
}

/* Makes the listed hosts those of the job. Hosts that are listed again after they were lost may join again. */
static void elastic_take_list(elastic *e, const char *list, bool has_begun)
{
    char name[CLI_HOST_NAME], text[512];
    int slots;
    bool is_asked[MOST_HOSTS] = {false};
    int before[MOST_HOSTS] = {0}, n_before = e->n_hosts;
    for (int i = 0; i < n_before; i++) {
        before[i] = host_ranks(&e->hosts[i]);
        e->hosts[i].slots = 0;
    }
    while (*list && cli_hosts_next(&list, name, &slots)) {
        world_host *h = elastic_find(e, name);
        if (!h)
            break;
        h->slots += slots; /* the list may name a host twice */
        h->lost = 0;
        h->is_away = false;
    }
    for (int i = 0; has_begun && i < e->n_hosts; i++)
        is_asked[i] = host_ranks(&e->hosts[i]) > before[i];
    for (int i = 0; i < e->n_hosts; i++)
        e->hosts[i].has_joined |= is_asked[i];
    elastic_lose_unreachable(e, is_asked);
    for (int i = 0; has_begun && i < e->n_hosts; i++) {
        world_host *h = &e->hosts[i];
        int now = host_ranks(h);
        h->is_new = now > before[i];
        if (now == before[i])
            continue;
        snprintf(text, sizeof text, "%s %s with %d rank%s", h->name, now > before[i] ? "joins" : "leaves",
                 abs(now - before[i]), abs(now - before[i]) == 1 ? "" : "s");
        elastic_note(e, text);
    }
}

static bool elastic_file_has_changed(elastic *e)
{
    struct stat about;
    if (!e->opts->hosts_file || stat(e->opts->hosts_file, &about) != 0 ||
        (about.st_mtim.tv_sec == e->file_time.tv_sec && about.st_mtim.tv_nsec == e->file_time.tv_nsec))
        return false;
    e->file_time = about.st_mtim;
    return true;
}

/* Reads the hosts file if it has changed. A wrong one changes nothing. */
static bool elastic_wants_stop(void *self)
{
    elastic *e = self;
    char error[CLI_HOSTS_ERROR];
    static char list[CLI_HOSTS_LIST];
    if (!elastic_file_has_changed(e))
        return false;
    if (!cli_hosts_read(e->opts->hosts_file, list, error)) {
        cli_clear_line();
        fprintf(stderr, "lockstep: --hosts-file: %s; training goes on with the machines that it has\n", error);
        return false;
    }
    e->reason[0] = '\0'; /* what it said is recorded, for there was a step */
    e->ranks_before = e->job.ranks;
    elastic_take_list(e, list, true);
    elastic_list_hosts(e, list);
    if (elastic_count_ranks(e) < e->opts->min_ranks) {
        cli_clear_line();
        fprintf(stderr, "lockstep: --hosts-file %s: has places for %d, and --min-ranks is %d\n", e->opts->hosts_file,
                elastic_count_ranks(e), e->opts->min_ranks);
        return true;
    }
    return strcmp(list, e->list) != 0;
}

/* --- attempts ----------------------------------------------------------------------------------------------------- */

/* Prepares the next attempt with the ranks that there are. */
static bool elastic_prepare(elastic *e)
{
    char text[2048];
    e->job.ranks = elastic_count_ranks(e);
    if (e->job.hosts) {
        elastic_list_hosts(e, e->list);
        e->job.hosts = e->list;
    }
    elastic_place_ranks(e);
    snprintf(text, sizeof text, "%d %s", e->ranks_before, e->reason);
    return *e->reason ? setenv(LK_WORLD_VARIABLE, text, 1) == 0 : unsetenv(LK_WORLD_VARIABLE) == 0;
}

/* Takes out the ranks that are gone. */
static void elastic_take_out(elastic *e, const cli_job_end *end)
{
    char text[1024];
    if (end->left > 0) {
        snprintf(text, sizeof text, "%d rank%s asked to leave", end->left, end->left == 1 ? " was" : "s were");
        fprintf(stderr, "lockstep: %s\n", text);
        elastic_note(e, text);
    }
    if (end->lost > 0)
        elastic_note(e, end->last);
    bool is_asked[MOST_HOSTS] = {false};
    for (int rank = 0; rank < e->job.ranks && rank < MOST_HOSTS; rank++)
        e->of_rank[rank]->going += end->is_gone[rank];
    for (int i = 0; i < e->n_hosts; i++) {
        world_host *h = &e->hosts[i];
        if (h->going > 0)
            elastic_lose(e, h, h->going);
        is_asked[i] = h->going > 0 && host_ranks(h) > 0;
        h->going = 0;
    }
    elastic_lose_unreachable(e, is_asked);
}

/* The attempt failed before its first step. If there are machines that joined for it, they are refused. */
static bool elastic_refuse_new(elastic *e)
{
    bool any = false;
    char text[512];
    for (int i = 0; i < e->n_hosts; i++) {
        world_host *h = &e->hosts[i];
        if (!h->is_new || host_ranks(h) == 0)
            continue;
        any = h->is_out = true;
        snprintf(text, sizeof text, "%s is refused, for the reason above", h->name);
        fprintf(stderr, "lockstep: %s\n", text);
        elastic_note(e, text);
    }
    return any;
}

/* Finds out what to change after an attempt that failed although no rank is known to be lost. False: nothing; the
 * failure would be the same again. */
static bool elastic_find_cause(elastic *e, const cli_job_end *end)
{
    int before = elastic_count_ranks(e);
    if (end->step == 0 && elastic_refuse_new(e))
        return true;
    elastic_lose_all_unreachable(e);
    bool is_of_rank = *end->last && !end->has_stalled;
    return elastic_count_ranks(e) < before ||
           (e->job.on_several_machines && !is_of_rank && e->standstills < MOST_STANDSTILLS);
}

/* Finds the interfaces for the hosts that are left. A name that does not resolve any more may be that of a machine that
 * is gone. If all machines are there, the name server is at fault, and the interfaces stay. */
static void elastic_find_networks(elastic *e)
{
    char error[CLI_HOSTS_ERROR];
    if (!e->job.hosts || !e->opts->finds_interfaces)
        return;
    elastic_list_hosts(e, e->list);
    if (!cli_hosts_find_networks(e->list, e->networks, error)) {
        fprintf(stderr, "lockstep: %s\n", error);
        elastic_lose_all_unreachable(e);
        elastic_list_hosts(e, e->list);
        if (!cli_hosts_find_networks(e->list, e->networks, error))
            return;
    }
    e->job.interfaces = *e->networks ? e->networks : NULL;
}

/* Decides after an attempt whether there is another. */
static bool elastic_goes_on(elastic *e, cli_job_end *end)
{
    bool is_known = end->lost > 0 || end->left > 0;
    bool is_over = end->status == 0 || end->is_interrupted;
    if (is_over || (end->status == CLI_RANK_INTERRUPTED && !is_known && !end->was_stopped))
        return false;
    e->standstills = end->step > e->step ? 0 : e->standstills + 1;
    e->step = end->step > e->step ? end->step : e->step;
    if (end->step > 0 && !end->was_stopped) {
        e->reason[0] = '\0'; /* what it said is recorded, since training began */
        for (int i = 0; i < e->n_hosts; i++)
            e->hosts[i].is_new = false;
    }
    if (!*e->reason)
        e->ranks_before = e->job.ranks;
    if (is_known)
        elastic_take_out(e, end);
    else if (!end->was_stopped && !elastic_find_cause(e, end))
        return false;
    elastic_find_networks(e);
    int left = elastic_count_ranks(e);
    if (left >= e->opts->min_ranks && left > 0) {
        fprintf(stderr, "lockstep: going on with %d rank%s\n", left, left == 1 ? "" : "s");
        return true;
    }
    fprintf(stderr, "lockstep: %d rank%s left, and --min-ranks is %d\n", left, left == 1 ? " is" : "s are",
            e->opts->min_ranks);
    end->status = end->lost > 0 || end->status != CLI_RANK_INTERRUPTED ? 1 : end->status;
    return false;
}

static int elastic_run_attempts(elastic *e)
{
    cli_job_end end = {.is_gone = NULL};
    bool is_again = false;
    do {
        if (!elastic_prepare(e))
            return 1;
        end.is_gone = calloc((size_t)e->job.ranks, sizeof *end.is_gone);
        if (!end.is_gone)
            return cli_error("launch: %s", strerror(errno));
        cli_job_run_once(&e->job, is_again, &end);
        is_again = elastic_goes_on(e, &end);
        free(end.is_gone);
        e->job.command = e->job.again;
    } while (is_again);
    return end.status;
}

/* Removes the folder here and on the machines that can be reached. */
static void elastic_remove_folders(elastic *e)
{
    char command[CLI_MEMORY_PATH + 16];
    bool is_asked[MOST_HOSTS] = {false};
    cli_remove_tree(e->folder);
    for (int i = 0; i < e->n_hosts; i++)
        is_asked[i] = !e->hosts[i].is_away;
    snprintf(command, sizeof command, "rm -rf %s", e->folder);
    elastic_run_on_hosts(e, command, is_asked);
}

int cli_elastic_run(const cli_job_opts *job, const cli_elastic_opts *opts)
{
    int status = 1;
    elastic *e = calloc(1, sizeof *e);
    if (!e)
        return cli_error("launch: %s", strerror(errno));
    e->opts = opts;
    e->job = *job;
    e->job.wants_stop = elastic_wants_stop;
    e->job.is_writing = elastic_is_writing;
    e->job.elastic = e;
    e->file_time = opts->file_time;
    if (job->hosts)
        elastic_take_list(e, job->hosts, false);
    else
        elastic_find(e, "")->slots = job->ranks;
    if (cli_memory_make(e->folder)) {
        setenv(LK_MEMORY_VARIABLE, e->folder, 1);
        status = elastic_run_attempts(e);
        elastic_remove_folders(e);
    }
    free(e);
    return status;
}
