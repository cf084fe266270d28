#include "pjrt/lower_text.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const type_names[LK_HLO_TYPES] = {
    [LK_F32] = "f32", [LK_BF16] = "bf16",   [LK_F64] = "f64",      [LK_I32] = "i32",      [LK_I64] = "i64",
    [LK_U8] = "ui8",  [LK_HLO_BOOL] = "i1", [LK_HLO_U32] = "ui32", [LK_HLO_U64] = "ui64",
};

static bool lower_is_float(int type)
{
    return type < LK_DTYPE_COUNT && lk__dtype_is_float((lk_dtype)type);
}

/* --- text --------------------------------------------------------------------------------------------------------- */

void lk__hlo_put(lk_hlo_text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (text->status == LK_OK)
        text->status = LK_GROW(text->data, &text->capacity, text->size + n + 1);
    if (text->status != LK_OK)
        return;
    va_start(list, format);
    vsnprintf(text->data + text->size, (size_t)n + 1, format, list);
    va_end(list);
    text->size += n;
}

void lk__hlo_put_type(lk_hlo_text *text, const lk_hlo *value)
{
    lk__hlo_put(text, "tensor<");
    for (int i = 0; i < value->rank; i++)
        lk__hlo_put(text, "%" PRId64 "x", value->size[i]);
    lk__hlo_put(text, "%s>", type_names[value->type]);
}

void lk__hlo_put_name(lk_hlo_text *text, const lk_hlo *value)
{
    if (value->number < 0)
        lk__hlo_put(text, "%%step");
    else
        lk__hlo_put(text, value->is_parameter ? "%%p%d" : "%%%d", value->number);
}

/* Appends "2, 3, 4". */
static void lower_put_list(lk_hlo_text *text, const int64_t *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        lk__hlo_put(text, "%s%" PRId64, i ? ", " : "", values[i]);
}

/* Appends " = [2, 3, 4]", after a name. */
static void lower_put_axes(lk_hlo_text *text, const char *name, const int64_t *values, int64_t n)
{
    lk__hlo_put(text, "%s = [", name);
    lower_put_list(text, values, n);
    lk__hlo_put(text, "]");
}

/* Begins the line "%7 = stablehlo.op" of a new value. */
static lk_hlo lower_begin(lk_lowering *l, const char *op, int type, int rank, const int64_t *size)
{
    lk_hlo value = {.number = l->values++, .type = type, .rank = rank};
    for (int i = 0; i < rank; i++)
        value.size[i] = size[i];
    lk__hlo_put(&l->body, "    %%%d = stablehlo.%s", value.number, op);
    return value;
}

/* Appends " %3, %4". */
static void lower_put_operands(lk_lowering *l, const lk_hlo *operands, int n)
{
    for (int i = 0; i < n; i++) {
        lk__hlo_put(&l->body, i ? ", " : " ");
        lk__hlo_put_name(&l->body, &operands[i]);
    }
}

/* Ends a line with " : type", for operations whose operands have the result's type. */
static lk_hlo lower_end(lk_lowering *l, lk_hlo value)
{
    lk__hlo_put(&l->body, " : ");
    lk__hlo_put_type(&l->body, &value);
    lk__hlo_put(&l->body, "\n");
    return value;
}

/* Ends a line with " : (types of operands) -> type". */
static lk_hlo lower_end_function(lk_lowering *l, const lk_hlo *operands, int n, lk_hlo value)
{
    lk__hlo_put(&l->body, " : (");
    for (int i = 0; i < n; i++) {
        lk__hlo_put(&l->body, i ? ", " : "");
        lk__hlo_put_type(&l->body, &operands[i]);
    }
    lk__hlo_put(&l->body, ") -> ");
    lk__hlo_put_type(&l->body, &value);
    lk__hlo_put(&l->body, "\n");
    return value;
}

/* --- constants ---------------------------------------------------------------------------------------------------- */

