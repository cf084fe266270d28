/* Progress of opening a data set, shown on stderr if that is a terminal. */
#pragma once

#include "lockstep/data.h"

/* An lk_data_progress_fn that ignores `user`. Returns false after an interrupt, to end opening. */
bool cli_show_data_progress(void *user, const lk_data_progress *progress);
