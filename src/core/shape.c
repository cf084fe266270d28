#include "base/mem.h"
#include "lockstep/tensor.h"

int64_t lk_shape_count(lk_shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.ndim; i++)
        if (shape.dim[i] < 0 || !lk__mul_i64(count, shape.dim[i], &count))
            return -1;
    return count;
}
