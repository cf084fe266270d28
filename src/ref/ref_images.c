/* prepare_images, with the arithmetic of ops/augmentation.h, which the loader uses too. */
#include "base/status.h"
#include "ops/ops.h"
#include "ref/ref.h"

/* Returns the image itself if it is dense, otherwise a copy of it in `dense`. */
static const uint8_t *ref_images_as_dense(lk_ref_view image, void *dense)
{
    if (lk__ref_is_dense(image))
        return image.data;
    lk__ref_copy_elements(lk__ref_dense(dense, LK_U8, image.shape), image);
    return dense;
}

typedef struct ref_images_reading {
    lk_ref_view images;
    void *bytes; /* for an image that is not dense */
} ref_images_reading;

static lk_status ref_images_read(void *user, int64_t sample, lk_pixels *pixels)
{
    const ref_images_reading *r = user;
    *pixels = (lk_pixels){.bytes = ref_images_as_dense(lk__ref_row(r->images, sample), r->bytes)};
    return LK_OK;
}

static lk_status ref_images_prepare(const lk_augmentation *augmentation, lk_ref_view images, const int64_t *indices,
                                    int64_t epoch, lk_ref_view out, float *scratch, float *image, void *bytes)
{
    for (int64_t i = 0; i < out.shape.dim[0]; i++) {
        if (indices[i] < 0 || indices[i] >= images.shape.dim[0])
            LK_FAIL(LK_ERR_ARGUMENT, "prepare_images: index %lld at %lld is not in [0, %lld)", (long long)indices[i],
                    (long long)i, (long long)images.shape.dim[0]);
        lk_ref_view to = lk__ref_row(out, i);
        ref_images_reading reading = {images, bytes};
        LK_TRY(lk__augmentation_make(augmentation, ref_images_read, &reading, images.shape.dim[0], epoch, indices[i],
                                     scratch, image));
        lk__ref_copy_elements(to, lk__ref_dense(image, LK_F32, to.shape));
    }
    return LK_OK;
}

/* Temporaries are counted in doubles, so this rounds up. */
static void *ref_images_new_bytes(lk_ref_scratch *scratch, int64_t bytes)
{
    return lk__ref_new(scratch, (bytes + 7) / 8);
}

static float *ref_images_load_moments(lk_ref_scratch *scratch, const lk_tensor *moments)
{
    lk_ref_view view = lk__ref_view(moments);
    float *dense = ref_images_new_bytes(scratch, lk__ref_count(view.shape) * (int64_t)sizeof(float));
    if (dense)
        lk__ref_copy_elements(lk__ref_dense(dense, LK_F32, view.shape), view);
    return dense;
}

lk_status lk__ref_prepare_images(lk_call *call)
{
    const lk_prepare_images_attrs *attrs = LK_ATTRS(call, lk_prepare_images_attrs);
    const lk_tensor *moments = call->n_in > 3 ? call->in[3] : NULL;
    lk_ref_scratch s = {0};
    lk_ref_view images = lk__ref_view(call->in[0]), out = lk__ref_view(call->out[0]);
    const int64_t *dim = out.shape.dim, count = dim[1] * dim[2] * dim[3];
    lk_augmentation a = {.opts = attrs->opts, .channels = dim[1], .size = {dim[2], dim[3]}};
    lk__augment_chances_init(&a.opts, attrs->seed, &a.chances);
    if (moments) {
        a.mean = ref_images_load_moments(&s, moments);
        a.divisor = a.mean ? a.mean + a.channels : NULL;
    }
    const int64_t *indices = lk__ref_load_int(&s, lk__ref_view(call->in[1]));
    const int64_t *epoch = lk__ref_load_int(&s, lk__ref_view(call->in[2]));
    float *scratch = ref_images_new_bytes(&s, lk__augmentation_scratch(&a) * (int64_t)sizeof(float));
    float *image = ref_images_new_bytes(&s, count * (int64_t)sizeof(float));
    void *bytes = ref_images_new_bytes(&s, count);
    if (s.status == LK_OK)
        s.status = ref_images_prepare(&a, images, indices, *epoch, out, scratch, image, bytes);
    return lk__ref_end(&s);
}
