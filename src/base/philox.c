#include "base/philox.h"

#include <string.h>
#include <xxhash.h>

void lk_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    lk__philox(counter, key, out);
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
    lk__philox_count(key->epoch, key->sample, 0, counter);
}

void lk_random_block(const lk_random_key *key, uint64_t block, uint32_t out[4])
{
    uint32_t philox_key[2], counter[4];
    lk__philox_start(key, philox_key, counter);
    counter[0] = (uint32_t)block;
    lk_philox4x32(counter, philox_key, out);
}
