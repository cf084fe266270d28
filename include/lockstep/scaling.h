/* The speed-up of several devices: where the time of a step went, how fast the exchange is, and a prediction for more
 * devices. docs/scaling.md has the formulas.
 *
 *     lk_trainer_add(trainer, lk_callback_scaling(NULL));
 *     lk_trainer_fit(trainer, &result);
 *     lk_speedup s = lk_scaling_speedup(lk_trainer_scaling(trainer)); */
#ifndef LOCKSTEP_SCALING_H
#define LOCKSTEP_SCALING_H

#include "lockstep/train.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A worker of strategy parameter-server. Times are in seconds per step of this worker, with the meanings of
 * lk_scaling_report. */
typedef struct lk_scaling_worker {
    char name[96]; /* "worker 1 on HOST" */
    int64_t devices, steps, samples;
    double step_seconds, compute, exchange, slowest, input, other;
    double computing; /* as in the report, without updates */
} lk_scaling_worker;

enum { LK_SCALING_WORKERS = 64 };

/* The measurements of one run. NAN, and an empty text: not measured. */
typedef struct lk_scaling_report {
    char model[64], data[64], strategy[32], transport[64], dtype[16], kind[16]; /* names; kind: of the devices */
    char implementations[24];   /* lk_plan.implementations, in hexadecimal digits */
    char host[256];             /* name of the first process's machine */
    char storage[32];           /* device that stores the variables; empty: each device has its own */
    int64_t devices, processes; /* devices: those that compute, in all processes */
    int64_t storing_devices;    /* 1: the storing device is none of these; else 0 */
    int64_t batch_size, shards, parameters;
    double images_per_second; /* as in lk_train_result */

    /* The number of recorded steps; 0: none, and members up to `update` were not measured. Times are in seconds per
     * step, means over all devices. The five from compute to other add up to step_seconds. */
    int64_t steps;
    double step_seconds;
    double compute;           /* operators, and sums over a device's own shards */
    double exchange;          /* sums over several devices, and waits for them, that backward did not hide */
    double slowest;           /* waits for slower devices */
    double input;             /* idle because a batch was not ready */
    double other;             /* idle for another reason, and time between operators */
    char slowest_device[320]; /* the one that waited least: "cpu:1", or "cpu:1 of rank 0 on HOST"; one device: empty */
    double core_share;        /* share of the operators' time in which their threads had a core; 1 for GPUs */
    double computing;         /* compute * core_share: the time of a device with a core of its own; with a storing
                               * device it includes all of `update`, which that device makes for all */
    double update;            /* the part of `computing` that does not depend on the number of shards */

    /* The exchange, from sums that were timed after training, if the run was long enough to record steps. */
    double latency;       /* seconds per message; 0: too short to measure */
    double bandwidth;     /* bytes per second that a device sends */
    int64_t messages;     /* from a device to each other one, per step, if it does not go along the tree */
    int64_t tree_devices; /* so many devices or more exchange along the tree: lk_strategy_set_exchange; 0: none do */
    double message_share; /* the share of `latency` that every message of a step takes; the rest is once a step */
    double sliced_bytes;  /* per step, of tensors of which each device adds up a slice */
    double whole_bytes;   /* per step, of tensors sent whole to each other device, or to the storing one and back */

    /* Throughput of an earlier run on one device that lk_scaling_compare accepts, on the same machine, recorded in the
     * same folder; NAN: there was none. */
    double one_device_images_per_second;

    /* Strategy parameter-server; with others servers is 0. Members above then have these meanings: devices are those of
     * all workers that took part, and processes are these workers. steps are those of all workers, without the first
     * few of each, and times are means over them, by the clock. exchange is pulling and pushing; slowest is waiting
     * until others have pushed, because of max_staleness; slowest_device is the worker with most time per sample for
     * computing and exchange; input is waiting for a batch and its samples. latency, bandwidth and messages are between
     * a worker and each server, and whole_bytes is what a worker and all servers send each other per step. */
    int64_t servers;
    double max_staleness; /* NAN: no limit */
    double step_samples;  /* mean samples per step of a worker */
    double server_bytes;  /* bytes per step of a worker to and from the server with most of them */
    double server_update; /* seconds of processor time for an update on the slowest server; `update`: of all servers */
    int64_t workers;
    lk_scaling_worker worker[LK_SCALING_WORKERS]; /* the first `workers`, at most LK_SCALING_WORKERS, to join */
} lk_scaling_report;

