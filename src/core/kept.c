#include "core/kept.h"
#include "core/backend.h"

/* Smaller results are recomputed in no time; larger ones take as long to read from memory as to recompute. */
enum { LEAST_BYTES = 1 << 11, MOST_BYTES = 1 << 20 };

lk_status lk__kept_get(const lk_call *call, int input, size_t bytes, lk_kept **out)
{
    lk_kept *kept = call->kept;
    *out = NULL;
    if (!kept || !(kept->inputs >> input & 1) || bytes < LEAST_BYTES || bytes > MOST_BYTES)
        return LK_OK;
    if (!kept->block) {
        if (bytes > *kept->left)
            return LK_OK;
        LK_TRY(lk__allocator_get(call->device->allocator, bytes, &kept->block));
        *kept->left -= bytes;
        kept->bytes = bytes;
    }
    *out = kept;
    return LK_OK;
}
