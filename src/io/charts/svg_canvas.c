/* Writes SVG pictures, whose labels stay text. */
#include "io/charts/canvas.h"

#include "base/mem.h"
#include "base/status.h"

typedef struct svg_canvas {
    lk_canvas base;
    lk_bytes body;
} svg_canvas;

/* Advance widths of DejaVu Sans, regular and bold, from the space on, in hundredths of an em. The fonts that a viewer
 * substitutes for it are mostly narrower. */
static const unsigned char widths[2][95] = {
    {32, 41, 46, 84, 64, 96, 78, 28, 39,  39, 50, 84, 32, 37, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64,
     64, 64, 34, 34, 84, 84, 84, 54, 100, 69, 69, 70, 77, 64, 58, 78, 76, 30, 30, 66, 56, 87, 75, 79,
     61, 79, 70, 64, 62, 74, 69, 99, 69,  62, 69, 39, 34, 39, 84, 50, 50, 62, 64, 55, 64, 62, 36, 64,
     64, 28, 28, 58, 28, 98, 64, 62, 64,  64, 42, 53, 40, 64, 60, 82, 60, 60, 53, 64, 34, 64, 84},
    {35, 46, 53, 84, 70, 101, 88, 31,  46,  46, 53, 84, 38, 42, 38, 37, 70, 70, 70, 70, 70, 70,  70, 70,
     70, 70, 40, 40, 84, 84,  84, 58,  100, 78, 77, 74, 84, 69, 69, 83, 84, 38, 38, 78, 64, 100, 84, 85,
     74, 85, 77, 72, 69, 82,  78, 111, 78,  73, 73, 46, 37, 46, 84, 50, 50, 68, 72, 60, 72, 68,  44, 72,
     72, 35, 35, 67, 35, 105, 72, 69,  72,  72, 50, 60, 48, 72, 66, 93, 65, 66, 59, 72, 37, 72,  84},
};
enum { OTHER_WIDTH = 84 };

static void svg_canvas_put_coordinate(lk_bytes *body, const char *name, double value)
{
    lk__bytes_format(body, " %s=\"", name);
    lk__bytes_fixed(body, value, 1);
    lk__bytes_char(body, '"');
}

/* XML 1.0 excludes U+FFFE, U+FFFF and all control characters but tab and line breaks. */
static void svg_canvas_put_xml_text(lk_bytes *body, const char *text)
{
    for (uint32_t c; (c = lk__utf8_next(&text));) {
        if (c == '<')
            lk__bytes_text(body, "&lt;");
        else if (c == '>')
            lk__bytes_text(body, "&gt;");
        else if (c == '&')
            lk__bytes_text(body, "&amp;");
        else
            lk__bytes_utf8(body, (c < 0x20 && c != '\t' && c != '\n') || (c & 0xFFFE) == 0xFFFE ? 0xFFFD : c);
    }
}

static double svg_canvas_text_width(lk_canvas *canvas, const char *text, lk_font font)
{
    (void)canvas;
    double hundredths = 0;
    for (uint32_t c; (c = lk__utf8_next(&text));)
        hundredths += c >= 32 && c < 127 ? widths[font.bold][c - 32] : OTHER_WIDTH;
    return hundredths * font.size / 100;
}

static void svg_canvas_text(lk_canvas *canvas, lk_point at, const char *text, lk_font font, lk_align align,
                            double angle)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    lk_bytes *body = &((svg_canvas *)canvas)->body;
    lk__bytes_text(body, "<text");
    svg_canvas_put_coordinate(body, "x", at.x);
    svg_canvas_put_coordinate(body, "y", at.y);
    svg_canvas_put_coordinate(body, "font-size", font.size);
    lk__bytes_format(body, " fill=\"#%06X\"", (unsigned)font.color);
    if (font.bold)
        lk__bytes_text(body, " font-weight=\"bold\"");
    if (align != LK__LEFT)
        lk__bytes_format(body, " text-anchor=\"%s\"", anchors[align]);
    if (angle != 0) {
        lk__bytes_text(body, " transform=\"rotate(");
        lk__bytes_fixed(body, -angle, 1);
        lk__bytes_char(body, ' ');
        lk__bytes_fixed(body, at.x, 1);
        lk__bytes_char(body, ' ');
        lk__bytes_fixed(body, at.y, 1);
        lk__bytes_text(body, ")\"");
    }
    lk__bytes_char(body, '>');
    svg_canvas_put_xml_text(body, text);
    lk__bytes_text(body, "</text>\n");
}