/* Measures lk_trainer_fit. Add it in every process, and before callbacks that use the report. It records up to 20 steps
 * in the middle of an epoch, unless something is being recorded already, and times the exchange after a training
 * without an error or interrupt. With strategy parameter-server it records nothing: workers measure their steps and
 * tell the chief. dir: folder of lk_callback_log_dir, in which to look for a run on one device; NULL: none. Errors:
 * LK_ERR_MEMORY, those of lk_device_sync. */
LK_API lk_callback lk_callback_scaling(const char *dir);

/* The report of the last fit; NULL: there is none. It is the same in every process, except for the run on one device,
 * which only the first process looks for. Valid until the next fit. */
LK_API const lk_scaling_report *lk_trainer_scaling(const lk_trainer *trainer);

/* Writes the report as a JSON object. The file is replaced as a whole. Errors: LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_scaling_write(const lk_scaling_report *report, const char *path);

/* Reads a report from its file, or the last one from a folder of records. A warning (lk_log_set) says if the folder has
 * a later run without one. Errors: LK_ERR_NOT_FOUND (no such path, or a folder without reports), LK_ERR_FORMAT (not
 * such a file; the message names position and field), LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_scaling_read(const char *path, lk_scaling_report *report);

/* Likewise, and writes the path that the run's records (lk_run_read) would have to records[0 … PATH_MAX); "": `path` is
 * a file with another name than scaling.json, scaling-2.json and so on. */
LK_API lk_status lk_scaling_read_run(const char *path, lk_scaling_report *report, char *records);

/* --- what follows from it ----------------------------------------------------------------------------------------- */

typedef struct lk_speedup {
    double speedup;    /* compared with one device; NAN: not known */
    double efficiency; /* speedup / devices */
    bool measured;     /* false: estimated from this run's computing time */
} lk_speedup;

/* The speed-up compared with the run on one device that the report knows of; without one it is estimated, but not for
 * GPUs, unless they are those of parameter-server's workers. */
LK_API lk_speedup lk_scaling_speedup(const lk_scaling_report *report);

/* Reasons not to believe times. LK_SCALING_DISTURBED: other programs, or more devices than cores, took a tenth of the
 * cores' time or more. LK_SCALING_UNLIKE_RUN: the recorded steps took a fifth more or less time than the run's average
 * one, so that a speed-up that is estimated from them says little. */
enum { LK_SCALING_DISTURBED = 1, LK_SCALING_UNLIKE_RUN = 2 };

/* Returns those of the report's, combined by |; 0: none. */
LK_API unsigned lk_scaling_doubts(const lk_scaling_report *report);

/* Sets many->one_device_images_per_second from the run `one`. Both must have the same model, data, parameters, kind,
 * dtype, batch_size, shards and implementations. Errors: LK_ERR_ARGUMENT (one of these differs, which the message
 * names; `one` has several devices, is of parameter-server or has no recorded steps; a throughput was not measured). */
LK_API lk_status lk_scaling_compare(const lk_scaling_report *one, lk_scaling_report *many);

/* The most devices that anything is predicted of. */
enum { LK_SCALING_MAX_DEVICES = 1 << 30 };

/* Seconds to exchange the gradients of a step between `devices` devices or, with servers, those of a worker's step
 * between that many workers and the servers, from the measured latency and bandwidth. NAN: these were not measured, or
 * `devices` is not in 1 … LK_SCALING_MAX_DEVICES. */
LK_API double lk_scaling_exchange_seconds(const lk_scaling_report *report, int64_t devices);

typedef struct lk_scaling_prediction {
    double step_seconds;
    double speedup; /* of samples per second, compared with one device, or one worker alone */
    double efficiency;
} lk_scaling_prediction;

/* Predicts `devices` devices, each with a core or GPU of its own, connected as those of the run; with servers, that
 * many workers on as many servers as the run had. weak: each device has as many samples as in the run. Otherwise all
 * share the run's batch, and each has up to ceil(shards / devices) of its shards, as workers do if max_staleness is 0.
 * False: none; latency, bandwidth or computing time were not measured, there are more devices than shards, or `devices`
 * is not in 1 … LK_SCALING_MAX_DEVICES. */
LK_API bool lk_scaling_predict(const lk_scaling_report *report, int64_t devices, bool weak,
                               lk_scaling_prediction *prediction);

/* The most updates per second that servers can apply, with any number of workers; NAN: not measured, no servers, or
 * workers that share batches (max_staleness 0). */
LK_API double lk_scaling_most_updates(const lk_scaling_report *report);

#ifdef __cplusplus
}
#endif

#endif
