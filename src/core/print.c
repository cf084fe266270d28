/* Tensors as text, as NumPy's print() writes arrays with its default options: its version 1.24 is what the test
 * compares with. */
#include "base/mem.h"
#include "core/decimal.h"
#include "core/tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

/* More elements than THRESHOLD are cut to the first and last EDGE along each axis that has more than both. */
enum { LINE_WIDTH = 75, PRECISION = 8, THRESHOLD = 1000, EDGE = 3 };

typedef struct printer {
    /* What is printed: elements, row-major. */
    lk_dtype dtype;
    lk_shape shape;
    int64_t strides[LK_MAX_DIMS];
    const void *data;
    bool cut;

    /* How an element is printed, so that columns align. Widths are characters before and after the decimal point. */
    bool scientific;
    int left, right;
    int fraction_digits, exponent_digits; /* of scientific */
    double largest, smallest;             /* magnitudes that are finite and not zero; 0 where there are none */
    bool any_finite, any_not_finite, any_negative_infinity;

    /* The text so far. */
    char *text;
    size_t length, capacity;
    size_t line_start;
} printer;

/* --- text --------------------------------------------------------------------------------------------------------- */

static lk_status append(printer *p, const char *text, size_t length)
{
    if (p->capacity - p->length <= length) {
        size_t capacity = 2 * p->capacity + length + 64;
        char *grown = lk__realloc(p->text, capacity, 1);
        if (!grown)
            return LK_ERR_MEMORY;
        p->text = grown;
        p->capacity = capacity;
    }
    memcpy(p->text + p->length, text, length);
    p->length += length;
    p->text[p->length] = '\0';
    return LK_OK;
}

static lk_status append_spaces(printer *p, int n)
{
    for (int i = 0; i < n; i++)
        LK_TRY(append(p, " ", 1));
    return LK_OK;
}

static lk_status end_line(printer *p)
{
    while (p->length > p->line_start && p->text[p->length - 1] == ' ')
        p->length--;
    LK_TRY(append(p, "\n", 1));
    p->line_start = p->length;
    return LK_OK;
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

static bool is_float(lk_dtype dtype)
{
    return dtype == LK_F32 || dtype == LK_BF16 || dtype == LK_F64;
}

static double float_at(const printer *p, int64_t i)
{
    if (p->dtype == LK_F64)
        return ((const double *)p->data)[i];
    if (p->dtype == LK_F32)
        return (double)((const float *)p->data)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)p->data)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static int64_t int_at(const printer *p, int64_t i)
{
    switch (p->dtype) {
    case LK_I32:
        return ((const int32_t *)p->data)[i];
    case LK_I64:
        return ((const int64_t *)p->data)[i];
    default:
        return ((const uint8_t *)p->data)[i];
    }
}

static void format_float(const printer *p, double value, int least, char *text)
{
    if (isnan(value))
        strcpy(text, "nan");
    else if (isinf(value))
        strcpy(text, value < 0 ? "-inf" : "inf");
    else if (p->scientific)
        lk__decimal_scientific(value, p->dtype, least, PRECISION, p->exponent_digits, text);
    else
        lk__decimal_positional(value, p->dtype, least, PRECISION, text);
}

static lk_status append_element(printer *p, int64_t i)
{
    char text[LK_DECIMAL_SIZE];
    if (is_float(p->dtype))
        format_float(p, float_at(p, i), p->scientific ? p->fraction_digits : 0, text);
    else
        snprintf(text, sizeof text, "%" PRId64, int_at(p, i));

    int length = (int)strlen(text), before = length;
    int width = p->left;
    if (is_float(p->dtype)) {
        const char *point = strchr(text, '.');
        width += point && !p->scientific ? 0 : 1 + p->right;
        before = point && !p->scientific ? (int)(point - text) : length;
    }
    LK_TRY(append_spaces(p, width - before));
    LK_TRY(append(p, text, (size_t)length));
    return before < length ? append_spaces(p, p->right - (length - before - 1)) : LK_OK;
}

