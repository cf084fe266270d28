/* What charts are drawn on. The kinds of picture are interchangeable tables: SVG is text of our own, so that its labels
 * are text too; PNG needs libcairo. Coordinates are pixels from the top left corner, sizes pixels, angles degrees
 * (anticlockwise), colours 0xRRGGBB. */
#ifndef LK_IO_CANVAS_H
#define LK_IO_CANVAS_H

#include "io/bytes.h"

typedef enum lk__align { LK__LEFT, LK__CENTRE, LK__RIGHT } lk__align;

typedef struct lk__font {
    double size;
    bool bold;
    uint32_t colour;
} lk__font;

typedef struct lk__pen {
    double width;
    uint32_t colour;
    const double *dashes; /* lengths, on and off in turn; NULL: solid */
    int dash_count;
} lk__pen;

typedef struct lk__point {
    double x, y;
} lk__point;

typedef struct lk__canvas lk__canvas;

typedef struct lk__canvas_table {
    double (*text_width)(lk__canvas *canvas, const char *text, lk__font font);
    /* `at` is on the text's baseline; it turns about `at`. */
    void (*text)(lk__canvas *canvas, lk__point at, const char *text, lk__font font, lk__align align, double angle);
    void (*lines)(lk__canvas *canvas, const lk__point *points, int count, lk__pen pen);
    void (*rectangle)(lk__canvas *canvas, lk__point corner, double width, double height, uint32_t colour);
    void (*disc)(lk__canvas *canvas, lk__point centre, double radius, uint32_t colour);
    /* Adds the whole picture to `out`. LK_ERR_BACKEND, LK_ERR_MEMORY. */
    lk_status (*encode)(lk__canvas *canvas, lk__bytes *out);
    void (*release)(lk__canvas *canvas);
} lk__canvas_table;

struct lk__canvas {
    const lk__canvas_table *table;
    int width, height;
};

/* A white canvas for a file with this ending, `.svg` or `.png`. Errors: LK_ERR_ARGUMENT (another ending, a size outside
 * 160 … 8192), LK_ERR_UNSUPPORTED, LK_ERR_MEMORY, LK_ERR_BACKEND. */
lk_status lk__canvas_open(const char *path, int width, int height, lk__canvas **canvas);

/* Encodes the picture into a file that replaces `path`. */
lk_status lk__canvas_write(lk__canvas *canvas, const char *path);
void lk__canvas_release(lk__canvas *canvas);

lk_status lk__svg_canvas_new(int width, int height, lk__canvas **canvas);
lk_status lk__png_canvas_new(int width, int height, lk__canvas **canvas);

/* rgb [height][width][3] as squares of `scale` pixels; only on what lk__png_canvas_new gave. */
void lk__png_canvas_pixels(lk__canvas *canvas, int x, int y, int scale, int width, int height,
                           const unsigned char *rgb);

/* The longest beginning of `text`, with an ellipsis where it is not all of it, that is at most `width` wide. */
void lk__canvas_fit(lk__canvas *canvas, const char *text, lk__font font, double width, char *fitted, size_t size);

/* Okabe and Ito's colours ("Color universal design", 2008), which people with colour-blindness tell apart too, without
 * the yellow, which white paper swallows. Each goes with dashes of its own: NULL, 0 for the first. */
enum { LK__COLOURS = 8 };
extern const uint32_t lk__colours[LK__COLOURS];
lk__pen lk__series_pen(int series);

enum { LK__INK = 0x222222, LK__FAINT_INK = 0x666666, LK__GRID = 0xDDDDDD, LK__AXIS_LINE = 0x888888 };

#endif
