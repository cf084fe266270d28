/* The machines of `lockstep launch --hosts`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { CLI_NETWORKS = 256 };

/* The network of addresses that reach this machine alone. */
#define CLI_LOOPBACK "127.0.0.0/8"

/* Moves *text, of the form "a:2,b", after its first machine, and sets its name and slots. False: it has another form.
 */
enum { CLI_HOST_NAME = 256 };
bool cli_hosts_next(const char **text, char name[CLI_HOST_NAME], int *slots);

/* Reads a file with a machine on each line, "a slots=2" as in Open MPI's host files, "a:2", or "a" for one slot; "#"
 * begins a comment. Writes them as a list, "a:2,b:1". False: the file cannot be read, is wrong, names a machine twice
 * or one that has no address; `error` says which, and in which line. */
enum { CLI_HOSTS_ERROR = 512, CLI_HOSTS_LIST = 65536 };
bool cli_hosts_read(const char *path, char list[CLI_HOSTS_LIST], char error[CLI_HOSTS_ERROR]);

/* Counts the names and the slots of a list. False: it has another form than "a:2,b". */
bool cli_hosts_count(const char *hosts, int *n, int *slots);

/* Returns whether a name resolves to an address of this machine, which may take some seconds. */
bool cli_host_is_local(const char *name);

/* Finds the networks of this machine's interfaces that all of the machines are in, as "10.1.0.0/16,10.2.0.0/16"; "":
 * some are in none. False: a name does not resolve; `error` says which, and `networks` stays. Takes some seconds at
 * worst for each name. */
bool cli_hosts_find_networks(const char *hosts, char networks[CLI_NETWORKS], char error[CLI_HOSTS_ERROR]);

/* Checks that `hosts` has the form "a:2,b" (a name alone has one slot) and that every name resolves, which may take
 * some seconds. Sets *slots to the sum of the slots, 0 for NULL, and `networks` as above. Returns 0, or 2 with the
 * error printed. */
int cli_hosts_check(const char *hosts, int *slots, char networks[CLI_NETWORKS]);
