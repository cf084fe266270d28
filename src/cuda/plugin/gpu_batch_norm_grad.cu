/* Gradients of batch normalization and of what follows it. Bound by memory bandwidth. */
#include "cuda/plugin/gpu_normalization.cuh"

/* Sets dy to 0 where y is not above 0. */
template <typename P> static inline __device__ void mask(float (&dy)[P::COUNT], const P &y)
{
    float values[P::COUNT];
    y.get(values);
    for (int i = 0; i < P::COUNT; i++)
        dy[i] = values[i] > 0 ? dy[i] : 0;
}

/* Sets dy to 0 where the lines' y, rounded as it was when it was written, is not above 0. */
template <typename P>
static inline __device__ void mask(float (&dy)[P::COUNT], const float (&x)[P::COUNT], const line (&lines)[P::COUNT])
{
    for (int i = 0; i < P::COUNT; i++)
        dy[i] = rounded<P>(lines[i].at(x[i])) > 0 ? dy[i] : 0;
}

enum masking { NOT_MASKED, MASKED_BY_Y, MASKED_BY_X, DROPPED };

/* The y of MASKED_BY_Y; the bits of DROPPED, and what elements that are kept are multiplied by. */
template <typename T> struct masks {
    const T *y;
    const uint8_t *kept;
    double scale;

    inline __device__ masks of_part(const tiling &t, int count) const
    {
        return {part_of(y, t), kept ? kept + blockIdx.z * t.rows * t.channels / count : kept, scale};
    }
};

/* The operands of a gradient in N rows: dy, what is added to it with MORE, x if X, and what masks dy. */
template <typename P, int N, bool X, masking MASK, bool MORE> struct gradient_rows {
    P dys[N], more[N], xs[N], ys[N];
    unsigned kept[N];
    double scale;

    inline __device__ gradient_rows(const typename P::element *dy, const typename P::element *more_dy,
                                    const typename P::element *x, const masks<typename P::element> &mask,
                                    int64_t offset, int64_t step)
        : scale(mask.scale)
    {
        load_packs(dys, dy, offset, step);
        if (MORE)
            load_packs(more, more_dy, offset, step);
        if (X)
            load_packs(xs, x, offset, step);
        if (MASK == MASKED_BY_Y)
            load_packs(ys, mask.y, offset, step);
        for (int k = 0; k < N && MASK == DROPPED; k++)
            kept[k] = mask.kept[(offset + k * step) / P::COUNT];
    }

    inline __device__ void get_unmasked(int k, float (&d)[P::COUNT]) const
    {
        float added[P::COUNT];
        dys[k].get(d);
        if (!MORE)
            return;
        more[k].get(added);
        for (int i = 0; i < P::COUNT; i++)
            d[i] = rounded<P>(d[i] + added[i]);
    }

    /* lines: of MASKED_BY_X. */
    inline __device__ void get(int k, const line (&lines)[P::COUNT], float (&d)[P::COUNT],
                               float (&values)[P::COUNT]) const
    {
        get_unmasked(k, d);
        if (X)
            xs[k].get(values);
        if (MASK == MASKED_BY_Y)
            mask(d, ys[k]);
        if (MASK == MASKED_BY_X)
            mask<P>(d, values, lines);
        for (int i = 0; i < P::COUNT && MASK == DROPPED; i++)
            d[i] = kept[k] >> i & 1 ? rounded<P>((float)((double)d[i] * scale)) : 0;
    }
};

/* Adds a row to Σ d and Σ d x; each product is exact in double before it is added. */
template <typename P, int N>
static inline __device__ void add_products(double (&sums)[N], const float (&d)[P::COUNT],
                                           const float (&values)[P::COUNT])
{
    for (int i = 0; i < P::COUNT; i++) {
        sums[i] += (double)d[i];
        sums[P::COUNT + i] = fma((double)d[i], (double)values[i], sums[P::COUNT + i]);
    }
}

