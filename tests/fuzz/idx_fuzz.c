/* Reads IDX files, plain or compressed. */
#include "fuzz.h"

#include "data/formats/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lk_idx idx;
    if (!fuzz_went_well(lk__idx_open(fuzz_file(data, size), 1, LK__IDX_MAX_DIMS, &idx)))
        return 0;
    size_t count = 1;
    FUZZ_CHECK(idx.dims >= 1 && idx.dims <= LK__IDX_MAX_DIMS);
    for (int d = 0; d < idx.dims; d++)
        count *= (size_t)idx.dim[d];
    fuzz_touch(idx.data, count);
    lk__idx_close(&idx);
    return 0;
}
