/* For tests of scaling reports: a report with known numbers. */
#pragma once

#include "base/folder_testing.h"
#include "base/status_testing.h"
#include "io/bytes.h"
#include "lockstep/scaling.h"

#include "report/scaling_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define assert_near(have, want) assert_true(fabs((have) - (want)) <= 1e-9 * fabs(want))

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
    r.update = r.exchange = r.input = 0.001;
    r.slowest = r.other = 0.002;
    r.latency = 1e-4;
    r.bandwidth = 1e9;
    r.messages = 3;
    r.message_share = 1;
    r.sliced_bytes = 1.6e6;
    r.whole_bytes = 1e5;
    return r;
}
