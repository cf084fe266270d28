/* Elements whose dtype is known only at run time. Kernels that are not used often enough to be compiled for each dtype,
 * or each pair of dtypes, are written with them. */
#pragma once

#include "cuda/plugin/gpu_conversion.cuh"

/* Holds an element of any dtype exactly: floats in `real`, integers in `integer`. */
typedef struct any_number {
    bool is_real;
    double real;
    int64_t integer;
} any_number;

static inline __device__ any_number any_load(const void *x, lk_dtype dtype, int64_t at)
{
    switch (dtype) {
    case LK_F32:
        return {true, (double)((const float *)x)[at], 0};
    case LK_BF16:
        return {true, (double)widen(((const bf16 *)x)[at]), 0};
    case LK_F64:
        return {true, ((const double *)x)[at], 0};
    case LK_I32:
        return {false, 0, ((const int32_t *)x)[at]};
    case LK_I64:
        return {false, 0, ((const int64_t *)x)[at]};
    default:
        return {false, 0, ((const uint8_t *)x)[at]};
    }
}

template <typename T> static inline __device__ void any_put(void *y, int64_t at, const any_number &n)
{
    ((T *)y)[at] = n.is_real ? conversion<T, double>::of(n.real) : conversion<T, int64_t>::of(n.integer);
}

static inline __device__ void any_store(void *y, lk_dtype dtype, int64_t at, const any_number &n)
{
    switch (dtype) {
    case LK_F32:
        return any_put<float>(y, at, n);
    case LK_BF16:
        return any_put<bf16>(y, at, n);
    case LK_F64:
        return any_put<double>(y, at, n);
    case LK_I32:
        return any_put<int32_t>(y, at, n);
    case LK_I64:
        return any_put<int64_t>(y, at, n);
    default:
        return any_put<uint8_t>(y, at, n);
    }
}

/* Sets y[to] to x[from], or to zero bits if x is NULL. */
static inline __device__ void any_copy(void *y, int64_t to, const void *x, int64_t from, lk_dtype dtype)
{
    switch (dtype) {
    case LK_U8:
        ((uint8_t *)y)[to] = x ? ((const uint8_t *)x)[from] : 0;
        break;
    case LK_BF16:
        ((uint16_t *)y)[to] = x ? ((const uint16_t *)x)[from] : 0;
        break;
    case LK_F32:
    case LK_I32:
        ((uint32_t *)y)[to] = x ? ((const uint32_t *)x)[from] : 0;
        break;
    default:
        ((uint64_t *)y)[to] = x ? ((const uint64_t *)x)[from] : 0;
    }
}

/* Returns a number that is greater if x[at] is, and equal if x[at] is. NaN equals itself and is greater than the rest.
 */
static inline __device__ int64_t any_rank(const void *x, lk_dtype dtype, int64_t at)
{
    any_number n = any_load(x, dtype, at);
    if (!n.is_real)
        return n.integer;
    if (isnan(n.real))
        return INT64_MAX;
    int64_t bits;
    memcpy(&bits, &n.real, sizeof bits);
    return bits >= 0 ? bits : INT64_MIN - bits; /* -0 has the rank of 0 */
}
