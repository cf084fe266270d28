/* Measures the kernels of the GPU plug-in one by one, called through its table, on arrays larger than a GPU's caches.
 * Prints a JSON object per kernel, with the seconds of a launch and the bytes that it must move; also a
 * device-to-device copy, first and last, for comparison, and the matrix product of the libraries.
 *
 * A kernel that needs two passes, because the second needs a sum of the first, counts the bytes of both. Seconds are
 * the median of several rounds of launches, with one wait per round. Contents are random. With the emulated plug-in,
 * whose kernels run on the processor, seconds are null. --quick: small arrays, one launch. */
#include "cuda/cuda_plugin.h"

#include "lockstep/lockstep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CLASSES = 10, ROUNDS = 7, MAX_LAUNCHES = 2000 };

typedef struct bench {
    const lk_gpu_driver *driver;
    lk_gpu_stream *stream;
    bool is_emulated;
    int rounds;
    lk_dtype dtype;                 /* that is measured now */
    int64_t images, size, channels; /* of x; size: height and width */
    int64_t count, rows, samples;   /* elements of x, pixels of x, rows of logits */
    int64_t side;                   /* of the matrices */
    void *x, *dy, *y, *dx;          /* each holds `count` elements of f32 */
    void *one;                      /* the number 1 in the dtype */
    float *gamma, *beta, *dgamma, *dbeta, *loss, *hits, *rows_workspace;
    int32_t *where;
    uint8_t *bytes; /* the memory of `where` */
    double *sums, *dsums, *norms, *workspace;
    int64_t *labels, *indices, *offsets, *epoch; /* indices: for all planes of x */
    void *arrays[32];                            /* [n_arrays]: all arrays, to free */
    int n_arrays;
} bench;

#define CALL(b, kernel, ...) (b)->driver->kernel((b)->stream, &(lk_gpu_##kernel){__VA_ARGS__})

/* --- launches -------------------------------------------------------------------------------------------------- */

static lk_gpu_status run_copy(const bench *b)
{
    return b->driver->copy(b->stream, b->y, b->x, (size_t)b->count * 4, LK_GPU_TO_GPU);
}

static lk_gpu_status run_matmul(const bench *b)
{
    return CALL(b, matmul, .a = b->x, .b = b->dy, .y = b->y, .dtype = b->dtype, .y_dtype = b->dtype, .rows = b->side,
                .inner = b->side, .columns = b->side);
}

static lk_gpu_view dense(void *data, lk_dtype dtype)
{
    return (lk_gpu_view){.data = data, .dtype = dtype, .stride = {1}};
}

static lk_gpu_status run_add(const bench *b)
{
    return CALL(b, binary, .y = dense(b->y, b->dtype), .a = dense(b->x, b->dtype), .b = dense(b->dy, b->dtype),
                .ndim = 1, .dim = {b->count}, .op = LK_GPU_ADD);
}

/* Adds a number per channel to each pixel. */
static lk_gpu_status run_add_bias(const bench *b)
{
    lk_gpu_view y = {.data = b->y, .dtype = b->dtype, .stride = {b->channels, 1}}, x = y, bias = y;
    x.data = b->x;
    bias.data = b->dy;
    bias.stride[0] = 0;
    return CALL(b, binary, .y = y, .a = x, .b = bias, .ndim = 2, .dim = {b->rows, b->channels}, .op = LK_GPU_ADD);
}

/* Sums four arrays: the halves of x and of dy. */
static lk_gpu_status run_pairwise_sum(const bench *b)
{
    int64_t half = b->count / 2;
    const float *x = b->x, *dy = b->dy;
    return CALL(b, pairwise_sum, .y = b->y, .x = {x, x + half, dy, dy + half}, .n = 4, .dtype = LK_F32, .count = half);
}

/* Sums the quarters of x, gradients of a 3x3 convolution's weights, and reorders the sum. */
static lk_gpu_status run_array_sums(const bench *b)
{
    enum { PIXELS = 9, CHANNELS = 64 };
    int64_t quarter = b->count / 4;
    const lk_gpu_array_sum sum = {.x = b->x,
                                  .y = b->y,
                                  .step = quarter,
                                  .rows = (int32_t)(quarter / PIXELS / CHANNELS),
                                  .a = PIXELS,
                                  .b = CHANNELS,
                                  .addends = 4,
                                  .x_dtype = LK_F32,
                                  .y_dtype = LK_F32};
    return CALL(b, array_sums, .sum = {sum}, .n = 1);
}

