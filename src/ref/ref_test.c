/* The oracle against independent results: answers computed by hand, and formulas written out a second time. */
#include "base/mem_testing.h"
#include "core/device_testing.h"
#include "lockstep/lockstep.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))

static lk_device *ref;

static lk_tensor *vector(lk_dtype dtype, int64_t count, const void *data)
{
    return lk_tensor_from(ref, dtype, LK_SHAPE(count), data);
}

static void expect_bytes(lk_tensor *tensor, const void *want, size_t bytes)
{
    unsigned char got[4096];
    assert_true(bytes <= sizeof got);
    if (lk_tensor_read(tensor, got, bytes) != LK_OK)
        fail_msg("%s", lk_error_message());
    assert_memory_equal(got, want, bytes);
}

/* Checks that the tensor has these values, bit for bit. */
#define EXPECT(tensor, ...) expect_bytes(tensor, (__VA_ARGS__), sizeof(__VA_ARGS__))

/* --- dtypes ------------------------------------------------------------------------------------------------------ */

static void test_integers_wrap(void **state)
{
    (void)state;
    lk_tensor *a = vector(LK_I32, 5, (int32_t[]){INT32_MAX, INT32_MIN, INT32_MIN, -7, 7});
    lk_tensor *b = vector(LK_I32, 5, (int32_t[]){1, 1, -1, 2, 0});
    EXPECT(lk_add(a, b), (int32_t[]){INT32_MIN, INT32_MIN + 1, INT32_MAX, -5, 7});
    EXPECT(lk_sub(a, b), (int32_t[]){INT32_MAX - 1, INT32_MAX, INT32_MIN + 1, -9, 7});
    EXPECT(lk_mul(a, b), (int32_t[]){INT32_MAX, INT32_MIN, INT32_MIN, -14, 0});
    EXPECT(lk_div(a, b), (int32_t[]){INT32_MAX, INT32_MIN, INT32_MIN, -3, 0});

    a = vector(LK_U8, 3, (uint8_t[]){200, 3, 9});
    b = vector(LK_U8, 3, (uint8_t[]){100, 5, 0});
    EXPECT(lk_add(a, b), (uint8_t[]){44, 8, 9});
    EXPECT(lk_sub(a, b), (uint8_t[]){100, 254, 9});
    EXPECT(lk_div(a, b), (uint8_t[]){2, 0, 0});

    int64_t beyond_double = (INT64_C(1) << 53) + 1;
    a = vector(LK_I64, 3, (int64_t[]){INT64_MIN, INT64_MAX, beyond_double});
    b = vector(LK_I64, 3, (int64_t[]){-1, 2, 1});
    EXPECT(lk_div(a, b), (int64_t[]){INT64_MIN, INT64_MAX / 2, beyond_double});
    EXPECT(lk_mul(a, b), (int64_t[]){INT64_MIN, -2, beyond_double});
    EXPECT(lk_add(a, b), (int64_t[]){INT64_MAX, INT64_MIN + 1, beyond_double + 1});
    EXPECT(lk_sum(a, NULL), (int64_t[]){beyond_double - 1});
    EXPECT(lk_max(lk_sub(a, b), NULL), (int64_t[]){INT64_MAX - 2});
}

static void test_casts_saturate(void **state)
{
    (void)state;
    float values[] = {NAN, INFINITY, -INFINITY, -0.9f, 255.9f, 256, -1e30f, 1e30f, 2147483520.0f};
    lk_tensor *x = vector(LK_F32, COUNT(values), values);
    EXPECT(lk_cast(x, LK_U8), (uint8_t[]){0, 255, 0, 0, 255, 255, 0, 255, 255});
    EXPECT(lk_cast(x, LK_I32), (int32_t[]){0, INT32_MAX, INT32_MIN, 0, 255, 256, INT32_MIN, INT32_MAX, 2147483520});
    EXPECT(lk_cast(x, LK_I64), (int64_t[]){0, INT64_MAX, INT64_MIN, 0, 255, 256, INT64_MIN, INT64_MAX, 2147483520});
    EXPECT(lk_full(ref, LK_U8, LK_SHAPE(3), 300), (uint8_t[]){255, 255, 255});
}