/* Rounds to nearest even. */
static uint16_t lower_bf16_bits(double value)
{
    float nearest = (float)value;
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    if (isnan(value))
        return 0x7FC0;
    double beyond = fabs(value) - fabs((double)nearest);
    uint32_t low = bits & 0xFFFFu, high = bits >> 16;
    bool up = low > 0x8000u || (low == 0x8000u && (beyond > 0 || (beyond == 0 && (high & 1u))));
    return (uint16_t)(high + up);
}

/* Floats are written as their bits, which no reader rounds again; small whole numbers for readers' sake as numbers. */
static void lower_put_float(lk_lowering *l, int type, double value)
{
    uint64_t bits = 0;
    float single = (float)value;
    if (fabs(value) < 256 && value == floor(value) && !(value == 0 && signbit(value))) {
        lk__hlo_put(&l->body, "%d.0", (int)value);
    } else if (type == LK_BF16) {
        lk__hlo_put(&l->body, "0x%04X", lower_bf16_bits(value));
    } else if (type == LK_F32) {
        memcpy(&bits, &single, sizeof single);
        lk__hlo_put(&l->body, "0x%08" PRIX64, bits);
    } else {
        memcpy(&bits, &value, sizeof value);
        lk__hlo_put(&l->body, "0x%016" PRIX64, bits);
    }
}

lk_hlo lk__hlo_number(lk_lowering *l, int type, double value)
{
    lk_hlo scalar = lower_begin(l, "constant dense<", type, 0, NULL);
    if (lower_is_float(type))
        lower_put_float(l, type, value);
    else if (type == LK_HLO_BOOL)
        lk__hlo_put(&l->body, value != 0 ? "true" : "false");
    else
        lk__hlo_put(&l->body, "%" PRId64, (int64_t)value);
    lk__hlo_put(&l->body, ">");
    return lower_end(l, scalar);
}

lk_hlo lk__hlo_integer(lk_lowering *l, int type, int64_t value)
{
    lk_hlo scalar = lower_begin(l, "constant dense<", type, 0, NULL);
    lk__hlo_put(&l->body, "%" PRId64 ">", value);
    return lower_end(l, scalar);
}

lk_hlo lk__hlo_vector(lk_lowering *l, int type, const int64_t *values, int64_t n)
{
    lk_hlo vector = lower_begin(l, "constant dense<[", type, 1, &n);
    for (int64_t i = 0; i < n; i++)
        lk__hlo_put(&l->body, "%s%" PRId64 "%s", i ? ", " : "", values[i], lower_is_float(type) ? ".0" : "");
    lk__hlo_put(&l->body, "]>");
    return lower_end(l, vector);
}

lk_hlo lk__hlo_fill(lk_lowering *l, lk_hlo value, lk_hlo like)
{
    return lk__hlo_broadcast(l, value, like, (int[LK_HLO_AXES]){0});
}

lk_hlo lk__hlo_iota(lk_lowering *l, int type, lk_hlo like, int axis)
{
    lk_hlo value = lower_begin(l, "iota dim = ", type, like.rank, like.size);
    lk__hlo_put(&l->body, "%d", axis);
    return lower_end(l, value);
}

/* --- element by element ------------------------------------------------------------------------------------------- */

static bool lower_same_shape(const lk_hlo *a, const lk_hlo *b)
{
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = a->size[i] == b->size[i];
    return same;
}

/* Returns the shape of a and b after broadcasting. */
static lk_hlo lower_broadcast_shape(const lk_hlo *a, const lk_hlo *b)
{
    lk_hlo like = a->rank >= b->rank ? *a : *b;
    const lk_hlo *other = a->rank >= b->rank ? b : a;
    for (int i = 0; i < other->rank; i++) {
        int64_t *size = &like.size[like.rank - other->rank + i];
        if (*size == 1)
            *size = other->size[i];
    }
    return like;
}

