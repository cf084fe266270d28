#include "cli/launch/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1024 };

typedef struct children {
    int n;
    pid_t list[MOST];
} children;

/* The children that this process had before it started any. A shell that becomes this program by exec leaves it its own
 * children, such as the `tee` that reads its output. */
static children foreign;

static bool descendants_is_foreign(pid_t process)
{
    for (int i = 0; i < foreign.n; i++)
        if (foreign.list[i] == process)
            return true;
    return false;
}

bool cli_prepare_child(pid_t parent, int output)
{
    int nothing = open("/dev/null", O_RDWR);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    return nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 && dup2(nothing, STDOUT_FILENO) >= 0 &&
           dup2(output, STDERR_FILENO) >= 0;
}

/* Returns whether a process is a child of this one. /proc/N/stat has the parent's number after the name and the state,
 * as in ") S 123 …"; see proc(5). */
static bool descendants_process_is_child(long process)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", process);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[n] = '\0';
    if (file)
        fclose(file);
    const char *after_name = strrchr(text, ')');
    return after_name && strlen(after_name) > 4 && strtol(after_name + 4, NULL, 10) == getpid();
}

/* Finds the children that this process has started or adopted. Returns false if that cannot be told. */
static bool descendants_find(children *found)
{
    DIR *all = opendir("/proc");
    found->n = 0;
    for (struct dirent *entry = all ? readdir(all) : NULL; entry && found->n < MOST; entry = readdir(all)) {
        long process = strtol(entry->d_name, NULL, 10); /* 0: the entry is not a process */
        if (process > 0 && descendants_process_is_child(process) && !descendants_is_foreign((pid_t)process))
            found->list[found->n++] = (pid_t)process;
    }
    return all && closedir(all) == 0;
}

void cli_adopt_descendants(void)
{
    static bool has_adopted;
    if (!has_adopted)
        descendants_find(&foreign);
    has_adopted = true;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void cli_kill_descendants(void)
{
    enum { GRACE = 100, TRIES = 6000, PAUSE = 10 * 1000 * 1000 }; /* pauses, pauses, nanoseconds */
    children own;
    for (int i = 0; i < TRIES; i++) { /* a process that waits for a disk dies only when the disk has answered */
        pid_t ended;
        do
            ended = waitpid(-1, NULL, WNOHANG);
        while (ended > 0);
        bool is_known = descendants_find(&own);
        if (ended < 0 || (is_known && own.n == 0))
            return; /* there are no children */
        for (int k = 0; k < own.n; k++)
            if (i == 0)
                kill(own.list[k], SIGTERM); /* supervisors end their ranks and remove their files */
            else if (i >= GRACE)
                kill(own.list[k], SIGKILL); /* their children become ours */
        nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
    }
}
