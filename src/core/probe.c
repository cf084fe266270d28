/* What only a device's own thread can tell, on its core: asked by calls like any other. */
#include "core/backend.h"
#include "core/trace.h"

#include <string.h>
#include <time.h>

enum { RUNS = 20, LEAST_NANOSECONDS = 1000000 };

typedef struct probe_attrs {
    double *result;
    lk_dtype dtype;
} probe_attrs;

static lk_status push_and_wait(lk_device *device, const lk_op *op, const lk_kernel *kernel, const void *attrs,
                               size_t size)
{
    lk_call call = {.op = op, .device = device, .kernel = kernel};
    memcpy(call.attrs.bytes, attrs, size);
    lk_status status = lk__engine_push(&call);
    return status == LK_OK ? lk_device_sync(device) : status;
}

static lk_status probe(lk_device *device, const lk_op *op, const lk_kernel *kernel, lk_dtype dtype, double *result)
{
    *result = 0;
    return push_and_wait(device, op, kernel, &(probe_attrs){result, dtype}, sizeof(probe_attrs));
}

/* --- whatever it is ----------------------------------------------------------------------------------------------- */

typedef struct question {
    lk_status (*ask)(lk_device *device, void *user);
    void *user;
} question;

static lk_status answer(lk_call *call)
{
    const question *q = LK_ATTRS(call, question);
    return q->ask(call->device, q->user);
}

lk_status lk__device_ask(lk_device *device, lk_status (*ask)(lk_device *device, void *user), void *user)
{
    static const lk_op op = {.name = "question", .id = -1};
    static const lk_kernel kernel = {.run = answer};
    return push_and_wait(device, &op, &kernel, &(question){ask, user}, sizeof(question));
}

/* --- the peak ----------------------------------------------------------------------------------------------------- */

typedef float four __attribute__((vector_size(16)));

/* The sums begin with numbers that the compiler does not know: equal ones it could make once. */
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

static double run_once(const lk_backend *backend, int64_t rounds, int64_t *nanoseconds)
{
    int64_t began = lk__trace_clock();
    double flops = backend->multiply_adds ? backend->multiply_adds(rounds) : lk__multiply_adds(rounds);
    *nanoseconds = lk__trace_clock() - began;
    return flops;
}

/* Others may take the core away for a while: the best of the runs counts. */
static lk_status measure_peak(lk_call *call)
{
    const lk_backend *backend = call->device->backend;
    double best = 0;
    int64_t rounds = 1000, time;
    for (run_once(backend, rounds, &time); time < LEAST_NANOSECONDS; run_once(backend, rounds, &time))
        rounds *= 2;
    for (int i = 0; i < RUNS; i++) {
        double flops = run_once(backend, rounds, &time) / (1e-9 * (double)time);
        best = flops > best ? flops : best;
    }
    *LK_ATTRS(call, probe_attrs)->result = best;
    return LK_OK;
}

static lk_status ask_for_peak(lk_call *call)
{
    const probe_attrs *attrs = LK_ATTRS(call, probe_attrs);
    return call->device->backend->offload->measure_peak(call->device, attrs->dtype, attrs->result);
}

lk_status lk_device_measure_peak(lk_device *device, lk_dtype dtype, double *flops)
{
    static const lk_op op = {.name = "measure_peak", .id = -1};
    static const lk_kernel loop = {.run = measure_peak}, by_itself = {.run = ask_for_peak};
    const lk_offload *offload = device->backend->offload;
    if (offload && !offload->measure_peak)
        LK_FAIL(LK_ERR_UNSUPPORTED, "device %s: its peak is not known: no loop runs on its thread", device->name);
    if (dtype != LK_F32 && dtype != LK_BF16)
        LK_FAIL(LK_ERR_DTYPE, "lk_device_measure_peak: %s: must be f32 or bf16", lk_dtype_name(dtype));
    return probe(device, &op, offload ? &by_itself : &loop, dtype, flops);
}

static lk_status ask_for_copy(lk_call *call)
{
    return call->device->backend->offload->measure_copy(call->device, LK_ATTRS(call, probe_attrs)->result);
}

lk_status lk_device_measure_copy(lk_device *device, double *bytes)
{
    static const lk_op op = {.name = "measure_copy", .id = -1};
    static const lk_kernel kernel = {.run = ask_for_copy};
    const lk_offload *offload = device->backend->offload;
    *bytes = 0;
    return offload && offload->measure_copy ? probe(device, &op, &kernel, LK_F32, bytes) : LK_OK;
}

/* --- processor time ----------------------------------------------------------------------------------------------- */

static lk_status read_clock(lk_call *call)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    *LK_ATTRS(call, probe_attrs)->result = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
    return LK_OK;
}

lk_status lk_device_processor_seconds(lk_device *device, double *seconds)
{
    static const lk_op op = {.name = "processor_seconds", .id = -1};
    static const lk_kernel kernel = {.run = read_clock};
    return probe(device, &op, &kernel, LK_F32, seconds);
}
