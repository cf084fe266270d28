/* Tensors as text, in the format of NumPy's print() with its default options; the test compares with version 1.24. */
#include "base/mem.h"
#include "core/decimal.h"
#include "core/shape.h"
#include "core/tensor.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* If there are more than THRESHOLD elements, an axis longer than 2 EDGE shows only its first and last EDGE. */
enum { LINE_WIDTH = 75, PRECISION = 8, THRESHOLD = 1000, EDGE = 3 };

typedef struct printer {
    /* The elements to print, row-major. */
    lk_dtype dtype;
    lk_shape shape;
    int64_t strides[LK_MAX_DIMS];
    const void *data;
    bool cut;

    /* The format that makes columns align. Widths are characters before and after the decimal point. */
    bool scientific;
    int left, right;
    int fraction_digits, exponent_digits; /* of scientific */
    double largest, smallest;             /* magnitudes that are finite and not zero; 0 where there are none */
    bool any_finite, any_not_finite, any_negative_infinity;

    /* The text so far. */
    char *text;
    size_t length, line_start;
    int64_t capacity;
} printer;

/* --- text --------------------------------------------------------------------------------------------------------- */

static lk_status printer_append(printer *p, const char *text, size_t length)
{
    LK_TRY(LK_GROW(p->text, &p->capacity, (int64_t)(p->length + length + 1)));
    memcpy(p->text + p->length, text, length);
    p->length += length;
    p->text[p->length] = '\0';
    return LK_OK;
}

static lk_status printer_append_spaces(printer *p, int n)
{
    for (int i = 0; i < n; i++)
        LK_TRY(printer_append(p, " ", 1));
    return LK_OK;
}

