/* Activations, dropout, smoothed and binary cross-entropy: known values, dropout's random stream, and refusals. */
#include "lockstep/random.h"
#include "ops/ops_test.h"

#include <math.h>

static void check_near(lk_tensor *x, int64_t count, const double *values)
{
    double have[16];
    check(x, LK_F64, LK_SHAPE(count));
    assert_int_equal(lk_tensor_read(x, have, (size_t)count * sizeof *have), LK_OK);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(have[i] - values[i]) <= 1e-15 * (1 + fabs(values[i]))))
            fail_msg("[%lld] is %.17g, expected %.17g", (long long)i, have[i], values[i]);
}

#define NEAR(x, ...) check_near(x, 5, (const double[]){__VA_ARGS__})

/* The expected values have 16 digits and come from tables of the exponential and of the error function. */
static void test_activations(void **state)
{
    (void)state;
    lk_tensor *x = lk_tensor_from(device, LK_F64, LK_SHAPE(5), (const double[]){-2, -1, 0, 1, 2});
    NEAR(lk_sigmoid(x), 0.11920292202211755, 0.2689414213699951, 0.5, 0.7310585786300049, 0.8807970779778824);
    NEAR(lk_tanh(x), -0.9640275800758169, -0.7615941559557649, 0, 0.7615941559557649, 0.9640275800758169);
    NEAR(lk_leaky_relu(x, 0.25), -0.5, -0.25, 0, 1, 2);
    NEAR(lk_elu(x, 2), -1.7293294335267746, -1.2642411176571153, 0, 1, 2);
    NEAR(lk_silu(x), -0.2384058440442351, -0.2689414213699951, 0, 0.7310585786300049, 1.7615941559557649);
    NEAR(lk_gelu(x), -0.04550026389635839, -0.15865525393145707, 0, 0.8413447460685429, 1.9544997361036416);
    NEAR(lk_softplus(x), 0.1269280110429726, 0.3132616875182228, 0.6931471805599453, 1.3132616875182228,
         2.1269280110429726);
}

static void test_activations_refuse(void **state)
{
    (void)state;
    refused(lk_gelu(ones(LK_I32, LK_SHAPE(2))), LK_ERR_DTYPE, "gelu: x is i32; it must be f32, bf16 or f64");
    refused(lk_elu(f32(LK_SHAPE(2)), INFINITY), LK_ERR_ARGUMENT, "elu: alpha is inf; it must be finite");
    refused(lk_leaky_relu(f32(LK_SHAPE(2)), NAN), LK_ERR_ARGUMENT, "leaky_relu: alpha is nan; it must be finite");
    refused(lk_tanh(NULL), LK_ERR_ARGUMENT, "tanh: x is NULL");
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

static const lk_random_key key = {.seed = 3, .purpose = 17, .epoch = 5, .sample = 99};

/* Returns what dropout makes of a 1 at `element` of sample `index`. */
static float kept(int64_t index, uint64_t element, double rate)
{
    lk_random_key stream = key;
    uint32_t words[4];
    stream.sample = (uint64_t)index;
    lk_random_block(&stream, element / 4, words);
    return words[element % 4] / 4294967296.0 >= rate ? (float)(1 / (1 - rate)) : 0;
}

static void test_dropout_follows_the_stream(void **state)
{
    (void)state;
    static const int64_t index[3] = {59999, 0, 7};
    float want[3 * 2 * 3 * 5];
    for (int n = 0; n < 3; n++)
        for (int e = 0; e < 30; e++)
            want[n * 30 + e] = kept(index[n], (uint64_t)e, 0.3);
    lk_tensor *indices = lk_tensor_from(device, LK_I64, LK_SHAPE(3), index);
    lk_tensor *x = f32(LK_SHAPE(3, 2, 3, 5));
    check_values(lk_dropout(x, indices, 0.3, key), LK_SHAPE(3, 2, 3, 5), want);
    /* A sample drops the same elements at any position of a batch, and with any strides. */
    check_values(lk_dropout(lk_slice(x, 0, 1, 2), lk_slice(indices, 0, 1, 2), 0.3, key), LK_SHAPE(1, 2, 3, 5),
                 want + 30);
    lk_tensor *turned = lk_transpose(f32(LK_SHAPE(5, 2, 3, 3)), 0, 3);
    check_values(lk_dropout(turned, indices, 0.3, key), LK_SHAPE(3, 2, 3, 5), want);
    lk_random_key sampled = key;
    sampled.sample = 1234;
    check_values(lk_dropout(x, indices, 0.3, sampled), LK_SHAPE(3, 2, 3, 5), want);
}

/* At rate 1/4 the number of elements kept of 4096 has the mean 3072 and the standard deviation 28. */
static void test_dropout_keeps_its_share(void **state)
{
    (void)state;
    lk_tensor *indices = lk_arange(device, LK_I64, 64, 100, 1);
    double sum;
    lk_tensor *y = lk_dropout(f32(LK_SHAPE(64, 64)), indices, 0.25, key);
    assert_int_equal(lk_tensor_item(lk_sum(lk_cast(y, LK_F64), NULL), &sum), LK_OK);
    double count = sum * 0.75;
    assert_true(fabs(count - 3072) < 140);
}

static void test_dropout_refuses(void **state)
{
    (void)state;
    lk_tensor *x = f32(LK_SHAPE(4, 3)), *indices = ones(LK_I64, LK_SHAPE(4));
    refused(lk_dropout(x, indices, 1, key), LK_ERR_ARGUMENT,
            "dropout: rate is 1; it must be at least 0 and less than 1");
    refused(lk_dropout(x, indices, NAN, key), LK_ERR_ARGUMENT,
            "dropout: rate is nan; it must be at least 0 and less than 1");
    refused(lk_dropout(x, ones(LK_I64, LK_SHAPE(3)), 0.5, key), LK_ERR_SHAPE,
            "dropout: indices has shape [3]; it must be [4]");
    refused(lk_dropout(x, ones(LK_I32, LK_SHAPE(4)), 0.5, key), LK_ERR_DTYPE,
            "dropout: indices is i32; it must be i64");
    refused(lk_dropout(f32(LK_SCALAR), indices, 0.5, key), LK_ERR_SHAPE, "dropout: x has shape []; it must be [N, …]");
    refused(lk_dropout(ones(LK_U8, LK_SHAPE(4)), indices, 0.5, key), LK_ERR_DTYPE,
            "dropout: x is u8; it must be f32, bf16 or f64");
    static const int64_t beyond[4] = {0, 1, INT64_C(1) << 32, 3};
    indices = lk_tensor_from(device, LK_I64, LK_SHAPE(4), beyond);
    assert_int_equal(lk_tensor_wait(lk_dropout(x, indices, 0.5, key)), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "dropout: index 4294967296 of sample 2 is not in [0, 2^32)"));
    lk_error_clear();
    lk_device_sync(device);
    lk_error_clear();
}

