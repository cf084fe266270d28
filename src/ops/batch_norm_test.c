/* Batch normalization: hand-computed values, refusals, and the same gradients from batch_norm and from
 * batch_norm_with. */
#include "lockstep/autograd.h"
#include "ops/ops_test.h"

#include <math.h>

static lk_tensor *vector(int64_t count, const float *values)
{
    lk_tensor *x = lk_tensor_from(device, LK_F32, LK_SHAPE(count), values);
    assert_non_null(x);
    return x;
}

static lk_tensor *f64(lk_shape shape, const double *values)
{
    lk_tensor *x = lk_tensor_from(device, LK_F64, shape, values);
    assert_non_null(x);
    return x;
}

static lk_tensor *random_f64(lk_shape shape, double low, double high, uint64_t seed)
{
    return lk_uniform(device, LK_F64, shape, low, high, (lk_random_key){.seed = seed});
}

/* Channels of 1, 3, 5, 7 (mean 4, variance 5) and of 2, 2, 2, 2. */
static lk_tensor *two_channels(void)
{
    lk_tensor *x = lk_tensor_from(device, LK_F32, LK_SHAPE(2, 2, 2), VALUES(1, 3, 2, 2, 5, 7, 2, 2));
    assert_non_null(x);
    return x;
}

static void check_doubles(lk_tensor *x, lk_shape shape, const double *values)
{
    double have[16];
    check(x, LK_F64, shape);
    assert_int_equal(lk_tensor_read(x, have, (size_t)lk_tensor_count(x) * sizeof *have), LK_OK);
    for (int64_t i = 0; i < lk_tensor_count(x); i++)
        assert_true(have[i] == values[i]);
}

static void test_sums_and_normalization(void **state)
{
    (void)state;
    lk_tensor *x = two_channels(), *gamma = vector(2, VALUES(3, 2)), *beta = vector(2, VALUES(10, -1)), *sums;
    const double expected[] = {16, 8, 84, 16};
    check_doubles(lk_channel_sums(x), LK_SHAPE(2, 2), expected);
    /* epsilon 4: 1 / sqrt(5 + 4) is a third, 1 / sqrt(0 + 4) a half */
    const float *normalized = VALUES(7, 9, -1, -1, 11, 13, -1, -1);
    check_values(lk_batch_norm(x, gamma, beta, 4, &sums), LK_SHAPE(2, 2, 2), normalized);
    check_doubles(sums, LK_SHAPE(2, 2), expected);
    check_values(lk_batch_norm(x, gamma, beta, 4, NULL), LK_SHAPE(2, 2, 2), normalized);
    check_values(lk_batch_norm_with(x, gamma, beta, sums, 4, 4), LK_SHAPE(2, 2, 2), normalized);
    lk_tensor *mean = vector(2, VALUES(4, 2)), *variance = vector(2, VALUES(5, 0));
    check_values(lk_batch_norm_inference(x, gamma, beta, mean, variance, 4), LK_SHAPE(2, 2, 2), normalized);
    check(lk_batch_norm(f32(LK_SHAPE(0, 2, 3)), gamma, beta, 1e-5, &sums), LK_F32, LK_SHAPE(0, 2, 3));
    check_doubles(sums, LK_SHAPE(2, 2), (double[]){0, 0, 0, 0});
    check(lk_batch_norm(ones(LK_BF16, LK_SHAPE(3, 2)), gamma, beta, 1e-5, NULL), LK_BF16, LK_SHAPE(3, 2));
}

/* Rounding makes the variance of equal numbers slightly negative; epsilon is too small to hide that. */
static void test_variance_is_not_negative(void **state)
{
    (void)state;
    double values[7], y[7];
    for (int i = 0; i < 7; i++)
        values[i] = 1000.1;
    lk_tensor *x = f64(LK_SHAPE(7, 1), values), *one = ones(LK_F64, LK_SHAPE(1)), *sums;
    lk_tensor *normalized = lk_batch_norm(x, one, one, 1e-12, &sums);
    double s[2];
    assert_int_equal(lk_tensor_read(sums, s, sizeof s), LK_OK);
    assert_true(s[1] / 7 - (s[0] / 7) * (s[0] / 7) < 0);
    assert_int_equal(lk_tensor_read(normalized, y, sizeof y), LK_OK);
    for (int i = 0; i < 7; i++)
        assert_true(fabs(y[i] - 1) < 1e-5);
}

