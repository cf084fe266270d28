#include "descendants.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void cli_adopt_descendants(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* proc(5): ") S 123 …": the parent is behind the state, which is behind the name. */
static bool is_child(long process)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", process);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[n] = '\0';
    if (file)
        fclose(file);
    const char *behind = strrchr(text, ')');
    return behind && strlen(behind) > 4 && strtol(behind + 4, NULL, 10) == getpid();
}

static void kill_children(void)
{
    DIR *all = opendir("/proc");
    for (struct dirent *entry = all ? readdir(all) : NULL; entry; entry = readdir(all)) {
        long process = strtol(entry->d_name, NULL, 10); /* 0: no process */
        if (process > 0 && is_child(process))
            kill((pid_t)process, SIGKILL);
    }
    if (all)
        closedir(all);
}

void cli_kill_descendants(void)
{
    enum { TRIES = 6000, NANOSECONDS = 10 * 1000 * 1000 }; /* one that waits for a disk dies when that has answered */
    for (int i = 0; i < TRIES; i++) {
        kill_children(); /* what they had is a child then */
        pid_t ended;
        do
            ended = waitpid(-1, NULL, WNOHANG);
        while (ended > 0);
        if (ended < 0)
            return; /* there is none */
        nanosleep(&(struct timespec){.tv_nsec = NANOSECONDS}, NULL);
    }
}
