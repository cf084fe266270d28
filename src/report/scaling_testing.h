/* For tests of scaling reports: a report with known numbers, and a folder that is removed with the test. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "io/bytes.h"
#include "lockstep/scaling.h"

#include "base/mem.h"
#include "report/scaling_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define assert_ok(expression)                   \
    do {                                        \
        if ((expression) != LK_OK)              \
            fail_msg("%s", lk_error_message()); \
    } while (0)

#define assert_near(have, want) assert_true(fabs((have) - (want)) <= 1e-9 * fabs(want))

static inline void expect_error(lk_status have, lk_status status, const char *part)
{
    assert_int_equal(have, status);
    if (!strstr(lk_error_message(), part))
        fail_msg("'%s' lacks '%s'", lk_error_message(), part);
    lk_error_clear();
}

/* Two devices: 10 ms of computing each, 1 of it for the update; 2 ms of exchange, half of it hidden. */
static inline lk_scaling_report known_report(void)
{
    lk_scaling_report r;
    lk__scaling_clear(&r);
    strcpy(r.model, "lenet");
    strcpy(r.data, "synthetic");
    strcpy(r.strategy, "mirrored");
    strcpy(r.dtype, "f32");
    strcpy(r.kind, "cpu");
    strcpy(r.host, "host");
    strcpy(r.slowest_device, "cpu:1");
    r.devices = 2;
    r.processes = 1;
    r.batch_size = 64;
    r.shards = 8;
    r.steps = 20;
    r.images_per_second = 4000;
    r.step_seconds = 0.016;
    r.compute = r.computing = 0.010;
    r.core_share = 1;
    r.update = 0.001;
    r.exchange = 0.001;
    r.slowest = 0.002;
    r.input = 0.001;
    r.other = 0.002;
    r.latency = 1e-4;
    r.bandwidth = 1e9;
    r.messages = 3;
    r.sliced_bytes = 1.6e6;
    r.whole_bytes = 1e5;
    return r;
}

/* --- a folder ----------------------------------------------------------------------------------------------------- */

static inline int make_dir(void **state)
{
    static char dir[64];
    snprintf(dir, sizeof dir, "/tmp/lockstep-scaling-XXXXXX");
    *state = mkdtemp(dir);
    return *state ? 0 : -1;
}

static inline int remove_dir(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", (char *)*state);
    return system(command);
}

static inline const char *in_dir(void **state, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", (char *)*state, name);
    return path;
}

static inline void write_text(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}
