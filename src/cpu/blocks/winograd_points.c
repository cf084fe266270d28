/* The transforms of winograd_points.h. Each goes over the columns of a tile and then over its rows. */
#include "cpu/blocks/winograd_points.h"

#include "cpu/vector/rectify.h"

#include <string.h>

/* An output tile has OUT x OUT pixels, an input tile IN x IN. */
enum { OUT = LK_TILE, IN = 6, KERNEL = 3, TAPS = KERNEL * KERNEL, EIGHT = 8 };

/* --- transforms of a row or a column, for a block of channels ---------------------------------------------------- */

/* Polynomials are evaluated at 0, A, -A, B, -B and infinity. With f32 powers of two make exact products. Points that
 * are rounded to bf16 need others: with 1 and 2 the relative error of a result is about 0.02, with these about 0.01. */
#if defined(LK_VECTOR_BF16)
#define A 0.625F
#define B 1.5F
#else
#define A 1.0F
#define B 2.0F
#endif
#define A2 (A * A)
#define B2 (B * B)

/* Factors of the transformed kernel at 0, at A and -A (negative), and at B and -B. */
#define AT_0 (1 / (A2 * B2))
#define AT_A (1 / (2 * A2 * (B2 - A2)))
#define AT_B (1 / (2 * B2 * (B2 - A2)))

/* Products with 1 are left out. */
LK_BODY vec scaled(const float factor, vec a)
{
    return factor == 1 ? a : vec_mul(vec_set(factor), a);
}

/* Returns c + factor a. */
LK_BODY vec add_scaled(const float factor, vec a, vec c)
{
    return factor == 1 ? vec_add(c, a) : vec_fmadd(vec_set(factor), a, c);
}

/* Returns c - factor a. */
LK_BODY vec sub_scaled(const float factor, vec a, vec c)
{
    return factor == 1 ? vec_sub(c, a) : vec_fnmadd(vec_set(factor), a, c);
}

/* Computes t = B^T d. Names follow Lavin and Gray. These are the transforms of cpu/lanes/winograd_transforms.h, written
 * for this one size. */
LK_BODY void transform_input(const vec d[IN], vec t[IN])
{
    vec a = sub_scaled(B2, d[2], d[4]), b = sub_scaled(B2, d[1], d[3]);
    vec c = sub_scaled(A2, d[2], d[4]), e = scaled(B, sub_scaled(A2, d[1], d[3]));
    t[0] = add_scaled(A2 * B2, d[0], sub_scaled(A2 + B2, d[2], d[4]));
    t[1] = add_scaled(A, b, a);
    t[2] = sub_scaled(A, b, a);
    t[3] = vec_add(c, e);
    t[4] = vec_sub(c, e);
    t[5] = add_scaled(A2 * B2, d[1], sub_scaled(A2 + B2, d[3], d[5]));
}

/* Computes y = A^T m. */
LK_BODY void transform_output(const vec m[IN], vec y[OUT])
{
    vec s1 = vec_add(m[1], m[2]), d1 = vec_sub(m[1], m[2]);
    vec s2 = vec_add(m[3], m[4]), d2 = vec_sub(m[3], m[4]);
    y[0] = vec_add(m[0], vec_add(s1, s2));
    y[1] = add_scaled(B, d2, scaled(A, d1));
    y[2] = add_scaled(B2, s2, scaled(A2, s1));
    y[3] = vec_add(m[5], add_scaled(B2 * B, d2, scaled(A2 * A, d1)));
}

/* Computes m = A y, the transpose of transform_output. */
LK_BODY void transform_gradient(const vec y[OUT], vec m[IN])
{
    vec s1 = add_scaled(A2, y[2], y[0]), d1 = add_scaled(A2 * A, y[3], scaled(A, y[1]));
    vec s2 = add_scaled(B2, y[2], y[0]), d2 = add_scaled(B2 * B, y[3], scaled(B, y[1]));
    m[0] = y[0];
    m[1] = vec_add(s1, d1);
    m[2] = vec_sub(s1, d1);
    m[3] = vec_add(s2, d2);
    m[4] = vec_sub(s2, d2);
    m[5] = y[3];
}

