/* Copies to another dtype, another order, or both. */
#include "base/minmax.h"
#include "cuda/plugin/gpu_any.cuh"
#include "cuda/plugin/gpu_walk.cuh"

template <typename To, typename From> struct converted {
    inline __device__ To operator()(const From (&x)[1]) const
    {
        return conversion<To, From>::of(x[0]);
    }
};

/* --- to another order --------------------------------------------------------------------------------------------- */

/* Neighbors in memory are neighbors along axis a in x, and along axis b in y. A block of threads moves a tile of both
 * axes through shared memory, so that it reads and writes neighbors. A gap makes the length of a tile's rows odd, which
 * avoids bank conflicts. */
enum { TILE = 1024, TILE_SIDE = 32, MAX_TILE = TILE + TILE / 2 };

typedef struct transposition {
    walk outer;                     /* the other axes */
    int64_t a, b, tiles_a, tiles_b; /* sizes of the axes, and numbers of tiles along them */
    int64_t stride_a, stride_b;     /* y's stride along a, x's along b */
    int tile_a, tile_b;
} transposition;

static int axis_of_neighbors(const walk &w, int operand)
{
    for (int axis = w.ndim - 1; axis >= 0; axis--)
        if (w.stride[operand][axis] == 1)
            return axis;
    return -1;
}

/* A tile has all of a short axis, and then more than TILE_SIDE of the other one. */
static bool find_transposition(const walk &w, transposition *t)
{
    int a = axis_of_neighbors(w, 1), b = axis_of_neighbors(w, 0);
    if (a < 0 || b < 0 || a == b)
        return false;
    *t = {};
    t->a = w.dim[a];
    t->b = w.dim[b];
    t->stride_a = w.stride[0][a];
    t->stride_b = w.stride[1][b];
    t->tile_a = (int)(t->a <= TILE_SIDE ? t->a : t->b <= TILE_SIDE ? lk__min(t->a, TILE / t->b) : (int64_t)TILE_SIDE);
    t->tile_b = (int)lk__min(t->b, TILE / t->tile_a);
    t->tiles_a = (t->a + t->tile_a - 1) / t->tile_a;
    t->tiles_b = (t->b + t->tile_b - 1) / t->tile_b;
    t->outer.count = t->outer.dim[0] = 1;
    t->outer.operands = 2;
    for (int axis = 0; axis < w.ndim; axis++) {
        if (axis == a || axis == b)
            continue;
        t->outer.count *= t->outer.dim[t->outer.ndim] = w.dim[axis];
        for (int o = 0; o < 2; o++)
            t->outer.stride[o][t->outer.ndim] = w.stride[o][axis];
        t->outer.ndim++;
    }
    return t->outer.count * t->tiles_a * t->tiles_b <= INT32_MAX;
}

template <typename To, typename From> static __global__ void transpose_tiles(To *y, const From *x, transposition t)
{
    __shared__ To tile[MAX_TILE];
    int64_t tile_of_b = blockIdx.x / t.tiles_a % t.tiles_b, at[2];
    int64_t first_a = blockIdx.x % t.tiles_a * t.tile_a, first_b = tile_of_b * t.tile_b;
    int rows = (int)(t.b - first_b < t.tile_b ? t.b - first_b : t.tile_b);
    int columns = (int)(t.a - first_a < t.tile_a ? t.a - first_a : t.tile_a), row_length = t.tile_a | 1;
    t.outer.find(blockIdx.x / t.tiles_a / t.tiles_b, 1, at);
    x += at[1] + first_b * t.stride_b + first_a;
    y += at[0] + first_a * t.stride_a + first_b;
    for (int k = 0; k < TILE / THREADS; k++) {
        int i = k * THREADS + (int)threadIdx.x, row = i / columns, column = i % columns;
        if (row < rows)
            tile[row * row_length + column] = conversion<To, From>::of(x[row * t.stride_b + column]);
    }
    __syncthreads();
    for (int k = 0; k < TILE / THREADS; k++) {
        int i = k * THREADS + (int)threadIdx.x, row = i % rows, column = i / rows;
        if (column < columns)
            y[column * t.stride_a + row] = tile[row * row_length + column];
    }
}

