/* The operator dropout, on the loops of drop.h, in whatever layout x has. */
#include "base/bf16.h"
#include "core/backend.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_own.h"
#include "cpu/drop.h"
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

/* The elements of a call; x and y have the same layout. */
typedef struct frame {
    lk_drop drop;
    const lk_tensor *indices;
    int64_t images, channels, pixels;
    const void *x;
    void *y;
} frame;

static int64_t cpu_dropout_index_of(const lk_tensor *indices, int64_t image)
{
    return ((const int64_t *)lk__data(indices))[image * indices->strides[0]];
}

static lk_status cpu_dropout_check_indices(const lk_tensor *indices)
{
    for (int64_t n = 0; n < indices->shape.dim[0]; n++) {
        int64_t index = cpu_dropout_index_of(indices, n);
        if (index < 0 || index > UINT32_MAX)
            LK_FAIL(LK_ERR_ARGUMENT, "dropout: index %lld of sample %lld is not in [0, 2^32)", (long long)index,
                    (long long)n);
    }
    return LK_OK;
}

static uint32_t cpu_dropout_sample_index(const frame *f, int64_t image)
{
    return (uint32_t)cpu_dropout_index_of(f->indices, image);
}

static void drop_plain(const frame *f)
{
    int64_t count = f->channels * f->pixels;
    for (int64_t n = 0; n < f->images; n++)
        lk__drop_run(&f->drop, cpu_dropout_sample_index(f, n), 0, count, 1, f->x, f->y, n * count);
}

static void cpu_dropout_clear_channel(const frame *f, int64_t at, int64_t block)
{
    for (int64_t p = 0; p < f->pixels; p++)
        lk__element_set(f->y, at + p * block, 0, f->drop.bf16);
}

/* Drops channel by channel; a pixel is `block` channels next to each other. */
static void drop_strided(const frame *f, int64_t block)
{
    int64_t padded = (f->channels + block - 1) / block * block;
    for (int64_t n = 0; n < f->images; n++)
        for (int64_t c = 0; c < padded; c++) {
            int64_t at = (n * padded + c / block * block) * f->pixels + c % block;
            if (c < f->channels)
                lk__drop_run(&f->drop, cpu_dropout_sample_index(f, n), c * f->pixels, f->pixels, block, f->x, f->y, at);
            else
                cpu_dropout_clear_channel(f, at, block);
        }
}

/* Drops eight channels of an image at a time. */
static void drop_blocked(const frame *f, int64_t block)
{
    int64_t padded = (f->channels + block - 1) / block * block;
    lk_drop_lane lanes[LK_DROP_LANES];
    for (int64_t n = 0; n < f->images; n++)
        for (int64_t c = 0; c < padded; c += LK_DROP_LANES) {
            int64_t at = (n * padded + c / block * block) * f->pixels + c % block;
            for (int l = 0; l < LK_DROP_LANES; l++)
                lanes[l] = (lk_drop_lane){c + l < f->channels, cpu_dropout_sample_index(f, n), (c + l) * f->pixels};
            lk__drop_lanes(&f->drop, lanes, f->pixels, block, f->x, f->y, at);
        }
}

/* Drops a channel of eight images at a time. width: images of a vector. */
static void drop_images(const frame *f, int64_t width)
{
    int64_t padded = (f->images + width - 1) / width * width;
    lk_drop_lane lanes[LK_DROP_LANES];
    for (int64_t n = 0; n < padded; n += LK_DROP_LANES)
        for (int64_t c = 0; c < f->channels; c++) {
            int64_t at = n / width * width * f->pixels * f->channels + c * width + n % width;
            for (int l = 0; l < LK_DROP_LANES; l++) {
                bool present = n + l < f->images;
                lanes[l] = (lk_drop_lane){present, present ? cpu_dropout_sample_index(f, n + l) : 0, c * f->pixels};
            }
            lk__drop_lanes(&f->drop, lanes, f->pixels, f->channels * width, f->x, f->y, at);
        }
}

static void drop_in(const frame *f, dnnl_format_tag_t tag)
{
    switch ((int)tag) {
    case dnnl_nhwc:
        drop_strided(f, f->channels);
        break;
    case dnnl_nChw4c:
        drop_strided(f, 4);
        break;
    case dnnl_nChw8c:
        drop_blocked(f, 8);
        break;
    case dnnl_nChw16c:
        drop_blocked(f, 16);
        break;
    case LK_LANES_TAG:
    case LK_WIDE_LANES_TAG:
        drop_images(f, lk__lanes_of_tag(tag));
        break;
    default:
        drop_plain(f);
    }
}

static void dropout_compute(lk_call *call, const lk_converted *in, float *scratch)
{
    (void)scratch;
    const lk_dropout_attrs *attrs = LK_ATTRS(call, lk_dropout_attrs);
    const lk_tensor *y = call->out[0];
    const lk_layout *layout = y->storage->layout;
    if (attrs->rate == 0) {
        memmove(y->storage->data, in[0].data, layout ? lk__layout_bytes(layout, y->dtype) : y->storage->bytes);
        return;
    }
    frame f = {.drop = lk__drop_start(&attrs->key, attrs->rate),
               .indices = call->in[1],
               .images = y->shape.dim[0],
               .channels = y->shape.ndim > 1 ? y->shape.dim[1] : 1,
               .pixels = 1,
               .x = in[0].data,
               .y = y->storage->data};
    f.drop.bf16 = y->dtype == LK_BF16;
    for (int i = 2; i < y->shape.ndim; i++)
        f.pixels *= y->shape.dim[i];
    drop_in(&f, lk__tag_of(y));
}

static lk_status dropout_prepare(struct lk_cpu *cpu, const lk_call *call, lk_prepared *prepared)
{
    (void)cpu;
    const lk_tensor *x = call->in[0];
    dnnl_format_tag_t tag = lk__own_tag(call, x);
    char text[64];
    lk__shape_text(x->shape, text, sizeof text);
    snprintf(prepared->problem, sizeof prepared->problem, "%s x%s", lk_dtype_name(x->dtype), text);
    snprintf(prepared->implementation, sizeof prepared->implementation, "streams%s", lk__has_avx2() ? ":avx2" : "");
    LK_TRY(lk__layout_tagged(x->shape, LK_F32, tag, &prepared->layouts_in[0]));
    return lk__layout_tagged(x->shape, LK_F32, tag, &prepared->layouts_out[0]);
}

lk_status lk__cpu_dropout(lk_call *call)
{
    lk_key key;
    if (lk__cpu_is_empty(call))
        return lk__cpu_zero_outputs(call);
    LK_TRY(cpu_dropout_check_indices(call->in[1]));
    lk__key_call(&key, call);
    return lk__own_run_tagged(call, &key, dropout_prepare, dropout_compute);
}
