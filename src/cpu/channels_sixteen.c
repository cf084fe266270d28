/* The loops of channels.h over blocks of sixteen channels, on AVX-512. Sums and constants of a block stay in registers,
 * and sixteen elements are rounded together. */
#include "base/avx2.h"
#include "cpu/channels_work.h"

#include <string.h>

enum { SIXTEEN = 16 };

#if defined(__x86_64__)

#include <immintrin.h>

#define BODY LK_BODY LK_AVX512

typedef struct doubles {
    __m512d low, high;
} doubles;

/* The operands of a loop, as in channels.c. Each loop is compiled for the operands that it has. */
typedef struct operands {
    bool bf16;
    const void *x, *z, *where, *added;
    bool rectified;
    void *kept, *y;
} operands;

/* --- sixteen elements --------------------------------------------------------------------------------------------- */

BODY __m512 sixteen_load(const void *from, int64_t at, bool bf16)
{
    if (!bf16)
        return _mm512_loadu_ps((const float *)from + at);
    __m256i elements = _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)from + at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(elements), 16));
}

/* Rounds to bf16 as lk__bf16_rounded does: adds half of the last place that is kept, less one bit if that is even. */
BODY __m256i sixteen_rounded(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x), sum = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000)),
              nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    sum = _mm512_mask_add_epi32(sum, odd, sum, _mm512_set1_epi32(1));
    sum = _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16));
}

BODY void sixteen_store(void *to, int64_t at, __m512 x, bool bf16)
{
    if (bf16)
        _mm256_storeu_si256((__m256i *)(void *)((uint16_t *)to + at), sixteen_rounded(x));
    else
        _mm512_storeu_ps((float *)to + at, x);
}

BODY doubles sixteen_widened(__m512 x)
{
    return (doubles){_mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))};
}

BODY __m512 sixteen_narrowed(doubles x)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(x.low)), _mm512_cvtpd_ps(x.high), 1);
}

BODY doubles doubles_load(const double *from)
{
    return (doubles){_mm512_loadu_pd(from), _mm512_loadu_pd(from + SIXTEEN / 2)};
}

BODY void doubles_store(double *to, doubles x)
{
    _mm512_storeu_pd(to, x.low);
    _mm512_storeu_pd(to + SIXTEEN / 2, x.high);
}

BODY doubles doubles_sum(doubles a, doubles b)
{
    return (doubles){_mm512_add_pd(a.low, b.low), _mm512_add_pd(a.high, b.high)};
}

BODY doubles doubles_product(doubles a, doubles b)
{
    return (doubles){_mm512_mul_pd(a.low, b.low), _mm512_mul_pd(a.high, b.high)};
}

/* --- a plane ------------------------------------------------------------------------------------------------------ */

BODY doubles sixteen_x(const operands *o, int64_t at)
{
    __m512 x = sixteen_load(o->x, at, o->bf16);
    if (o->where) {
        __m512 where = sixteen_load(o->where, at, o->bf16);
        x = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(where, _mm512_setzero_ps(), _CMP_GT_OQ), x);
    }
    if (o->kept)
        sixteen_store(o->kept, at, x, o->bf16);
    return sixteen_widened(x);
}

/* Adds pixel by pixel. A product of two floats is exact in double, so multiplying and adding at once gives the same
 * bits.
 */
BODY void sixteen_sums(const operands *o, int64_t at, int64_t pixels, double *first, double *second)
{
    doubles sum = doubles_load(first), product = doubles_load(second);
    for (int64_t p = 0; p < pixels; p++, at += SIXTEEN) {
        doubles x = sixteen_x(o, at), z = o->z == o->x ? x : sixteen_widened(sixteen_load(o->z, at, o->bf16));
        sum = doubles_sum(sum, x);
        product.low = _mm512_fmadd_pd(x.low, z.low, product.low);
        product.high = _mm512_fmadd_pd(x.high, z.high, product.high);
    }
    doubles_store(first, sum);
    doubles_store(second, product);
}

