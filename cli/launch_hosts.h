/* The machines of `lockstep launch --hosts`. */
#ifndef LK_CLI_LAUNCH_HOSTS_H
#define LK_CLI_LAUNCH_HOSTS_H

/* Checks the form of "a:2,b", a name being one place, and that every name is that of a machine, which may take some
 * seconds; *places: how many there are together, 0 for NULL. 0, or 2 with the error printed. */
int cli_hosts_check(const char *hosts, int *places);

#endif
