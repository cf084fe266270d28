/* The machines of `lockstep launch --hosts`. */
#pragma once

#include <stdbool.h>

enum { CLI_NETWORKS = 256 };

/* The network of addresses that reach this machine alone. */
#define CLI_LOOPBACK "127.0.0.0/8"

/* Counts the names and the slots of a list. False: it has another form than "a:2,b". */
bool cli_hosts_count(const char *hosts, int *n, int *slots);

/* Checks that `hosts` has the form "a:2,b" (a name alone has one slot) and that every name resolves, which may take
 * some seconds. Sets *slots to the sum of the slots, 0 for NULL, and `networks` to the networks of this machine's
 * interfaces that all of them are in, as "10.1.0.0/16,10.2.0.0/16"; "": some are in none. Returns 0, or 2 with the
 * error printed. */
int cli_hosts_check(const char *hosts, int *slots, char networks[CLI_NETWORKS]);
