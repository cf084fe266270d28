/* Batch normalization. x is [N, C, …] in channels-last order, which the kernels see as a matrix [rows, channels]. */
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_operands.h"
#include "cuda/cuda_state.h"
#include "cuda/cuda_tensors.h"
#include "cuda/cuda_together.h"
#include "ops/ops.h"

/* --- shared by the calls ------------------------------------------------------------------------------------------ */

static int64_t cuda_norm_channel_count(const lk_tensor *x)
{
    return x->shape.dim[1];
}

/* The rows of a part. */
static int64_t cuda_norm_row_count(const lk_call *call, const lk_tensor *x)
{
    int64_t channels = cuda_norm_channel_count(x);
    return channels > 0 ? lk_tensor_count(x) / channels / lk__cuda_parts(call) : 0;
}

/* Allocates the workspace of up to n sums. */
static double *cuda_norm_sums_workspace(lk_cuda_scratch *s, const lk_tensor *x, int n)
{
    int64_t doubles = lk_gpu_sums_workspace(cuda_norm_row_count(s->call, x), cuda_norm_channel_count(x), n);
    return lk__cuda_new(s, (size_t)(lk__cuda_parts(s->call) * doubles) * sizeof(double));
}

static lk_gpu_statistics cuda_norm_from_sums(const lk_call *call, const double *sums)
{
    const lk_batch_norm_attrs *attrs = LK_ATTRS(call, lk_batch_norm_attrs);
    return (lk_gpu_statistics){.sums = sums, .count = attrs->count, .epsilon = attrs->epsilon};
}

/* mean is in[i], variance in[i + 1]. */
static lk_gpu_statistics cuda_norm_from_moments(lk_cuda_scratch *s, int i)
{
    return (lk_gpu_statistics){.mean = lk__cuda_plain(s, s->call->in[i]),
                               .variance = lk__cuda_plain(s, s->call->in[i + 1]),
                               .epsilon = LK_ATTRS(s->call, lk_batch_norm_attrs)->epsilon};
}

/* --- channel_sums ------------------------------------------------------------------------------------------------- */

/* Writes the channel sums of in[0] to `sums`; x is in[0] in channels-last order. */
static void cuda_norm_launch_channel_sums(lk_cuda_scratch *s, const void *x, double *sums)
{
    const lk_call *call = s->call;
    double *workspace = cuda_norm_sums_workspace(s, call->in[0], 2);
    if (s->status == LK_OK)
        s->status = LK_CUDA_LAUNCH(call, channel_sums, .x = x, .sums = sums, .workspace = workspace,
                                   .dtype = call->dtype, .rows = cuda_norm_row_count(call, call->in[0]),
                                   .parts = call->parts, .channels = cuda_norm_channel_count(call->in[0]));
}

lk_status lk__cuda_channel_sums(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const void *x = lk__cuda_images(&s, call->in[0]);
    double *sums = lk__cuda_out(&s, 0);
    cuda_norm_launch_channel_sums(&s, x, sums);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_channel_sums_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const void *x = lk__cuda_images(&s, call->in[0]);
    const double *dsums = lk__cuda_plain(&s, call->in[1]);
    void *dx = lk__cuda_out_images(&s, 0);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(call, channel_sums_grad, .x = x, .dsums = dsums, .dx = dx, .dtype = call->dtype,
                                  .rows = cuda_norm_row_count(call, call->in[0]), .parts = call->parts,
                                  .channels = cuda_norm_channel_count(call->in[0]));
    return lk__cuda_end(&s);
}

/* --- normalization ------------------------------------------------------------------------------------------------ */

/* The operation fused behind the normalization. */
typedef enum tail { NOTHING, ADD_AND_RELU } tail;

