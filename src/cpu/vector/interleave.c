#include "cpu/vector/interleave.h"

#include "base/bf16.h"
#include "base/minmax.h"
#include "cpu/vector/transpose.h"
#include "cpu/vector/vector.h"

#include <string.h>

/* A tile has as many pixels as lanes, EIGHT or SIXTEEN; on AVX2 the latter are two tiles. */
enum { EIGHT = 8, SIXTEEN = 16, WIDEST = LK_WIDTH };

/* --- words of bf16 ----------------------------------------------------------------------------------------------- */

/* Joins n elements of a row of bf16, and those that lie `second` elements further, to words. second = 0: zeros. */
LK_BODY void interleave_join(const uint16_t *row, int64_t second, int64_t n, uint32_t *words)
{
    for (int64_t i = 0; i < n; i++)
        words[i] = row[i] | (second ? (uint32_t)row[second + i] << 16 : 0);
}

/* The inverse. */
LK_BODY void interleave_split(const uint32_t *words, int64_t n, uint16_t *row, int64_t second)
{
    for (int64_t i = 0; i < n; i++) {
        row[i] = (uint16_t)words[i];
        if (second)
            row[second + i] = (uint16_t)(words[i] >> 16);
    }
}

/* interleave_join of eight elements. */
LK_BODY void interleave_join_eight(const uint16_t *row, int64_t second, uint32_t *words)
{
    __m256i joined = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)row));
    if (second)
        joined = _mm256_or_si256(
            joined, _mm256_slli_epi32(
                        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(row + second))), 16));
    _mm256_storeu_si256((__m256i *)(void *)words, joined);
}

/* interleave_split of eight words. */
LK_BODY void interleave_split_eight(const uint32_t *words, uint16_t *row, int64_t second)
{
    __m256i joined = _mm256_loadu_si256((const __m256i *)(const void *)words),
            low = _mm256_and_si256(joined, _mm256_set1_epi32(0xffff)), high = _mm256_srli_epi32(joined, 16);
    _mm_storeu_si128((__m128i *)(void *)row,
                     _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
    if (second)
        _mm_storeu_si128((__m128i *)(void *)(row + second),
                         _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)));
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* Turns `side` rows of as many elements into columns. */
LK_BODY void interleave_transpose(const float *from, int64_t from_stride, float *to, int64_t to_stride, const int side)
{
    if (side == EIGHT) {
        __m256 rows[EIGHT];
        transpose_half(from, from_stride, rows);
        transpose_half(from + 4, from_stride, rows + 4);
        for (int i = 0; i < EIGHT; i++)
            _mm256_storeu_ps(to + i * to_stride, rows[i]);
        return;
    }
    vec rows[LK_WIDTH];
    LK_UNROLL
    for (int i = 0; i < LK_WIDTH; i++)
        rows[i] = vec_loadu(from + i * from_stride);
    vec_transpose(rows);
    LK_UNROLL
    for (int i = 0; i < LK_WIDTH; i++)
        vec_storeu(to + i * to_stride, rows[i]);
}

/* A piece of `side` lanes by `side` pixels, or what is left of either at the end. */
typedef struct tile {
    int64_t row, vector;     /* offset of the first element in the plain tensor, in vectors */
    int64_t a_lane, a_pixel; /* step from one lane to the next in plain, from one pixel to the next in vectors */
    int64_t lanes, pixels;   /* number of them, at most `side` */
} tile;

static tile interleave_tile_of(const lk_interleaving *s, int64_t lane, int64_t pixel, int side)
{
    int64_t left = s->lanes - lane;
    return (tile){.row = lane * s->inners * s->pixels + pixel,
                  .vector = (lane / s->width * s->pixels + pixel) * s->inners * s->width + lane % s->width,
                  .a_lane = s->inners * s->pixels,
                  .a_pixel = s->inners * s->width,
                  .lanes = left < 0 ? 0 : lk__min(left, side),
                  .pixels = lk__min(s->pixels, side)};
}

LK_BODY void interleave_tile(const tile *t, const float *plain, float *vectors, const int side)
{
    if (t->lanes == side && t->pixels == side) {
        interleave_transpose(plain, t->a_lane, vectors, t->a_pixel, side);
        return;
    }
    for (int64_t p = 0; p < t->pixels; p++)
        for (int64_t l = 0; l < side; l++)
            vectors[p * t->a_pixel + l] = l < t->lanes ? plain[l * t->a_lane + p] : 0;
}

LK_BODY void deinterleave_tile(const tile *t, const float *vectors, float *plain, const int side)
{
    if (t->lanes == side && t->pixels == side) {
        interleave_transpose(vectors, t->a_pixel, plain, t->a_lane, side);
        return;
    }
    for (int64_t l = 0; l < t->lanes; l++)
        for (int64_t p = 0; p < t->pixels; p++)
            plain[l * t->a_lane + p] = vectors[p * t->a_pixel + l];
}