static lk_gpu_status run_gather(const bench *b)
{
    return CALL(b, gather, .x = b->x, .indices = b->indices, .y = b->y, .size = lk_dtype_size(b->dtype), .n = b->images,
                .rows = b->images, .row = b->count / b->images);
}

/* Prepares images of one channel from the bytes of x. */
static lk_gpu_status run_prepare_images(const bench *b)
{
    return CALL(b, prepare_images, .x = b->x, .indices = b->indices, .epoch = b->epoch, .y = b->y,
                .n = b->channels * b->images, .images = b->channels * b->images, .channels = 1,
                .size = {b->size, b->size}, .opts = {.height_shift = 0.2, .width_shift = 0.2, .horizontal_flip = true});
}

static lk_gpu_status run_cast(const bench *b)
{
    return CALL(b, convert, .y = dense(b->y, LK_BF16), .x = dense(b->x, LK_F32), .ndim = 1, .dim = {b->count});
}

/* Converts row-major images to channels-last. */
static lk_gpu_status run_reorder(const bench *b)
{
    int64_t pixels = b->size * b->size;
    lk_gpu_view x = {.data = b->x, .dtype = b->dtype, .stride = {b->channels * pixels, pixels, 1}};
    lk_gpu_view y = {.data = b->y, .dtype = b->dtype, .stride = {b->channels * pixels, 1, b->channels}};
    return CALL(b, convert, .y = y, .x = x, .ndim = 3, .dim = {b->images, b->channels, pixels});
}

static lk_gpu_status run_relu(const bench *b)
{
    return CALL(b, relu, .x = b->x, .y = b->y, .dtype = b->dtype, .count = b->count);
}

static lk_gpu_status run_relu_grad(const bench *b)
{
    return CALL(b, relu_grad, .dy = b->dy, .y = b->x, .dx = b->dx, .dtype = b->dtype, .count = b->count);
}

static lk_gpu_status run_dropout(const bench *b)
{
    return CALL(b, dropout, .x = b->x, .y = b->y, .indices = b->indices, .dtype = b->dtype, .images = b->images,
                .channels = b->channels, .pixels = b->size * b->size, .channels_last = true, .rate = 0.1,
                .philox = {.key = {1, 2}});
}

static lk_gpu_status run_channel_sums(const bench *b)
{
    return CALL(b, channel_sums, .x = b->x, .sums = b->sums, .workspace = b->workspace, .dtype = b->dtype,
                .rows = b->rows, .channels = b->channels);
}

static lk_gpu_statistics statistics(const bench *b)
{
    return (lk_gpu_statistics){.sums = b->sums, .count = b->rows, .epsilon = 1e-5};
}

static lk_gpu_status run_normalize(const bench *b)
{
    return CALL(b, normalize, .x = b->x, .residual = b->dy, .gamma = b->gamma, .beta = b->beta, .y = b->y,
                .statistics = statistics(b), .dtype = b->dtype, .rows = b->rows, .channels = b->channels, .act = true);
}

static lk_gpu_status run_normalize_grad(const bench *b)
{
    return CALL(b, normalize_grad, .dy = b->dy, .act_y = b->y, .x = b->x, .gamma = b->gamma, .dx = b->dx,
                .dgamma = b->dgamma, .dbeta = b->dbeta, .dsums = b->dsums, .workspace = b->workspace,
                .statistics = statistics(b), .through = LK_GPU_THROUGH_SUMS, .dtype = b->dtype, .rows = b->rows,
                .channels = b->channels);
}

static lk_gpu_status run_normalize_drop(const bench *b)
{
    return CALL(b, normalize, .x = b->x, .gamma = b->gamma, .beta = b->beta, .y = b->y, .kept = b->bytes,
                .indices = b->indices, .pixels = b->size * b->size, .rate = 0.1, .philox = {.key = {1, 2}},
                .statistics = statistics(b), .dtype = b->dtype, .rows = b->rows, .channels = b->channels, .act = true);
}

static lk_gpu_status run_normalize_drop_grad(const bench *b)
{
    return CALL(b, normalize_grad, .dy = b->dy, .kept = b->bytes, .rate = 0.1, .x = b->x, .gamma = b->gamma,
                .dx = b->dx, .dgamma = b->dgamma, .dbeta = b->dbeta, .dx_sums = b->loss, .workspace = b->workspace,
                .statistics = statistics(b), .through = LK_GPU_THROUGH_SUMS, .dtype = b->dtype, .rows = b->rows,
                .channels = b->channels);
}

