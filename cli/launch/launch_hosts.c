#include "cli/launch/launch_hosts.h"

#include "cli/cli.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
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

typedef struct host_answer {
    in_addr_t address; /* in network byte order; 0: it has no IPv4 address */
    bool is_local;     /* it is a name of this machine */
    char reason[251];  /* why the name does not resolve; "": it does */
} host_answer;

static in_addr_t launch_hosts_ipv4(const struct sockaddr *address)
{
    return ((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr;
}

static bool launch_hosts_are_same(const struct sockaddr *a, const struct sockaddr *b)
{
    if (a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return launch_hosts_ipv4(a) == launch_hosts_ipv4(b);
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

static bool launch_hosts_is_own(const struct ifaddrs *interfaces, const struct sockaddr *address)
{
    if (address->sa_family == AF_INET && ntohl(launch_hosts_ipv4(address)) >> 24 == IN_LOOPBACKNET)
        return true;
    for (const struct ifaddrs *at = interfaces; at; at = at->ifa_next)
        if (at->ifa_addr && launch_hosts_are_same(at->ifa_addr, address))
            return true;
    return false;
}

/* Runs in a child process. */
static _Noreturn void launch_hosts_resolve_name(const char *name, int to)
{
    struct ifaddrs *interfaces = NULL;
    host_answer answer = {0};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(name, NULL, &(struct addrinfo){.ai_socktype = SOCK_STREAM}, &found);
    if (failed)
        snprintf(answer.reason, sizeof answer.reason, "%s", gai_strerror(failed));
    (void)!getifaddrs(&interfaces);
    for (struct addrinfo *at = found; at; at = at->ai_next) {
        answer.is_local |= launch_hosts_is_own(interfaces, at->ai_addr);
        if (at->ai_family == AF_INET && !answer.address)
            answer.address = launch_hosts_ipv4(at->ai_addr);
    }
    (void)!write(to, &answer, sizeof answer);
    _exit(0);
}

/* Returns whether there is an answer in time. */
static bool launch_hosts_wait(int from)
{
    struct pollfd watched = {.fd = from, .events = POLLIN};
    int ready;
    do
        ready = poll(&watched, 1, MOST_SECONDS * 1000);
    while (ready < 0 && errno == EINTR); /* a signal says nothing about the name */
    return ready > 0;
}

/* Resolves a name in a child process, because that can be killed if a name server does not answer. */
static void host_resolve(const char *name, host_answer *answer)
{
    int pipes[2];
    *answer = (host_answer){0};
    if (pipe(pipes) != 0) {
        snprintf(answer->reason, sizeof answer->reason, "%s", strerror(errno));
        return;
    }
    pid_t process = fork();
    if (process == 0)
        launch_hosts_resolve_name(name, pipes[1]);
    close(pipes[1]);
    if (process < 0)
        snprintf(answer->reason, sizeof answer->reason, "%s", strerror(errno));
    else if (!launch_hosts_wait(pipes[0]))
        snprintf(answer->reason, sizeof answer->reason, "no answer to the question for its address within %d s",
                 MOST_SECONDS);
    else if (read(pipes[0], answer, sizeof *answer) != (ssize_t)sizeof *answer)
        snprintf(answer->reason, sizeof answer->reason, "the process that asked for its address has ended");
    close(pipes[0]);
    if (process > 0) {
        kill(process, SIGKILL);
        waitpid(process, NULL, 0);
    }
}

/* --- networks ----------------------------------------------------------------------------------------------------- */

/* Writes the network of this machine's interface that an address is in; "": there is none. */
static void launch_hosts_find_network(const struct ifaddrs *interfaces, in_addr_t address, char network[32])
{
    network[0] = '\0';
    for (const struct ifaddrs *at = interfaces; at; at = at->ifa_next) {
        char text[INET_ADDRSTRLEN];
        if (!at->ifa_addr || !at->ifa_netmask || at->ifa_addr->sa_family != AF_INET)
            continue;
        in_addr_t mask = launch_hosts_ipv4(at->ifa_netmask);
        struct in_addr base = {launch_hosts_ipv4(at->ifa_addr) & mask};
        if ((address & mask) == base.s_addr && inet_ntop(AF_INET, &base, text, sizeof text)) {
            snprintf(network, 32, "%s/%d", text, __builtin_popcount(mask));
            return;
        }
    }
}

/* The text of a network may be a part of another's: 10.1.0.0/16 of 110.1.0.0/16. */
static bool launch_hosts_has_network(const char *networks, const char *network)
{
    size_t length = strlen(network);
    for (const char *at = networks; *at; at += at[0] == ',') {
        size_t item = strcspn(at, ",");
        if (item == length && strncmp(at, network, length) == 0)
            return true;
        at += item;
    }
    return false;
}

/* Adds the networks of the hosts. A name that stands for loopback, as a machine's own often does, says nothing about
 * the way to the others. */
static void launch_hosts_find_networks(const in_addr_t *addresses, int n, char networks[CLI_NETWORKS])
{
    struct ifaddrs *interfaces = NULL;
    char network[32];
    size_t used = 0;
    bool all_loopback = true;
    networks[0] = '\0';
    if (getifaddrs(&interfaces) != 0)
        return;
    for (int i = 0; i < n; i++) {
        if (ntohl(addresses[i]) >> 24 == IN_LOOPBACKNET)
            continue;
        all_loopback = false;
        launch_hosts_find_network(interfaces, addresses[i], network);
        bool fits = *network && used + strlen(network) + 2 < CLI_NETWORKS;
        if (!fits) {
            networks[0] = '\0';
            break;
        }
        if (!launch_hosts_has_network(networks, network))
            used += (size_t)snprintf(networks + used, CLI_NETWORKS - used, "%s%s", used ? "," : "", network);
    }
    freeifaddrs(interfaces);
    if (all_loopback)
        snprintf(networks, CLI_NETWORKS, CLI_LOOPBACK);
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

bool cli_hosts_next(const char **text, char name[CLI_HOST_NAME], int *slots)
{
    host h;
    if (!host_read(text, &h))
        return false;
    memcpy(name, h.name, sizeof h.name);
    *slots = h.slots;
    return true;
}

/* Returns whether the list has a machine of this name. */
static bool launch_hosts_has(const char *list, const char *name)
{
    host h;
    while (*list && host_read(&list, &h))
        if (strcmp(h.name, name) == 0)
            return true;
    return false;
}

/* Parses a line without its comment: "a", "a:2" or "a slots=2". */
static bool launch_hosts_parse_line(const char *line, host *h)
{
    char text[MAX_NAME + 64], name[MAX_NAME + 1], slots[16];
    int end = -1;
    if (sscanf(line, "%255s slots=%15[0-9] %n", name, slots, &end) == 2 && end >= 0 && !line[end] && !strchr(name, ':'))
        snprintf(text, sizeof text, "%s:%s", name, slots);
    else if (sscanf(line, "%255s %n", name, &end) == 1 && end >= 0 && !line[end])
        snprintf(text, sizeof text, "%s", name);
    else
        return false;
    const char *rest = text;
    return host_read(&rest, h) && !*rest;
}

/* Adds the machine of a line to the list. Returns what is wrong with it, or NULL. */
static const char *launch_hosts_add_line(const char *line, char list[CLI_HOSTS_LIST], char reason[CLI_HOSTS_ERROR])
{
    host h;
    host_answer answer;
    size_t used = strlen(list);
    if (!launch_hosts_parse_line(line, &h))
        snprintf(reason, CLI_HOSTS_ERROR, "must be a machine and its slots from 1 to %d, as 'a slots=2' or 'a:2'",
                 MAX_SLOTS);
    else if (launch_hosts_has(list, h.name))
        snprintf(reason, CLI_HOSTS_ERROR, "names %s a second time", h.name);
    else if (host_resolve(h.name, &answer), *answer.reason)
        snprintf(reason, CLI_HOSTS_ERROR, "there is no machine '%.200s': %.200s", h.name, answer.reason);
    else if ((size_t)snprintf(list + used, CLI_HOSTS_LIST - used, "%s%s:%d", used ? "," : "", h.name, h.slots) >=
             CLI_HOSTS_LIST - used)
        snprintf(reason, CLI_HOSTS_ERROR, "is too long a list");
    else
        return NULL;
    return reason;
}

bool cli_hosts_read(const char *path, char list[CLI_HOSTS_LIST], char error[CLI_HOSTS_ERROR])
{
    char *line = NULL, reason[CLI_HOSTS_ERROR];
    size_t size = 0;
    const char *wrong = NULL;
    FILE *file = fopen(path, "re");
    list[0] = error[0] = '\0';
    for (int number = 1; file && !wrong && getline(&line, &size, file) > 0; number++) {
        line[strcspn(line, "#\n")] = '\0';
        if (line[strspn(line, " \t\r")])
            wrong = launch_hosts_add_line(line, list, reason);
        if (wrong)
            snprintf(error, CLI_HOSTS_ERROR, "%.200s, line %d: %.250s", path, number, wrong);
    }
    if (!file || (!wrong && !feof(file)))
        snprintf(error, CLI_HOSTS_ERROR, "%.200s: cannot be read: %s", path, strerror(errno));
    else if (!wrong && !*list)
        snprintf(error, CLI_HOSTS_ERROR, "%.200s: names no machine", path);
    if (file)
        fclose(file);
    free(line);
    return !*error;
}

bool cli_hosts_count(const char *hosts, int *n, int *slots)
{
    host h;
    *n = *slots = 0;
    for (const char *rest = hosts; *rest; (*n)++) {
        if (*n == MAX_SLOTS || !host_read(&rest, &h))
            return false;
        *slots += h.slots;
    }
    return true;
}

bool cli_host_is_local(const char *name)
{
    host_answer answer;
    host_resolve(name, &answer);
    return answer.is_local;
}

bool cli_hosts_find_networks(const char *hosts, char networks[CLI_NETWORKS], char error[CLI_HOSTS_ERROR])
{
    host h;
    host_answer answer;
    in_addr_t addresses[MAX_SLOTS];
    int known = 0;
    for (; *hosts && known < MAX_SLOTS && host_read(&hosts, &h); known++) {
        host_resolve(h.name, &answer);
        if (*answer.reason) {
            snprintf(error, CLI_HOSTS_ERROR, "there is no machine '%.200s': %.200s", h.name, answer.reason);
            return false;
        }
        addresses[known] = answer.address;
    }
    launch_hosts_find_networks(addresses, known, networks);
    return true;
}

int cli_hosts_check(const char *hosts, int *slots, char networks[CLI_NETWORKS])
{
    char error[CLI_HOSTS_ERROR];
    int n;
    networks[0] = '\0';
    if (!cli_hosts_count(hosts ? hosts : "", &n, slots))
        return cli_usage_error(
            "--hosts %s: has to be of the form a:2,b:2, machines with a number of places from 1 to %d", hosts,
            MAX_SLOTS);
    if (hosts && *slots == 0)
        return cli_usage_error("--hosts: no machine is named");
    if (hosts && !cli_hosts_find_networks(hosts, networks, error))
        return cli_usage_error("--hosts %s: %s", hosts, error);
    return 0;
}
