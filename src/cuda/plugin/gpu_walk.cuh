/* Loops over operands with strides. */
#pragma once

#include "cuda/plugin/gpu_elements.cuh"

/* A shape with the strides of up to three operands. Neighboring axes are joined if each operand has one common stride
 * along them. Has the interface of in_order in gpu_elements.cuh. */
typedef struct walk {
    int ndim, operands;
    int64_t count, dim[LK_MAX_DIMS], stride[3][LK_MAX_DIMS];

    inline __device__ bool repeats(int n) const
    {
        return stride[n + 1][ndim - 1] == 0;
    }

    template <int N> inline __device__ void find(int64_t i, int width, int64_t (&at)[N]) const;
} walk;

static inline bool are_one_axis(const walk *w, const lk_gpu_view *const *views, int axis, int64_t size)
{
    for (int o = 0; o < w->operands; o++)
        if (w->stride[o][w->ndim - 1] != views[o]->stride[axis] * size)
            return false;
    return true;
}

static inline walk walk_over(int ndim, const int64_t *dim, const lk_gpu_view *const *views, int operands)
{
    walk w = {};
    w.operands = operands;
    w.count = 1;
    for (int axis = 0; axis < ndim; axis++) {
        w.count *= dim[axis];
        if (dim[axis] == 1)
            continue;
        bool joins = w.ndim > 0 && are_one_axis(&w, views, axis, dim[axis]);
        if (!joins)
            w.dim[w.ndim++] = 1;
        w.dim[w.ndim - 1] *= dim[axis];
        for (int o = 0; o < operands; o++)
            w.stride[o][w.ndim - 1] = views[o]->stride[axis];
    }
    return w;
}

/* Sets at[o] to the offset in operand o of element i in row-major order, or of pack i after in_packs. */
template <int N> inline __device__ void walk::find(int64_t i, int, int64_t (&at)[N]) const
{
    for (int o = 0; o < N; o++)
        at[o] = 0;
    for (int axis = ndim - 1; axis > 0; axis--) {
        int64_t index = i % dim[axis];
        i /= dim[axis];
        for (int o = 0; o < N; o++)
            at[o] += index * stride[o][axis];
    }
    for (int o = 0; o < N; o++) /* the first axis needs no division */
        at[o] += i * stride[o][0];
}

static inline bool is_one_array(const walk &w)
{
    bool is = w.ndim <= 1;
    for (int o = 0; o < w.operands && w.ndim == 1; o++)
        is = is && w.stride[o][0] == 1;
    return is;
}

/* Turns the last axis into one of packs of `width` elements of `size` bytes. False if an operand has no packs: along
 * that axis it must either be dense, with every row aligned to a pack, or be repeated. */
static inline bool in_packs(walk *w, const lk_gpu_view *const *views, int width, size_t size)
{
    int last = w->ndim - 1;
    if (last < 0 || w->dim[last] % width != 0)
        return false;
    for (int o = 0; o < w->operands; o++) {
        bool packed = w->stride[o][last] == 1 && (uintptr_t)views[o]->data % (width * size) == 0;
        for (int axis = 0; axis < last; axis++)
            packed = packed && w->stride[o][axis] % width == 0;
        if (!packed && (o == 0 || w->stride[o][last] != 0))
            return false;
    }
    w->dim[last] /= width;
    for (int o = 0; o < w->operands; o++)
        w->stride[o][last] *= width;
    return true;
}
