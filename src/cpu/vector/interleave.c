#include "cpu/vector/interleave.h"

#include "base/avx2.h"
#include "base/bf16.h"
#include "base/minmax.h"

#if defined(__x86_64__)
#include "cpu/vector/transpose.h"
#endif

#include <string.h>

enum { EIGHT = 8, WIDEST = 16 };

lk_interleaving lk__interleaving_of_images(int64_t images, int64_t channels, int64_t pixels, int64_t width)
{
    return (lk_interleaving){.width = width, .lanes = images, .inners = channels, .pixels = pixels};
}

lk_interleaving lk__interleaving_of_channels(int64_t images, int64_t channels, int64_t pixels, int64_t width)
{
    return (lk_interleaving){.width = width, .lanes = images * channels, .inners = 1, .pixels = pixels};
}

/* --- words of bf16 ----------------------------------------------------------------------------------------------- */

/* Joins n elements of a row of bf16, and those that lie `second` elements further, to words. second = 0: zeros. */
LK_BODY void interleave_join(const uint16_t *row, int64_t second, int64_t n, uint32_t *words)
{
    for (int64_t i = 0; i < n; i++)
        words[i] = row[i] | (second ? (uint32_t)row[second + i] << 16 : 0);
}

LK_BODY void interleave_split(const uint32_t *words, int64_t n, uint16_t *row, int64_t second)
{
    for (int64_t i = 0; i < n; i++) {
        row[i] = (uint16_t)words[i];
        if (second)
            row[second + i] = (uint16_t)(words[i] >> 16);
    }
}

/* --- 8x8 elements, rows to columns -------------------------------------------------------------------------------- */

#if defined(__x86_64__)

LK_BODY LK_AVX2 void interleave_transpose_8x8(const float *from, int64_t from_stride, float *to, int64_t to_stride)
{
    __m256 rows[EIGHT];
    transpose_half(from, from_stride, rows);
    transpose_half(from + 4, from_stride, rows + 4);
    for (int i = 0; i < EIGHT; i++)
        _mm256_storeu_ps(to + i * to_stride, rows[i]);
}

/* Joins eight elements of a row of bf16, and those that lie `second` elements further, to words. second = 0: zeros. */
LK_BODY LK_AVX2 void interleave_join_eight(const uint16_t *row, int64_t second, uint32_t *words)
{
    __m256i joined = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)row));
    if (second)
        joined = _mm256_or_si256(
            joined, _mm256_slli_epi32(
                        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(row + second))), 16));
    _mm256_storeu_si256((__m256i *)(void *)words, joined);
}

/* The inverse. */
LK_BODY LK_AVX2 void interleave_split_eight(const uint32_t *words, uint16_t *row, int64_t second)
{
    __m256i joined = _mm256_loadu_si256((const __m256i *)(const void *)words),
            low = _mm256_and_si256(joined, _mm256_set1_epi32(0xffff)), high = _mm256_srli_epi32(joined, 16);
    _mm_storeu_si128((__m128i *)(void *)row,
                     _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
    if (second)
        _mm_storeu_si128((__m128i *)(void *)(row + second),
                         _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)));
}

#else

static void interleave_transpose_8x8(const float *from, int64_t from_stride, float *to, int64_t to_stride)
{
    for (int64_t i = 0; i < EIGHT; i++)
        for (int64_t j = 0; j < EIGHT; j++)
            to[j * to_stride + i] = from[i * from_stride + j];
}

static void interleave_join_eight(const uint16_t *row, int64_t second, uint32_t *words)
{
    interleave_join(row, second, EIGHT, words);
}

static void interleave_split_eight(const uint32_t *words, uint16_t *row, int64_t second)
{
    interleave_split(words, EIGHT, row, second);
}

#endif

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* A piece of eight lanes by eight pixels, or what is left of either at the end. */
typedef struct tile {
    int64_t row, vector;     /* offset of the first element in the plain tensor, in vectors */
    int64_t a_lane, a_pixel; /* step from one lane to the next in plain, from one pixel to the next in vectors */
    int64_t lanes, pixels;   /* number of them, at most 8 */
} tile;