/* The gradient goes through relu and a residual, after it was added to another one. */
static lk_gpu_status run_normalize_sum_grad(const bench *b)
{
    return CALL(b, normalize_grad, .dy = b->dy, .more = b->y, .x = b->x, .gamma = b->gamma, .act_beta = b->beta,
                .dx = b->dx, .dresidual = b->dy, .dgamma = b->dgamma, .dbeta = b->dbeta, .dx_sums = b->loss,
                .d_sums = b->hits, .workspace = b->workspace, .statistics = statistics(b),
                .through = LK_GPU_THROUGH_SUMS, .dtype = b->dtype, .rows = b->rows, .channels = b->channels);
}

static lk_geometry window(const bench *b)
{
    return (lk_geometry){.images = b->images,
                         .channels = b->channels,
                         .in = {b->size, b->size},
                         .out = {b->size / 2, b->size / 2},
                         .kernel = {2, 2},
                         .stride = {2, 2}};
}

static lk_gpu_status run_max_pool(const bench *b)
{
    return CALL(b, max_pool, .x = b->x, .y = b->y, .where = b->where, .dtype = b->dtype, .window = window(b));
}

static lk_gpu_status run_max_pool_grad(const bench *b)
{
    return CALL(b, max_pool_grad, .dy = b->dy, .where = b->where, .dx = b->dx, .dtype = b->dtype, .window = window(b));
}

static lk_gpu_status run_normalize_pool(const bench *b)
{
    return CALL(b, normalize_pool, .x = b->x, .residual = b->dy, .gamma = b->gamma, .beta = b->beta, .y = b->y,
                .where = b->bytes, .statistics = statistics(b), .dtype = b->dtype, .window = window(b));
}

static lk_gpu_status run_normalize_pool_grad(const bench *b)
{
    return CALL(b, normalize_grad, .dy = b->dy, .where = b->bytes, .window = window(b), .x = b->x, .gamma = b->gamma,
                .act_beta = b->beta, .dx = b->dx, .dresidual = b->y, .dgamma = b->dgamma, .dbeta = b->dbeta,
                .workspace = b->workspace, .statistics = statistics(b), .through = LK_GPU_THROUGH_SUMS,
                .dtype = b->dtype, .rows = b->rows, .channels = b->channels);
}

static lk_gpu_status run_relu_max_pool(const bench *b)
{
    return CALL(b, relu_max_pool, .x = b->x, .y = b->y, .where = b->bytes, .dtype = b->dtype, .window = window(b));
}

static lk_gpu_status run_relu_max_pool_grad(const bench *b)
{
    return CALL(b, relu_max_pool_grad, .dy = b->dy, .where = b->bytes, .dx = b->dx, .dtype = b->dtype,
                .window = window(b));
}

static lk_gpu_status run_relu_avg_pool(const bench *b)
{
    return CALL(b, avg_pool, .x = b->x, .y = b->y, .dtype = b->dtype, .window = window(b), .relu = true);
}

static lk_gpu_status run_relu_avg_pool_grad(const bench *b)
{
    return CALL(b, avg_pool_grad, .dy = b->dy, .relu_x = b->x, .dx = b->dx, .dtype = b->dtype, .window = window(b));
}

/* Averages whole images. */
static lk_gpu_status run_global_avg_pool(const bench *b)
{
    lk_geometry whole = window(b);
    for (int axis = 0; axis < 2; axis++) {
        whole.kernel[axis] = whole.stride[axis] = b->size;
        whole.out[axis] = 1;
    }
    return CALL(b, avg_pool, .x = b->x, .y = b->y, .dtype = b->dtype, .window = whole);
}

static lk_gpu_status run_avg_pool(const bench *b)
{
    return CALL(b, avg_pool, .x = b->x, .y = b->y, .dtype = b->dtype, .window = window(b));
}

static lk_gpu_status run_avg_pool_grad(const bench *b)
{
    return CALL(b, avg_pool_grad, .dy = b->dy, .dx = b->dx, .dtype = b->dtype, .window = window(b));
}

static lk_gpu_status run_softmax(const bench *b)
{
    return CALL(b, softmax, .x = b->x, .y = b->y, .dtype = b->dtype, .outer = b->samples, .n = CLASSES, .inner = 1,
                .log = true);
}

