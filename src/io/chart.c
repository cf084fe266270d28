#include "io/chart.h"

#include <math.h>
#include <stddef.h>

enum { FIT = 256 };

const lk__font lk__title_font = {15, true, LK__INK};
const lk__font lk__label_font = {12, false, LK__INK};
const lk__font lk__tick_font = {11, false, LK__FAINT_INK};

static double tick_width(lk__canvas *canvas, const lk__axis *axis)
{
    double widest = 0;
    for (int i = 0; i < axis->ticks; i++) {
        char text[LK__TICK_TEXT];
        lk__axis_text(axis, i, text);
        widest = fmax(widest, canvas->table->text_width(canvas, text, lk__tick_font));
    }
    return widest;
}

static void draw_fitted(lk__canvas *canvas, lk__point at, const char *text, lk__font font, double room, double angle)
{
    char fitted[FIT];
    lk__canvas_fit(canvas, text, font, room, fitted, sizeof fitted);
    canvas->table->text(canvas, at, fitted, font, LK__CENTRE, angle);
}

void lk__frame_begin(lk__frame *f, lk__canvas *canvas, lk__labels labels, const lk__axis *y, const lk__axis *right)
{
    double width = canvas->width, height = canvas->height;
    *f = (lk__frame){canvas, LK__MARGIN, width - 1.5 * LK__MARGIN, LK__MARGIN, height - LK__MARGIN - LK__ROW};
    if (labels.title) {
        lk__point at = {width / 2, f->top + lk__title_font.size * 0.8};
        draw_fitted(canvas, at, labels.title, lk__title_font, width - 2 * LK__MARGIN, 0);
        f->top += lk__title_font.size + 12;
    }
    if (labels.x)
        f->bottom -= LK__ROW;
    f->left += tick_width(canvas, y) + LK__TICK_GAP + (labels.y ? LK__ROW : 0);
    if (right)
        f->right = width - LK__MARGIN - tick_width(canvas, right) - LK__TICK_GAP - (labels.right ? LK__ROW : 0);
    double middle = (f->top + f->bottom) / 2;
    if (labels.x) {
        lk__point at = {(f->left + f->right) / 2, height - LK__MARGIN};
        draw_fitted(canvas, at, labels.x, lk__label_font, f->right - f->left, 0);
    }
    if (labels.y) {
        lk__point at = {LK__MARGIN + lk__label_font.size * 0.8, middle};
        draw_fitted(canvas, at, labels.y, lk__label_font, f->bottom - f->top, 90);
    }
    if (right && labels.right)
        draw_fitted(canvas, (lk__point){width - LK__MARGIN, middle}, labels.right, lk__label_font, f->bottom - f->top,
                    90);
}

/* On the middle of a pixel, so that a line one pixel wide is sharp. */
static double sharp(double coordinate)
{
    return floor(coordinate) + 0.5;
}

void lk__frame_y(const lk__frame *f, const lk__axis *y)
{
    const lk__canvas_table *draw = f->canvas->table;
    for (int i = 0; i < y->ticks; i++) {
        char text[LK__TICK_TEXT];
        lk__axis_text(y, i, text);
        double at = sharp(f->bottom - (f->bottom - f->top) * lk__axis_place(y, lk__axis_tick(y, i)));
        lk__point line[] = {{f->left, at}, {f->right, at}};
        draw->lines(f->canvas, line, 2, (lk__pen){.width = 1, .colour = LK__GRID});
        lk__point label = {f->left - LK__TICK_GAP, at + lk__tick_font.size * 0.36};
        draw->text(f->canvas, label, text, lk__tick_font, LK__RIGHT, 0);
    }
}

void lk__frame_right(const lk__frame *f, const lk__axis *right)
{
    const lk__canvas_table *draw = f->canvas->table;
    const lk__pen pen = {.width = 1, .colour = LK__AXIS_LINE};
    for (int i = 0; i < right->ticks; i++) {
        char text[LK__TICK_TEXT];
        lk__axis_text(right, i, text);
        double at = sharp(f->bottom - (f->bottom - f->top) * lk__axis_place(right, lk__axis_tick(right, i)));
        draw->lines(f->canvas, (lk__point[]){{f->right, at}, {f->right + 4, at}}, 2, pen);
        lk__point label = {f->right + LK__TICK_GAP, at + lk__tick_font.size * 0.36};
        draw->text(f->canvas, label, text, lk__tick_font, LK__LEFT, 0);
    }
}

void lk__frame_x(const lk__frame *f, const lk__axis *x)
{
    const lk__canvas_table *draw = f->canvas->table;
    const lk__pen pen = {.width = 1, .colour = LK__AXIS_LINE};
    double bottom = sharp(f->bottom);
    draw->lines(f->canvas, (lk__point[]){{f->left, bottom}, {f->right, bottom}}, 2, pen);
    for (int i = 0; x && i < x->ticks; i++) {
        char text[LK__TICK_TEXT];
        lk__axis_text(x, i, text);
        double at = sharp(f->left + (f->right - f->left) * lk__axis_place(x, lk__axis_tick(x, i)));
        draw->lines(f->canvas, (lk__point[]){{at, bottom}, {at, bottom + 4}}, 2, pen);
        draw->text(f->canvas, (lk__point){at, bottom + LK__TICK_GAP + lk__tick_font.size}, text, lk__tick_font,
                   LK__CENTRE, 0);
    }
}
