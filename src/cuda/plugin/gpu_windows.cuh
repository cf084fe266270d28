/* The windows of a pooling without overlap and padding, and the maxima in them. */
#pragma once

#include "cuda/plugin/gpu_pack.cuh"

/* Windows that neither overlap nor have padding, over the images of a part. Rows are pixels of images. */
struct windows {
    unsigned in[2], out[2], kernel[2], stride[2];

    inline __device__ unsigned taps() const
    {
        return kernel[0] * kernel[1];
    }

    /* The row of x on which the window of row `row` of y begins … */
    inline __device__ int64_t first(int64_t row) const
    {
        int64_t image = row / (out[0] * out[1]);
        unsigned at = (unsigned)(row - image * (out[0] * out[1]));
        return (image * in[0] + at / out[1] * stride[0]) * in[1] + at % out[1] * stride[1];
    }

    /* … and how many rows behind it tap `tap` of the window is. */
    inline __device__ unsigned distance(unsigned tap) const
    {
        return tap / kernel[1] * in[1] + tap % kernel[1];
    }

    /* Finds the row of y, and the tap of its window, that row `row` of x is in. Returns false if there is none. */
    inline __device__ bool find(int64_t row, int64_t *of_y, unsigned *tap) const
    {
        int64_t image = row / (in[0] * in[1]);
        unsigned at = (unsigned)(row - image * (in[0] * in[1])), line = at / in[1], column = at % in[1];
        unsigned y[2] = {line / stride[0], column / stride[1]};
        unsigned inside[2] = {line - y[0] * stride[0], column - y[1] * stride[1]};
        *of_y = (image * out[0] + y[0]) * out[1] + y[1];
        *tap = inside[0] * kernel[1] + inside[1];
        return y[0] < out[0] && y[1] < out[1] && inside[0] < kernel[0] && inside[1] < kernel[1];
    }
};

static inline windows windows_of(const lk_geometry &g)
{
    windows w;
    for (int axis = 0; axis < 2; axis++) {
        w.in[axis] = (unsigned)g.in[axis];
        w.out[axis] = (unsigned)g.out[axis];
        w.kernel[axis] = (unsigned)g.kernel[axis];
        w.stride[axis] = (unsigned)g.stride[axis];
    }
    return w;
}

/* A tap for each element of a pack. */
template <typename P> struct taps_of_pack {
    alignas(alignof(P) == 16 ? (int)P::COUNT : 1) uint8_t at[P::COUNT];
};

/* The maxima of a pack's windows so far, and their taps. */
template <typename P> struct maxima {
    float values[P::COUNT];
    unsigned taps[P::COUNT];

    inline __device__ maxima()
    {
        for (int i = 0; i < P::COUNT; i++) {
            values[i] = -INFINITY;
            taps[i] = 0;
        }
    }

    /* NaN replaces any number, and nothing replaces NaN. */
    inline __device__ void take(int i, float value, unsigned tap)
    {
        bool greater = !(value <= values[i]) & (values[i] == values[i]);
        values[i] = greater ? value : values[i];
        taps[i] = greater ? tap : taps[i];
    }
};
