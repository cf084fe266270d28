/* The gradient of the weights on tiles: see lk__block_tiles_amxbf16 in block_conv.h.
 *
 * The sum over images and pixels is the inner dimension of the products. Along a row of dy it goes through the pixels,
 * and for each through pairs of images. Then a tap only moves where it begins in a row of x, by whole pairs, so that dy
 * is transposed, and pairs of images of x are joined, once for all taps. */
#include "cpu/blocks/tile_grad.h"

#include "cpu/blocks/tile_conv.h"

/* A chunk's transposed dy has at most so many elements, unless one row has more. It stays in the second-level cache,
 * with the rows of x. All of dy may have more, since several chunks would load and store the sums of all weights. */
enum { MOST_TRANSPOSED = 400 * 1024, MOST_ALONE = 600 * 1024 };

enum { WORD = DEPTH }; /* elements of a vector of words */

/* A call, and its memory. */
typedef struct work {
    const lk_geometry *conv;
    int64_t taps;
    int64_t images;            /* of a chunk */
    int64_t pairs;             /* of images */
    int64_t steps;             /* of a row of dy: its last step ends with zeros */
    int64_t length;            /* of a row of x, in vectors of words */
    int64_t band;              /* rows of dy of a chunk */
    int64_t held;              /* rows of x that these need */
    int64_t first, last, from; /* rows of dy of the current chunk, and its first row of x */
    bool begins, ends;         /* whether it is the first chunk, and the last one */
    bool is_single;            /* whether it is the only one */
    element *dy;               /* [pairs of filters][band][steps][STEP] */
    element *x;                /* [PAIR][held][stride][length][WORD], with zeros for padding */
    float *sums;               /* [pairs of channels][pairs of filters][taps][STEP_SUMS]; a single chunk: of one pair */
} work;

/* Returns by how many pixels of a phase a tap moves a row of x. */
static int64_t tile_grad_shift(const lk_geometry *conv, int64_t column)
{
    return column * conv->dilation[1] / conv->stride[1];
}

static int64_t tile_grad_held(const lk_geometry *conv, int64_t band)
{
    return lk__min((band - 1) * conv->stride[0] + (conv->kernel[0] - 1) * conv->dilation[0] + 1, conv->in[0]);
}

/* Lays out the memory of a call, which may be NULL, and returns its bytes. */
static size_t tile_grad_start(const lk_geometry *conv, char *memory, work *w)
{
    size_t used = 0;
    int64_t filters = tile_conv_pairs(conv->filters), channels = tile_conv_pairs(conv->channels);
    *w = (work){.conv = conv, .taps = tile_conv_area_of(conv->kernel)};
    w->pairs = lk__divide_up(lk__min(conv->images, IMAGES_AT_ONCE), 2);
    w->steps = lk__divide_up(conv->out[1] * w->pairs, ROWS);
    w->length = tile_grad_shift(conv, conv->kernel[1] - 1) * w->pairs + w->steps * ROWS;
    int64_t a_row = filters * w->steps * STEP;
    w->band = a_row * conv->out[0] <= MOST_ALONE ? conv->out[0] : lk__max(MOST_TRANSPOSED / a_row, 1);
    w->held = tile_grad_held(conv, w->band);
    w->is_single = conv->images <= IMAGES_AT_ONCE && w->band == conv->out[0];
    w->dy = tile_conv_take(memory, &used, w->band * a_row, sizeof(element));
    w->x = tile_conv_take(memory, &used, PAIR * w->held * conv->stride[1] * w->length * WORD, sizeof(element));
    w->sums =
        tile_conv_take(memory, &used, (w->is_single ? 1 : filters * channels) * w->taps * STEP_SUMS, sizeof(float));
    return used;
}