static lk_gpu_status run_cross_entropy(const bench *b)
{
    return CALL(b, cross_entropy, .logits = b->x, .dloss = b->one, .labels = b->labels, .loss = b->loss,
                .dlogits = b->dx, .hits = b->hits, .workspace = b->rows_workspace, .dtype = b->dtype,
                .loss_dtype = b->dtype, .labels_dtype = LK_I64, .n = b->samples, .classes = CLASSES, .sum = true,
                .scale = 1, .k = 1);
}

static lk_gpu_status run_column_sums(const bench *b)
{
    return CALL(b, column_sums, .x = b->dy, .sums = b->loss, .workspace = b->workspace, .dtype = b->dtype,
                .sums_dtype = LK_F32, .rows = b->rows, .columns = b->channels);
}

/* Gradients of a 3x3 convolution of images of one channel, x; dy is the gradient of its result. */
static lk_gpu_conv_shape first_layer(const bench *b)
{
    return (lk_gpu_conv_shape){.geometry = {.images = b->images,
                                            .channels = 1,
                                            .filters = b->channels,
                                            .groups = 1,
                                            .in = {b->size, b->size},
                                            .out = {b->size, b->size},
                                            .kernel = {3, 3},
                                            .stride = {1, 1},
                                            .dilation = {1, 1},
                                            .padding = {1, 1}},
                               .dtype = LK_BF16,
                               .tf32 = true};
}

static lk_gpu_status run_first_weight_grad(const bench *b)
{
    return CALL(b, conv_weight_grad, .dy = b->dy, .x = b->x, .dw = b->y, .dbias = b->loss, .workspace = b->workspace,
                .dw_dtype = LK_F32, .shape = first_layer(b));
}

static lk_gpu_status run_momentum(const bench *b)
{
    return CALL(b, momentum_update, .w = b->x, .v = b->y, .g = b->dy, .count = b->count, .rate = 1e-4F,
                .momentum = 0.9F, .weight_decay = 1e-4F);
}

static lk_gpu_status run_adam(const bench *b)
{
    return CALL(b, adam_update, .w = b->x, .m = b->y, .v = b->dx, .g = b->dy, .count = b->count, .beta1 = 0.9F,
                .rest1 = 0.1F, .beta2 = 0.999F, .rest2 = 0.001F, .step = 1e-4F, .unbias = 1, .epsilon = 1e-7F,
                .keep = 1);
}

static lk_gpu_status run_sgd(const bench *b)
{
    return CALL(b, sgd_update, .w = b->x, .g = b->dy, .y = b->x, .count = b->count, .rate = 1e-4F);
}

/* One segment; the value of its ratio does not matter. */
static lk_gpu_status run_lars(const bench *b)
{
    return CALL(b, lars_update, .w = b->x, .v = b->y, .g = b->dy, .ratios = b->loss, .adapted = b->loss,
                .offsets = b->offsets, .count = b->count, .segments = 1, .rate = 1e-4F, .momentum = 0.9F,
                .weight_decay = 1e-4F);
}

static lk_gpu_status run_squared_norms(const bench *b)
{
    return CALL(b, squared_norms, .x = b->dy, .offsets = b->offsets, .norms = b->norms, .workspace = b->workspace,
                .count = b->count, .segments = 1);
}

/* --- the table ------------------------------------------------------------------------------------------------- */

enum { BY_F32 = 1, BY_BF16 = 2, BOTH = 3 };

/* Elements' worth of the bits that dropout keeps: a byte for 16 bytes. */
#define KEPT 0.0625

typedef struct kernel {
    const char *name, *what;
    lk_gpu_status (*launch)(const bench *b);
    int dtypes;
    double elements;   /* of the dtype, read and written per element of x */
    double more_bytes; /* other bytes read and written per element of x */
} kernel;

