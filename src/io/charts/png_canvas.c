/* Draws PNG pictures with libcairo. */
#include "io/charts/canvas.h"

#include "base/mem.h"
#include "base/status.h"

#ifdef LK_HAVE_CAIRO

#include <cairo.h>
#include <math.h>

typedef struct png_canvas {
    lk_canvas base;
    cairo_surface_t *surface;
    cairo_t *context;
    bool failed; /* out of memory for a text */
} png_canvas;

static cairo_t *png_canvas_context(lk_canvas *canvas)
{
    return ((png_canvas *)canvas)->context;
}

static void png_canvas_set_color(cairo_t *context, uint32_t color)
{
    cairo_set_source_rgb(context, (color >> 16) / 255.0, (color >> 8 & 0xFF) / 255.0, (color & 0xFF) / 255.0);
}

/* After a text that is not UTF-8 a cairo context draws nothing any more, so texts are cleaned first. */
static bool png_canvas_clean_text(lk_canvas *canvas, const char *text, lk_bytes *utf8)
{
    lk__bytes_clean(utf8, text);
    lk__bytes_char(utf8, '\0');
    if (utf8->failed)
        ((png_canvas *)canvas)->failed = true;
    return !utf8->failed;
}

static void png_canvas_set_font(cairo_t *context, lk_font font)
{
    cairo_select_font_face(context, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           font.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(context, font.size);
}

static double png_canvas_text_width(lk_canvas *canvas, const char *text, lk_font font)
{
    lk_bytes utf8 = {0};
    cairo_text_extents_t extents = {0};
    png_canvas_set_font(png_canvas_context(canvas), font);
    if (png_canvas_clean_text(canvas, text, &utf8))
        cairo_text_extents(png_canvas_context(canvas), (const char *)utf8.data, &extents);
    lk__bytes_free(&utf8);
    return extents.x_advance;
}

static void png_canvas_text(lk_canvas *canvas, lk_point at, const char *text, lk_font font, lk_align align,
                            double angle)
{
    lk_bytes utf8 = {0};
    if (png_canvas_clean_text(canvas, text, &utf8)) {
        cairo_t *context = png_canvas_context(canvas);
        double width = align == LK__LEFT ? 0 : png_canvas_text_width(canvas, text, font);
        cairo_save(context);
        png_canvas_set_font(context, font);
        png_canvas_set_color(context, font.color);
        cairo_translate(context, at.x, at.y);
        cairo_rotate(context, -angle * acos(-1) / 180);
        cairo_move_to(context, align == LK__RIGHT ? -width : -width / 2, 0);
        cairo_show_text(context, (const char *)utf8.data);
        cairo_restore(context);
    }
    lk__bytes_free(&utf8);
}

static void png_canvas_lines(lk_canvas *canvas, const lk_point *points, int count, lk_pen pen)
{
    cairo_t *context = png_canvas_context(canvas);
    cairo_new_path(context);
    for (int i = 0; i < count; i++)
        cairo_line_to(context, points[i].x, points[i].y);
    png_canvas_set_color(context, pen.color);
    cairo_set_line_width(context, pen.width);
    cairo_set_line_join(context, CAIRO_LINE_JOIN_ROUND);
    cairo_set_dash(context, pen.dashes, pen.dash_count, 0);
    cairo_stroke(context);
}

static void png_canvas_rectangle(lk_canvas *canvas, lk_point corner, double width, double height, uint32_t color)
{
    cairo_t *context = png_canvas_context(canvas);
    png_canvas_set_color(context, color);
    cairo_rectangle(context, corner.x, corner.y, width, height);
    cairo_fill(context);
}

static void png_canvas_disc(lk_canvas *canvas, lk_point center, double radius, uint32_t color)
{
    cairo_t *context = png_canvas_context(canvas);
    png_canvas_set_color(context, color);
    cairo_new_path(context);
    cairo_arc(context, center.x, center.y, radius, 0, 2 * acos(-1));
    cairo_fill(context);
}

void lk__png_canvas_pixels(lk_canvas *canvas, int x, int y, int scale, int width, int height, const unsigned char *rgb)
{
    cairo_surface_t *surface = ((png_canvas *)canvas)->surface;
    cairo_surface_flush(surface);
    unsigned char *data = cairo_image_surface_get_data(surface);
    ptrdiff_t stride = cairo_image_surface_get_stride(surface);
    for (int row = 0; row < height * scale; row++) {
        uint32_t *line = (uint32_t *)(void *)(data + (y + row) * stride) + x;
        for (int column = 0; column < width * scale; column++) {
            const unsigned char *pixel = rgb + 3 * ((ptrdiff_t)(row / scale) * width + column / scale);
            line[column] = (uint32_t)pixel[0] << 16 | (uint32_t)pixel[1] << 8 | pixel[2];
        }
    }
    cairo_surface_mark_dirty(surface);
}

static cairo_status_t png_canvas_collect(void *out, const unsigned char *data, unsigned size)
{
    lk__bytes_put(out, data, size);
    return ((lk_bytes *)out)->failed ? CAIRO_STATUS_WRITE_ERROR : CAIRO_STATUS_SUCCESS;
}

static lk_status png_canvas_check_cairo(cairo_status_t status)
{
    if (status == CAIRO_STATUS_NO_MEMORY)
        LK_FAIL(LK_ERR_MEMORY, "libcairo: %s", cairo_status_to_string(status));
    if (status != CAIRO_STATUS_SUCCESS)
        LK_FAIL(LK_ERR_BACKEND, "libcairo: %s", cairo_status_to_string(status));
    return LK_OK;
}

static lk_status png_canvas_encode(lk_canvas *canvas, lk_bytes *out)
{
    if (((png_canvas *)canvas)->failed)
        return LK_ERR_MEMORY; /* lk__realloc has set the message */
    LK_TRY(png_canvas_check_cairo(cairo_status(png_canvas_context(canvas))));
    cairo_status_t status = cairo_surface_write_to_png_stream(((png_canvas *)canvas)->surface, png_canvas_collect, out);
    LK_TRY(lk__bytes_status(out));
    return png_canvas_check_cairo(status);
}

static void png_canvas_release(lk_canvas *canvas)
{
    png_canvas *png = (png_canvas *)canvas;
    cairo_destroy(png->context);
    cairo_surface_destroy(png->surface);
}

static lk_status png_canvas_open(lk_canvas *canvas)
{
    png_canvas *png = (png_canvas *)canvas;
    png->surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, canvas->width, canvas->height);
    png->context = cairo_create(png->surface);
    return png_canvas_check_cairo(cairo_status(png->context));
}

const lk_canvas_table lk__png_table = {
    .size = sizeof(png_canvas),
    .open = png_canvas_open,
    .text_width = png_canvas_text_width,
    .text = png_canvas_text,
    .lines = png_canvas_lines,
    .rectangle = png_canvas_rectangle,
    .disc = png_canvas_disc,
    .encode = png_canvas_encode,
    .release = png_canvas_release,
};

#else

static lk_status png_canvas_refuse(lk_canvas *canvas)
{
    (void)canvas;
    LK_FAIL(LK_ERR_UNSUPPORTED, "this build draws no PNG pictures: it was made without libcairo");
}

const lk_canvas_table lk__png_table = {.size = sizeof(lk_canvas), .open = png_canvas_refuse};

void lk__png_canvas_pixels(lk_canvas *canvas, int x, int y, int scale, int width, int height, const unsigned char *rgb)
{
    (void)canvas, (void)x, (void)y, (void)scale, (void)width, (void)height, (void)rgb;
}

#endif
