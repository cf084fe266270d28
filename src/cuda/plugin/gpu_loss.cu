/* Cross-entropy of rows of logits with labels, and of logits with targets. */
#include "cuda/plugin/gpu_elements.cuh"

/* --- cross-entropy ------------------------------------------------------------------------------------------------ */

typedef struct cross_entropy_job {
    const void *logits, *dloss;
    const void *labels;
    void *loss, *dlogits;
    float *hits;
    float *losses_to_add, *hits_to_add; /* [n], if their sum is the result; NULL if not */
    int64_t n, classes;                 /* n: of all parts */
    int64_t part;                       /* samples of a part */
    bool each;
    bool has_f32_loss;   /* and dloss; else of the logits' dtype */
    bool has_i32_labels; /* else i64 */
    int k;
    float on_label, on_all; /* the target's shares for the label, and for all classes together */
    double scale;
} cross_entropy_job;

static inline __device__ float not_a_number(void)
{
    return nanf("");
}

static inline __device__ int64_t label_of(const cross_entropy_job &a, int64_t sample)
{
    return a.has_i32_labels ? ((const int32_t *)a.labels)[sample] : ((const int64_t *)a.labels)[sample];
}

template <typename T> static inline __device__ void store_loss(const cross_entropy_job &a, int64_t i, double loss)
{
    if (a.has_f32_loss)
        ((float *)a.loss)[i] = (float)loss;
    else
        ((T *)a.loss)[i] = narrow_double<T>(loss);
}

template <typename T> static inline __device__ float dloss_of(const cross_entropy_job &a, int64_t sample)
{
    int64_t i = a.each ? sample : 0;
    return a.has_f32_loss ? ((const float *)a.dloss)[i] : widen(((const T *)a.dloss)[i]);
}

/* Returns whether element `index` comes before the label's in the order from greatest to smallest, then by index. NaN
 * is the greatest. */
static inline __device__ bool comes_before(float a, int64_t index, float of_label, int64_t label)
{
    if (isnan(a) || isnan(of_label))
        return isnan(a) && (!isnan(of_label) || index < label);
    return a > of_label || (a == of_label && index < label);
}

/* The sums over a row, computed by a warp before it writes anything. */
typedef struct row_sums {
    float most, exponentials, below; /* maximum, Σ exp(x - most), Σ (x - most) */
    int before;                      /* classes that come before the label */
} row_sums;

template <typename T> static inline __device__ row_sums sums_of(const T *x, int64_t classes, int64_t label)
{
    float of_label = widen(x[label]);
    row_sums s = {-INFINITY, 0, 0, 0};
    for (int64_t c = threadIdx.x; c < classes; c += 32)
        s.most = fmaxf(s.most, widen(x[c]));
    s.most = warp_max(s.most);
    for (int64_t c = threadIdx.x; c < classes; c += 32) {
        float value = widen(x[c]);
        s.exponentials += expf(value - s.most);
        s.below += value - s.most;
        s.before += comes_before(value, c, of_label, label);
    }
    s.exponentials = warp_sum(s.exponentials);
    s.below = warp_sum(s.below);
    s.before = warp_sum(s.before);
    return s;
}

/* Without smoothing the sum over all classes must not be added, not even times 0: with a logit of -infinity that would
 * make the loss NaN. */
static inline __device__ float sample_loss(const cross_entropy_job &a, const row_sums &s, float of_label)
{
    float target = of_label - s.most;
    if (a.on_all > 0)
        target = a.on_label * target + a.on_all * (s.below / (float)a.classes);
    return logf(s.exponentials) - target;
}

/* Writes (softmax - target) * dloss. */
template <typename T>
static inline __device__ void store_gradient(const cross_entropy_job &a, const T *x, T *dx, int64_t sample,
                                             int64_t label, const row_sums &s, bool is_valid)
{
    float others = a.on_all / (float)a.classes;
    float dloss = (float)((double)dloss_of<T>(a, sample) * a.scale);
    for (int64_t c = threadIdx.x; c < a.classes; c += 32) {
        float target = (c == label ? a.on_label : 0) + others;
        float d = (expf(widen(x[c]) - s.most) / s.exponentials - target) * dloss;
        dx[c] = narrow<T>(is_valid ? d : not_a_number());
    }
}

/* Runs in one warp. */
template <typename T> static inline __device__ void compute_sample(const cross_entropy_job &a, int64_t sample)
{
    int64_t label = label_of(a, sample);
    bool is_valid = label >= 0 && label < a.classes;
    label = is_valid ? label : 0;
    const T *x = (const T *)a.logits + sample * a.classes;
    row_sums s = sums_of(x, a.classes, label);
    if (threadIdx.x == 0) {
        float loss = is_valid ? sample_loss(a, s, widen(x[label])) : not_a_number();
        float hit = is_valid ? s.before < a.k : not_a_number();
        if (a.losses_to_add)
            a.losses_to_add[sample] = loss;
        else if (a.loss)
            store_loss<T>(a, sample, (double)loss * a.scale);
        if (a.hits_to_add)
            a.hits_to_add[sample] = hit;
        else if (a.hits)
            a.hits[sample] = hit;
    }
    __syncwarp(); /* dlogits may be logits: all lanes must have read their row */
    if (a.dlogits)
        store_gradient(a, x, (T *)a.dlogits + sample * a.classes, sample, label, s, is_valid);
}

