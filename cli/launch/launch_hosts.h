/* The machines of `lockstep launch --hosts`. */
#pragma once

/* Checks that `hosts` has the form "a:2,b" (a name alone has one slot) and that every name resolves, which may take
 * some seconds. Sets *slots to the sum of the slots, 0 for NULL. Returns 0, or 2 with the error printed. */
int cli_hosts_check(const char *hosts, int *slots);
