/* Reductions over axes, and softmax. The elements that make up one result, a line, are dealt to 32 lanes, so that the
 * bits of a result depend on its own line alone: see lk_gpu_reduce. */
#include "cuda/plugin/gpu_any.cuh"

/* --- offsets of elements ------------------------------------------------------------------------------------------ */

/* Axes with their strides. Neighboring axes that have one common stride are joined. */
typedef struct axes {
    int n;
    int64_t count, size[LK_MAX_DIMS], stride[LK_MAX_DIMS];
} axes;

static axes join_axes(int n, const int64_t *size, const int64_t *stride)
{
    axes a = {};
    a.count = 1;
    for (int i = 0; i < n; i++) {
        a.count *= size[i];
        if (size[i] == 1)
            continue;
        if (a.n > 0 && a.stride[a.n - 1] == stride[i] * size[i])
            a.size[a.n - 1] *= size[i];
        else
            a.size[a.n++] = size[i];
        a.stride[a.n - 1] = stride[i];
    }
    return a;
}

/* The offset of element i in row-major order. */
static inline __device__ int64_t element_offset(const axes &a, int64_t i)
{
    int64_t at = 0;
    for (int axis = a.n - 1; axis > 0; axis--) {
        int64_t rest = i / a.size[axis];
        at += (i - rest * a.size[axis]) * a.stride[axis];
        i = rest;
    }
    return at + i * a.stride[0];
}

/* Returns whether neighboring lines are closer together in memory than the elements of a line. */
static bool lines_are_closer(const axes &kept, const axes &reduced)
{
    return kept.n > 0 && reduced.n > 0 && kept.stride[kept.n - 1] < reduced.stride[reduced.n - 1];
}

/* --- reducing a line ---------------------------------------------------------------------------------------------- */

typedef struct results {
    void *y;
    lk_dtype dtype;
    double divisor; /* for sums of floats */
    bool indices;   /* the results are indices of maxima, not their values */
} results;

typedef struct reduction {
    const void *x;
    lk_dtype dtype;
    void *parts; /* [line][chunk], if lines have several chunks */
    axes kept, reduced;
    int64_t chunks;
    results to;
} reduction;

template <typename T> struct sum_of {
    typedef double state;
    typedef T element;

    static inline __device__ element load(const reduction &a, int64_t at)
    {
        return ((const T *)a.x)[at];
    }
    static inline __device__ state none()
    {
        return 0;
    }
    static inline __device__ state one(T x, int64_t)
    {
        return (double)widen(x);
    }
    static inline __device__ state both(state a, state b)
    {
        return a + b;
    }
    static inline __device__ state below(state s, int by)
    {
        return __shfl_down_sync(WARP, s, by);
    }
    static inline __device__ void put(const reduction &a, int64_t line, state s)
    {
        any_store(a.to.y, a.to.dtype, line, {true, s / a.to.divisor, 0});
    }
};

/* A sum of integers wraps. */
struct sum_of_integers {
    typedef uint64_t state, element;

    static inline __device__ element load(const reduction &a, int64_t at)
    {
        return (uint64_t)any_load(a.x, a.dtype, at).integer;
    }
    static inline __device__ state none()
    {
        return 0;
    }
    static inline __device__ state one(element x, int64_t)
    {
        return x;
    }
    static inline __device__ state both(state a, state b)
    {
        return a + b;
    }
    static inline __device__ state below(state s, int by)
    {
        return __shfl_down_sync(WARP, s, by);
    }
    static inline __device__ void put(const reduction &a, int64_t line, state s)
    {
        any_store(a.to.y, a.to.dtype, line, {false, 0, (int64_t)s});
    }
};

/* The greatest element's rank and its index; -1: no element yet. */
struct greatest {
    typedef int64_t element;
    typedef struct state {
        int64_t rank, index;
    } state;

