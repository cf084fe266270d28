#include "cpu/cpu_lanes.h"

#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/cpu_convert.h"
#include "cpu/cpu_state.h"
#include "cpu/lanes.h"
#include "ops/ops.h"

#include <stdio.h>

/* --- when --------------------------------------------------------------------------------------------------------- */

static bool want(int64_t images, int64_t channels)
{
    return images >= LK_LANES && channels % LK_LANES != 0 && lk__lanes_supported() && !lk__dnnl_has_avx512();
}

static bool is_simple(const lk_conv2d_opts *opts)
{
    for (int i = 0; i < 2; i++)
        if (opts->stride[i] != 1 || opts->dilation[i] != 1 || opts->padding[i] != 0)
            return false;
    return opts->groups == 1;
}

bool lk__cpu_lanes_want_conv(lk_shape x, lk_shape w, const lk_conv2d_opts *opts)
{
    return is_simple(opts) && want(x.dim[0], x.dim[1]) && want(x.dim[0], w.dim[0]);
}

bool lk__cpu_lanes_want_pool(const lk_call *call)
{
    const lk_tensor *x = call->in[0];
    const lk_layout *layout = x->storage->layout;
    return call->free_layout && (!layout || layout->lanes) && want(x->shape.dim[0], x->shape.dim[1]);
}

/* --- what the calls have in common -------------------------------------------------------------------------------- */

/* Keeps the layouts of what goes in and out, and the room for packed weights. */
static lk_status prepare(const lk_call *call, lk_prepared *prepared, int n_lanes, size_t scratch_bytes)
{
    char in[2][64] = {"", ""};
    for (int i = 0; i < call->n_in && i < 2; i++)
        lk__shape_text(call->in[i]->shape, in[i], sizeof in[i]);
    snprintf(prepared->problem, sizeof prepared->problem, "f32 %s%s", in[0], in[1]);
    snprintf(prepared->implementation, sizeof prepared->implementation, "lanes:avx2");
    prepared->scratch_bytes = scratch_bytes;
    for (int i = 0; i < n_lanes; i++)
        LK_TRY(lk__layout_lanes(call->in[i]->shape, &prepared->lanes_in[i]));
    return call->out[0]->shape.ndim == 4 ? lk__layout_lanes(call->out[0]->shape, &prepared->lanes_out) : LK_OK;
}

typedef struct lane_inputs {
    lk_converted in[3];
} lane_inputs;

/* Inputs in the layouts that `prepared` names, others plain. The scratch memory is free again afterwards. */
static lk_status convert_inputs(lk_call *call, const lk_prepared *prepared, lane_inputs *inputs)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i])
            LK_TRY(lk__cpu_as(call->device, call->in[i], i < 2 ? prepared->lanes_in[i] : NULL, &inputs->in[i]));
    return lk__cpu_scratch(call->device->state, prepared->scratch_bytes);
}

static void end_inputs(lk_call *call, lane_inputs *inputs)
{
    for (int i = 0; i < call->n_in; i++)
        lk__cpu_as_end(call->device, &inputs->in[i]);
}

static lk_status allocate_output(lk_call *call, const lk_prepared *prepared)
{
    return lk__storage_allocate(call->out[0]->storage, prepared->lanes_out->bytes, prepared->lanes_out);
}

/* The kernel proper, with everything where it should be. */
typedef void (*compute_fn)(lk_call *call, const lane_inputs *inputs, float *scratch);

static lk_status run(lk_call *call, const lk_key *key, lk_prepare_fn prepare_call, compute_fn compute)
{
    lk_cpu *cpu = call->device->state;
    lk_prepared *prepared;
    lane_inputs inputs = {0};
    LK_TRY(lk__prepared_get(cpu, key, call, prepare_call, &prepared));
    lk_status status = convert_inputs(call, prepared, &inputs);
    if (status == LK_OK)
        status = prepared->lanes_out ? allocate_output(call, prepared) : lk__output_plain(call->out[0]);
    for (int i = 1; i < call->n_out && status == LK_OK; i++)
        status = lk__output_plain(call->out[i]);
    if (status == LK_OK)
        compute(call, &inputs, cpu->scratch);
    end_inputs(call, &inputs);
    return status;
}

/* --- convolution -------------------------------------------------------------------------------------------------- */

static lk_lanes_conv conv_of(lk_shape x, lk_shape y, lk_shape w)
{
    return (lk_lanes_conv){.images = x.dim[0],
                           .in = {x.dim[2], x.dim[3], x.dim[1]},
                           .out = {y.dim[2], y.dim[3], y.dim[1]},
                           .kernel = {w.dim[2], w.dim[3]}};
}

static lk_lanes_conv forward_conv(const lk_call *call)
{
    return conv_of(call->in[0]->shape, call->out[0]->shape, call->in[1]->shape);
}