/* Σ dy and Σ dy x. A third sum is that of dresidual; only if it is that of dy and `more`. */
template <typename P, masking MASK, bool MORE, int SUMS>
static __global__ void __launch_bounds__(THREADS, SUMS == 3 ? 2 : 1)
    add_gradients(const typename P::element *dy, const typename P::element *more, masks<typename P::element> mask,
                  const typename P::element *x, typename P::element *dresidual, normalization forward,
                  double *workspace, tiling t, int64_t rows_a_block)
{
    position at = position_in<P>(t);
    line lines[P::COUNT] = {};
    if (MASK == MASKED_BY_X)
        find_lines<P>(forward, t, at, lines);
    dy = part_of(dy, t);
    more = part_of(more, t);
    mask = mask.of_part(t, P::COUNT);
    x = part_of(x, t);
    dresidual = part_of(dresidual, t);
    double sums[SUMS * P::COUNT] = {};
    each_batch_of_block<SUMS == 3 ? FEW : BATCH>(t, at, rows_a_block, [&](auto n, int64_t offset, int64_t step) {
        const int N = decltype(n)::value;
        gradient_rows<P, N, true, MASK, MORE> rows(dy, more, x, mask, offset, step);
        for (int k = 0; k < N; k++) {
            float d[P::COUNT], values[P::COUNT];
            if (MASK == MASKED_BY_X && MORE) {
                rows.get_unmasked(k, d);
                store<P>(dresidual + offset + k * step, d);
                for (int i = 0; i < P::COUNT && SUMS == 3; i++)
                    sums[2 * P::COUNT + i] += (double)d[i];
            }
            rows.get(k, lines, d, values);
            if (MASK == MASKED_BY_Y && dresidual)
                store<P>(dresidual + offset + k * step, d);
            add_products<P>(sums, d, values);
        }
    });
    store_block<P, SUMS>(sums, workspace, t, at);
}

/* The operands of a gradient through max pooling; `more` may be NULL. */
template <typename T> struct pooled {
    const T *dy, *more;
    const uint8_t *where;
    windows w;
    int64_t part; /* elements */

    inline __device__ pooled of_part() const
    {
        int64_t at = blockIdx.z * part;
        return {dy + at, more ? more + at : more, where + at, w, part};
    }
};

/* The gradients of N rows of what was pooled. */
template <typename P, int N> struct pooled_rows {
    P dys[N], more[N];
    taps_of_pack<P> places[N] = {};
    unsigned taps[N];
    bool inside[N], has_more;

    inline __device__ pooled_rows(const pooled<typename P::element> &from, int64_t row, int lanes, int64_t channels,
                                  int64_t channel)
        : has_more(from.more)
    {
        for (int k = 0; k < N; k++) {
            int64_t of_y;
            inside[k] = from.w.find(row + k * lanes, &of_y, &taps[k]);
            if (!inside[k])
                continue;
            int64_t offset = of_y * channels + channel;
            dys[k] = load<P>(from.dy + offset);
            if (has_more)
                more[k] = load<P>(from.more + offset);
            places[k] = *in_one_access<const taps_of_pack<P>>(from.where + offset);
        }
    }

    /* Adds to 0, as max pooling's gradient does: there is no -0. */
    inline __device__ void get(int k, float (&d)[P::COUNT]) const
    {
        float added[P::COUNT] = {};
        for (int i = 0; i < P::COUNT; i++)
            d[i] = 0;
        if (!inside[k])
            return;
        dys[k].get(d);
        if (has_more)
            more[k].get(added);
        for (int i = 0; i < P::COUNT; i++) {
            float sum = has_more ? rounded<P>(d[i] + added[i]) : d[i];
            d[i] = places[k].at[i] == taps[k] ? 0 + sum : 0;
        }
    }
};

