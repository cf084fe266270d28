#include "lockstep/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* The known answers for philox4x32-10 of the Random123 library (kat_vectors). */
static void test_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        uint32_t out[4];
        lk_philox4x32(vectors[i].counter, vectors[i].key, out);
        assert_memory_equal(out, vectors[i].expected, sizeof out);
    }
}

static void test_output_may_be_input(void **state)
{
    (void)state;
    uint32_t block[4] = {0, 0, 0, 0};
    lk_philox4x32(block, (const uint32_t[]){0, 0}, block);
    assert_int_equal(block[0], 0x6627e8d5);
    assert_int_equal(block[3], 0x9b00dbd8);
}

/* Every field of the key, and the block, changes the numbers; equal keys give equal numbers. */
static void test_streams_differ(void **state)
{
    (void)state;
    const lk_random_key base = {.seed = 1, .purpose = lk_random_purpose("conv1.weight"), .epoch = 2, .sample = 3};
    lk_random_key keys[6] = {base, base, base, base, base, base};
    const uint64_t blocks[6] = {4, 4, 4, 4, 4, 5};
    keys[1].seed = 3;
    keys[2].purpose = lk_random_purpose("conv1.bias");
    keys[3].epoch = 3;
    keys[4].sample = 2;
    uint32_t numbers[6][4], again[4];
    for (size_t i = 0; i < 6; i++)
        lk_random_block(&keys[i], blocks[i], numbers[i]);
    for (size_t i = 0; i < 6; i++) {
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(numbers[i], numbers[j], sizeof numbers[i]);
    }
    lk_random_block(&base, 4, again);
    assert_memory_equal(again, numbers[0], sizeof again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_output_may_be_input),
        cmocka_unit_test(test_streams_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
