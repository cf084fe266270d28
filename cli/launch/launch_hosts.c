#include "cli/launch/launch_hosts.h"

#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_NAME = 255, MAX_SLOTS = 4096, MOST_SECONDS = 5 };

typedef struct host {
    char name[MAX_NAME + 1];
    int slots;
} host;

/* Reads one host and moves *text after it. */
static bool host_read(const char **text, host *h)
{
    size_t length = strcspn(*text, ":,");
    bool is_name = length > 0 && length <= MAX_NAME;
    for (size_t i = 0; i < length && is_name; i++)
        is_name = isalnum((unsigned char)(*text)[i]) || ((*text)[i] == '-' && i > 0) || (*text)[i] == '.' ||
                  (*text)[i] == '_';
    if (!is_name)
        return false;
    *h = (host){.slots = 1};
    memcpy(h->name, *text, length);
    *text += length;
    if (**text == ':') {
        char *end;
        long slots = isdigit((unsigned char)(*text)[1]) ? strtol(*text + 1, &end, 10) : 0;
        if (slots < 1 || slots > MAX_SLOTS)
            return false;
        h->slots = (int)slots;
        *text = end;
    }
    if (**text == ',' && (*text)[1])
        (*text)++;
    else if (**text)
        return false;
    return true;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* Runs in a child process. Writes to `answer` why the name does not resolve, if it does not. */
static _Noreturn void launch_hosts_resolve_name(const char *name, int answer)
{
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(name, NULL, &(struct addrinfo){.ai_socktype = SOCK_STREAM}, &found);
    if (failed)
        dprintf(answer, "%s", gai_strerror(failed));
    _exit(0);
}

/* Returns whether a name resolves; writes to `reason` why not. A child process asks, because it can be killed if a name
 * server does not answer. */
static bool host_exists(const char *name, char *reason, size_t size)
{
    int answer[2];
    reason[0] = '\0';
    if (pipe(answer) != 0) {
        snprintf(reason, size, "%s", strerror(errno));
        return false;
    }
    pid_t process = fork();
    if (process == 0)
        launch_hosts_resolve_name(name, answer[1]);
    close(answer[1]);
    struct pollfd watched = {.fd = answer[0], .events = POLLIN};
    ssize_t n = 0;
    if (process < 0)
        snprintf(reason, size, "%s", strerror(errno));
    else if (poll(&watched, 1, MOST_SECONDS * 1000) <= 0)
        snprintf(reason, size, "no answer to the question for its address within %d s", MOST_SECONDS);
    else if ((n = read(answer[0], reason, size - 1)) >= 0)
        reason[n] = '\0';
    close(answer[0]);
    if (process > 0) {
        kill(process, SIGKILL);
        waitpid(process, NULL, 0);
    }
    return reason[0] == '\0';
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

int cli_hosts_check(const char *hosts, int *slots)
{
    host h;
    char reason[256];
    *slots = 0;
    for (const char *rest = hosts; rest && *rest;) {
        if (!host_read(&rest, &h))
            return cli_usage_error("--hosts %s: has to be of the form a:2,b:2, machines with a number of places from 1 "
                                   "to %d",
                                   hosts, MAX_SLOTS);
        if (!host_exists(h.name, reason, sizeof reason))
            return cli_usage_error("--hosts %s: there is no machine '%s': %s", hosts, h.name, reason);
        *slots += h.slots;
    }
    if (hosts && *slots == 0)
        return cli_usage_error("--hosts: no machine is named");
    return 0;
}
