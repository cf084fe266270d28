/* Copies in another dtype, another order, or both. */
#include "cuda/gpu_conversion.cuh"
#include "cuda/gpu_walk.cuh"

template <typename To, typename From> struct converted {
    inline __device__ To operator()(const From (&x)[1]) const
    {
        return conversion<To, From>::of(x[0]);
    }
};

/* --- into another order ------------------------------------------------------------------------------------------- */

/* Elements that are neighbours along axis a at x, and along axis b at y. A block of threads moves a tile of both,
 * through shared memory, so that it reads and writes neighbours. */
enum { TILE = 1024, TILE_SIDE = 32, MAX_TILE = TILE + TILE / 2 }; /* with a gap that makes each row's length odd */

typedef struct turn {
    walk outer;                                         /* the other axes */
    int64_t a, b, tiles_a, tiles_b, stride_a, stride_b; /* of y along a, of x along b */
    int tile_a, tile_b;
} turn;

static int axis_of_neighbours(const walk &w, int operand)
{
    for (int axis = w.ndim - 1; axis >= 0; axis--)
        if (w.stride[operand][axis] == 1)
            return axis;
    return -1;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A short axis is in one tile as a whole, which then has more of the other. */
static bool find_turn(const walk &w, turn *t)
{
    int a = axis_of_neighbours(w, 1), b = axis_of_neighbours(w, 0);
    if (a < 0 || b < 0 || a == b)
        return false;
    *t = {};
    t->a = w.dim[a];
    t->b = w.dim[b];
    t->stride_a = w.stride[0][a];
    t->stride_b = w.stride[1][b];
    t->tile_a = (int)(t->a <= TILE_SIDE ? t->a : t->b <= TILE_SIDE ? least(t->a, TILE / t->b) : (int64_t)TILE_SIDE);
    t->tile_b = (int)least(t->b, TILE / t->tile_a);
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

template <typename To, typename From> static __global__ void turn_tiles(To *y, const From *x, turn t)
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
static void run_turn(lk_gpu_stream *stream, const lk_gpu_convert *a, const turn &t)
{
    LK_GPU_RUN_TOGETHER((turn_tiles<To, From>), (unsigned)(t.outer.count * t.tiles_a * t.tiles_b), THREADS,
                        stream->stream, (To *)a->y.data, (const From *)a->x.data, t);
}

/* Between dtypes that images and weights have; false of others. */
static bool turn_over(lk_gpu_stream *stream, const lk_gpu_convert *a, const walk &w)
{
    lk_dtype to = a->y.dtype, from = a->x.dtype;
    turn t;
    if ((to != LK_F32 && to != LK_BF16) || (from != LK_F32 && from != LK_BF16) || !find_turn(w, &t))
        return false;
    if (to == LK_F32)
        from == LK_F32 ? run_turn<float, float>(stream, a, t) : run_turn<float, bf16>(stream, a, t);
    else
        from == LK_F32 ? run_turn<bf16, float>(stream, a, t) : run_turn<bf16, bf16>(stream, a, t);
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
        map_places<1>(stream, (To *)a->y.data, x, w.count, converted<To, From>(), w);
}

template <typename To> static lk_gpu_status convert_to(lk_gpu_stream *stream, const lk_gpu_convert *a, const walk &w)
{
    FOR_DTYPES(a->x.dtype, (run_convert<To, T>(stream, a, w)))
    return lk__gpu_launched("convert");
}

lk_gpu_status lk__gpu_convert(lk_gpu_stream *stream, const lk_gpu_convert *a)
{
    const lk_gpu_view *views[] = {&a->y, &a->x};
    walk w = walk_over(a->ndim, a->dim, views, 2);
    if (w.count == 0)
        return LK_GPU_OK;
    if (turn_over(stream, a, w))
        return lk__gpu_launched("convert");
    FOR_DTYPES(a->y.dtype, return convert_to<T>(stream, a, w))
    return LK_GPU_OK;
}
