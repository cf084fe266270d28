/* Follows records of runs; lockstep/runs.h has the rest. */
#pragma once

#include "lockstep/runs.h"

/* Reads what a process has appended to the run's file since it was read, and looks whether one holds the file. If the
 * file was cut or replaced, all is read anew. On failure, with the errors of lk_run_read, the run keeps what was right,
 * and the next call tries again. */
lk_status lk__run_follow(lk_run *run);
