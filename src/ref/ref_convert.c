/* Conversion of elements of every dtype to and from the two types that kernels compute in. */
#include "ref/ref.h"

#include <string.h>

static float ref_convert_bits_to_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The case of one dtype: converts a row's elements of that C type, one by one. */
#define LOAD_CASE(dtype, type, value)                     \
    case dtype:                                           \
        for (int64_t i = 0; i < n; i++) {                 \
            type element = ((const type *)row)[i * step]; \
            out[i] = value;                               \
        }                                                 \
        break;
#define STORE_CASE(dtype, type, value)               \
    case dtype:                                      \
        for (int64_t i = 0; i < n; i++)              \
            ((type *)row)[i * step] = (type)(value); \
        break;

/* Rounds a number to bf16, to nearest even. `nearest` is the float closest to the number. `side` is positive if the
 * number is beyond that float, negative if it is closer to zero, and 0 if the two are equal. Without `side` a number
 * close to the middle between two bf16 numbers would be rounded twice: first to the middle, then to even. */
static uint16_t ref_convert_round_to_bf16(float nearest, int side)
{
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    uint32_t high = bits >> 16, low = bits & 0xFFFFu;
    if (nearest != nearest)
        return (uint16_t)(high | 0x40u); /* a quiet NaN, and never an infinity */
    bool up = low > 0x8000u || (low == 0x8000u && (side > 0 || (side == 0 && (high & 1u))));
    return (uint16_t)(high + up);
}

static uint16_t ref_convert_double_to_bf16(double value)
{
    float nearest = (float)value;
    double beyond = nearest < 0 ? (double)nearest - value : value - (double)nearest;
    return ref_convert_round_to_bf16(nearest, (beyond > 0) - (beyond < 0));
}

static uint16_t ref_convert_int_to_bf16(int64_t value)
{
    float nearest = (float)value;
    if (nearest >= 0x1p63f)
        return ref_convert_round_to_bf16(nearest, 0);
    int64_t back = (int64_t)nearest;
    return ref_convert_round_to_bf16(nearest,
                                     value < 0 ? (value < back) - (value > back) : (value > back) - (value < back));
}

static int64_t ref_convert_saturate(double value, int64_t low, int64_t high)
{
    if (value != value)
        return 0;
    if (value <= (double)low)
        return low;
    return value >= (double)high ? high : (int64_t)value;
}

static void ref_convert_load_row(lk_dtype dtype, const void *row, int64_t step, int64_t n, double *out)
{
    switch (dtype) {
        LOAD_CASE(LK_F32, float, element)
        LOAD_CASE(LK_BF16, uint16_t, ref_convert_bits_to_float((uint32_t)element << 16))
        LOAD_CASE(LK_F64, double, element)
        LOAD_CASE(LK_I32, int32_t, element)
        LOAD_CASE(LK_I64, int64_t, (double)element)
        LOAD_CASE(LK_U8, uint8_t, element)
    default:
        break;
    }
}

static void ref_convert_load_int_row(lk_dtype dtype, const void *row, int64_t step, int64_t n, int64_t *out)
{
    switch (dtype) {
        LOAD_CASE(LK_I32, int32_t, element)
        LOAD_CASE(LK_I64, int64_t, element)
        LOAD_CASE(LK_U8, uint8_t, element)
    default:
        break; /* floats are loaded as doubles */
    }
}

static void ref_convert_store_row(const double *values, int64_t n, lk_dtype dtype, void *row, int64_t step)
{
    switch (dtype) {
        STORE_CASE(LK_F32, float, values[i])
        STORE_CASE(LK_BF16, uint16_t, ref_convert_double_to_bf16(values[i]))
        STORE_CASE(LK_F64, double, values[i])
        STORE_CASE(LK_I32, int32_t, ref_convert_saturate(values[i], INT32_MIN, INT32_MAX))
        STORE_CASE(LK_I64, int64_t, ref_convert_saturate(values[i], INT64_MIN, INT64_MAX))
        STORE_CASE(LK_U8, uint8_t, ref_convert_saturate(values[i], 0, UINT8_MAX))
    default:
        break;
    }
}

static void ref_convert_store_int_row(const int64_t *values, int64_t n, lk_dtype dtype, void *row, int64_t step)
{
    switch (dtype) {
        STORE_CASE(LK_F32, float, values[i])
        STORE_CASE(LK_BF16, uint16_t, ref_convert_int_to_bf16(values[i]))
        STORE_CASE(LK_F64, double, values[i])
        STORE_CASE(LK_I32, int32_t, (uint32_t)values[i])
        STORE_CASE(LK_I64, int64_t, values[i])
        STORE_CASE(LK_U8, uint8_t, values[i])
    default:
        break;
    }
}

const double *lk__ref_load(lk_ref_scratch *scratch, lk_ref_view view)
{
    if (scratch->status == LK_OK && view.dtype == LK_F64 && lk__ref_is_dense(view))
        return view.data;
    double *values = lk__ref_new(scratch, lk__ref_count(view.shape));
    if (!values)
        return NULL;
    double *out = values;
    lk_ref_rows rows;
    for (lk__ref_rows_begin(&rows, &view, 1); rows.left > 0; lk__ref_rows_next(&rows)) {
        ref_convert_load_row(view.dtype, rows.row[0], rows.step[0], rows.length, out);
        out += rows.length;
    }
    return values;
}

const int64_t *lk__ref_load_int(lk_ref_scratch *scratch, lk_ref_view view)
{
    int64_t *values = lk__ref_new_int(scratch, lk__ref_count(view.shape));
    if (!values)
        return NULL;
    int64_t *out = values;
    lk_ref_rows rows;
    for (lk__ref_rows_begin(&rows, &view, 1); rows.left > 0; lk__ref_rows_next(&rows)) {
        ref_convert_load_int_row(view.dtype, rows.row[0], rows.step[0], rows.length, out);
        out += rows.length;
    }
    return values;
}

void lk__ref_store(const double *values, lk_ref_view view)
{
    lk_ref_rows rows;
    for (lk__ref_rows_begin(&rows, &view, 1); rows.left > 0; lk__ref_rows_next(&rows)) {
        ref_convert_store_row(values, rows.length, view.dtype, rows.row[0], rows.step[0]);
        values += rows.length;
    }
}

double lk__ref_rounded(double value, lk_dtype dtype)
{
    double element;
    ref_convert_store_row(&value, 1, dtype, &element, 1);
    ref_convert_load_row(dtype, &element, 1, 1, &value);
    return value;
}

void lk__ref_store_int(const int64_t *values, lk_ref_view view)
{
    lk_ref_rows rows;
    for (lk__ref_rows_begin(&rows, &view, 1); rows.left > 0; lk__ref_rows_next(&rows)) {
        ref_convert_store_int_row(values, rows.length, view.dtype, rows.row[0], rows.step[0]);
        values += rows.length;
    }
}