static lk_hlo lower_broadcast_to(lk_lowering *l, lk_hlo x, const lk_hlo *like)
{
    int axes[LK_HLO_AXES];
    if (lower_same_shape(&x, like))
        return x;
    for (int i = 0; i < x.rank; i++)
        axes[i] = like->rank - x.rank + i;
    return lk__hlo_broadcast(l, x, *like, axes);
}

lk_hlo lk__hlo_unary(lk_lowering *l, const char *op, lk_hlo x)
{
    lk_hlo y = lower_begin(l, op, x.type, x.rank, x.size);
    lower_put_operands(l, &x, 1);
    return lower_end(l, y);
}

lk_hlo lk__hlo_binary(lk_lowering *l, const char *op, lk_hlo a, lk_hlo b)
{
    lk_hlo like = lower_broadcast_shape(&a, &b);
    lk_hlo operands[] = {lower_broadcast_to(l, a, &like), lower_broadcast_to(l, b, &like)};
    lk_hlo y = lower_begin(l, op, a.type, like.rank, like.size);
    lower_put_operands(l, operands, 2);
    return lower_end(l, y);
}

lk_hlo lk__hlo_add(lk_lowering *l, lk_hlo a, lk_hlo b)
{
    return lk__hlo_binary(l, "add", a, b);
}

lk_hlo lk__hlo_sub(lk_lowering *l, lk_hlo a, lk_hlo b)
{
    return lk__hlo_binary(l, "subtract", a, b);
}

lk_hlo lk__hlo_mul(lk_lowering *l, lk_hlo a, lk_hlo b)
{
    return lk__hlo_binary(l, "multiply", a, b);
}

/* XLA turns a division by a constant, or by a number for a whole row, into a product with its reciprocal. A divisor
 * that seems to depend on the dividend prevents it, and changes no number. */
lk_hlo lk__hlo_div(lk_lowering *l, lk_hlo a, lk_hlo b)
{
    if (lower_is_float(a.type))
        b = lk__hlo_select(l, lk__hlo_is_nan(l, a), lk__hlo_number(l, a.type, NAN), b);
    return lk__hlo_binary(l, "divide", a, b);
}

lk_hlo lk__hlo_and(lk_lowering *l, lk_hlo a, lk_hlo b)
{
    return lk__hlo_binary(l, "and", a, b);
}

lk_hlo lk__hlo_or(lk_lowering *l, lk_hlo a, lk_hlo b)
{
    return lk__hlo_binary(l, "or", a, b);
}

lk_hlo lk__hlo_compare(lk_lowering *l, lk_hlo a, const char *direction, lk_hlo b)
{
    lk_hlo like = lower_broadcast_shape(&a, &b);
    lk_hlo operands[] = {lower_broadcast_to(l, a, &like), lower_broadcast_to(l, b, &like)};
    lk_hlo y = lower_begin(l, "compare ", LK_HLO_BOOL, like.rank, like.size);
    lk__hlo_put(&l->body, "%s,", direction);
    lower_put_operands(l, operands, 2);
    return lower_end_function(l, operands, 2, y);
}

lk_hlo lk__hlo_select(lk_lowering *l, lk_hlo condition, lk_hlo yes, lk_hlo no)
{
    lk_hlo like = lower_broadcast_shape(&yes, &no);
    like = lower_broadcast_shape(&like, &condition);
    lk_hlo operands[] = {lower_broadcast_to(l, condition, &like), lower_broadcast_to(l, yes, &like),
                         lower_broadcast_to(l, no, &like)};
    lk_hlo y = lower_begin(l, "select", yes.type, like.rank, like.size);
    lower_put_operands(l, operands, 3);
    return lower_end_function(l, operands, 3, y);
}

lk_hlo lk__hlo_is_nan(lk_lowering *l, lk_hlo x)
{
    return lk__hlo_compare(l, x, "NE", x);
}

lk_hlo lk__hlo_is_finite(lk_lowering *l, lk_hlo x)
{
    lk_hlo infinity = lk__hlo_number(l, x.type, (double)INFINITY);
    return lk__hlo_compare(l, lk__hlo_unary(l, "abs", x), "LT", infinity);
}

