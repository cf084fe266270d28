/* Devices for tests. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockstep/device.h"

static inline lk_device *open_device(const char *spec)
{
    lk_device *device = lk_device_open(spec);
    if (!device)
        fail_msg("%s", lk_error_message());
    return device;
}

static struct {
    lk_device **device;
    const char *spec;
} of_group;

static inline int open_of_group(void **state)
{
    (void)state;
    *of_group.device = lk_device_open(of_group.spec);
    return *of_group.device ? 0 : -1;
}

static inline int close_of_group(void **state)
{
    (void)state;
    lk_device_release(*of_group.device);
    return 0;
}

/* Runs tests that share the device `*variable`. */
#define RUN_ON_DEVICE(tests, variable, name) \
    (of_group.device = (variable), of_group.spec = (name), cmocka_run_group_tests(tests, open_of_group, close_of_group))