LK_BODY LK_AVX2 void interleave_tile(const tile *t, const float *plain, float *vectors)
{
    plain += t->row;
    vectors += t->vector;
    if (t->lanes == EIGHT && t->pixels == EIGHT) {
        interleave_transpose_8x8(plain, t->a_lane, vectors, t->a_pixel);
        return;
    }
    for (int64_t p = 0; p < t->pixels; p++)
        for (int64_t l = 0; l < EIGHT; l++)
            vectors[p * t->a_pixel + l] = l < t->lanes ? plain[l * t->a_lane + p] : 0;
}

LK_BODY LK_AVX2 void deinterleave_tile(const tile *t, const float *vectors, float *plain)
{
    plain += t->row;
    vectors += t->vector;
    if (t->lanes == EIGHT && t->pixels == EIGHT) {
        interleave_transpose_8x8(vectors, t->a_pixel, plain, t->a_lane);
        return;
    }
    for (int64_t l = 0; l < t->lanes; l++)
        for (int64_t p = 0; p < t->pixels; p++)
            plain[l * t->a_lane + p] = vectors[p * t->a_pixel + l];
}

static tile interleave_tile_of(const lk_interleaving *s, int64_t lane, int64_t pixel)
{
    int64_t left = s->lanes - lane;
    return (tile){.row = lane * s->inners * s->pixels + pixel,
                  .vector = (lane / s->width * s->pixels + pixel) * s->inners * s->width + lane % s->width,
                  .a_lane = s->inners * s->pixels,
                  .a_pixel = s->inners * s->width,
                  .lanes = left < 0 ? 0 : lk__min(left, EIGHT),
                  .pixels = lk__min(s->pixels, EIGHT)};
}

/* The last eight pixels may overlap the ones before them, so that a tile is always full. */
static int64_t interleave_next_pixel(const lk_interleaving *s, int64_t pixel)
{
    int64_t next = pixel + EIGHT;
    return next < s->pixels ? lk__min(next, s->pixels - EIGHT) : s->pixels;
}

static int64_t interleave_padded_lanes(const lk_interleaving *s)
{
    return (s->lanes + s->width - 1) / s->width * s->width;
}

/* --- whole tensors ------------------------------------------------------------------------------------------------ */

/* The vectors of a pixel lie together in memory, so the loop finishes all inners of eight pixels before it goes on. */
LK_AVX2 void lk__interleave(const lk_interleaving *s, const float *plain, float *vectors)
{
    for (int64_t lane = 0; lane < interleave_padded_lanes(s); lane += EIGHT)
        for (int64_t pixel = 0; pixel < s->pixels; pixel = interleave_next_pixel(s, pixel)) {
            tile t = interleave_tile_of(s, lane, pixel);
            for (int64_t i = 0; i < s->inners; i++, t.row += s->pixels, t.vector += s->width)
                interleave_tile(&t, plain, vectors);
        }
}

LK_AVX2 void lk__deinterleave(const lk_interleaving *s, const float *vectors, float *plain)
{
    for (int64_t lane = 0; lane < s->lanes; lane += EIGHT)
        for (int64_t pixel = 0; pixel < s->pixels; pixel = interleave_next_pixel(s, pixel)) {
            tile t = interleave_tile_of(s, lane, pixel);
            for (int64_t i = 0; i < s->inners; i++, t.row += s->pixels, t.vector += s->width)
                deinterleave_tile(&t, vectors, plain);
        }
}

/* --- bf16 in pairs ------------------------------------------------------------------------------------------------ */

static int64_t interleave_pairs_of(const lk_interleaving *s)
{
    return (s->inners + 1) / 2;
}

/* A tile of words: `row` is the offset of the first bf16, and `vector` that of the first word. */
static tile interleave_pair_tile_of(const lk_interleaving *s, int64_t lane, int64_t pixel)
{
    tile t = interleave_tile_of(s, lane, pixel);
    t.a_pixel = interleave_pairs_of(s) * s->width;
    t.vector = (lane / s->width * s->pixels + pixel) * t.a_pixel + lane % s->width;
    return t;
}