static void test_update(void **state)
{
    (void)state;
    lk_tensor *mean = vector(2, VALUES(8, -2)), *variance = vector(2, VALUES(1, 3));
    lk_tensor *sums = lk_channel_sums(two_channels());
    lk_tensor *skip = ones(LK_F32, LK_SCALAR);
    assert_int_equal(lk_batch_norm_update(mean, variance, sums, 4, 0.25, skip), LK_OK);
    check_values(mean, LK_SHAPE(2), VALUES(8, -2));
    check_values(variance, LK_SHAPE(2), VALUES(1, 3));
    /* The unbiased variance of 1, 3, 5, 7 is 20 / 3. */
    assert_int_equal(lk_batch_norm_update(mean, variance, sums, 4, 0.25, lk_zeros(device, LK_F32, LK_SCALAR)), LK_OK);
    check_values(mean, LK_SHAPE(2), VALUES(7, -1));
    check_values(variance, LK_SHAPE(2), VALUES((float)(0.75 + 0.25 * (5 * (4.0 / 3))), 2.25f));
    /* With one element per channel the variance is 0, biased or not. */
    sums = f64(LK_SHAPE(2, 2), (double[]){3, 1, 9, 1});
    assert_int_equal(lk_batch_norm_update(mean, variance, sums, 1, 1, NULL), LK_OK);
    check_values(mean, LK_SHAPE(2), VALUES(3, 1));
    check_values(variance, LK_SHAPE(2), VALUES(0, 0));
    /* A momentum of 1 keeps nothing of what was there. */
    mean = vector(2, VALUES(NAN, INFINITY));
    variance = vector(2, VALUES(INFINITY, NAN));
    assert_int_equal(lk_batch_norm_update(mean, variance, sums, 1, 1, NULL), LK_OK);
    check_values(mean, LK_SHAPE(2), VALUES(3, 1));
    check_values(variance, LK_SHAPE(2), VALUES(0, 0));
}

static void test_update_of_views(void **state)
{
    (void)state;
    lk_tensor *both = lk_copy(f32(LK_SHAPE(3, 2)), device), *sums = f64(LK_SHAPE(2, 3), (double[]){2, 4, 6, 4, 16, 36});
    lk_tensor *columns = lk_transpose(both, 0, 1);
    lk_tensor *mean = lk_reshape(lk_slice(columns, 0, 0, 1), LK_SHAPE(3));
    lk_tensor *variance = lk_reshape(lk_slice(columns, 0, 1, 2), LK_SHAPE(3));
    assert_int_equal(lk_batch_norm_update(mean, variance, sums, 2, 0.5, NULL), LK_OK);
    check_values(both, LK_SHAPE(3, 2), VALUES(1, 1.5f, 1.5f, 4.5f, 2, 9.5f));
}

static void test_refuses(void **state)
{
    (void)state;
    lk_tensor *x = f32(LK_SHAPE(4, 3, 2, 2)), *v = f32(LK_SHAPE(3)), *sums = ones(LK_F64, LK_SHAPE(2, 3));
    refused(lk_channel_sums(v), LK_ERR_SHAPE, "channel_sums: x has shape [3]; it must be [N, C, …]");
    refused(lk_channel_sums(ones(LK_I32, LK_SHAPE(2, 2))), LK_ERR_DTYPE,
            "channel_sums: x is i32; it must be f32, bf16 or f64");
    refused(lk_batch_norm(x, f32(LK_SHAPE(4)), v, 0, NULL), LK_ERR_SHAPE,
            "batch_norm: gamma has shape [4]; it must be [3]");
    refused(lk_batch_norm(x, v, ones(LK_F64, LK_SHAPE(3)), 0, NULL), LK_ERR_DTYPE,
            "batch_norm: beta is f64; it must be f32");
    refused(lk_batch_norm(ones(LK_BF16, LK_SHAPE(4, 3)), ones(LK_BF16, LK_SHAPE(3)), v, 0, NULL), LK_ERR_DTYPE,
            "batch_norm: gamma is bf16; it must be f32");
    refused(lk_batch_norm(x, v, v, -1e-5, NULL), LK_ERR_ARGUMENT,
            "batch_norm: epsilon is -1e-05; it must be finite and at least 0");
    refused(lk_batch_norm_inference(x, v, v, v, v, NAN), LK_ERR_ARGUMENT,
            "batch_norm_inference: epsilon is nan; it must be finite and at least 0");
    refused(lk_batch_norm_inference(x, v, v, v, f32(LK_SHAPE(2)), 0), LK_ERR_SHAPE,
            "batch_norm_inference: variance has shape [2]; it must be [3]");
    refused(lk_batch_norm_with(x, v, v, f32(LK_SHAPE(2, 3)), 4, 0), LK_ERR_DTYPE,
            "batch_norm_with: sums is f32; it must be f64");
    refused(lk_batch_norm_with(x, v, v, ones(LK_F64, LK_SHAPE(3, 2)), 4, 0), LK_ERR_SHAPE,
            "batch_norm_with: sums has shape [3,2]; it must be [2,3]");
    refused(lk_batch_norm_with(x, v, v, sums, 0, 0), LK_ERR_ARGUMENT,
            "batch_norm_with: count is 0; it must be at least 1");
    lk_tensor *nothing = x;
    refused(lk_batch_norm(x, NULL, v, 0, &nothing), LK_ERR_ARGUMENT, "batch_norm: gamma is NULL");
    assert_null(nothing);
}

