/* A surface to draw charts on, with one table of functions for each kind of picture: SVG, which this library writes
 * itself, and PNG, which needs libcairo. Coordinates are pixels from the top left corner, sizes are pixels, angles are
 * degrees counterclockwise, colors are 0xRRGGBB. */
#pragma once

#include "io/bytes.h"

typedef enum lk_align { LK__LEFT, LK__CENTER, LK__RIGHT } lk_align;

typedef struct lk_font {
    double size;
    bool bold;
    uint32_t color;
} lk_font;

typedef struct lk_pen {
    double width;
    uint32_t color;
    const double *dashes; /* lengths, alternately on and off; NULL: solid */
    int dash_count;
} lk_pen;

typedef struct lk_point {
    double x, y;
} lk_point;

typedef struct lk_canvas lk_canvas;

typedef struct lk_canvas_table {
    size_t size;                          /* of a canvas, which begins with an lk_canvas */
    lk_status (*open)(lk_canvas *canvas); /* NULL: nothing to open */
    double (*text_width)(lk_canvas *canvas, const char *text, lk_font font);
    /* `at` is a point on the baseline, which `align` picks; the text is rotated about it. */
    void (*text)(lk_canvas *canvas, lk_point at, const char *text, lk_font font, lk_align align, double angle);
    void (*lines)(lk_canvas *canvas, const lk_point *points, int count, lk_pen pen);
    void (*rectangle)(lk_canvas *canvas, lk_point corner, double width, double height, uint32_t color);
    void (*disc)(lk_canvas *canvas, lk_point center, double radius, uint32_t color);
    /* Appends the encoded picture to `out`. Errors: LK_ERR_BACKEND, LK_ERR_MEMORY, also of the drawing before. */
    lk_status (*encode)(lk_canvas *canvas, lk_bytes *out);
    void (*release)(lk_canvas *canvas); /* releases what the canvas holds, also if `open` failed; NULL: nothing */
} lk_canvas_table;

struct lk_canvas {
    const lk_canvas_table *table;
    int width, height;
};

/* Errors: LK_ERR_ARGUMENT (a side outside 160 … 8192). */
lk_status lk__canvas_check_size(int width, int height);

/* Makes a white canvas for a file whose path ends in `.svg` or `.png`. Errors: LK_ERR_ARGUMENT (another ending, a size
 * outside 160 … 8192), LK_ERR_UNSUPPORTED (PNG without libcairo), LK_ERR_MEMORY, LK_ERR_BACKEND. */
lk_status lk__canvas_open(const char *path, int width, int height, lk_canvas **canvas);

/* Writes the encoded picture to `path`, replacing the file as a whole. */
lk_status lk__canvas_write(lk_canvas *canvas, const char *path);
void lk__canvas_release(lk_canvas *canvas);

/* Makes a white canvas of any size. The functions of a table come from svg_canvas.c and png_canvas.c. */
lk_status lk__canvas_new(const lk_canvas_table *table, int width, int height, lk_canvas **canvas);
extern const lk_canvas_table lk__svg_table, lk__png_table;

/* Draws rgb [height][width][3], each value as a square of `scale` pixels. Only for canvases of lk__png_table. */
void lk__png_canvas_pixels(lk_canvas *canvas, int x, int y, int scale, int width, int height, const unsigned char *rgb);

/* Copies `text` to `fitted`, cut with an ellipsis where it is wider than `width` or longer than `size` bytes. */
void lk__canvas_fit(lk_canvas *canvas, const char *text, lk_font font, double width, char *fitted, size_t size);

/* As lk__canvas_fit, but cut in the middle, so that names that begin alike stay different: "golden…triever". */
void lk__canvas_fit_middle(lk_canvas *canvas, const char *text, lk_font font, double width, char *fitted, size_t size);

/* The colors of series: those of Okabe and Ito ("Color universal design", 2008), which color-blind people can tell
 * apart, with a brown in the place of the yellow, which is hard to see on white. */
enum { LK__COLORS = 8 };
extern const uint32_t lk__colors[LK__COLORS];

/* Returns the pen of a series. The four patterns of dashes repeat as the colors do. */
lk_pen lk__series_pen(int series);

enum { LK__INK = 0x222222, LK__FAINT_INK = 0x666666, LK__GRID = 0xDDDDDD, LK__AXIS_LINE = 0x888888 };