template <typename To, typename From>
static void run_transposition(lk_gpu_stream *stream, const lk_gpu_convert *a, const transposition &t)
{
    LK_GPU_RUN_TOGETHER((transpose_tiles<To, From>), (unsigned)(t.outer.count * t.tiles_a * t.tiles_b), THREADS, stream,
                        (To *)a->y.data, (const From *)a->x.data, t);
}

/* Handles the dtypes of images and weights; false for others, and if no transposition is needed. */
static bool try_transposition(lk_gpu_stream *stream, const lk_gpu_convert *a, const walk &w)
{
    lk_dtype to = a->y.dtype, from = a->x.dtype;
    transposition t;
    if ((to != LK_F32 && to != LK_BF16) || (from != LK_F32 && from != LK_BF16) || !find_transposition(w, &t))
        return false;
    if (to == LK_F32)
        from == LK_F32 ? run_transposition<float, float>(stream, a, t) : run_transposition<float, bf16>(stream, a, t);
    else
        from == LK_F32 ? run_transposition<bf16, float>(stream, a, t) : run_transposition<bf16, bf16>(stream, a, t);
    return true;
}

/* --- convert ------------------------------------------------------------------------------------------------------ */

template <typename To, typename From>
static void run_convert(lk_gpu_stream *stream, const lk_gpu_convert *a, const walk &w)
{
    operands<From, 1> x = {{(const From *)a->x.data}};
    if (is_one_array(w))
        map(stream, (To *)a->y.data, x, w.count, converted<To, From>());
    else
        map_offsets<1>(stream, (To *)a->y.data, x, w.count, converted<To, From>(), w);
}

/* Copies elements of one dtype as words of their size. */
static void copy_words(lk_gpu_stream *stream, const lk_gpu_convert *a, const walk &w)
{
    switch (a->x.dtype) {
    case LK_U8:
        return run_convert<uint8_t, uint8_t>(stream, a, w);
    case LK_BF16:
        return run_convert<uint16_t, uint16_t>(stream, a, w);
    case LK_F32:
    case LK_I32:
        return run_convert<uint32_t, uint32_t>(stream, a, w);
    default:
        return run_convert<uint64_t, uint64_t>(stream, a, w);
    }
}

/* For pairs of dtypes that training does not convert in each step. */
static __global__ void convert_any(lk_gpu_view y, lk_gpu_view x, walk w)
{
    EACH(i, w.count)
    {
        int64_t at[2];
        w.find(i, 1, at);
        any_store(y.data, y.dtype, at[0], any_load(x.data, x.dtype, at[1]));
    }
}

static void convert_elements(lk_gpu_stream *stream, const lk_gpu_convert *a, const walk &w)
{
    lk_dtype to = a->y.dtype, from = a->x.dtype;
    if (to == from)
        copy_words(stream, a, w);
    else if (to == LK_BF16 && from == LK_F32)
        run_convert<bf16, float>(stream, a, w);
    else if (to == LK_F32 && from == LK_BF16)
        run_convert<float, bf16>(stream, a, w);
    else if (to == LK_F32 && from == LK_U8)
        run_convert<float, uint8_t>(stream, a, w);
    else
        LK_GPU_RUN(convert_any, blocks_for(w.count), THREADS, stream, a->y, a->x, w);
}

lk_gpu_status lk__gpu_convert(lk_gpu_stream *stream, const lk_gpu_convert *a)
{
    const lk_gpu_view *views[] = {&a->y, &a->x};
    walk w = walk_over(a->ndim, a->dim, views, 2);
    if (w.count == 0)
        return LK_GPU_OK;
    if (!try_transposition(stream, a, w))
        convert_elements(stream, a, w);
    return lk__gpu_launched("convert");
}