/* Σ dy and Σ dy x as above, masked by x, with dy from the pooling's gradient, which goes to dresidual. */
template <typename P>
static __global__ void __launch_bounds__(THREADS, 2)
    add_pooled_gradients(pooled<typename P::element> from, const typename P::element *x, typename P::element *dresidual,
                         normalization forward, double *workspace, tiling t, int64_t rows_a_block)
{
    position at = position_in<P>(t);
    line lines[P::COUNT] = {};
    find_lines<P>(forward, t, at, lines);
    from = from.of_part();
    x = part_of(x, t);
    dresidual = part_of(dresidual, t);
    double sums[2 * P::COUNT] = {};
    each_batch_of_block<FEW>(t, at, rows_a_block, [&](auto n, int64_t offset, int64_t step) {
        const int N = decltype(n)::value;
        P xs[N];
        pooled_rows<P, N> rows(from, offset / t.channels, t.lanes, t.channels, at.channel);
        load_packs(xs, x, offset, step);
        for (int k = 0; k < N; k++) {
            float d[P::COUNT], values[P::COUNT];
            rows.get(k, d);
            store<P>(dresidual + offset + k * step, d);
            xs[k].get(values);
            mask<P>(d, values, lines);
            add_products<P>(sums, d, values);
        }
    });
    store_block<P, 2>(sums, workspace, t, at);
}

/* dx = a dy + b (x - mean) + c. Each array has a value for each channel. The line (mean, a, shift) is that of the
 * forward pass if dy is masked by x. */
struct planes {
    float *a, *b, *mean, *c, *shift;

    /* Those of a part, which are in its workspace. */
    inline __device__ planes of_part(unsigned part, int64_t workspace) const
    {
        int64_t at = part * workspace * (int64_t)(sizeof(double) / sizeof(float));
        return {a + at, b + at, mean + at, c + at, shift + at};
    }
};

/* dgamma = Σ dy (x - mean) inverse, dbeta = Σ dy, and
 *   dx = gamma inverse (dy - dbeta / count - (x - mean) inverse dgamma / count)
 * if the normalization used x's own sums, otherwise dx = gamma inverse dy. With mean = s1 / count and
 * variance = s2 / count - mean^2:
 *   dmean = -gamma inverse dbeta,  dvariance = -gamma inverse^2 dgamma / 2,
 *   ds1 = (dmean - 2 mean dvariance) / count,  ds2 = dvariance / count. */
template <int SUMS>
static __global__ void finish_gradients(lk_gpu_normalize_grad g, int blocks, planes all, int64_t workspace_of_part)
{
    int64_t c;
    double sums[SUMS];
    unsigned part = blockIdx.y;
    if (!add_blocks(g.workspace + part * workspace_of_part, g.channels, blocks, &c, sums))
        return;
    planes dx = all.of_part(part, workspace_of_part);
    moments m = channel_moments(g.statistics, g.channels, c, part);
    double count = (double)g.statistics.count, scale = (double)g.gamma[c] * m.inverse;
    double dbeta = sums[0], dgamma = blocks > 0 ? (sums[1] - m.mean * sums[0]) * m.inverse : 0;
    bool through = g.through == LK_GPU_THROUGH_SUMS;
    double b = through ? -scale * m.inverse * dgamma / count : 0;
    g.dgamma[part * g.channels + c] = (float)dgamma;
    g.dbeta[part * g.channels + c] = (float)dbeta;
    if (SUMS == 3)
        g.d_sums[part * g.channels + c] = (float)sums[SUMS - 1];
    dx.a[c] = (float)scale;
    dx.b[c] = (float)b;
    dx.mean[c] = (float)m.mean;
    if (g.act_beta)
        dx.shift[c] = normalization{g.statistics, g.gamma, g.act_beta}.of(g.channels, c, part).shift;
    dx.c[c] = through ? (float)(-scale * dbeta / count - b * rest_of(m.mean)) : 0;
    if (g.through == LK_GPU_SUMS_HELD) {
        double dvariance = -scale * m.inverse * dgamma / 2, *dsums = g.dsums + part * 2 * g.channels;
        dsums[c] = (-scale * dbeta - 2 * m.mean * dvariance) / count;
        dsums[g.channels + c] = dvariance / count;
    }
}

