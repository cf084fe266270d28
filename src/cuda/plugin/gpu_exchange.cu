/* The kernels that each GPU runs for an exchange between GPUs: packing the data to send, and the tree's sums. */
#include "cuda/plugin/gpu_elements.cuh"

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* Keeps the top of the stack in a register, so that a sum of two does not use the stack. */
template <typename T, int WIDTH> static inline __device__ void sum_elements(const lk_gpu_tree_sum &a, int64_t i)
{
    typedef elements<T, WIDTH> pack;
    pack waiting[LK_GPU_TREE_LEVELS], top = in_one_access<const pack>(a.addends[0])[i];
    int depth = 0;
    for (int n = 1; n < a.n_addends; n++) {
        waiting[depth++] = top;
        top = in_one_access<const pack>(a.addends[n])[i];
        for (int k = 0; k < a.additions[n]; k++) {
            depth--;
            for (int e = 0; e < WIDTH; e++)
                top.at[e] = waiting[depth].at[e] + top.at[e];
        }
    }
    in_one_access<pack>(a.y)[i] = top;
}

template <typename T, int WIDTH> static __global__ void tree_sum(const lk_gpu_tree_sum a)
{
    EACH(i, a.count / WIDTH)
    sum_elements<T, WIDTH>(a, i);
    if (blockIdx.x == 0 && threadIdx.x < a.count % WIDTH)
        sum_elements<T, 1>(a, a.count / WIDTH * WIDTH + threadIdx.x);
}

template <typename T> static void run_tree_sum(lk_gpu_stream *stream, const lk_gpu_tree_sum *a)
{
    const int WIDTH = widest<T>::WIDTH;
    bool aligned = is_aligned<T, WIDTH>((const T *)a->y);
    for (int n = 0; n < a->n_addends; n++)
        aligned = aligned && is_aligned<T, WIDTH>((const T *)a->addends[n]);
    if (aligned)
        LK_GPU_RUN((tree_sum<T, WIDTH>), blocks_for((a->count + WIDTH - 1) / WIDTH), THREADS, stream, *a);
    else
        LK_GPU_RUN((tree_sum<T, 1>), blocks_for(a->count), THREADS, stream, *a);
}

lk_gpu_status lk__gpu_tree_sum(lk_gpu_stream *stream, const lk_gpu_tree_sum *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    if (a->dtype == LK_F64)
        run_tree_sum<double>(stream, a);
    else
        run_tree_sum<float>(stream, a);
    return lk__gpu_launched("tree_sum");
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

typedef elements<float, widest<float>::WIDTH> floats;

/* blockIdx.y is the array. */
static __global__ void copies(const lk_gpu_copies a)
{
    if (a.step_to && blockIdx.x + blockIdx.y + threadIdx.x == 0)
        *a.step_to = a.step;
    if ((int)blockIdx.y >= a.n)
        return;
    const float *from = a.from[blockIdx.y];
    float *to = a.to[blockIdx.y];
    int64_t count = a.count[blockIdx.y];
    const int WIDTH = widest<float>::WIDTH;
    bool aligned = ((uintptr_t)from | (uintptr_t)to) % sizeof(floats) == 0;
    int64_t packs = aligned ? count / WIDTH : 0;
    EACH(i, packs)
    in_one_access<floats>(to)[i] = in_one_access<const floats>(from)[i];
    EACH(i, count - packs * WIDTH)
    to[packs * WIDTH + i] = from[packs * WIDTH + i];
}

lk_gpu_status lk__gpu_copies(lk_gpu_stream *stream, const lk_gpu_copies *a)
{
    const int WIDTH = widest<float>::WIDTH;
    int64_t longest = 0;
    for (int i = 0; i < a->n; i++)
        longest = a->count[i] > longest ? a->count[i] : longest;
    if (longest == 0 && !a->step_to)
        return LK_GPU_OK;
    unsigned blocks = blocks_for(longest > 0 ? (longest + WIDTH - 1) / WIDTH : 1);
    LK_GPU_RUN(copies, dim3(blocks, (unsigned)(a->n > 0 ? a->n : 1)), THREADS, stream, *a);
    return lk__gpu_launched("copies");
}
