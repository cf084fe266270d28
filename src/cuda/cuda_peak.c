/* lk_device_measure_peak and lk_device_measure_copy on a GPU, by its own clock: the best that a large product of
 * squares reaches, and a copy of more than its caches hold. */
#include "cuda/cuda.h"
#include "cuda/cuda_state.h"

enum { LEAST_SIDE = 64, MOST_SIDE = 8192, LEAST_COPY = 1 << 20, MOST_COPY = 256 << 20 };
enum { LEAST_NANOSECONDS = 2000000, RUNS = 10, OPERANDS = 3 };

/* What is timed: of arrays of `elements` each, `n` of which it takes. */
typedef struct work {
    lk_device *device;
    lk_dtype dtype;
    int n;
    int64_t elements, side; /* side: of squares */
    lk_gpu_status (*start)(const lk_cuda *cuda, const struct work *work);
    lk_block *blocks[OPERANDS];
} work;

static lk_gpu_status multiply(const lk_cuda *cuda, const work *w)
{
    lk_gpu_matmul product = {.a = w->blocks[0]->data,
                             .b = w->blocks[1]->data,
                             .y = w->blocks[2]->data,
                             .dtype = w->dtype,
                             .y_dtype = w->dtype,
                             .rows = w->side,
                             .inner = w->side,
                             .columns = w->side,
                             .tf32 = w->device->tf32};
    return cuda->driver->matmul(cuda->stream, &product);
}

static lk_gpu_status copy(const lk_cuda *cuda, const work *w)
{
    return cuda->driver->copy(cuda->stream, w->blocks[0]->data, w->blocks[1]->data,
                              (size_t)w->elements * lk_dtype_size(w->dtype), LK_GPU_TO_GPU);
}

/* Zeros would take less power, and so less time. */
static lk_status allocate(work *w)
{
    const lk_cuda *cuda = w->device->state;
    for (int i = 0; i < w->n; i++) {
        LK_TRY(lk__allocator_get(w->device->allocator, (size_t)w->elements * lk_dtype_size(w->dtype), &w->blocks[i]));
        lk_gpu_fill fill = {.y = w->blocks[i]->data, .dtype = w->dtype, .count = w->elements, .value = 0.7};
        LK_TRY(lk__cuda_check(cuda->driver, cuda->driver->fill(cuda->stream, &fill)));
    }
    return LK_OK;
}

static lk_status run_once(const work *w, int64_t *nanoseconds)
{
    const lk_cuda *cuda = w->device->state;
    const lk_offload *offload = w->device->backend->offload;
    int64_t times[2];
    LK_TRY(offload->stamp(w->device, 0));
    LK_TRY(lk__cuda_check(cuda->driver, w->start(cuda, w)));
    LK_TRY(offload->stamp(w->device, 1));
    LK_TRY(offload->read_stamps(w->device, 2, times));
    *nanoseconds = times[1] - times[0];
    return LK_OK;
}

/* The first product of a size also chooses its algorithm. */
static lk_status best_of(work *w, int runs, int64_t *best)
{
    LK_TRY(allocate(w));
    LK_TRY(run_once(w, best));
    *best = INT64_MAX;
    for (int i = 0; i < runs; i++) {
        int64_t time;
        LK_TRY(run_once(w, &time));
        *best = time < *best ? time : *best;
    }
    *best = *best > 0 ? *best : 1;
    return LK_OK;
}

/* Gives the memory back when nothing uses it any more. */
static lk_status measure(work w, int runs, int64_t *best)
{
    lk_status status = best_of(&w, runs, best);
    if (status != LK_OK) {
        lk_error_state kept;
        lk__error_save(&kept);
        w.device->backend->offload->drain(w.device);
        lk__error_restore(&kept);
    }
    for (int i = 0; i < w.n; i++)
        lk__allocator_drop(w.device->allocator, w.blocks[i]);
    return status;
}

/* As large as need be for the launch not to count. */
lk_status lk__cuda_measure_peak(lk_device *device, lk_dtype dtype, double *flops)
{
    work w = {.device = device, .dtype = dtype, .n = 3, .start = multiply};
    int64_t best = 0;
    for (w.side = LEAST_SIDE;; w.side *= 2) {
        w.elements = w.side * w.side;
        LK_TRY(measure(w, 1, &best));
        if (best >= LEAST_NANOSECONDS || w.side >= MOST_SIDE)
            break;
    }
    LK_TRY(measure(w, RUNS, &best));
    *flops = 2.0 * (double)w.elements * (double)w.side / (1e-9 * (double)best);
    return LK_OK;
}

lk_status lk__cuda_measure_copy(lk_device *device, double *bytes)
{
    work w = {.device = device, .dtype = LK_F32, .n = 2, .start = copy};
    int64_t best = 0, size = (int64_t)lk_dtype_size(w.dtype);
    for (w.elements = LEAST_COPY / size;; w.elements *= 2) {
        LK_TRY(measure(w, 1, &best));
        if (best >= LEAST_NANOSECONDS || w.elements * size >= MOST_COPY)
            break;
    }
    LK_TRY(measure(w, RUNS, &best));
    *bytes = 2.0 * (double)(w.elements * size) / (1e-9 * (double)best);
    return LK_OK;
}
