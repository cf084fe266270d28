/* Measurements and other functions that only a device's own thread can run. They are pushed like any other call. */
#include "core/backend.h"
#include "core/trace.h"

#include <string.h>
#include <time.h>

enum { RUNS = 20, LEAST_NANOSECONDS = 1000000 };

typedef struct probe_attrs {
    double *result;
    lk_dtype dtype;
} probe_attrs;

static lk_status probe_push_and_wait(lk_device *device, const lk_op *op, const lk_kernel *kernel, const void *attrs,
                                     size_t size)
{
    lk_call call = {.op = op, .device = device, .kernel = kernel};
    memcpy(call.attrs.bytes, attrs, size);
    lk_status status = lk__engine_push(&call);
    return status == LK_OK ? lk_device_sync(device) : status;
}

static lk_status probe_measure(lk_device *device, const lk_op *op, const lk_kernel *kernel, lk_dtype dtype,
                               double *result)
{
    *result = 0;
    return probe_push_and_wait(device, op, kernel, &(probe_attrs){result, dtype}, sizeof(probe_attrs));
}

/* --- any function ------------------------------------------------------------------------------------------------- */

/* The arguments of lk__device_ask, as the attributes of a call. */
typedef struct question {
    lk_status (*ask)(lk_device *device, void *user);
    void *user;
} question;

static lk_status probe_answer(lk_call *call)
{
    const question *q = LK_ATTRS(call, question);
    return q->ask(call->device, q->user);
}

lk_status lk__device_ask(lk_device *device, lk_status (*ask)(lk_device *device, void *user), void *user)
{
    static const lk_op op = {.name = "question", .id = -1};
    static const lk_kernel kernel = {.run = probe_answer};
    return probe_push_and_wait(device, &op, &kernel, &(question){ask, user}, sizeof(question));
}

/* --- the peak ----------------------------------------------------------------------------------------------------- */

typedef float four __attribute__((vector_size(16)));

/* The sums begin with different numbers that the compiler does not know: it could merge sums that are equal. */
double lk__multiply_adds(int64_t rounds)
{
    enum { SUMS = 12 };
    volatile float half = 0.5F;
    four factor = {half, half, half, half}, term = factor, sums[SUMS];
    for (int i = 0; i < SUMS; i++)
        sums[i] = term * (float)i;
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < SUMS; i++)
            sums[i] = sums[i] * factor + term;
    for (int i = 0; i < SUMS; i++)
        half = sums[i][0];
    return 2.0 * 4 * SUMS * (double)rounds;
}

static double probe_time_loop(const lk_backend *backend, int64_t rounds, int64_t *nanoseconds)
{
    int64_t began = lk__nanoseconds();
    double flops = backend->multiply_adds ? backend->multiply_adds(rounds) : lk__multiply_adds(rounds);
    *nanoseconds = lk__nanoseconds() - began;
    return flops;
}

/* Other processes may take the core away for a while, so the best of the runs counts. */
static lk_status probe_peak_by_loop(lk_call *call)
{
    const lk_backend *backend = call->device->backend;
    double best = 0;
    int64_t rounds = 1000, time;
    for (probe_time_loop(backend, rounds, &time); time < LEAST_NANOSECONDS; probe_time_loop(backend, rounds, &time))
        rounds *= 2;
    for (int i = 0; i < RUNS; i++) {
        double flops = probe_time_loop(backend, rounds, &time) / (1e-9 * (double)time);
        best = flops > best ? flops : best;
    }
    *LK_ATTRS(call, probe_attrs)->result = best;
    return LK_OK;
}

static lk_status probe_peak_of_offload(lk_call *call)
{
    const probe_attrs *attrs = LK_ATTRS(call, probe_attrs);
    return call->device->backend->offload->measure_peak(call->device, attrs->dtype, attrs->result);
}

lk_status lk_device_measure_peak(lk_device *device, lk_dtype dtype, double *flops)
{
    static const lk_op op = {.name = "measure_peak", .id = -1};
    static const lk_kernel loop = {.run = probe_peak_by_loop}, by_device = {.run = probe_peak_of_offload};
    const lk_offload *offload = device->backend->offload;
    if (offload && !offload->measure_peak)
        LK_FAIL(LK_ERR_UNSUPPORTED, "device %s: its peak is not known: no loop runs on its thread", device->name);
    if (dtype != LK_F32 && dtype != LK_BF16)
        LK_FAIL(LK_ERR_DTYPE, "lk_device_measure_peak: %s: must be f32 or bf16", lk_dtype_name(dtype));
    return probe_measure(device, &op, offload ? &by_device : &loop, dtype, flops);
}

static lk_status probe_copy_of_offload(lk_call *call)
{
    return call->device->backend->offload->measure_copy(call->device, LK_ATTRS(call, probe_attrs)->result);
}

lk_status lk_device_measure_copy(lk_device *device, double *bytes)
{
    static const lk_op op = {.name = "measure_copy", .id = -1};
    static const lk_kernel kernel = {.run = probe_copy_of_offload};
    const lk_offload *offload = device->backend->offload;
    *bytes = 0;
    return offload && offload->measure_copy ? probe_measure(device, &op, &kernel, LK_F32, bytes) : LK_OK;
}

/* --- processor time ----------------------------------------------------------------------------------------------- */

static lk_status probe_processor_time(lk_call *call)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    *LK_ATTRS(call, probe_attrs)->result = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
    return LK_OK;
}

lk_status lk_device_processor_seconds(lk_device *device, double *seconds)
{
    static const lk_op op = {.name = "processor_seconds", .id = -1};
    static const lk_kernel kernel = {.run = probe_processor_time};
    return probe_measure(device, &op, &kernel, LK_F32, seconds);
}
