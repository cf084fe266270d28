/* conv2d and its gradients. lk__cpu_convolution, at the end, runs the alternative that cpu_choice.h chooses; everything
 * else is oneDNN's alternative, in which oneDNN chooses every layout. */
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/cpu.h"
#include "cpu/cpu_choice.h"
#include "cpu/cpu_kernels.h"
#include "cpu/onednn/cpu_state.h"
#include "ops/ops.h"

#include <stdio.h>

typedef struct shapes {
    lk_shape x, w, y; /* w: [O, I, KH, KW], or [groups, O / groups, I, KH, KW] */
    bool bias;
    const lk_conv2d_opts *opts;
} shapes;

typedef struct descriptors {
    lk_md x, w, bias, y;
} descriptors;

static lk_shape grouped_shape(lk_shape w, int64_t groups)
{
    if (groups == 1)
        return w;
    return LK_SHAPE(groups, w.dim[0] / groups, w.dim[1], w.dim[2], w.dim[3]);
}

/* Returns a view of w with the groups as a dimension of their own. */
static lk_tensor cpu_conv_grouped_view(const lk_tensor *w, int64_t groups)
{
    lk_tensor view = lk__tensor_alias(w);
    view.shape = grouped_shape(w->shape, groups);
    if (groups == 1)
        return view;
    view.strides[0] = w->strides[0] * view.shape.dim[1];
    for (int i = 0; i < 4; i++)
        view.strides[i + 1] = w->strides[i];
    return view;
}

static lk_status describe_conv(const shapes *s, descriptors *d)
{
    LK_TRY(lk__md_tagged(&d->x, 4, s->x.dim, dnnl_f32, dnnl_format_tag_any));
    LK_TRY(lk__md_tagged(&d->w, s->w.ndim, s->w.dim, dnnl_f32, dnnl_format_tag_any));
    LK_TRY(lk__md_tagged(&d->y, 4, s->y.dim, dnnl_f32, dnnl_format_tag_any));
    return s->bias ? lk__md_strided(&d->bias, 1, (int64_t[]){s->y.dim[1]}, dnnl_f32, (int64_t[]){1}) : LK_OK;
}

static lk_convolution conv_description(const shapes *s, const descriptors *d, dnnl_prop_kind_t kind)
{
    lk_convolution problem = {.kind = kind, .x = &d->x, .w = &d->w, .bias = s->bias ? &d->bias : NULL, .y = &d->y};
    for (int i = 0; i < 2; i++) {
        problem.stride[i] = s->opts->stride[i];
        problem.dilation[i] = s->opts->dilation[i];
        problem.padding[i] = s->opts->padding[i];
    }
    return problem;
}

static lk_status cpu_conv_make_from(lk_cpu *cpu, const shapes *s, const descriptors *d, dnnl_prop_kind_t kind,
                                    dnnl_primitive_desc_t *pd)
{
    dnnl_primitive_desc_t forward;
    lk_convolution problem = conv_description(s, d, dnnl_forward_training);
    LK_TRY(lk__pd_convolution(&forward, cpu->engine, &problem, NULL));
    if (kind == dnnl_forward_training) {
        *pd = forward;
        return LK_OK;
    }
    problem = conv_description(s, d, kind);
    lk_status status = lk__pd_convolution(pd, cpu->engine, &problem, forward);
    dnnl_primitive_desc_destroy(forward);
    return status;
}

static lk_status cpu_conv_make_pd(lk_cpu *cpu, const shapes *s, dnnl_prop_kind_t kind, dnnl_primitive_desc_t *pd)
{
    descriptors d = {0};
    lk_status status = describe_conv(s, &d);
    if (status == LK_OK)
        status = cpu_conv_make_from(cpu, s, &d, kind, pd);
    lk__md_free(&d.x);
    lk__md_free(&d.w);
    lk__md_free(&d.y);
    lk__md_free(&d.bias);
    return status;
}

/* An operand of a direction: the argument of the primitive and how to query its layout. */
typedef struct operand_row {
    int argument;
    dnnl_query_t query;
    lk_direction direction;
} operand_row;

