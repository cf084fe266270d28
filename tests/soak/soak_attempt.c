#include "soak_attempt.h"

#include "soak_processes.h"
#include "soak_random.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Seconds. The longest trial of an idle machine takes two. */
enum { WATCHDOG = 120, GRACE = 30 };

typedef struct attempt_member {
    soak_command command;
    char name[64];
    pid_t process; /* 0: not started */
    bool has_ended, was_killed;
    int status;
} attempt_member;

typedef struct attempt_run {
    const soak_attempt_job *job;
    char folder[512];
    attempt_member members[8]; /* the first is the one whose output counts */
    int count;
    char coordinator[64];
    pid_t paused;
    double pause_ends;
    bool is_done[SOAK_MAX_DISTURBANCES];
    int pipe; /* read end of standard output; below 0: none */
    bool was_killed;
} attempt_run;

/* --- command lines -------------------------------------------------------------------------------------------------
 */

static void attempt_add_setting(soak_command *command, const soak_setting *setting)
{
    const char *name = setting->row->name;
    soak_cover(name, setting->is_launch);
    if (setting->row->type == LK_OPTION_FLAG) {
        soak_command_add(command, strcmp(setting->value, "true") == 0 ? "--%s" : "--no-%s", name);
    } else {
        soak_command_add(command, "--%s", name);
        soak_command_add(command, "%s", setting->value);
    }
}

static void attempt_add(soak_command *command, const char *name, const char *value)
{
    soak_cover(name, false);
    soak_command_add(command, "--%s", name);
    soak_command_add(command, "%s", value);
}

static void attempt_add_environment(const attempt_run *run, soak_command *command)
{
    const soak_attempt_job *job = run->job;
    soak_command_set(command, "HOME=%s/home", job->place->root);
    soak_command_set(command, "TMPDIR=%s/tmp", job->place->root);
    if (strncmp(job->given->device_kind, "cuda", 4) == 0)
        soak_command_set(command, "LOCKSTEP_CUDA_PLUGIN=%s", job->programs->cuda);
    if (job->attempt->is_synchronous)
        soak_command_set(command, "LOCKSTEP_ENGINE=sync");
    if (job->attempt->is_slow)
        soak_command_set(command, "LOCKSTEP_CHECKPOINT_SLOW=3");
    for (int i = 0; i < job->attempt->disturbance_count; i++) {
        const soak_disturbance *d = &job->attempt->disturbances[i];
        long long by = (long long)(d->choice % 2000000000) - 1000000000;
        if (d->kind != SOAK_CLOCK)
            continue;
        soak_command_set(command, "LD_PRELOAD=%s", job->programs->clock);
        soak_command_set(command, "LOCKSTEP_SOAK_JUMP=%.3f:%lld", d->moment * job->seconds, by);
    }
}

static bool attempt_is_launched(const soak_attempt *attempt)
{
    return attempt->shape == SOAK_RANKS || attempt->shape == SOAK_HOSTS || attempt->shape == SOAK_SERVERS;
}

/* train refuses the other options of checkpoints without their folder. */
static bool attempt_takes(const soak_attempt_job *job, const soak_setting *setting)
{
    const char *name = setting->row->name;
    return job->checkpoints || (strncmp(name, "checkpoint-", 11) != 0 && strcmp(name, "keep") != 0);
}

/* The options of train. A trace is a single process's file. */
static void attempt_add_training(const attempt_run *run, soak_command *command, bool is_first)
{
    const soak_attempt_job *job = run->job;
    soak_command_add(command, "train");
    for (int i = 0; i < job->given->settings.count; i++)
        if (attempt_takes(job, &job->given->settings.at[i]))
            attempt_add_setting(command, &job->given->settings.at[i]);
    for (int i = 0; i < job->attempt->settings.count; i++) {
        const soak_setting *setting = &job->attempt->settings.at[i];
        if (!setting->is_launch && (is_first || strcmp(setting->row->name, "trace") != 0))
            attempt_add_setting(command, setting);
    }
    if (!job->checkpoints)
        return;
    attempt_add(command, "checkpoint-dir", job->checkpoints);
    if (!job->is_resuming)
        return;
    soak_cover("resume", false);
    soak_command_add(command, "--resume");
    if (job->attempt->is_overriding) {
        soak_cover("override", false);
        soak_command_add(command, "--override");
    }
}