/* Computes t = G g. */
LK_BODY void transform_kernel(const vec g[KERNEL], vec t[IN])
{
    vec near = add_scaled(A2, g[2], g[0]), a = scaled(A, g[1]);
    vec far = add_scaled(B2, g[2], g[0]), b = scaled(B, g[1]);
    t[0] = scaled(AT_0, g[0]);
    t[1] = scaled(-AT_A, vec_add(near, a));
    t[2] = scaled(-AT_A, vec_sub(near, a));
    t[3] = scaled(AT_B, vec_add(far, b));
    t[4] = scaled(AT_B, vec_sub(far, b));
    t[5] = g[2];
}

/* Computes g = G^T u, the transpose of transform_kernel. */
LK_BODY void transform_kernel_gradient(const vec u[IN], vec g[KERNEL])
{
    vec s1 = scaled(AT_A, vec_add(u[1], u[2])), d1 = scaled(AT_A, vec_sub(u[2], u[1]));
    vec s2 = scaled(AT_B, vec_add(u[3], u[4])), d2 = scaled(AT_B, vec_sub(u[3], u[4]));
    g[0] = vec_add(vec_fmsub(vec_set(AT_0), u[0], s1), s2);
    g[1] = add_scaled(B, d2, scaled(A, d1));
    g[2] = vec_add(u[5], vec_fmsub(vec_set(B2), s2, scaled(A2, s1)));
}

/* --- positions of tiles ------------------------------------------------------------------------------------------- */

/* The position of a tile: its image and its first pixel, which may lie in the padding. */
typedef struct position {
    int64_t image, row, column;
} position;

static position position_of_tile(const lk_tiles *tiles, int64_t index)
{
    int64_t an_image = tiles->rows * tiles->columns, at = index % an_image;
    return (position){index / an_image, at / tiles->columns * OUT - tiles->padding[0],
                      at % tiles->columns * OUT - tiles->padding[1]};
}

/* Returns the offset of the first pixel of an image's block of channels. */
static int64_t block_offset(const lk_tiles *tiles, int64_t image, int64_t channel)
{
    return (image * tiles->channels + channel) * tiles->size[0] * tiles->size[1];
}

/* Loads side x side pixels of a block, zeros outside the image. */
LK_BODY void load_tile(const lk_tiles *tiles, const position *p, const element *block, vec *d, const int64_t side)
{
    int64_t width = tiles->size[1];
    if (p->row >= 0 && p->column >= 0 && p->row + side <= tiles->size[0] && p->column + side <= width) {
        const element *at = block + (p->row * width + p->column) * LK_BLOCK;
        for (int64_t r = 0; r < side; r++, at += width * LK_BLOCK)
            for (int64_t c = 0; c < side; c++)
                d[r * side + c] = vec_widen(at + c * LK_BLOCK);
        return;
    }
    for (int64_t r = 0; r < side; r++)
        for (int64_t c = 0; c < side; c++) {
            int64_t row = p->row + r, column = p->column + c;
            bool inside = row >= 0 && row < tiles->size[0] && column >= 0 && column < width;
            d[r * side + c] = inside ? vec_widen(block + (row * width + column) * LK_BLOCK) : vec_zero();
        }
}

/* --- activations -------------------------------------------------------------------------------------------------- */

/* Stores n points of LK_PER_WORD tiles or kernels, v[LK_PER_WORD][n], as words. */
LK_BODY void store_words(const vec *v, const int n, element *to, int64_t stride)
{
    for (int i = 0; i < n; i++) {
        vec parts[LK_PER_WORD];
        for (int k = 0; k < LK_PER_WORD; k++)
            parts[k] = v[k * n + i];
        word_store(to + i * stride, word_round(parts));
    }
}

LK_BODY void input_points(const lk_tiles *tiles, const position *p, const element *block, vec d[LK_POINTS])
{
    vec half[LK_POINTS], column[IN], t[IN];
    load_tile(tiles, p, block, d, IN);
    for (int c = 0; c < IN; c++) {
        for (int r = 0; r < IN; r++)
            column[r] = d[r * IN + c];
        transform_input(column, t);
        for (int r = 0; r < IN; r++)
            half[r * IN + c] = t[r];
    }
    for (int r = 0; r < IN; r++)
        transform_input(half + r * IN, d + r * IN);
}