/* (x, gamma, beta, …) → y. `x` is in[0] in channels-last order; residual may be NULL. */
static lk_status launch_normalize_and_end(lk_cuda_scratch *s, const void *x, lk_gpu_statistics statistics,
                                          const lk_tensor *residual, tail then)
{
    const lk_call *call = s->call;
    const float *gamma = lk__cuda_plain(s, call->in[1]), *beta = lk__cuda_plain(s, call->in[2]);
    const void *added = lk__cuda_images(s, residual);
    void *y = lk__cuda_out_images(s, 0);
    if (s->status == LK_OK)
        s->status = LK_CUDA_LAUNCH(call, normalize, .x = x, .residual = added, .gamma = gamma, .beta = beta, .y = y,
                                   .statistics = statistics, .dtype = call->dtype,
                                   .rows = cuda_norm_row_count(call, call->in[0]), .parts = call->parts,
                                   .channels = cuda_norm_channel_count(call->in[0]), .act = then == ADD_AND_RELU,
                                   .residual_last = LK_ATTRS(call, lk_batch_norm_attrs)->residual_last);
    return lk__cuda_end(s);
}

/* Normalizes with x's own sums, which are the second output. */
static lk_status normalize_with_own(lk_call *call, const lk_tensor *residual, tail then)
{
    lk_cuda_scratch s = {.call = call};
    const void *x = lk__cuda_images(&s, call->in[0]);
    double *sums = lk__cuda_out(&s, 1);
    cuda_norm_launch_channel_sums(&s, x, sums);
    return launch_normalize_and_end(&s, x, cuda_norm_from_sums(call, sums), residual, then);
}

lk_status lk__cuda_batch_norm(lk_call *call)
{
    return normalize_with_own(call, NULL, NOTHING);
}

lk_status lk__cuda_batch_norm_act(lk_call *call)
{
    return normalize_with_own(call, call->in[3], ADD_AND_RELU);
}

lk_status lk__cuda_batch_norm_drop(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_dropout_attrs *drop = &LK_ATTRS(call, lk_batch_norm_drop_attrs)->drop;
    const void *x = lk__cuda_images(&s, call->in[0]);
    double *sums = lk__cuda_out(&s, 1);
    cuda_norm_launch_channel_sums(&s, x, sums);
    const float *gamma = lk__cuda_plain(&s, call->in[1]), *beta = lk__cuda_plain(&s, call->in[2]);
    const int64_t *indices = lk__cuda_plain(&s, call->in[3]);
    void *y = lk__cuda_out_images(&s, 0);
    uint8_t *kept = lk__cuda_out(&s, 2);
    int64_t images = call->in[0]->shape.dim[0] / lk__cuda_parts(call), rows = cuda_norm_row_count(call, call->in[0]);
    if (s.status == LK_OK && rows > 0)
        s.status = LK_CUDA_LAUNCH(
            call, normalize, .x = x, .gamma = gamma, .beta = beta, .y = y, .kept = kept, .indices = indices,
            .statistics = cuda_norm_from_sums(call, sums), .dtype = call->dtype, .rows = rows, .parts = call->parts,
            .channels = cuda_norm_channel_count(call->in[0]), .act = true, .pixels = rows / images, .rate = drop->rate,
            .philox = lk__cuda_philox_of_step(call, &drop->key));
    return lk__cuda_end(&s);
}

/* The pooling of a part: its input is x, its output y. */
static lk_geometry cuda_norm_window(const lk_call *call, const lk_tensor *x, const lk_tensor *y)
{
    lk_geometry window = lk__geometry_of_pool(x->shape, y->shape, &LK_ATTRS(call, lk_batch_norm_pool_attrs)->pool);
    window.images /= lk__cuda_parts(call);
    return window;
}

lk_status lk__cuda_batch_norm_pool(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const void *x = lk__cuda_images(&s, call->in[0]), *residual = lk__cuda_images(&s, call->in[3]);
    double *sums = lk__cuda_out(&s, 1);
    cuda_norm_launch_channel_sums(&s, x, sums);
    const float *gamma = lk__cuda_plain(&s, call->in[1]), *beta = lk__cuda_plain(&s, call->in[2]);
    void *y = lk__cuda_out_images(&s, 0);
    uint8_t *where = lk__cuda_out_images(&s, 2);
    if (s.status == LK_OK)
        s.status =
            LK_CUDA_LAUNCH(call, normalize_pool, .x = x, .residual = residual, .gamma = gamma, .beta = beta, .y = y,
                           .where = where, .statistics = cuda_norm_from_sums(call, sums), .dtype = call->dtype,
                           .window = cuda_norm_window(call, call->in[0], call->out[0]), .parts = call->parts);
    return lk__cuda_end(&s);
}

