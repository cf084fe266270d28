/* Updates of parameters, and the norms they need. Each operation is rounded separately, in the order of ops/update.h,
 * so the bits are those of every other device. */
#include "cuda/plugin/gpu_elements.cuh"

/* --- arrays, element by element ----------------------------------------------------------------------------------- */

/* An update U has ARRAYS arrays. Element i of each is read into x, u.of(x, scale) changes the first WRITTEN of them,
 * and these are written back. */
template <typename U, int WIDTH> static inline __device__ void update_pack(const U &u, int64_t i, float scale)
{
    typedef elements<float, WIDTH> pack;
    pack x[U::ARRAYS];
    for (int a = 0; a < U::ARRAYS; a++)
        x[a] = in_one_access<const pack>(u.array[a])[i];
    for (int j = 0; j < WIDTH; j++) {
        float one[U::ARRAYS];
        for (int a = 0; a < U::ARRAYS; a++)
            one[a] = x[a].at[j];
        u.of(one, scale);
        for (int a = 0; a < U::WRITTEN; a++)
            x[a].at[j] = one[a];
    }
    for (int a = 0; a < U::WRITTEN; a++)
        in_one_access<pack>(u.array[a])[i] = x[a];
}

static inline __device__ bool skips_update(const lk_gpu_control &control)
{
    return control.skip && *control.skip != 0;
}

static inline __device__ float gradient_scale(const lk_gpu_control &control)
{
    return control.scale ? *control.scale : 1;
}

template <typename U, int WIDTH> static __global__ void update(U u, int64_t count, lk_gpu_control control)
{
    if (skips_update(control))
        return;
    float scale = gradient_scale(control);
    if (control.rates)
        u.take(control.rates);
    EACH(i, count / WIDTH)
    update_pack<U, WIDTH>(u, i, scale);
    if (blockIdx.x == 0 && threadIdx.x < count % WIDTH)
        update_pack<U, 1>(u, count / WIDTH * WIDTH + threadIdx.x, scale);
}

template <typename U>
static void run_update(lk_gpu_stream *stream, const U &u, int64_t count, const lk_gpu_control &control)
{
    const int WIDTH = widest<float>::WIDTH;
    bool aligned = true;
    for (int a = 0; a < U::ARRAYS; a++)
        aligned = aligned && is_aligned<float, WIDTH>(u.array[a]);
    if (aligned)
        LK_GPU_RUN((update<U, WIDTH>), blocks_for((count + WIDTH - 1) / WIDTH), THREADS, stream, u, count, control);
    else
        LK_GPU_RUN((update<U, 1>), blocks_for(count), THREADS, stream, u, count, control);
}

/* --- momentum ----------------------------------------------------------------------------------------------------- */

static inline __device__ float decayed_gradient(float scale, float g, float weight_decay, float w)
{
    return scale * g + weight_decay * w;
}

struct descent {
    enum { ARRAYS = 2, WRITTEN = 1 };
    float *array[ARRAYS]; /* w, g */
    float rate, weight_decay;

    inline __device__ void take(const double *rates)
    {
        rate = (float)rates[0];
    }

    inline __device__ void of(float *x, float scale) const
    {
        x[0] = x[0] - rate * decayed_gradient(scale, x[1], weight_decay, x[0]);
    }
};

template <bool NESTEROV> struct momentum {
    enum { ARRAYS = 3, WRITTEN = 2 };
    float *array[ARRAYS]; /* w, v, g */
    float rate, decay, weight_decay;

    inline __device__ void take(const double *rates)
    {
        rate = (float)rates[0];
    }

    inline __device__ void of(float *x, float scale) const
    {
        float g = decayed_gradient(scale, x[2], weight_decay, x[0]);
        x[1] = decay * x[1] + g;
        x[0] = x[0] - rate * (NESTEROV ? g + decay * x[1] : x[1]);
    }
};