static void test_casts_round_once(void **state)
{
    (void)state;
    /* Neighbors of 1 in bf16 are 2^-7 apart; the 2^-40 is lost in f32, so a detour over f32 would see a tie. */
    double values[] = {1 + 0x1p-8,           1 + 0x1p-8 + 0x1p-40,  1 + 0x3p-8,
                       1 + 0x3p-8 - 0x1p-40, -1 - 0x1p-8 - 0x1p-40, 3.4e38};
    lk_tensor *x = vector(LK_F64, COUNT(values), values);
    EXPECT(lk_cast(x, LK_BF16), (uint16_t[]){0x3F80, 0x3F81, 0x3F82, 0x3F81, 0xBF81, 0x7F80});

    int64_t tie = (INT64_C(1) << 40) + (INT64_C(1) << 32);
    int64_t integers[] = {tie, tie + 1, tie - 1, -tie - 1, (1 << 24) + 1, INT64_MAX};
    lk_tensor *i = vector(LK_I64, COUNT(integers), integers);
    EXPECT(lk_cast(lk_cast(i, LK_BF16), LK_F32),
           (float[]){0x1p40f, 0x1p40f + 0x1p33f, 0x1p40f, -0x1p40f - 0x1p33f, 0x1p24f, 0x1p63f});
    EXPECT(lk_cast(i, LK_F32), (float[]){0x1.01p40f, 0x1.01p40f, 0x1.01p40f, -0x1.01p40f, 0x1p24f, 0x1p63f});

    uint16_t nan_bits;
    lk_tensor_read(lk_full(ref, LK_BF16, LK_SCALAR, NAN), &nan_bits, sizeof nan_bits);
    assert_true((nan_bits & 0x7FFF) > 0x7F80);
}

/* --- strides ----------------------------------------------------------------------------------------------------- */

static void test_views_are_read_through_their_strides(void **state)
{
    (void)state;
    lk_tensor *x = lk_reshape(lk_arange(ref, LK_I32, 6, 0, 1), LK_SHAPE(2, 3));
    EXPECT(lk_copy(lk_transpose(x, 0, 1), ref), (int32_t[]){0, 3, 1, 4, 2, 5});
    EXPECT(lk_copy(lk_slice(x, 1, 1, 3), ref), (int32_t[]){1, 2, 4, 5});
    EXPECT(lk_copy(lk_expand(lk_slice(x, 0, 1, 2), LK_SHAPE(2, 3)), ref), (int32_t[]){3, 4, 5, 3, 4, 5});
    EXPECT(lk_concat((lk_tensor *[]){x, lk_slice(x, 1, 0, 1)}, 2, 1), (int32_t[]){0, 1, 2, 0, 3, 4, 5, 3});
    assert_int_equal(lk_copy_into(lk_slice(x, 1, 0, 2), lk_full(ref, LK_I32, LK_SHAPE(2, 2), 9)), LK_OK);
    EXPECT(x, (int32_t[]){9, 9, 2, 9, 9, 5});
}

/* --- random numbers ---------------------------------------------------------------------------------------------- */

static void test_random_numbers_follow_the_stream(void **state)
{
    (void)state;
    lk_random_key key = {.seed = 3, .purpose = 5, .epoch = 7, .sample = 11};
    uint32_t words[8];
    float uniform[7], normal[7];
    lk_random_block(&key, 0, words);
    lk_random_block(&key, 1, words + 4);
    for (int i = 0; i < 7; i++) {
        double radius = sqrt(-2 * log((words[i & ~1] + 0.5) / 4294967296.0));
        double angle = 2 * acos(-1) * ((words[i | 1] + 0.5) / 4294967296.0);
        uniform[i] = (float)(2 + 3 * ((words[i] + 0.5) / 4294967296.0));
        normal[i] = (float)(2 + 3 * (radius * (i % 2 ? sin(angle) : cos(angle))));
    }
    EXPECT(lk_uniform(ref, LK_F32, LK_SHAPE(7), 2, 5, key), uniform);
    EXPECT(lk_normal(ref, LK_F32, LK_SHAPE(7), 2, 3, key), normal);
}

/* --- networks ---------------------------------------------------------------------------------------------------- */

typedef struct window {
    int64_t stride, padding, dilation;
} window;

/* Convolves by the definition, an output at a time. x: [2, 4, 7, 6], w: [6, 2, 3, 2], two groups. */
static double conv_at(const double *x, const double *w, window s, int64_t n, int64_t o, int64_t oh, int64_t ow)
{
    double sum = 0;
    for (int64_t c = 0; c < 2; c++) {
        for (int64_t kh = 0; kh < 3; kh++) {
            for (int64_t kw = 0; kw < 2; kw++) {
                int64_t ih = oh * s.stride + kh * s.dilation - s.padding,
                        iw = ow * s.stride + kw * s.dilation - s.padding;
                if (ih >= 0 && ih < 7 && iw >= 0 && iw < 6)
                    sum += x[((n * 4 + o / 3 * 2 + c) * 7 + ih) * 6 + iw] * w[((o * 2 + c) * 3 + kh) * 2 + kw];
            }
        }
    }
    return sum;
}

