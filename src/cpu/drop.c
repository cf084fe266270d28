/* Dropout with eight blocks of Philox computed at a time: see drop.h. */
#include "cpu/drop.h"

#include "base/philox.h"
#include "cpu/vector/eights.h"

#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { LANES = LK_DROP_LANES, WORDS = 4, PIECE = 128 };

lk_drop lk__drop_start(const lk_random_key *key, double rate)
{
    lk_drop drop = {.last = (uint32_t)(ceil(rate * 0x1p32) - 1), .scale = 1 / (1 - rate)};
    lk__philox_start(key, drop.key, drop.counter);
    return drop;
}

/* --- eight blocks of Philox side by side -------------------------------------------------------------------------- */

typedef uint32_t lanes_of_words[LANES];

typedef struct blocks {
    lanes_of_words word[WORDS];
} blocks;

/* Turns counters into words. */
typedef void (*philox_fn)(const uint32_t key[2], blocks *b);

static void drop_philox_anywhere(const uint32_t key[2], blocks *b)
{
    for (int l = 0; l < LANES; l++) {
        uint32_t words[WORDS], counter[WORDS];
        for (int w = 0; w < WORDS; w++)
            counter[w] = b->word[w][l];
        lk_philox4x32(counter, key, words);
        for (int w = 0; w < WORDS; w++)
            b->word[w][l] = words[w];
    }
}

#if defined(__x86_64__)

/* Four blocks, with a word in each low half of 64 bits; the high halves are not used. */
typedef struct quarter {
    __m256i word[WORDS];
} quarter;

LK_AVX2 static inline void philox_round(quarter *q, __m256i k0, __m256i k1)
{
    __m256i p0 = _mm256_mul_epu32(q->word[0], _mm256_set1_epi64x(0xD2511F53));
    __m256i p1 = _mm256_mul_epu32(q->word[2], _mm256_set1_epi64x(0xCD9E8D57));
    q->word[0] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), q->word[1]), k0);
    q->word[1] = p1;
    q->word[2] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), q->word[3]), k1);
    q->word[3] = p0;
}

/* The low halves of two vectors in order. */
LK_AVX2 static inline __m256i low_halves(__m256i a, __m256i b)
{
    __m256 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), _MM_SHUFFLE(2, 0, 2, 0));
    return _mm256_permute4x64_epi64(_mm256_castps_si256(mixed), _MM_SHUFFLE(3, 1, 2, 0));
}

/* The same arithmetic as lk_philox4x32. */
LK_AVX2 static void philox_avx2(const uint32_t key[2], blocks *b)
{
    quarter q[2];
    uint32_t k0 = key[0], k1 = key[1];
    for (int w = 0; w < WORDS; w++) {
        q[0].word[w] = _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)b->word[w]));
        q[1].word[w] = _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)b->word[w] + 1));
    }
    for (int round = 0; round < 10; round++) {
        __m256i k0s = _mm256_set1_epi64x(k0), k1s = _mm256_set1_epi64x(k1);
        philox_round(&q[0], k0s, k1s);
        philox_round(&q[1], k0s, k1s);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int w = 0; w < WORDS; w++)
        _mm256_storeu_si256((__m256i *)b->word[w], low_halves(q[0].word[w], q[1].word[w]));
}

#else

#define philox_avx2 drop_philox_anywhere

#endif

/* --- keeping ------------------------------------------------------------------------------------------------------ */

/* Keep or drop elements from element `at` on, without a branch: random words would defeat branch prediction. */
LK_BODY void keep_eight(const lk_drop *drop, bool bf16, const uint32_t *words, const void *x, void *y, int64_t at)
{
    lk_floats value;
    lk_wide wide;
    eight_load_wide(&wide, x, at, bf16);
    wide.low *= drop->scale;
    wide.high *= drop->scale;
    eight_narrow(&value, &wide);
    value = (lk_floats)((lk_words)value & (lk_words)(*(const lk_words *)words > drop->last));
    eight_store(y, at, &value, bf16);
}

LK_BODY void keep_one(const lk_drop *drop, bool bf16, uint32_t word, const void *x, void *y, int64_t at)
{
    union {
        float value;
        uint32_t bits;
    } kept = {(float)((double)lk__element(x, at, bf16) * drop->scale)};
    kept.bits &= word > drop->last ? UINT32_MAX : 0;
    lk__element_set(y, at, kept.value, bf16);
}

LK_BODY void keep(const lk_drop *drop, bool bf16, const uint32_t *words, int64_t n, const void *x, void *y, int64_t at)
{
    int64_t full = n - n % LK_EIGHT;
    for (int64_t i = 0; i < full; i += LK_EIGHT)
        keep_eight(drop, bf16, words + i, x, y, at + i);
    for (int64_t i = full; i < n; i++)
        keep_one(drop, bf16, words[i], x, y, at + i);
}

/* --- a run -------------------------------------------------------------------------------------------------------- */