/* clang-format off */
static const kernel kernels[] = {
    {"copy",            "of device memory",                       run_copy,           BY_F32,  2,    0},
    {"matmul",          "a square matrix product",                run_matmul,         BOTH,    0,    0},
    {"channel_sums",    "batch-norm statistics",                  run_channel_sums,   BOTH,    1,    0},
    {"normalize",       "batch-norm, residual, ReLU",             run_normalize,      BOTH,    3,    0},
    {"normalize_grad",  "their gradient: sums, then dx",          run_normalize_grad, BOTH,    7,    0},
    {"normalize",       "ReLU, dropout",                          run_normalize_drop, BOTH,    2 + KEPT, 0},
    {"normalize_grad",  "of them, and sums of dx",                run_normalize_drop_grad, BOTH, 5 + 2 * KEPT, 0},
    {"normalize_grad",  "of a sum, ReLU, and sums of both",       run_normalize_sum_grad, BOTH, 7,   0},
    {"normalize_pool",  "ReLU, residual, 2x2 maxima",             run_normalize_pool, BOTH,    2.25, 0.25},
    {"normalize_grad",  "of ReLU and 2x2 maxima",                 run_normalize_pool_grad, BOTH, 5.25, 0.25},
    {"relu_max_pool",   "2x2",                                    run_relu_max_pool,  BOTH,    1.25, 0.25},
    {"relu_max_pool_grad", "2x2",                                 run_relu_max_pool_grad, BOTH, 1.25, 0.25},
    {"avg_pool",        "2x2, of ReLU",                           run_relu_avg_pool,  BOTH,    1.25, 0},
    {"avg_pool_grad",   "2x2, of ReLU",                           run_relu_avg_pool_grad, BOTH, 2.25, 0},
    {"avg_pool",        "whole images",                           run_global_avg_pool, BOTH,   1,    0},
    {"weight_grad",     "3x3 of one channel, with the bias",      run_first_weight_grad, BY_BF16, 1, 0},
    {"max_pool",        "2x2, with where",                        run_max_pool,       BOTH,    1.25, 1},
    {"max_pool_grad",   "2x2",                                    run_max_pool_grad,  BOTH,    1.25, 1},
    {"avg_pool",        "2x2",                                    run_avg_pool,       BOTH,    1.25, 0},
    {"avg_pool_grad",   "2x2",                                    run_avg_pool_grad,  BOTH,    1.25, 0},
    {"relu",            "",                                       run_relu,           BOTH,    2,    0},
    {"relu_grad",       "",                                       run_relu_grad,      BOTH,    3,    0},
    {"dropout",         "Philox",                                 run_dropout,        BOTH,    2,    0},
    {"softmax",         "logarithm of, rows of 10",               run_softmax,        BOTH,    2,    0},
    {"cross_entropy",   "loss, hits and gradient, rows of 10",    run_cross_entropy,  BOTH,    2,    0.8},
    {"column_sums",     "gradient of a bias",                     run_column_sums,    BOTH,    1,    0},
    {"add",             "two tensors",                            run_add,            BOTH,    3,    0},
    {"add_bias",        "a number a channel",                     run_add_bias,       BOTH,    2,    0},
    {"reorder",         "images to channels-last",                run_reorder,        BOTH,    2,    0},
    {"cast",            "f32 to bf16",                            run_cast,           BY_F32,  1.5,  0},
    {"pairwise_sum",    "a tree sum of four",                     run_pairwise_sum,   BY_F32,  2.5,  0},
    {"array_sums",      "four, to row-major order",               run_array_sums,     BY_F32,  1.25, 0},
    {"gather",          "of samples",                             run_gather,         BOTH,    2,    0},
    {"prepare_images",  "shift and flip, from bytes",             run_prepare_images, BY_F32,  1,    1},
    {"sgd_update",      "",                                       run_sgd,            BY_F32,  3,    0},
    {"momentum_update", "",                                       run_momentum,       BY_F32,  5,    0},
    {"adam_update",     "",                                       run_adam,           BY_F32,  7,    0},
    {"lars_update",     "one segment",                            run_lars,           BY_F32,  5,    0},
    {"squared_norms",   "in blocks of 4096",                      run_squared_norms,  BY_F32,  1,    0},
    {"copy",            "of device memory, again",                run_copy,           BY_F32,  2,    0},
};
/* clang-format on */

/* --- operands -------------------------------------------------------------------------------------------------- */

