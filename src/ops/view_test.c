/* Views, which need no kernel, and concat. */
#include "ops/ops_test.h"

/* --- views -------------------------------------------------------------------------------------------------------- */

static void check_is_view(const lk_tensor *y, const lk_tensor *x, bool view)
{
    assert_non_null(y);
    assert_int_equal(y->storage == x->storage, view);
}

static void test_reshape(void **state)
{
    (void)state;
    static const float in_order[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                     12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
    lk_tensor *x = counting(LK_SHAPE(2, 3, 4)), *y;
    check_is_view(lk_reshape(x, LK_SHAPE(4, -1)), x, true);
    check_values(lk_reshape(x, LK_SHAPE(4, -1)), LK_SHAPE(4, 6), in_order);
    check_values(lk_reshape(x, LK_SHAPE(1, 2, 1, 12, 1)), LK_SHAPE(1, 2, 1, 12, 1), in_order);
    check_values(lk_flatten(x), LK_SHAPE(2, 12), in_order);
    check_is_view(lk_flatten(x), x, true);

    /* A reshape that only splits axes, or joins contiguous ones, returns a view. */
    lk_tensor *swapped = lk_transpose(x, 0, -1);
    y = lk_reshape(swapped, LK_SHAPE(2, 2, 3, 2));
    check_is_view(y, x, true);
    check_values(lk_slice(lk_slice(y, 0, 1, 2), 1, 1, 2), LK_SHAPE(1, 1, 3, 2), VALUES(3, 15, 7, 19, 11, 23));
    y = lk_reshape(lk_slice(x, 0, 1, 2), LK_SHAPE(12));
    check_is_view(y, x, true);
    check_values(y, LK_SHAPE(12), in_order + 12);
    y = lk_reshape(lk_expand(f32(LK_SHAPE(1, 3)), LK_SHAPE(4, 3)), LK_SHAPE(2, 2, 3));
    assert_int_equal(y->strides[0] + y->strides[1], 0);

    /* Any other reshape copies. */
    y = lk_reshape(swapped, LK_SHAPE(24));
    check_is_view(y, x, false);
    check_values(y, LK_SHAPE(24),
                 VALUES(0, 12, 4, 16, 8, 20, 1, 13, 5, 17, 9, 21, 2, 14, 6, 18, 10, 22, 3, 15, 7, 19, 11, 23));
    check_is_view(lk_reshape(lk_slice(x, 2, 0, 2), LK_SHAPE(2, 6)), x, false);

    check(lk_reshape(f32(LK_SHAPE(1, 1)), LK_SCALAR), LK_F32, LK_SCALAR);
    check(lk_reshape(f32(LK_SCALAR), LK_SHAPE(-1)), LK_F32, LK_SHAPE(1));
    check(lk_reshape(f32(LK_SHAPE(0, 3)), LK_SHAPE(7, 0)), LK_F32, LK_SHAPE(7, 0));
    check(lk_reshape(f32(LK_SHAPE(0, 3)), LK_SHAPE(3, -1)), LK_F32, LK_SHAPE(3, 0));
    check(lk_flatten(f32(LK_SHAPE(0, 3, 2))), LK_F32, LK_SHAPE(0, 6));
    check(lk_flatten(f32(LK_SHAPE(5))), LK_F32, LK_SHAPE(5, 1));

    refused(lk_reshape(x, LK_SHAPE(5, 5)), LK_ERR_SHAPE,
            "reshape: shape [2,3,4] has 24 elements, which [5,5] does not hold");
    refused(lk_reshape(x, LK_SHAPE(5, -1)), LK_ERR_SHAPE,
            "reshape: shape [2,3,4] has 24 elements, which [5,-1] does not hold");
    refused(lk_reshape(x, LK_SHAPE(-1, -1)), LK_ERR_SHAPE, "reshape: [-1,-1] has more than one size of -1");
    refused(lk_reshape(x, LK_SHAPE(-2)), LK_ERR_SHAPE, "reshape: shape [-2] has a negative size; sizes start at 0");
    refused(lk_reshape(f32(LK_SHAPE(0)), LK_SHAPE(0, -1)), LK_ERR_SHAPE,
            "reshape: the size of -1 in [0,-1] is not determined, since another size is 0");
    refused(lk_flatten(f32(LK_SCALAR)), LK_ERR_SHAPE, "flatten: x is a scalar; it must have at least one axis");
}

static void test_transpose_and_slice(void **state)
{
    (void)state;
    lk_tensor *x = counting(LK_SHAPE(2, 3));
    check_is_view(lk_transpose(x, 0, -1), x, true);
    check_values(lk_transpose(x, 0, -1), LK_SHAPE(3, 2), VALUES(0, 3, 1, 4, 2, 5));
    check_is_view(lk_slice(x, -1, 1, 3), x, true);
    check_values(lk_slice(x, -1, 1, 3), LK_SHAPE(2, 2), VALUES(1, 2, 4, 5));
    check(lk_slice(x, 0, 2, 2), LK_F32, LK_SHAPE(0, 3));
    check(lk_relu(lk_slice(x, 0, 2, 2)), LK_F32, LK_SHAPE(0, 3));

    refused(lk_transpose(x, 0, 2), LK_ERR_SHAPE, "transpose: axis 2 of a tensor with 2 dimensions");
    refused(lk_slice(x, -3, 0, 1), LK_ERR_SHAPE, "slice: axis -3 of a tensor with 2 dimensions");
    refused(lk_slice(x, 1, 2, 4), LK_ERR_SHAPE, "slice: [2, 4) is not within axis 1 of [2,3]; 0 <= begin <= end <= 3");
    refused(lk_slice(x, 0, -1, 1), LK_ERR_SHAPE,
            "slice: [-1, 1) is not within axis 0 of [2,3]; 0 <= begin <= end <= 2");
    refused(lk_slice(x, 0, 2, 1), LK_ERR_SHAPE, "slice: [2, 1) is not within axis 0 of [2,3]; 0 <= begin <= end <= 2");
}

static void test_expand(void **state)
{
    (void)state;
    lk_tensor *x = counting(LK_SHAPE(2, 1));
    check_is_view(lk_expand(x, LK_SHAPE(2, 2, 3)), x, true);
    check_values(lk_expand(x, LK_SHAPE(2, 2, 3)), LK_SHAPE(2, 2, 3), VALUES(0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1));
    check(lk_expand(x, LK_SHAPE(2, 0)), LK_F32, LK_SHAPE(2, 0));
    refused(lk_expand(x, LK_SHAPE(3, 3)), LK_ERR_SHAPE,
            "expand: [2,1] does not repeat to [3,3]: only sizes of 1 do, and axis 0 has 2");
    refused(lk_expand(x, LK_SHAPE(2)), LK_ERR_SHAPE, "expand: [2,1] has more axes than [2]");
    refused(lk_expand(f32(LK_SCALAR), LK_SHAPE(INT64_MAX, 3)), LK_ERR_SHAPE,
            "expand: shape [9223372036854775807,3] has more than 2^63 - 1 elements");
}

static void test_concat(void **state)
{
    (void)state;
    lk_tensor *x = counting(LK_SHAPE(2, 2));
    lk_tensor *three[] = {x, f32(LK_SHAPE(2, 0)), lk_slice(x, 1, 1, 2)};
    check_values(lk_concat(three, 3, -1), LK_SHAPE(2, 3), VALUES(0, 1, 1, 2, 3, 3));
    check_values(lk_concat(three, 1, 0), LK_SHAPE(2, 2), VALUES(0, 1, 2, 3));

    enum { MANY = 16 * 16 + 3 };
    lk_tensor *all = counting(LK_SHAPE(MANY)), *pieces[MANY];
    float expected[MANY];
    for (int i = 0; i < MANY; i++) {
        pieces[i] = lk_slice(all, 0, i, i + 1);
        expected[i] = (float)i;
    }
    check_values(lk_concat(pieces, MANY, 0), LK_SHAPE(MANY), expected);
    check_values(lk_concat(pieces, 17, 0), LK_SHAPE(17), expected);

    refused(lk_concat(three, 0, 0), LK_ERR_ARGUMENT, "concat: 0 tensors; it takes at least 1");
    refused(lk_concat(three, 3, 0), LK_ERR_SHAPE,
            "concat: x[0] has shape [2,2] and x[1] [2,0]; they may differ in axis 0 only");
    refused(lk_concat(three, 3, 2), LK_ERR_SHAPE, "concat: axis 2 of a tensor with 2 dimensions");
    three[1] = f32(LK_SHAPE(2));
    refused(lk_concat(three, 3, 0), LK_ERR_SHAPE,
            "concat: x[0] has shape [2,2] and x[1] [2]; they may differ in axis 0 only");
    three[1] = ones(LK_I32, LK_SHAPE(2, 2));
    refused(lk_concat(three, 3, 0), LK_ERR_DTYPE,
            "concat: x[0] is f32 and x[1] i32; they must have one dtype (lk_cast converts)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OPERATOR_TEST(test_reshape),
        OPERATOR_TEST(test_transpose_and_slice),
        OPERATOR_TEST(test_expand),
        OPERATOR_TEST(test_concat),
    };
    return RUN_OPERATOR_TESTS(tests);
}
