/* Helpers of the engine's tests: two devices, an open scope, and a check whether a tensor has been computed. */
#pragma once

#include "core/engine.h"
#include "lockstep/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static inline bool is_complete(const lk_tensor *tensor)
{
    return lk__event_complete((lk_event){tensor->storage->writer.queue, tensor->storage->writer.sequence});
}

static inline double item(lk_tensor *tensor)
{
    double value = NAN;
    if (lk_tensor_item(tensor, &value) != LK_OK)
        fail_msg("%s", lk_error_message());
    return value;
}

static inline lk_tensor *number(lk_device *device, double value)
{
    return lk_full(device, LK_F32, LK_SCALAR, value);
}

typedef struct devices {
    lk_device *a, *b;
} devices;

static inline int set_up(void **state)
{
    static devices d;
    lk_error_clear();
    d = (devices){lk_device_open("ref:0"), lk_device_open("ref:1")};
    *state = &d;
    lk_scope_begin();
    return d.a && d.b ? 0 : -1;
}

static inline int tear_down(void **state)
{
    devices *d = *state;
    lk_scope_end();
    lk_device_release(d->a);
    lk_device_release(d->b);
    lk_error_clear();
    return 0;
}

/* A test whose state points to two open devices. */
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
