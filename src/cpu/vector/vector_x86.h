/* The functions of vector.h that AVX2 and AVX-512 write alike. The including file defines vec, vec_int and
 * LK_MM(name), which is an intrinsic's name with the width of its vectors. */
#pragma once

LK_BODY vec vec_zero(void)
{
    return LK_MM(setzero_ps)();
}

LK_BODY vec vec_set(float a)
{
    return LK_MM(set1_ps)(a);
}

LK_BODY vec vec_load(const float *from)
{
    return LK_MM(load_ps)(from);
}

LK_BODY vec vec_loadu(const float *from)
{
    return LK_MM(loadu_ps)(from);
}

LK_BODY void vec_store(float *to, vec a)
{
    LK_MM(store_ps)(to, a);
}

LK_BODY void vec_storeu(float *to, vec a)
{
    LK_MM(storeu_ps)(to, a);
}

LK_BODY vec vec_add(vec a, vec b)
{
    return LK_MM(add_ps)(a, b);
}

LK_BODY vec vec_sub(vec a, vec b)
{
    return LK_MM(sub_ps)(a, b);
}

LK_BODY vec vec_mul(vec a, vec b)
{
    return LK_MM(mul_ps)(a, b);
}

LK_BODY vec vec_div(vec a, vec b)
{
    return LK_MM(div_ps)(a, b);
}

LK_BODY vec vec_fmadd(vec a, vec b, vec c)
{
    return LK_MM(fmadd_ps)(a, b, c);
}

LK_BODY vec vec_fmsub(vec a, vec b, vec c)
{
    return LK_MM(fmsub_ps)(a, b, c);
}

LK_BODY vec vec_fnmadd(vec a, vec b, vec c)
{
    return LK_MM(fnmadd_ps)(a, b, c);
}

LK_BODY vec_int int_set(int n)
{
    return LK_MM(set1_epi32)(n);
}
