/* Which cores this process may use. hwloc is used where the build has it, for this one file. */
#ifndef LK_CORE_TOPOLOGY_H
#define LK_CORE_TOPOLOGY_H

#include "base/status.h"

#include <stdint.h>

/* Cores in the process's CPU set, at least 1. Where hwloc is there, one hardware thread of each core comes first, then
 * the second ones: devices share a core only once all are taken. */
int lk__topology_cores(void);

/* "CPU 3, core 1, package 0, NUMA node 0" */
lk_status lk__topology_describe(int core, char *text, int size);

/* Names the set of cores: processes on one machine with the same number have the same ones. */
uint64_t lk__topology_set(void);

/* Of the cores, those from `first` on are this process's: core 0 is then that one, for threads that are bound later.
 * For processes that share a set of cores. */
void lk__topology_begin_at(int first);

/* Binds the calling thread to core `core` modulo their number. A system that refuses is not an error: the thread then
 * runs wherever it is put, and a warning is logged. */
void lk__topology_bind(int core);

#endif
