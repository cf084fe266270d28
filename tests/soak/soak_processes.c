#include "soak_processes.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- command lines -------------------------------------------------------------------------------------------------
 */

static char *processes_format(const char *format, va_list arguments)
{
    char *text;
    if (vasprintf(&text, format, arguments) < 0)
        abort();
    return text;
}

void soak_command_add(soak_command *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (command->argument_count < SOAK_MAX_ARGUMENTS)
        command->arguments[command->argument_count++] = processes_format(format, arguments);
    va_end(arguments);
}

void soak_command_set(soak_command *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (command->variable_count < 16)
        command->variables[command->variable_count++] = processes_format(format, arguments);
    va_end(arguments);
}

void soak_command_print(const soak_command *command, FILE *stream)
{
    for (int i = 0; i < command->variable_count; i++)
        fprintf(stream, "%s ", command->variables[i]);
    for (int i = 0; i < command->argument_count; i++)
        fprintf(stream, "%s%s", command->arguments[i], i + 1 < command->argument_count ? " " : "\n");
}

void soak_command_free(soak_command *command)
{
    for (int i = 0; i < command->argument_count; i++)
        free(command->arguments[i]);
    for (int i = 0; i < command->variable_count; i++)
        free(command->variables[i]);
    *command = (soak_command){.argument_count = 0};
}

/* --- starting ------------------------------------------------------------------------------------------------------
 */

static void process_limit(int resource, long long bytes)
{
    struct rlimit limit = {.rlim_cur = (rlim_t)bytes, .rlim_max = (rlim_t)bytes};
    if (bytes > 0)
        setrlimit((__rlimit_resource_t)resource, &limit);
}

static void process_redirect(const char *name, const char *ending, int descriptor)
{
    char path[256];
    snprintf(path, sizeof path, "%s.%s", name, ending);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0 || dup2(file, descriptor) < 0)
        _exit(127);
}

static void process_run(const soak_command *command, const soak_start *how)
{
    if (chdir(how->folder) != 0)
        _exit(127);
    process_redirect(how->name, "err", 2);
    if (how->output >= 0)
        dup2(how->output, 1);
    else
        process_redirect(how->name, "out", 1);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, 0);
    setpgid(0, 0);
    for (int i = 0; i < command->variable_count; i++)
        putenv(command->variables[i]);
    /* A write past the limit then fails, as on a full disk, instead of ending the process. */
    signal(SIGXFSZ, how->file_bytes > 0 ? SIG_IGN : SIG_DFL);
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    process_limit(RLIMIT_FSIZE, how->file_bytes);
    process_limit(RLIMIT_AS, how->address_bytes);
    execv(command->arguments[0], command->arguments);
    _exit(127);
}

pid_t soak_process_start(const soak_command *command, const soak_start *how)
{
    pid_t process = fork();
    if (process < 0) {
        perror("soak: fork");
        exit(1);
    }
    if (process == 0)
        process_run(command, how);
    return process;
}

/* --- what they start -----------------------------------------------------------------------------------------------
 */

typedef struct process_row {
    pid_t process, parent;
    char state;
    bool is_ours;
} process_row;

static bool process_read_row(const char *name, process_row *row)
{
    char path[300], text[512];
    snprintf(path, sizeof path, "/proc/%s/stat", name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0)
        return false;
    text[length] = '\0';
    const char *after = strrchr(text, ')');
    *row = (process_row){.process = (pid_t)atol(name)};
    return after && sscanf(after + 1, " %c %d", &row->state, &row->parent) == 2;
}

int soak_processes_list(pid_t found[SOAK_MAX_PROCESSES])
{
    static process_row rows[4096];
    int count = 0, n = 0;
    DIR *folder = opendir("/proc");
    for (struct dirent *entry; folder && (entry = readdir(folder)) && count < 4096;)
        if (isdigit((unsigned char)entry->d_name[0]) && process_read_row(entry->d_name, &rows[count]))
            count++;
    if (folder)
        closedir(folder);
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < count; i++) {
            bool is_ours = rows[i].parent == getpid();
            for (int j = 0; j < count && !is_ours; j++)
                is_ours = rows[j].is_ours && rows[j].process == rows[i].parent;
            changed |= is_ours && !rows[i].is_ours;
            rows[i].is_ours |= is_ours;
        }
    }
    for (int i = 0; i < count && n < SOAK_MAX_PROCESSES; i++)
        if (rows[i].is_ours && rows[i].state != 'Z')
            found[n++] = rows[i].process;
    return n;
}

void soak_processes_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

bool soak_process_arguments(pid_t process, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, text, size - 1);
    close(file);
    if (length <= 0)
        return false;
    for (ssize_t i = 0; i < length; i++)
        if (text[i] == '\0')
            text[i] = ' ';
    text[length] = '\0';
    return true;
}

static void process_print_file(pid_t process, const char *task, const char *name, FILE *stream)
{
    char path[320], text[2048];
    snprintf(path, sizeof path, "/proc/%d/task/%s/%s", (int)process, task, name);
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[length] = '\0';
    fprintf(stream, "  %s %s: %s\n", task, name, text);
}

void soak_process_print_stacks(pid_t process, FILE *stream)
{
    char command[200], line[400];
    snprintf(
        command, sizeof command,
        "timeout 60 gdb -p %d -batch -ex 'thread apply all bt 14' 2>/dev/null || timeout 60 eu-stack -p %d 2>/dev/null",
        (int)process, (int)process);
    fprintf(stream, "stacks of %d: %s\n", (int)process,
            soak_process_arguments(process, line, sizeof line) ? line : "(ended)");
    fflush(stream);
    FILE *debugger = popen(command, "re");
    bool has_lines = false;
    while (debugger && fgets(line, sizeof line, debugger)) {
        has_lines |= *line == '#';
        if (*line == '#' || strncmp(line, "Thread", 6) == 0 || strncmp(line, "TID", 3) == 0)
            fprintf(stream, "  %s", line);
    }
    if (debugger)
        pclose(debugger);
    snprintf(command, sizeof command, "/proc/%d/task", (int)process);
    DIR *tasks = has_lines ? NULL : opendir(command);
    for (struct dirent *entry; tasks && (entry = readdir(tasks));)
        if (*entry->d_name != '.') {
            process_print_file(process, entry->d_name, "comm", stream);
            process_print_file(process, entry->d_name, "wchan", stream);
            process_print_file(process, entry->d_name, "stack", stream);
        }
    if (tasks)
        closedir(tasks);
}

void soak_processes_end(void)
{
    pid_t found[SOAK_MAX_PROCESSES];
    for (int n; (n = soak_processes_list(found)) > 0; soak_sleep(0.02)) {
        for (int i = 0; i < n; i++)
            kill(found[i], SIGKILL);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

double soak_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void soak_sleep(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}