static attempt_member *attempt_add_member(attempt_run *run, const char *suffix)
{
    attempt_member *member = &run->members[run->count++];
    snprintf(member->name, sizeof member->name, "%s%s", run->job->name, suffix);
    attempt_add_environment(run, &member->command);
    soak_command_add(&member->command, "%s", run->job->programs->lockstep);
    return member;
}

static void attempt_make_first(attempt_run *run)
{
    const soak_attempt *attempt = run->job->attempt;
    attempt_member *member = attempt_add_member(run, "");
    soak_command *command = &member->command;
    if (attempt_is_launched(attempt)) {
        soak_command_add(command, "launch");
        for (int i = 0; i < attempt->settings.count; i++)
            if (attempt->settings.at[i].is_launch)
                attempt_add_setting(command, &attempt->settings.at[i]);
        soak_command_add(command, "--");
    }
    attempt_add_training(run, command, true);
    if (attempt->shape != SOAK_ROLES)
        return;
    char servers[16];
    snprintf(servers, sizeof servers, "%d", attempt->servers);
    attempt_add(command, "strategy", "parameter-server");
    attempt_add(command, "role", "chief");
    attempt_add(command, "coordinator", "127.0.0.1:0");
    attempt_add(command, "servers", servers);
    if (attempt->has_keys)
        attempt_add(command, "keys", "keys/chief.key");
}

static void attempt_add_key(const soak_attempt *attempt, soak_command *command, const char *role, int index)
{
    char path[64];
    snprintf(path, sizeof path, "keys/%s-%d.key", role, index);
    if (attempt->has_keys)
        attempt_add(command, "keys", path);
}

static void attempt_make_servers(attempt_run *run)
{
    const soak_attempt *attempt = run->job->attempt;
    char text[32];
    for (int i = 0; i < attempt->servers; i++) {
        snprintf(text, sizeof text, "-ps-%d", i);
        soak_command *command = &attempt_add_member(run, text)->command;
        attempt_add_training(run, command, false);
        attempt_add(command, "strategy", "parameter-server");
        attempt_add(command, "role", "ps");
        attempt_add(command, "coordinator", run->coordinator);
        snprintf(text, sizeof text, "%d", i);
        attempt_add(command, "task-index", text);
        snprintf(text, sizeof text, "%d", attempt->servers);
        attempt_add(command, "servers", text);
        if (i == 0)
            attempt_add(command, "listen", "127.0.0.1:0");
        attempt_add_key(attempt, command, "ps", i);
    }
}

static void attempt_write_cluster(const attempt_run *run)
{
    char path[600];
    snprintf(path, sizeof path, "%s/cluster.json", run->folder);
    FILE *file = fopen(path, "we");
    if (!file)
        return;
    fprintf(file, "{\"cluster\": {\"chief\": [\"%s\"], \"worker\": [\"127.0.0.1:0\"], \"ps\": [\"127.0.0.1:0\"%s]},\n",
            run->coordinator, run->job->attempt->servers > 1 ? ", \"127.0.0.1:0\"" : "");
    fprintf(file, " \"task\": {\"type\": \"worker\", \"index\": 0}}\n");
    fclose(file);
}

static void attempt_make_workers(attempt_run *run)
{
    const soak_attempt *attempt = run->job->attempt;
    char text[32];
    if (attempt->has_cluster)
        attempt_write_cluster(run);
    for (int i = 0; i < attempt->processes; i++) {
        snprintf(text, sizeof text, "-worker-%d", i);
        soak_command *command = &attempt_add_member(run, text)->command;
        attempt_add_training(run, command, false);
        attempt_add(command, "strategy", "parameter-server");
        if (attempt->has_cluster) {
            attempt_add(command, "cluster", "cluster.json");
        } else {
            attempt_add(command, "role", "worker");
            attempt_add(command, "coordinator", run->coordinator);
        }
        attempt_add_key(attempt, command, "worker", i);
    }
}

/* --- starting ------------------------------------------------------------------------------------------------------
 */

static const soak_disturbance *attempt_disturbance(const attempt_run *run, soak_disturbance_kind kind)
{
    const soak_attempt *attempt = run->job->attempt;
    for (int i = 0; i < attempt->disturbance_count; i++)
        if (attempt->disturbances[i].kind == kind)
            return &attempt->disturbances[i];
    return NULL;
}

