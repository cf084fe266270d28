#include "cpu/depthwise/cpu_depthwise.h"

#include "core/tensor.h"
#include "cpu/cpu_choice.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "cpu/depthwise/depthwise.h"
#include "cpu/isa.h"
#include "cpu/onednn/cpu_state.h"
#include "ops/ops.h"

static const lk_depthwise_kernels *cpu_depthwise_kernels(void)
{
    return lk__isa()->f32->depthwise;
}

const char *lk__cpu_depthwise_name(void)
{
    return cpu_depthwise_kernels()->name;
}

bool lk__cpu_depthwise_takes(const lk_conv_problem *p)
{
    const lk_conv2d_opts *conv = &p->attrs.conv;
    return lk__isa() && conv->groups > 1 && conv->groups == p->x.dim[1] && p->w.dim[0] == p->x.dim[1] &&
           (conv->stride[0] == 1 || conv->dilation[0] == 1);
}

/* oneDNN has a fast kernel for kernels of few columns on images that are no smaller, which takes blocks of channels as
 * they lie; everything else runs at a hundredth of the peak there. */
bool lk__cpu_depthwise_is_worth(const lk_conv_problem *p)
{
    enum { FEW = 3 };
    const lk_conv2d_opts *conv = &p->attrs.conv;
    for (int i = 0; i < 2; i++) {
        int64_t taps = p->w.dim[2 + i];
        if (conv->dilation[i] > 1 || conv->padding[i] > taps / 2 || conv->stride[i] > taps || p->x.dim[2 + i] < taps)
            return true;
    }
    return p->w.dim[3] > FEW;
}

static lk_geometry cpu_depthwise_geometry(const lk_call *call)
{
    const lk_conv2d_opts *opts = &LK_ATTRS(call, lk_conv2d_grad_attrs)->conv;
    return lk__geometry_of_conv(call->in[1]->shape, call->out[0]->shape, call->in[0]->shape, opts);
}

/* Blocks of channels are taken as they are if they are full and as wide as vectors. */
static bool cpu_depthwise_is_in_blocks(const lk_tensor *x)
{
    int width = lk__isa()->width;
    return x->shape.dim[1] % width == 0 && lk__block_of_tag(lk__tag_of(x)) == width;
}

static lk_status cpu_depthwise_prepare(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    lk_geometry conv = cpu_depthwise_geometry(call);
    lk__cpu_choice_describe(call, prepared);
    prepared->scratch_bytes = cpu_depthwise_kernels()->memory(&conv);
    for (int i = 0; i < 2; i++)
        if (cpu_depthwise_is_in_blocks(call->in[i]))
            prepared->layouts_in[i] = call->in[i]->storage->layout;
    return LK_OK;
}

static void cpu_depthwise_compute(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_geometry conv = cpu_depthwise_geometry(call);
    lk_depthwise_planes planes[2];
    for (int i = 0; i < 2; i++)
        planes[i] = (lk_depthwise_planes){in[i].data, cpu_depthwise_is_in_blocks(call->in[i])};
    cpu_depthwise_kernels()->weight_grad(&conv, planes[0], planes[1], lk__cpu_data(call->out[0]), scratch);
}

lk_status lk__cpu_depthwise_conv2d_weight_grad(lk_call *call)
{
    const lk_conv2d_grad_attrs *attrs = LK_ATTRS(call, lk_conv2d_grad_attrs);
    lk_key key;
    lk__key_call(&key, call);
    lk__key_conv(&key, &attrs->conv);
    lk__key_add(&key, call->out[0]->shape.dim, 4);
    lk__key_add(&key, (int64_t[]){(int64_t)(uintptr_t)call->choice}, 1);
    LK_TRY(lk__own_run(call, &key, cpu_depthwise_prepare, cpu_depthwise_compute));
    return call->n_out > 1 ? lk__cpu_bias_gradient(call) : LK_OK;
}
