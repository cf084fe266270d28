/* lk_device_measure_peak: a call like any other, so that it runs in the device's thread, on its core. */
#include "core/backend.h"
#include "core/trace.h"

#include <string.h>

enum { RUNS = 20, LEAST_NANOSECONDS = 1000000 };

typedef struct peak_attrs {
    double *flops;
} peak_attrs;

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
static lk_status measure(lk_call *call)
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
    *LK_ATTRS(call, peak_attrs)->flops = best;
    return LK_OK;
}

lk_status lk_device_measure_peak(lk_device *device, double *flops)
{
    static const lk_op op = {.name = "measure_peak", .id = -1};
    static const lk_kernel kernel = {.run = measure};
    peak_attrs attrs = {flops};
    lk_call call = {.op = &op, .device = device, .kernel = &kernel};
    *flops = 0;
    memcpy(call.attrs.bytes, &attrs, sizeof attrs);
    lk_status status = lk__engine_push(&call);
    return status == LK_OK ? lk_device_sync(device) : status;
}
