/* Shapes: which can be counted, and which are refused. */
#include "base/status.h"
#include "base/status_testing.h"
#include "core/tensor.h"
#include "core/shape.h"

#include <string.h>

static void elements_are_counted(void **state)
{
    (void)state;
    assert_int_equal(lk_shape_count(LK_SCALAR), 1);
    assert_int_equal(lk_shape_count(LK_SHAPE(2, 3, 4)), 24);
    assert_int_equal(lk_shape_count(LK_SHAPE(2, 0, 4)), 0);
    assert_int_equal(lk_shape_count(LK_SHAPE(INT64_MAX)), INT64_MAX);
}

static void what_cannot_be_counted_is_minus_one(void **state)
{
    (void)state;
    assert_int_equal(lk_shape_count(LK_SHAPE(2, -1)), -1);
    assert_int_equal(lk_shape_count(LK_SHAPE(INT64_MAX, 2)), -1);
    assert_int_equal(lk_shape_count(LK_SHAPE(0, INT64_MAX, 2)), -1); /* strides could not be counted */
    assert_int_equal(lk_shape_count(LK_SHAPE(2, 0, 3)), 0);
    assert_int_equal(lk_shape_count((lk_shape){.ndim = LK_MAX_DIMS + 1}), -1);
    assert_int_equal(lk_shape_count((lk_shape){.ndim = -1}), -1);
}

static void bytes_are_refused_with_the_reason(void **state)
{
    (void)state;
    size_t bytes;
    assert_int_equal(lk__shape_bytes(LK_SHAPE(2, 3), LK_F64, &bytes), LK_OK);
    assert_int_equal(bytes, 48);
    expect_error(lk__shape_bytes(LK_SHAPE(2, -3), LK_F32, &bytes), LK_ERR_SHAPE,
                 "shape: size -3 of dimension 1 is negative");
    expect_error(lk__shape_bytes(LK_SHAPE(INT64_MAX, 2), LK_F32, &bytes), LK_ERR_SHAPE,
                 "shape: more elements than 64 bits can count");
    expect_error(lk__shape_bytes(LK_SHAPE(INT64_MAX), LK_F32, &bytes), LK_ERR_SHAPE,
                 "shape: more bytes than 64 bits can count");
    expect_error(lk__shape_bytes((lk_shape){.ndim = 7}, LK_F32, &bytes), LK_ERR_SHAPE,
                 "shape: 7 dimensions, where 0 to 6 are possible");
    expect_error(lk__shape_bytes(LK_SCALAR, LK_DTYPE_COUNT, &bytes), LK_ERR_DTYPE, "dtype 6 does not exist");
}

static void texts_fit_or_are_cut(void **state)
{
    (void)state;
    char text[8];
    lk__shape_text(LK_SCALAR, text, sizeof text);
    assert_string_equal(text, "[]");
    lk__shape_text(LK_SHAPE(2, 3), text, sizeof text);
    assert_string_equal(text, "[2,3]");
    lk__shape_text(LK_SHAPE(20000, 30000), text, sizeof text);
    assert_string_equal(text, "[20000,");
    lk__shape_text(LK_SHAPE(2), text, 0);
    assert_string_equal(text, "[20000,");
}

static void axes_count_from_both_ends(void **state)
{
    (void)state;
    int axis;
    assert_int_equal(lk__axis("sum", -1, 3, &axis), LK_OK);
    assert_int_equal(axis, 2);
    assert_int_equal(lk__axis("sum", 0, 3, &axis), LK_OK);
    assert_int_equal(axis, 0);
    expect_error(lk__axis("sum", 3, 3, &axis), LK_ERR_SHAPE, "sum: axis 3 of a tensor with 3 dimensions");
    expect_error(lk__axis("sum", -2, 1, &axis), LK_ERR_SHAPE, "sum: axis -2 of a tensor with 1 dimension");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_counted),
        cmocka_unit_test(what_cannot_be_counted_is_minus_one),
        cmocka_unit_test(bytes_are_refused_with_the_reason),
        cmocka_unit_test(texts_fit_or_are_cut),
        cmocka_unit_test(axes_count_from_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