static void check_conv(window s)
{
    lk_conv2d_opts opts = {{s.stride, s.stride}, {s.padding, s.padding}, {s.dilation, s.dilation}, 2};
    lk_tensor *x = lk_uniform(ref, LK_F64, LK_SHAPE(2, 4, 7, 6), -1, 1, (lk_random_key){.seed = 1});
    lk_tensor *w = lk_uniform(ref, LK_F64, LK_SHAPE(6, 2, 3, 2), -1, 1, (lk_random_key){.seed = 2});
    lk_tensor *y = lk_conv2d(x, w, lk_arange(ref, LK_F64, 6, 0, 1), &opts);
    double xs[2 * 4 * 7 * 6], ws[6 * 2 * 3 * 2], ys[2 * 6 * 16 * 16];
    assert_int_equal(lk_tensor_read(x, xs, sizeof xs), LK_OK);
    assert_int_equal(lk_tensor_read(w, ws, sizeof ws), LK_OK);
    assert_int_equal(lk_tensor_read(y, ys, (size_t)lk_tensor_count(y) * sizeof ys[0]), LK_OK);
    lk_shape out = lk_tensor_shape(y);
    for (int64_t i = 0; i < lk_tensor_count(y); i++) {
        int64_t ow = i % out.dim[3], oh = i / out.dim[3] % out.dim[2], plane = i / (out.dim[2] * out.dim[3]);
        double want = (double)(plane % 6) + conv_at(xs, ws, s, plane / 6, plane % 6, oh, ow);
        assert_true(fabs(ys[i] - want) < 1e-13);
    }
}

static void test_convolution_follows_its_definition(void **state)
{
    (void)state;
    lk_scope_begin();
    for (int64_t stride = 1; stride <= 3; stride++)
        for (int64_t padding = 0; padding <= 4; padding++)
            for (int64_t dilation = 1; dilation <= 3; dilation++)
                check_conv((window){stride, padding, dilation});
    lk_scope_end();
}

static void test_max_pooling_takes_the_first_maximum(void **state)
{
    (void)state;
    float x[] = {1, 1, -1, NAN, 1, 1, NAN, 2, -INFINITY, -INFINITY, 0, 0};
    lk_pool2d_opts opts = {.kernel = {2, 2}, .stride = {2, 2}, .padding = {1, 0}};
    lk_call call = {.op = &lk__op_max_pool2d, .n_in = 1, .n_out = 2};
    call.in[0] = lk_tensor_from(ref, LK_F32, LK_SHAPE(1, 1, 3, 4), x);
    memcpy(call.attrs.bytes, &opts, sizeof opts);
    assert_int_equal(lk__call(&call), LK_OK);
    float y[4];
    assert_int_equal(lk_tensor_read(call.out[0], y, sizeof y), LK_OK);
    assert_true(y[0] == 1 && isnan(y[1]) && y[2] == 1 && isnan(y[3]));
    EXPECT(call.out[1], (int32_t[]){0, 3, 4, 6});
}

static void test_nan_is_the_maximum(void **state)
{
    (void)state;
    lk_tensor *x = vector(LK_F32, 5, (float[]){1, NAN, INFINITY, NAN, -1});
    double value;
    EXPECT(lk_argmax(x, 0), (int64_t[]){1});
    assert_int_equal(lk_tensor_item(lk_max(x, NULL), &value), LK_OK);
    assert_true(isnan(value));
    EXPECT(lk_relu(vector(LK_F32, 3, (float[]){-0.0f, -2, 3})), (float[]){0, 0, 3});
    float kept;
    assert_int_equal(lk_tensor_read(lk_relu(lk_slice(x, 0, 1, 2)), &kept, sizeof kept), LK_OK);
    assert_true(isnan(kept));
}

static void test_sums_are_wider_than_their_elements(void **state)
{
    (void)state;
    lk_tensor *x = vector(LK_F32, 3, (float[]){1e8f, 1, -1e8f});
    EXPECT(lk_sum(x, NULL), (float[]){1});
    EXPECT(lk_matmul(lk_reshape(x, LK_SHAPE(1, 3)), lk_ones(ref, LK_F32, LK_SHAPE(3, 1))), (float[]){1});
}

