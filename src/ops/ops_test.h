/* Shared by the tests of operators: two devices that have only the reference kernels, and checks of results and of
 * refusals. */
#pragma once

#include "core/tensor.h"
#include "ops/ops.h"
#include "core/shape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static lk_device *device, *other;

static inline int open_devices(void **state)
{
    (void)state;
    device = lk_device_open("ref:0");
    other = lk_device_open("ref:1");
    return device && other ? 0 : -1;
}

static inline int close_devices(void **state)
{
    (void)state;
    lk_device_release(device);
    lk_device_release(other);
    return 0;
}

static inline int begin(void **state)
{
    (void)state;
    lk_error_clear();
    lk_scope_begin();
    return 0;
}

static inline int end(void **state)
{
    (void)state;
    lk_scope_end();
    return lk_wait_all() == LK_OK ? 0 : -1;
}

static inline lk_tensor *ones(lk_dtype dtype, lk_shape shape)
{
    lk_tensor *x = lk_full(device, dtype, shape, 1.0);
    assert_non_null(x);
    return x;
}

static inline lk_tensor *f32(lk_shape shape)
{
    return ones(LK_F32, shape);
}

/* 0, 1, 2, … */
static inline lk_tensor *counting(lk_shape shape)
{
    int64_t count;
    assert_int_equal(lk__shape_count(shape, &count), LK_OK);
    lk_tensor *x = lk_reshape(lk_arange(device, LK_F32, count, 0, 1), shape);
    assert_non_null(x);
    return x;
}

static inline void check(lk_tensor *x, lk_dtype dtype, lk_shape shape)
{
    if (!x)
        fail_msg("%s", lk_error_message());
    char have[128], want[128];
    lk__shape_text(x->shape, have, sizeof have);
    lk__shape_text(shape, want, sizeof want);
    assert_string_equal(have, want);
    assert_string_equal(lk_dtype_name(x->dtype), lk_dtype_name(dtype));
    if (lk_tensor_wait(x) != LK_OK)
        fail_msg("%s", lk_error_message());
}

static inline void check_values(lk_tensor *x, lk_shape shape, const float *values)
{
    check(x, LK_F32, shape);
    size_t size = (size_t)lk_tensor_count(x) * sizeof(float);
    float *have = malloc(size + 1);
    assert_non_null(have);
    lk_status status = lk_tensor_read(x, have, size);
    bool equal = memcmp(have, values, size) == 0;
    for (size_t i = 0; !equal && i < size / sizeof(float); i++)
        print_error("[%zu] %g, expected %g\n", i, (double)have[i], (double)values[i]);
    free(have);
    assert_int_equal(status, LK_OK);
    assert_true(equal);
}

#define VALUES(...) ((const float[]){__VA_ARGS__})

static inline void refused(lk_tensor *x, lk_status status, const char *message)
{
    assert_null(x);
    assert_string_equal(lk_error_message(), message);
    assert_int_equal(lk_error_status(), status);
    lk_error_clear();
}

static inline void refused_status(lk_status have, lk_status status, const char *message)
{
    assert_int_equal(have, status);
    refused(NULL, status, message);
}

#define OPERATOR_TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)
#define RUN_OPERATOR_TESTS(tests) cmocka_run_group_tests(tests, open_devices, close_devices)
