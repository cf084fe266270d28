/* Neighbouring channels of a pixel that a thread reads and writes at once. */
#ifndef LK_CUDA_GPU_PACK_CUH
#define LK_CUDA_GPU_PACK_CUH

#include "cuda/gpu.cuh"

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

/* A bf16 is the upper half of an f32. Taken from whole words, which spares half of the instructions. */
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

/* 16 bytes in one access; as many elements one by one, where memory does not lie so; one element, where the channels of
 * a pixel are no whole number of packs. */
template <typename T> using whole_pack = pack<T, 16 / sizeof(T), 16>;
template <typename T> using loose_pack = pack<T, 16 / sizeof(T), sizeof(T)>;
template <typename T> using single_pack = pack<T, 1, sizeof(T)>;

/* The pack that begins at x. */
template <typename P> static inline __device__ P load(const typename P::element *x)
{
    return *(const P *)x;
}

template <typename P> static inline __device__ void store(typename P::element *y, const float (&values)[P::COUNT])
{
    P out;
    out.set(values);
    *(P *)y = out;
}

/* What may be read and written at multiples of 16 bytes when this is one. */
static inline uintptr_t address_of(const void *data)
{
    return (uintptr_t)data;
}

/* Runs the statement that comes last, which uses the type P, for packs of `dtype`. Which channels a pack has depends on
 * their number alone, not on where they lie: so do results. */
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

#endif
