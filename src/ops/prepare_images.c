#include "ops/prepare_images.h"
#include "ops/support.h"

static lk_status prepare_images_infer(const lk_call *call, lk_meta *out)
{
    const lk_tensor *images = call->in[0], *indices = call->in[1], *epoch = call->in[2], *moments = call->in[3];
    const int64_t *dim = images->shape.dim;
    LK_TRY(lk__check_dtype("prepare_images", "images", images->dtype, LK_DTYPE_BIT(LK_U8)));
    LK_TRY(lk__check_ndim("prepare_images", "images", images, 4));
    LK_TRY(lk__check_dtype("prepare_images", "indices", indices->dtype, LK_DTYPE_BIT(LK_I64)));
    LK_TRY(lk__check_ndim("prepare_images", "indices", indices, 1));
    LK_TRY(lk__check_like("prepare_images", "epoch", epoch, LK_I64, LK_SCALAR));
    if (moments)
        LK_TRY(lk__check_like("prepare_images", "moments", moments, LK_F32, LK_SHAPE(2, dim[1])));
    lk_plane_size size = {dim[2], dim[3]};
    LK_TRY(lk__augmentation_check(&LK_ATTRS(call, lk_prepare_images_attrs)->opts, size));
    out[0] = (lk_meta){LK_F32, LK_SHAPE(indices->shape.dim[0], dim[1], dim[2], dim[3])};
    return lk__check_shape("prepare_images", out[0].shape);
}

const lk_op lk__op_prepare_images = {
    .name = "prepare_images",
    .id = LK_OP_PREPARE_IMAGES,
    .flags = LK_OP_FREE_LAYOUT | LK_OP_PICKS,
    .infer = prepare_images_infer,
};

lk_tensor *lk__prepare_images(lk_call_site at, lk_tensor *images, lk_tensor *indices, lk_tensor *epoch,
                              lk_tensor *moments, const lk_prepare_images_attrs *attrs)
{
    lk_tensor *in[] = {images, indices, epoch, moments};
    return lk__call_simple(at, &lk__op_prepare_images, in, 4, 3, attrs, sizeof *attrs);
}