/* Computes dx as `planes` says; without X, dx = a dy. With SUMS each block of threads takes rows_a_block rows and
 * writes their sums of dx to the workspace, as add_rows does. */
template <typename P, bool X, masking MASK, bool SUMS>
static __global__ void __launch_bounds__(THREADS, 2)
    apply_planes(const typename P::element *dy, masks<typename P::element> mask, const typename P::element *x,
                 typename P::element *dx, planes all, double *workspace, tiling t, int64_t rows_a_block)
{
    position at = position_in<P>(t);
    planes planes = all.of_part(blockIdx.z, t.workspace);
    dy = part_of(dy, t);
    mask = mask.of_part(t, P::COUNT);
    x = part_of(x, t);
    dx = part_of(dx, t);
    float a[P::COUNT] = {}, b[P::COUNT] = {}, mean[P::COUNT] = {}, c[P::COUNT] = {};
    line lines[P::COUNT] = {};
    for (int i = 0; i < P::COUNT && at.inside; i++) {
        a[i] = planes.a[at.channel + i];
        b[i] = planes.b[at.channel + i];
        mean[i] = planes.mean[at.channel + i];
        c[i] = planes.c[at.channel + i];
        if (MASK == MASKED_BY_X)
            lines[i] = {mean[i], a[i], planes.shift[at.channel + i]};
    }
    double sums[P::COUNT] = {};
    auto visit = [&](auto n, int64_t offset, int64_t step) {
        const int N = decltype(n)::value;
        gradient_rows<P, N, X, MASK, false> rows(dy, nullptr, x, mask, offset, step);
        for (int k = 0; k < N; k++) {
            float d[P::COUNT], values[P::COUNT];
            rows.get(k, lines, d, values);
            for (int i = 0; i < P::COUNT; i++) {
                d[i] = X ? fmaf(a[i], d[i], fmaf(b[i], values[i] - mean[i], c[i])) : a[i] * d[i];
                if (SUMS)
                    sums[i] += (double)rounded<P>(d[i]);
            }
            store<P>(dx + offset + k * step, d);
        }
    };
    if (!SUMS) {
        each_batch_of_pass(t, at, visit);
        return;
    }
    each_batch_of_block(t, at, rows_a_block, visit);
    store_block<P, 1>(sums, workspace, t, at);
}

