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

/* Copies every taps-th of WIDTH channels; `is_first`: the element before `from` may lie outside the tensor, otherwise
 * the one after the last. */
LK_BODY void tile_weights_gather_row(const element *from, int taps, bool is_first, element *row)
{
    if (taps == 1)
        memcpy(row, from, WIDTH * sizeof *row);
    else if (is_first)
        word_store(row, word_firsts(word_gather(from, 2 * taps), word_gather(from + taps, 2 * taps)));
    else
        word_store(row, word_seconds(word_gather(from - 1, 2 * taps), word_gather(from + taps - 1, 2 * taps)));
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
        if (channels == WIDTH)
            tile_weights_gather_row(from, (int)taps, tap == 0, rows[f]);
        else
            for (int64_t c = 0; c < channels; c++)
                rows[f][c] = from[c * taps];
    }
}

/* Makes a right tile from sixteen rows of pairs of channels. */
static void tile_weights_transpose(element rows[BLOCK][WIDTH], element *to)
{
    vec_word words[BLOCK];
    LK_UNROLL
    for (int64_t f = 0; f < BLOCK; f++)
        words[f] = word_load(rows[f]);
    word_transpose(words);
    LK_UNROLL
    for (int64_t word = 0; word < BLOCK; word++)
        word_store(to + word * DEPTH, words[word]);
}

/* Makes the right tiles of a step from rows of channels. */
static void tile_weights_make(element rows[WIDTH][WIDTH], bool for_gradient, element *step)
{
    for (int64_t b = 0; b < PAIR; b++, step += TILE)
        if (!for_gradient)
            tile_weights_transpose(rows + b * BLOCK, step);
        else
            for (int64_t f = 0; f < DEPTH; f += LK_PER_WORD)
                word_store(step + f / LK_PER_WORD * DEPTH,
                           word_join((const element *const[]){rows[f] + b * BLOCK, rows[f + 1] + b * BLOCK}));
}

static void tile_weights_pack(const lk_geometry *conv, const element *w, bool for_gradient, element *packed)
{
    int64_t taps = tile_conv_area_of(conv->kernel), to = for_gradient ? conv->channels : conv->filters,
            from = for_gradient ? conv->filters : conv->channels, steps = tile_conv_pairs(from);
    _Alignas(64) element rows[WIDTH][WIDTH];
    for (int64_t t = 0; t < to; t += WIDTH, packed += taps * steps * STEP)
        for (int64_t s = 0; s < steps; s++)
            for (int64_t tap = 0; tap < taps; tap++) {
                tile_weights_gather(conv, w, tap, for_gradient ? s * WIDTH : t, for_gradient ? t : s * WIDTH, rows);
                tile_weights_make(rows, for_gradient, packed + (tap * steps + s) * STEP);
            }
}