/* --- losses ------------------------------------------------------------------------------------------------------- */

static void test_smoothed_cross_entropy(void **state)
{
    (void)state;
    double logits[2][4] = {{1, 2, 0.5, -1}, {0, 0, 3, 1}};
    const int32_t label[2] = {1, 0};
    double want[2];
    for (int n = 0; n < 2; n++) {
        double sum = 0;
        for (int c = 0; c < 4; c++)
            sum += exp(logits[n][c]);
        want[n] = 0;
        for (int c = 0; c < 4; c++)
            want[n] -= (0.8 * (c == label[n]) + 0.2 / 4) * (logits[n][c] - log(sum));
    }
    lk_tensor *x = lk_tensor_from(device, LK_F64, LK_SHAPE(2, 4), logits);
    lk_tensor *labels = lk_tensor_from(device, LK_I32, LK_SHAPE(2), label);
    check_near(lk_smoothed_cross_entropy(x, labels, 0.2, LK_REDUCTION_NONE), 2, want);
    lk_tensor *plain = lk_sparse_softmax_cross_entropy(x, labels, LK_REDUCTION_NONE);
    lk_tensor *unsmoothed = lk_smoothed_cross_entropy(x, labels, 0, LK_REDUCTION_NONE);
    double apart;
    assert_int_equal(lk_tensor_item(lk_sum(lk_mul(lk_sub(plain, unsmoothed), lk_sub(plain, unsmoothed)), NULL), &apart),
                     LK_OK);
    assert_true(apart == 0);
    refused(lk_smoothed_cross_entropy(x, labels, 1.5, LK_REDUCTION_SUM), LK_ERR_ARGUMENT,
            "sparse_softmax_cross_entropy: smoothing is 1.5; it must be between 0 and 1");
    refused(lk_smoothed_cross_entropy(x, labels, NAN, LK_REDUCTION_SUM), LK_ERR_ARGUMENT,
            "sparse_softmax_cross_entropy: smoothing is nan; it must be between 0 and 1");
}

/* A class with probability 0 costs nothing unless labels are smoothed. */
static void test_a_logit_of_minus_infinity(void **state)
{
    (void)state;
    lk_tensor *x = lk_tensor_from(device, LK_F32, LK_SHAPE(1, 3), VALUES(0, 0, -INFINITY));
    lk_tensor *labels = ones(LK_I64, LK_SHAPE(1));
    check_values(lk_sparse_softmax_cross_entropy(x, labels, LK_REDUCTION_SUM), LK_SCALAR, VALUES((float)log(2)));
    check_values(lk_smoothed_cross_entropy(x, labels, 0.1, LK_REDUCTION_SUM), LK_SCALAR, VALUES(INFINITY));
}

static void test_sigmoid_cross_entropy(void **state)
{
    (void)state;
    lk_tensor *z = lk_tensor_from(device, LK_F64, LK_SHAPE(5), (const double[]){0, 2, -2, 800, -800});
    lk_tensor *t = lk_tensor_from(device, LK_F64, LK_SHAPE(5), (const double[]){0.5, 1, 0.25, 0, 1});
    NEAR(lk_sigmoid_cross_entropy(z, t), 0.6931471805599453, 0.1269280110429726, 0.6269280110429726, 800, 800);
    refused(lk_sigmoid_cross_entropy(z, f32(LK_SHAPE(5))), LK_ERR_DTYPE,
            "sigmoid_cross_entropy: targets is f32; it must be f64");
    refused(lk_sigmoid_cross_entropy(z, ones(LK_F64, LK_SHAPE(5, 1))), LK_ERR_SHAPE,
            "sigmoid_cross_entropy: targets has shape [5,1]; it must be [5]");
    refused(lk_sigmoid_cross_entropy(ones(LK_I64, LK_SHAPE(5)), t), LK_ERR_DTYPE,
            "sigmoid_cross_entropy: logits is i64; it must be f32, bf16 or f64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OPERATOR_TEST(test_activations),
        OPERATOR_TEST(test_activations_refuse),
        OPERATOR_TEST(test_dropout_follows_the_stream),
        OPERATOR_TEST(test_dropout_keeps_its_share),
        OPERATOR_TEST(test_dropout_refuses),
        OPERATOR_TEST(test_smoothed_cross_entropy),
        OPERATOR_TEST(test_a_logit_of_minus_infinity),
        OPERATOR_TEST(test_sigmoid_cross_entropy),
    };
    return RUN_OPERATOR_TESTS(tests);
}