    static inline __device__ element load(const reduction &a, int64_t at)
    {
        return any_rank(a.x, a.dtype, at);
    }
    static inline __device__ state none()
    {
        return {0, -1};
    }
    static inline __device__ state one(element rank, int64_t index)
    {
        return {rank, index};
    }
    static inline __device__ state both(state a, state b)
    {
        if (a.index < 0 || b.index < 0)
            return a.index < 0 ? b : a;
        return a.rank > b.rank || (a.rank == b.rank && a.index < b.index) ? a : b;
    }
    static inline __device__ state below(state s, int by)
    {
        return {(int64_t)__shfl_down_sync(WARP, s.rank, by), (int64_t)__shfl_down_sync(WARP, s.index, by)};
    }
    static inline __device__ void put(const reduction &a, int64_t line, state s)
    {
        if (a.to.indices)
            ((int64_t *)a.to.y)[line] = s.index;
        else
            any_copy(a.to.y, line, a.x, element_offset(a.kept, line) + element_offset(a.reduced, s.index), a.dtype);
    }
};

/* --- reductions --------------------------------------------------------------------------------------------------- */

/* A thread starts IN_FLIGHT loads before it waits for the first. */
static const int LANES = 32, IN_FLIGHT = 8;

/* Elements [begin, end) of a line. */
typedef struct chunk {
    int64_t line, index, begin, end;
} chunk;

static inline __device__ chunk chunk_at(const reduction &a, int64_t line, int64_t index)
{
    int64_t begin = index * LK_GPU_REDUCE_CHUNK, end = begin + LK_GPU_REDUCE_CHUNK;
    return {line, index, begin, end < a.reduced.count ? end : a.reduced.count};
}

template <typename R> static inline __device__ void finish(const reduction &a, const chunk &c, typename R::state s)
{
    if (a.chunks == 1)
        R::put(a, c.line, s);
    else
        ((typename R::state *)a.parts)[c.line * a.chunks + c.index] = s;
}

/* Reduces the lanes of a warp; lane 0 gets the result. */
template <typename R> static inline __device__ typename R::state reduce_lanes(typename R::state s)
{
    for (int h = LANES / 2; h > 0; h /= 2)
        s = R::both(s, R::below(s, h));
    return s;
}

/* One warp for each chunk, one thread for each lane. */
template <typename R> static __global__ void reduce_along(reduction a)
{
    int64_t job = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (job >= a.kept.count * a.chunks)
        return;
    chunk c = chunk_at(a, job / a.chunks, job % a.chunks);
    int64_t start = element_offset(a.kept, c.line);
    typename R::state s = R::none();
    for (int64_t first = c.begin + threadIdx.x; first < c.end; first += LANES * IN_FLIGHT) {
        typename R::element value[IN_FLIGHT];
        for (int j = 0; j < IN_FLIGHT; j++)
            if (first + j * LANES < c.end)
                value[j] = R::load(a, start + element_offset(a.reduced, first + j * LANES));
        for (int j = 0; j < IN_FLIGHT; j++)
            if (first + j * LANES < c.end)
                s = R::both(s, R::one(value[j], first + j * LANES));
    }
    s = reduce_lanes<R>(s);
    if (threadIdx.x == 0)
        finish<R>(a, c, s);
}

/* Each block takes 32 neighboring lines, with eight threads for each: thread y has lanes y, y + 8, y + 16, y + 24. */
template <typename R> static __global__ void reduce_across(reduction a)
{
    typedef typename R::state state;
    __shared__ state lane[WARPS][32];
    const int OF_EACH = LANES / WARPS;
    int64_t line = blockIdx.x / a.chunks * 32 + threadIdx.x;
    chunk c = chunk_at(a, line, blockIdx.x % a.chunks);
    bool is_there = line < a.kept.count;
    int64_t start = is_there ? element_offset(a.kept, line) : 0;
    state s[OF_EACH];
    for (int j = 0; j < OF_EACH; j++)
        s[j] = R::none();
    for (int64_t first = c.begin + threadIdx.y; is_there && first < c.end; first += LANES) {
        typename R::element value[OF_EACH];
        for (int j = 0; j < OF_EACH; j++)
            if (first + j * WARPS < c.end)
                value[j] = R::load(a, start + element_offset(a.reduced, first + j * WARPS));
        for (int j = 0; j < OF_EACH; j++)
            if (first + j * WARPS < c.end)
                s[j] = R::both(s[j], R::one(value[j], first + j * WARPS));
    }
    lane[threadIdx.y][threadIdx.x] = R::both(R::both(s[0], s[2]), R::both(s[1], s[3]));
    for (unsigned h = WARPS / 2; h > 0; h /= 2) {
        __syncthreads();
        if (threadIdx.y < h)
            lane[threadIdx.y][threadIdx.x] =
                R::both(lane[threadIdx.y][threadIdx.x], lane[threadIdx.y + h][threadIdx.x]);
    }
    if (is_there && threadIdx.y == 0)
        finish<R>(a, c, lane[0][threadIdx.x]);
}

