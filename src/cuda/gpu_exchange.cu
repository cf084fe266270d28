/* What an exchange between GPUs needs of each by itself: packing what is to leave, and the tree's sums. */
#include "cuda/gpu_pack.cuh"

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* The value on top stays in a register: a sum of two never touches the stack. */
template <typename T> static __global__ void tree_sum(const lk_gpu_tree_sum a)
{
    EACH(i, a.count)
    {
        T waiting[LK_GPU_TREE_LEVELS], top = ((const T *)a.addends[0])[i];
        int depth = 0;
        for (int n = 1; n < a.n_addends; n++) {
            waiting[depth++] = top;
            top = ((const T *)a.addends[n])[i];
            for (int k = 0; k < a.additions[n]; k++)
                top = waiting[--depth] + top;
        }
        ((T *)a.y)[i] = top;
    }
}

lk_gpu_status lk__gpu_tree_sum(lk_gpu_stream *stream, const lk_gpu_tree_sum *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    if (a->dtype == LK_F64)
        LK_GPU_RUN(tree_sum<double>, blocks_for(a->count), THREADS, stream->stream, *a);
    else
        LK_GPU_RUN(tree_sum<float>, blocks_for(a->count), THREADS, stream->stream, *a);
    return lk__gpu_launched("tree_sum");
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

typedef whole_pack<float> floats;

/* A row of blocks for each array. */
static __global__ void copies(const lk_gpu_copies a)
{
    const float *from = a.from[blockIdx.y];
    float *to = a.to[blockIdx.y];
    int64_t count = a.count[blockIdx.y];
    bool aligned = ((uintptr_t)from | (uintptr_t)to) % sizeof(floats) == 0;
    int64_t packs = aligned ? count / floats::COUNT : 0;
    EACH(i, packs)
    ((floats *)to)[i] = ((const floats *)from)[i];
    EACH(i, count - packs * floats::COUNT)
    to[packs * floats::COUNT + i] = from[packs * floats::COUNT + i];
}

lk_gpu_status lk__gpu_copies(lk_gpu_stream *stream, const lk_gpu_copies *a)
{
    int64_t longest = 0;
    for (int i = 0; i < a->n; i++)
        longest = a->count[i] > longest ? a->count[i] : longest;
    if (longest == 0)
        return LK_GPU_OK;
    unsigned blocks = blocks_for((longest + floats::COUNT - 1) / floats::COUNT);
    LK_GPU_RUN(copies, dim3(blocks, (unsigned)a->n), THREADS, stream->stream, *a);
    return lk__gpu_launched("copies");
}
