/* Statistics of channels, and the line that normalizes an element. */
#pragma once

#include "cuda/plugin/gpu_row_passes.cuh"
#include "cuda/plugin/gpu_windows.cuh"

struct moments {
    double mean, variance;
    double inverse; /* 1 / sqrt(variance + epsilon) */
};

/* Raises a variance that rounding has made negative to 0; keeps NaN. */
static inline __device__ moments channel_moments(const lk_gpu_statistics &s, int64_t channels, int64_t c, unsigned part)
{
    double mean, variance;
    if (s.sums) {
        const double *sums = s.sums + part * 2 * channels;
        mean = sums[c] / (double)s.count;
        variance = sums[channels + c] / (double)s.count - mean * mean;
        variance = variance < 0 ? 0 : variance;
    } else {
        mean = (double)s.mean[c];
        variance = (double)s.variance[c];
    }
    return {mean, variance, 1 / sqrt(variance + s.epsilon)};
}

/* The part of the mean that an f32 cannot hold. Subtracting the f32 mean from an element is nearly exact, and the rest
 * goes into the constant that is added later; so a mean that is large compared with the deviation costs no digits. */
static inline __device__ double rest_of(double mean)
{
    double near = (double)(float)mean;
    return near == mean ? 0 : mean - near;
}

/* y = scale (x - origin) + shift */
struct line {
    float origin, scale, shift;

    inline __device__ float at(float x) const
    {
        return fmaf(scale, x - origin, shift);
    }
};

struct normalization {
    lk_gpu_statistics statistics;
    const float *gamma, *beta;

    inline __device__ line of(int64_t channels, int64_t c, unsigned part) const
    {
        moments m = channel_moments(statistics, channels, c, part);
        double scale = (double)gamma[c] * m.inverse;
        return {(float)m.mean, (float)scale, (float)((double)beta[c] - rest_of(m.mean) * scale)};
    }
};

/* Sets own[] to the lines of a thread's channels. All threads of the block must take part. */
template <typename P, typename Lines>
static inline __device__ void find_lines(const Lines &lines, const tiling &t, const position &at, line (&own)[P::COUNT])
{
    __shared__ line shared[MAX_TILE_CHANNELS];
    int64_t first = (int64_t)blockIdx.x * t.width * P::COUNT;
    for (int i = (int)threadIdx.x; i < t.width * P::COUNT && first + i < t.channels; i += THREADS)
        shared[i] = lines.of(t.channels, first + i, blockIdx.z);
    __syncthreads();
    for (int i = 0; i < P::COUNT && at.inside; i++)
        own[i] = shared[at.channel - first + i];
}