static void test_update_refuses(void **state)
{
    (void)state;
    lk_tensor *v = f32(LK_SHAPE(3)), *w = f32(LK_SHAPE(3)), *sums = ones(LK_F64, LK_SHAPE(2, 3));
    refused_status(lk_batch_norm_update(v, w, sums, 0, 0.1, NULL), LK_ERR_ARGUMENT,
                   "batch_norm_update: count is 0; it must be at least 1");
    refused_status(lk_batch_norm_update(v, w, sums, 1, 1.5, NULL), LK_ERR_ARGUMENT,
                   "batch_norm_update: momentum is 1.5; it must be between 0 and 1");
    refused_status(lk_batch_norm_update(v, f32(LK_SHAPE(2)), sums, 1, 0.1, NULL), LK_ERR_SHAPE,
                   "batch_norm_update: variance has shape [2]; it must be [3]");
    refused_status(lk_batch_norm_update(v, w, sums, 1, 0.1, f32(LK_SHAPE(1))), LK_ERR_SHAPE,
                   "batch_norm_update: skip has shape [1]; it must be []");
    refused_status(lk_batch_norm_update(ones(LK_BF16, LK_SHAPE(3)), w, sums, 1, 0.1, NULL), LK_ERR_DTYPE,
                   "batch_norm_update: mean is bf16; it must be f32 or f64");
    refused_status(lk_batch_norm_update(v, lk_expand(f32(LK_SHAPE(1)), LK_SHAPE(3)), sums, 1, 0.1, NULL),
                   LK_ERR_ARGUMENT,
                   "batch_norm_update: the tensor to write to, [3], is an expanded view: its elements are not its own");
    refused_status(lk_batch_norm_update(v, w, NULL, 1, 0.1, NULL), LK_ERR_ARGUMENT, "batch_norm_update: sums is NULL");
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

enum { X, GAMMA, BETA, LEAVES };

/* Normalizes with batch_norm, or with batch_norm_with and sums, as for a batch of several shards. */
static lk_tensor *normalized(lk_tensor *const *leaf, bool in_one)
{
    if (in_one)
        return lk_batch_norm(leaf[X], leaf[GAMMA], leaf[BETA], 1e-3, NULL);
    lk_shape x = lk_tensor_shape(leaf[X]);
    int64_t count = x.dim[0] * x.dim[2] * x.dim[3];
    return lk_batch_norm_with(leaf[X], leaf[GAMMA], leaf[BETA], lk_channel_sums(leaf[X]), count, 1e-3);
}

static void gradients(lk_tensor *const *leaf, lk_tensor *seed, bool in_one, lk_tensor **found)
{
    lk_tape *tape = lk_tape_begin(leaf, LEAVES);
    assert_non_null(tape);
    if (lk_tape_gradient(tape, normalized(leaf, in_one), seed, found) != LK_OK)
        fail_msg("%s", lk_error_message());
    lk_tape_release(tape);
}

static double largest(lk_tensor *x)
{
    double most;
    assert_int_equal(lk_tensor_item(lk_max(lk_mul(x, x), NULL), &most), LK_OK);
    return sqrt(most);
}

static void test_both_ways_give_the_same_gradients(void **state)
{
    (void)state;
    lk_shape shape = LK_SHAPE(5, 3, 4, 7);
    lk_tensor *leaf[LEAVES] = {random_f64(shape, 2, 5, 1), random_f64(LK_SHAPE(3), 0.5, 2, 2),
                               random_f64(LK_SHAPE(3), -1, 1, 3)};
    lk_tensor *seed = random_f64(shape, -1, 1, 4), *one[LEAVES], *two[LEAVES];
    assert_true(largest(lk_sub(normalized(leaf, true), normalized(leaf, false))) == 0);
    gradients(leaf, seed, true, one);
    gradients(leaf, seed, false, two);
    for (int i = 0; i < LEAVES; i++) {
        double size = largest(one[i]), apart = largest(lk_sub(one[i], two[i]));
        assert_true(size > 0.1);
        if (apart > 1e-13 * size)
            fail_msg("gradient %d: %g apart, of %g", i, apart, size);
    }
}

/* Shifting or scaling a channel of x does not change y, except through epsilon. So dx is orthogonal to both changes:
 * its sum is 0, and so is its product with x. */
static void test_gradient_is_orthogonal_to_what_is_normalized_away(void **state)
{
    (void)state;
    lk_shape shape = LK_SHAPE(5, 3, 4, 7);
    lk_tensor *leaf[LEAVES] = {random_f64(shape, 2, 5, 1), random_f64(LK_SHAPE(3), 0.5, 2, 2),
                               random_f64(LK_SHAPE(3), -1, 1, 3)};
    lk_tensor *found[LEAVES];
    gradients(leaf, random_f64(shape, -1, 1, 4), true, found);
    lk_reduce_opts channel = {.n_axes = 3, .axes = {0, 2, 3}};
    assert_true(largest(lk_sum(found[X], &channel)) < 1e-12);
    assert_true(largest(lk_sum(lk_mul(found[X], leaf[X]), &channel)) < 0.1);
}

static void test_sums_have_no_gradient(void **state)
{
    (void)state;
    lk_tensor *x = two_channels(), *gamma = vector(2, VALUES(3, 2)), *beta = vector(2, VALUES(10, -1)), *sums, *g;
    lk_tape *tape = lk_tape_begin(&x, 1);
    assert_non_null(lk_batch_norm_at((lk_call_site){"net.c", 12}, x, gamma, beta, 1e-5, &sums));
    refused_status(lk_tape_gradient(tape, sums, NULL, &g), LK_ERR_ARGUMENT,
                   "gradient: the sums that batch_norm, called at net.c:12, gave have none; those of lk_channel_sums "
                   "do");
    lk_tape_release(tape);
    tape = lk_tape_begin(&gamma, 1); /* the mean of batch_norm_inference has no gradient */
    lk_tensor *y = lk_batch_norm_inference_at((lk_call_site){"net.c", 13}, x, beta, beta, gamma, gamma, 1e-5);
    refused_status(lk_tape_gradient(tape, y, NULL, &g), LK_ERR_ARGUMENT,
                   "gradient: batch_norm_inference, called at net.c:13, has none for mean and variance");
    lk_tape_release(tape);
    tape = lk_tape_begin(&x, 1);
    y = lk_batch_norm(x, gamma, beta, 1e-5, &sums);
    assert_int_equal(lk_batch_norm_update(gamma, beta, sums, 4, 0.1, NULL), LK_OK); /* not on the path to y */
    assert_int_equal(lk_tape_gradient(tape, y, NULL, &g), LK_OK);
    check(g, LK_F32, LK_SHAPE(2, 2, 2));
    lk_tape_release(tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OPERATOR_TEST(test_sums_and_normalization),
        OPERATOR_TEST(test_variance_is_not_negative),
        OPERATOR_TEST(test_update),
        OPERATOR_TEST(test_update_of_views),
        OPERATOR_TEST(test_refuses),
        OPERATOR_TEST(test_update_refuses),
        OPERATOR_TEST(test_both_ways_give_the_same_gradients),
        OPERATOR_TEST(test_gradient_is_orthogonal_to_what_is_normalized_away),
        OPERATOR_TEST(test_sums_have_no_gradient),
    };
    return RUN_OPERATOR_TESTS(tests);
}