/* Sets words[i] = word 4 * block + i. It writes eight blocks at a time, possibly more than n words. */
LK_BODY void run_words(const lk_drop *drop, philox_fn philox, uint32_t sample, int64_t block, int64_t n,
                       uint32_t *words)
{
    for (; n > 0; n -= LANES * WORDS, block += LANES, words += LANES * WORDS) {
        blocks b;
        for (int i = 0; i < LANES; i++) {
            b.word[0][i] = (uint32_t)(block + i);
            b.word[1][i] = sample;
            b.word[2][i] = drop->counter[2];
            b.word[3][i] = drop->counter[3];
        }
        philox(drop->key, &b);
        for (int i = 0; i < LANES; i++)
            for (int w = 0; w < WORDS; w++)
                words[i * WORDS + w] = b.word[w][i];
    }
}

LK_BODY void run_body(const lk_drop *drop, bool bf16, philox_fn philox, uint32_t sample, int64_t first, int64_t count,
                      int64_t stride, const void *x, void *y, int64_t at)
{
    uint32_t words[PIECE * LANES + LANES * WORDS];
    for (int64_t i = 0; i < count;) {
        int64_t skip = (first + i) % WORDS, n = count - i < PIECE * LANES - skip ? count - i : PIECE * LANES - skip;
        run_words(drop, philox, sample, (first + i) / WORDS, skip + n, words);
        if (stride == 1)
            keep(drop, bf16, words + skip, n, x, y, at + i);
        else
            for (int64_t j = 0; j < n; j++)
                keep_one(drop, bf16, words[skip + j], x, y, at + (i + j) * stride);
        i += n;
    }
}

LK_AVX2 static void run_avx2(const lk_drop *drop, uint32_t sample, int64_t first, int64_t count, int64_t stride,
                             const void *x, void *y, int64_t at)
{
    if (drop->bf16)
        run_body(drop, true, philox_avx2, sample, first, count, stride, x, y, at);
    else
        run_body(drop, false, philox_avx2, sample, first, count, stride, x, y, at);
}

void lk__drop_run(const lk_drop *drop, uint32_t sample, int64_t first, int64_t count, int64_t stride, const void *x,
                  void *y, int64_t at)
{
    if (lk__has_avx2())
        run_avx2(drop, sample, first, count, stride, x, y, at);
    else
        run_body(drop, drop->bf16, drop_philox_anywhere, sample, first, count, stride, x, y, at);
}

/* --- lanes -------------------------------------------------------------------------------------------------------- */

/* Sets words[i] to the words of the lanes' i-th elements. Blocks start at elements whose number is a multiple of 4, so
 * the words of a lane that starts between two blocks are moved up. */
LK_BODY void lane_words(const lk_drop *drop, philox_fn philox, const lk_drop_lane *lanes, int64_t begin, int64_t n,
                        lanes_of_words *words)
{
    int64_t skip[LANES], any = 0;
    for (int l = 0; l < LANES; l++)
        any |= skip[l] = (lanes[l].first + begin) % WORDS;
    for (int64_t at = 0; at < n + (any ? WORDS - 1 : 0); at += WORDS) {
        blocks b;
        for (int l = 0; l < LANES; l++) {
            b.word[0][l] = (uint32_t)((lanes[l].first + begin + at) / WORDS);
            b.word[1][l] = lanes[l].sample;
            b.word[2][l] = drop->counter[2];
            b.word[3][l] = drop->counter[3];
        }
        philox(drop->key, &b);
        if (any)
            for (int l = 0; l < LANES; l++)
                for (int w = 0; w < WORDS; w++)
                    words[at + w - skip[l]][l] = b.word[w][l];
        else
            memcpy(words[at], b.word, sizeof b.word);
    }
}

/* A word of 0 drops an element at any rate. */
LK_BODY void clear_absent(const lk_drop_lane *lanes, int64_t n, lanes_of_words *words)
{
    for (int l = 0; l < LANES; l++)
        for (int64_t i = 0; i < n && !lanes[l].present; i++)
            words[i][l] = 0;
}

LK_BODY void lanes_body(const lk_drop *drop, bool bf16, philox_fn philox, const lk_drop_lane *lanes, int64_t count,
                        int64_t stride, const void *x, void *y, int64_t at)
{
    lanes_of_words buffer[WORDS + PIECE + 2 * WORDS], *words = buffer + WORDS;
    for (int64_t begin = 0; begin < count; begin += PIECE) {
        int64_t n = count - begin < PIECE ? count - begin : PIECE;
        lane_words(drop, philox, lanes, begin, n, words);
        clear_absent(lanes, n, words);
        if (stride == LANES)
            keep(drop, bf16, words[0], n * LANES, x, y, at + begin * LANES);
        for (int64_t i = 0; i < n && stride != LANES; i++)
            keep(drop, bf16, words[i], LANES, x, y, at + (begin + i) * stride);
    }
}

LK_AVX2 static void lanes_avx2(const lk_drop *drop, const lk_drop_lane *lanes, int64_t count, int64_t stride,
                               const void *x, void *y, int64_t at)
{
    if (drop->bf16)
        lanes_body(drop, true, philox_avx2, lanes, count, stride, x, y, at);
    else
        lanes_body(drop, false, philox_avx2, lanes, count, stride, x, y, at);
}

void lk__drop_lanes(const lk_drop *drop, const lk_drop_lane lanes[LK_DROP_LANES], int64_t count, int64_t stride,
                    const void *x, void *y, int64_t at)
{
    if (lk__has_avx2())
        lanes_avx2(drop, lanes, count, stride, x, y, at);
    else
        lanes_body(drop, drop->bf16, drop_philox_anywhere, lanes, count, stride, x, y, at);
}