/* One warp for each sample. */
template <typename T> static __global__ void cross_entropy(cross_entropy_job a)
{
    int64_t sample = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (sample < a.n)
        compute_sample<T>(a, sample);
}

/* Sums x[n] in one warp. */
static inline __device__ double sum_over_samples(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += 32)
        sum += (double)x[i];
    return warp_sum(sum);
}

/* Runs in the first warp of a block for each part. */
template <typename T> static inline __device__ void add_part(const cross_entropy_job &a)
{
    if (a.losses_to_add) {
        double loss = sum_over_samples(a.losses_to_add + blockIdx.x * a.part, a.part) * a.scale;
        if (threadIdx.x == 0)
            store_loss<T>(a, blockIdx.x, loss);
    }
    if (a.hits_to_add) {
        double hits = sum_over_samples(a.hits_to_add + blockIdx.x * a.part, a.part);
        if (threadIdx.x == 0)
            a.hits[blockIdx.x] = (float)hits;
    }
}

template <typename T> static __global__ void add_samples(cross_entropy_job a)
{
    add_part<T>(a);
}

/* A block of PART_WARPS warps does both for a part. */
enum { PART_WARPS = 32, SMALL_PART = 2 * PART_WARPS };

template <typename T>
static __global__ void __launch_bounds__(32 * PART_WARPS) cross_entropy_of_part(cross_entropy_job a)
{
    for (int64_t i = threadIdx.y; i < a.part; i += PART_WARPS)
        compute_sample<T>(a, blockIdx.x * a.part + i);
    __syncthreads();
    if (threadIdx.y == 0)
        add_part<T>(a);
}

template <typename T> static void run_cross_entropy(lk_gpu_stream *stream, const cross_entropy_job &a, int64_t parts)
{
    if ((a.losses_to_add || a.hits_to_add) && a.part <= SMALL_PART) {
        LK_GPU_RUN_TOGETHER(cross_entropy_of_part<T>, (unsigned)parts, dim3(32, PART_WARPS), stream, a);
        return;
    }
    if (a.n > 0)
        LK_GPU_RUN_TOGETHER(cross_entropy<T>, blocks_for_warps(a.n), dim3(32, WARPS), stream, a);
    if (a.losses_to_add || a.hits_to_add)
        LK_GPU_RUN_TOGETHER(add_samples<T>, (unsigned)parts, 32, stream, a);
}

lk_gpu_status lk__gpu_cross_entropy(lk_gpu_stream *stream, const lk_gpu_cross_entropy *a)
{
    cross_entropy_job job = {};
    int64_t parts = lk_gpu_parts(a->parts);
    job.logits = a->logits;
    job.dloss = a->dloss;
    job.labels = a->labels;
    job.loss = a->loss;
    job.dlogits = a->dlogits;
    job.hits = a->hits;
    job.n = parts * a->n;
    job.part = a->n;
    job.classes = a->classes;
    job.each = a->each;
    job.has_f32_loss = a->loss_dtype == LK_F32;
    job.has_i32_labels = a->labels_dtype == LK_I32;
    job.k = a->k;
    job.on_label = (float)(1 - a->smoothing);
    job.on_all = (float)a->smoothing;
    job.scale = a->scale;
    if (a->sum) {
        job.losses_to_add = a->loss ? a->workspace : NULL;
        job.hits_to_add = a->hits ? a->workspace + (a->loss ? job.n : 0) : NULL;
    }
    if (a->n == 0 && !a->sum)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype, run_cross_entropy<T>(stream, job, parts))
    return lk__gpu_launched("cross_entropy");
}

/* --- sigmoid cross-entropy ---------------------------------------------------------------------------------------- */

/* The operands are {logits, targets}. */
template <typename T> struct sigmoid_loss {
    inline __device__ T operator()(const T (&x)[2]) const
    {
        float z = widen(x[0]), t = widen(x[1]);
        return narrow<T>((z > 0 ? z : 0) - z * t + log1pf(expf(-fabsf(z))));
    }
};

/* The operands are {logits, targets, dloss}. */
template <typename T> struct sigmoid_loss_gradient {
    inline __device__ T operator()(const T (&x)[3]) const
    {
        return narrow<T>((1 / (1 + expf(-widen(x[0]))) - widen(x[1])) * widen(x[2]));
    }
};

template <typename T> static void run_sigmoid(lk_gpu_stream *stream, const lk_gpu_sigmoid_cross_entropy *a)
{
    const T *logits = (const T *)a->logits, *targets = (const T *)a->targets, *dloss = (const T *)a->dloss;
    if (dloss)
        map(stream, (T *)a->dlogits, operands<T, 3>{{logits, targets, dloss}}, a->count, sigmoid_loss_gradient<T>());
    else
        map(stream, (T *)a->loss, operands<T, 2>{{logits, targets}}, a->count, sigmoid_loss<T>());
}

lk_gpu_status lk__gpu_sigmoid_cross_entropy(lk_gpu_stream *stream, const lk_gpu_sigmoid_cross_entropy *a)
{
    if (a->count == 0)
        return LK_GPU_OK;
    FOR_FLOATS(a->dtype, run_sigmoid<T>(stream, a))
    return lk__gpu_launched("sigmoid_cross_entropy");
}
