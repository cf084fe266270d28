/* The gradient of a convolution's bias: the sum of dy over each channel, in double. In front of a batch normalization,
 * which removes every mean, this sum is nothing but the rounding of millions of terms that cancel; in f32 the error
 * would be thousands of times larger. */
#include "cpu/onednn/cpu_bias.h"

#include "base/bf16.h"
#include "core/backend.h"
#include "core/tensor.h"
#include "cpu/cpu_channels.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "cpu/onednn/cpu_state.h"

static lk_status bias_prepare(lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    const lk_tensor *dy = call->in[0];
    dnnl_format_tag_t tag = lk__tag_of(dy);
    lk__channels_describe(prepared, dy, tag);
    return lk__layout_tagged(dy->shape, LK_F32, tag, &prepared->layouts_in[0]);
}

void lk__cpu_bias_sums(const lk_channels *shape, const void *dy, const lk_tensor *dbias, float *scratch)
{
    lk_channel_memory memory = lk__channel_memory_of(shape, scratch);
    lk__channels_sums(shape, dy, dy, memory.tables[0], memory.tables[1]);
    lk__channels_fold(shape, memory.tables[0], memory.values[0]);
    for (int64_t c = 0; c < shape->channels; c++)
        lk__element_set(lk__cpu_data(dbias), c, (float)memory.values[0][c], dbias->dtype == LK_BF16);
}

static void bias_compute(lk_call *call, const lk_converted *in, float *scratch)
{
    lk_channels shape = lk__channels_of(call->in[0], lk__tag_of(call->in[0]));
    lk__cpu_bias_sums(&shape, in[0].data, call->out[0], scratch);
}

lk_status lk__cpu_bias_gradient(lk_call *call)
{
    lk_call sums = {.op = call->op,
                    .place = call->place,
                    .device = call->device,
                    .dtype = call->dtype,
                    .n_in = 1,
                    .n_out = 1,
                    .in = {call->in[0]},
                    .out = {call->out[1]}};
    lk_key key;
    lk__key_call(&key, &sums);
    return lk__own_run(&sums, &key, bias_prepare, bias_compute);
}
