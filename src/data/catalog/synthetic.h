/* Generates the data set `synthetic`, which needs neither files nor a network. */
#pragma once

#include "lockstep/data.h"

#define LK__SYNTHETIC_CLASSES 10
#define LK__SYNTHETIC_SIZE 28
#define LK__SYNTHETIC_PIXELS (LK__SYNTHETIC_SIZE * LK__SYNTHETIC_SIZE)

extern const char *const lk__synthetic_class_names[LK__SYNTHETIC_CLASSES];

/* Returns 60,000 for training and 10,000 for testing. */
int64_t lk__synthetic_count(lk_split split);

/* Generates the first `count` samples of a split: images [count, 1, 28, 28], labels [count]. Sample i depends on
 * (split, i) alone and uses integer arithmetic, so its bytes are the same on every machine. Errors: LK_ERR_MEMORY. */
lk_status lk__synthetic_generate(lk_split split, int64_t count, uint8_t *images, int32_t *labels);