static void test_update_rounds_twice(void **state)
{
    (void)state;
    float w[] = {1, 0.3f, -7}, g[] = {0.1f, 3, 1e-3f}, rate = 0.1f;
    lk_tensor *parameter = vector(LK_F32, 3, w);
    assert_int_equal(lk_sgd_update(parameter, vector(LK_F32, 3, g), 0.1), LK_OK);
    for (int i = 0; i < 3; i++) {
        volatile float step = rate * g[i];
        w[i] = w[i] - step;
    }
    EXPECT(parameter, w);
}

static void test_labels_out_of_range_are_named(void **state)
{
    (void)state;
    lk_tensor *logits = lk_zeros(ref, LK_F32, LK_SHAPE(4, 10));
    lk_tensor *labels = vector(LK_I32, 4, (int32_t[]){0, 9, 3, 12});
    assert_int_equal(lk_tensor_wait(lk_sparse_softmax_cross_entropy(logits, labels, LK_REDUCTION_SUM)),
                     LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "sparse_softmax_cross_entropy: label 12 at index 3 is not in [0, 10)"));
    lk_error_clear();
    labels = vector(LK_I64, 4, (int64_t[]){0, -1, 3, 2});
    assert_int_equal(lk_tensor_wait(lk_in_top_k(logits, labels, 1)), LK_ERR_ARGUMENT);
    assert_non_null(strstr(lk_error_message(), "in_top_k: label -1 at index 1 is not in [0, 10)"));
    lk_error_clear();
    lk_device_sync(ref);
    lk_error_clear();
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

static lk_status run_kernels(void)
{
    lk_conv2d_opts opts = {.padding = {1, 1}};
    lk_scope_begin();
    lk_tensor *x = lk_uniform(ref, LK_F32, LK_SHAPE(2, 3, 5, 5), -1, 1, (lk_random_key){0});
    lk_tensor *w = lk_uniform(ref, LK_F32, LK_SHAPE(4, 3, 3, 3), -1, 1, (lk_random_key){0});
    lk_tensor *gamma = lk_ones(ref, LK_F32, LK_SHAPE(4));
    lk_tensor *y = lk_batch_norm(lk_conv2d(x, w, NULL, &opts), gamma, gamma, 1e-5, NULL);
    y = lk_dropout(lk_gelu(y), lk_arange(ref, LK_I64, 2, 0, 1), 0.5, (lk_random_key){0});
    y = lk_max_pool2d(y, &(lk_pool2d_opts){.kernel = {2, 2}});
    y = lk_log_softmax(lk_matmul(lk_flatten(y), lk_ones(ref, LK_F32, LK_SHAPE(16, 3))), 1);
    y = lk_div(lk_cast(lk_max(y, NULL), LK_F64), lk_cast(lk_sum(y, NULL), LK_F64));
    lk_status status = y ? lk_tensor_wait(y) : lk_error_status();
    lk_scope_end();
    lk_device_sync(ref);
    return status;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    int64_t failures = 0;
    failing f = fail_every(1);
    while (fail_next(&f)) {
        lk_status status = run_kernels();
        stop_failing(&f);
        assert_true(status == LK_ERR_MEMORY || status == LK_OK);
        failures += status == LK_ERR_MEMORY;
    }
    assert_true(2 * failures >
                f.n + 1); /* an allocation is repeated after cached memory has been freed, so some runs succeed */
    lk_error_clear();
    assert_int_equal(run_kernels(), LK_OK);
}

static int begin_scope(void **state)
{
    (void)state;
    lk_scope_begin();
    return 0;
}

static int end_scope(void **state)
{
    (void)state;
    lk_scope_end();
    return 0;
}

#define IN_SCOPE(test) cmocka_unit_test_setup_teardown(test, begin_scope, end_scope)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPE(test_integers_wrap),
        IN_SCOPE(test_casts_saturate),
        IN_SCOPE(test_casts_round_once),
        IN_SCOPE(test_views_are_read_through_their_strides),
        IN_SCOPE(test_random_numbers_follow_the_stream),
        IN_SCOPE(test_convolution_follows_its_definition),
        IN_SCOPE(test_max_pooling_takes_the_first_maximum),
        IN_SCOPE(test_nan_is_the_maximum),
        IN_SCOPE(test_sums_are_wider_than_their_elements),
        IN_SCOPE(test_update_rounds_twice),
        IN_SCOPE(test_labels_out_of_range_are_named),
        IN_SCOPE(test_every_allocation_may_fail),
    };
    return RUN_ON_DEVICE(tests, &ref, "ref");
}