/* XLA lets LLVM contract a product and an addition to one fused operation. A selection between them prevents it, and
 * changes no number. */
lk_hlo lk__hlo_rounded_mul(lk_lowering *l, lk_hlo a, lk_hlo b)
{
    lk_hlo product = lk__hlo_mul(l, a, b);
    if (!lower_is_float(product.type))
        return product;
    return lk__hlo_select(l, lk__hlo_is_nan(l, product), lk__hlo_number(l, product.type, NAN), product);
}

/* --- conversion --------------------------------------------------------------------------------------------------- */

static lk_hlo lower_convert_type(lk_lowering *l, lk_hlo x, int type)
{
    lk_hlo y = lower_begin(l, "convert", type, x.rank, x.size);
    lower_put_operands(l, &x, 1);
    return lower_end_function(l, &x, 1, y);
}

/* The same bits as another type. */
static lk_hlo lower_bits_as(lk_lowering *l, lk_hlo x, int type)
{
    lk_hlo y = lower_begin(l, "bitcast_convert", type, x.rank, x.size);
    lower_put_operands(l, &x, 1);
    return lower_end_function(l, &x, 1, y);
}

/* Converts f64 to f32 toward 0, and sets the last bit of what is not exact. A later rounding to fewer bits then gives
 * the bits of one rounding (Boldo, Melquiond: "Emulation of FMA and correctly rounded sums", IEEE TC 57(4), 2008). */
static lk_hlo lower_round_to_odd(lk_lowering *l, lk_hlo x)
{
    lk_hlo nearest = lower_convert_type(l, x, LK_F32), back = lower_convert_type(l, nearest, LK_F64);
    lk_hlo is_beyond = lk__hlo_compare(l, lk__hlo_unary(l, "abs", back), "GT", lk__hlo_unary(l, "abs", x));
    lk_hlo is_inexact = lk__hlo_compare(l, back, "NE", x);
    lk_hlo bits = lower_bits_as(l, nearest, LK_HLO_U32);
    bits = lk__hlo_sub(l, bits, lower_convert_type(l, is_beyond, LK_HLO_U32));
    return lower_bits_as(l, lk__hlo_or(l, bits, lower_convert_type(l, is_inexact, LK_HLO_U32)), LK_F32);
}

/* Rounds f32 to the precision of bf16 without changing the type. XLA may otherwise drop a conversion to bf16 that
 * another one back to f32 follows. */
static lk_hlo lower_round_to_bf16(lk_lowering *l, lk_hlo x)
{
    lk_hlo y = lower_begin(l, "reduce_precision", x.type, x.rank, x.size);
    lower_put_operands(l, &x, 1);
    lk__hlo_put(&l->body, ", format = e8m7");
    return lower_end(l, y);
}

static lk_hlo lower_float_to_integer(lk_lowering *l, lk_hlo x, int type)
{
    static const double least[LK_DTYPE_COUNT] = {[LK_I32] = INT32_MIN, [LK_I64] = (double)INT64_MIN};
    static const double most[LK_DTYPE_COUNT] = {[LK_I32] = INT32_MAX, [LK_I64] = 0x1p63, [LK_U8] = UINT8_MAX};
    if (type == LK_I32)
        x = lower_convert_type(l, x, LK_F64); /* f32 has no 2^31 - 1 */
    lk_hlo low = lk__hlo_number(l, x.type, least[type]), high = lk__hlo_number(l, x.type, most[type]);
    lk_hlo is_high = lk__hlo_compare(l, x, "GE", high), is_low = lk__hlo_compare(l, x, "LE", low);
    lk_hlo outside = lk__hlo_or(l, lk__hlo_or(l, is_high, is_low), lk__hlo_is_nan(l, x));
    lk_hlo zero = lk__hlo_number(l, x.type, 0);
    lk_hlo y = lower_convert_type(l, lk__hlo_select(l, outside, zero, x), type);
    y = lk__hlo_select(l, is_high, lk__hlo_integer(l, type, type == LK_I64 ? INT64_MAX : (int64_t)most[type]), y);
    return lk__hlo_select(l, is_low, lk__hlo_integer(l, type, (int64_t)least[type]), y);
}

