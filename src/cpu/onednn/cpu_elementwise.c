/* add, sub and mul of two tensors of one shape. The loops go over the elements in memory order, which may be that of
 * any layout; padding is 0 in every layout and stays 0. */
#include "base/avx2.h"
#include "core/backend.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "ops/ops.h"

#include <stdio.h>

/* Returns the layout of the first operand that has one; the other operand is converted to it. */
static const lk_layout *cpu_elementwise_working_layout(const lk_call *call)
{
    const lk_layout *a = call->in[0]->storage->layout, *b = call->in[1]->storage->layout;
    if (!call->free_layout)
        return NULL;
    return a ? a : b;
}

static lk_status elementwise_prepare(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    char text[64];
    lk__shape_text(call->out[0]->shape, text, sizeof text);
    snprintf(prepared->problem, sizeof prepared->problem, "f32 %s", text);
    snprintf(prepared->implementation, sizeof prepared->implementation, "elements");
    prepared->layouts_in[0] = prepared->layouts_in[1] = prepared->layouts_out[0] = cpu_elementwise_working_layout(call);
    return LK_OK;
}

static int64_t cpu_elementwise_padded_count(const lk_tensor *y)
{
    const lk_layout *layout = y->storage->layout;
    return layout ? (int64_t)(layout->bytes / sizeof(float)) : lk_tensor_count(y);
}

static void elementwise_compute(lk_call *call, const lk_converted *in, float *scratch)
{
    (void)scratch;
    const float *a = in[0].data, *b = in[1].data;
    float *y = lk__cpu_data(call->out[0]);
    int64_t count = cpu_elementwise_padded_count(call->out[0]);
    switch (call->op->id) {
    case LK_OP_ADD:
        LK_ANY_ORDER
        for (int64_t i = 0; i < count; i++)
            y[i] = a[i] + b[i];
        break;
    case LK_OP_SUB:
        LK_ANY_ORDER
        for (int64_t i = 0; i < count; i++)
            y[i] = a[i] - b[i];
        break;
    default:
        LK_ANY_ORDER
        for (int64_t i = 0; i < count; i++)
            y[i] = a[i] * b[i];
    }
}

bool lk__cpu_is_of_one_shape(const lk_call *call)
{
    for (int i = 1; i < call->n_in; i++)
        if (!lk__shape_equal(call->in[i]->shape, call->in[0]->shape))
            return false;
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i] && !lk__tensor_is_dense(call->out[i]))
            return false;
    return true;
}

lk_status lk__cpu_arithmetic(lk_call *call)
{
    lk_key key;
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    lk__key_call(&key, call);
    return lk__own_run(call, &key, elementwise_prepare, elementwise_compute);
}