static void attempt_start_member(attempt_run *run, attempt_member *member)
{
    const soak_disturbance *memory = attempt_disturbance(run, SOAK_MEMORY), *disk = attempt_disturbance(run, SOAK_DISK),
                           *closed = member == run->members ? attempt_disturbance(run, SOAK_PIPE) : NULL;
    soak_start how = {.folder = run->folder, .name = member->name, .output = -1};
    int ends[2] = {-1, -1};
    if (memory)
        how.address_bytes = (100LL << 20) + (long long)(memory->choice % 1200) * (1LL << 20);
    if (disk && (!soak_place_has_disks() || disk->choice % 4 == 0))
        how.file_bytes = 40000 + (long long)(disk->choice / 4 % 400000);
    if (closed && closed->choice % 4 == 0)
        how.output = open("/dev/full", O_WRONLY | O_CLOEXEC);
    else if (closed && pipe2(ends, O_CLOEXEC) == 0)
        how.output = ends[1];
    member->process = soak_process_start(&member->command, &how);
    if (how.output >= 0)
        close(how.output);
    if (ends[0] >= 0)
        run->pipe = ends[0];
    soak_command_print(&member->command, run->job->log);
    if (how.address_bytes || how.file_bytes)
        fprintf(run->job->log, "  with limits: %lld bytes of memory, %lld of a file (0: none)\n", how.address_bytes,
                how.file_bytes);
}

static void attempt_make_keys(attempt_run *run)
{
    const soak_attempt *attempt = run->job->attempt;
    char path[600];
    soak_command command = {.argument_count = 0};
    snprintf(path, sizeof path, "%s/keys", run->folder);
    soak_place_clear(path);
    soak_command_add(&command, "%s", run->job->programs->lockstep);
    soak_command_add(&command, "keys");
    soak_command_add(&command, "keys");
    soak_command_add(&command, "chief");
    for (int i = 0; i < attempt->servers; i++)
        soak_command_add(&command, "ps-%d", i);
    for (int i = 0; i < attempt->processes; i++)
        soak_command_add(&command, "worker-%d", i);
    pid_t process =
        soak_process_start(&command, &(soak_start){.folder = run->folder, .name = "run-keys", .output = -1});
    waitpid(process, NULL, 0);
    soak_command_print(&command, run->job->log);
    soak_command_free(&command);
}

/* The others of parameter-server can start once the chief has said where it listens. */
static void attempt_start_others(attempt_run *run)
{
    static const char says[] = "the chief listens at ";
    char path[600], line[512];
    snprintf(path, sizeof path, "%s/%s.err", run->folder, run->members[0].name);
    FILE *file = fopen(path, "re");
    while (file && !*run->coordinator && fgets(line, sizeof line, file)) {
        const char *found = strstr(line, says);
        if (found && strchr(found, '\n'))
            sscanf(found + sizeof says - 1, "%63s", run->coordinator);
    }
    if (file)
        fclose(file);
    if (!*run->coordinator)
        return;
    attempt_make_servers(run);
    attempt_make_workers(run);
    for (int i = 1; i < run->count; i++)
        attempt_start_member(run, &run->members[i]);
}

/* --- disturbing ----------------------------------------------------------------------------------------------------
 */

/* Processes that may be killed or stopped. A lost one is a training process that others can replace; a server with
 * snapshots comes back without its last updates, so it is spared. */
static pid_t attempt_choose(const attempt_run *run, const soak_disturbance *d)
{
    pid_t all[SOAK_MAX_PROCESSES], chosen[SOAK_MAX_PROCESSES];
    int n = 0, count = soak_processes_list(all);
    for (int i = 0; i < count; i++) {
        char text[8192];
        if (!soak_process_arguments(all[i], text, sizeof text))
            continue;
        bool trains = strncmp(text, run->job->programs->lockstep, strlen(run->job->programs->lockstep)) == 0 &&
                      strncmp(text + strlen(run->job->programs->lockstep), " train", 6) == 0;
        bool has_snapshots = strstr(text, "--snapshot-dir") && strstr(text, "--role ps");
        if ((d->kind == SOAK_PAUSE || !has_snapshots) && (d->kind != SOAK_LOSE || trains))
            chosen[n++] = all[i];
    }
    return n > 0 ? chosen[d->choice % (uint64_t)n] : 0;
}

static attempt_member *attempt_member_of(attempt_run *run, pid_t process)
{
    for (int i = 0; i < run->count; i++)
        if (run->members[i].process == process)
            return &run->members[i];
    return NULL;
}

