/* How opening a data set goes on, on stderr where that is a terminal; an interrupt ends it. */
#ifndef LK_CLI_DATA_PROGRESS_H
#define LK_CLI_DATA_PROGRESS_H

#include "lockstep/data.h"

/* An lk_data_progress_fn. `user` is not looked at. */
bool cli_show_data_progress(void *user, const lk_data_progress *progress);

#endif
