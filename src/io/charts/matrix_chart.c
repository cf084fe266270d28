#include "base/status.h"
#include "io/charts/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { SQUARES = 560, LEAST_SIDE = 3, MOST_SIDE = 52, LEAST_NAMED = 9, NAME_LENGTH = 130, FIT = 256 };
enum { SCALE_GAP = 22, SCALE_WIDTH = 14, SCALE_LABELS = 42, SCALE_PARTS = 50 };

static const double LEAN = 45; /* angle, in degrees, of the names of columns */

typedef struct layout {
    const lk_matrix_chart *chart;
    lk_canvas *canvas;
    double side;      /* width and height of a square */
    double left, top; /* corner of the first square */
} layout;

static lk_status matrix_chart_check(const lk_matrix_chart *chart)
{
    if (chart->size < 1 || chart->size > LK_MATRIX_CHART_MOST)
        LK_FAIL(LK_ERR_ARGUMENT, "matrix chart: %" PRId64 " rows; it takes 1 … %d", chart->size, LK_MATRIX_CHART_MOST);
    for (int64_t i = 0; i < chart->size * chart->size; i++)
        if (chart->counts[i] < 0)
            LK_FAIL(LK_ERR_ARGUMENT,
                    "matrix chart: row %" PRId64 ", column %" PRId64 ": the count is %" PRId64 "; 0 or more",
                    i / chart->size, i % chart->size, chart->counts[i]);
    return LK_OK;
}

static void matrix_chart_draw_text(const layout *l, double x, double y, const char *text, lk_font font, lk_align align,
                                   double angle)
{
    l->canvas->table->text(l->canvas, (lk_point){x, y}, text, font, align, angle);
}

/* Returns a color from white to dark blue for a count's share of its row. Even a small share differs visibly
 * from none. */
static uint32_t matrix_chart_share_color(double share)
{
    static const int dark[3] = {0x08, 0x30, 0x6B};
    uint32_t color = 0;
    double depth = share > 0 ? 0.06 + 0.94 * sqrt(share) : 0;
    for (int i = 0; i < 3; i++)
        color = color << 8 | (uint32_t)lround(0xFF - depth * (0xFF - dark[i]));
    return color;
}

static void matrix_chart_draw_row(const layout *l, int64_t row)
{
    const lk_matrix_chart *chart = l->chart;
    const int64_t *counts = chart->counts + row * chart->size;
    double sum = 0;
    for (int64_t k = 0; k < chart->size; k++)
        sum += (double)counts[k];
    for (int64_t k = 0; k < chart->size; k++) {
        double share = sum > 0 ? (double)counts[k] / sum : 0, x = l->left + (double)k * l->side,
               y = l->top + (double)row * l->side;
        char number[24];
        lk_font font = {fmin(11, l->side * 0.36), false, share > 0.3 ? 0xFFFFFF : LK__INK};
        l->canvas->table->rectangle(l->canvas, (lk_point){x, y}, l->side, l->side, matrix_chart_share_color(share));
        snprintf(number, sizeof number, "%" PRId64, counts[k]);
        bool fits = font.size >= 6 && l->canvas->table->text_width(l->canvas, number, font) <= l->side - 2;
        if (counts[k] > 0 && fits)
            matrix_chart_draw_text(l, x + l->side / 2, y + l->side / 2 + font.size * 0.36, number, font, LK__CENTER, 0);
    }
}

static void matrix_chart_draw_grid(const layout *l)
{
    const lk_pen pen = {.width = 0.5, .color = LK__GRID};
    double length = (double)l->chart->size * l->side;
    for (int64_t i = 0; i <= l->chart->size; i++) {
        double x = l->left + (double)i * l->side, y = l->top + (double)i * l->side;
        if (l->side < LEAST_NAMED && i > 0 && i < l->chart->size)
            continue;
        l->canvas->table->lines(l->canvas, (lk_point[]){{x, l->top}, {x, l->top + length}}, 2, pen);
        l->canvas->table->lines(l->canvas, (lk_point[]){{l->left, y}, {l->left + length, y}}, 2, pen);
    }
}