static void attempt_signal(attempt_run *run, pid_t process, int signal_number, double now)
{
    char text[160];
    if (kill(process, signal_number) != 0)
        return;
    if (!soak_process_arguments(process, text, sizeof text))
        snprintf(text, sizeof text, "(gone)");
    fprintf(run->job->log, "  after %.3f s: signal %d for process %d: %s\n", now, signal_number, (int)process, text);
}

/* Returns whether the disturbance took place. */
static bool attempt_disturb(attempt_run *run, const soak_disturbance *d, double now)
{
    pid_t process;
    if (d->kind == SOAK_KILL || d->kind == SOAK_LOSE) {
        process = attempt_choose(run, d);
        if (process == 0)
            return false;
        attempt_member *member = attempt_member_of(run, process);
        run->was_killed = true;
        if (member)
            member->was_killed = true;
        attempt_signal(run, process, SIGKILL, now);
    } else if (d->kind == SOAK_INTERRUPT) {
        attempt_signal(run, run->members[0].process, d->choice % 2 ? SIGINT : SIGTERM, now);
    } else if (d->kind == SOAK_PAUSE) {
        process = attempt_choose(run, d);
        if (process == 0 || run->paused != 0)
            return false;
        run->paused = process;
        run->pause_ends = now + 0.05 + (double)(d->choice / 1024 % 1000) * 1e-3;
        attempt_signal(run, process, SIGSTOP, now);
    } else if (d->kind == SOAK_PIPE && run->pipe >= 0) {
        close(run->pipe);
        run->pipe = -1;
        fprintf(run->job->log, "  after %.3f s: nobody reads standard output any more\n", now);
    }
    return true;
}

static void attempt_tick(attempt_run *run, double now)
{
    const soak_attempt_job *job = run->job;
    char text[4096];
    if (run->pipe >= 0)
        while (read(run->pipe, text, sizeof text) > 0)
            ;
    for (int i = 0; i < job->attempt->disturbance_count; i++)
        if (!run->is_done[i] && now >= job->attempt->disturbances[i].moment * job->seconds)
            run->is_done[i] = attempt_disturb(run, &job->attempt->disturbances[i], now);
    if (run->paused != 0 && now >= run->pause_ends) {
        attempt_signal(run, run->paused, SIGCONT, now);
        run->paused = 0;
    }
}

/* --- waiting -------------------------------------------------------------------------------------------------------
 */

/* Takes the status of all that have ended, orphans too. Returns whether all members have. */
static bool attempt_reap(attempt_run *run)
{
    int status;
    bool ended = true;
    for (pid_t process; (process = waitpid(-1, &status, WNOHANG)) > 0;) {
        attempt_member *member = attempt_member_of(run, process);
        if (!member)
            continue;
        member->has_ended = true;
        member->status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    }
    for (int i = 0; i < run->count; i++)
        ended &= run->members[i].has_ended;
    return ended;
}

static void attempt_show_stuck(const attempt_run *run)
{
    pid_t found[SOAK_MAX_PROCESSES];
    int n = soak_processes_list(found);
    for (int i = 0; i < n; i++)
        soak_process_print_stacks(found[i], run->job->log);
}

/* Returns how often longer a trial may take because other work uses the cores. */
static double attempt_patience(void)
{
    double load = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return getloadavg(&load, 1) == 1 && load > (double)cores ? load / (double)cores : 1;
}

static void attempt_wait(attempt_run *run, soak_outcome *outcome)
{
    const bool has_others = run->job->attempt->shape == SOAK_ROLES;
    double began = soak_seconds(), now = 0;
    while (!attempt_reap(run) && !outcome->has_hung) {
        now = soak_seconds() - began;
        attempt_tick(run, now);
        if (has_others && run->count == 1 && !run->members[0].has_ended)
            attempt_start_others(run);
        outcome->has_hung = now > WATCHDOG * attempt_patience();
        soak_sleep(0.003);
    }
    outcome->seconds = soak_seconds() - began;
    if (run->paused != 0)
        kill(run->paused, SIGCONT);
    pid_t left[SOAK_MAX_PROCESSES];
    double ended = soak_seconds();
    while (!outcome->has_hung && soak_processes_list(left) > 0 && !outcome->has_left) {
        attempt_reap(run);
        outcome->has_left = soak_seconds() - ended > GRACE;
        soak_sleep(0.01);
    }
    if (outcome->has_hung || outcome->has_left)
        attempt_show_stuck(run);
    soak_processes_end();
}

