/* Data sets from arrays: what the arrays hold is what a data set and its batches give; wrong arrays are refused. */
#include "base/mem_testing.h"
#include "lockstep/data.h"

#include <math.h>
#include <string.h>

enum { COUNT = 6, HEIGHT = 2, WIDTH = 3, PIXELS = HEIGHT * WIDTH };

static uint8_t images[COUNT * PIXELS];
static float floats[COUNT * PIXELS];
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

/* --- floats and functions ----------------------------------------------------------------------------------------- */

static lk_dataset *make(const lk_dataset_arrays *arrays)
{
    lk_dataset *dataset;
    assert_int_equal(lk_dataset_from_arrays("shapes", arrays, &dataset), LK_OK);
    return dataset;
}

/* The values of valid_arrays' images as networks get them. */
static lk_dataset_arrays float_arrays(void)
{
    lk_dataset_arrays arrays = valid_arrays();
    for (int i = 0; i < COUNT * PIXELS; i++)
        floats[i] = (float)images[i] / 255;
    arrays.images = NULL;
    arrays.floats = floats;
    return arrays;
}

/* *user: the sample that cannot be read; -1: none. */
static lk_status read_sample(void *user, int64_t index, float *image)
{
    if (index == *(int64_t *)user)
        return LK_ERR_IO;
    memcpy(image, floats + index * PIXELS, PIXELS * sizeof *image);
    return LK_OK;
}

static lk_dataset_arrays read_arrays(int64_t *unreadable)
{
    lk_dataset_arrays arrays = float_arrays();
    arrays.floats = NULL;
    arrays.read = read_sample;
    arrays.read_user = unreadable;
    return arrays;
}

/* Bytes, floats and a function give the same samples, augmented or not, on any number of threads. */
static void test_kinds_are_equal(void **state)
{
    (void)state;
    int64_t none = -1;
    lk_dataset_arrays arrays[] = {valid_arrays(), float_arrays(), read_arrays(&none)};
    lk_dataset *sets[3];
    for (int i = 0; i < 3; i++)
        sets[i] = make(&arrays[i]);
    for (int i = 1; i < 3; i++) {
        int64_t equals[COUNT];
        float one[PIXELS], other[PIXELS];
        assert_null(lk_dataset_images(sets[i]));
        assert_int_equal(lk_dataset_find_equal(sets[0], sets[i], equals), LK_OK);
        for (int64_t s = 0; s < COUNT; s++) {
            assert_int_equal(equals[s], s);
            assert_int_equal(lk_dataset_read(sets[0], s, one), LK_OK);
            assert_int_equal(lk_dataset_read(sets[i], s, other), LK_OK);
            assert_memory_equal(one, other, sizeof one);
            const lk_augment_opts opts = {.horizontal_flip = true, .width_shift = 0.3, .crop_padding = 1};
            assert_int_equal(lk_augment_sample(sets[0], s, 7, 2, true, &opts, NULL, one), LK_OK);
            assert_int_equal(lk_augment_sample(sets[i], s, 7, 2, true, &opts, NULL, other), LK_OK);
            assert_memory_equal(one, other, sizeof one);
        }
        for (int workers = 0; workers < 3; workers++) {
            lk_loader *loaders[2];
            lk_batch *a, *b;
            lk_loader_opts opts = {.batch_size = 4, .shuffle = true, .seed = 3, .workers = workers};
            assert_int_equal(lk_loader_new(sets[0], &opts, &loaders[0]), LK_OK);
            assert_int_equal(lk_loader_new(sets[i], &opts, &loaders[1]), LK_OK);
            assert_int_equal(lk_loader_start(loaders[0], 1), LK_OK);
            assert_int_equal(lk_loader_start(loaders[1], 1), LK_OK);
            while (lk_loader_next(loaders[0], &a) == LK_OK && a) {
                assert_int_equal(lk_loader_next(loaders[1], &b), LK_OK);
                assert_memory_equal(a->images, b->images, (size_t)a->count * PIXELS * sizeof *a->images);
                assert_memory_equal(a->labels, b->labels, (size_t)a->count * sizeof *a->labels);
                lk_batch_release(a);
                lk_batch_release(b);
            }
            lk_loader_release(loaders[0]);
            lk_loader_release(loaders[1]);
        }
    }
    for (int i = 0; i < 3; i++)
        lk_dataset_release(sets[i]);
}