/* Names every row and column, or only every few if the squares are small. */
static void matrix_chart_draw_names(const layout *l)
{
    int64_t step = (int64_t)ceil((double)(LEAST_NAMED + 3) / l->side);
    for (int64_t i = 0; i < l->chart->size; i += step) {
        char number[24], fitted[FIT];
        const char *name = l->chart->names ? l->chart->names[i] : NULL;
        snprintf(number, sizeof number, "%" PRId64, i);
        lk__canvas_fit_middle(l->canvas, name ? name : number, lk__tick_font, NAME_LENGTH, fitted, sizeof fitted);
        double middle = ((double)i + 0.5) * l->side, below = l->top + (double)l->chart->size * l->side;
        matrix_chart_draw_text(l, l->left - LK__TICK_GAP, l->top + middle + lk__tick_font.size * 0.36, fitted,
                               lk__tick_font, LK__RIGHT, 0);
        matrix_chart_draw_text(l, l->left + middle + 4, below + LK__TICK_GAP + 7, fitted, lk__tick_font, LK__RIGHT,
                               LEAN);
    }
}

/* Draws the colors of all shares, with their percentages. */
static void matrix_chart_draw_scale(const layout *l)
{
    double length = (double)l->chart->size * l->side, x = l->left + length + SCALE_GAP;
    double height = fmin(fmax(length, 100), 260), part = height / SCALE_PARTS;
    for (int i = 0; i < SCALE_PARTS; i++) {
        lk_point corner = {x, l->top + i * part};
        l->canvas->table->rectangle(l->canvas, corner, SCALE_WIDTH, part + 0.5,
                                    matrix_chart_share_color(1 - (i + 0.5) / SCALE_PARTS));
    }
    for (int quarter = 0; quarter <= 4; quarter++) {
        char text[8];
        double y = l->top + height * (4 - quarter) / 4;
        snprintf(text, sizeof text, "%d%%", 25 * quarter);
        matrix_chart_draw_text(l, x + SCALE_WIDTH + 4,
                               y + lk__tick_font.size * (quarter == 4 ? 0.72
                                                         : quarter    ? 0.36
                                                                      : 0),
                               text, lk__tick_font, LK__LEFT, 0);
    }
    lk_point box[] = {
        {x, l->top}, {x + SCALE_WIDTH, l->top}, {x + SCALE_WIDTH, l->top + height}, {x, l->top + height}, {x, l->top}};
    l->canvas->table->lines(l->canvas, box, 5, (lk_pen){.width = 0.5, .color = LK__AXIS_LINE});
    matrix_chart_draw_text(l, x, l->top + height + LK__ROW, "of the row", lk__tick_font, LK__LEFT, 0);
}

static void matrix_chart_draw(const layout *l)
{
    const lk_matrix_chart *chart = l->chart;
    double length = (double)chart->size * l->side;
    for (int64_t i = 0; i < chart->size; i++)
        matrix_chart_draw_row(l, i);
    matrix_chart_draw_grid(l);
    matrix_chart_draw_names(l);
    matrix_chart_draw_scale(l);
    if (chart->title) {
        char fitted[FIT];
        lk__canvas_fit(l->canvas, chart->title, lk__title_font, l->canvas->width - 2 * LK__MARGIN, fitted,
                       sizeof fitted);
        matrix_chart_draw_text(l, l->canvas->width / 2.0, LK__MARGIN + lk__title_font.size, fitted, lk__title_font,
                               LK__CENTER, 0);
    }
    if (chart->row_label)
        matrix_chart_draw_text(l, LK__MARGIN + lk__label_font.size, l->top + length / 2, chart->row_label,
                               lk__label_font, LK__CENTER, 90);
    if (chart->column_label)
        matrix_chart_draw_text(l, l->left + length / 2, l->canvas->height - LK__MARGIN, chart->column_label,
                               lk__label_font, LK__CENTER, 0);
}

lk_status lk_matrix_chart_write(const lk_matrix_chart *chart, const char *path)
{
    LK_TRY(matrix_chart_check(chart));
    layout l = {.chart = chart};
    l.side = floor(fmax(LEAST_SIDE, fmin(MOST_SIDE, (double)SQUARES / (double)chart->size)));
    l.left = LK__MARGIN + (chart->row_label ? 2 * LK__ROW : 0) + NAME_LENGTH;
    l.top = LK__MARGIN + (chart->title ? 2 * LK__ROW : 0);
    double length = (double)chart->size * l.side;
    int width = (int)ceil(l.left + length + SCALE_GAP + SCALE_WIDTH + SCALE_LABELS + LK__MARGIN),
        least = 2 * NAME_LENGTH;
    int height = (int)ceil(l.top + length + NAME_LENGTH * 0.75 + (chart->column_label ? 2 * LK__ROW : 0) + LK__MARGIN);
    LK_TRY(lk__canvas_open(path, width < least ? least : width, height, &l.canvas));
    matrix_chart_draw(&l);
    lk_status status = lk__canvas_write(l.canvas, path);
    lk__canvas_release(l.canvas);
    return status;
}