/* --- the result ----------------------------------------------------------------------------------------------------
 */

/* Returns the line without the "[RANK] " that launch writes before it. */
static const char *attempt_skip_rank(const char *line)
{
    const char *end = *line == '[' ? strstr(line, "] ") : NULL;
    return end ? end + 2 : line;
}

/* An answer to an interrupt begins as an error does. */
static bool attempt_is_complaint(const char *text)
{
    return strncmp(text, "lockstep: ", 10) == 0 && !strstr(text, "; a second interrupt ends at once");
}

static void attempt_read_digest(const char *text, const char *begins, char digest[64])
{
    if (strncmp(text, begins, strlen(begins)) == 0)
        sscanf(text + strlen(begins), "%63s", digest);
}

static void attempt_read(const attempt_run *run, const char *ending, soak_outcome *outcome)
{
    char path[600], line[2048];
    snprintf(path, sizeof path, "%s/%s.%s", run->folder, run->members[0].name, ending);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        const char *text = attempt_skip_rank(line);
        attempt_read_digest(text, "digest ", outcome->digest);
        attempt_read_digest(text, "state digest ", outcome->state);
        if (strcmp(ending, "err") != 0)
            continue;
        outcome->complaints += attempt_is_complaint(text);
        if (*line)
            snprintf(outcome->last, sizeof outcome->last, "%.255s", line);
    }
    if (file)
        fclose(file);
}

static void attempt_log_output(const attempt_run *run, const attempt_member *member)
{
    char path[600], line[400];
    snprintf(path, sizeof path, "%s/%s.err", run->folder, member->name);
    fprintf(run->job->log, "  %s ended with %d\n", member->name, member->status);
    FILE *file = fopen(path, "re");
    long at = -1200;
    if (file && fseek(file, at, SEEK_END) != 0)
        rewind(file);
    while (file && fgets(line, sizeof line, file))
        fprintf(run->job->log, "    | %s%s", line, strchr(line, '\n') ? "" : "\n");
    if (file)
        fclose(file);
}

/* Returns whether the process came when training had ended: a few steps may be over before all workers are there. */
static bool attempt_came_late(const attempt_run *run, const attempt_member *member)
{
    char path[600], line[2048];
    bool is_late = false;
    snprintf(path, sizeof path, "%s/%s.err", run->folder, member->name);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        is_late |= strstr(line, " does not answer: nobody was there within ") != NULL;
    if (file)
        fclose(file);
    return is_late;
}

void soak_attempt_run(const soak_attempt_job *job, soak_outcome *outcome)
{
    attempt_run *run = calloc(1, sizeof *run);
    if (!run)
        abort();
    run->job = job;
    run->pipe = -1;
    *outcome = (soak_outcome){.status = 0};
    snprintf(run->folder, sizeof run->folder, "%s/%s", job->place->root, job->folder);
    const soak_disturbance *disk = attempt_disturbance(run, SOAK_DISK);
    if (disk && disk->choice % 4 != 0) {
        long long bytes = 4096 << (disk->choice / 4 % 12);
        soak_place_limit(job->place, bytes);
        fprintf(job->log, "  a disk with %lld free bytes\n", bytes);
    }
    if (job->attempt->shape == SOAK_ROLES && job->attempt->has_keys)
        attempt_make_keys(run);
    attempt_make_first(run);
    attempt_start_member(run, &run->members[0]);
    if (run->pipe >= 0)
        fcntl(run->pipe, F_SETFL, O_NONBLOCK);
    attempt_wait(run, outcome);
    if (run->pipe >= 0)
        close(run->pipe);
    soak_place_limit(job->place, 0);
    attempt_read(run, "out", outcome);
    attempt_read(run, "err", outcome);
    outcome->status = run->members[0].status;
    outcome->was_killed = run->was_killed;
    outcome->first_was_killed = run->members[0].was_killed;
    fprintf(job->log, "  %.2f s\n", outcome->seconds);
    for (int i = 0; i < run->count; i++) {
        outcome->others_failed |= i > 0 && run->members[i].status != 0 && !attempt_came_late(run, &run->members[i]);
        attempt_log_output(run, &run->members[i]);
        soak_command_free(&run->members[i].command);
    }
    free(run);
}
