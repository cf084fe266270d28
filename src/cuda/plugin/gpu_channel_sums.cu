/* Sums over rows: Σ x, and Σ x x with it. */
#include "cuda/plugin/gpu_row_passes.cuh"

/* Σ x and, with two sums, Σ x x; each product is exact in double before it is added. */
template <typename P, int SUMS>
static __global__ void __launch_bounds__(THREADS)
    add_rows(const typename P::element *x, double *workspace, tiling t, int64_t rows_a_block)
{
    position at = position_in<P>(t);
    x = part_of(x, t);
    double sums[SUMS * P::COUNT] = {};
    each_batch_of_block(t, at, rows_a_block, [&](auto n, int64_t offset, int64_t step) {
        const int N = decltype(n)::value;
        P xs[N];
        load_packs(xs, x, offset, step);
        for (int k = 0; k < N; k++) {
            float values[P::COUNT];
            xs[k].get(values);
            for (int i = 0; i < P::COUNT; i++) {
                double value = (double)values[i], *square = &sums[(SUMS - 1) * P::COUNT + i];
                sums[i] += value;
                if (SUMS > 1)
                    *square = fma(value, value, *square);
            }
        }
    });
    store_block<P, SUMS>(sums, workspace, t, at);
}

/* Launches add_rows, which writes the sums of each block of rows to `workspace`; *blocks is how many there are. */
template <int SUMS>
static lk_gpu_status add_blocks_of_rows(lk_gpu_stream *stream, const void *x, lk_dtype dtype, int64_t rows,
                                        int64_t channels, int64_t parts, double *workspace, int *blocks)
{
    FOR_PACKS(dtype, channels, address_of(x), {
        tiling t = tiling_of<P>(rows, channels, parts, SUMS);
        row_blocks r = row_blocks_of(t);
        *blocks = r.count;
        if (r.count > 0)
            LK_GPU_RUN_TOGETHER((add_rows<P, SUMS>), dim3(t.tiles, r.count, t.parts), THREADS, stream,
                                (const typename P::element *)x, workspace, t, r.rows);
    })
    return LK_GPU_OK;
}

static __global__ void finish_channel_sums(const double *workspace, double *sums, int64_t channels, int blocks,
                                           int64_t workspace_of_part)
{
    int64_t c;
    double both[2];
    if (!add_blocks(workspace + blockIdx.y * workspace_of_part, channels, blocks, &c, both))
        return;
    sums += blockIdx.y * 2 * channels;
    sums[c] = both[0];
    sums[channels + c] = both[1];
}

lk_gpu_status lk__gpu_channel_sums(lk_gpu_stream *stream, const lk_gpu_channel_sums *a)
{
    int blocks = 0;
    if (a->channels == 0)
        return LK_GPU_OK;
    LK_GPU_TRY(add_blocks_of_rows<2>(stream, a->x, a->dtype, a->rows, a->channels, a->parts, a->workspace, &blocks));
    LK_GPU_RUN_TOGETHER(finish_channel_sums, finish_blocks(a->channels, a->parts), THREADS, stream, a->workspace,
                        a->sums, a->channels, blocks, lk_gpu_sums_workspace(a->rows, a->channels, 2));
    return lk__gpu_launched("channel_sums");
}

lk_gpu_status lk__gpu_column_sums(lk_gpu_stream *stream, const lk_gpu_column_sums *a)
{
    int blocks = 0;
    if (a->columns == 0)
        return LK_GPU_OK;
    LK_GPU_TRY(add_blocks_of_rows<1>(stream, a->x, a->dtype, a->rows, a->columns, a->parts, a->workspace, &blocks));
    FOR_FLOATS(a->sums_dtype, LK_GPU_RUN_TOGETHER(finish_column_sums<T>, finish_blocks(a->columns, a->parts), THREADS,
                                                  stream, a->workspace, (T *)a->sums, a->columns, blocks,
                                                  lk_gpu_sums_workspace(a->rows, a->columns, 1)))
    return lk__gpu_launched("column_sums");
}
