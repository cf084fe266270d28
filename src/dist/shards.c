#include "lockstep/dist.h"

/* docs/lab/shards.md has measurements of these numbers. */
int64_t lk_default_shards(int64_t batch_size)
{
    enum { SHARDS = 8, LEAST = 32, LEAST_OF_TWO = 16, MOST = 64, MOST_SHARDS = 65536 };
    int64_t shards = SHARDS;
    while (shards > 2 && batch_size / shards < LEAST)
        shards /= 2;
    if (batch_size / shards < LEAST_OF_TWO)
        shards = 1;
    while (batch_size > shards * MOST && shards < MOST_SHARDS)
        shards *= 2;
    return shards;
}
