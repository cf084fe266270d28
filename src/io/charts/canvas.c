#include "io/charts/canvas.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/append_file.h"
#include "lockstep/plot.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LEAST_SIDE = 160, MOST_SIDE = 8192 };

const uint32_t lk__colors[LK__COLORS] = {0x0072B2, 0xD55E00, 0x009E73, 0xCC79A7,
                                         0xE69F00, 0x56B4E9, 0x000000, 0x8C6D31};

lk_pen lk__series_pen(int series)
{
    static const double dashed[] = {7, 3}, dotted[] = {2, 3}, dash_dot[] = {7, 3, 2, 3};
    static const struct {
        const double *dashes;
        int count;
    } styles[] = {{NULL, 0}, {dashed, 2}, {dash_dot, 4}, {dotted, 2}};
    int style = series % 4;
    return (lk_pen){2, lk__colors[series % LK__COLORS], styles[style].dashes, styles[style].count};
}

static bool canvas_path_ends_with(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);
    return length > tail && strcasecmp(path + length - tail, ending) == 0;
}

lk_status lk__canvas_new(const lk_canvas_table *table, int width, int height, lk_canvas **canvas)
{
    lk_canvas *made = lk__calloc(1, table->size);
    if (!made)
        return LK_ERR_MEMORY;
    *made = (lk_canvas){table, width, height};
    lk_status status = table->open ? table->open(made) : LK_OK;
    if (status != LK_OK) {
        lk__canvas_release(made);
        return status;
    }
    table->rectangle(made, (lk_point){0, 0}, width, height, 0xFFFFFF);
    *canvas = made;
    return LK_OK;
}

lk_status lk__canvas_check_size(int width, int height)
{
    if (width < LEAST_SIDE || width > MOST_SIDE || height < LEAST_SIDE || height > MOST_SIDE)
        LK_FAIL(LK_ERR_ARGUMENT, "a chart of %d x %d pixels: a side has %d … %d", width, height, LEAST_SIDE, MOST_SIDE);
    return LK_OK;
}

lk_status lk__canvas_open(const char *path, int width, int height, lk_canvas **canvas)
{
    LK_TRY(lk__canvas_check_size(width, height));
    if (path && canvas_path_ends_with(path, ".svg"))
        return lk__canvas_new(&lk__svg_table, width, height, canvas);
    if (path && canvas_path_ends_with(path, ".png"))
        return lk__canvas_new(&lk__png_table, width, height, canvas);
    LK_FAIL(LK_ERR_ARGUMENT, "%s: a chart's file ends in .svg or .png", path ? path : "(no path)");
}

lk_status lk_chart_check(const char *path)
{
    lk_canvas *canvas;
    LK_TRY(lk__canvas_open(path, LEAST_SIDE, LEAST_SIDE, &canvas));
    lk__canvas_release(canvas);
    return LK_OK;
}

lk_status lk__canvas_write(lk_canvas *canvas, const char *path)
{
    lk_bytes picture = {0};
    lk_status status = canvas->table->encode(canvas, &picture);
    if (status == LK_OK)
        status = lk__replace_file(path, picture.data, picture.size);
    lk__bytes_free(&picture);
    return status;
}

void lk__canvas_release(lk_canvas *canvas)
{
    if (canvas && canvas->table->release)
        canvas->table->release(canvas);
    lk__free(canvas);
}

void lk__canvas_fit(lk_canvas *canvas, const char *text, lk_font font, double width, char *fitted, size_t size)
{
    snprintf(fitted, size, "%s", text);
    if (strlen(text) < size && canvas->table->text_width(canvas, text, font) <= width)
        return;
    size_t kept = strlen(fitted);
    if (kept > size - sizeof "…")
        kept = size - sizeof "…";
    for (;; kept--) {
        while (kept > 0 && ((unsigned char)text[kept] & 0xC0) == 0x80)
            kept--; /* do not cut inside a character */
        snprintf(fitted + kept, size - kept, "…");
        if (kept == 0 || canvas->table->text_width(canvas, fitted, font) <= width)
            return;
    }
}

static bool canvas_is_inside_character(const char *at)
{
    return ((unsigned char)*at & 0xC0) == 0x80;
}

void lk__canvas_fit_middle(lk_canvas *canvas, const char *text, lk_font font, double width, char *fitted, size_t size)
{
    size_t length = strlen(text), most = size - sizeof "…";
    snprintf(fitted, size, "%s", text);
    if (length < size && canvas->table->text_width(canvas, text, font) <= width)
        return;
    for (size_t kept = length < most ? length : most; kept > 0; kept--) {
        size_t head = kept - kept / 2, tail = length - kept / 2;
        while (head > 0 && canvas_is_inside_character(text + head))
            head--;
        while (tail < length && canvas_is_inside_character(text + tail))
            tail++;
        snprintf(fitted, size, "%.*s…%s", (int)head, text, text + tail);
        if (canvas->table->text_width(canvas, fitted, font) <= width)
            return;
    }
    snprintf(fitted, size, "…");
}