lk_gpu_status lk__gpu_momentum_update(lk_gpu_stream *stream, const lk_gpu_momentum_update *a)
{
    float *g = (float *)a->g;
    if (a->count == 0)
        return LK_GPU_OK;
    if (!a->v)
        run_update(stream, descent{{a->w, g}, a->rate, a->weight_decay}, a->count, a->control);
    else if (a->nesterov)
        run_update(stream, momentum<true>{{a->w, a->v, g}, a->rate, a->momentum, a->weight_decay}, a->count,
                   a->control);
    else
        run_update(stream, momentum<false>{{a->w, a->v, g}, a->rate, a->momentum, a->weight_decay}, a->count,
                   a->control);
    return lk__gpu_launched("momentum_update");
}

/* x is {w, g}. */
struct plain_descent {
    float rate;

    inline __device__ float operator()(const float (&x)[2]) const
    {
        return x[0] - rate * x[1];
    }
};

lk_gpu_status lk__gpu_sgd_update(lk_gpu_stream *stream, const lk_gpu_sgd_update *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    map(stream, a->y, operands<float, 2>{{a->w, a->g}}, a->count, plain_descent{a->rate});
    return lk__gpu_launched("sgd_update");
}

/* --- Adam --------------------------------------------------------------------------------------------------------- */

struct adam {
    enum { ARRAYS = 4, WRITTEN = 3 };
    float *array[ARRAYS]; /* w, m, v, g */
    float beta1, rest1, beta2, rest2, step, unbias, epsilon, weight_decay, keep;

    inline __device__ void take(const double *rates)
    {
        step = (float)rates[0];
        unbias = (float)rates[1];
        keep = (float)rates[2];
    }

    inline __device__ void of(float *x, float scale) const
    {
        float g = decayed_gradient(scale, x[3], weight_decay, x[0]);
        x[1] = beta1 * x[1] + rest1 * g;
        x[2] = beta2 * x[2] + rest2 * (g * g);
        x[0] = keep * x[0] - step * x[1] / (sqrtf(x[2] * unbias) + epsilon);
    }
};

lk_gpu_status lk__gpu_adam_update(lk_gpu_stream *stream, const lk_gpu_adam_update *a)
{
    adam u = {{a->w, a->m, a->v, (float *)a->g},
              a->beta1,
              a->rest1,
              a->beta2,
              a->rest2,
              a->step,
              a->unbias,
              a->epsilon,
              a->weight_decay,
              a->keep};
    if (a->count == 0)
        return LK_GPU_OK;
    run_update(stream, u, a->count, a->control);
    return lk__gpu_launched("adam_update");
}

/* --- LARS --------------------------------------------------------------------------------------------------------- */

/* The last segment that starts at `i` or before; if any segment contains i, it is this one. -1: none starts so early.
 */
static inline __device__ int64_t segment_of(const int64_t *offsets, int64_t segments, int64_t i)
{
    int64_t first = 0, end = segments; /* the first segment that starts after i is in [first, end] */
    while (first < end) {
        int64_t middle = first + (end - first) / 2;
        if (offsets[middle] <= i)
            first = middle + 1;
        else
            end = middle;
    }
    return first - 1;
}

/* `rate` and `weight_decay` are those of a segment. */
struct lars {
    enum { ARRAYS = 3, WRITTEN = 2 };
    float *array[ARRAYS]; /* w, v, g */
    float rate, decay, weight_decay;

    inline __device__ void of(float *x, float scale) const
    {
        float g = decayed_gradient(scale, x[2], weight_decay, x[0]);
        x[1] = decay * x[1] + rate * g;
        x[0] = x[0] - x[1];
    }
};

/* Reads and writes WIDTH elements at once if they are in one segment, otherwise one by one. */
template <int WIDTH> static inline __device__ void update_lars(const lk_gpu_lars_update &a, int64_t pack, float scale)
{
    int64_t begin = pack * WIDTH, s = segment_of(a.offsets, a.segments, begin);
    if (WIDTH > 1 && (s < 0 || begin + WIDTH > a.offsets[s + 1])) {
        for (int j = 0; j < WIDTH; j++)
            update_lars<1>(a, begin + j, scale);
        return;
    }
    if (s < 0 || begin >= a.offsets[s + 1])
        return;
    float rate = a.rate * a.ratios[s];
    lars u = {{a.w, a.v, (float *)a.g}, isfinite(rate) ? rate : a.rate, a.momentum, a.weight_decay * a.adapted[s]};
    update_pack<lars, WIDTH>(u, pack, scale);
}

