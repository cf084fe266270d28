/* Options that some strategies alone take. */
#ifndef LK_TRAIN_STRATEGY_OPTIONS_H
#define LK_TRAIN_STRATEGY_OPTIONS_H

#include "lockstep/train.h"

/* What means nothing with the strategy would be taken for what was trained with. Errors: LK_ERR_ARGUMENT, which names
 * the option, and the strategies that take it. */
lk_status lk__check_strategy_options(const lk_train_config *config);

#endif
