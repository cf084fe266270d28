/* The folder in memory that outlives the ranks of an elastic job: see LK_MEMORY_VARIABLE in lockstep/checkpoint.h. */
#pragma once

#include <stdbool.h>

enum { CLI_MEMORY_PATH = 128 };

/* Makes the folder of a job that this process launches, in /dev/shm. Returns false, with the error printed, on
 * failure. */
bool cli_memory_make(char path[CLI_MEMORY_PATH]);

/* Returns whether a rank is writing its state there, on this machine. */
bool cli_memory_is_written(const char *path);

/* Returns whether the launcher that made the folder runs, or ran, on this machine. */
bool cli_memory_is_of_this_machine(const char *path);

/* Returns whether the process that made the folder, on this machine, has ended without removing it. */
bool cli_memory_is_orphan(const char *path);