/* --- what is shown ------------------------------------------------------------------------------------------------ */

typedef void (*visit_fn)(printer *p, int64_t element);

static int64_t shown(const printer *p, int axis)
{
    int64_t size = p->shape.dim[axis];
    return p->cut && size > 2 * EDGE ? 2 * EDGE : size;
}

static int64_t nth_shown(const printer *p, int axis, int64_t n)
{
    bool trailing = shown(p, axis) < p->shape.dim[axis] && n >= EDGE;
    return trailing ? p->shape.dim[axis] - 2 * EDGE + n : n;
}

static void visit(printer *p, int axis, int64_t element, visit_fn fn)
{
    if (axis == p->shape.ndim) {
        fn(p, element);
        return;
    }
    for (int64_t n = 0; n < shown(p, axis); n++)
        visit(p, axis + 1, element + nth_shown(p, axis, n) * p->strides[axis], fn);
}

/* --- widths ------------------------------------------------------------------------------------------------------- */

static void widen(int *width, ptrdiff_t wanted)
{
    if (*width < wanted)
        *width = (int)wanted;
}

static void note_magnitude(printer *p, int64_t element)
{
    double value = float_at(p, element), magnitude = fabs(value);
    if (!isfinite(value)) {
        p->any_not_finite = true;
        p->any_negative_infinity |= isinf(value) && value < 0;
        return;
    }
    p->any_finite = true;
    if (magnitude == 0)
        return;
    if (magnitude > p->largest)
        p->largest = magnitude;
    if (p->smallest == 0 || magnitude < p->smallest)
        p->smallest = magnitude;
}

static bool wants_scientific(const printer *p)
{
    if (p->largest == 0)
        return false;
    bool double_ratio = p->dtype == LK_F64;
    double ratio = double_ratio ? p->largest / p->smallest : (double)((float)p->largest / (float)p->smallest);
    return p->largest >= 1e8 || p->smallest < 0.0001 || ratio > 1000;
}

static void note_float_width(printer *p, int64_t element)
{
    char text[LK_DECIMAL_SIZE];
    double value = float_at(p, element);
    if (!isfinite(value))
        return;
    format_float(p, value, -1, text);
    const char *point = strchr(text, '.'), *end = text + strlen(text);
    widen(&p->left, point - text);
    if (!p->scientific) {
        widen(&p->right, end - point - 1);
        return;
    }
    const char *exponent = strchr(point, 'e');
    widen(&p->fraction_digits, exponent - point - 1);
    widen(&p->exponent_digits, end - exponent - 2);
}

static void note_int_width(printer *p, int64_t element)
{
    widen(&p->left, snprintf(NULL, 0, "%" PRId64, int_at(p, element)));
}

static void measure_floats(printer *p)
{
    visit(p, 0, 0, note_magnitude);
    p->scientific = wants_scientific(p);
    p->exponent_digits = 2;
    visit(p, 0, 0, note_float_width);
    if (p->scientific)
        p->right = p->fraction_digits + p->exponent_digits + 2;
    if (p->any_not_finite)
        widen(&p->left, (p->any_negative_infinity ? 4 : 3) - (p->right + 1));
}

/* --- layout ------------------------------------------------------------------------------------------------------- */

/* Starts a new line where a word of `width` characters would not fit, unless the line holds nothing yet. */
static lk_status make_room(printer *p, size_t width)
{
    size_t indent = (size_t)p->shape.ndim, line = p->length - p->line_start;
    if (line <= indent || line + width <= LINE_WIDTH - indent)
        return LK_OK;
    LK_TRY(end_line(p));
    return append_spaces(p, (int)indent);
}

static size_t element_width(const printer *p)
{
    return (size_t)(is_float(p->dtype) ? p->left + 1 + p->right : p->left);
}

