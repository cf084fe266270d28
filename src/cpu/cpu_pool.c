/* Pooling and its gradients. Forward follows x's layout; x and dy that are plain are first brought into blocks of
 * channels, for which oneDNN has fast code. */
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_lanes.h"
#include "cpu/cpu_state.h"
#include "ops/ops.h"

#include <stdio.h>

typedef struct pool {
    dnnl_alg_kind_t algorithm;
    const lk_pool2d_opts *opts;
    lk_shape x, y;
} pool;

static dnnl_alg_kind_t average(const lk_pool2d_opts *opts)
{
    return opts->count_include_pad ? dnnl_pooling_avg_include_padding : dnnl_pooling_avg_exclude_padding;
}

static dnnl_format_tag_t preferred_tag(void)
{
    return lk__dnnl_has_avx512() ? dnnl_nChw16c : dnnl_nChw8c;
}

/* The layout for a tensor of shape `shape` that goes with `model`, the other side of the pooling. */
static lk_status describe_like(lk_md *md, lk_shape shape, const lk_tensor *model)
{
    const lk_layout *layout = model->storage->layout;
    if (layout && !layout->lanes)
        return lk__md_like(md, shape.dim, &layout->md, model->shape.dim);
    return lk__md_tagged(md, 4, shape.dim, dnnl_f32, preferred_tag());
}

static lk_pooling problem_of(const pool *p, dnnl_prop_kind_t kind, const lk_md *x, const lk_md *y)
{
    lk_pooling problem = {.kind = kind, .algorithm = p->algorithm, .x = x, .y = y};
    for (int i = 0; i < 2; i++) {
        problem.kernel[i] = p->opts->kernel[i];
        problem.stride[i] = p->opts->stride[i];
        problem.padding[i] = p->opts->padding[i];
    }
    return problem;
}

static void describe_problem(const pool *p, lk_prepared *prepared)
{
    char x[64];
    const lk_pool2d_opts *o = p->opts;
    lk__shape_text(p->x, x, sizeof x);
    snprintf(prepared->problem, sizeof prepared->problem,
             "f32 x%s kernel %lldx%lld stride %lldx%lld padding %lldx%lld%s", x, (long long)o->kernel[0],
             (long long)o->kernel[1], (long long)o->stride[0], (long long)o->stride[1], (long long)o->padding[0],
             (long long)o->padding[1], o->count_include_pad ? " counted" : "");
}