static void input_tile(const lk_tiles *tiles, const position *p, const element *block, element *to, int64_t stride)
{
    vec d[LK_POINTS];
    input_points(tiles, p, block, d);
    for (int i = 0; i < LK_POINTS; i++)
        vec_round(to + i * stride, d[i]);
}

LK_BODY void gradient_points(const lk_tiles *tiles, const position *p, const element *block, vec m[LK_POINTS])
{
    vec d[OUT * OUT], half[IN * OUT], column[OUT], t[IN];
    load_tile(tiles, p, block, d, OUT);
    for (int c = 0; c < OUT; c++) {
        for (int r = 0; r < OUT; r++)
            column[r] = d[r * OUT + c];
        transform_gradient(column, t);
        for (int r = 0; r < IN; r++)
            half[r * OUT + c] = t[r];
    }
    for (int r = 0; r < IN; r++)
        transform_gradient(half + r * OUT, m + r * IN);
}

/* Transforms one tile of outputs. block, passed: at the first pixel of the image. */
static void output_tile(const lk_tiles *tiles, const position *p, const float *from, int64_t stride, vec bias,
                        element *block, uint8_t *passed)
{
    vec half[OUT * IN], column[IN], t[OUT], y[OUT];
    for (int c = 0; c < IN; c++) {
        for (int r = 0; r < IN; r++)
            column[r] = vec_loadu(from + (r * IN + c) * stride);
        transform_output(column, t);
        for (int r = 0; r < OUT; r++)
            half[r * IN + c] = t[r];
    }
    int64_t rows = tiles->size[0] - p->row, columns = tiles->size[1] - p->column;
    for (int64_t r = 0; r < OUT && r < rows; r++) {
        int64_t at = ((p->row + r) * tiles->size[1] + p->column) * LK_BLOCK;
        transform_output(half + r * IN, y);
        for (int64_t c = 0; c < OUT && c < columns; c++, at += LK_BLOCK) {
            vec value = vec_add(y[c], bias);
            vec_round(block + at, passed ? lk__rectify(value, passed + at / 8) : value);
        }
    }
}

void lk__points_of_input(const lk_tiles *tiles, const element *x, lk_tile_range t, lk_channel_range c, element *points)
{
    int64_t stride = lk__point_stride(c.count * t.count);
    for (int64_t i = 0; i < t.count; i++) {
        position p = position_of_tile(tiles, t.first + i);
        for (int64_t k = 0; k < c.count; k += LK_BLOCK)
            input_tile(tiles, &p, x + block_offset(tiles, p.image, c.first + k), points + k * t.count + i * LK_BLOCK,
                       stride);
    }
}

/* Transforms the tiles of a word, for each block of channels. A tile beyond the range becomes zeros. */
LK_BODY void transform_word(const lk_tiles *tiles, const element *x, lk_tile_range t, lk_channel_range c,
                            element *points, int64_t a_block, int64_t stride, const bool gradient)
{
    position p[LK_PER_WORD];
    vec v[LK_PER_WORD][LK_POINTS];
    for (int i = 0; i < LK_PER_WORD; i++)
        p[i] = position_of_tile(tiles, t.first + i);
    for (int64_t k = 0; k < c.count; k += LK_BLOCK, points += a_block) {
        for (int i = 0; i < LK_PER_WORD; i++) {
            const element *block = x + block_offset(tiles, p[i].image, c.first + k);
            if (i >= t.count)
                memset(v[i], 0, sizeof v[i]);
            else if (gradient)
                gradient_points(tiles, &p[i], block, v[i]);
            else
                input_points(tiles, &p[i], block, v[i]);
        }
        store_words(v[0], LK_POINTS, points, stride);
    }
}

void lk__points_of_input_in_words(const lk_tiles *tiles, const element *x, lk_tile_range t, lk_channel_range c,
                                  element *points)
{
    int64_t tile_words = lk__tile_words(t.count) * LK_PER_WORD, stride = lk__point_stride(c.count * tile_words);
    for (; t.count > 0; t.first += LK_PER_WORD, t.count -= LK_PER_WORD, points += LK_BLOCK * LK_PER_WORD)
        transform_word(tiles, x, t, c, points, LK_BLOCK * tile_words, stride, false);
}

