/* What several devices gained: where a step's time went, how fast the exchange is, and what more devices would give.
 * docs/scaling.md has the formulas. */
#ifndef LOCKSTEP_SCALING_H
#define LOCKSTEP_SCALING_H

#include "lockstep/train.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A worker of strategy parameter-server. Times are in seconds a step of its own, and what they are in the report. */
typedef struct lk_scaling_worker {
    char name[96]; /* "worker 1 on HOST" */
    int64_t devices, steps, samples;
    double step_seconds, compute, exchange, slowest, input, other;
    double computing; /* without an update */
} lk_scaling_worker;

enum { LK_SCALING_WORKERS = 64 };

/* Of one run. What was not measured is NAN, and a text empty. */
typedef struct lk_scaling_report {
    char model[64], data[64], strategy[32], transport[64], dtype[16], kind[16]; /* kind: of the devices */
    char implementations[24];   /* lk_plan.implementations, in hexadecimal digits */
    char host[256];             /* of the first process */
    char storage[32];           /* the device that stores the variables; empty: each has its own */
    int64_t devices, processes; /* devices: that compute, of all processes */
    int64_t storing_devices;    /* 1 where the one that stores is none of these */
    int64_t batch_size, shards, parameters;
    double images_per_second; /* lk_train_result's */

    /* Steps in which everything was recorded; 0: none were, and what follows up to `update` was not measured. Times are
     * in seconds a step, means over all devices, and the five add up to step_seconds. */
    int64_t steps;
    double step_seconds;
    double compute;           /* operators, and sums over a device's own shards */
    double exchange;          /* sums over several devices' shards, and waits for them: what backward did not hide */
    double slowest;           /* waits for devices that came later */
    double input;             /* no work, because a batch was not there */
    double other;             /* no work for another reason, and what lies between operators */
    char slowest_device[320]; /* the one that waited least: "cpu:1", or "cpu:1 of rank 0 on HOST"; one device: empty */
    double core_share;        /* part of the operators' time in which their threads had a core; 1 for GPUs */
    double computing;         /* compute * core_share, what a device needs where it has a core for itself; with a
                               * storing device, and all of `update` in it, which that one makes for all */
    double update;            /* the part of it that does not depend on how many shards a device has */

    /* Of the exchange, from timed sums when training had ended, in runs long enough for a window of steps. */
    double latency;      /* seconds a message; 0: too short to tell */
    double bandwidth;    /* bytes a second that go out of a device */
    int64_t messages;    /* from a device to each other one, in a step */
    double sliced_bytes; /* of a step's values, of which each device adds up a slice … */
    double whole_bytes;  /* … and of those that go whole to each other device, or to the storing one and from there */

    /* Of a run on one device with the same settings and of the same host, in the folder of the records; NAN: there was
     * none. */
    double one_device_images_per_second;

    /* Of strategy parameter-server, where above the following differs: devices are those of all workers that took part,
     * processes these workers; steps are theirs added up, without the first few of each, and times means over them, by
     * the clock; exchange is pulling and pushing; slowest is waiting, because of max_staleness, until others have
     * pushed, and slowest_device the worker with most time a sample for computing and exchange; input is waiting for a
     * hand-out and its samples; latency, bandwidth and messages are between a worker and each server, whole_bytes what
     * goes to and fro between a worker and all of them in a step. Other strategies: servers 0. */
    int64_t servers;
    double max_staleness; /* NAN: no limit */
    double step_samples;  /* of a worker's step, in the mean */
    double server_bytes;  /* in a worker's step, of the server that has most of it */
    double server_update; /* processor time for an update, of the slowest server; `update`: of all servers together */
    int64_t workers;
    lk_scaling_worker worker[LK_SCALING_WORKERS]; /* of `workers` the first to join */
} lk_scaling_report;

/* Measures fit, in every process that trains together, and before callbacks that look at the result. It records a
 * window of up to 20 steps, or of all but the first and last ones of an epoch, whatever is less; where something is
 * being recorded already it does not. When fit has ended well, and was not interrupted, it times the exchange. With
 * strategy parameter-server it records nothing: workers keep times of their own and tell the chief. dir: of
 * lk_callback_log_dir, to look for a run on one device; NULL: none. Errors: LK_ERR_MEMORY, those of lk_device_sync. */
LK_API lk_callback lk_callback_scaling(const char *dir);

/* What it has measured of the last fit, alike in every process but for the run on one device, which the first one alone
 * looks for; NULL: nothing. Valid until the next fit. */
LK_API const lk_scaling_report *lk_trainer_scaling(const lk_trainer *trainer);

/* One JSON object. The file is replaced as a whole. Errors: LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_scaling_write(const lk_scaling_report *report, const char *path);

/* path: such a file, or a folder of records, of which it is the last run's. Errors: LK_ERR_NOT_FOUND (a folder without
 * one, nothing of that name), LK_ERR_FORMAT (no such file; the message names place and field), LK_ERR_IO,
 * LK_ERR_MEMORY. */
LK_API lk_status lk_scaling_read(const char *path, lk_scaling_report *report);

/* --- what follows from it ---------------------------------------------------------------------------------------- */

typedef struct lk_speedup {
    double speedup;    /* over one device; NAN: not known */
    double efficiency; /* speedup / devices */
    bool measured;     /* else from this run's own computing time */
} lk_speedup;

/* Against the run on one device that the report knows of, else estimated; of GPUs it is not estimated, but for those of
 * parameter-server's workers. */
LK_API lk_speedup lk_scaling_speedup(const lk_scaling_report *report);

/* Sets many->one_device_images_per_second. Errors: LK_ERR_ARGUMENT: `one` is of several devices or of
 * parameter-server, its throughput was not measured, or the two differ in what they train, which the message names. */
LK_API lk_status lk_scaling_compare(const lk_scaling_report *one, lk_scaling_report *many);

/* The time of exchanging the gradients of a step between so many devices, or of a worker's step between so many workers
 * and their servers, by the measured latency and bandwidth; NAN where these were not measured. */
LK_API double lk_scaling_exchange_seconds(const lk_scaling_report *report, int64_t devices);

typedef struct lk_scaling_prediction {
    double step_seconds;
    double speedup; /* of samples a second, over one device, or over one worker by itself */
    double efficiency;
} lk_scaling_prediction;

/* Of `devices`, each with a core or GPU for itself, connected as the run's were; with servers, of so many workers, to
 * as many servers as the run had. `weak`: each has as many samples as in the run; else all have the run's batch
 * together, of whose shards each has ceil(shards / devices), which workers do where max_staleness is 0. False: not to
 * be predicted, for latency, bandwidth or computing time were not measured, or there are fewer shards than devices. */
LK_API bool lk_scaling_predict(const lk_scaling_report *report, int64_t devices, bool weak,
                               lk_scaling_prediction *prediction);

/* Updates a second that servers can take, however many workers there are; NAN: not measured, no servers, or workers
 * that share batches (max_staleness 0). */
LK_API double lk_scaling_most_updates(const lk_scaling_report *report);

#ifdef __cplusplus
}
#endif

#endif
