/* How lockstep/random.h addresses Philox, for code that makes many words at once. */
#ifndef LK_BASE_PHILOX_H
#define LK_BASE_PHILOX_H

#include "lockstep/random.h"

/* Block b of the stream is Philox with this key and this counter, whose element 0 is b. */
void lk__philox_start(const lk_random_key *key, uint32_t philox_key[2], uint32_t counter[4]);

#endif
