/* What `lockstep train` does as a part of a parameter-server training. */
#ifndef LK_CLI_ROLES_H
#define LK_CLI_ROLES_H

#include "lockstep/parameter_server.h"

/* Holds a part of the variables until training has ended. */
lk_status cli_serve_parameters(const lk_train_config *config);

/* Computes gradients until training has ended, and says on stderr how many. */
lk_status cli_work(lk_trainer *trainer);

/* What happened, on stderr; nothing of other strategies. */
void cli_print_async(const lk_trainer *trainer);

#endif
