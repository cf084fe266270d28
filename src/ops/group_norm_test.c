/* Group normalization: hand-computed values, and refusals. Gradients are checked by the conformance tests. */
#include "ops/ops_test.h"

#include <math.h>

static lk_tensor *floats_of(lk_shape shape, const float *values)
{
    lk_tensor *x = lk_tensor_from(device, LK_F32, shape, values);
    assert_non_null(x);
    return x;
}

static void test_values(void **state)
{
    (void)state;
    lk_tensor *x = floats_of(LK_SHAPE(2, 2, 2), VALUES(1, 3, 2, 2, 5, 7, 6, 6));
    lk_tensor *gamma = floats_of(LK_SHAPE(2), VALUES(3, 2)), *beta = floats_of(LK_SHAPE(2), VALUES(10, -1));
    /* Each channel: variances 1 and 0, so 1 / sqrt(1 + 3) is a half. */
    check_values(lk_group_norm(x, gamma, beta, &(lk_group_norm_opts){.groups = 2, .epsilon = 3}), LK_SHAPE(2, 2, 2),
                 VALUES(8.5f, 11.5f, -1, -1, 8.5f, 11.5f, -1, -1));
    /* Whole samples: means 2 and 6, variance 1/2. */
    check_values(lk_group_norm(x, gamma, beta, &(lk_group_norm_opts){.epsilon = 3.5}), LK_SHAPE(2, 2, 2),
                 VALUES(8.5f, 11.5f, -1, -1, 8.5f, 11.5f, -1, -1));
    /* Pixels: means 1.5, 2.5, 5.5 and 6.5, variance 1/4. */
    check_values(lk_group_norm(x, gamma, beta, &(lk_group_norm_opts){.each_pixel = true, .epsilon = 0.75}),
                 LK_SHAPE(2, 2, 2), VALUES(8.5f, 11.5f, 0, -2, 8.5f, 11.5f, 0, -2));
    check(lk_group_norm(f32(LK_SHAPE(0, 2, 3)), gamma, beta, NULL), LK_F32, LK_SHAPE(0, 2, 3));
    check(lk_group_norm(ones(LK_BF16, LK_SHAPE(3, 2)), gamma, beta, NULL), LK_BF16, LK_SHAPE(3, 2));
}

static void test_refuses(void **state)
{
    (void)state;
    lk_tensor *x = f32(LK_SHAPE(4, 6, 2, 2)), *v = f32(LK_SHAPE(6));
    refused(lk_group_norm(v, v, v, NULL), LK_ERR_SHAPE, "group_norm: x has shape [6]; it must be [N, C, …]");
    refused(lk_group_norm(x, v, v, &(lk_group_norm_opts){.groups = 4}), LK_ERR_ARGUMENT,
            "group_norm: 4 groups for x [4,6,2,2]; they must divide the channels, axis 1");
    refused(lk_group_norm(x, v, v, &(lk_group_norm_opts){.groups = -1}), LK_ERR_ARGUMENT,
            "group_norm: -1 groups for x [4,6,2,2]; they must divide the channels, axis 1");
    refused(lk_group_norm(x, v, v, &(lk_group_norm_opts){.epsilon = NAN}), LK_ERR_ARGUMENT,
            "group_norm: epsilon is nan; it must be finite and at least 0");
    refused(lk_group_norm(x, f32(LK_SHAPE(4)), v, NULL), LK_ERR_SHAPE,
            "group_norm: gamma has shape [4]; it must be [6]");
    refused(lk_group_norm(x, v, ones(LK_F64, LK_SHAPE(6)), NULL), LK_ERR_DTYPE,
            "group_norm: beta is f64; it must be f32");
    refused(lk_group_norm(ones(LK_I32, LK_SHAPE(2, 2)), v, v, NULL), LK_ERR_DTYPE,
            "group_norm: x is i32; it must be f32, bf16 or f64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OPERATOR_TEST(test_values),
        OPERATOR_TEST(test_refuses),
    };
    return RUN_OPERATOR_TESTS(tests);
}
