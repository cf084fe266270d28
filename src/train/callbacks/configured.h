/* The callbacks that a configuration asks for: records, reasons to stop, checkpoints. */
#pragma once

#include "lockstep/trainer.h"

/* Adds them behind those that the caller added. All processes have the callbacks that may end training, or have it rest
 * for a checkpoint; these decide the same everywhere. */
lk_status lk__callbacks_add_configured(lk_trainer *trainer);