lk_status lk__cuda_batch_norm_with(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const void *x = lk__cuda_images(&s, call->in[0]);
    lk_gpu_statistics statistics = cuda_norm_from_sums(call, lk__cuda_plain(&s, call->in[3]));
    return launch_normalize_and_end(&s, x, statistics, NULL, NOTHING);
}

static lk_status normalize_by_moments(lk_call *call, const lk_tensor *residual, tail then)
{
    lk_cuda_scratch s = {.call = call};
    const void *x = lk__cuda_images(&s, call->in[0]);
    lk_gpu_statistics statistics = cuda_norm_from_moments(&s, 3);
    return launch_normalize_and_end(&s, x, statistics, residual, then);
}

lk_status lk__cuda_batch_norm_inference(lk_call *call)
{
    return normalize_by_moments(call, NULL, NOTHING);
}

lk_status lk__cuda_batch_norm_inference_act(lk_call *call)
{
    return normalize_by_moments(call, call->in[5], ADD_AND_RELU);
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

/* The operands of a gradient. */
typedef struct gradient {
    const lk_tensor *kept;  /* NULL: no dropout */
    const lk_tensor *where; /* NULL: no pooling */
    double rate;
    const lk_tensor *dy, *more, *act_y, *x, *gamma, *act_beta; /* act_y and act_beta NULL: no activation */
    int dresidual, dsums, dx_sums, d_sums;                     /* indices of these outputs; 0: none */
} gradient;

/* → dx, dgamma, dbeta, … */
static lk_status launch_normalize_grad(lk_cuda_scratch *s, const gradient *g, lk_gpu_statistics statistics,
                                       lk_gpu_through through)
{
    const void *dy = lk__cuda_images(s, g->dy), *more = lk__cuda_images(s, g->more);
    const void *act_y = lk__cuda_images(s, g->act_y), *x = lk__cuda_images(s, g->x);
    const float *gamma = lk__cuda_plain(s, g->gamma), *act_beta = lk__cuda_plain(s, g->act_beta);
    const uint8_t *kept = lk__cuda_plain(s, g->kept), *where = lk__cuda_images(s, g->where);
    float *d_sums = g->d_sums ? lk__cuda_out(s, g->d_sums) : NULL;
    double *workspace = cuda_norm_sums_workspace(s, g->x, d_sums ? 3 : 2);
    lk_geometry window = g->where ? cuda_norm_window(s->call, g->x, g->where) : (lk_geometry){0};
    void *dx = lk__cuda_out_images(s, 0), *dresidual = g->dresidual ? lk__cuda_out_images(s, g->dresidual) : NULL;
    float *dgamma = lk__cuda_out(s, 1), *dbeta = lk__cuda_out(s, 2);
    double *dsums = g->dsums ? lk__cuda_out(s, g->dsums) : NULL;
    float *dx_sums = g->dx_sums ? lk__cuda_out(s, g->dx_sums) : NULL;
    if (s->status == LK_OK)
        s->status =
            LK_CUDA_LAUNCH(s->call, normalize_grad, .dy = dy, .more = more, .act_y = act_y, .x = x, .kept = kept,
                           .where = where, .rate = g->rate, .window = window, .gamma = gamma, .act_beta = act_beta,
                           .dx = dx, .dresidual = dresidual, .dgamma = dgamma, .dbeta = dbeta, .dsums = dsums,
                           .dx_sums = dx_sums, .d_sums = d_sums, .workspace = workspace, .statistics = statistics,
                           .through = through, .dtype = s->call->dtype, .rows = cuda_norm_row_count(s->call, g->x),
                           .parts = s->call->parts, .channels = cuda_norm_channel_count(g->x));
    return lk__cuda_end(s);
}

lk_status lk__cuda_batch_norm_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    gradient g = {.dy = call->in[0], .x = call->in[1], .gamma = call->in[2], .dx_sums = 3};
    return launch_normalize_grad(&s, &g, cuda_norm_from_sums(call, lk__cuda_plain(&s, call->in[3])),
                                 LK_GPU_THROUGH_SUMS);
}