static lk_status printer_end_line(printer *p)
{
    while (p->length > p->line_start && p->text[p->length - 1] == ' ')
        p->length--;
    LK_TRY(printer_append(p, "\n", 1));
    p->line_start = p->length;
    return LK_OK;
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

static double printer_float_at(const printer *p, int64_t i)
{
    return lk__element_value(p->dtype, (const char *)p->data + i * (int64_t)lk_dtype_size(p->dtype));
}

static int64_t printer_int_at(const printer *p, int64_t i)
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

static void printer_format_float(const printer *p, double value, int least, char *text)
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

static lk_status printer_append_element(printer *p, int64_t i)
{
    char text[LK_DECIMAL_SIZE];
    if (lk__dtype_is_float(p->dtype))
        printer_format_float(p, printer_float_at(p, i), p->scientific ? p->fraction_digits : 0, text);
    else
        snprintf(text, sizeof text, "%" PRId64, printer_int_at(p, i));

    int length = (int)strlen(text), before = length;
    int width = p->left;
    if (lk__dtype_is_float(p->dtype)) {
        const char *point = strchr(text, '.');
        width += point && !p->scientific ? 0 : 1 + p->right;
        before = point && !p->scientific ? (int)(point - text) : length;
    }
    LK_TRY(printer_append_spaces(p, width - before));
    LK_TRY(printer_append(p, text, (size_t)length));
    return before < length ? printer_append_spaces(p, p->right - (length - before - 1)) : LK_OK;
}

/* --- which elements are shown ------------------------------------------------------------------------------------- */

typedef void (*visit_fn)(printer *p, int64_t element);

static int64_t printer_shown(const printer *p, int axis)
{
    int64_t size = p->shape.dim[axis];
    return p->cut && size > 2 * EDGE ? 2 * EDGE : size;
}

static int64_t printer_nth_shown(const printer *p, int axis, int64_t n)
{
    bool trailing = printer_shown(p, axis) < p->shape.dim[axis] && n >= EDGE;
    return trailing ? p->shape.dim[axis] - 2 * EDGE + n : n;
}

static void printer_visit(printer *p, int axis, int64_t element, visit_fn fn)
{
    if (axis == p->shape.ndim) {
        fn(p, element);
        return;
    }
    for (int64_t n = 0; n < printer_shown(p, axis); n++)
        printer_visit(p, axis + 1, element + printer_nth_shown(p, axis, n) * p->strides[axis], fn);
}

/* --- widths ------------------------------------------------------------------------------------------------------- */

static void printer_widen(int *width, ptrdiff_t wanted)
{
    if (*width < wanted)
        *width = (int)wanted;
}

static void printer_note_magnitude(printer *p, int64_t element)
{
    double value = printer_float_at(p, element), magnitude = fabs(value);
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

static bool printer_wants_scientific(const printer *p)
{
    if (p->largest == 0)
        return false;
    double ratio = p->dtype == LK_F64 ? p->largest / p->smallest : (double)((float)p->largest / (float)p->smallest);
    return p->largest >= 1e8 || p->smallest < 0.0001 || ratio > 1000;
}

static void printer_note_float_width(printer *p, int64_t element)
{
    char text[LK_DECIMAL_SIZE];
    double value = printer_float_at(p, element);
    if (!isfinite(value))
        return;
    printer_format_float(p, value, -1, text);
    const char *point = strchr(text, '.'), *end = text + strlen(text);
    printer_widen(&p->left, point - text);
    if (!p->scientific) {
        printer_widen(&p->right, end - point - 1);
        return;
    }
    const char *exponent = strchr(point, 'e');
    printer_widen(&p->fraction_digits, exponent - point - 1);
    printer_widen(&p->exponent_digits, end - exponent - 2);
}

static void printer_note_int_width(printer *p, int64_t element)
{
    printer_widen(&p->left, snprintf(NULL, 0, "%" PRId64, printer_int_at(p, element)));
}

static void printer_measure_floats(printer *p)
{
    printer_visit(p, 0, 0, printer_note_magnitude);
    p->scientific = printer_wants_scientific(p);
    p->exponent_digits = 2;
    printer_visit(p, 0, 0, printer_note_float_width);
    if (p->scientific)
        p->right = p->fraction_digits + p->exponent_digits + 2;
    if (p->any_not_finite)
        printer_widen(&p->left, (p->any_negative_infinity ? 4 : 3) - (p->right + 1));
}

/* --- layout ------------------------------------------------------------------------------------------------------- */

/* Starts a new line if a word of `width` characters does not fit, unless the line is still empty. */
static lk_status printer_break_line(printer *p, size_t width)
{
    size_t indent = (size_t)p->shape.ndim, line = p->length - p->line_start;
    if (line <= indent || line + width <= LINE_WIDTH - indent)
        return LK_OK;
    LK_TRY(printer_end_line(p));
    return printer_append_spaces(p, (int)indent);
}

static lk_status printer_append_row(printer *p, int64_t element)
{
    int axis = p->shape.ndim - 1, width = lk__dtype_is_float(p->dtype) ? p->left + 1 + p->right : p->left;
    for (int64_t n = 0; n < printer_shown(p, axis); n++) {
        if (n > 0)
            LK_TRY(printer_append(p, " ", 1));
        if (n == EDGE && printer_shown(p, axis) < p->shape.dim[axis]) {
            LK_TRY(printer_break_line(p, 3));
            LK_TRY(printer_append(p, "... ", 4));
        }
        LK_TRY(printer_break_line(p, (size_t)width));
        LK_TRY(printer_append_element(p, element + printer_nth_shown(p, axis, n)));
    }
    return LK_OK;
}

/* Separates neighbors along an axis: one line end between rows, an empty line between matrices, and so on. */
static lk_status printer_separate(printer *p, int axis)
{
    for (int i = axis + 1; i < p->shape.ndim; i++) {
        LK_TRY(printer_append(p, "\n", 1));
        p->line_start = p->length;
    }
    return printer_append_spaces(p, axis + 1);
}

static lk_status printer_append_axis(printer *p, int axis, int64_t element)
{
    LK_TRY(printer_append(p, "[", 1));
    if (axis == p->shape.ndim - 1) {
        LK_TRY(printer_append_row(p, element));
        return printer_append(p, "]", 1);
    }
    for (int64_t n = 0; n < printer_shown(p, axis); n++) {
        if (n > 0)
            LK_TRY(printer_separate(p, axis));
        if (n == EDGE && printer_shown(p, axis) < p->shape.dim[axis]) {
            LK_TRY(printer_append(p, "...", 3));
            LK_TRY(printer_separate(p, axis));
        }
        LK_TRY(printer_append_axis(p, axis + 1, element + printer_nth_shown(p, axis, n) * p->strides[axis]));
    }
    return printer_append(p, "]", 1);
}

/* A lone number has all its digits and a digit after the point: "3.0" for "3.", "1e+16" for "1.e+16". */
static lk_status printer_append_scalar(printer *p)
{
    char text[LK_DECIMAL_SIZE];
    if (!lk__dtype_is_float(p->dtype) || !isfinite(printer_float_at(p, 0)))
        return printer_append_element(p, 0);
    double value = printer_float_at(p, 0), magnitude = fabs(value);
    if (magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16)) {
        lk__decimal_positional(value, p->dtype, -1, -1, text);
        LK_TRY(printer_append(p, text, strlen(text)));
        return p->text[p->length - 1] == '.' ? printer_append(p, "0", 1) : LK_OK;
    }
    lk__decimal_scientific(value, p->dtype, -1, -1, 2, text);
    const char *point = strchr(text, '.');
    LK_TRY(printer_append(p, text, (size_t)(point - text)));
    return printer_append(p, point[1] == 'e' ? point + 1 : point, strlen(point[1] == 'e' ? point + 1 : point));
}

static lk_status printer_append_all(printer *p, int64_t count)
{
    if (count == 0)
        return printer_append(p, "[]", 2);
    if (p->shape.ndim == 0)
        return printer_append_scalar(p);
    p->cut = count > THRESHOLD;
    if (lk__dtype_is_float(p->dtype))
        printer_measure_floats(p);
    else
        printer_visit(p, 0, 0, printer_note_int_width);
    return printer_append_axis(p, 0, 0);
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
    LK_TRY_GOTO(printer_append_all(&p, count));
    lk__free_aligned(data);
    return p.text;
fail:
    lk__free_aligned(data);
    lk__free(p.text);
    return NULL;
}

/* after: a line that follows, or "". */
static lk_status print_tensor(lk_tensor *tensor, const char *after, FILE *file)
{
    char *text = lk_tensor_text(tensor);
    if (!text)
        return lk_error_status() != LK_OK ? lk_error_status() : lk__fail(LK_ERR_ARGUMENT, "tensor: must not be NULL");
    bool written = fprintf(file, "%s\n%s", text, after) >= 0;
    lk__free(text);
    if (!written)
        LK_FAIL(LK_ERR_IO, "tensor: its text could not be written");
    return LK_OK;
}

lk_status lk_tensor_print(lk_tensor *tensor, FILE *file)
{
    return print_tensor(tensor, "", file);
}

lk_status lk_tensor_show(lk_tensor *tensor, FILE *file)
{
    char what[256];
    if (tensor)
        snprintf(what, sizeof what, "<%s%s on %s>\n", lk_dtype_name(tensor->dtype), lk__text(tensor->shape).string,
                 lk_device_name(tensor->storage->device));
    return print_tensor(tensor, tensor ? what : "", file);
}