/* b: any constants without z. NaN stays NaN under relu. */
BODY void sixteen_affine(const operands *o, int64_t at, int64_t pixels, const double *a, const double *b,
                         const double *c)
{
    doubles wide_a = doubles_load(a), wide_b = doubles_load(b), wide_c = doubles_load(c);
    for (int64_t p = 0; p < pixels; p++, at += SIXTEEN) {
        doubles value = doubles_product(sixteen_x(o, at), wide_a);
        if (o->z)
            value = doubles_sum(value, doubles_product(wide_b, sixteen_widened(sixteen_load(o->z, at, o->bf16))));
        __m512 y = sixteen_narrowed(doubles_sum(value, wide_c));
        if (o->added)
            y = _mm512_add_ps(y, sixteen_load(o->added, at, o->bf16));
        if (o->rectified)
            y = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_NLE_UQ), y);
        sixteen_store(o->y, at, y, o->bf16);
    }
}

/* --- all planes --------------------------------------------------------------------------------------------------- */

BODY void sixteen_run_sums(const lk_channels_work *w, operands o)
{
    for (int64_t g = 0; g < w->shape->planes; g++) {
        int64_t entry = g % w->shape->rows * SIXTEEN;
        sixteen_sums(&o, g * w->shape->pixels * SIXTEEN, w->shape->pixels, w->first + entry, w->second + entry);
    }
}

BODY void sixteen_run_affine(const lk_channels_work *w, operands o)
{
    const double *b = o.z ? w->b : w->a;
    for (int64_t g = 0; g < w->shape->planes; g++) {
        int64_t entry = g % w->shape->rows * SIXTEEN;
        sixteen_affine(&o, g * w->shape->pixels * SIXTEEN, w->shape->pixels, w->a + entry, b + entry, w->c + entry);
    }
}

/* Each case tells the compiler which operands are NULL, so each becomes a loop of its own. */
BODY void sixteen_body(const lk_channels_work *w, bool bf16)
{
    const void *x = w->x, *z = w->z, *where = w->where;
    switch (w->kind) {
    case LK_CHANNELS_SQUARES:
        sixteen_run_sums(w, (operands){.bf16 = bf16, .x = x, .z = x});
        break;
    case LK_CHANNELS_SUMS:
        sixteen_run_sums(w, (operands){.bf16 = bf16, .x = x, .z = z});
        break;
    case LK_CHANNELS_SUMS_WHERE:
        sixteen_run_sums(w, (operands){.bf16 = bf16, .x = x, .z = z, .where = where});
        break;
    case LK_CHANNELS_SUMS_WHERE_KEPT:
        sixteen_run_sums(w, (operands){.bf16 = bf16, .x = x, .z = z, .where = where, .kept = w->kept});
        break;
    case LK_CHANNELS_AFFINE:
        sixteen_run_affine(w, (operands){.bf16 = bf16, .x = x, .y = w->y});
        break;
    case LK_CHANNELS_AFFINE2:
        sixteen_run_affine(w, (operands){.bf16 = bf16, .x = x, .z = z, .y = w->y});
        break;
    case LK_CHANNELS_AFFINE2_WHERE:
        sixteen_run_affine(w, (operands){.bf16 = bf16, .x = x, .z = z, .where = where, .y = w->y});
        break;
    case LK_CHANNELS_RELU:
        sixteen_run_affine(w, (operands){.bf16 = bf16, .x = x, .rectified = true, .y = w->y});
        break;
    case LK_CHANNELS_ADD_RELU:
        sixteen_run_affine(w, (operands){.bf16 = bf16, .x = x, .added = z, .rectified = true, .y = w->y});
        break;
    }
}

LK_AVX512 static void sixteen_f32(const lk_channels_work *w)
{
    sixteen_body(w, false);
}

LK_AVX512 static void sixteen_bf16(const lk_channels_work *w)
{
    sixteen_body(w, true);
}

bool lk__channels_sixteen(const lk_channels_work *w)
{
    if (!lk__has_avx512() || w->shape->lanes != SIXTEEN || w->shape->lanes_a_channel != 1)
        return false;
    (w->shape->bf16 ? sixteen_bf16 : sixteen_f32)(w);
    return true;
}

#else

bool lk__channels_sixteen(const lk_channels_work *w)
{
    (void)w;
    return false;
}

#endif