/* The side of the tiles that begin at `lane`: of sixteen only if these are full. */
static int interleave_side(const lk_interleaving *s, int64_t lane)
{
    return WIDEST == SIXTEEN && s->width == SIXTEEN && s->lanes - lane >= SIXTEEN && s->pixels >= SIXTEEN ? SIXTEEN
                                                                                                          : EIGHT;
}

/* The last pixels may overlap the ones before them, so that a tile is always full. */
static int64_t interleave_next_pixel(const lk_interleaving *s, int64_t pixel, int side)
{
    int64_t next = pixel + side;
    return next < s->pixels ? lk__min(next, s->pixels - side) : s->pixels;
}

static int64_t interleave_padded_lanes(const lk_interleaving *s)
{
    return (s->lanes + s->width - 1) / s->width * s->width;
}

/* Calls `body`, which has the side of its tiles as a constant, for the first `n` lanes of s. */
#define INTERLEAVE_EACH(n, body, from, to)                       \
    do                                                           \
        for (int64_t lane = 0, side; lane < (n); lane += side) { \
            side = interleave_side(s, lane);                     \
            if (side == SIXTEEN)                                 \
                body(s, lane, from, to, SIXTEEN);                \
            else                                                 \
                body(s, lane, from, to, EIGHT);                  \
        }                                                        \
    while (0)

/* --- whole tensors ------------------------------------------------------------------------------------------------ */

/* The vectors of a pixel lie together in memory, so the loop finishes all inners of a tile's pixels before it goes
 * on. */
LK_BODY void interleave_lanes(const lk_interleaving *s, int64_t lane, const float *plain, float *vectors,
                              const int side)
{
    for (int64_t pixel = 0; pixel < s->pixels; pixel = interleave_next_pixel(s, pixel, side)) {
        tile t = interleave_tile_of(s, lane, pixel, side);
        for (int64_t i = 0; i < s->inners; i++)
            interleave_tile(&t, plain + t.row + i * s->pixels, vectors + t.vector + i * s->width, side);
    }
}

static void interleave(const lk_interleaving *s, const float *plain, float *vectors)
{
    INTERLEAVE_EACH(interleave_padded_lanes(s), interleave_lanes, plain, vectors);
}

/* The pixels of an inner lie together in memory. */
LK_BODY void deinterleave_lanes(const lk_interleaving *s, int64_t lane, const float *vectors, float *plain,
                                const int side)
{
    for (int64_t i = 0; i < s->inners; i++)
        for (int64_t pixel = 0; pixel < s->pixels; pixel = interleave_next_pixel(s, pixel, side)) {
            tile t = interleave_tile_of(s, lane, pixel, side);
            deinterleave_tile(&t, vectors + t.vector + i * s->width, plain + t.row + i * s->pixels, side);
        }
}

static void interleave_back(const lk_interleaving *s, const float *vectors, float *plain)
{
    INTERLEAVE_EACH(s->lanes, deinterleave_lanes, vectors, plain);
}

/* --- bf16 in pairs ------------------------------------------------------------------------------------------------ */

static int64_t interleave_pairs_of(const lk_interleaving *s)
{
    return (s->inners + 1) / 2;
}

/* A tile of words: `row` is the offset of the first bf16, and `vector` that of the first word. */
static tile interleave_pair_tile_of(const lk_interleaving *s, int64_t lane, int64_t pixel, int side)
{
    tile t = interleave_tile_of(s, lane, pixel, side);
    t.a_pixel = interleave_pairs_of(s) * s->width;
    t.vector = (lane / s->width * s->pixels + pixel) * t.a_pixel + lane % s->width;
    return t;
}

/* Rows of words are floats to the transposition, which copies bits. */
LK_BODY void interleave_pair_tile(const tile *t, const uint16_t *row, int64_t second, uint32_t *words, const int side)
{
    uint32_t rows[SIXTEEN * SIXTEEN];
    memset(rows + t->lanes * side, 0, (size_t)((side - t->lanes) * side) * sizeof *rows);
    if (t->pixels == side) {
        for (int64_t l = 0; l < t->lanes; l++)
            for (int p = 0; p < side; p += EIGHT)
                interleave_join_eight(row + l * t->a_lane + p, second, rows + l * side + p);
        interleave_transpose((const float *)(const void *)rows, side, (float *)(void *)words, t->a_pixel, side);
        return;
    }
    for (int64_t l = 0; l < t->lanes; l++)
        interleave_join(row + l * t->a_lane, second, t->pixels, rows + l * side);
    for (int64_t p = 0; p < t->pixels; p++)
        for (int64_t l = 0; l < side; l++)
            words[p * t->a_pixel + l] = rows[l * side + p];
}