size_t LK_ISA(lk__tile_weight_grad_bytes)(const lk_geometry *conv)
{
    work w;
    return tile_grad_start(conv, NULL, &w);
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

static const element zeros[BLOCK];

/* Joins one pixel of a pair of images. pixel: of the chunk's first image; NULL: zeros, as for missing images. */
static vec_word tile_grad_join(const work *w, const element *pixel, int64_t an_image, int64_t pair)
{
    int64_t image = 2 * pair;
    return word_join((const element *const[]){pixel && image < w->images ? pixel + image * an_image : zeros,
                                              pixel && image + 1 < w->images ? pixel + (image + 1) * an_image : zeros});
}

/* Makes left tiles of a block of filters from a row of dy. */
static void tile_grad_transpose_row(const work *w, const element *row, int64_t an_image, element *to)
{
    vec_word words[ROWS];
    int64_t column = 0, pair = 0;
    for (int64_t s = 0; s < w->steps; s++, to += STEP) {
        LK_UNROLL
        for (int64_t i = 0; i < ROWS; i++) {
            words[i] = tile_grad_join(w, column < w->conv->out[1] ? row + column * BLOCK : NULL, an_image, pair);
            if (++pair == w->pairs) {
                pair = 0;
                column++;
            }
        }
        word_transpose(words);
        LK_UNROLL
        for (int64_t i = 0; i < ROWS; i++)
            word_store(to + i * WORD, words[i]);
    }
}

/* Transposes the chunk's rows of dy; a missing block of filters keeps what it has, as do its sums. */
static void tile_grad_transpose(const work *w, const element *dy)
{
    int64_t a_block = tile_conv_area_of(w->conv->out) * BLOCK, an_image = w->conv->filters / BLOCK * a_block;
    for (int64_t b = 0; b < w->conv->filters / BLOCK; b++)
        for (int64_t r = w->first; r < w->last; r++)
            tile_grad_transpose_row(w, dy + b * a_block + r * w->conv->out[1] * BLOCK, an_image,
                                    w->dy + (b / PAIR * w->band + r - w->first) * w->steps * STEP + b % PAIR * TILE);
}

/* Returns whether a tap of axis 0 connects a row of x with any row of dy, or one of axis 1 a phase with a column. */
static bool tile_grad_uses(const lk_geometry *conv, int axis, int64_t at)
{
    for (int64_t tap = 0; tap < conv->kernel[axis]; tap++)
        if ((at - tap * conv->dilation[axis]) % conv->stride[axis] == 0)
            return true;
    return false;
}

/* Joins a row of a block of channels of x. Columns of a phase are those that a stride leads to from one another. */
static void tile_grad_join_row(const work *w, const element *row, int64_t an_image, element *to)
{
    for (int64_t phase = 0; phase < w->conv->stride[1]; phase++) {
        int64_t column = phase - w->conv->padding[1], pair = 0;
        if (!tile_grad_uses(w->conv, 1, phase)) {
            to += w->length * WORD;
            continue;
        }
        for (int64_t i = 0; i < w->length; i++, to += WORD) {
            bool inside = column >= 0 && column < w->conv->in[1];
            word_store(to, tile_grad_join(w, inside ? row + column * BLOCK : NULL, an_image, pair));
            if (++pair == w->pairs) {
                pair = 0;
                column += w->conv->stride[1];
            }
        }
    }
}

/* Returns the row of x that a tap's row connects with row 0 of dy. */
static int64_t tile_grad_row(const lk_geometry *conv, int64_t kernel_row)
{
    return kernel_row * conv->dilation[0] - conv->padding[0];
}

/* Joins the chunk's rows of x, for a pair of blocks of channels; a missing block keeps what it has, as do its sums. */
static void tile_grad_join_rows(const work *w, const element *x, int64_t channel)
{
    int64_t a_block = tile_conv_area_of(w->conv->in) * BLOCK, blocks = w->conv->channels / BLOCK,
            a_row = w->conv->stride[1] * w->length * WORD;
    int64_t last = (w->last - 1) * w->conv->stride[0] + tile_grad_row(w->conv, w->conv->kernel[0] - 1);
    for (int64_t b = 0; b < lk__min(blocks - channel / BLOCK, PAIR); b++)
        for (int64_t r = w->from; r <= lk__min(last, w->conv->in[0] - 1); r++)
            if (tile_grad_uses(w->conv, 0, r + w->conv->padding[0]))
                tile_grad_join_row(w, x + (channel / BLOCK + b) * a_block + r * w->conv->in[1] * BLOCK,
                                   blocks * a_block, w->x + (b * w->held + r - w->from) * a_row);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* Adds the products of a chunk for one tap. */
static void tile_grad_add(const work *w, int64_t filter, int64_t tap)
{
    const lk_geometry *conv = w->conv;
    int64_t column = tap % conv->kernel[1], phase = column * conv->dilation[1] % conv->stride[1];
    int64_t a_block = w->held * conv->stride[1] * w->length * WORD, shift = tile_grad_shift(conv, column) * w->pairs;
    const element *left = w->dy + filter / WIDTH * w->band * w->steps * STEP;
    for (int64_t r = w->first; r < w->last; r++, left += w->steps * STEP) {
        int64_t from = r * conv->stride[0] + tile_grad_row(conv, tap / conv->kernel[1]);
        if (from < 0 || from >= conv->in[0])
            continue;
        const element *right = w->x + (((from - w->from) * conv->stride[1] + phase) * w->length + shift) * WORD;
        tile_pair of_dy = {left, left + TILE}, of_x = {right, right + a_block};
        tile_conv_add(of_dy, STEP, of_x, TILE, w->steps);
    }
}

/* Brings the part of dw that a pair of blocks of filters and one of channels fill into the second-level cache: a share
 * of it for each tap. */
static void tile_grad_prefetch(const work *w, int64_t filter, int64_t channel, int64_t tap, const float *dw)
{
    enum { FLOATS = 64 / sizeof *dw };
    const lk_geometry *conv = w->conv;
    int64_t filters = lk__min(conv->filters - filter, WIDTH), n = lk__min(conv->channels - channel, WIDTH) * w->taps;
    for (int64_t f = tap * filters / w->taps; f < (tap + 1) * filters / w->taps; f++)
        for (int64_t i = 0; i < n; i += FLOATS)
            __builtin_prefetch(dw + ((filter + f) * conv->channels + channel) * w->taps + i, 1, 2);
}

/* Adds the chunk's products of a pair of blocks of filters and one of channels to the sums of all taps. */
static void tile_grad_sum(const work *w, int64_t filter, int64_t channel, float *sums, const float *dw)
{
    for (int64_t tap = 0; tap < w->taps; tap++, sums += STEP_SUMS) {
        if (w->ends)
            tile_grad_prefetch(w, filter, channel, tap, dw);
        if (w->begins)
            tile_conv_clear();
        else
            tile_conv_load(sums);
        tile_grad_add(w, filter, tap);
        tile_conv_store(sums);
    }
}

/* Copies the sums of a filter and a block of channels to dw. */
static void tile_grad_finish_row(int64_t taps, const float *sums, float *dw)
{
    vec_word rows[BLOCK];
    for (int64_t first = 0; first < taps; first += BLOCK, sums += BLOCK * STEP_SUMS) {
        int64_t n = lk__min(taps - first, BLOCK);
        LK_UNROLL
        for (int tap = 0; tap < BLOCK; tap++)
            rows[tap] = tap < n ? word_load((const element *)(const void *)(sums + tap * STEP_SUMS)) : word_zero();
        word_transpose(rows);
        LK_UNROLL
        for (int c = 0; c < BLOCK; c++)
            word_store_first((element *)(void *)(dw + c * taps + first), n, rows[c]);
    }
}

/* The same for a pair of blocks of filters and one of channels. */
static void tile_grad_finish(const work *w, int64_t filter, int64_t channel, const float *sums, float *dw)
{
    const lk_geometry *conv = w->conv;
    for (int64_t f = 0; f < lk__min(conv->filters - filter, WIDTH); f++) {
        float *to = dw + ((filter + f) * conv->channels + channel) * w->taps;
        for (int64_t b = 0; b < lk__min((conv->channels - channel) / BLOCK, PAIR); b++)
            tile_grad_finish_row(w->taps, sums + (f / BLOCK * PAIR + b) * SUMS + f % BLOCK * BLOCK,
                                 to + b * BLOCK * w->taps);
    }
}

static void tile_grad_chunk(const work *w, const element *dy, const element *x, float *dw)
{
    const lk_geometry *conv = w->conv;
    float *sums = w->sums;
    tile_grad_transpose(w, dy);
    for (int64_t channel = 0; channel < conv->channels; channel += WIDTH) {
        tile_grad_join_rows(w, x, channel);
        for (int64_t filter = 0; filter < conv->filters; filter += WIDTH) {
            tile_grad_sum(w, filter, channel, sums, dw);
            if (w->ends)
                tile_grad_finish(w, filter, channel, sums, dw);
            sums += w->is_single ? 0 : w->taps * STEP_SUMS;
        }
    }
}

void LK_ISA(lk__tile_weight_grad)(const lk_geometry *conv, const void *dy, const void *x, float *dw, void *memory)
{
    work w;
    tile_grad_start(conv, memory, &w);
    int64_t an_x = conv->channels * tile_conv_area_of(conv->in), a_dy = conv->filters * tile_conv_area_of(conv->out);
    tile_configure();
    for (int64_t first = 0; first < conv->images; first += IMAGES_AT_ONCE)
        for (w.first = 0; w.first < conv->out[0]; w.first = w.last) {
            w.images = lk__min(conv->images - first, IMAGES_AT_ONCE);
            w.last = lk__min(w.first + w.band, conv->out[0]);
            w.from = lk__max(w.first * conv->stride[0] - conv->padding[0], 0);
            w.begins = first == 0 && w.first == 0;
            w.ends = first + IMAGES_AT_ONCE >= conv->images && w.last == conv->out[0];
            tile_grad_chunk(&w, (const element *)dy + first * a_dy, (const element *)x + first * an_x, dw);
        }
    tile_release();
}
