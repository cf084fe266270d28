#include "lockstep/dist.h"

/* docs/lab/shards.md has measurements of these three numbers. */
int64_t lk_default_shards(int64_t batch_size)
{
    enum { SHARDS = 8, LEAST = 16, MOST = 64 };
    int64_t shards = SHARDS;
    while (shards > 1 && batch_size / shards < LEAST)
        shards /= 2;
    while (batch_size > shards * MOST)
        shards *= 2;
    return shards;
}