template <int WIDTH> static __global__ void lars_update(lk_gpu_lars_update a)
{
    if (skips_update(a.control))
        return;
    float scale = gradient_scale(a.control);
    if (a.control.rates)
        a.rate = (float)a.control.rates[0];
    EACH(pack, a.count / WIDTH)
    update_lars<WIDTH>(a, pack, scale);
    if (blockIdx.x == 0 && threadIdx.x < a.count % WIDTH)
        update_lars<1>(a, a.count / WIDTH * WIDTH + threadIdx.x, scale);
}

lk_gpu_status lk__gpu_lars_update(lk_gpu_stream *stream, const lk_gpu_lars_update *a)
{
    const int WIDTH = widest<float>::WIDTH;
    if (a->count == 0)
        return LK_GPU_OK;
    if (is_aligned<float, WIDTH>(a->w) && is_aligned<float, WIDTH>(a->v) && is_aligned<float, WIDTH>(a->g))
        LK_GPU_RUN((lars_update<WIDTH>), blocks_for((a->count + WIDTH - 1) / WIDTH), THREADS, stream, *a);
    else
        LK_GPU_RUN((lars_update<1>), blocks_for(a->count), THREADS, stream, *a);
    return lk__gpu_launched("lars_update");
}

/* --- norms -------------------------------------------------------------------------------------------------------- */

/* The slot in the workspace at which the sums of a segment's blocks start. They always fit before the next segment's.
 */
static inline __device__ int64_t slot_of_blocks(const int64_t *offsets, int64_t segment)
{
    return offsets[segment] / LK_GPU_NORM_BLOCK + segment;
}

/* The segment to which slot `at` of the workspace belongs. */
static inline __device__ int64_t segment_of_slot(const int64_t *offsets, int64_t segments, int64_t at)
{
    int64_t first = 0, end = segments;
    while (first < end) {
        int64_t middle = first + (end - first) / 2;
        if (slot_of_blocks(offsets, middle) <= at)
            first = middle + 1;
        else
            end = middle;
    }
    return first - 1;
}

/* The number of loads that a thread starts before it waits for the first. */
static const int IN_FLIGHT = 8;

/* One warp for each slot of the workspace, one thread for each of its 32 lanes. */
static __global__ void sum_blocks(lk_gpu_squared_norms a, int64_t slots)
{
    int64_t at = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    int64_t s = at < slots ? segment_of_slot(a.offsets, a.segments, at) : -1;
    if (s < 0 || a.offsets[s] < 0)
        return;
    int64_t begin = a.offsets[s] + (at - slot_of_blocks(a.offsets, s)) * LK_GPU_NORM_BLOCK;
    int64_t last = a.offsets[s + 1] < a.count ? a.offsets[s + 1] : a.count;
    int64_t end = begin + LK_GPU_NORM_BLOCK < last ? begin + LK_GPU_NORM_BLOCK : last;
    double sum = 0;
    for (int64_t first = begin + threadIdx.x; first < end; first += 32 * IN_FLIGHT) {
        float value[IN_FLIGHT];
        for (int j = 0; j < IN_FLIGHT; j++)
            value[j] = first + j * 32 < end ? a.x[first + j * 32] : 0; /* adding its square changes nothing */
        for (int j = 0; j < IN_FLIGHT; j++)
            sum += (double)value[j] * (double)value[j];
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0)
        a.workspace[at] = sum;
}

/* Sums THREADS numbers, one for each thread: x[i] += x[i + h] for h = 1, 2, 4, … and i a multiple of 2 h. Thread 0 gets
 * the sum. Missing numbers are 0, and adding 0 changes no bits, because no number is negative. */
static inline __device__ double tree_of_block(double x)
{
    __shared__ double of_warp[THREADS / 32];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int h = 1; h < 32; h *= 2)
        x += __shfl_down_sync(WARP, x, h);
    __syncthreads();
    if (lane == 0)
        of_warp[warp] = x;
    __syncthreads();
    if (warp == 0) {
        x = lane < THREADS / 32 ? of_warp[lane] : 0;
        for (int h = 1; h < THREADS / 32; h *= 2)
            x += __shfl_down_sync(WARP, x, h);
    }
    return x;
}

