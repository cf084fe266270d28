/* Makes batches from a data set that is in the GPU's memory. */
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_operands.h"
#include "cuda/cuda_state.h"
#include "cuda/cuda_tensors.h"
#include "ops/ops.h"

static lk_gpu_philox cuda_images_philox_of_purpose(uint64_t seed, const char *purpose)
{
    return lk__cuda_philox(&(lk_random_key){.seed = seed, .purpose = lk_random_purpose(purpose)});
}

/* The output is channels-last, the order in which convolutions read images, unless the call needs or prefers plain
 * order. */
lk_status lk__cuda_prepare_images(lk_call *call)
{
    lk_cuda_scratch s = {.call = call};
    const lk_prepare_images_attrs *attrs = LK_ATTRS(call, lk_prepare_images_attrs);
    const lk_augment_opts *opts = &attrs->opts;
    const int64_t *dim = call->out[0]->shape.dim;
    const void *layout = call->free_layout && !call->plain_next ? lk__cuda_channels_last : NULL;
    const void *x = lk__cuda_plain(&s, call->in[0]), *indices = lk__cuda_plain(&s, call->in[1]);
    const void *epoch = lk__cuda_plain(&s, call->in[2]);
    const void *moments = lk__cuda_plain(&s, call->n_in > 3 ? call->in[3] : NULL);
    void *y = lk__cuda_out_as(&s, 0, layout);
    if (s.status == LK_OK)
        s.status = LK_CUDA_LAUNCH(
            call, prepare_images, .x = x, .indices = indices, .epoch = epoch, .moments = moments, .y = y, .n = dim[0],
            .images = call->in[0]->shape.dim[0], .channels = dim[1], .height = dim[2], .width = dim[3],
            .channels_last = layout != NULL, .height_shift = opts->height_shift, .width_shift = opts->width_shift,
            .crop_padding = opts->crop_padding, .cutout = opts->cutout, .flip = opts->horizontal_flip,
            .shift_words = cuda_images_philox_of_purpose(attrs->seed, LK_AUGMENT_SHIFT),
            .flip_words = cuda_images_philox_of_purpose(attrs->seed, LK_AUGMENT_FLIP),
            .crop_words = cuda_images_philox_of_purpose(attrs->seed, LK_AUGMENT_CROP),
            .cutout_words = cuda_images_philox_of_purpose(attrs->seed, LK_AUGMENT_CUTOUT));
    return lk__cuda_end(&s);
}
