/* A small program runs while each of its allocations in turn fails. It must end with a clear error or, if the engine
 * can do without the memory, with the right result. LeakSanitizer looks for leaks; nothing may hang. */
#include "core/engine.h"
#include "base/mem_testing.h"
#include "lockstep/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void count(void *user)
{
    ++*(int *)user;
}

/* Operators that allocate in several ways. Needs an open scope. */
static lk_status compute(lk_device *a, lk_device *b, float *result, size_t bytes)
{
    static const float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    lk_tensor *x = lk_reshape(lk_tensor_from(a, LK_F32, LK_SHAPE(12), data), LK_SHAPE(1, 1, 3, 4));
    lk_tensor *w = lk_ones(a, LK_F32, LK_SHAPE(2, 1, 2, 2));
    lk_tensor *y = lk_relu(lk_conv2d(x, w, NULL, NULL));
    y = lk_matmul(lk_reshape(y, LK_SHAPE(4, 3)), lk_ones(a, LK_F32, LK_SHAPE(3, 5)));
    lk_tensor *parts[] = {lk_slice(y, 0, 0, 2), lk_slice(y, 0, 2, 4)};
    lk_tensor *z = lk_copy(lk_transpose(lk_concat(parts, 2, 1), 0, 1), b);
    lk_status status = lk_add_into(z, z, z);
    return status == LK_OK ? lk_tensor_read(lk_sum(z, NULL), result, bytes) : status;
}

static lk_status run(lk_device *a, lk_device *b, float *result)
{
    static float memory[64];
    int released = 0;
    lk_scope_begin();
    lk_tensor *wrapped = lk_tensor_wrap(a, LK_F32, LK_SHAPE(4, 16), memory, count, &released);
    int expected = wrapped != NULL;
    lk_status status = wrapped ? compute(a, b, result, sizeof *result) : lk_error_status();
    lk_scope_end();
    lk_status waited = lk_wait_all();
    assert_int_equal(released, expected);
    return status != LK_OK ? status : waited;
}

static void assert_nothing_held(const lk_device *device)
{
    int64_t now, peak;
    lk_device_memory(device, &now, &peak);
    assert_int_equal(now, 0);
}

/* Opens devices, runs and closes while an allocation fails. */
static void survive(failing *f, const char *spec, float expected)
{
    lk_device *devices[2];
    float result = NAN;
    int opened;
    lk_status status = lk_devices_open(spec, devices, 2, &opened);
    if (status == LK_OK) {
        assert_int_equal(opened, 2);
        status = run(devices[0], devices[1], &result);
        assert_nothing_held(devices[0]);
        assert_nothing_held(devices[1]);
        lk_devices_release(devices, 2);
    }
    stop_failing(f);
    if (status == LK_OK) {
        assert_true(result == expected);
    } else {
        assert_true(f->reached);
        assert_int_equal(status, LK_ERR_MEMORY);
        assert_int_equal(lk_error_status(), LK_ERR_MEMORY);
        assert_non_null(strstr(lk_error_message(), "out of memory"));
    }
}

static void fail_each(const char *spec)
{
    enum { FEWEST = 40, MOST = 2000 };
    const float expected =
        2 * 5 * 2 * (10 + 14 + 18 + 26 + 30 + 34); /* for z + z, columns and channels; the sums of the windows */
    failing f = fail_every(1);
    while (f.n < MOST && fail_next(&f))
        survive(&f, spec, expected);
    assert_true(f.n >= FEWEST && f.n < MOST);
}

static void every_allocation_may_fail_with_plain_kernels(void **state)
{
    (void)state;
    fail_each("2xref");
}

static void every_allocation_may_fail_with_the_best_kernels(void **state)
{
    (void)state;
    fail_each("2xcpu");
}

static void every_allocation_may_fail_with_two_kinds(void **state)
{
    (void)state;
    fail_each("cpu,ref");
}

/* The same with the synchronous engine, which allocates in a fixed order. */
static void every_allocation_may_fail_synchronously(void **state)
{
    (void)state;
    assert_int_equal(setenv("LOCKSTEP_ENGINE", "sync", 1), 0);
    assert_true(lk__engine_is_sync());
    fail_each("2xref");
    fail_each("2xcpu");
    assert_int_equal(unsetenv("LOCKSTEP_ENGINE"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail_with_plain_kernels),
        cmocka_unit_test(every_allocation_may_fail_with_the_best_kernels),
        cmocka_unit_test(every_allocation_may_fail_with_two_kinds),
        cmocka_unit_test(every_allocation_may_fail_synchronously),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