lk_hlo lk__hlo_convert(lk_lowering *l, lk_hlo x, int type)
{
    if (x.type == type)
        return x;
    if (type == LK_BF16 && !lower_is_float(x.type))
        x = lower_convert_type(l, x, LK_F64);
    if (type == LK_BF16)
        x = lower_round_to_bf16(l, x.type == LK_F64 ? lower_round_to_odd(l, x) : x);
    if (lower_is_float(x.type) && type < LK_DTYPE_COUNT && !lower_is_float(type))
        return lower_float_to_integer(l, x, type);
    return lower_convert_type(l, x, type);
}

/* --- shapes ------------------------------------------------------------------------------------------------------- */

int64_t lk__hlo_count(const lk_hlo *value)
{
    int64_t count = 1;
    for (int i = 0; i < value->rank; i++)
        count *= value->size[i];
    return count;
}

lk_hlo lk__hlo_like(int type, lk_shape shape)
{
    lk_hlo like = {.type = type, .rank = shape.ndim};
    for (int i = 0; i < shape.ndim; i++)
        like.size[i] = shape.dim[i];
    return like;
}

lk_hlo lk__hlo_reshape(lk_lowering *l, lk_hlo x, int rank, const int64_t *size)
{
    lk_hlo like = {.rank = rank};
    for (int i = 0; i < rank; i++)
        like.size[i] = size[i];
    if (lower_same_shape(&x, &like))
        return x;
    lk_hlo y = lower_begin(l, "reshape", x.type, rank, size);
    lower_put_operands(l, &x, 1);
    return lower_end_function(l, &x, 1, y);
}

lk_hlo lk__hlo_reshape_as(lk_lowering *l, lk_hlo x, lk_shape shape)
{
    return lk__hlo_reshape(l, x, shape.ndim, shape.dim);
}

lk_hlo lk__hlo_transpose(lk_lowering *l, lk_hlo x, const int *order)
{
    int64_t size[LK_HLO_AXES], axes[LK_HLO_AXES];
    bool moves = false;
    for (int i = 0; i < x.rank; i++) {
        axes[i] = order[i];
        size[i] = x.size[order[i]];
        moves |= order[i] != i;
    }
    if (!moves)
        return x;
    lk_hlo y = lower_begin(l, "transpose", x.type, x.rank, size);
    lower_put_operands(l, &x, 1);
    lower_put_axes(&l->body, ", dims", axes, x.rank);
    return lower_end_function(l, &x, 1, y);
}

lk_hlo lk__hlo_broadcast(lk_lowering *l, lk_hlo x, lk_hlo like, const int *axes)
{
    int64_t positions[LK_HLO_AXES];
    for (int i = 0; i < x.rank; i++)
        positions[i] = axes[i];
    lk_hlo y = lower_begin(l, "broadcast_in_dim", x.type, like.rank, like.size);
    lower_put_operands(l, &x, 1);
    lower_put_axes(&l->body, ", dims", positions, x.rank);
    return lower_end_function(l, &x, 1, y);
}

lk_hlo lk__hlo_slice(lk_lowering *l, lk_hlo x, const int64_t *begin, const int64_t *end, const int64_t *step)
{
    int64_t size[LK_HLO_AXES];
    bool is_whole = true;
    for (int i = 0; i < x.rank; i++) {
        size[i] = (end[i] - begin[i] + step[i] - 1) / step[i];
        is_whole &= size[i] == x.size[i];
    }
    if (is_whole)
        return x;
    lk_hlo y = lower_begin(l, "slice", x.type, x.rank, size);
    lower_put_operands(l, &x, 1);
    lk__hlo_put(&l->body, " [");
    for (int i = 0; i < x.rank; i++)
        lk__hlo_put(&l->body, "%s%" PRId64 ":%" PRId64 ":%" PRId64, i ? ", " : "", begin[i], end[i], step[i]);
    lk__hlo_put(&l->body, "]");
    return lower_end_function(l, &x, 1, y);
}

