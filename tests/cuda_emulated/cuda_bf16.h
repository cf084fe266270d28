/* The part of CUDA's bf16 that the kernels use. */
#pragma once

#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
    uint16_t bits;
};

static inline float __bfloat162float(__nv_bfloat16 x)
{
    uint32_t bits = (uint32_t)x.bits << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds to nearest even; NaN has CUDA's bits. */
static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value)
        return {0x7fff};
    return {(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
