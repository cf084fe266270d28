/* add, sub and mul of two tensors of one shape: loops over the elements in whatever order they lie. Padding is 0 in
 * every layout and stays so. */
#include "core/backend.h"
#include "core/tensor.h"
#include "base/avx2.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "ops/ops.h"

#include <stdio.h>

/* The layout of the first operand that has one: the other is brought into it. */
static const lk_layout *working_layout(const lk_call *call)
{
    const lk_layout *a = call->in[0]->storage->layout, *b = call->in[1]->storage->layout;
    if (!call->free_layout)
        return NULL;
    return a ? a : b;
}

static lk_status prepare(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    char text[64];
    lk__shape_text(call->out[0]->shape, text, sizeof text);
    snprintf(prepared->problem, sizeof prepared->problem, "f32 %s", text);
    snprintf(prepared->implementation, sizeof prepared->implementation, "elements");
    prepared->layouts_in[0] = prepared->layouts_in[1] = prepared->layouts_out[0] = working_layout(call);
    return LK_OK;
}

static int64_t count_of(const lk_tensor *y)
{
    const lk_layout *layout = y->storage->layout;
    return layout ? (int64_t)(layout->bytes / sizeof(float)) : lk_tensor_count(y);
}

static void compute_add(lk_call *call, const lk_converted *in, float *scratch)
{
    (void)scratch;
    const float *a = in[0].data, *b = in[1].data;
    float *y = lk__cpu_data(call->out[0]);
    int64_t count = count_of(call->out[0]);
    LK_ANY_ORDER
    for (int64_t i = 0; i < count; i++)
        y[i] = a[i] + b[i];
}

static void compute_sub(lk_call *call, const lk_converted *in, float *scratch)
{
    (void)scratch;
    const float *a = in[0].data, *b = in[1].data;
    float *y = lk__cpu_data(call->out[0]);
    int64_t count = count_of(call->out[0]);
    LK_ANY_ORDER
    for (int64_t i = 0; i < count; i++)
        y[i] = a[i] - b[i];
}

static void compute_mul(lk_call *call, const lk_converted *in, float *scratch)
{
    (void)scratch;
    const float *a = in[0].data, *b = in[1].data;
    float *y = lk__cpu_data(call->out[0]);
    int64_t count = count_of(call->out[0]);
    LK_ANY_ORDER
    for (int64_t i = 0; i < count; i++)
        y[i] = a[i] * b[i];
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

static lk_status run(lk_call *call, lk_own_fn compute)
{
    lk_key key;
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    lk__key_call(&key, call);
    return lk__own_run(call, &key, prepare, compute);
}

lk_status lk__cpu_add(lk_call *call)
{
    return run(call, compute_add);
}

lk_status lk__cpu_sub(lk_call *call)
{
    return run(call, compute_sub);
}

lk_status lk__cpu_mul(lk_call *call)
{
    return run(call, compute_mul);
}