/* One warp for each line. */
template <typename R> static __global__ void reduce_parts(reduction a)
{
    int64_t line = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (line >= a.kept.count)
        return;
    const typename R::state *part = (const typename R::state *)a.parts + line * a.chunks;
    typename R::state s = R::none();
    for (int64_t c = threadIdx.x; c < a.chunks; c += LANES)
        s = R::both(s, part[c]);
    s = reduce_lanes<R>(s);
    if (threadIdx.x == 0)
        R::put(a, line, s);
}

template <typename R> static lk_gpu_status run_reduction(lk_gpu_stream *stream, const reduction &a)
{
    dim3 block(32, WARPS);
    static_assert(sizeof(typename R::state) <= 16, "lk_gpu_reduce.workspace");
    if (lines_are_closer(a.kept, a.reduced))
        LK_GPU_RUN_TOGETHER(reduce_across<R>, (unsigned)((a.kept.count + 31) / 32 * a.chunks), block, stream, a);
    else
        LK_GPU_RUN_TOGETHER(reduce_along<R>, blocks_for_warps(a.kept.count * a.chunks), block, stream, a);
    if (a.chunks > 1)
        LK_GPU_RUN_TOGETHER(reduce_parts<R>, blocks_for_warps(a.kept.count), block, stream, a);
    return lk__gpu_launched("reduce");
}

lk_gpu_status lk__gpu_reduce(lk_gpu_stream *stream, const lk_gpu_reduce *a)
{
    reduction r = {};
    r.x = a->x;
    r.dtype = a->dtype;
    r.parts = a->workspace;
    r.kept = join_axes(a->axes.n_kept, a->axes.kept, a->axes.kept_stride);
    r.reduced = join_axes(a->axes.n_reduced, a->axes.reduced, a->axes.reduced_stride);
    int64_t chunks = (r.reduced.count + LK_GPU_REDUCE_CHUNK - 1) / LK_GPU_REDUCE_CHUNK;
    r.chunks = chunks > 1 ? chunks : 1;
    r.to.y = a->y;
    r.to.dtype = a->y_dtype;
    r.to.divisor = a->op == LK_GPU_MEAN ? (double)r.reduced.count : 1;
    r.to.indices = a->op == LK_GPU_ARGMAX;
    if (r.kept.count == 0)
        return LK_GPU_OK;
    if (a->op == LK_GPU_MAX || a->op == LK_GPU_ARGMAX)
        return run_reduction<greatest>(stream, r);
    switch (a->dtype) {
    case LK_F32:
        return run_reduction<sum_of<float>>(stream, r);
    case LK_BF16:
        return run_reduction<sum_of<bf16>>(stream, r);
    case LK_F64:
        return run_reduction<sum_of<double>>(stream, r);
    default:
        return run_reduction<sum_of_integers>(stream, r);
    }
}

/* --- the gradient of max ------------------------------------------------------------------------------------------ */

typedef struct max_axes {
    axes kept, reduced;
} max_axes;

/* A line has 32 threads, a row of the block, or with ACROSS eight, a column of it. All of them find the first maximum
 * before any writes, because dx may be x. */
template <bool ACROSS> static __global__ void max_grad(lk_gpu_max_grad a, max_axes at)
{
    __shared__ int64_t found[WARPS][32];
    int64_t line = ACROSS ? (int64_t)blockIdx.x * 32 + threadIdx.x : (int64_t)blockIdx.x * WARPS + threadIdx.y;
    int64_t own = ACROSS ? threadIdx.y : threadIdx.x, threads = ACROSS ? WARPS : 32;
    bool is_there = line < at.kept.count;
    int64_t n = is_there ? at.reduced.count : 0, begin = is_there ? element_offset(at.kept, line) : 0, first = n;
    int64_t greatest = is_there ? any_rank(a.y, a.dtype, line) : 0;
    for (int64_t r = own; r < first; r += threads)
        if (any_rank(a.x, a.dtype, begin + element_offset(at.reduced, r)) == greatest)
            first = r;
    found[threadIdx.y][threadIdx.x] = first;
    __syncthreads();
    for (int i = 0; i < threads; i++) {
        int64_t other = ACROSS ? found[i][threadIdx.x] : found[threadIdx.y][i];
        first = other < first ? other : first;
    }
    for (int64_t r = own; r < n; r += threads)
        any_copy(a.dx, begin + element_offset(at.reduced, r), r == first ? a.dy : NULL, line, a.dtype);
}

