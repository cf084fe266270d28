#include "cuda/plugin/gpu_direct_matmul.h"

#include "cuda/plugin/gpu.cuh"

/* Neighboring threads compute neighboring columns. */
template <typename Y, typename T> static __global__ void direct_matmul(lk_gpu_matmul m)
{
    const T *a = (const T *)m.a, *b = (const T *)m.b;
    const Y *bias = (const Y *)m.bias;
    int64_t row_step = m.a_transposed ? 1 : m.inner, a_step = m.a_transposed ? m.rows : 1;
    int64_t column_step = m.b_transposed ? m.inner : 1, b_step = m.b_transposed ? 1 : m.columns;
    int64_t b_part = m.b_is_shared ? 0 : m.inner * m.columns;
    EACH(i, m.parts * m.rows * m.columns)
    {
        int64_t part = i / (m.rows * m.columns), row = i / m.columns % m.rows, column = i % m.columns;
        const T *first = a + part * m.rows * m.inner, *second = b + part * b_part;
        double sum = 0;
        for (int64_t k = 0; k < m.inner; k++)
            sum = fma((double)widen(first[row * row_step + k * a_step]),
                      (double)widen(second[column * column_step + k * b_step]), sum);
        sum += bias ? (double)widen(bias[column]) : 0;
        ((Y *)m.y)[i] = narrow_double<Y>(m.relu && sum <= 0 ? 0 : sum);
    }
}

template <typename Y> static lk_gpu_status run_direct_matmul(lk_gpu_stream *stream, const lk_gpu_matmul *m)
{
    lk_gpu_matmul all = *m;
    all.parts = lk_gpu_parts(m->parts);
    FOR_FLOATS(m->dtype,
               LK_GPU_RUN((direct_matmul<Y, T>), blocks_for(all.parts * m->rows * m->columns), THREADS, stream, all))
    return lk__gpu_launched("direct_matmul");
}

lk_gpu_status lk__gpu_direct_matmul(lk_gpu_stream *stream, const lk_gpu_matmul *m)
{
    if (m->rows == 0 || m->columns == 0)
        return LK_GPU_OK;
    FOR_FLOATS(m->y_dtype, return run_direct_matmul<T>(stream, m))
    return LK_GPU_OK;
}
