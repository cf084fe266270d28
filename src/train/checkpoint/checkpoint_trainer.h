/* The contents of a trainer's checkpoints. */
#pragma once

#include "train/checkpoint/checkpoint_contents.h"

/* The most updates that a worker's variables may be behind: "0" with every strategy but parameter-server, which has a
 * number or "unlimited". */
enum { LK_STALENESS_TEXT = 24 };
void lk__staleness_text(const lk_trainer *trainer, char text[LK_STALENESS_TEXT]);

/* Fills all of `contents` for the trainer's position in training. The state of callbacks is included only if the
 * trainer is at rest. extra: only finished, metric, best and best_epoch are used. Waits for the devices. */
lk_status lk__checkpoint_of_trainer(lk_trainer *trainer, const lk_checkpoint_info *extra,
                                    lk_checkpoint_contents *contents);