LK_BODY void deinterleave_pair_tile(const tile *t, const uint32_t *words, uint16_t *row, int64_t second, const int side)
{
    uint32_t rows[SIXTEEN * SIXTEEN];
    if (t->pixels == side) {
        interleave_transpose((const float *)(const void *)words, t->a_pixel, (float *)(void *)rows, side, side);
        for (int64_t l = 0; l < t->lanes; l++)
            for (int p = 0; p < side; p += EIGHT)
                interleave_split_eight(rows + l * side + p, row + l * t->a_lane + p, second);
        return;
    }
    for (int64_t p = 0; p < t->pixels; p++)
        for (int64_t l = 0; l < t->lanes; l++)
            rows[l * side + p] = words[p * t->a_pixel + l];
    for (int64_t l = 0; l < t->lanes; l++)
        interleave_split(rows + l * side, t->pixels, row + l * t->a_lane, second);
}

LK_BODY void interleave_pairs_of_lanes(const lk_interleaving *s, int64_t lane, const uint16_t *plain, uint32_t *words,
                                       const int side)
{
    for (int64_t pixel = 0; pixel < s->pixels; pixel = interleave_next_pixel(s, pixel, side)) {
        tile t = interleave_pair_tile_of(s, lane, pixel, side);
        for (int64_t i = 0; i < s->inners; i += 2)
            interleave_pair_tile(&t, plain + t.row + i * s->pixels, i + 1 < s->inners ? s->pixels : 0,
                                 words + t.vector + i / 2 * s->width, side);
    }
}

static void interleave_pairs(const lk_interleaving *s, const uint16_t *plain, void *words)
{
    INTERLEAVE_EACH(interleave_padded_lanes(s), interleave_pairs_of_lanes, plain, words);
}

LK_BODY void deinterleave_pairs_of_lanes(const lk_interleaving *s, int64_t lane, const uint32_t *words, uint16_t *plain,
                                         const int side)
{
    for (int64_t i = 0; i < s->inners; i += 2)
        for (int64_t pixel = 0; pixel < s->pixels; pixel = interleave_next_pixel(s, pixel, side)) {
            tile t = interleave_pair_tile_of(s, lane, pixel, side);
            deinterleave_pair_tile(&t, words + t.vector + i / 2 * s->width, plain + t.row + i * s->pixels,
                                   i + 1 < s->inners ? s->pixels : 0, side);
        }
}

static void interleave_pairs_back(const lk_interleaving *s, const void *words, uint16_t *plain)
{
    INTERLEAVE_EACH(s->lanes, deinterleave_pairs_of_lanes, words, plain);
}

static void interleave_widen_pairs(const lk_interleaving *s, const void *words, float *vectors)
{
    const uint32_t *from = words;
    uint32_t low[SIXTEEN], high[SIXTEEN];
    for (int64_t p = 0; p < interleave_padded_lanes(s) / s->width * s->pixels; p++)
        for (int64_t i = 0; i < s->inners; i += 2, from += s->width) {
            for (int64_t l = 0; l < s->width; l++) {
                low[l] = from[l] << 16;
                high[l] = from[l] & 0xFFFF0000u;
            }
            memcpy(vectors, low, (size_t)s->width * sizeof *low);
            vectors += s->width;
            if (i + 1 == s->inners)
                continue;
            memcpy(vectors, high, (size_t)s->width * sizeof *high);
            vectors += s->width;
        }
}

static void interleave_round_pairs(const lk_interleaving *s, const float *vectors, void *words)
{
    uint32_t *to = words;
    uint16_t halves[2 * SIXTEEN];
    for (int64_t p = 0; p < interleave_padded_lanes(s) / s->width * s->pixels; p++)
        for (int64_t i = 0; i < s->inners; i += 2, to += s->width) {
            bool both = i + 1 < s->inners;
            lk__bf16_round(vectors, halves, s->width);
            lk__bf16_round(vectors + s->width, halves + SIXTEEN, both ? s->width : 0);
            interleave_join(halves, both ? SIXTEEN : 0, s->width, to);
            vectors += both ? 2 * s->width : s->width;
        }
}

const lk_interleaver LK_ISA(lk__interleaver) = {
    .interleave = interleave,
    .deinterleave = interleave_back,
    .interleave_pairs = interleave_pairs,
    .deinterleave_pairs = interleave_pairs_back,
    .widen_pairs = interleave_widen_pairs,
    .round_pairs = interleave_round_pairs,
};
