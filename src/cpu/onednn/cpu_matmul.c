/* matmul, and dense_act, which adds a bias and relu, where there are no own kernels (cpu_dense.h). Transposed and
 * sliced operands are described by their strides; only an operand without a unit stride is copied. */
#include "core/backend.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "cpu/cpu_kernels.h"
#include "cpu/onednn/cpu_convert.h"
#include "cpu/onednn/cpu_state.h"
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

/* Returns whether the elements of each row, or of each column, of x are contiguous; oneDNN's products take no other
 * matrix. */
static bool cpu_matmul_has_unit_stride(const lk_tensor *x)
{
    const int64_t *dim = x->shape.dim, *stride = x->strides;
    bool rows = (stride[1] == 1 || dim[1] == 1) && (stride[0] >= dim[1] || dim[0] == 1);
    bool columns = (stride[0] == 1 || dim[0] == 1) && (stride[1] >= dim[0] || dim[1] == 1);
    return rows || columns;
}

static lk_status cpu_matmul_describe_operand(lk_md *md, const lk_tensor *x)
{
    int64_t strides[LK_MAX_DIMS];
    if (!x->storage->layout && cpu_matmul_has_unit_stride(x))
        return lk__md_of_tensor(md, x);
    lk__shape_strides(x->shape, strides);
    return lk__md_strided(md, 2, x->shape.dim, dnnl_f32, strides);
}

static lk_status matmul_add_operands(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared, const lk_md *md)
{
    static const int arguments[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS};
    dnnl_primitive_desc_t pd;
    LK_TRY(lk__pd_matmul(&pd, cpu->engine, &md[0], &md[1], &md[2]));
    lk_status status = lk__prepare_primitive(cpu, prepared, pd);
    dnnl_primitive_desc_destroy(pd);
    LK_TRY(status);
    for (int i = 0; i < 2; i++)
        LK_TRY(lk__prepare_operand(cpu, prepared, arguments[i], LK_IN, call->in[i], &md[i], false));
    return lk__prepare_operand(cpu, prepared, DNNL_ARG_DST, LK_OUT, call->out[0], &md[2], false);
}

static lk_status matmul_prepare(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    lk_md md[3];
    memset(md, 0, sizeof md);
    char a[64], b[64];
    lk__shape_text(call->in[0]->shape, a, sizeof a);
    lk__shape_text(call->in[1]->shape, b, sizeof b);
    snprintf(prepared->problem, sizeof prepared->problem, "f32 %s%s", a, b);
    lk_status status = cpu_matmul_describe_operand(&md[0], call->in[0]);
    if (status == LK_OK)
        status = cpu_matmul_describe_operand(&md[1], call->in[1]);
    if (status == LK_OK)
        status = lk__md_of_plain(&md[2], call->out[0]);
    if (status == LK_OK)
        status = matmul_add_operands(cpu, call, prepared, md);
    for (int i = 0; i < 3; i++)
        lk__md_free(&md[i]);
    return status;
}

/* Multiplies the first two inputs into the first output. */
static lk_status run_matmul(lk_call *call)
{
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    lk_cpu *cpu = call->device->state;
    lk_prepared *prepared;
    lk_key key;
    lk__key_call(&key, call);
    LK_TRY(lk__prepared_get(cpu, &key, call, matmul_prepare, &prepared));
    return lk__prepared_run(cpu, prepared, (lk_tensor *[]){call->in[0], call->in[1], call->out[0]});
}

lk_status lk__cpu_onednn_matmul(lk_call *call)
{
    return run_matmul(call);
}

/* --- bias and relu ------------------------------------------------------------------------------------------------ */

/* Adds the bias and applies relu in place. oneDNN could do both itself, but its relu turns NaN into 0, and its sums
 * would start from the bias, which gives other bits than the operator add. */
static void cpu_matmul_add_bias_and_relu(const lk_tensor *y, const float *bias, bool relu)
{
    int64_t units = y->shape.dim[1];
    float *row = lk__cpu_data(y);
    for (int64_t n = 0; n < y->shape.dim[0]; n++, row += y->strides[0]) {
        for (int64_t i = 0; bias && i < units; i++)
            row[i * y->strides[1]] += bias[i];
        for (int64_t i = 0; relu && i < units; i++)
            row[i * y->strides[1]] = row[i * y->strides[1]] <= 0 ? 0 : row[i * y->strides[1]];
    }
}

lk_status lk__cpu_onednn_dense_act(lk_call *call)
{
    lk_converted bias = {0};
    LK_TRY(run_matmul(call));
    lk_status status = call->in[2] ? lk__cpu_as(call->device, call->in[2], NULL, &bias) : LK_OK;
    if (status == LK_OK)
        cpu_matmul_add_bias_and_relu(call->out[0], bias.data, LK_ATTRS(call, lk_dense_act_attrs)->relu);
    lk__cpu_as_end(call->device, &bias);
    return status;
}
