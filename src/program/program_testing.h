/* Shared by the tests of programs: devices, numbers, and comparing them. */
#pragma once

#include "base/status_testing.h"
#include "core/device_testing.h"
#include "lockstep/ops.h"
#include "lockstep/program.h"
#include "program/program.h"

#include <stdlib.h>

/* Opens the GPU that $LOCKSTEP_TEST_DEVICES names, or skips the test. */
static inline lk_device *open_gpu(void)
{
    const char *spec = getenv("LOCKSTEP_TEST_DEVICES");
    if (!spec) {
        print_message("SKIP: LOCKSTEP_TEST_DEVICES names no GPU\n");
        skip();
    }
    return open_device(spec);
}

/* Makes f32 numbers in [-1, 1], different for each seed. */
static inline lk_tensor *numbers(lk_device *device, lk_shape shape, int seed)
{
    int64_t n = lk_shape_count(shape);
    float *values = malloc((size_t)(n ? n : 1) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)((i * 7919 + seed * 104729) % 2003) / 1001 - 1;
    lk_tensor *tensor = lk_tensor_from(device, LK_F32, shape, values);
    free(values);
    if (!tensor)
        fail_msg("%s", lk_error_message());
    return tensor;
}

/* Compares bit by bit. */
static inline void expect_equal(lk_tensor *have, lk_tensor *want)
{
    size_t bytes = (size_t)lk_tensor_count(want) * lk_dtype_size(lk_tensor_dtype(want));
    char *a = malloc(bytes ? bytes : 1), *b = malloc(bytes ? bytes : 1);
    assert_non_null(a);
    assert_non_null(b);
    assert_ok(lk_tensor_read(have, a, bytes));
    assert_ok(lk_tensor_read(want, b, bytes));
    assert_memory_equal(a, b, bytes);
    free(a);
    free(b);
}

/* Returns how many calls of a program are of this operator. */
static inline int count_of(const lk_program *program, int op)
{
    int n = 0;
    for (int i = 0; i < program->n_calls; i++)
        n += program->calls[i].op->id == op;
    return n;
}
