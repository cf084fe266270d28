/* The packed weights of convolutions on tiles. */
#pragma once

#include "cpu/blocks/tile_conv.h"

/* The right tiles of all steps: [pairs of blocks of `to`][taps][pairs of blocks of `from`][2 blocks of `to`][words of
 * `from`][BLOCK][LK_PER_WORD], with zeros for missing blocks. `to` and `from` are filters and channels; for the
 * gradient of the input, channels and filters. */
static int64_t tile_weights_count(const lk_geometry *conv)
{
    return tile_conv_pairs(conv->filters) * tile_conv_pairs(conv->channels) * tile_conv_area_of(conv->kernel) * STEP;
}

/* Copies one tap of WIDTH filters by WIDTH channels to rows of channels, with zeros for missing ones. */
static void tile_weights_gather(const lk_geometry *conv, const element *w, int64_t tap, int64_t filter, int64_t channel,
                                element rows[WIDTH][WIDTH])
{
    int64_t taps = tile_conv_area_of(conv->kernel), filters = lk__min(conv->filters - filter, WIDTH),
            channels = lk__min(conv->channels - channel, WIDTH);
    if (filters < WIDTH || channels < WIDTH)
        memset(rows, 0, WIDTH * sizeof *rows);
    for (int64_t f = 0; f < filters; f++) {
        const element *from = w + ((filter + f) * conv->channels + channel) * taps + tap;
        for (int64_t c = 0; c < channels; c++)
            rows[f][c] = from[c * taps];
    }
}

/* Makes the right tiles of a step from rows of channels. */
static void tile_weights_make(element rows[WIDTH][WIDTH], bool for_gradient, element *step)
{
    for (int64_t b = 0; b < PAIR; b++, step += TILE)
        for (int64_t word = 0; word < DEPTH / LK_PER_WORD; word++) {
            element *to = step + word * DEPTH;
            if (for_gradient)
                word_store(to, word_join((const element *const[]){rows[2 * word] + b * BLOCK,
                                                                  rows[2 * word + 1] + b * BLOCK}));
            else
                for (int64_t f = 0; f < BLOCK; f++)
                    memcpy(to + f * LK_PER_WORD, rows[b * BLOCK + f] + word * LK_PER_WORD, LK_PER_WORD * sizeof *to);
        }
}

static void tile_weights_pack(const lk_geometry *conv, const element *w, bool for_gradient, element *packed)
{
    int64_t taps = tile_conv_area_of(conv->kernel), to = for_gradient ? conv->channels : conv->filters,
            from = for_gradient ? conv->filters : conv->channels;
    _Alignas(64) element rows[WIDTH][WIDTH];
    for (int64_t t = 0; t < to; t += WIDTH)
        for (int64_t tap = 0; tap < taps; tap++)
            for (int64_t f = 0; f < from; f += WIDTH, packed += STEP) {
                tile_weights_gather(conv, w, tap, for_gradient ? f : t, for_gradient ? t : f, rows);
                tile_weights_make(rows, for_gradient, packed);
            }
}
