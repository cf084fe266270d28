/* lk_device_measure_peak and lk_device_measure_copy on a GPU, by its own clock: the highest rates reached by a large
 * product of square matrices, and by a copy of more bytes than the caches hold. */
#include "cuda/cuda.h"
#include "cuda/cuda_state.h"

enum { LEAST_SIDE = 64, MOST_SIDE = 8192, LEAST_COPY = 1 << 20, MOST_COPY = 256 << 20 };
enum { LEAST_NANOSECONDS = 2000000, RUNS = 10, OPERANDS = 3 };

/* The work that is timed. */
typedef struct work {
    lk_device *device;
    lk_dtype dtype;
    int n;            /* arrays that it takes */
    int64_t elements; /* of each array */
    int64_t side;     /* of square matrices */
    lk_gpu_status (*start)(const lk_cuda *cuda, const struct work *work);
    lk_block *blocks[OPERANDS];
} work;

static lk_gpu_status peak_matmul(const lk_cuda *cuda, const work *w)
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

static lk_gpu_status peak_copy(const lk_cuda *cuda, const work *w)
{
    return cuda->driver->copy(cuda->stream, w->blocks[0]->data, w->blocks[1]->data,
                              (size_t)w->elements * lk_dtype_size(w->dtype), LK_GPU_TO_GPU);
}

/* Does not fill with zeros: multiplying them takes less power, so the GPU would run faster than with real data. */
static lk_status cuda_peak_allocate_arrays(work *w)
{
    const lk_cuda *cuda = w->device->state;
    for (int i = 0; i < w->n; i++) {
        LK_TRY(lk__allocator_get(w->device->allocator, (size_t)w->elements * lk_dtype_size(w->dtype), &w->blocks[i]));
        lk_gpu_fill fill = {.y = w->blocks[i]->data, .dtype = w->dtype, .count = w->elements, .value = 0.7};
        LK_TRY(lk__cuda_check(cuda->driver, cuda->driver->fill(cuda->stream, &fill)));
    }
    return LK_OK;
}

static lk_status time_work_once(const work *w, int64_t *nanoseconds)
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

/* The first run is not counted, because it also chooses the product's algorithm. */
static lk_status cuda_peak_time_best(work *w, int runs, int64_t *best)
{
    LK_TRY(cuda_peak_allocate_arrays(w));
    LK_TRY(time_work_once(w, best));
    *best = INT64_MAX;
    for (int i = 0; i < runs; i++) {
        int64_t time;
        LK_TRY(time_work_once(w, &time));
        *best = time < *best ? time : *best;
    }
    *best = *best > 0 ? *best : 1;
    return LK_OK;
}

/* Frees the memory when no work uses it any more. */
static lk_status measure_work(work w, int runs, int64_t *best)
{
    lk_status status = cuda_peak_time_best(&w, runs, best);
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

/* Doubles the size until the launch takes a negligible part of the time. */
lk_status lk__cuda_measure_peak(lk_device *device, lk_dtype dtype, double *flops)
{
    work w = {.device = device, .dtype = dtype, .n = 3, .start = peak_matmul};
    int64_t best = 0;
    for (w.side = LEAST_SIDE;; w.side *= 2) {
        w.elements = w.side * w.side;
        LK_TRY(measure_work(w, 1, &best));
        if (best >= LEAST_NANOSECONDS || w.side >= MOST_SIDE)
            break;
    }
    LK_TRY(measure_work(w, RUNS, &best));
    *flops = 2.0 * (double)w.elements * (double)w.side / (1e-9 * (double)best);
    return LK_OK;
}

lk_status lk__cuda_measure_copy(lk_device *device, double *bytes)
{
    work w = {.device = device, .dtype = LK_F32, .n = 2, .start = peak_copy};
    int64_t best = 0, size = (int64_t)lk_dtype_size(w.dtype);
    for (w.elements = LEAST_COPY / size;; w.elements *= 2) {
        LK_TRY(measure_work(w, 1, &best));
        if (best >= LEAST_NANOSECONDS || w.elements * size >= MOST_COPY)
            break;
    }
    LK_TRY(measure_work(w, RUNS, &best));
    *bytes = 2.0 * (double)(w.elements * size) / (1e-9 * (double)best);
    return LK_OK;
}
