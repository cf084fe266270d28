/* The mapping of lockstep/random.h to Philox, for code that computes many words at once. */
#pragma once

#include "base/everywhere.h"
#include "lockstep/random.h"

/* lk_philox4x32, inline. */
LK_EVERYWHERE static inline void lk__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* the Weyl constants of the paper: the golden ratio ... */
        k1 += 0xBB67AE85u; /* ... and the square root of three minus one */
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Sets the counter of a block of the stream of (epoch, sample). */
LK_EVERYWHERE static inline void lk__philox_count(uint64_t epoch, uint64_t sample, uint32_t block, uint32_t counter[4])
{
    counter[0] = block;
    counter[1] = (uint32_t)sample;
    counter[2] = (uint32_t)epoch;
    counter[3] = (uint32_t)(sample >> 32) ^ (uint32_t)(epoch >> 32);
}

/* Sets key and counter. Block b of the stream is Philox with this key and this counter, with counter[0] = b. */
void lk__philox_start(const lk_random_key *key, uint32_t philox_key[2], uint32_t counter[4]);