/* Launches the kernels of an lk_gpu_normalize_grad with the packs P. */
template <typename P> struct gradients {
    typedef typename P::element T;
    lk_gpu_stream *stream;
    lk_gpu_normalize_grad g;
    tiling t;
    row_blocks r;
    planes dx;

    masks<T> mask() const
    {
        return {(const T *)g.act_y, g.kept, 1 / (1 - g.rate)};
    }

    template <masking MASK, bool MORE, int SUMS = 2> void add()
    {
        normalization forward = {g.statistics, g.gamma, g.act_beta};
        LK_GPU_RUN_TOGETHER((add_gradients<P, MASK, MORE, SUMS>), dim3(t.tiles, r.count, t.parts), THREADS, stream,
                            (const T *)g.dy, (const T *)g.more, mask(), (const T *)g.x, (T *)g.dresidual, forward,
                            g.workspace, t, r.rows);
    }

    template <masking MASK> void add()
    {
        g.more ? add<MASK, true>() : add<MASK, false>();
    }

    void add_pooled()
    {
        const lk_geometry &w = g.window;
        pooled<T> from = {(const T *)g.dy, (const T *)g.more, g.where, windows_of(w),
                          w.images * w.out[0] * w.out[1] * w.channels};
        LK_GPU_RUN_TOGETHER(add_pooled_gradients<P>, dim3(t.tiles, r.count, t.parts), THREADS, stream, from,
                            (const T *)g.x, (T *)g.dresidual, normalization{g.statistics, g.gamma, g.act_beta},
                            g.workspace, t, r.rows);
    }

    template <int SUMS> void finish()
    {
        LK_GPU_RUN_TOGETHER(finish_gradients<SUMS>, finish_blocks(g.channels, t.parts), THREADS, stream, g, r.count, dx,
                            t.workspace);
    }

    template <bool X, masking MASK, bool SUMS> void apply_to(dim3 grid)
    {
        LK_GPU_RUN_TOGETHER((apply_planes<P, X, MASK, SUMS>), grid, THREADS, stream, (const T *)g.dy, mask(),
                            (const T *)g.x, (T *)g.dx, dx, g.workspace, t, r.rows);
    }

    /* The sums of blocks take the place of those of dy, which have been added. */
    template <masking MASK> void apply()
    {
        if (g.dx_sums)
            apply_to<true, MASK, true>(dim3(t.tiles, r.count, t.parts));
        else
            apply_to<true, MASK, false>(pass_grid(t, BATCH));
    }

    void start()
    {
        if (r.count > 0)
            g.kept       ? add<DROPPED, false>()
            : g.where    ? add_pooled()
            : g.d_sums   ? add<MASKED_BY_X, true, 3>()
            : g.act_beta ? add<MASKED_BY_X>()
            : g.act_y    ? add<MASKED_BY_Y>()
                         : add<NOT_MASKED, false>();
        g.d_sums ? finish<3>() : finish<2>();
        if (g.dresidual) { /* it now holds dy, masked by act_y, or unmasked */
            g.dy = g.dresidual;
            g.act_y = nullptr;
        }
        if (r.count > 0 && g.through == LK_GPU_THROUGH_SUMS)
            g.kept       ? apply<DROPPED>()
            : g.act_beta ? apply<MASKED_BY_X>()
            : g.act_y    ? apply<MASKED_BY_Y>()
                         : apply<NOT_MASKED>();
        else if (r.count > 0)
            g.act_y ? apply_to<false, MASKED_BY_Y, false>(pass_grid(t, BATCH))
                    : apply_to<false, NOT_MASKED, false>(pass_grid(t, BATCH));
        if (g.dx_sums)
            LK_GPU_RUN_TOGETHER(finish_column_sums<float>, finish_blocks(g.channels, t.parts), THREADS, stream,
                                g.workspace, g.dx_sums, g.channels, r.count, t.workspace);
    }
};

template <typename P> static void start_gradients(lk_gpu_stream *stream, const lk_gpu_normalize_grad *g)
{
    int sums = g->d_sums ? 3 : 2;
    tiling t = tiling_of<P>(g->rows, g->channels, g->parts, sums);
    row_blocks r = row_blocks_of(t);
    /* The constants are in the workspace, behind the sums of the blocks. */
    float *constants = (float *)(g->workspace + sums * g->channels * r.count);
    planes dx = {constants, constants + g->channels, constants + 2 * g->channels, constants + 3 * g->channels,
                 constants + 4 * g->channels};
    gradients<P>{stream, *g, t, r, dx}.start();
}

lk_gpu_status lk__gpu_normalize_grad(lk_gpu_stream *stream, const lk_gpu_normalize_grad *a)
{
    if (a->channels == 0)
        return LK_GPU_OK;
    uintptr_t addresses = address_of(a->dy) | address_of(a->more) | address_of(a->act_y) | address_of(a->x) |
                          address_of(a->dx) | address_of(a->dresidual) | address_of(a->where);
    FOR_PACKS(a->dtype, a->channels, addresses, start_gradients<P>(stream, a))
    return lk__gpu_launched("normalize_grad");
}