static void svg_canvas_lines(lk_canvas *canvas, const lk_point *points, int count, lk_pen pen)
{
    lk_bytes *body = &((svg_canvas *)canvas)->body;
    lk__bytes_text(body, "<polyline points=\"");
    for (int i = 0; i < count; i++) {
        if (i > 0)
            lk__bytes_char(body, ' ');
        lk__bytes_fixed(body, points[i].x, 1);
        lk__bytes_char(body, ',');
        lk__bytes_fixed(body, points[i].y, 1);
    }
    lk__bytes_format(body, "\" fill=\"none\" stroke=\"#%06X\"", (unsigned)pen.color);
    svg_canvas_put_coordinate(body, "stroke-width", pen.width);
    for (int i = 0; i < pen.dash_count; i++) {
        lk__bytes_text(body, i == 0 ? " stroke-dasharray=\"" : " ");
        lk__bytes_fixed(body, pen.dashes[i], 0);
    }
    lk__bytes_text(body, pen.dash_count ? "\"/>\n" : "/>\n");
}

static void svg_canvas_rectangle(lk_canvas *canvas, lk_point corner, double width, double height, uint32_t color)
{
    lk_bytes *body = &((svg_canvas *)canvas)->body;
    lk__bytes_text(body, "<rect");
    svg_canvas_put_coordinate(body, "x", corner.x);
    svg_canvas_put_coordinate(body, "y", corner.y);
    svg_canvas_put_coordinate(body, "width", width);
    svg_canvas_put_coordinate(body, "height", height);
    lk__bytes_format(body, " fill=\"#%06X\"/>\n", (unsigned)color);
}

static void svg_canvas_disc(lk_canvas *canvas, lk_point center, double radius, uint32_t color)
{
    lk_bytes *body = &((svg_canvas *)canvas)->body;
    lk__bytes_text(body, "<circle");
    svg_canvas_put_coordinate(body, "cx", center.x);
    svg_canvas_put_coordinate(body, "cy", center.y);
    svg_canvas_put_coordinate(body, "r", radius);
    lk__bytes_format(body, " fill=\"#%06X\"/>\n", (unsigned)color);
}

static lk_status svg_canvas_encode(lk_canvas *canvas, lk_bytes *out)
{
    const lk_bytes *body = &((svg_canvas *)canvas)->body;
    LK_TRY(lk__bytes_status(body));
    int width = canvas->width, height = canvas->height;
    lk__bytes_text(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    lk__bytes_format(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\"",
                     width, height, width, height);
    lk__bytes_text(out, " font-family=\"DejaVu Sans, Verdana, Arial, sans-serif\">\n");
    lk__bytes_put(out, body->data, body->size);
    lk__bytes_text(out, "</svg>\n");
    return lk__bytes_status(out);
}

static void svg_canvas_release(lk_canvas *canvas)
{
    lk__bytes_free(&((svg_canvas *)canvas)->body);
}

const lk_canvas_table lk__svg_table = {
    .size = sizeof(svg_canvas),
    .text_width = svg_canvas_text_width,
    .text = svg_canvas_text,
    .lines = svg_canvas_lines,
    .rectangle = svg_canvas_rectangle,
    .disc = svg_canvas_disc,
    .encode = svg_canvas_encode,
    .release = svg_canvas_release,
};
