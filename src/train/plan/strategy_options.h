/* Options that are for some strategies only. */
#pragma once

#include "lockstep/train.h"

/* Fails if an option is given that means nothing with the strategy: a record of the run would otherwise claim that it
 * mattered. Errors: LK_ERR_ARGUMENT (the message names the option and the strategies that take it; or there is no such
 * strategy). */
lk_status lk__check_strategy_options(const lk_train_config *config);
