#include "io/charts/chart.h"

#include <math.h>

enum { FIT = 256 };

const lk_font lk__title_font = {15, true, LK__INK};
const lk_font lk__label_font = {12, false, LK__INK};
const lk_font lk__tick_font = {11, false, LK__FAINT_INK};

double lk__tick_width(lk_canvas *canvas, const lk_axis *axis)
{
    double widest = 0;
    for (int i = 0; i < axis->ticks; i++) {
        char text[LK__TICK_TEXT];
        lk__axis_text(axis, i, text);
        widest = fmax(widest, canvas->table->text_width(canvas, text, lk__tick_font));
    }
    return widest;
}

static void chart_draw_fitted(lk_canvas *canvas, lk_point at, const char *text, lk_font font, double width,
                              double angle)
{
    char fitted[FIT];
    lk__canvas_fit(canvas, text, font, width, fitted, sizeof fitted);
    canvas->table->text(canvas, at, fitted, font, LK__CENTER, angle);
}

lk_area lk__draw_title(lk_canvas *canvas, lk_area area, const char *title)
{
    lk_point at = {area.left + area.width / 2, area.top + LK__MARGIN + lk__title_font.size * 0.8};
    chart_draw_fitted(canvas, at, title, lk__title_font, area.width - 2 * LK__MARGIN, 0);
    double height = lk__title_font.size + 12;
    return (lk_area){area.left, area.top + height, area.width, area.height - height};
}

void lk__frame_begin(lk_chart_frame *f, lk_canvas *canvas, lk_area area, lk_labels labels, const lk_axis *y,
                     const lk_axis *right)
{
    double end = area.left + area.width, bottom = area.top + area.height;
    if (labels.title)
        area = lk__draw_title(canvas, area, labels.title);
    *f = (lk_chart_frame){canvas, area.left + LK__MARGIN, end - 1.5 * LK__MARGIN, area.top + LK__MARGIN,
                          bottom - LK__MARGIN - LK__ROW};
    if (labels.x)
        f->bottom -= LK__ROW;
    f->left += lk__tick_width(canvas, y) + LK__TICK_GAP + (labels.y ? LK__ROW : 0);
    if (right)
        f->right = end - LK__MARGIN - lk__tick_width(canvas, right) - LK__TICK_GAP - (labels.right ? LK__ROW : 0);
    double middle = (f->top + f->bottom) / 2;
    if (labels.x) {
        lk_point at = {(f->left + f->right) / 2, bottom - LK__MARGIN};
        chart_draw_fitted(canvas, at, labels.x, lk__label_font, f->right - f->left, 0);
    }
    if (labels.y) {
        lk_point at = {area.left + LK__MARGIN + lk__label_font.size * 0.8, middle};
        chart_draw_fitted(canvas, at, labels.y, lk__label_font, f->bottom - f->top, 90);
    }
    if (right && labels.right)
        chart_draw_fitted(canvas, (lk_point){end - LK__MARGIN, middle}, labels.right, lk__label_font,
                          f->bottom - f->top, 90);
}

/* Moves a coordinate to the middle of a pixel, so that a line one pixel wide is sharp. */
static double chart_pixel_middle(double coordinate)
{
    return floor(coordinate) + 0.5;
}

void lk__frame_y(const lk_chart_frame *f, const lk_axis *y)
{
    const lk_canvas_table *draw = f->canvas->table;
    for (int i = 0; i < y->ticks; i++) {
        char text[LK__TICK_TEXT];
        lk__axis_text(y, i, text);
        double at = chart_pixel_middle(f->bottom - (f->bottom - f->top) * lk__axis_position(y, lk__axis_tick(y, i)));
        lk_point line[] = {{f->left, at}, {f->right, at}};
        draw->lines(f->canvas, line, 2, (lk_pen){.width = 1, .color = LK__GRID});
        lk_point label = {f->left - LK__TICK_GAP, at + lk__tick_font.size * 0.36};
        draw->text(f->canvas, label, text, lk__tick_font, LK__RIGHT, 0);
    }
}

void lk__frame_right(const lk_chart_frame *f, const lk_axis *right)
{
    const lk_canvas_table *draw = f->canvas->table;
    const lk_pen pen = {.width = 1, .color = LK__AXIS_LINE};
    for (int i = 0; i < right->ticks; i++) {
        char text[LK__TICK_TEXT];
        lk__axis_text(right, i, text);
        double at =
            chart_pixel_middle(f->bottom - (f->bottom - f->top) * lk__axis_position(right, lk__axis_tick(right, i)));
        draw->lines(f->canvas, (lk_point[]){{f->right, at}, {f->right + 4, at}}, 2, pen);
        lk_point label = {f->right + LK__TICK_GAP, at + lk__tick_font.size * 0.36};
        draw->text(f->canvas, label, text, lk__tick_font, LK__LEFT, 0);
    }
}

void lk__frame_x(const lk_chart_frame *f, const lk_axis *x)
{
    const lk_canvas_table *draw = f->canvas->table;
    const lk_pen pen = {.width = 1, .color = LK__AXIS_LINE};
    double bottom = chart_pixel_middle(f->bottom);
    draw->lines(f->canvas, (lk_point[]){{f->left, bottom}, {f->right, bottom}}, 2, pen);
    for (int i = 0; x && i < x->ticks; i++) {
        char text[LK__TICK_TEXT];
        lk__axis_text(x, i, text);
        double at = chart_pixel_middle(f->left + (f->right - f->left) * lk__axis_position(x, lk__axis_tick(x, i)));
        draw->lines(f->canvas, (lk_point[]){{at, bottom}, {at, bottom + 4}}, 2, pen);
        draw->text(f->canvas, (lk_point){at, bottom + LK__TICK_GAP + lk__tick_font.size}, text, lk__tick_font,
                   LK__CENTER, 0);
    }
}