void lk__points_of_gradient(const lk_tiles *tiles, const element *dy, lk_tile_range t, lk_channel_range c,
                            element *points)
{
    int64_t pairs = lk__paired(c.count), tile_words = lk__tile_words(t.count) * LK_PER_WORD;
    int64_t stride = lk__point_stride(pairs * tile_words);
    if (pairs > c.count)
        for (int i = 0; i < LK_POINTS; i++)
            memset(points + i * stride + c.count * tile_words, 0, (size_t)(LK_BLOCK * tile_words) * sizeof *points);
    for (; t.count > 0; t.first += LK_PER_WORD, t.count -= LK_PER_WORD, points += LK_BLOCK * LK_PER_WORD)
        transform_word(tiles, dy, t, c, points, LK_BLOCK * tile_words, stride, true);
}

void lk__output_of_points(const lk_tiles *tiles, const float *points, const element *bias, lk_tile_range t,
                          lk_channel_range c, element *y, uint8_t *passed)
{
    int64_t stride = lk__point_stride(lk__paired(c.count) * t.count);
    for (int64_t i = 0; i < t.count; i++) {
        position p = position_of_tile(tiles, t.first + i);
        for (int64_t k = 0; k < c.count; k += LK_BLOCK) {
            int64_t block = block_offset(tiles, p.image, c.first + k);
            output_tile(tiles, &p, points + k * t.count + i * LK_BLOCK, stride,
                        bias ? vec_widen(bias + c.first + k) : vec_zero(), y + block,
                        passed ? passed + block / 8 : NULL);
        }
    }
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

static void kernel_points(const vec g[LK_PER_WORD][TAPS], element *to, int64_t stride)
{
    vec half[LK_PER_WORD][IN * KERNEL], column[KERNEL], t[IN], rows[LK_PER_WORD][IN];
    for (int n = 0; n < LK_PER_WORD; n++)
        for (int c = 0; c < KERNEL; c++) {
            for (int r = 0; r < KERNEL; r++)
                column[r] = g[n][r * KERNEL + c];
            transform_kernel(column, t);
            for (int r = 0; r < IN; r++)
                half[n][r * KERNEL + c] = t[r];
        }
    for (int r = 0; r < IN; r++) {
        for (int n = 0; n < LK_PER_WORD; n++)
            transform_kernel(half[n] + r * KERNEL, rows[n]);
        store_words(rows[0], IN, to + r * IN * stride, stride);
    }
}

/* Transposes 8x8 elements. */
LK_BODY void transpose_eight(__m256 v[EIGHT])
{
    __m256 pair[EIGHT], four[EIGHT];
    for (int i = 0; i < EIGHT; i += 2) {
        pair[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < EIGHT; i += 4)
        for (int k = 0; k < 2; k++) {
            four[i + 2 * k] = _mm256_shuffle_ps(pair[i + k], pair[i + 2 + k], 0x44);
            four[i + 2 * k + 1] = _mm256_shuffle_ps(pair[i + k], pair[i + 2 + k], 0xee);
        }
    for (int i = 0; i < EIGHT / 2; i++) {
        v[i] = _mm256_permute2f128_ps(four[i], four[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(four[i], four[i + 4], 0x31);
    }
}

/* Loads the kernels of eight channels, `stride` elements apart, tap by tap. */
LK_BODY void load_eight(const element *w, int64_t stride, __m256 g[TAPS])
{
    for (int o = 0; o < EIGHT; o++)
        g[o] = eight_widen(w + o * stride);
    transpose_eight(g);
    const element *last = w + EIGHT;
    g[EIGHT] = _mm256_setr_ps(element_widen(last[0]), element_widen(last[stride]), element_widen(last[2 * stride]),
                              element_widen(last[3 * stride]), element_widen(last[4 * stride]),
                              element_widen(last[5 * stride]), element_widen(last[6 * stride]),
                              element_widen(last[7 * stride]));
}

/* Kernels are prefetched this many steps ahead. Those of a block's channels are too many streams, or too far apart, for
 * the hardware to predict. */
enum { AHEAD = 8 };

LK_BODY void fetch_kernels(const element *w, int64_t stride)
{
    for (int64_t o = 0; o < LK_BLOCK; o++)
        __builtin_prefetch(w + o * stride);
}

/* Loads the kernels of a block of channels; `turned` rotates each by 180 degrees. */
LK_BODY void load_kernels(const element *w, int64_t stride, bool turned, vec g[TAPS])
{
    __m256 eight[LK_EIGHTS][TAPS], part[LK_EIGHTS];
    for (int e = 0; e < LK_EIGHTS; e++)
        load_eight(w + e * EIGHT * stride, stride, eight[e]);
    for (int k = 0; k < TAPS; k++) {
        for (int e = 0; e < LK_EIGHTS; e++)
            part[e] = eight[e][k];
        g[turned ? TAPS - 1 - k : k] = vec_join(part);
    }
}

/* The inverse of load_eight. */
LK_BODY void store_eight(__m256 g[TAPS], float *dw, int64_t stride)
{
    float last[EIGHT];
    _mm256_storeu_ps(last, g[EIGHT]);
    transpose_eight(g);
    for (int o = 0; o < EIGHT; o++) {
        _mm256_storeu_ps(dw + o * stride, g[o]);
        dw[o * stride + EIGHT] = last[o];
    }
}

void lk__points_of_kernels(const lk_kernels *kernels, const element *w, lk_channel_range to, element *points)
{
    bool turned = kernels->for_input_grad;
    int64_t a_filter = kernels->channels * TAPS, from = turned ? kernels->filters : kernels->channels;
    int64_t to_stride = turned ? TAPS : a_filter, from_stride = turned ? a_filter : TAPS;
    int64_t stride = lk__point_stride(lk__paired(to.count) * from);
    vec g[LK_PER_WORD][TAPS];
    for (int64_t o = 0; o < to.count; o += LK_PAIR)
        for (int64_t i = 0; i < from; i += LK_PER_WORD)
            for (int64_t k = o; k < o + LK_PAIR; k += LK_BLOCK, points += LK_BLOCK * LK_PER_WORD) {
                const element *at = w + (to.first + k) * to_stride + i * from_stride;
                if (k < to.count)
                    for (int n = 0; n < LK_PER_WORD; n++, at += from_stride) {
                        fetch_kernels(at + AHEAD * from_stride, to_stride);
                        load_kernels(at, to_stride, turned, g[n]);
                    }
                else
                    memset(g, 0, sizeof g);
                kernel_points((const vec(*)[TAPS])g, points, stride);
            }
}

static void kernels_of_block(const float *points, int64_t stride, float *dw, int64_t a_filter)
{
    vec half[KERNEL * IN], column[IN], row[KERNEL], g[TAPS];
    for (int c = 0; c < IN; c++) {
        for (int r = 0; r < IN; r++)
            column[r] = vec_loadu(points + (r * IN + c) * stride);
        transform_kernel_gradient(column, row);
        for (int r = 0; r < KERNEL; r++)
            half[r * IN + c] = row[r];
    }
    for (int r = 0; r < KERNEL; r++)
        transform_kernel_gradient(half + r * IN, g + r * KERNEL);
    for (int e = 0; e < LK_EIGHTS; e++) {
        __m256 eight[TAPS];
        for (int k = 0; k < TAPS; k++)
            eight[k] = vec_part(g[k], e);
        store_eight(eight, dw + e * EIGHT * a_filter, a_filter);
    }
}

void lk__kernels_of_points(const lk_kernels *kernels, const float *points, lk_channel_range from, lk_channel_range to,
                           float *dw)
{
    int64_t a_filter = kernels->channels * TAPS, stride = lk__point_stride(lk__paired(to.count) * from.count);
    for (int64_t o = 0; o < to.count; o += LK_BLOCK)
        for (int64_t i = 0; i < from.count; i++)
            kernels_of_block(points + (o / LK_PAIR * from.count + i) * LK_PAIR + o % LK_PAIR, stride,
                             dw + (to.first + o) * a_filter + (from.first + i) * TAPS, a_filter);
}
