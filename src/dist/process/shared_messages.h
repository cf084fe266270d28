/* Messages between processes of one machine, through memory that the program which started them has made: see
 * lk_processes_share in lockstep/dist.h. */
#pragma once

#include "dist/process/messages.h"

/* The table, if this process was started with such memory; else NULL. */
const lk_messages *lk__shared_messages(void);