/* Without a residual y is not read: computing it again from x, which is read in any case, saves a third of the bytes.
 */
lk_status lk__cuda_batch_norm_act_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    bool computes_y = call->n_in > 5 && call->in[5];
    gradient g = {.dy = call->in[0],
                  .more = call->n_in == 7 ? call->in[6] : NULL,
                  .act_y = computes_y ? NULL : call->in[1],
                  .x = call->in[2],
                  .gamma = call->in[3],
                  .act_beta = computes_y ? call->in[5] : NULL,
                  .dresidual = 3,
                  .dx_sums = 4,
                  .d_sums = 5};
    return launch_normalize_grad(&s, &g, cuda_norm_from_sums(call, lk__cuda_plain(&s, call->in[4])),
                                 LK_GPU_THROUGH_SUMS);
}

lk_status lk__cuda_batch_norm_drop_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    gradient g = {.dy = call->in[0],
                  .kept = call->in[1],
                  .rate = LK_ATTRS(call, lk_batch_norm_drop_attrs)->drop.rate,
                  .x = call->in[2],
                  .gamma = call->in[3],
                  .dx_sums = 3};
    return launch_normalize_grad(&s, &g, cuda_norm_from_sums(call, lk__cuda_plain(&s, call->in[4])),
                                 LK_GPU_THROUGH_SUMS);
}

lk_status lk__cuda_batch_norm_pool_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    gradient g = {.dy = call->in[0],
                  .where = call->in[1],
                  .x = call->in[2],
                  .gamma = call->in[3],
                  .act_beta = call->in[5],
                  .more = call->in[6],
                  .dresidual = 3,
                  .dx_sums = 4};
    return launch_normalize_grad(&s, &g, cuda_norm_from_sums(call, lk__cuda_plain(&s, call->in[4])),
                                 LK_GPU_THROUGH_SUMS);
}

lk_status lk__cuda_batch_norm_with_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    gradient g = {.dy = call->in[0], .x = call->in[1], .gamma = call->in[2], .dsums = 3};
    return launch_normalize_grad(&s, &g, cuda_norm_from_sums(call, lk__cuda_plain(&s, call->in[3])), LK_GPU_SUMS_HELD);
}

lk_status lk__cuda_batch_norm_inference_grad(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    gradient g = {.dy = call->in[0], .x = call->in[1], .gamma = call->in[2]};
    return launch_normalize_grad(&s, &g, cuda_norm_from_moments(&s, 3), LK_GPU_MOMENTS_HELD);
}

/* --- running statistics ------------------------------------------------------------------------------------------- */

/* out[i] is the same tensor as in[i]. A view with gaps is copied, and lk__cuda_end writes the copy back. */
static float *cuda_norm_in_place(lk_cuda_scratch *s, int i)
{
    if (lk__tensor_is_dense(s->call->out[i]))
        return lk__cuda_out(s, i);
    s->out[i] = lk__cuda_plain(s, s->call->in[i]);
    return s->out[i];
}

lk_status lk__cuda_batch_norm_update(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    float *mean = cuda_norm_in_place(&s, 0), *variance = cuda_norm_in_place(&s, 1);
    const double *sums = lk__cuda_plain(&s, call->in[2]);
    const float *skip = call->n_in == 4 ? lk__cuda_plain(&s, call->in[3]) : NULL;
    const lk_gpu_running_layer layer = {.mean = mean,
                                        .variance = variance,
                                        .skip = skip,
                                        .statistics = cuda_norm_from_sums(call, sums),
                                        .channels = call->out[0]->shape.dim[0],
                                        .momentum = LK_ATTRS(call, lk_batch_norm_attrs)->momentum};
    if (s.status == LK_OK)
        s.status = lk__cuda_add_running(lk__cuda_of(call), &layer);
    return lk__cuda_end(&s);
}
