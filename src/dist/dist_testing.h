/* Shared by the tests of this folder: devices, values whose sum shows the order in which they were added, and the tree
 * in plain C. */
#pragma once

#include "base/status_testing.h"
#include "lockstep/dist.h"
#include "lockstep/ops.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 17 };

static lk_device *devices[DEVICES];

static inline int open_all(void **state)
{
    (void)state;
    int count;
    return lk_devices_open("17xcpu", devices, DEVICES, &count) == LK_OK && count == DEVICES ? 0 : -1;
}

static inline int close_all(void **state)
{
    (void)state;
    lk_devices_release(devices, DEVICES);
    return 0;
}

static inline int begin_test(void **state)
{
    (void)state;
    lk_error_clear();
    return 0;
}

/* Fails if the devices still hold memory. */
static inline int end_test(void **state)
{
    (void)state;
    if (lk_wait_all() != LK_OK) {
        print_error("%s\n", lk_error_message());
        return -1;
    }
    for (int d = 0; d < DEVICES; d++) {
        int64_t now, peak;
        lk_device_memory(devices[d], &now, &peak);
        if (now != 0) {
            print_error("%s still holds %lld bytes\n", lk_device_name(devices[d]), (long long)now);
            return -1;
        }
    }
    return 0;
}

#define DIST_TEST(function) cmocka_unit_test_setup_teardown(function, begin_test, end_test)
#define RUN_DIST_TESTS(tests) cmocka_run_group_tests(tests, open_all, close_all)

/* Element i of addend `index`: magnitudes spread over 2^16, so that sums in another order round otherwise. */
static inline float value_of(int64_t index, int64_t i)
{
    uint32_t words[4];
    lk_random_key key = {.seed = 7, .purpose = lk_random_purpose("dist"), .sample = (uint64_t)index};
    lk_random_block(&key, (uint64_t)i, words);
    return ldexpf((float)(int32_t)words[0] * 0x1p-31f, (int)(words[1] % 16));
}

/* Computing values one at a time with Philox is slow, so they are kept in a table. */
enum { TABLE = 10240, ADDENDS = 20 };
static float value_table[ADDENDS][TABLE];

static inline const float *values_of(int64_t index)
{
    static bool filled;
    if (!filled) {
        for (int64_t a = 0; a < ADDENDS; a++)
            for (int64_t i = 0; i < TABLE; i++)
                value_table[a][i] = value_of(a, i);
        filled = true;
    }
    assert_true(index < ADDENDS);
    return value_table[index];
}

/* Adds up element i of the present addends along the tree over [lo, hi). False: none is present. */
static inline bool tree_sum(const bool *present, int64_t lo, int64_t hi, int64_t i, float *sum)
{
    if (hi - lo == 1) {
        *sum = values_of(lo)[i];
        return present[lo];
    }
    int64_t middle = (lo + hi) / 2;
    float left, right;
    bool has_left = tree_sum(present, lo, middle, i, &left);
    bool has_right = tree_sum(present, middle, hi, i, &right);
    *sum = has_left && has_right ? left + right : has_left ? left : right;
    return has_left || has_right;
}

/* The expected sums. They serve many placements, so they are computed once; the caller frees them. */
static inline float *tree_sums(const bool *present, int64_t count, int64_t length)
{
    float *sums = calloc((size_t)length + 1, sizeof *sums);
    assert_non_null(sums);
    for (int64_t i = 0; i < length; i++)
        assert_true(tree_sum(present, 0, count, i, &sums[i]));
    return sums;
}

static inline void assert_bits(lk_tensor *tensor, const float *expected, int64_t length)
{
    float have[TABLE];
    assert_non_null(tensor);
    assert_int_equal(lk_tensor_count(tensor), length);
    assert_ok(lk_tensor_read(tensor, have, (size_t)length * sizeof *have));
    assert_memory_equal(have, expected, (size_t)length * sizeof *have);
}
