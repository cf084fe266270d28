/* Makes batches from a data set that is in the GPU's memory. */
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_operands.h"
#include "cuda/cuda_state.h"
#include "cuda/cuda_tensors.h"
#include "ops/ops.h"

/* The output is channels-last, the order in which convolutions read images, unless the call needs or prefers plain
 * order. */
lk_status lk__cuda_prepare_images(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_prepare_images_attrs *attrs = LK_ATTRS(call, lk_prepare_images_attrs);
    const int64_t *dim = call->out[0]->shape.dim;
    lk_plane_size size = {dim[2], dim[3]};
    int64_t floats = lk_gpu_prepare_images_workspace(&attrs->opts, dim[0], dim[1], size);
    lk_augment_chances chances;
    lk__augment_chances_init(&attrs->opts, attrs->seed, &chances);
    const void *layout = call->free_layout && !call->plain_next ? lk__cuda_channels_last : NULL;
    const void *x = lk__cuda_plain(&s, call->in[0]), *indices = lk__cuda_plain(&s, call->in[1]);
    const void *epoch = lk__cuda_plain(&s, call->in[2]);
    const void *moments = lk__cuda_plain(&s, call->n_in > 3 ? call->in[3] : NULL);
    float *work = floats ? lk__cuda_new(&s, (size_t)floats * sizeof(float)) : NULL;
    void *y = lk__cuda_out_as(&s, 0, layout);
    if (s.status == LK_OK)
        s.status =
            LK_CUDA_LAUNCH(call, prepare_images, .x = x, .indices = indices, .epoch = epoch, .moments = moments, .y = y,
                           .work = work, .n = dim[0], .images = call->in[0]->shape.dim[0], .channels = dim[1],
                           .size = size, .channels_last = layout != NULL, .opts = attrs->opts, .chances = chances);
    return lk__cuda_end(&s);
}
