/* Converts an element from one dtype to another. */
#pragma once

#include "cuda/plugin/gpu.cuh"

#include <cstdint>

/* Truncates and saturates; NaN becomes 0. */
template <typename I> static inline __device__ I saturated(double x, double least, double beyond)
{
    if (isnan(x))
        return 0;
    if (x >= beyond)
        return (I)(beyond == 0x1p63 ? INT64_MAX : (int64_t)beyond - 1);
    return x <= least ? (I)(int64_t)least : (I)x;
}

template <typename To, typename From> struct conversion {
    static inline __device__ To of(From x)
    {
        return (To)x;
    }
};
template <typename From> struct conversion<bf16, From> {
    static inline __device__ bf16 of(From x)
    {
        return __float2bfloat16_rn((float)x);
    }
};
template <typename To> struct conversion<To, bf16> {
    static inline __device__ To of(bf16 x)
    {
        return conversion<To, float>::of(__bfloat162float(x));
    }
};
template <> struct conversion<bf16, bf16> {
    static inline __device__ bf16 of(bf16 x)
    {
        return x;
    }
};
template <> struct conversion<bf16, double> {
    static inline __device__ bf16 of(double x)
    {
        return __float2bfloat16_rn(rounded_to_odd(x));
    }
};
/* A double does not hold every x, so x is rounded to odd itself. */
template <> struct conversion<bf16, int64_t> {
    static inline __device__ bf16 of(int64_t x)
    {
        float nearest = (float)x;
        uint32_t bits;
        memcpy(&bits, &nearest, sizeof bits);
        if (fabsf(nearest) < 0x1p63f && (int64_t)nearest != x && !(bits & 1)) {
            bits += ((int64_t)nearest < x) == (x > 0) ? 1 : -1;
            memcpy(&nearest, &bits, sizeof bits);
        }
        return __float2bfloat16_rn(nearest);
    }
};
template <> struct conversion<bf16, int32_t> {
    static inline __device__ bf16 of(int32_t x)
    {
        return conversion<bf16, double>::of((double)x);
    }
};
#define SATURATED(I, least, beyond)                        \
    template <> struct conversion<I, double> {             \
        static inline __device__ I of(double x)            \
        {                                                  \
            return saturated<I>(x, least, beyond);         \
        }                                                  \
    };                                                     \
    template <> struct conversion<I, float> {              \
        static inline __device__ I of(float x)             \
        {                                                  \
            return saturated<I>((double)x, least, beyond); \
        }                                                  \
    }
SATURATED(int32_t, -0x1p31, 0x1p31);
SATURATED(int64_t, -0x1p63, 0x1p63);
SATURATED(uint8_t, 0, 256);
