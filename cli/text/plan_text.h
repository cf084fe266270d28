/* The text of a training's plan. */
#pragma once

#include "lockstep/train.h"

/* Prints on stderr what is about to be trained: the lines "  data …" to "  kernels …" below the model's name. */
void cli_print_plan(const lk_plan *plan, const lk_train_config *config);
