#include "dist/array_sum.h"

#include "base/avx2.h"

#include <string.h>

/* Elements per block: partial sums stay in the L1 cache. */
enum { BLOCK = 512 };

typedef float block[BLOCK];
typedef float vector __attribute__((vector_size(32), aligned(4), may_alias));
enum { WIDTH = sizeof(vector) / sizeof(float) };

/* The vectors are explicit because `sum` may be `a` or `b`, so a compiler would have to assume overlap. The loop
 * prefetches the next block's addends: they are not contiguous with this block's, so the hardware prefetcher misses
 * them. */
LK_BODY void array_sum_add_vectors(float *sum, const float *a, const float *b, int64_t n)
{
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        __builtin_prefetch(a + i + BLOCK);
        __builtin_prefetch(b + i + BLOCK);
        *(vector *)(sum + i) = *(const vector *)(a + i) + *(const vector *)(b + i);
    }
    for (; i < n; i++)
        sum[i] = a[i] + b[i];
}

/* Returns the sum of elements [begin, begin + n): in `result`, or the addend itself if there is only one. scratch:
 * holds sums of subtrees. */
LK_BODY const float *array_sum_block(const lk_array_sum *sum, int64_t begin, int64_t n, block *scratch, float *result)
{
    const float *stack[LK_ARRAY_SUM_LEVELS + 1];
    int depth = 0;
    for (int i = 0; i < sum->n_addends; i++) {
        stack[depth++] = sum->addends[i] + begin;
        for (int a = 0; a < sum->additions[i]; a++) {
            depth--;
            bool last = i + 1 == sum->n_addends && a + 1 == sum->additions[i];
            float *to = last ? result : scratch[depth - 1];
            /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): the stack holds both */
            array_sum_add_vectors(to, stack[depth - 1], stack[depth], n);
            stack[depth - 1] = to;
        }
    }
    return stack[0]; /* NOLINT(clang-analyzer-core.uninitialized.UndefReturn): there is at least one addend */
}

LK_BODY void array_sum_blocks(const lk_array_sum *sum, int64_t begin, int64_t end)
{
    _Alignas(64) block scratch[LK_ARRAY_SUM_LEVELS];
    for (; begin < end; begin += BLOCK) {
        int64_t n = end - begin < BLOCK ? end - begin : BLOCK;
        const float *total = array_sum_block(sum, begin, n, scratch, sum->results[0] + begin);
        for (int r = 0; r < sum->n_results; r++)
            if (sum->results[r] + begin != total)
                memcpy(sum->results[r] + begin, total, (size_t)n * sizeof *total);
    }
}

LK_AVX2 static void array_sum_avx2(const lk_array_sum *sum, int64_t begin, int64_t end)
{
    array_sum_blocks(sum, begin, end);
}

static void array_sum_portable(const lk_array_sum *sum, int64_t begin, int64_t end)
{
    array_sum_blocks(sum, begin, end);
}

void lk__array_sum(const lk_array_sum *sum, int64_t begin, int64_t end)
{
    if (lk__has_avx2())
        array_sum_avx2(sum, begin, end);
    else
        array_sum_portable(sum, begin, end);
}