static void *array(bench *b, lk_gpu_status *status, int64_t elements, size_t size)
{
    void *data = NULL;
    if (*status == LK_GPU_OK)
        *status = b->driver->alloc(b->stream, (size_t)elements * size, &data);
    if (data)
        b->arrays[b->n_arrays++] = data;
    return data;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static lk_gpu_status make_arrays(bench *b)
{
    lk_gpu_status status = LK_GPU_OK;
    void **const large[] = {&b->x, &b->dy, &b->y, &b->dx};
    float **const by_channel[] = {&b->gamma, &b->beta, &b->dgamma, &b->dbeta, &b->loss, &b->hits};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        *large[i] = array(b, &status, b->count, 4);
    for (size_t i = 0; i < sizeof by_channel / sizeof *by_channel; i++)
        *by_channel[i] = array(b, &status, b->channels, sizeof(float));
    b->rows_workspace = array(b, &status, 2 * b->samples, sizeof(float));
    b->where = array(b, &status, b->count / 4, sizeof *b->where);
    b->bytes = (uint8_t *)b->where;
    b->sums = array(b, &status, 2 * b->channels, sizeof *b->sums);
    b->dsums = array(b, &status, 2 * b->channels, sizeof *b->dsums);
    b->one = array(b, &status, 1, sizeof(float));
    b->norms = array(b, &status, 1, sizeof *b->norms);
    lk_gpu_conv_shape first = first_layer(b);
    int64_t most = larger(lk_gpu_sums_workspace(b->rows, b->channels, 3), b->count / LK_GPU_NORM_BLOCK + 2);
    b->workspace = array(b, &status, larger(most, lk_gpu_weight_grad_workspace(&first)), sizeof *b->workspace);
    b->labels = array(b, &status, b->samples, sizeof *b->labels);
    b->indices = array(b, &status, b->images * b->channels, sizeof *b->indices);
    b->epoch = array(b, &status, 1, sizeof *b->epoch);
    b->offsets = array(b, &status, 2, sizeof *b->offsets);
    return status;
}

static lk_gpu_status draw(const bench *b, void *y, lk_dtype dtype, int64_t count, uint32_t key)
{
    return CALL(b, random, .y = y, .dtype = dtype, .count = count, .a = 0, .b = 1, .normal = true,
                .philox = {.key = {key, 0}});
}

/* Fills the arrays that no kernel writes; `x` holds the labels as floats meanwhile. */
static lk_gpu_status fill_others(const bench *b)
{
    lk_gpu_status status = CALL(b, random, .y = b->x, .dtype = LK_F32, .count = b->samples, .a = 0, .b = CLASSES,
                                .philox = {.key = {9, 0}});
    if (status == LK_GPU_OK)
        status =
            CALL(b, convert, .y = dense(b->labels, LK_I64), .x = dense(b->x, LK_F32), .ndim = 1, .dim = {b->samples});
    if (status == LK_GPU_OK)
        status = CALL(b, arange, .y = b->indices, .dtype = LK_I64, .count = b->images * b->channels, .step = 1);
    if (status == LK_GPU_OK)
        status = CALL(b, fill, .y = b->epoch, .dtype = LK_I64, .count = 1, .value = 1);
    if (status == LK_GPU_OK)
        status = CALL(b, arange, .y = b->offsets, .dtype = LK_I64, .count = 2, .step = (double)b->count);
    if (status == LK_GPU_OK)
        status = CALL(b, fill, .y = b->gamma, .dtype = LK_F32, .count = b->channels, .value = 1);
    if (status == LK_GPU_OK)
        status = CALL(b, fill, .y = b->beta, .dtype = LK_F32, .count = b->channels, .value = 0);
    return status;
}

/* Fills the others with random numbers of the dtype, and computes their statistics and pooled maxima. y, like dx used
 * as Adam's second moment, must not be negative. */
static lk_gpu_status fill_large(const bench *b)
{
    void *const arrays[] = {b->x, b->dy, b->y, b->dx};
    lk_gpu_status status = LK_GPU_OK;
    for (uint32_t i = 0; i < 3 && status == LK_GPU_OK; i++)
        status = draw(b, arrays[i], b->dtype, b->count, i + 1);
    if (status == LK_GPU_OK)
        status = CALL(b, fill, .y = b->dx, .dtype = b->dtype, .count = b->count, .value = 1);
    if (status == LK_GPU_OK)
        status = CALL(b, fill, .y = b->one, .dtype = b->dtype, .count = 1, .value = 1);
    if (status == LK_GPU_OK)
        status = run_channel_sums(b);
    return status == LK_GPU_OK ? run_max_pool(b) : status;
}

/* --- measuring ------------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Seconds per launch, over `launches` launches; negative if one failed. */
static double time_launches(const bench *b, const kernel *k, int launches)
{
    double began = now();
    for (int i = 0; i < launches; i++)
        if (k->launch(b) != LK_GPU_OK)
            return -1;
    return b->driver->stream_wait(b->stream) == LK_GPU_OK ? (now() - began) / launches : -1;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of rounds of about 20 ms each. */
static double measure(const bench *b, const kernel *k)
{
    double seconds[ROUNDS], first = time_launches(b, k, 1);
    if (first < 0 || b->rounds == 1)
        return first;
    double one = time_launches(b, k, 3);
    int launches = one < 0 ? 1 : 0.02 / one > MAX_LAUNCHES ? MAX_LAUNCHES : (int)(0.02 / one) + 1;
    for (int i = 0; i < b->rounds; i++)
        if ((seconds[i] = time_launches(b, k, launches)) < 0)
            return -1;
    qsort(seconds, (size_t)b->rounds, sizeof *seconds, ascending);
    return seconds[b->rounds / 2];
}

static bool report(const bench *b, const kernel *k)
{
    double size = (double)lk_dtype_size(b->dtype), side = (double)b->side, seconds = measure(b, k);
    double bytes = (double)b->count * (k->elements * size + k->more_bytes);
    bool is_matmul = k->launch == run_matmul;
    if (is_matmul)
        bytes = 3 * side * side * size;
    if (seconds < 0) {
        fprintf(stderr, "bench_gpu_kernels: %s %s: %s\n", k->name, lk_dtype_name(b->dtype), b->driver->error());
        return false;
    }
    printf("{\"kernel\": \"%s\", \"what\": \"%s\", \"dtype\": \"%s\", \"bytes\": %.0f, \"flops\": %.0f, ", k->name,
           k->what, lk_dtype_name(b->dtype), bytes, is_matmul ? 2 * side * side * side : 0);
    if (b->is_emulated)
        printf("\"seconds\": null}\n");
    else
        printf("\"seconds\": %.9f}\n", seconds);
    return fflush(stdout) == 0;
}

static bool measure_all(bench *b, lk_dtype dtype)
{
    int mark = dtype == LK_F32 ? BY_F32 : BY_BF16;
    bool good = true;
    b->dtype = dtype;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        if (!(kernels[i].dtypes & mark))
            continue;
        /* Refill before each kernel: the one before may have left values that would distort the time. */
        if (fill_large(b) != LK_GPU_OK) {
            fprintf(stderr, "bench_gpu_kernels: operands: %s\n", b->driver->error());
            return false;
        }
        good = report(b, &kernels[i]) && good;
    }
    return good;
}

static lk_gpu_status open_gpu(bench *b)
{
    lk_gpu_info info;
    lk_gpu_status status = b->driver->describe(0, &info);
    if (status == LK_GPU_OK)
        status = b->driver->stream_open(0, NULL, &b->stream);
    b->is_emulated = strncmp(info.name, "emulated", 8) == 0;
    return status;
}

static void close_gpu(const bench *b)
{
    for (int i = 0; i < b->n_arrays; i++)
        b->driver->alloc_free(b->stream, b->arrays[i]);
    b->driver->stream_close(b->stream);
}

static void choose_sizes(bench *b, bool quick)
{
    b->rounds = quick ? 1 : ROUNDS;
    b->images = quick ? 4 : 1024;
    b->size = quick ? 8 : 28;
    b->channels = quick ? 16 : 160;
    b->side = quick ? 48 : 8192;
    b->rows = b->images * b->size * b->size;
    b->count = b->rows * b->channels;
    b->samples = b->count / CLASSES;
}

int main(int argc, char **argv)
{
    const char *reason;
    bench b = {.driver = lk__cuda_driver(&reason)};
    if (!b.driver || b.driver->count() == 0) {
        fprintf(stderr, "bench_gpu_kernels: %s\n", b.driver ? b.driver->error() : reason);
        return 1;
    }
    choose_sizes(&b, argc > 1 && strcmp(argv[1], "--quick") == 0);
    lk_gpu_status status = open_gpu(&b);
    if (status == LK_GPU_OK)
        status = make_arrays(&b);
    if (status == LK_GPU_OK)
        status = fill_others(&b);
    if (status != LK_GPU_OK) {
        fprintf(stderr, "bench_gpu_kernels: %s\n", b.driver->error());
        close_gpu(&b);
        return 1;
    }
    bool in_f32 = measure_all(&b, LK_F32), in_bf16 = measure_all(&b, LK_BF16);
    close_gpu(&b);
    return in_f32 && in_bf16 ? 0 : 1;
}
