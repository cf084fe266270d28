/* Sums over the leading axes, such as the gradient of a dense layer's bias. As in the reference, each sum is in double
 * and in the order of the rows, so the bits are the same. */
#include "core/tensor.h"
#include "cpu/cpu_kernels.h"
#include "cpu/vector/eights.h"
#include "ops/ops.h"

/* Columns that are added up together. */
enum { EIGHTS = 4, COLUMNS = EIGHTS * LK_EIGHT };

LK_BODY void sum_columns(const void *x, bool bf16, int64_t rows, int64_t columns, float *y)
{
    lk_wide sums[EIGHTS] = {0};
    for (int64_t i = 0; i < rows; i++)
        for (int e = 0; e < EIGHTS; e++) {
            lk_wide values;
            eight_load_wide(&values, x, i * columns + e * LK_EIGHT, bf16);
            sums[e].low += values.low;
            sums[e].high += values.high;
        }
    for (int e = 0; e < EIGHTS; e++)
        eight_store_narrow(y, e * LK_EIGHT, &sums[e], false);
}

LK_BODY void sum_column(const void *x, bool bf16, int64_t rows, int64_t columns, float *y)
{
    double sum = 0;
    for (int64_t i = 0; i < rows; i++)
        sum += (double)lk__element(x, i * columns, bf16);
    *y = (float)sum;
}

LK_BODY void sum_rows(const void *x, bool bf16, int64_t rows, int64_t columns, float *y)
{
    const char *from = x;
    const int64_t bytes = bf16 ? sizeof(uint16_t) : sizeof(float);
    int64_t j = 0;
    for (; j + COLUMNS <= columns; j += COLUMNS)
        sum_columns(from + j * bytes, bf16, rows, columns, y + j);
    for (; j < columns; j++)
        sum_column(from + j * bytes, bf16, rows, columns, y + j);
}

LK_AVX2 static void sum_rows_avx2(const void *x, bool bf16, int64_t rows, int64_t columns, float *y)
{
    if (bf16)
        sum_rows(x, true, rows, columns, y);
    else
        sum_rows(x, false, rows, columns, y);
}

static void sum_rows_anywhere(const void *x, bool bf16, int64_t rows, int64_t columns, float *y)
{
    sum_rows(x, bf16, rows, columns, y);
}

/* Returns the number of leading axes that are summed over; 0: there are none, or others too. */
static int sum_leading_axes(const lk_call *call)
{
    unsigned axes = LK_ATTRS(call, lk_reduce_attrs)->axes;
    int n = __builtin_ctz(~axes);
    return n < call->in[0]->shape.ndim && axes >> n == 0 ? n : 0;
}

bool lk__cpu_sums_rows(const lk_call *call)
{
    bool is_f32 = call->in[0]->dtype == LK_F32 || LK_ATTRS(call, lk_reduce_attrs)->f32;
    return is_f32 && sum_leading_axes(call) > 0 && lk__tensor_is_dense(call->in[0]) &&
           (!call->out[0] || lk__tensor_is_dense(call->out[0]));
}

lk_status lk__cpu_sum_rows(lk_call *call)
{
    const lk_tensor *x = call->in[0];
    int64_t rows = 1, columns = lk_tensor_count(call->out[0]);
    for (int i = 0; i < sum_leading_axes(call); i++)
        rows *= x->shape.dim[i];
    (lk__has_avx2() ? sum_rows_avx2 : sum_rows_anywhere)(lk__data(x), x->dtype == LK_BF16, rows, columns,
                                                         lk__data(call->out[0]));
    return LK_OK;
}
