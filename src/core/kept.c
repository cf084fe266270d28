#include "core/kept.h"
#include "core/backend.h"

/* Smaller results are derived in no time. */
enum { LEAST_BYTES = 1 << 11 };

lk_status lk__kept_get(const lk_call *call, int input, size_t bytes, size_t most, lk_kept **out)
{
    lk_kept *kept = call->kept;
    *out = NULL;
    if (!kept || !(kept->inputs >> input & 1) || bytes < LEAST_BYTES || bytes > most)
        return LK_OK;
    if (!kept->block) {
        if (bytes > *kept->left)
            return LK_OK;
        LK_TRY(lk__allocator_get(call->device->allocator, bytes, &kept->block));
        *kept->left -= bytes;
        kept->bytes = bytes;
        kept->input = input;
    }
    *out = kept;
    return LK_OK;
}
