#include "lockstep/dist.h"

#include "dist/tree.h"

lk_range lk_part(int64_t count, int64_t parts, int64_t part)
{
    /* floor(part * count / parts) without the product: it may overflow. */
    int64_t size = count / parts, rest = count % parts;
    return (lk_range){part * size + part * rest / parts, (part + 1) * size + (part + 1) * rest / parts};
}

int64_t lk_default_shards(int64_t batch_size, int64_t devices)
{
    int64_t shards = 8;
    while (shards > 1 && batch_size / shards < 32)
        shards /= 2;
    while (shards < devices)
        shards *= 2;
    return shards;
}
