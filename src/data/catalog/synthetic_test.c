#include "data/data_testing.h"

#include "data/catalog/synthetic.h"

#include <xxhash.h>

static lk_dataset *open_synthetic(lk_split split, int64_t limit)
{
    lk_dataset *dataset;
    assert_ok(lk_dataset_open("synthetic", split, &(lk_dataset_opts){.limit = limit}, &dataset));
    return dataset;
}

static void expect_digest(const uint8_t *data, size_t size, uint64_t expected)
{
    XXH64_hash_t digest = XXH3_64bits(data, size);
    if (digest != expected)
        fail_msg("XXH3-64 0x%016llx, expected 0x%016llx", (unsigned long long)digest, (unsigned long long)expected);
}

/* The bytes of both splits are those for which the accuracies in synthetic.c were measured. */
static void test_golden_bytes(void **state)
{
    (void)state;
    static const struct {
        lk_split split;
        int64_t count;
        uint64_t images, labels;
    } golden[] = {
        {LK_SPLIT_TRAIN, 60000, 0x9d1507a8bcd6611d, 0x353b93628b4eb87c},
        {LK_SPLIT_TEST, 10000, 0x17f14545fc4fd7d7, 0x015ae1d81c0b9873},
    };
    for (int i = 0; i < 2; i++) {
        lk_dataset *dataset = open_synthetic(golden[i].split, 0);
        assert_int_equal(lk_dataset_count(dataset), golden[i].count);
        assert_int_equal(lk_dataset_channels(dataset), 1);
        assert_int_equal(lk_dataset_height(dataset), 28);
        assert_int_equal(lk_dataset_width(dataset), 28);
        assert_int_equal(lk_dataset_classes(dataset), 10);
        assert_string_equal(lk_dataset_source(dataset), "generated");
        assert_string_equal(lk_dataset_class_name(dataset, 9), "cross");
        expect_digest(lk_dataset_images(dataset), (size_t)golden[i].count * 784, golden[i].images);
        uint8_t labels[60000];
        for (int64_t j = 0; j < golden[i].count; j++)
            labels[j] = (uint8_t)lk_dataset_labels(dataset)[j];
        expect_digest(labels, (size_t)golden[i].count, golden[i].labels);
        lk_dataset_release(dataset);
    }
}

/* The first N samples do not depend on how many are generated, and each ten of them have every class. */
static void test_limit_is_a_prefix(void **state)
{
    (void)state;
    lk_dataset *whole = open_synthetic(LK_SPLIT_TRAIN, 200);
    for (int64_t limit = 1; limit < 200; limit += 33) {
        lk_dataset *part = open_synthetic(LK_SPLIT_TRAIN, limit);
        assert_int_equal(lk_dataset_count(part), limit);
        assert_memory_equal(lk_dataset_images(part), lk_dataset_images(whole), (size_t)limit * 784);
        assert_memory_equal(lk_dataset_labels(part), lk_dataset_labels(whole), (size_t)limit * sizeof(int32_t));
        lk_dataset_release(part);
    }
    for (int64_t i = 0; i < 200; i += 10) {
        int classes = 0;
        for (int64_t j = i; j < i + 10; j++)
            classes |= 1 << lk_dataset_labels(whole)[j];
        assert_int_equal(classes, 0x3ff);
    }
    lk_dataset_release(whole);
}

static void test_splits_differ(void **state)
{
    (void)state;
    lk_dataset *train = open_synthetic(LK_SPLIT_TRAIN, 100), *test = open_synthetic(LK_SPLIT_TEST, 100);
    for (int64_t i = 0; i < 100; i++)
        for (int64_t j = 0; j < 100; j++)
            assert_memory_not_equal(lk_dataset_images(train) + i * 784, lk_dataset_images(test) + j * 784, 784);
    lk_dataset_release(train);
    lk_dataset_release(test);
}

/* Ridge regression on the pixels, solved by conjugate gradients. It tests, on a part of both splits, that linear
 * classifiers stay as weak on this data as synthetic.c says. */
