/* The packed weights of direct convolution, by vectors (direct_conv.c) or by tiles (tile_conv.c). */
#pragma once

#include "base/minmax.h"
#include "cpu/blocks/block_conv.h"
#include "cpu/vector/vector.h"

/* Channels and filters are computed in pairs of blocks. */
enum { BLOCK = LK_WIDTH, PAIR = 2, WIDTH = PAIR * BLOCK };

static int64_t direct_conv_area_of(const int64_t size[2])
{
    return size[0] * size[1];
}

static int64_t block_pairs(int64_t channels)
{
    return (channels + WIDTH - 1) / WIDTH;
}

static int64_t direct_packed_count(const lk_geometry *conv)
{
    int64_t forward = block_pairs(conv->filters) * conv->channels,
            backward = block_pairs(conv->channels) * conv->filters;
    return lk__max(forward, backward) * WIDTH * direct_conv_area_of(conv->kernel);
}

static size_t direct_kept_bytes(const lk_geometry *conv, bool for_input_grad)
{
    (void)for_input_grad;
    return (size_t)direct_packed_count(conv) * sizeof(element);
}

/* Packs the weights as [pair of blocks of `to`][tap][words of `from`][WIDTH][LK_PER_WORD], with zeros for missing
 * channels. `to` and `from` are filters and channels; for the gradient of the input, channels and filters. */
static void direct_pack(const lk_geometry *conv, const element *w, bool for_gradient, element *packed)
{
    int64_t taps = direct_conv_area_of(conv->kernel), a_filter = conv->channels * taps;
    int64_t to = for_gradient ? conv->channels : conv->filters, from = for_gradient ? conv->filters : conv->channels;
    int64_t to_stride = for_gradient ? taps : a_filter, from_stride = for_gradient ? a_filter : taps;
    for (int64_t first = 0; first < to; first += WIDTH, packed += taps * from * WIDTH, w += WIDTH * to_stride) {
        int64_t width = lk__min(to - first, WIDTH);
        for (int64_t i = 0; i < from; i++)
            for (int64_t t = 0; t < taps; t++) {
                const element *weights = w + i * from_stride + t;
                int64_t rest = i % LK_PER_WORD;
                element *row = packed + (t * from + i - rest) * WIDTH + rest;
                for (int64_t o = 0; o < width; o++)
                    row[o * LK_PER_WORD] = weights[o * to_stride];
                for (int64_t o = width; o < WIDTH; o++)
                    row[o * LK_PER_WORD] = 0;
            }
    }
}
