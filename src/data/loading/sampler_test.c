#include "data/data_testing.h"

#include "lockstep/random.h"

static int64_t *order_of(int64_t count, uint64_t seed, int64_t epoch, bool shuffle)
{
    int64_t *order = malloc((size_t)count * sizeof *order + 1);
    assert_non_null(order);
    assert_ok(lk_sample_order(count, seed, epoch, shuffle, order));
    return order;
}

static void test_is_a_permutation(void **state)
{
    (void)state;
    static const int64_t counts[] = {0, 1, 2, 3, 10, 255, 256, 257, 60000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        int64_t *order = order_of(counts[i], 7, 3, true);
        uint8_t *seen = calloc((size_t)counts[i] + 1, 1);
        for (int64_t j = 0; j < counts[i]; j++) {
            assert_in_range(order[j], 0, counts[i] - 1);
            assert_int_equal(seen[order[j]]++, 0);
        }
        free(seen);
        free(order);
    }
}

static void test_is_a_function_of_seed_and_epoch(void **state)
{
    (void)state;
    enum { COUNT = 100, BYTES = COUNT * sizeof(int64_t) };
    int64_t *first = order_of(COUNT, 1, 0, true), *again = order_of(COUNT, 1, 0, true);
    int64_t *epoch = order_of(COUNT, 1, 1, true), *seed = order_of(COUNT, 2, 0, true);
    int64_t *high_seed = order_of(COUNT, 1 + ((uint64_t)1 << 32), 0, true);
    assert_memory_equal(first, again, BYTES);
    assert_memory_not_equal(first, epoch, BYTES);
    assert_memory_not_equal(first, seed, BYTES);
    assert_memory_not_equal(first, high_seed, BYTES);
    assert_memory_not_equal(epoch, seed, BYTES);
    free(first), free(again), free(epoch), free(seed), free(high_seed);
}

static void test_identity_without_shuffle(void **state)
{
    (void)state;
    int64_t *order = order_of(1000, 5, 9, false);
    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(order[i], i);
    free(order);
}

/* Computes the order from its definition and the words of the random stream. */
static void test_follows_its_definition(void **state)
{
    (void)state;
    enum { COUNT = 97 };
    int64_t expected[COUNT];
    lk_random_key key = {.seed = 11, .purpose = lk_random_purpose("shuffle"), .epoch = 4};
    uint32_t word[4];
    for (int i = 0; i < COUNT; i++)
        expected[i] = i;
    for (int i = COUNT - 1, used = 0; i > 0; i--, used++) {
        lk_random_block(&key, (uint64_t)used / 4, word);
        /* None of these words has to be drawn again: fewer than 97 in 2^32 have. */
        int j = (int)((uint64_t)word[used % 4] * (uint64_t)(i + 1) >> 32);
        int64_t swapped = expected[i];
        expected[i] = expected[j];
        expected[j] = swapped;
    }
    int64_t *order = order_of(COUNT, 11, 4, true);
    assert_memory_equal(order, expected, sizeof expected);
    free(order);
}

/* Counts the 24 orders of four samples in 24,000 draws. Chi-squared with 23 degrees of freedom exceeds 49.73 once in a
 * thousand; the draws are always the same, so the test is not flaky. */
static void test_is_unbiased(void **state)
{
    (void)state;
    enum { DRAWS = 24000, ORDERS = 24 };
    int seen[256] = {0};
    for (int64_t epoch = 0; epoch < DRAWS; epoch++) {
        int64_t order[4];
        assert_ok(lk_sample_order(4, 0, epoch, true, order));
        seen[order[0] << 6 | order[1] << 4 | order[2] << 2 | order[3]]++;
    }
    double chi_squared = 0;
    int kinds = 0;
    for (int i = 0; i < 256; i++) {
        double error = seen[i] - DRAWS / ORDERS;
        if (seen[i]) {
            kinds++;
            chi_squared += error * error / (DRAWS / ORDERS);
        }
    }
    assert_int_equal(kinds, ORDERS);
    assert_true(chi_squared < 49.73);
}

static void test_refuses_bad_arguments(void **state)
{
    (void)state;
    int64_t order[1];
    expect_failure(lk_sample_order(-1, 0, 0, true, order), LK_ERR_ARGUMENT, "-1 samples");
    expect_failure(lk_sample_order((int64_t)1 << 32, 0, 0, true, order), LK_ERR_ARGUMENT, "4294967296 samples");
    expect_failure(lk_sample_order(1, 0, -1, true, order), LK_ERR_ARGUMENT, "epoch -1");
    expect_failure(lk_sample_order(1, 0, (int64_t)1 << 32, true, order), LK_ERR_ARGUMENT, "epoch 4294967296");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_a_permutation),
        cmocka_unit_test(test_is_a_function_of_seed_and_epoch),
        cmocka_unit_test(test_identity_without_shuffle),
        cmocka_unit_test(test_follows_its_definition),
        cmocka_unit_test(test_is_unbiased),
        cmocka_unit_test(test_refuses_bad_arguments),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