static void test_moments_of_floats(void **state)
{
    (void)state;
    int64_t none = -1;
    lk_dataset_arrays arrays[] = {valid_arrays(), float_arrays(), read_arrays(&none)};
    lk_channel_moments want;
    lk_dataset *bytes = make(&arrays[0]);
    assert_int_equal(lk_dataset_moments(bytes, &want), LK_OK);
    for (int i = 1; i < 3; i++) {
        lk_channel_moments have;
        lk_dataset *dataset = make(&arrays[i]);
        assert_int_equal(lk_dataset_moments(dataset, &have), LK_OK);
        assert_true(fabs(have.mean[0] - want.mean[0]) < 1e-7);
        assert_true(fabs(have.deviation[0] - want.deviation[0]) < 1e-7);
        lk_channel_moments_free(&have);
        lk_dataset_release(dataset);
    }
    lk_channel_moments_free(&want);
    lk_dataset_release(bytes);
}

static void test_function_fails(void **state)
{
    (void)state;
    int64_t unreadable = 4, equals[COUNT];
    float image[PIXELS];
    lk_channel_moments moments;
    lk_dataset_arrays arrays = read_arrays(&unreadable);
    lk_dataset *dataset = make(&arrays);
    static const char message[] = "data set shapes: the program's function failed to read sample 4: input/output error";
    for (int workers = 0; workers < 3; workers++) {
        lk_loader *loader;
        lk_batch *batch;
        lk_status status = LK_OK;
        assert_int_equal(lk_loader_new(dataset, &(lk_loader_opts){.batch_size = 1, .workers = workers}, &loader),
                         LK_OK);
        assert_int_equal(lk_loader_start(loader, 0), LK_OK);
        int64_t delivered = 0;
        while ((status = lk_loader_next(loader, &batch)) == LK_OK && batch) {
            lk_batch_release(batch);
            delivered++;
        }
        assert_int_equal(delivered, 4);
        assert_int_equal(status, LK_ERR_IO);
        assert_string_equal(lk_error_message(), message);
        lk_error_clear();
        lk_loader_release(loader);
    }
    assert_int_equal(lk_dataset_read(dataset, 4, image), LK_ERR_IO);
    assert_string_equal(lk_error_message(), message);
    lk_error_clear();
    assert_int_equal(lk_dataset_moments(dataset, &moments), LK_ERR_IO);
    assert_null(moments.mean);
    lk_error_clear();
    assert_int_equal(lk_dataset_find_equal(dataset, dataset, equals), LK_ERR_IO);
    lk_error_clear();
    assert_int_equal(lk_dataset_read(dataset, COUNT, image), LK_ERR_ARGUMENT);
    assert_string_equal(lk_error_message(), "sample 6: expected 0 to 5");
    lk_error_clear();
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
    refused(&arrays, "labels must not be NULL");
    arrays = valid_arrays();
    arrays.images = NULL;
    refused(&arrays, "exactly one of images, floats and read");
    arrays = valid_arrays();
    arrays.floats = floats;
    refused(&arrays, "exactly one of images, floats and read");
    arrays = valid_arrays();
    arrays.width = 0;
    refused(&arrays, "6 images of 1x2x0");
    arrays.width = INT64_MAX;
    refused(&arrays, "larger than any memory");
    arrays = valid_arrays();
    const char *unnamed[] = {"a", NULL, "c"};
    arrays.class_names = unnamed;
    refused(&arrays, "class 1 has no name");
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
        cmocka_unit_test(test_contents),           cmocka_unit_test(test_batches),
        cmocka_unit_test(test_kinds_are_equal),    cmocka_unit_test(test_moments_of_floats),
        cmocka_unit_test(test_function_fails),     cmocka_unit_test(test_wrong_arrays),
        cmocka_unit_test(test_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
