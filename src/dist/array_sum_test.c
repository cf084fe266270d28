/* Compares sums of arrays with sums in plain C: any order of additions, results that are addends, any range. */
#include "dist/array_sum.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ADDENDS = 9, LENGTH = 1500 };

static float addends[ADDENDS][LENGTH], results[ADDENDS][LENGTH];

/* Magnitudes are spread over 2^16, so that another order rounds differently. */
static void fill(void)
{
    uint32_t word = 1;
    for (int a = 0; a < ADDENDS; a++) {
        for (int i = 0; i < LENGTH; i++) {
            word = word * 1664525u + 1013904223u;
            addends[a][i] = ldexpf((float)(int32_t)word * 0x1p-31f, (int)(word >> 8 & 15));
        }
    }
    memset(results, 0, sizeof results);
}

/* The balanced tree over [begin, end) in postfix. */
static void list_tree(int begin, int end, unsigned char *additions)
{
    int middle = (begin + end) / 2;
    if (end - begin < 2)
        return;
    list_tree(begin, middle, additions);
    list_tree(middle, end, additions);
    additions[end - 1]++;
}

/* Adds every addend to the sum so far: ((a + b) + c) + … */
static void list_chain(int n, unsigned char *additions)
{
    for (int i = 1; i < n; i++)
        additions[i] = 1;
}

static float expected(const float *values, const unsigned char *additions, int n)
{
    float stack[ADDENDS];
    int depth = 0;
    for (int i = 0; i < n; i++) {
        stack[depth++] = values[i];
        for (int a = 0; a < additions[i]; a++) {
            depth--;
            stack[depth - 1] = stack[depth - 1] + stack[depth];
        }
    }
    assert_int_equal(depth, 1);
    return stack[0];
}

/* in_place: the results are the addends, in reverse order. */
static void compare(int n, const unsigned char *additions, int64_t begin, int64_t end, int n_results, bool in_place)
{
    static float before[ADDENDS][LENGTH];
    const float *from[ADDENDS];
    float *to[ADDENDS];
    fill();
    memcpy(before, addends, sizeof before);
    for (int a = 0; a < ADDENDS; a++) {
        from[a] = addends[a];
        to[a] = in_place ? addends[n - 1 - a % n] : results[a];
    }
    lk__array_sum(&(lk_array_sum){from, additions, n, to, n_results}, begin, end);
    for (int r = 0; r < n_results; r++) {
        for (int64_t i = 0; i < LENGTH; i++) {
            float values[ADDENDS], kept = in_place ? before[n - 1 - r % n][i] : 0;
            for (int a = 0; a < n; a++)
                values[a] = before[a][i];
            float want = i >= begin && i < end ? expected(values, additions, n) : kept;
            assert_memory_equal(&to[r][i], &want, sizeof want);
        }
    }
}

static void any_order_in_any_place(void **state)
{
    (void)state;
    static const int64_t ranges[][2] = {{0, LENGTH}, {0, 1}, {3, 3}, {7, 520}, {511, 1026}, {16, 1040}, {1499, LENGTH}};
    for (int n = 1; n <= ADDENDS; n++) {
        for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
            unsigned char tree[ADDENDS] = {0}, chain[ADDENDS] = {0};
            list_tree(0, n, tree);
            list_chain(n, chain);
            compare(n, tree, ranges[r][0], ranges[r][1], 2, false);
            compare(n, tree, ranges[r][0], ranges[r][1], n, true);
            compare(n, chain, ranges[r][0], ranges[r][1], 1, true);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_order_in_any_place)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