/* Rows of words are floats to the transposition, which copies bits. */
LK_BODY LK_AVX2 void interleave_pair_tile(const tile *t, const uint16_t *row, int64_t second, uint32_t *words)
{
    uint32_t rows[EIGHT][EIGHT];
    memset(&rows[0][0] + t->lanes * EIGHT, 0, (size_t)(EIGHT - t->lanes) * sizeof *rows);
    if (t->pixels == EIGHT) {
        for (int64_t l = 0; l < t->lanes; l++)
            interleave_join_eight(row + l * t->a_lane, second, rows[l]);
        interleave_transpose_8x8((const float *)(const void *)rows, EIGHT, (float *)(void *)words, t->a_pixel);
        return;
    }
    for (int64_t l = 0; l < t->lanes; l++)
        interleave_join(row + l * t->a_lane, second, t->pixels, rows[l]);
    for (int64_t p = 0; p < t->pixels; p++)
        for (int64_t l = 0; l < EIGHT; l++)
            words[p * t->a_pixel + l] = rows[l][p];
}

LK_BODY LK_AVX2 void deinterleave_pair_tile(const tile *t, const uint32_t *words, uint16_t *row, int64_t second)
{
    uint32_t rows[EIGHT][EIGHT];
    if (t->pixels == EIGHT) {
        interleave_transpose_8x8((const float *)(const void *)words, t->a_pixel, (float *)(void *)rows, EIGHT);
        for (int64_t l = 0; l < t->lanes; l++)
            interleave_split_eight(rows[l], row + l * t->a_lane, second);
        return;
    }
    for (int64_t p = 0; p < t->pixels; p++)
        for (int64_t l = 0; l < EIGHT; l++)
            rows[l][p] = words[p * t->a_pixel + l];
    for (int64_t l = 0; l < t->lanes; l++)
        interleave_split(rows[l], t->pixels, row + l * t->a_lane, second);
}

LK_AVX2 void lk__interleave_pairs(const lk_interleaving *s, const uint16_t *plain, void *words)
{
    for (int64_t lane = 0; lane < interleave_padded_lanes(s); lane += EIGHT)
        for (int64_t pixel = 0; pixel < s->pixels; pixel = interleave_next_pixel(s, pixel)) {
            tile t = interleave_pair_tile_of(s, lane, pixel);
            for (int64_t i = 0; i < s->inners; i += 2, t.row += 2 * s->pixels, t.vector += s->width)
                interleave_pair_tile(&t, plain + t.row, i + 1 < s->inners ? s->pixels : 0,
                                     (uint32_t *)words + t.vector);
        }
}

LK_AVX2 void lk__deinterleave_pairs(const lk_interleaving *s, const void *words, uint16_t *plain)
{
    for (int64_t lane = 0; lane < s->lanes; lane += EIGHT)
        for (int64_t pixel = 0; pixel < s->pixels; pixel = interleave_next_pixel(s, pixel)) {
            tile t = interleave_pair_tile_of(s, lane, pixel);
            for (int64_t i = 0; i < s->inners; i += 2, t.row += 2 * s->pixels, t.vector += s->width)
                deinterleave_pair_tile(&t, (const uint32_t *)words + t.vector, plain + t.row,
                                       i + 1 < s->inners ? s->pixels : 0);
        }
}

LK_AVX2 void lk__widen_pairs(const lk_interleaving *s, const void *words, float *vectors)
{
    const uint32_t *from = words;
    uint32_t low[WIDEST], high[WIDEST];
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

LK_AVX2 void lk__round_pairs(const lk_interleaving *s, const float *vectors, void *words)
{
    uint32_t *to = words;
    uint16_t halves[2 * WIDEST];
    for (int64_t p = 0; p < interleave_padded_lanes(s) / s->width * s->pixels; p++)
        for (int64_t i = 0; i < s->inners; i += 2, to += s->width) {
            bool both = i + 1 < s->inners;
            lk__bf16_round(vectors, halves, s->width);
            lk__bf16_round(vectors + s->width, halves + WIDEST, both ? s->width : 0);
            interleave_join(halves, both ? WIDEST : 0, s->width, to);
            vectors += both ? 2 * s->width : s->width;
        }
}
