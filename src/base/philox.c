#include "base/philox.h"

#include <string.h>
#include <xxhash.h>

void lk_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
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

uint64_t lk_random_purpose(const char *name)
{
    return XXH3_64bits(name, strlen(name));
}

void lk__philox_start(const lk_random_key *key, uint32_t philox_key[2], uint32_t counter[4])
{
    /* Seed and purpose have 64 bits each, as has Philox's key. Both are hashed into it, so any two (seed, purpose)
     * pairs get unrelated keys. The counter is exact. */
    uint64_t folded = XXH3_64bits_withSeed(&key->purpose, sizeof key->purpose, key->seed);
    philox_key[0] = (uint32_t)folded;
    philox_key[1] = (uint32_t)(folded >> 32);
    counter[0] = 0;
    counter[1] = (uint32_t)key->sample;
    counter[2] = (uint32_t)key->epoch;
    counter[3] = (uint32_t)(key->sample >> 32) ^ (uint32_t)(key->epoch >> 32);
}

void lk_random_block(const lk_random_key *key, uint64_t block, uint32_t out[4])
{
    uint32_t philox_key[2], counter[4];
    lk__philox_start(key, philox_key, counter);
    counter[0] = (uint32_t)block;
    lk_philox4x32(counter, philox_key, out);
}
