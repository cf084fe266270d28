/* Elements and words of vector.h that are floats. */
#pragma once

#define LK_ISA_SUFFIX LK_F32_SUFFIX

enum { LK_PER_WORD = 1 };

typedef float element;
typedef vec vec_word;

LK_BODY vec vec_widen(const element *from)
{
    return vec_loadu(from);
}

LK_BODY void vec_round(element *to, vec a)
{
    vec_storeu(to, a);
}

LK_BODY __m256 eight_widen(const element *from)
{
    return _mm256_loadu_ps(from);
}

LK_BODY float element_widen(element e)
{
    return e;
}

LK_BODY vec_word word_load(const element *from)
{
    return vec_load(from);
}

LK_BODY vec_word word_loadu(const element *from)
{
    return vec_loadu(from);
}

LK_BODY void word_store(element *to, vec_word a)
{
    vec_store(to, a);
}

LK_BODY void word_storeu(element *to, vec_word a)
{
    vec_storeu(to, a);
}

LK_BODY vec_word word_broadcast(const element *from)
{
    return vec_broadcast(from);
}

LK_BODY vec_word word_broadcast_first(const element *from)
{
    return vec_broadcast(from);
}

LK_BODY vec word_fmadd(vec_word a, vec_word b, vec c)
{
    return vec_fmadd(a, b, c);
}

LK_BODY vec_word word_join(const element *const from[LK_PER_WORD])
{
    return vec_loadu(from[0]);
}

LK_BODY vec_word word_round(const vec a[LK_PER_WORD])
{
    return a[0];
}

LK_BODY vec_word word_zero(void)
{
    return vec_zero();
}

LK_BODY vec_word word_pinned(vec_word a)
{
    return vec_pinned(a);
}

LK_BODY vec word_part(vec_word a, int i)
{
    (void)i;
    return a;
}

LK_BODY vec_word word_where(const vec_mask masks[LK_PER_WORD], vec_word a)
{
    return vec_where(masks[0], a);
}

LK_BODY vec word_bits(vec_word a)
{
    return a;
}
