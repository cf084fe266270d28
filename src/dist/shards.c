#include "lockstep/dist.h"

int64_t lk_default_shards(int64_t batch_size, int64_t devices)
{
    int64_t shards = 8;
    while (shards > 1 && batch_size / shards < 32)
        shards /= 2;
    while (shards < devices)
        shards *= 2;
    return shards;
}
