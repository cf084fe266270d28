#include "cpu/cpu_channels.h"

#include "base/avx2.h"
#include "core/shape.h"
#include "core/tensor.h"

#include <stdio.h>
#include <string.h>

static lk_channels channels_in(const lk_tensor *x, dnnl_format_tag_t tag)
{
    int64_t images = x->shape.dim[0], channels = x->shape.dim[1], pixels = 1;
    for (int i = 2; i < x->shape.ndim; i++)
        pixels *= x->shape.dim[i];
    switch ((int)tag) {
    case dnnl_nhwc:
        return lk__channels_last(images, channels, pixels);
    case dnnl_nChw4c:
        return lk__channels_blocked(images, channels, pixels, 4);
    case dnnl_nChw8c:
        return lk__channels_blocked(images, channels, pixels, 8);
    case dnnl_nChw16c:
        return lk__channels_blocked(images, channels, pixels, 16);
    case LK_LANES_TAG:
    case LK_WIDE_LANES_TAG:
        return lk__channels_lanes(images, channels, pixels, lk__lanes_of_tag(tag));
    default:
        return pixels == 1 ? lk__channels_last(images, channels, 1) : lk__channels_plain(images, channels, pixels);
    }
}

lk_channels lk__channels_of(const lk_tensor *x, dnnl_format_tag_t tag)
{
    lk_channels shape = channels_in(x, tag);
    shape.bf16 = x->dtype == LK_BF16;
    return shape;
}

size_t lk__channel_memory_bytes(const lk_channels *shape)
{
    int64_t doubles = LK_CHANNEL_VALUES * shape->channels + LK_CHANNEL_TABLES * lk__channels_entries(shape);
    return (size_t)doubles * sizeof(double);
}

lk_channel_memory lk__channel_memory_of(const lk_channels *shape, float *scratch)
{
    lk_channel_memory memory;
    double *next = (double *)(void *)scratch;
    for (int i = 0; i < LK_CHANNEL_TABLES; i++, next += lk__channels_entries(shape))
        memory.tables[i] = next;
    for (int i = 0; i < LK_CHANNEL_VALUES; i++, next += shape->channels)
        memory.values[i] = next;
    return memory;
}

lk_norm_frame lk__norm_frame_of(lk_channels shape, float *scratch)
{
    lk_channel_memory memory = lk__channel_memory_of(&shape, scratch);
    double *const *values = memory.values;
    lk_norm_frame f = {.shape = shape,
                       .mean = values[0],
                       .inverse = values[1],
                       .first = values[2],
                       .second = values[3],
                       .a = values[4],
                       .b = values[5],
                       .c = values[6]};
    memcpy(f.tables, memory.tables, sizeof f.tables);
    return f;
}

void lk__channels_describe(lk_prepared *prepared, const lk_tensor *x, dnnl_format_tag_t tag)
{
    char text[64];
    lk_channels shape = lk__channels_of(x, tag);
    lk__shape_text(x->shape, text, sizeof text);
    snprintf(prepared->problem, sizeof prepared->problem, "%s x%s", lk_dtype_name(x->dtype), text);
    snprintf(prepared->implementation, sizeof prepared->implementation, "channels%s", lk__has_avx2() ? ":avx2" : "");
    prepared->scratch_bytes = lk__channel_memory_bytes(&shape);
}