/* The gradient of the input is a convolution of dy, padded so that every tap finds a place. */
static lk_lanes_conv input_grad_conv(const lk_call *call)
{
    lk_lanes_conv conv = forward_conv(call);
    for (int i = 0; i < 2; i++)
        conv.padding[i] = conv.kernel[i] - 1;
    return conv;
}

static lk_status prepare_conv(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk_lanes_conv conv = forward_conv(call);
    return prepare(call, prepared, 1, lk__lanes_packed_count(&conv) * sizeof(float));
}

static void compute_conv(lk_call *call, const lane_inputs *inputs, float *scratch)
{
    lk_lanes_conv conv = forward_conv(call);
    lk__lanes_pack(&conv, inputs->in[1].data, false, scratch);
    lk__lanes_conv2d(&conv, inputs->in[0].data, scratch, inputs->in[2].data, call->out[0]->storage->data);
}

lk_status lk__cpu_lanes_conv2d(lk_call *call)
{
    lk_key key;
    lk__key_call(&key, call);
    return run(call, &key, prepare_conv, compute_conv);
}

static void compute_input_grad(lk_call *call, const lane_inputs *inputs, float *scratch)
{
    lk_lanes_conv conv = input_grad_conv(call);
    lk__lanes_pack(&conv, inputs->in[1].data, true, scratch);
    lk__lanes_conv2d(&conv, inputs->in[0].data, scratch, NULL, call->out[0]->storage->data);
}

lk_status lk__cpu_lanes_conv2d_input_grad(lk_call *call)
{
    lk_key key;
    lk__key_call(&key, call);
    return run(call, &key, prepare_conv, compute_input_grad);
}

static lk_status prepare_weight_grad(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    LK_TRY(prepare(call, prepared, 2, 0));
    prepared->lanes_out = NULL; /* gradients of parameters are plain */
    return LK_OK;
}

static void compute_weight_grad(lk_call *call, const lane_inputs *inputs, float *scratch)
{
    (void)scratch;
    lk_lanes_conv conv = conv_of(call->in[1]->shape, call->in[0]->shape, call->out[0]->shape);
    float *dbias = call->n_out > 1 ? call->out[1]->storage->data : NULL;
    lk__lanes_weight_grad(&conv, inputs->in[0].data, inputs->in[1].data, call->out[0]->storage->data, dbias);
}

lk_status lk__cpu_lanes_conv2d_weight_grad(lk_call *call)
{
    lk_key key;
    lk__key_call(&key, call);
    return run(call, &key, prepare_weight_grad, compute_weight_grad);
}

/* --- average pooling ---------------------------------------------------------------------------------------------- */

static lk_lanes_pool pool_of(lk_shape x, lk_shape y, const lk_pool2d_opts *opts)
{
    lk_lanes_pool pool = {.images = x.dim[0], .channels = x.dim[1], .count_padding = opts->count_include_pad};
    for (int i = 0; i < 2; i++) {
        pool.in[i] = x.dim[2 + i];
        pool.out[i] = y.dim[2 + i];
        pool.kernel[i] = opts->kernel[i];
        pool.stride[i] = opts->stride[i];
        pool.padding[i] = opts->padding[i];
    }
    return pool;
}

static lk_status prepare_pool(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    return prepare(call, prepared, 1, 0);
}

static void compute_pool(lk_call *call, const lane_inputs *inputs, float *scratch)
{
    (void)scratch;
    lk_lanes_pool pool = pool_of(call->in[0]->shape, call->out[0]->shape, LK_ATTRS(call, lk_pool2d_opts));
    lk__lanes_avg_pool(&pool, inputs->in[0].data, call->out[0]->storage->data);
}

static void compute_pool_grad(lk_call *call, const lane_inputs *inputs, float *scratch)
{
    (void)scratch;
    const lk_pool2d_opts *opts = &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool;
    lk_lanes_pool pool = pool_of(call->out[0]->shape, call->in[0]->shape, opts);
    lk__lanes_avg_pool_grad(&pool, inputs->in[0].data, call->out[0]->storage->data);
}

/* Only layouts are kept, so options need not tell one call from another, but sizes must. */
static lk_status run_pool(lk_call *call, compute_fn compute)
{
    lk_key key;
    lk__key_call(&key, call);
    lk__key_add(&key, call->out[0]->shape.dim, 4);
    return run(call, &key, prepare_pool, compute);
}

lk_status lk__cpu_lanes_avg_pool2d(lk_call *call)
{
    return run_pool(call, compute_pool);
}

lk_status lk__cpu_lanes_avg_pool2d_grad(lk_call *call)
{
    return run_pool(call, compute_pool_grad);
}