enum { TRAIN = 4000, TEST = 1000, PIXELS = 784, FEATURES = PIXELS + 1, ITERATIONS = 60 };

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void to_features(const uint8_t *image, double *features)
{
    for (int j = 0; j < PIXELS; j++)
        features[j] = image[j] / 255.0;
    features[PIXELS] = 1;
}

/* gram[FEATURES][FEATURES] = X'X + I, moment[10][FEATURES] = X'Y */
static void accumulate(const lk_dataset *dataset, double *gram, double *moment)
{
    double x[FEATURES];
    for (int i = 0; i < FEATURES; i++)
        gram[i * FEATURES + i] = 1;
    for (int64_t s = 0; s < TRAIN; s++) {
        to_features(lk_dataset_images(dataset) + s * PIXELS, x);
        for (int i = 0; i < FEATURES; i++)
            for (int j = 0; j < FEATURES; j++)
                gram[i * FEATURES + j] += x[i] * x[j];
        double *target = moment + lk_dataset_labels(dataset)[s] * FEATURES;
        for (int i = 0; i < FEATURES; i++)
            target[i] += x[i];
    }
}

static void solve(const double *gram, const double *moment, double *weights)
{
    double r[FEATURES], p[FEATURES], q[FEATURES];
    memcpy(r, moment, sizeof r);
    memcpy(p, moment, sizeof p);
    double norm = dot(r, r, FEATURES);
    for (int k = 0; k < ITERATIONS; k++) {
        for (int i = 0; i < FEATURES; i++)
            q[i] = dot(gram + i * FEATURES, p, FEATURES);
        double step = norm / dot(p, q, FEATURES);
        for (int i = 0; i < FEATURES; i++) {
            weights[i] += step * p[i];
            r[i] -= step * q[i];
        }
        double next = dot(r, r, FEATURES);
        for (int i = 0; i < FEATURES; i++)
            p[i] = r[i] + next / norm * p[i];
        norm = next;
    }
}

static double linear_accuracy(const lk_dataset *dataset, const double *weights)
{
    int right = 0;
    for (int64_t s = 0; s < TEST; s++) {
        double x[FEATURES], best = -1e300;
        int label = 0;
        to_features(lk_dataset_images(dataset) + s * PIXELS, x);
        for (int c = 0; c < 10; c++) {
            double score = dot(weights + c * FEATURES, x, FEATURES);
            if (score > best) {
                best = score;
                label = c;
            }
        }
        right += label == lk_dataset_labels(dataset)[s];
    }
    return (double)right / TEST;
}

static void test_is_hard_for_a_linear_classifier(void **state)
{
    (void)state;
    lk_dataset *train = open_synthetic(LK_SPLIT_TRAIN, TRAIN), *test = open_synthetic(LK_SPLIT_TEST, TEST);
    double *gram = calloc(FEATURES * FEATURES, sizeof *gram);
    double *moment = calloc(10 * FEATURES, sizeof *moment);
    double *weights = calloc(10 * FEATURES, sizeof *weights);
    assert_true(gram && moment && weights);
    accumulate(train, gram, moment);
    for (int c = 0; c < 10; c++)
        solve(gram, moment + c * FEATURES, weights + c * FEATURES);
    double accuracy = linear_accuracy(test, weights);
    free(gram), free(moment), free(weights);
    lk_dataset_release(train);
    lk_dataset_release(test);
    assert_true(accuracy > 0.2); /* better than guessing */
    assert_true(accuracy < 0.9);
    print_message("ridge regression on %d samples: %.3f\n", TRAIN, accuracy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_bytes),
        cmocka_unit_test(test_limit_is_a_prefix),
        cmocka_unit_test(test_splits_differ),
        cmocka_unit_test(test_is_hard_for_a_linear_classifier),
    };
    return cmocka_run_group_tests_name("synthetic", tests, NULL, NULL);
}