static lk_status append_row(printer *p, int64_t element)
{
    int axis = p->shape.ndim - 1;
    for (int64_t n = 0; n < shown(p, axis); n++) {
        if (n > 0)
            LK_TRY(append(p, " ", 1));
        if (n == EDGE && shown(p, axis) < p->shape.dim[axis]) {
            LK_TRY(make_room(p, 3));
            LK_TRY(append(p, "... ", 4));
        }
        LK_TRY(make_room(p, element_width(p)));
        LK_TRY(append_element(p, element + nth_shown(p, axis, n)));
    }
    return LK_OK;
}

/* Between what is side by side along an axis: one line end for rows, an empty line for matrices, and so on. */
static lk_status separate(printer *p, int axis)
{
    for (int i = axis + 1; i < p->shape.ndim; i++) {
        LK_TRY(append(p, "\n", 1));
        p->line_start = p->length;
    }
    return append_spaces(p, axis + 1);
}

static lk_status append_axis(printer *p, int axis, int64_t element)
{
    LK_TRY(append(p, "[", 1));
    if (axis == p->shape.ndim - 1) {
        LK_TRY(append_row(p, element));
        return append(p, "]", 1);
    }
    for (int64_t n = 0; n < shown(p, axis); n++) {
        if (n > 0)
            LK_TRY(separate(p, axis));
        if (n == EDGE && shown(p, axis) < p->shape.dim[axis]) {
            LK_TRY(append(p, "...", 3));
            LK_TRY(separate(p, axis));
        }
        LK_TRY(append_axis(p, axis + 1, element + nth_shown(p, axis, n) * p->strides[axis]));
    }
    return append(p, "]", 1);
}

/* A lone number has all its digits, "3.0" for "3." and "1e+16" for "1.e+16". */
static lk_status append_scalar(printer *p)
{
    char text[LK_DECIMAL_SIZE];
    if (!is_float(p->dtype) || !isfinite(float_at(p, 0)))
        return append_element(p, 0);
    double value = float_at(p, 0), magnitude = fabs(value);
    if (magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16)) {
        lk__decimal_positional(value, p->dtype, -1, -1, text);
        LK_TRY(append(p, text, strlen(text)));
        return p->text[p->length - 1] == '.' ? append(p, "0", 1) : LK_OK;
    }
    lk__decimal_scientific(value, p->dtype, -1, -1, 2, text);
    const char *point = strchr(text, '.');
    LK_TRY(append(p, text, (size_t)(point - text)));
    return append(p, point[1] == 'e' ? point + 1 : point, strlen(point[1] == 'e' ? point + 1 : point));
}

static lk_status append_all(printer *p, int64_t count)
{
    if (count == 0)
        return append(p, "[]", 2);
    if (p->shape.ndim == 0)
        return append_scalar(p);
    p->cut = count > THRESHOLD;
    if (is_float(p->dtype))
        measure_floats(p);
    else
        visit(p, 0, 0, note_int_width);
    return append_axis(p, 0, 0);
}

char *lk_tensor_text(lk_tensor *tensor)
{
    if (!tensor)
        return NULL;
    printer p = {.dtype = tensor->dtype, .shape = tensor->shape};
    int64_t count = lk_tensor_count(tensor);
    size_t bytes = (size_t)count * lk_dtype_size(tensor->dtype);
    void *data = lk__alloc_aligned(bytes);
    if (!data)
        return NULL;
    p.data = data;
    lk__shape_strides(p.shape, p.strides);
    lk_status status;
    LK_TRY_GOTO(lk_tensor_read(tensor, data, bytes));
    LK_TRY_GOTO(append_all(&p, count));
    lk__free_aligned(data);
    return p.text;
fail:
    lk__free_aligned(data);
    lk__free(p.text);
    return NULL;
}

lk_status lk_tensor_print(lk_tensor *tensor, FILE *file)
{
    char *text = lk_tensor_text(tensor);
    if (!text)
        return lk_error_status() != LK_OK ? lk_error_status() : LK_ERR_ARGUMENT;
    bool written = fprintf(file, "%s\n", text) >= 0;
    lk__free(text);
    if (!written)
        LK_FAIL(LK_ERR_IO, "tensor: its text could not be written");
    return LK_OK;
}
