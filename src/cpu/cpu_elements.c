/* add, sub, mul, relu and relu's gradient, of f32 or bf16. The loops go over the elements in memory order, which may be
 * that of any layout; padding is 0 in every layout and stays 0. oneDNN's relu would turn NaN into 0. */
#include "base/bf16.h"
#include "core/backend.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "ops/ops.h"

/* --- loops -------------------------------------------------------------------------------------------------------- */

/* Takes both operands by value: a loop in which one is read only sometimes cannot be vectorized. */
LK_BODY float elements_result(int op, float a, float b)
{
    switch (op) {
    case LK_OP_ADD:
        return a + b;
    case LK_OP_SUB:
        return a - b;
    case LK_OP_MUL:
        return a * b;
    case LK_OP_RELU:
        return a <= 0 ? 0 : a;
    default: /* LK_OP_RELU_GRAD */
        return b > 0 ? a : 0;
    }
}

LK_BODY void elements_loop(int op, bool bf16, const void *a, const void *b, void *y, int64_t count)
{
    LK_ANY_ORDER
    for (int64_t i = 0; i < count; i++)
        lk__element_set(y, i, elements_result(op, lk__element(a, i, bf16), lk__element(b, i, bf16)), bf16);
}

/* Each case is a loop of its own. */
LK_BODY void elements_body(int op, bool bf16, const void *a, const void *b, void *y, int64_t count)
{
    switch (op) {
    case LK_OP_ADD:
        elements_loop(LK_OP_ADD, bf16, a, b, y, count);
        break;
    case LK_OP_SUB:
        elements_loop(LK_OP_SUB, bf16, a, b, y, count);
        break;
    case LK_OP_MUL:
        elements_loop(LK_OP_MUL, bf16, a, b, y, count);
        break;
    case LK_OP_RELU:
        elements_loop(LK_OP_RELU, bf16, a, a, y, count);
        break;
    default:
        elements_loop(LK_OP_RELU_GRAD, bf16, a, b, y, count);
    }
}

LK_AVX2 static void elements_avx2(int op, bool bf16, const void *a, const void *b, void *y, int64_t count)
{
    if (bf16)
        elements_body(op, true, a, b, y, count);
    else
        elements_body(op, false, a, b, y, count);
}

LK_AVX512 static void elements_avx512(int op, bool bf16, const void *a, const void *b, void *y, int64_t count)
{
    if (bf16)
        elements_body(op, true, a, b, y, count);
    else
        elements_body(op, false, a, b, y, count);
}

static void elements_anywhere(int op, bool bf16, const void *a, const void *b, void *y, int64_t count)
{
    if (bf16)
        elements_body(op, true, a, b, y, count);
    else
        elements_body(op, false, a, b, y, count);
}

/* --- operators ---------------------------------------------------------------------------------------------------- */

/* Returns the layout of the first operand that has one; the other operand is converted to it. relu_grad's result goes
 * to the operator that made y, its second operand, so y's layout suits it best. */
static const lk_layout *elements_layout(const lk_call *call)
{
    const lk_layout *layouts[2] = {call->in[0]->storage->layout, call->in[call->n_in - 1]->storage->layout};
    int first = call->op->id == LK_OP_RELU_GRAD;
    if (!call->free_layout)
        return NULL;
    return layouts[first] ? layouts[first] : layouts[1 - first];
}

static lk_status elements_prepare(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk__own_prepare_elements(call, elements_layout(call), prepared);
    return LK_OK;
}

static void elements_compute(lk_call *call, const lk_converted *in, float *scratch)
{
    (void)scratch;
    const lk_tensor *y = call->out[0];
    int64_t count = lk__own_elements(y, y->storage->layout);
    (lk__has_avx512() ? elements_avx512
     : lk__has_avx2()
         ? elements_avx2
         : elements_anywhere)(call->op->id, call->dtype == LK_BF16, in[0].data, in[1].data, lk__cpu_data(y), count);
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

lk_status lk__cpu_elements(lk_call *call)
{
    lk_key key;
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    lk__key_call(&key, call);
    return lk__own_run(call, &key, elements_prepare, elements_compute);
}