lk_gpu_status lk__gpu_max_grad(lk_gpu_stream *stream, const lk_gpu_max_grad *a)
{
    max_axes at = {join_axes(a->axes.n_kept, a->axes.kept, a->axes.kept_stride),
                   join_axes(a->axes.n_reduced, a->axes.reduced, a->axes.reduced_stride)};
    dim3 block(32, WARPS);
    if (at.kept.count == 0)
        return LK_GPU_OK;
    if (lines_are_closer(at.kept, at.reduced))
        LK_GPU_RUN_TOGETHER(max_grad<true>, (unsigned)((at.kept.count + 31) / 32), block, stream, *a, at);
    else
        LK_GPU_RUN_TOGETHER(max_grad<false>, blocks_for_warps(at.kept.count), block, stream, *a, at);
    return lk__gpu_launched("max_grad");
}

/* --- softmax ------------------------------------------------------------------------------------------------------ */

/* Lines of n elements that are `step` apart, with one warp for each. Neighboring lines are in one block, and so use the
 * same sectors of memory even if a line's elements are not neighbors. */
typedef struct lines {
    int64_t count, n, step;
} lines;

static inline __device__ int64_t line_offset(const lines &l, int64_t line)
{
    return line / l.step * l.step * l.n + line % l.step;
}

template <typename T> static __global__ void softmax(const T *x, T *y, lines l, bool log)
{
    int64_t line = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (line >= l.count)
        return;
    x += line_offset(l, line);
    y += line_offset(l, line);
    float most = -INFINITY, sum = 0;
    for (int64_t i = threadIdx.x; i < l.n; i += LANES)
        most = fmaxf(most, widen(x[i * l.step]));
    most = warp_max(most);
    for (int64_t i = threadIdx.x; i < l.n; i += LANES)
        sum += expf(widen(x[i * l.step]) - most);
    sum = warp_sum(sum);
    float log_sum = logf(sum);
    for (int64_t i = threadIdx.x; i < l.n; i += LANES) {
        float below = widen(x[i * l.step]) - most;
        y[i * l.step] = narrow<T>(log ? below - log_sum : expf(below) / sum);
    }
}

/* dx = y (dy - Σ dy y), or for the logarithm dx = dy - exp(y) Σ dy. */
template <typename T> static __global__ void softmax_grad(const T *dy, const T *y, T *dx, lines l, bool log)
{
    int64_t line = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (line >= l.count)
        return;
    int64_t start = line_offset(l, line);
    float sum = 0;
    for (int64_t i = threadIdx.x; i < l.n; i += LANES) {
        int64_t at = start + i * l.step;
        sum += log ? widen(dy[at]) : widen(dy[at]) * widen(y[at]);
    }
    sum = warp_sum(sum);
    for (int64_t i = threadIdx.x; i < l.n; i += LANES) {
        int64_t at = start + i * l.step;
        float d = widen(dy[at]), value = widen(y[at]);
        dx[at] = narrow<T>(log ? d - expf(value) * sum : value * (d - sum));
    }
}

lk_gpu_status lk__gpu_softmax(lk_gpu_stream *stream, const lk_gpu_softmax *a)
{
    lines l = {a->outer * a->inner, a->n, a->inner};
    if (l.count * l.n == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype, LK_GPU_RUN_TOGETHER(softmax<T>, blocks_for_warps(l.count), dim3(32, WARPS), stream,
                                             (const T *)a->x, (T *)a->y, l, a->log))
    return lk__gpu_launched("softmax");
}

lk_gpu_status lk__gpu_softmax_grad(lk_gpu_stream *stream, const lk_gpu_softmax_grad *a)
{
    lines l = {a->outer * a->inner, a->n, a->inner};
    if (l.count * l.n == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype, LK_GPU_RUN_TOGETHER(softmax_grad<T>, blocks_for_warps(l.count), dim3(32, WARPS), stream,
                                             (const T *)a->dy, (const T *)a->y, (T *)a->dx, l, a->log))
    return lk__gpu_launched("softmax_grad");
}