lk_hlo lk__hlo_slice_axis(lk_lowering *l, lk_hlo x, int axis, int64_t begin, int64_t end)
{
    int64_t from[LK_HLO_AXES] = {0}, to[LK_HLO_AXES], step[LK_HLO_AXES];
    for (int i = 0; i < LK_HLO_AXES; i++) {
        to[i] = x.size[i];
        step[i] = 1;
    }
    from[axis] = begin;
    to[axis] = end;
    return lk__hlo_slice(l, x, from, to, step);
}

lk_hlo lk__hlo_pad(lk_lowering *l, lk_hlo x, lk_hlo value, const int64_t *low, const int64_t *high,
                   const int64_t *inside)
{
    int64_t size[LK_HLO_AXES];
    bool pads = false;
    for (int i = 0; i < x.rank; i++) {
        size[i] = low[i] + x.size[i] + (x.size[i] > 0 ? (x.size[i] - 1) * inside[i] : 0) + high[i];
        pads |= low[i] != 0 || high[i] != 0 || (inside[i] != 0 && x.size[i] > 1);
    }
    if (!pads)
        return x;
    lk_hlo operands[] = {x, value};
    lk_hlo y = lower_begin(l, "pad", x.type, x.rank, size);
    lower_put_operands(l, operands, 2);
    lower_put_axes(&l->body, ", low", low, x.rank);
    lower_put_axes(&l->body, ", high", high, x.rank);
    lower_put_axes(&l->body, ", interior", inside, x.rank);
    return lower_end_function(l, operands, 2, y);
}

lk_hlo lk__hlo_concat(lk_lowering *l, const lk_hlo *x, int n, int axis)
{
    lk_hlo like = x[0];
    for (int i = 1; i < n; i++)
        like.size[axis] += x[i].size[axis];
    lk_hlo y = lower_begin(l, "concatenate", like.type, like.rank, like.size);
    lower_put_operands(l, x, n);
    lk__hlo_put(&l->body, ", dim = %d", axis);
    return lower_end_function(l, x, n, y);
}

lk_hlo lk__hlo_reverse(lk_lowering *l, lk_hlo x, int axis)
{
    lk_hlo y = lower_begin(l, "reverse", x.type, x.rank, x.size);
    lower_put_operands(l, &x, 1);
    lk__hlo_put(&l->body, ", dims = [%d]", axis);
    return lower_end(l, y);
}

lk_hlo lk__hlo_replace(lk_lowering *l, lk_hlo x, lk_hlo part, const int64_t *begin)
{
    lk_hlo operands[2 + LK_HLO_AXES] = {x, part};
    for (int i = 0; i < x.rank; i++)
        operands[2 + i] = lk__hlo_integer(l, LK_I32, begin[i]);
    lk_hlo y = lower_begin(l, "dynamic_update_slice", x.type, x.rank, x.size);
    lower_put_operands(l, operands, 2 + x.rank);
    return lower_end_function(l, operands, 2 + x.rank, y);
}

