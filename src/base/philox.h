/* The mapping of lockstep/random.h to Philox, for code that computes many words at once. */
#pragma once

#include "lockstep/random.h"

/* Sets key and counter. Block b of the stream is Philox with this key and this counter, with counter[0] = b. */
void lk__philox_start(const lk_random_key *key, uint32_t philox_key[2], uint32_t counter[4]);
