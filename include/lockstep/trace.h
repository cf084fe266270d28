/* A look inside a run: every operator with its shapes, what queues and threads waited for, and where devices' time
 * went.
 *
 * Recording is of the whole process. While nothing is recorded it costs a load and a comparison a task. */
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
    /* The most that is kept, of all threads together, in steps of 4,096; an event takes 32 bytes. What comes later is
     * counted and dropped. 0: 1,048,576. */
    int64_t max_events;
} lk_trace_opts;

/* Begins to record; opts NULL: defaults. Errors: LK_ERR_STATE (something is being recorded), LK_ERR_MEMORY. */
LK_API lk_status lk_trace_start(const lk_trace_opts *opts);

/* Ends recording, from any thread, and gives what was recorded, to be released; NULL where nothing was being recorded
 * (LK_ERR_STATE). Work that is under way is left out: for all of it call lk_wait_all first. */
LK_API lk_trace *lk_trace_stop(void);
LK_API void lk_trace_release(lk_trace *trace);

/* Events that were dropped, because there was no room or no memory for them. */
LK_API int64_t lk_trace_dropped(const lk_trace *trace);

/* Writes the recording to `path` in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing show: an
 * object with "traceEvents". Each device, each thread that calls the library and each worker of a loader is a thread of
 * it, in order of their names. An operator is a complete event ("ph": "X") whose "cat" is operator, shard sum (a sum
 * over a device's own shards) or exchange (over those of several devices), with "args": "inputs" and "outputs"
 * (["f32[32,1,28,28]", …]) and "flops" (of the operators that count them). Other categories: wait, input, loader, host.
 * Counters ("ph": "C") hold how many calls were in a device's queue. "otherData" says how many events were dropped.
 * Times are in microseconds since recording began. A file that is there is replaced as a whole. trace NULL: one without
 * events, to see whether the file can be written. Errors: LK_ERR_IO, LK_ERR_MEMORY. */
LK_API lk_status lk_trace_write(const lk_trace *trace, const char *path);

/* All calls of one operator with operands of the same dtypes and shapes, on all devices. */
typedef struct lk_trace_operator {
    const char *name;     /* "conv2d" */
    const char *category; /* as in the file */
    const char *problem;  /* "f32[32,1,28,28] f32[20,1,5,5] -> f32[32,20,24,24]" */
    int64_t calls;
    double seconds; /* without operators that ran within it */
    double flops;   /* of all calls, as the operator counts them; 0 where it does not */
    double bytes;   /* of all calls' inputs and outputs, each read or written once */
} lk_trace_operator;

/* Where the time of one device went, in seconds; all but `seconds` add up to `seconds`. */
typedef struct lk_trace_device {
    const char *name;
    double seconds;    /* from the beginning of recording to its end */
    double compute;    /* operators that are not of a reduction */
    double shard_sums; /* operators that sum over the device's own shards */
    double exchange;   /* operators that sum over several devices' shards, and waits while such run on other devices */
    double slowest;    /* other waits for other devices; and no work, while a caller waited for results and there were
                        * several devices */
    double input;      /* no work, while a caller waited for a batch or prepared one */
    double other;      /* no work for another reason, threads that have work and no core, and what lies between calls */
} lk_trace_device;

typedef struct lk_trace_summary {
    lk_trace_operator *operators; /* the longest first */
    int n_operators;
    lk_trace_device *devices; /* in the order of their names; only those that ran or waited for something */
    int n_devices;
    double seconds; /* from the beginning of recording to its end */
} lk_trace_summary;

/* NULL on failure: LK_ERR_MEMORY. Its texts are its own, the names of operators static. */
LK_API lk_trace_summary *lk_trace_summarize(const lk_trace *trace);
LK_API void lk_trace_summary_release(lk_trace_summary *summary);

/* --- what operators could reach --- */

/* Floating-point operations a second that the device can do, the best of some runs: of about a millisecond of
 * independent multiply-adds in registers, which are in f32 whatever `dtype` is; of kind cuda of a large product of
 * squares of `dtype`, LK_F32 (in TF32 where that is allowed) or LK_BF16. Blocks. Errors: those of lk_device_sync,
 * LK_ERR_STATE (the device was released), LK_ERR_DTYPE (another dtype). */
LK_API lk_status lk_device_measure_peak(lk_device *device, lk_dtype dtype, double *flops);

/* Bytes a second that a copy within the device's own memory reads and writes, the best of some runs, of 256 MiB where
 * that takes no longer than 2 ms. 0 for devices whose memory is the process's. Blocks. Errors: those of lk_device_sync,
 * LK_ERR_STATE (the device was released). */
LK_API lk_status lk_device_measure_copy(lk_device *device, double *bytes);

#ifdef __cplusplus
}
#endif

#endif