static lk_status cpu_conv_prepare_operands(lk_cpu *cpu, lk_prepared *prepared, dnnl_primitive_desc_t pd,
                                           const operand_row *rows, int n, const lk_tensor *const *tensors,
                                           bool free_layout)
{
    LK_TRY(lk__prepare_primitive(cpu, prepared, pd));
    for (int i = 0; i < n; i++)
        LK_TRY(lk__prepare_queried(cpu, prepared, rows[i].argument, rows[i].direction, tensors[i], pd, rows[i].query,
                                   free_layout));
    return LK_OK;
}

static lk_status prepare_conv_primitive(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared, const shapes *s,
                                        dnnl_prop_kind_t kind, const operand_row *rows, int n,
                                        const lk_tensor *const *tensors, bool free_layout)
{
    dnnl_primitive_desc_t pd;
    lk__conv_call_text(call, prepared->problem, sizeof prepared->problem);
    LK_TRY(cpu_conv_make_pd(cpu, s, kind, &pd));
    lk_status status = cpu_conv_prepare_operands(cpu, prepared, pd, rows, n, tensors, free_layout);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static void conv_key(lk_key *key, const lk_call *call, const lk_conv2d_opts *opts)
{
    lk__key_call(key, call);
    lk__key_conv(key, opts);
    lk__key_add(key, &opts->groups, 1);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static lk_status onednn_prepare_forward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    static const operand_row rows[] = {{DNNL_ARG_SRC, dnnl_query_src_md, LK_IN},
                                       {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, LK_IN},
                                       {DNNL_ARG_DST, dnnl_query_dst_md, LK_OUT}};
    const lk_conv2d_opts *opts = LK_ATTRS(call, lk_conv2d_opts);
    const lk_tensor *bias = call->in[2];
    lk_tensor w = cpu_conv_grouped_view(call->in[1], opts->groups);
    shapes s = {call->in[0]->shape, w.shape, call->out[0]->shape, bias != NULL, opts};
    LK_TRY(prepare_conv_primitive(cpu, call, prepared, &s, dnnl_forward_training, rows, 3,
                                  (const lk_tensor *[]){call->in[0], &w, call->out[0]}, call->free_layout));
    if (!bias)
        return LK_OK;
    lk_md md;
    LK_TRY(lk__md_strided(&md, 1, bias->shape.dim, dnnl_f32, (int64_t[]){1}));
    lk_status status = lk__prepare_operand(cpu, prepared, DNNL_ARG_BIAS, LK_IN, bias, &md, false);
    lk__md_free(&md);
    return status;
}

static lk_status onednn_forward(lk_call *call)
{
    lk_cpu *cpu = call->device->state;
    const lk_conv2d_opts *opts = LK_ATTRS(call, lk_conv2d_opts);
    lk_prepared *prepared;
    lk_key key;
    conv_key(&key, call, opts);
    LK_TRY(lk__prepared_get(cpu, &key, call, onednn_prepare_forward, &prepared));
    lk_tensor w = cpu_conv_grouped_view(call->in[1], opts->groups);
    return lk__prepared_run_weights(call, prepared, (lk_tensor *[]){call->in[0], &w, call->out[0], call->in[2]});
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

static lk_status onednn_prepare_input_grad(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    static const operand_row rows[] = {{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, LK_IN},
                                       {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, LK_IN},
                                       {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, LK_OUT}};
    const lk_conv2d_opts *opts = &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv;
    lk_tensor w = cpu_conv_grouped_view(call->in[1], opts->groups);
    shapes s = {call->out[0]->shape, w.shape, call->in[0]->shape, false, opts};
    return prepare_conv_primitive(cpu, call, prepared, &s, dnnl_backward_data, rows, 3,
                                  (const lk_tensor *[]){call->in[0], &w, call->out[0]}, call->free_layout);
}

static lk_status onednn_input_grad(lk_call *call)
{
    lk_cpu *cpu = call->device->state;
    const lk_conv2d_opts *opts = &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv;
    lk_prepared *prepared;
    lk_key key;
    conv_key(&key, call, opts);
    lk__key_add(&key, call->out[0]->shape.dim, 4);
    LK_TRY(lk__prepared_get(cpu, &key, call, onednn_prepare_input_grad, &prepared));
    lk_tensor w = cpu_conv_grouped_view(call->in[1], opts->groups);
    return lk__prepared_run_weights(call, prepared, (lk_tensor *[]){call->in[0], &w, call->out[0]});
}

/* Gradients of parameters are always row-major, since they are summed over shards and devices. */
static lk_status onednn_prepare_weight_grad(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    static const operand_row rows[] = {{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, LK_IN},
                                       {DNNL_ARG_SRC, dnnl_query_src_md, LK_IN},
                                       {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, LK_OUT}};
    const lk_conv2d_grad_attrs *attrs = LK_ATTRS(call, lk_conv2d_grad_attrs);
    lk_tensor dw = cpu_conv_grouped_view(call->out[0], attrs->conv.groups);
    shapes s = {call->in[1]->shape, dw.shape, call->in[0]->shape, false, &attrs->conv};
    return prepare_conv_primitive(cpu, call, prepared, &s, dnnl_backward_weights, rows, 3,
                                  (const lk_tensor *[]){call->in[0], call->in[1], &dw}, false);
}

lk_status lk__cpu_onednn_conv2d_weight_grad(lk_call *call)
{
    const lk_conv2d_grad_attrs *attrs = LK_ATTRS(call, lk_conv2d_grad_attrs);
    lk_cpu *cpu = call->device->state;
    lk_prepared *prepared;
    lk_key key;
    conv_key(&key, call, &attrs->conv);
    lk__key_add(&key, attrs->size, 4);
    LK_TRY(lk__prepared_get(cpu, &key, call, onednn_prepare_weight_grad, &prepared));
    lk_tensor dw = cpu_conv_grouped_view(call->out[0], attrs->conv.groups);
    LK_TRY(lk__prepared_run(cpu, prepared, (lk_tensor *[]){call->in[0], call->in[1], &dw}));
    return attrs->bias ? lk__cpu_bias_gradient(call) : LK_OK;
}

/* --- weights with a private layout -------------------------------------------------------------------------------- */

/* Weights that an operator computed may have a private layout. No such layout has an axis for groups, so a grouped
 * convolution gets a row-major copy. */
static lk_status cpu_conv_run_with_plain_weights(lk_call *call, lk_kernel_fn run)
{
    lk_tensor *original = call->in[1];
    lk_block *block;
    LK_TRY(lk__allocator_get(call->device->allocator, original->storage->bytes, &block));
    lk_storage storage = {
        .device = call->device, .bytes = original->storage->bytes, .block = block, .data = block->data};
    lk_tensor plain = lk__tensor_alias(original);
    plain.storage = &storage;
    lk_status status = lk__cpu_to_plain(call->device, original, block->data);
    if (status == LK_OK) {
        call->in[1] = &plain;
        status = run(call);
        call->in[1] = original;
    }
    lk__allocator_put(call->device->allocator, block);
    return status;
}

lk_status lk__cpu_onednn_conv2d(lk_call *call)
{
    const lk_conv2d_opts *opts = LK_ATTRS(call, lk_conv2d_opts);
    if (call->in[1]->storage->layout && opts->groups > 1)
        return cpu_conv_run_with_plain_weights(call, onednn_forward);
    return onednn_forward(call);
}

lk_status lk__cpu_onednn_conv2d_input_grad(lk_call *call)
{
    const lk_conv2d_opts *opts = &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv;
    if (call->in[1]->storage->layout && opts->groups > 1)
        return cpu_conv_run_with_plain_weights(call, onednn_input_grad);
    return onednn_input_grad(call);
}

/* --- the chosen alternative --------------------------------------------------------------------------------------- */

lk_status lk__cpu_convolution(lk_call *call)
{
    return lk__cpu_is_empty(call) ? lk__cpu_zero_outputs(call) : lk__cpu_choose(call)->run(call);
}
