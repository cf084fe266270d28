/* lk_device_measure_peak on a GPU: the best that a large product of squares reaches, by the GPU's own clock. */
#include "cuda/cuda.h"
#include "cuda/cuda_state.h"

enum { LEAST_SIDE = 64, MOST_SIDE = 8192, LEAST_NANOSECONDS = 2000000, RUNS = 10 };

typedef struct squares {
    lk_device *device;
    lk_block *a, *b, *y;
    int64_t side;
} squares;

static void drop_squares(squares *s)
{
    lk__allocator_drop(s->device->allocator, s->a);
    lk__allocator_drop(s->device->allocator, s->b);
    lk__allocator_drop(s->device->allocator, s->y);
}

static lk_status new_square(const squares *s, lk_block **block)
{
    const lk_cuda *cuda = s->device->state;
    LK_TRY(lk__allocator_get(s->device->allocator, (size_t)(s->side * s->side) * sizeof(float), block));
    lk_gpu_fill arguments = {.y = (*block)->data, .dtype = LK_F32, .count = s->side * s->side, .value = 0.7};
    return lk__cuda_check(cuda->driver, cuda->driver->fill(cuda->stream, &arguments));
}

static lk_status new_squares(squares *s)
{
    LK_TRY(new_square(s, &s->a));
    LK_TRY(new_square(s, &s->b));
    return new_square(s, &s->y);
}

static lk_status multiply(const squares *s, int64_t *nanoseconds)
{
    const lk_cuda *cuda = s->device->state;
    const lk_offload *offload = s->device->backend->offload;
    int64_t times[2];
    lk_gpu_matmul product = {.a = s->a->data,
                             .b = s->b->data,
                             .y = s->y->data,
                             .dtype = LK_F32,
                             .y_dtype = LK_F32,
                             .rows = s->side,
                             .inner = s->side,
                             .columns = s->side,
                             .tf32 = s->device->tf32};
    LK_TRY(offload->stamp(s->device, 0));
    LK_TRY(lk__cuda_check(cuda->driver, cuda->driver->matmul(cuda->stream, &product)));
    LK_TRY(offload->stamp(s->device, 1));
    LK_TRY(offload->read_stamps(s->device, 2, times));
    *nanoseconds = times[1] - times[0];
    return LK_OK;
}

/* The first product of a size also chooses its algorithm. */
static lk_status best_of(squares *s, int runs, int64_t *best)
{
    LK_TRY(new_squares(s));
    LK_TRY(multiply(s, best));
    *best = INT64_MAX;
    for (int i = 0; i < runs; i++) {
        int64_t time;
        LK_TRY(multiply(s, &time));
        *best = time < *best ? time : *best;
    }
    return LK_OK;
}

/* Gives the memory back when nothing uses it any more. */
static lk_status measure(lk_device *device, int64_t side, int runs, int64_t *best)
{
    squares s = {.device = device, .side = side};
    lk_status status = best_of(&s, runs, best);
    if (status != LK_OK) {
        lk_error_state kept;
        lk__error_save(&kept);
        device->backend->offload->drain(device);
        lk__error_restore(&kept);
    }
    drop_squares(&s);
    return status;
}

/* As large as need be for the launch not to count. */
lk_status lk__cuda_measure_peak(lk_device *device, double *flops)
{
    int64_t side = LEAST_SIDE, best;
    LK_TRY(measure(device, side, 1, &best));
    while (best < LEAST_NANOSECONDS && side < MOST_SIDE) {
        side *= 2;
        LK_TRY(measure(device, side, 1, &best));
    }
    LK_TRY(measure(device, side, RUNS, &best));
    *flops = 2.0 * (double)(side * side) * (double)side / (1e-9 * (double)(best > 0 ? best : 1));
    return LK_OK;
}