lk_hlo lk__hlo_windows(lk_lowering *l, lk_hlo x, lk_hlo indices, const int *axes, const int64_t *window,
                       const bool *drop)
{
    int64_t size[LK_HLO_AXES] = {indices.size[0]}, offset[LK_HLO_AXES], dropped[LK_HLO_AXES], map[LK_HLO_AXES];
    int rank = 1, n_dropped = 0;
    for (int i = 0; i < x.rank; i++) {
        if (drop[i]) {
            dropped[n_dropped++] = i;
        } else {
            offset[rank - 1] = rank;
            size[rank++] = window[i];
        }
    }
    for (int64_t i = 0; i < indices.size[1]; i++)
        map[i] = axes[i];
    lk_hlo operands[] = {x, indices};
    lk_hlo y = {.number = l->values++, .type = x.type, .rank = rank};
    memcpy(y.size, size, sizeof size);
    lk__hlo_put(&l->body, "    %%%d = \"stablehlo.gather\"(", y.number);
    lk__hlo_put_name(&l->body, &x);
    lk__hlo_put(&l->body, ", ");
    lk__hlo_put_name(&l->body, &indices);
    lk__hlo_put(&l->body, ") <{dimension_numbers = #stablehlo.gather<");
    lower_put_axes(&l->body, "offset_dims", offset, rank - 1);
    lower_put_axes(&l->body, ", collapsed_slice_dims", dropped, n_dropped);
    lower_put_axes(&l->body, ", start_index_map", map, indices.size[1]);
    lk__hlo_put(&l->body, ", index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: ");
    lower_put_list(&l->body, window, x.rank);
    lk__hlo_put(&l->body, ">}>");
    return lower_end_function(l, operands, 2, y);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* The value that a reduction starts from, which changes no result. */
static lk_hlo lower_neutral(lk_lowering *l, const char *op, int type)
{
    bool is_float = lower_is_float(type);
    if (strcmp(op, "maximum") == 0)
        return is_float ? lk__hlo_number(l, type, -INFINITY)
                        : lk__hlo_integer(l, type,
                                          type == LK_I64   ? INT64_MIN
                                          : type == LK_I32 ? INT32_MIN
                                                           : 0);
    if (strcmp(op, "minimum") == 0)
        return is_float ? lk__hlo_number(l, type, INFINITY)
                        : lk__hlo_integer(l, type,
                                          type == LK_I64   ? INT64_MAX
                                          : type == LK_I32 ? INT32_MAX
                                                           : UINT8_MAX);
    return lk__hlo_number(l, type, strcmp(op, "and") == 0);
}

lk_hlo lk__hlo_reduce(lk_lowering *l, const char *op, lk_hlo x, unsigned axes)
{
    int64_t reduced[LK_HLO_AXES], size[LK_HLO_AXES];
    int n = 0, rank = 0;
    for (int i = 0; i < x.rank; i++) {
        if (axes >> i & 1)
            reduced[n++] = i;
        else
            size[rank++] = x.size[i];
    }
    if (n == 0)
        return x;
    lk_hlo operands[] = {x, lower_neutral(l, op, x.type)};
    lk_hlo y = lower_begin(l, "reduce(", x.type, rank, size);
    lk__hlo_put_name(&l->body, &operands[0]);
    lk__hlo_put(&l->body, " init: ");
    lk__hlo_put_name(&l->body, &operands[1]);
    lk__hlo_put(&l->body, ") applies stablehlo.%s across ", op);
    lower_put_axes(&l->body, "dimensions", reduced, n);
    return lower_end_function(l, operands, 2, y);
}

lk_hlo lk__hlo_reduce_keep(lk_lowering *l, const char *op, lk_hlo x, unsigned axes)
{
    int64_t size[LK_HLO_AXES];
    for (int i = 0; i < x.rank; i++)
        size[i] = axes >> i & 1 ? 1 : x.size[i];
    return lk__hlo_reshape(l, lk__hlo_reduce(l, op, x, axes), x.rank, size);
}

lk_hlo lk__hlo_window_sums(lk_lowering *l, lk_hlo x, const int64_t *window, const int64_t *stride, const int64_t *low,
                           const int64_t *high)
{
    lk_hlo operands[] = {x, lk__hlo_number(l, x.type, 0)};
    lk_hlo y = {.number = l->values++, .type = x.type, .rank = x.rank}, scalar = {.type = x.type};
    for (int i = 0; i < x.rank; i++)
        y.size[i] = (x.size[i] + low[i] + high[i] - window[i]) / stride[i] + 1;
    lk__hlo_put(&l->body, "    %%%d = \"stablehlo.reduce_window\"(", y.number);
    lk__hlo_put_name(&l->body, &operands[0]);
    lk__hlo_put(&l->body, ", ");
    lk__hlo_put_name(&l->body, &operands[1]);
    lk__hlo_put(&l->body, ") <{padding = dense<[");
    for (int i = 0; i < x.rank; i++)
        lk__hlo_put(&l->body, "%s[%" PRId64 ", %" PRId64 "]", i ? ", " : "", low[i], high[i]);
    lk__hlo_put(&l->body, "]> : tensor<%dx2xi64>, window_dimensions = array<i64: ", x.rank);
    lower_put_list(&l->body, window, x.rank);
    lk__hlo_put(&l->body, ">, window_strides = array<i64: ");
    lower_put_list(&l->body, stride, x.rank);
    lk__hlo_put(&l->body, ">}> ({\n    ^bb0(%%a: ");
    lk__hlo_put_type(&l->body, &scalar);
    lk__hlo_put(&l->body, ", %%b: ");
    lk__hlo_put_type(&l->body, &scalar);
    lk__hlo_put(&l->body, "):\n      %%sum = stablehlo.add %%a, %%b : ");
    lk__hlo_put_type(&l->body, &scalar);
    lk__hlo_put(&l->body, "\n      stablehlo.return %%sum : ");
    lk__hlo_put_type(&l->body, &scalar);
    lk__hlo_put(&l->body, "\n    })");
    return lower_end_function(l, operands, 2, y);
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* TPUs multiply f32 in one pass of bf16 unless the precision is HIGHEST. */
static const char *lower_precision(int type)
{
    return type == LK_BF16 ? "DEFAULT" : "HIGHEST";
}

static int lower_product_type(int type)
{
    return type == LK_BF16 ? LK_F32 : type;
}

lk_hlo lk__hlo_dot(lk_lowering *l, lk_hlo a, lk_hlo b)
{
    lk_hlo operands[] = {a, b};
    const char *precision = lower_precision(a.type);
    lk_hlo y = lower_begin(l, "dot_general", lower_product_type(a.type), 2, (int64_t[]){a.size[0], b.size[1]});
    lower_put_operands(l, operands, 2);
    lk__hlo_put(&l->body, ", contracting_dims = [1] x [0], precision = [%s, %s]", precision, precision);
    return lower_end_function(l, operands, 2, y);
}

lk_hlo lk__hlo_convolution(lk_lowering *l, lk_hlo x, lk_hlo w, const lk_hlo_conv *c)
{
    lk_hlo operands[] = {x, w};
    lk_hlo_text *body = &l->body;
    const char *precision = lower_precision(x.type);
    lk_hlo y = lower_begin(l, "convolution(", lower_product_type(x.type), 4, c->size);
    lk__hlo_put_name(body, &x);
    lk__hlo_put(body, ", ");
    lk__hlo_put_name(body, &w);
    lk__hlo_put(body, ") dim_numbers = %s, window = {", c->numbers);
    lower_put_axes(body, "stride", c->stride, 2);
    lk__hlo_put(body, ", pad = [[%" PRId64 ", %" PRId64 "], [%" PRId64 ", %" PRId64 "]]", c->low[0], c->high[0],
                c->low[1], c->high[1]);
    lower_put_axes(body, ", lhs_dilate", c->x_dilation, 2);
    lower_put_axes(body, ", rhs_dilate", c->w_dilation, 2);
    lk__hlo_put(body,
                "} {batch_group_count = %" PRId64 " : i64, feature_group_count = %" PRId64
                " : i64, precision_config = [#stablehlo<precision %s>, #stablehlo<precision %s>]}",
                c->batch_groups, c->feature_groups, precision, precision);
    return lower_end_function(l, operands, 2, y);
}