static void key_of(lk_key *key, const lk_call *call, const lk_pool2d_opts *opts)
{
    lk__key_call(key, call);
    lk__key_add(key, opts->kernel, 2);
    lk__key_add(key, opts->stride, 2);
    lk__key_add(key, opts->padding, 2);
    lk__key_add(key, (int64_t[]){opts->count_include_pad}, 1);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static lk_status forward_pd(lk_cpu *cpu, const pool *p, const lk_md *x, dnnl_primitive_desc_t *pd)
{
    lk_md y = {0};
    LK_TRY(lk__md_strided(&y, 4, p->y.dim, NULL));
    lk_pooling problem = problem_of(p, dnnl_forward_training, x, &y);
    lk_status status = lk__pd_pooling(pd, cpu->engine, &problem, NULL);
    lk__md_free(&y);
    return status;
}

static lk_status forward_operands(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared, dnnl_primitive_desc_t pd)
{
    LK_TRY(lk__prepare_primitive(cpu, prepared, pd));
    LK_TRY(lk__prepare_queried(cpu, prepared, DNNL_ARG_SRC, LK_IN, call->in[0], pd, dnnl_query_src_md, false));
    LK_TRY(lk__prepare_queried(cpu, prepared, DNNL_ARG_DST, LK_OUT, call->out[0], pd, dnnl_query_dst_md,
                               call->free_layout));
    if (call->n_out < 2)
        return LK_OK;
    return lk__prepare_queried(cpu, prepared, DNNL_ARG_WORKSPACE, LK_OUT, call->out[1], pd, dnnl_query_workspace_md,
                               true);
}

static lk_status prepare_forward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    const lk_pool2d_opts *opts = LK_ATTRS(call, lk_pool2d_opts);
    const lk_tensor *x = call->in[0];
    pool p = {call->n_out == 2 ? dnnl_pooling_max : average(opts), opts, x->shape, call->out[0]->shape};
    lk_md md = {0};
    dnnl_primitive_desc_t pd;
    describe_problem(&p, prepared);
    LK_TRY(describe_like(&md, x->shape, x));
    lk_status status = forward_pd(cpu, &p, &md, &pd);
    lk__md_free(&md);
    LK_TRY(status);
    status = forward_operands(cpu, call, prepared, pd);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static lk_status forward(lk_call *call)
{
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    lk_cpu *cpu = call->device->state;
    lk_prepared *prepared;
    lk_key key;
    key_of(&key, call, LK_ATTRS(call, lk_pool2d_opts));
    LK_TRY(lk__prepared_get(cpu, &key, call, prepare_forward, &prepared));
    return lk__prepared_run(cpu, prepared, (lk_tensor *[]){call->in[0], call->out[0], call->out[1]});
}

lk_status lk__cpu_max_pool2d(lk_call *call)
{
    return forward(call);
}

lk_status lk__cpu_avg_pool2d(lk_call *call)
{
    return lk__cpu_lanes_want_pool(call) ? lk__cpu_lanes_avg_pool2d(call) : forward(call);
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

static lk_status backward_operands(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared, dnnl_primitive_desc_t pd)
{
    LK_TRY(lk__prepare_primitive(cpu, prepared, pd));
    LK_TRY(
        lk__prepare_queried(cpu, prepared, DNNL_ARG_DIFF_DST, LK_IN, call->in[0], pd, dnnl_query_diff_dst_md, false));
    LK_TRY(lk__prepare_queried(cpu, prepared, DNNL_ARG_DIFF_SRC, LK_OUT, call->out[0], pd, dnnl_query_diff_src_md,
                               call->free_layout));
    if (call->n_in < 2)
        return LK_OK;
    return lk__prepare_queried(cpu, prepared, DNNL_ARG_WORKSPACE, LK_IN, call->in[1], pd, dnnl_query_workspace_md,
                               false);
}

static lk_status backward_pd(lk_cpu *cpu, const pool *p, const lk_md *x, const lk_md *y, dnnl_primitive_desc_t *pd)
{
    dnnl_primitive_desc_t hint;
    lk_pooling problem = problem_of(p, dnnl_forward_training, x, y);
    LK_TRY(lk__pd_pooling(&hint, cpu->engine, &problem, NULL));
    problem.kind = dnnl_backward_data;
    lk_status status = lk__pd_pooling(pd, cpu->engine, &problem, hint);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

/* Of maximum pooling the workspace tells the layout that the forward pass had. */
static lk_status describe_sides(const pool *p, const lk_call *call, lk_md *x, lk_md *y)
{
    const lk_tensor *model = call->in[call->n_in - 1];
    LK_TRY(describe_like(x, p->x, model));
    return describe_like(y, p->y, model);
}

static lk_status prepare_backward(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    const lk_pool2d_opts *opts = &LK_ATTRS(call, lk_pool2d_grad_attrs)->pool;
    pool p = {call->n_in == 2 ? dnnl_pooling_max : average(opts), opts, call->out[0]->shape, call->in[0]->shape};
    lk_md x = {0}, y = {0};
    dnnl_primitive_desc_t pd = NULL;
    describe_problem(&p, prepared);
    lk_status status = describe_sides(&p, call, &x, &y);
    if (status == LK_OK)
        status = backward_pd(cpu, &p, &x, &y, &pd);
    lk__md_free(&x);
    lk__md_free(&y);
    LK_TRY(status);
    status = backward_operands(cpu, call, prepared, pd);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static lk_status backward(lk_call *call)
{
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    lk_cpu *cpu = call->device->state;
    const lk_pool2d_grad_attrs *attrs = LK_ATTRS(call, lk_pool2d_grad_attrs);
    lk_prepared *prepared;
    lk_key key;
    key_of(&key, call, &attrs->pool);
    lk__key_add(&key, call->out[0]->shape.dim, 4);
    LK_TRY(lk__prepared_get(cpu, &key, call, prepare_backward, &prepared));
    return lk__prepared_run(cpu, prepared, (lk_tensor *[]){call->in[0], call->out[0], call->in[1]});
}

lk_status lk__cpu_max_pool2d_grad(lk_call *call)
{
    return backward(call);
}

lk_status lk__cpu_avg_pool2d_grad(lk_call *call)
{
    return lk__cpu_lanes_want_pool(call) ? lk__cpu_lanes_avg_pool2d_grad(call) : backward(call);
}
