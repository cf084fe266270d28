/* Roles of `lockstep train` in a parameter-server training. */
#pragma once

#include "lockstep/parameter_server.h"

/* Runs a parameter server until training has ended. */
lk_status cli_serve_parameters(const lk_train_config *config);

/* Runs a worker until training has ended, and prints its number of steps on stderr. */
lk_status cli_run_worker(lk_trainer *trainer);

/* Notes that a worker came when training had ended, as the thread's error says, and clears the error. */
lk_status cli_note_late_worker(void);

/* Prints a report of the training on stderr; prints nothing for other strategies. */
void cli_print_async(const lk_trainer *trainer);
