#include "data/data_testing.h"

#include <math.h>

static void check_against_two_passes(const lk_dataset *dataset, const lk_channel_moments *moments)
{
    int64_t count = lk_dataset_count(dataset), channels = lk_dataset_channels(dataset);
    int64_t pixels = lk_dataset_height(dataset) * lk_dataset_width(dataset);
    assert_int_equal(moments->channels, channels);
    for (int64_t c = 0; c < channels; c++) {
        const uint8_t *first = lk_dataset_images(dataset) + c * pixels;
        long double sum = 0, squares = 0;
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = 0; j < pixels; j++)
                sum += first[i * channels * pixels + j] / 255.0L;
        long double mean = sum / (long double)(count * pixels);
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = 0; j < pixels; j++) {
                long double distance = first[i * channels * pixels + j] / 255.0L - mean;
                squares += distance * distance;
            }
        long double deviation = sqrtl(squares / (long double)(count * pixels));
        assert_true(fabs(moments->mean[c] - (double)mean) < 1e-14);
        assert_true(fabs(moments->deviation[c] - (double)deviation) < 1e-14);
    }
}

static void test_channels(void **state)
{
    (void)state;
    lk_channel_moments moments;
    lk_dataset *dataset = open_channels(23, 3, 5, 7);
    assert_ok(lk_dataset_moments(dataset, &moments));
    check_against_two_passes(dataset, &moments);
    assert_true(moments.mean[0] != moments.mean[1] && moments.mean[1] != moments.mean[2]);
    lk_channel_moments_free(&moments);
    assert_null(moments.mean);
    lk_channel_moments_free(&moments);
    lk_dataset_release(dataset);
}

/* With one pixel the deviation is exactly 0. */
static void test_one_value(void **state)
{
    (void)state;
    lk_channel_moments moments;
    lk_dataset *dataset = open_channels(1, 1, 1, 1);
    assert_ok(lk_dataset_moments(dataset, &moments));
    assert_true(moments.mean[0] == pixel_of(0, 0) / 255.0);
    assert_true(moments.deviation[0] == 0);
    lk_channel_moments_free(&moments);
    lk_dataset_release(dataset);
}

/* The moments are those of the samples up to the limit, not of all in the file. */
static void test_limit(void **state)
{
    (void)state;
    lk_channel_moments all, some;
    lk_dataset *limited;
    lk_dataset *dataset = open_pair(40, 6, 5);
    assert_ok(lk_dataset_open_idx(in_dir("images"), in_dir("labels"), 10, 9, &limited));
    assert_ok(lk_dataset_moments(dataset, &all));
    assert_ok(lk_dataset_moments(limited, &some));
    check_against_two_passes(limited, &some);
    assert_true(all.mean[0] != some.mean[0]);
    lk_channel_moments_free(&all);
    lk_channel_moments_free(&some);
    lk_dataset_release(limited);
    lk_dataset_release(dataset);
}

/* 0.2860 and 0.3530 are the values with which tutorials normalize Fashion-MNIST. */
static void test_fashion_mnist(void **state)
{
    (void)state;
    const char *dir = getenv("LOCKSTEP_DATA");
    if (!dir || !*dir) {
        print_message("SKIP: LOCKSTEP_DATA is not set\n");
        skip();
    }
    lk_channel_moments moments;
    lk_dataset *dataset;
    lk_dataset_opts opts = {.offline = true};
    assert_ok(lk_dataset_open("fashion-mnist", LK_SPLIT_TRAIN, &opts, &dataset));
    assert_ok(lk_dataset_moments(dataset, &moments));
    assert_true(fabs(moments.mean[0] - 0.2860) < 5e-5);
    assert_true(fabs(moments.deviation[0] - 0.3530) < 5e-5);
    lk_channel_moments_free(&moments);
    lk_dataset_release(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(test_channels),
        FOLDER_TEST(test_one_value),
        FOLDER_TEST(test_limit),
        cmocka_unit_test(test_fashion_mnist),
    };
    return cmocka_run_group_tests_name("moments", tests, NULL, NULL);
}
