/* lk_part: splits a count into contiguous ranges of nearly equal size. */
#include "lockstep/dist.h"

lk_range lk_part(int64_t count, int64_t parts, int64_t part)
{
    /* floor(part * count / parts), without the product, which may overflow. */
    int64_t size = count / parts, rest = count % parts;
    return (lk_range){part * size + part * rest / parts, (part + 1) * size + (part + 1) * rest / parts};
}
