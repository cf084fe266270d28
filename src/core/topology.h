/* The processor cores that this process may use. Only this module uses hwloc, if the build has it. */
#pragma once

#include "base/status.h"

#include <stdint.h>

/* Returns the number of cores in the process's CPU set, at least 1. One hardware thread of each core comes first, then
 * the second ones, so that devices share a core only once all are taken. */
int lk__topology_cores(void);

/* Describes a core: "CPU 3, core 1, package 0, NUMA node 0". */
lk_status lk__topology_describe(int core, char *text, int size);

/* Returns a hash of the set of cores: processes on one machine with the same number may use the same cores. */
uint64_t lk__topology_set(void);

/* Renumbers the cores for threads that are bound later: core 0 is then the process's core `first`. For processes that
 * share a set of cores. */
void lk__topology_begin_at(int first);

/* Binds the calling thread to core `core` modulo their number. If the system refuses, that is no error: a warning is
 * logged, and the thread runs on any core. */
void lk__topology_bind(int core);
