/* The order of an epoch's samples: a Fisher-Yates shuffle keyed by seed and epoch. */
#include "base/status.h"
#include "lockstep/data.h"
#include "lockstep/random.h"

#include <inttypes.h>

typedef struct word_stream {
    lk_random_key key;
    uint64_t used;
    uint32_t block[4];
} word_stream;

static uint32_t sampler_next_word(word_stream *stream)
{
    if (stream->used % 4 == 0)
        lk_random_block(&stream->key, stream->used / 4, stream->block);
    return stream->block[stream->used++ % 4];
}

/* Uniform in [0, bound) by Lemire's method: the high half of word * bound. A word whose low half is below 2^32 modulo
 * `bound` is drawn again, because these words would favor some results. */
static uint32_t sampler_next_below(word_stream *stream, uint32_t bound)
{
    uint64_t product = (uint64_t)sampler_next_word(stream) * bound;
    if ((uint32_t)product < bound) {
        uint32_t rest = (uint32_t)(-bound) % bound;
        while ((uint32_t)product < rest)
            product = (uint64_t)sampler_next_word(stream) * bound;
    }
    return (uint32_t)(product >> 32);
}

lk_status lk_sample_order(int64_t count, uint64_t seed, int64_t epoch, bool shuffle, int64_t *order)
{
    if (count < 0 || count > UINT32_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "an order of %" PRId64 " samples: expected 0 to %" PRIu32, count, UINT32_MAX);
    if (epoch < 0 || epoch > UINT32_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "epoch %" PRId64 ": expected 0 to %" PRIu32, epoch, UINT32_MAX);
    for (int64_t i = 0; i < count; i++)
        order[i] = i;
    if (!shuffle)
        return LK_OK;
    word_stream stream = {
        .key = {.seed = seed, .purpose = lk_random_purpose("shuffle"), .epoch = (uint64_t)epoch},
    };
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = sampler_next_below(&stream, (uint32_t)(i + 1));
        int64_t swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
    return LK_OK;
}
