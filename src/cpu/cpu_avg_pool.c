/* Average pooling and its gradient by oneDNN. They keep the layout of x or dy; a row-major operand is first converted
 * to blocks of channels, for which oneDNN has fast code. */
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_pool.h"
#include "cpu/lanes/cpu_lanes.h"
#include "cpu/onednn/cpu_state.h"
#include "ops/ops.h"

typedef struct pool {
    const lk_pool2d_opts *opts;
    lk_shape x, y;
} pool;

static dnnl_format_tag_t cpu_avg_pool_preferred_tag(void)
{
    return lk__dnnl_has_avx512() ? dnnl_nChw16c : dnnl_nChw8c;
}

/* Describes the layout for a tensor of shape `shape` that matches `model`, the other side of the pooling. A layout
 * without a known tag, which oneDNN may choose for planes of one pixel, is converted too: a pooling cannot choose the
 * layout of what it reads. */
static lk_status cpu_avg_pool_describe_like(lk_md *md, lk_shape shape, const lk_tensor *model)
{
    const lk_layout *layout = model->storage->layout;
    dnnl_format_tag_t tag = cpu_avg_pool_preferred_tag();
    if (layout && layout->tag != dnnl_format_tag_undef && lk__lanes_of_tag(layout->tag) == 0)
        tag = layout->tag;
    return lk__md_tagged(md, 4, shape.dim, dnnl_f32, tag);
}

static lk_pooling avg_pool_problem(const pool *p, dnnl_prop_kind_t kind, const lk_md *x, const lk_md *y)
{
    lk_pooling problem = {.kind = kind, .algorithm = dnnl_pooling_avg_exclude_padding, .x = x, .y = y};
    if (p->opts->count_include_pad)
        problem.algorithm = dnnl_pooling_avg_include_padding;
    for (int i = 0; i < 2; i++) {
        problem.kernel[i] = p->opts->kernel[i];
        problem.stride[i] = p->opts->stride[i];
        problem.padding[i] = p->opts->padding[i];
    }
    return problem;
}

static lk_status avg_pool_operands(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared, dnnl_primitive_desc_t pd,
                                   bool grad)
{
    const lk_tensor *in = call->in[0], *out = call->out[0];
    LK_TRY(lk__prepare_primitive(cpu, prepared, pd));
    LK_TRY(lk__prepare_queried(cpu, prepared, grad ? DNNL_ARG_DIFF_DST : DNNL_ARG_SRC, LK_IN, in, pd,
                               grad ? dnnl_query_diff_dst_md : dnnl_query_src_md, false));
    return lk__prepare_queried(cpu, prepared, grad ? DNNL_ARG_DIFF_SRC : DNNL_ARG_DST, LK_OUT, out, pd,
                               grad ? dnnl_query_diff_src_md : dnnl_query_dst_md, call->free_layout);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static lk_status cpu_avg_pool_forward_pd(lk_cpu *cpu, const pool *p, const lk_md *x, dnnl_primitive_desc_t *pd)
{
    lk_md y = {0};
    LK_TRY(lk__md_tagged(&y, 4, p->y.dim, dnnl_f32, dnnl_format_tag_any));
    lk_pooling problem = avg_pool_problem(p, dnnl_forward_training, x, &y);
    lk_status status = lk__pd_pooling(pd, cpu->engine, &problem, NULL);
    lk__md_free(&y);
    return status;
}

static lk_status avg_pool_prepare_forward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    const lk_pool2d_opts *opts = LK_ATTRS(call, lk_pool2d_opts);
    const lk_tensor *x = call->in[0];
    pool p = {opts, x->shape, call->out[0]->shape};
    lk_md md = {0};
    dnnl_primitive_desc_t pd;
    lk__pool_describe(prepared, LK_F32, p.x, opts);
    LK_TRY(cpu_avg_pool_describe_like(&md, x->shape, x));
    lk_status status = cpu_avg_pool_forward_pd(cpu, &p, &md, &pd);
    lk__md_free(&md);
    LK_TRY(status);
    status = avg_pool_operands(cpu, call, prepared, pd, false);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

lk_status lk__cpu_avg_pool2d(lk_call *call)
{
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    if (lk__cpu_lanes_want_pool(call))
        return lk__cpu_lanes_avg_pool2d(call);
    lk_cpu *cpu = call->device->state;
    lk_prepared *prepared;
    lk_key key;
    lk__pool_key(&key, call, LK_ATTRS(call, lk_pool2d_opts));
    LK_TRY(lk__prepared_get(cpu, &key, call, avg_pool_prepare_forward, &prepared));
    return lk__prepared_run(cpu, prepared, (lk_tensor *[]){call->in[0], call->out[0]});
}

/* --- gradient ----------------------------------------------------------------------------------------------------- */

static lk_status cpu_avg_pool_backward_pd(lk_cpu *cpu, const pool *p, const lk_md *x, const lk_md *y,
                                          dnnl_primitive_desc_t *pd)
{
    dnnl_primitive_desc_t hint;
    lk_pooling problem = avg_pool_problem(p, dnnl_forward_training, x, y);
    LK_TRY(lk__pd_pooling(&hint, cpu->engine, &problem, NULL));
    problem.kind = dnnl_backward_data;
    lk_status status = lk__pd_pooling(pd, cpu->engine, &problem, hint);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

static lk_status avg_pool_prepare_backward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    const lk_pool2d_opts *opts = &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool;
    pool p = {opts, call->out[0]->shape, call->in[0]->shape};
    lk_md x = {0}, y = {0};
    dnnl_primitive_desc_t pd = NULL;
    lk__pool_describe(prepared, LK_F32, p.x, opts);
    lk_status status = cpu_avg_pool_describe_like(&x, p.x, call->in[0]);
    if (status == LK_OK)
        status = cpu_avg_pool_describe_like(&y, p.y, call->in[0]);
    if (status == LK_OK)
        status = cpu_avg_pool_backward_pd(cpu, &p, &x, &y, &pd);
    lk__md_free(&x);
    lk__md_free(&y);
    LK_TRY(status);
    status = avg_pool_operands(cpu, call, prepared, pd, true);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

lk_status lk__cpu_avg_pool2d_grad(lk_call *call)
{
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    if (lk__cpu_lanes_want_pool(call))
        return lk__cpu_lanes_avg_pool2d_grad(call);
    lk_cpu *cpu = call->device->state;
    lk_prepared *prepared;
    lk_key key;
    lk__pool_key(&key, call, &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool);
    LK_TRY(lk__prepared_get(cpu, &key, call, avg_pool_prepare_backward, &prepared));
    return lk__prepared_run(cpu, prepared, (lk_tensor *[]){call->in[0], call->out[0]});
}
