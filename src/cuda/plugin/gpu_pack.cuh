/* Packs: neighboring channels of a pixel that a thread reads and writes at once. */
#pragma once

#include "cuda/plugin/gpu.cuh"

template <typename T, int N, int ALIGNMENT> struct pack {
    typedef T element;
    enum { COUNT = N };
    alignas(ALIGNMENT) T at[N];

    inline __device__ void get(float (&values)[N]) const
    {
        for (int i = 0; i < N; i++)
            values[i] = widen(at[i]);
    }

    inline __device__ void set(const float (&values)[N])
    {
        for (int i = 0; i < N; i++)
            at[i] = narrow<T>(values[i]);
    }
};

/* A bf16 is the upper half of an f32. Reading whole words saves half of the instructions. */
template <> struct pack<bf16, 8, 16> {
    typedef bf16 element;
    enum { COUNT = 8 };
    alignas(16) uint32_t word[4];

    inline __device__ void get(float (&values)[8]) const
    {
        for (int i = 0; i < 4; i++) {
            uint32_t lower = word[i] << 16, upper = word[i] & 0xffff0000u;
            memcpy(&values[2 * i], &lower, sizeof lower);
            memcpy(&values[2 * i + 1], &upper, sizeof upper);
        }
    }

    inline __device__ void set(const float (&values)[8])
    {
        bf16 at[8];
        for (int i = 0; i < 8; i++)
            at[i] = narrow<bf16>(values[i]);
        memcpy(word, at, sizeof word);
    }
};

/* whole_pack is 16 bytes in one access; loose_pack has as many elements, but reads them one by one, for arrays that are
 * not aligned; single_pack is one element, if the channels of a pixel are not a whole number of packs. */
template <typename T> using whole_pack = pack<T, 16 / sizeof(T), 16>;
template <typename T> using loose_pack = pack<T, 16 / sizeof(T), sizeof(T)>;
template <typename T> using single_pack = pack<T, 1, sizeof(T)>;

/* The pack that begins at x. */
template <typename P> static inline __device__ P load(const typename P::element *x)
{
    return *in_one_access<const P>(x);
}

template <typename P> static inline __device__ void store(typename P::element *y, const float (&values)[P::COUNT])
{
    P out;
    out.set(values);
    *in_one_access<P>(y) = out;
}

/* The value as an element of a pack P has it. */
template <typename P> static inline __device__ float rounded(float value)
{
    return widen(narrow<typename P::element>(value));
}

/* For FOR_PACKS: the bitwise or of several addresses is a multiple of 16 if all of them are. */
static inline uintptr_t address_of(const void *data)
{
    return (uintptr_t)data;
}

/* Runs the last argument, a statement that uses the type P, with packs of `dtype` as P. The channels of a pack depend
 * on the number of channels alone, not on addresses, and so do results. */
#define FOR_PACKS(dtype, channels, addresses, ...)                                         \
    switch (dtype) {                                                                       \
    case LK_F32:                                                                           \
        FOR_PACKS_OF(float, channels, addresses, __VA_ARGS__);                             \
        break;                                                                             \
    case LK_BF16:                                                                          \
        FOR_PACKS_OF(bf16, channels, addresses, __VA_ARGS__);                              \
        break;                                                                             \
    default:                                                                               \
        return lk__gpu_fail(LK_GPU_UNSUPPORTED, "%s: neither f32 nor bf16", __func__ + 8); \
    }

#define FOR_PACKS_OF(T, channels, addresses, ...)          \
    if ((channels) % whole_pack<T>::COUNT != 0) {          \
        typedef single_pack<T> P;                          \
        __VA_ARGS__;                                       \
    } else if ((addresses) % sizeof(whole_pack<T>) == 0) { \
        typedef whole_pack<T> P;                           \
        __VA_ARGS__;                                       \
    } else {                                               \
        typedef loose_pack<T> P;                           \
        __VA_ARGS__;                                       \
    }
