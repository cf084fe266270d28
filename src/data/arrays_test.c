/* Data sets from arrays: what the arrays hold is what a data set and its batches give; wrong arrays are refused. */
#include "base/mem_testing.h"
#include "lockstep/data.h"

#include <string.h>

enum { COUNT = 6, HEIGHT = 2, WIDTH = 3, PIXELS = HEIGHT * WIDTH };

static uint8_t images[COUNT * PIXELS];
static const int32_t labels[COUNT] = {0, 1, 2, 0, 1, 2};
static const char *const names[] = {"circle", "square", "star"};

static lk_dataset_arrays valid_arrays(void)
{
    for (int i = 0; i < COUNT * PIXELS; i++)
        images[i] = (uint8_t)(7 * i);
    return (lk_dataset_arrays){.images = images,
                               .labels = labels,
                               .count = COUNT,
                               .channels = 1,
                               .height = HEIGHT,
                               .width = WIDTH,
                               .classes = 3,
                               .class_names = names};
}

static void test_contents(void **state)
{
    (void)state;
    lk_dataset_arrays arrays = valid_arrays();
    lk_dataset *dataset;
    assert_int_equal(lk_dataset_from_arrays("shapes", &arrays, &dataset), LK_OK);
    assert_string_equal(lk_dataset_name(dataset), "shapes");
    assert_int_equal(lk_dataset_count(dataset), COUNT);
    assert_int_equal(lk_dataset_channels(dataset), 1);
    assert_int_equal(lk_dataset_height(dataset), HEIGHT);
    assert_int_equal(lk_dataset_width(dataset), WIDTH);
    assert_int_equal(lk_dataset_classes(dataset), 3);
    assert_string_equal(lk_dataset_class_name(dataset, 2), "star");
    assert_ptr_equal(lk_dataset_images(dataset), images);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(lk_dataset_labels(dataset)[i], labels[i]);
    lk_dataset_release(dataset);
}

/* A loader gives every sample once, with its pixels as bytes / 255. */
static void test_batches(void **state)
{
    (void)state;
    lk_dataset_arrays arrays = valid_arrays();
    lk_dataset *dataset;
    assert_int_equal(lk_dataset_from_arrays("shapes", &arrays, &dataset), LK_OK);
    lk_loader *loader;
    assert_int_equal(lk_loader_new(dataset, &(lk_loader_opts){.batch_size = 4, .shuffle = true}, &loader), LK_OK);
    int64_t seen = 0;
    assert_int_equal(lk_loader_start(loader, 0), LK_OK);
    for (lk_batch *batch; lk_loader_next(loader, &batch) == LK_OK && batch; lk_batch_release(batch)) {
        for (int64_t i = 0; i < batch->count; i++)
            for (int p = 0; p < PIXELS; p++)
                assert_true(batch->images[i * PIXELS + p] == (float)images[batch->indices[i] * PIXELS + p] / 255);
        seen += batch->count;
    }
    assert_int_equal(seen, COUNT);
    lk_loader_release(loader);
    lk_dataset_release(dataset);
}

static void refused(const lk_dataset_arrays *arrays, const char *part)
{
    lk_dataset *dataset = NULL;
    assert_int_equal(lk_dataset_from_arrays("shapes", arrays, &dataset), LK_ERR_ARGUMENT);
    assert_null(dataset);
    assert_non_null(strstr(lk_error_message(), part));
    lk_error_clear();
}

static void test_wrong_arrays(void **state)
{
    (void)state;
    lk_dataset_arrays arrays = valid_arrays();
    arrays.labels = NULL;
    refused(&arrays, "must not be NULL");
    arrays = valid_arrays();
    arrays.width = 0;
    refused(&arrays, "6 images of 1x2x0");
    arrays.width = INT64_MAX;
    refused(&arrays, "larger than any memory");
    arrays = valid_arrays();
    arrays.classes = 2;
    arrays.class_names = NULL;
    refused(&arrays, "sample 2 has label 2, expected 0 to 1");
    arrays.classes = LK_MAX_CLASSES + 1;
    refused(&arrays, "classes, where 1 to 65536 are possible");
}

static void test_failed_allocations(void **state)
{
    (void)state;
    lk_dataset_arrays arrays = valid_arrays();
    failing f = fail_every(1);
    while (fail_next(&f)) {
        lk_dataset *dataset = NULL;
        stop_failing_with(&f, lk_dataset_from_arrays("shapes", &arrays, &dataset));
        lk_dataset_release(dataset);
    }
    assert_true(f.n > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_wrong_arrays),
        cmocka_unit_test(test_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
