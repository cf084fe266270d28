/* Recordings of a run: every operator with its shapes, what queues and threads waited for, and where devices' time
 * went.
 *
 *     lk_trace_start(NULL);
 *     … run something …
 *     lk_wait_all();
 *     lk_trace *trace = lk_trace_stop();
 *     lk_trace_write(trace, "trace.json");        for ui.perfetto.dev
 *     lk_trace_release(trace);
 *
 * A recording covers the whole process. Without one, tracing costs a load and a comparison per task. */
#ifndef LOCKSTEP_TRACE_H
#define LOCKSTEP_TRACE_H

#include "lockstep/tensor.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A recording that has ended. */
typedef struct lk_trace lk_trace;

typedef struct lk_trace_opts {
    /* Most events to keep, of all threads together, rounded to steps of 4,096; an event takes 32 bytes. Later ones are
     * counted and dropped. 0: 1,048,576. */
    int64_t max_events;
} lk_trace_opts;

/* Begins to record. opts NULL: defaults. Errors: LK_ERR_STATE (a recording is running), LK_ERR_ARGUMENT (max_events
 * below 0), LK_ERR_MEMORY. */
LK_API lk_status lk_trace_start(const lk_trace_opts *opts);

/* Ends recording, from any thread, and gives the recording; release it with lk_trace_release. Work in flight is left
 * out, so call lk_wait_all first. NULL on failure: LK_ERR_STATE (no recording is running). */
LK_API lk_trace *lk_trace_stop(void);
LK_API void lk_trace_release(lk_trace *trace);

/* The number of events that were dropped, because of max_events or lack of memory. */
LK_API int64_t lk_trace_dropped(const lk_trace *trace);

/* Writes the recording to `path` in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing show: an
 * object with "traceEvents". Its threads, in the order of their names, are the devices, the threads that call the
 * library and the workers of loaders. An operator is a complete event ("ph": "X") whose "cat" is operator, shard sum
 * (over a device's own shards) or exchange (over several devices); its "args" are "inputs" and "outputs"
 * (["f32[32,1,28,28]", …]) and, if the operator counts them, "flops". Other categories are wait, input, loader and
 * host. Counters ("ph": "C") are numbers of calls in a device's queue. "otherData" has the number of dropped events.
 * Times are in microseconds since recording began. The file is replaced as a whole. trace NULL: a recording without
 * events, to check that the file can be written; into a pipe nothing is written. Errors: LK_ERR_IO, LK_ERR_ARGUMENT (a
 * path that is too long), LK_ERR_MEMORY. */
LK_API lk_status lk_trace_write(const lk_trace *trace, const char *path);

/* All calls of one operator with operands of the same dtypes and shapes, on all devices. */
typedef struct lk_trace_operator {
    const char *name;     /* "conv2d" */
    const char *category; /* "cat" of lk_trace_write */
    const char *problem;  /* "f32[32,1,28,28] f32[20,1,5,5] -> f32[32,20,24,24]" */
    int64_t calls;
    double seconds; /* of all calls, without operators that ran inside them */
    double flops;   /* of all calls, as the operator counts them; 0: it does not */
    double bytes;   /* of inputs and outputs of all calls */
} lk_trace_operator;

/* The parts of one device's time. All are in seconds; the others add up to `seconds`. */
typedef struct lk_trace_device {
    const char *name;
    double seconds;    /* from the beginning of recording to its end */
    double compute;    /* operators other than the following */
    double shard_sums; /* operators that sum over the device's own shards */
    double exchange;   /* operators that sum over several devices, and waits while they run on other devices */
    double slowest;    /* other waits for other devices; with several devices also idle time while a caller waited for
                        * results */
    double input;      /* idle while a caller waited for a batch or prepared one */
    double other;      /* idle for another reason, waits for a core, and time between calls */
} lk_trace_device;

typedef struct lk_trace_summary {
    lk_trace_operator *operators; /* [n_operators], those that took longest first */
    int n_operators;
    lk_trace_device *devices; /* [n_devices], in the order of their names; only those that ran or waited */
    int n_devices;
    double seconds; /* from the beginning of recording to its end */
} lk_trace_summary;

/* Adds up a recording. The summary stays valid when the recording is released. NULL on failure: LK_ERR_MEMORY. */
LK_API lk_trace_summary *lk_trace_summarize(const lk_trace *trace);
LK_API void lk_trace_summary_release(lk_trace_summary *summary);

/* --- measuring devices --- */

/* Sets *flops to the floating-point operations per second that the device can do, the best of several runs. CPU devices
 * run independent f32 multiply-adds in registers for about a millisecond, whatever `dtype` is. GPUs run a large product
 * of square matrices of `dtype`, LK_F32 (in TF32 if that is allowed) or LK_BF16. Blocks. Errors: those of
 * lk_device_sync, LK_ERR_STATE (the device was released), LK_ERR_DTYPE (another dtype), LK_ERR_UNSUPPORTED (a device
 * that cannot be measured). */
LK_API lk_status lk_device_measure_peak(lk_device *device, lk_dtype dtype, double *flops);

/* Sets *bytes to the bytes per second that a copy in the device's own memory reads and writes, the best of several
 * runs, of 256 MiB unless that takes longer than 2 ms. 0: the device uses the process's memory. Blocks. Errors: those
 * of lk_device_sync, LK_ERR_STATE (the device was released). */
LK_API lk_status lk_device_measure_copy(lk_device *device, double *bytes);

#ifdef __cplusplus
}
#endif

#endif
