#include "cli/launch/launch_memory.h"

#include "cli/cli.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The name tells the machine and the number of the launcher. It becomes part of a shell's command on other machines, so
 * it has no characters that a shell knows. */
static void memory_launcher(char text[64])
{
    char host[48] = "";
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr(".-_", *c))
            *c = '_';
    snprintf(text, 64, "/lockstep-%s-", host);
}

bool cli_memory_make(char path[CLI_MEMORY_PATH])
{
    char launcher[64];
    memory_launcher(launcher);
    snprintf(path, CLI_MEMORY_PATH, "%s%s%ld-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", launcher,
             (long)getpid());
    if (mkdtemp(path))
        return true;
    cli_error("launch: %s: cannot be made: %s", path, strerror(errno));
    return false;
}

/* Returns whether the folder has an entry whose name begins with `prefix` or, with `below`, a folder in it has one. */
static bool memory_has(const char *path, const char *prefix, bool below)
{
    char inner[PATH_MAX];
    bool found = false;
    DIR *entries = opendir(path);
    for (struct dirent *entry; entries && !found && (entry = readdir(entries));) {
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        found = below ? entry->d_name[0] != '.' && memory_has(inner, prefix, false)
                      : strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    }
    if (entries)
        closedir(entries);
    return found;
}

bool cli_memory_is_written(const char *path)
{
    return memory_has(path, ".unfinished-", true);
}

/* Returns what follows the name of this machine; NULL: the path has that of another one. */
static const char *memory_behind_host(const char *path)
{
    char launcher[64];
    memory_launcher(launcher);
    const char *found = strstr(path, launcher);
    return found ? found + strlen(launcher) : NULL;
}

bool cli_memory_is_of_this_machine(const char *path)
{
    return memory_behind_host(path) != NULL;
}

bool cli_memory_is_orphan(const char *path)
{
    char stat_path[64], text[256] = "";
    const char *number = memory_behind_host(path);
    if (!number)
        return false;
    snprintf(stat_path, sizeof stat_path, "/proc/%ld/stat", strtol(number, NULL, 10));
    FILE *file = fopen(stat_path, "re");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = '\0';
    const char *behind = strrchr(text, ')'); /* the state follows the name */
    return !behind || strncmp(behind, ") Z", 3) == 0 || strncmp(behind, ") X", 3) == 0;
}