/* The same for x[0 … n), THREADS numbers at a time. Thread 0 keeps the sums of whole subtrees, each smaller than the
 * one before: sum[0 … depth). It joins two subtrees of the same size at once, as a binary counter carries. */
static inline __device__ double tree_sum(const double *x, int64_t n)
{
    __shared__ double sum[64];
    int depth = 0;
    for (int64_t chunk = 0; chunk * THREADS < n; chunk++) {
        int64_t i = chunk * THREADS + threadIdx.x;
        double subtree = tree_of_block(i < n ? x[i] : 0);
        if (threadIdx.x != 0)
            continue;
        sum[depth++] = subtree;
        for (int64_t carry = chunk; carry & 1; carry >>= 1) {
            depth--;
            sum[depth - 1] += sum[depth];
        }
    }
    for (; depth > 1; depth--)
        sum[depth - 2] += sum[depth - 1];
    return depth > 0 ? sum[0] : 0;
}

/* One block of threads for each segment. */
static __global__ void sum_segments(lk_gpu_squared_norms a)
{
    int64_t s = blockIdx.x;
    int64_t begin = a.offsets[s], end = a.offsets[s + 1];
    bool is_valid = begin >= 0 && begin <= end && end <= a.count;
    int64_t blocks = is_valid ? (end - begin + LK_GPU_NORM_BLOCK - 1) / LK_GPU_NORM_BLOCK : 0;
    double norm = is_valid ? tree_sum(a.workspace + slot_of_blocks(a.offsets, s), blocks) : nan("");
    if (threadIdx.x == 0)
        a.norms[s] = norm;
}

lk_gpu_status lk__gpu_squared_norms(lk_gpu_stream *stream, const lk_gpu_squared_norms *a)
{
    int64_t slots = a->count / LK_GPU_NORM_BLOCK + a->segments;
    if (a->segments == 0)
        return LK_GPU_OK;
    LK_GPU_RUN_TOGETHER(sum_blocks, blocks_for_warps(slots), dim3(32, WARPS), stream, *a, slots);
    LK_GPU_RUN_TOGETHER(sum_segments, (unsigned)a->segments, THREADS, stream, *a);
    return lk__gpu_launched("squared_norms");
}

/* --- scales ------------------------------------------------------------------------------------------------------- */

/* The ratio for a segment whose parameters have the squared norm w2, and its gradients g2. */
static inline __device__ double lars_trust_ratio(const lk_gpu_update_scales &a, double w2, double g2, double scale)
{
    double w = sqrt(w2), g = scale * sqrt(g2);
    double ratio = a.trust * w / (g + a.weight_decay * w);
    return w > 0 && g > 0 && isfinite(w) && isfinite(g) ? ratio : 1;
}

/* Runs in one thread. */
static inline __device__ float scales_of(const lk_gpu_update_scales &a, double norm)
{
    bool skip = a.sticky && *a.skip != 0;
    skip = skip || (a.skip_nonfinite && !(isfinite(norm) && (!a.loss || isfinite(*a.loss))));
    bool clip = a.clip_norm > 0 && isfinite(norm) && norm > a.clip_norm;
    float scale = clip ? (float)(a.clip_norm / norm) : 1;
    *a.new_skip = skip ? 1 : 0;
    *a.scale = scale;
    *a.norm = norm;
    return scale;
}

/* Runs in one block. */
static __global__ void update_scales(lk_gpu_update_scales a)
{
    __shared__ float scale;
    double norm = sqrt(tree_sum(a.gradients, a.segments));
    if (threadIdx.x == 0)
        scale = scales_of(a, norm);
    __syncthreads();
    for (int64_t i = threadIdx.x; a.ratios && i < a.segments; i += THREADS)
        a.ratios[i] =
            a.adapted[i] != 0 ? (float)lars_trust_ratio(a, a.parameters[i], a.gradients[i], (double)scale) : 1;
}

lk_gpu_status lk__gpu_update_scales(lk_gpu_stream *stream, const lk_gpu_update_scales *a)
{
    LK_GPU_RUN_TOGETHER(update_scales, 1, THREADS, stream, *a);
    return lk__gpu_launched("update_scales");
}
