/* Draws a line chart in a terminal. With colors, or with a single series, a cell holds 2 x 4 dots of Braille (U+2800
 * and up) in the color of the series that was drawn last. Without colors Braille could not tell series apart, so a cell
 * holds the mark of one series. */
#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"
#include "io/charts/chart.h"
#include "io/charts/line_chart.h"

#include <math.h>
#include <stdlib.h>

enum { LEAST_COLUMNS = 24, LEAST_ROWS = 8, LEAST_PLOT = 8, MOST_CELLS = 1000, ROWS_FOR_LABELS = 12, ROWS_TO_ROUND = 8 };
enum { NO_SERIES = -1 };

typedef struct cell {
    unsigned char dots;
    signed char series;
} cell;

typedef struct text_chart {
    const lk_line_chart *chart;
    lk_text_style style;
    bool braille;
    int dots_x, dots_y; /* dots in a cell, across and down */
    int left;           /* columns for the numbers of the y axis and its line */
    int columns, rows;  /* size of the plot */
    bool has_right;     /* there are numbers on the right */
    lk_axis x, y, right;
    cell *cells; /* [rows][columns] */
    lk_bytes out;
} text_chart;

static const char *const ascii_marks[LK_MAX_SERIES] = {"*", "+", "o", "x", "#", "@", "%", "&"};
static const char *const unicode_marks[LK_MAX_SERIES] = {"●", "▲", "■", "◆", "○", "△", "□", "◇"};

/* From a terminal's 256 colors, those close to lk__colors that are visible on black and on white. */
static const unsigned char ansi_colors[LK_MAX_SERIES] = {32, 202, 35, 169, 178, 74, 244, 137};

static const char *text_chart_mark(const text_chart *t, int series)
{
    if (t->braille)
        return "━";
    return t->style.ascii ? ascii_marks[series] : unicode_marks[series];
}

static void text_chart_put_repeated(lk_bytes *out, const char *text, int times)
{
    for (int i = 0; i < times; i++)
        lk__bytes_text(out, text);
}

static void text_chart_put_cut(text_chart *t, const char *text, int columns)
{
    for (uint32_t c; columns > 0 && (c = lk__utf8_next(&text)); columns--) {
        bool controls = c < 0x20 || (c >= 0x7F && c < 0xA0);
        lk__bytes_utf8(&t->out, controls ? ' ' : c > 0x7F && t->style.ascii ? '?' : c);
    }
}

static void text_chart_put_centered(text_chart *t, const char *text, int from, int columns)
{
    int width = lk__utf8_length(text);
    text_chart_put_repeated(&t->out, " ", from + (width < columns ? (columns - width) / 2 : 0));
    text_chart_put_cut(t, text, columns);
    lk__bytes_char(&t->out, '\n');
}

static void text_chart_set_color(text_chart *t, int series)
{
    if (!t->style.color)
        return;
    if (series == NO_SERIES)
        lk__bytes_text(&t->out, "\033[0m");
    else
        lk__bytes_format(&t->out, "\033[38;5;%dm", ansi_colors[series]);
}

/* --- legend ------------------------------------------------------------------------------------------------------ */

/* Writes the legend in at most `most` rows, or only counts them. */
static int text_chart_put_legend(text_chart *t, int most, bool write)
{
    int row = 0, column = 0;
    for (int s = 0; s < t->chart->series_count && most > 0; s++) {
        const char *name = t->chart->series[s].name;
        if (!name || !lk__series_shows(&t->chart->series[s]))
            continue;
        int width = 2 + lk__utf8_length(name);
        if (column > 0 && column + 3 + width > t->style.columns) {
            if (row + 1 >= most)
                break;
            row++;
            column = 0;
            if (write)
                lk__bytes_char(&t->out, '\n');
        }
        if (write) {
            text_chart_put_repeated(&t->out, " ", column > 0 ? 3 : 0);
            text_chart_set_color(t, s);
            lk__bytes_text(&t->out, text_chart_mark(t, s));
            text_chart_set_color(t, NO_SERIES);
            lk__bytes_char(&t->out, ' ');
            text_chart_put_cut(t, name, t->style.columns - 2);
        }
        column += (column > 0 ? 3 : 0) + width;
    }
    if (write && column > 0)
        lk__bytes_char(&t->out, '\n');
    return row + (column > 0);
}

/* --- dots -------------------------------------------------------------------------------------------------------- */

static int text_chart_dots_across(const text_chart *t)
{
    return t->columns * t->dots_x;
}

static int text_chart_dots_down(const text_chart *t)
{
    return t->rows * t->dots_y;
}

static int text_chart_dot_position(const lk_axis *axis, double value, int dots)
{
    int at = (int)lround(lk__axis_position(axis, value) * (dots - 1));
    return at < 0 ? 0 : at >= dots ? dots - 1 : at;
}

static void text_chart_draw_dot(text_chart *t, int x, int y, int series)
{
    /* The bits of a Braille pattern's dots, by column and row. */
    static const unsigned char bits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    cell *c = &t->cells[y / t->dots_y * t->columns + x / t->dots_x];
    c->dots |= bits[x % t->dots_x][y % t->dots_y];
    c->series = (signed char)series;
}

/* Bresenham: "Algorithm for computer control of a digital plotter", 1965. */
static void text_chart_draw_line(text_chart *t, int x, int y, int x_end, int y_end, int series)
{
    int dx = abs(x_end - x), dy = -abs(y_end - y), error = dx + dy;
    for (;;) {
        text_chart_draw_dot(t, x, y, series);
        if (x == x_end && y == y_end)
            return;
        int twice = 2 * error;
        if (twice >= dy) {
            error += dy;
            x += x < x_end ? 1 : -1;
        }
        if (twice <= dx) {
            error += dx;
            y += y < y_end ? 1 : -1;
        }
    }
}

static void text_chart_draw_series(text_chart *t, int number)
{
    const lk_series *series = &t->chart->series[number];
    bool joined = false;
    int last_x = 0, last_y = 0;
    for (int64_t i = 0; i < series->count; i++) {
        bool visible = lk__plot_value(series->x[i]) && lk__plot_value(series->y[i]);
        if (visible) {
            int x = text_chart_dot_position(&t->x, series->x[i], text_chart_dots_across(t));
            int y = text_chart_dots_down(t) - 1 -
                    text_chart_dot_position(series->right ? &t->right : &t->y, series->y[i], text_chart_dots_down(t));
            text_chart_draw_line(t, joined ? last_x : x, joined ? last_y : y, x, y, number);
            last_x = x;
            last_y = y;
        }
        joined = visible;
    }
}

/* --- axes -------------------------------------------------------------------------------------------------------- */

static int text_chart_widest_number(const lk_axis *axis)
{
    int widest = 0;
    for (int i = 0; i < axis->ticks; i++) {
        char text[LK__TICK_TEXT];
        lk__axis_text(axis, i, text);
        widest = (int)lk__max(widest, lk__utf8_length(text));
    }
    return widest;
}

static void text_chart_make_y_axis(const text_chart *t, const lk_axis_range *range, lk_axis *y)
{
    bool round = t->rows >= ROWS_TO_ROUND;
    lk__axis_make(y, range->min, range->max, t->rows / 2, range->whole, round && range->round_min,
                  round && range->round_max);
}

static void text_chart_make_axes(text_chart *t)
{
    lk_axis_range x, y, right;
    lk__line_chart_ranges(t->chart, &x, &y, &right);
    text_chart_make_y_axis(t, &y, &t->y);
    text_chart_make_y_axis(t, &right, &t->right);
    t->left = text_chart_widest_number(&t->y) + 2;
    t->columns = t->style.columns - t->left;
    int right_columns = text_chart_widest_number(&t->right) + 2;
    t->has_right = lk__line_chart_has_right(t->chart) && t->columns - right_columns >= LEAST_PLOT;
    t->columns -= t->has_right ? right_columns : 0;
    for (int most = t->columns / 4;; most--) {
        lk__axis_make(&t->x, x.min, x.max, most, x.whole, false, false);
        double distance = t->x.unit / (t->x.max - t->x.min) * t->columns;
        if (most <= 2 || text_chart_widest_number(&t->x) + 2 <= distance)
            return;
    }
}

/* Writes the number of the tick in this row, or "" if there is none. */
static void text_chart_tick_of_row(const text_chart *t, const lk_axis *axis, int row, char number[LK__TICK_TEXT])
{
    number[0] = '\0';
    for (int i = 0; i < axis->ticks; i++) {
        int dots = text_chart_dots_down(t), at = dots - 1 - text_chart_dot_position(axis, lk__axis_tick(axis, i), dots);
        if (at / t->dots_y == row)
            lk__axis_text(axis, i, number);
    }
}

static void text_chart_put_right_tick(text_chart *t, int row, int used)
{
    char number[LK__TICK_TEXT];
    text_chart_tick_of_row(t, &t->right, row, number);
    text_chart_put_repeated(&t->out, " ", t->columns - used);
    lk__bytes_text(&t->out, t->style.ascii ? (*number ? "+" : "|") : *number ? "├" : "│");
    if (*number)
        lk__bytes_char(&t->out, ' ');
    lk__bytes_text(&t->out, number);
}

static void text_chart_put_plot_row(text_chart *t, int row)
{
    char number[LK__TICK_TEXT];
    text_chart_tick_of_row(t, &t->y, row, number);
    text_chart_put_repeated(&t->out, " ", t->left - 2 - lk__utf8_length(number));
    lk__bytes_text(&t->out, number);
    lk__bytes_char(&t->out, ' ');
    lk__bytes_text(&t->out, t->style.ascii ? (*number ? "+" : "|") : *number ? "┤" : "│");

    const cell *cells = t->cells + (size_t)row * (size_t)t->columns;
    int used = t->columns;
    signed char series = NO_SERIES;
    while (used > 0 && cells[used - 1].series == NO_SERIES)
        used--;
    for (int i = 0; i < used; i++) {
        if (cells[i].series != series && cells[i].series != NO_SERIES) {
            series = cells[i].series;
            text_chart_set_color(t, series);
        }
        if (cells[i].series == NO_SERIES)
            lk__bytes_char(&t->out, ' ');
        else if (t->braille)
            lk__bytes_utf8(&t->out, 0x2800u + cells[i].dots);
        else
            lk__bytes_text(&t->out, text_chart_mark(t, cells[i].series));
    }
    if (series != NO_SERIES)
        text_chart_set_color(t, NO_SERIES);
    if (t->has_right)
        text_chart_put_right_tick(t, row, used);
    lk__bytes_char(&t->out, '\n');
}

static int text_chart_tick_column(const text_chart *t, int tick)
{
    return text_chart_dot_position(&t->x, lk__axis_tick(&t->x, tick), text_chart_dots_across(t)) / t->dots_x;
}

static void text_chart_put_x_axis(text_chart *t)
{
    text_chart_put_repeated(&t->out, " ", t->left - 1);
    lk__bytes_text(&t->out, t->style.ascii ? "+" : "└");
    for (int column = 0, tick = 0; column < t->columns; column++) {
        bool marked = false;
        for (; tick < t->x.ticks && text_chart_tick_column(t, tick) <= column; tick++)
            marked = true;
        lk__bytes_text(&t->out, t->style.ascii ? (marked ? "+" : "-") : marked ? "┬" : "─");
    }
    if (t->has_right)
        lk__bytes_text(&t->out, t->style.ascii ? "+" : "┘");
    lk__bytes_char(&t->out, '\n');
    int column = 0;
    for (int tick = 0; tick < t->x.ticks; tick++) {
        char number[LK__TICK_TEXT];
        lk__axis_text(&t->x, tick, number);
        int width = lk__utf8_length(number), at = t->left + text_chart_tick_column(t, tick) - width / 2;
        if (at + width > t->style.columns)
            at = t->style.columns - width;
        if (at < column + (column > 0))
            continue;
        text_chart_put_repeated(&t->out, " ", at - column);
        lk__bytes_text(&t->out, number);
        column = at + width;
    }
    lk__bytes_char(&t->out, '\n');
}

/* --- the whole --------------------------------------------------------------------------------------------------- */

/* Writes the labels of the y axes above them. The right one is left out if both do not fit. */
static void text_chart_put_y_labels(text_chart *t)
{
    const char *left = t->chart->y_label ? t->chart->y_label : "";
    const char *right = t->has_right && t->chart->right_label ? t->chart->right_label : "";
    int between = t->style.columns - lk__utf8_length(left) - lk__utf8_length(right);
    text_chart_put_cut(t, left, t->style.columns);
    if (*right && between > 0) {
        text_chart_put_repeated(&t->out, " ", between);
        text_chart_put_cut(t, right, t->style.columns);
    }
    lk__bytes_char(&t->out, '\n');
}

static lk_status text_chart_draw(text_chart *t)
{
    const lk_line_chart *chart = t->chart;
    bool labels = t->style.rows >= ROWS_FOR_LABELS;
    const char *x_label = labels ? chart->x_label : NULL;
    bool y_labels = labels && (chart->y_label || chart->right_label);
    int legend_rows = text_chart_put_legend(t, t->style.rows / 4, false), axis_rows = 2;
    t->rows = t->style.rows - legend_rows - axis_rows - (chart->title != NULL) - (x_label != NULL) - y_labels;
    text_chart_make_axes(t);

    size_t count = (size_t)t->rows * (size_t)t->columns;
    t->cells = lk__calloc(count, sizeof *t->cells);
    if (!t->cells)
        return LK_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        t->cells[i].series = NO_SERIES;
    for (int s = 0; s < chart->series_count; s++)
        text_chart_draw_series(t, s);

    if (chart->title)
        text_chart_put_centered(t, chart->title, 0, t->style.columns);
    text_chart_put_legend(t, legend_rows, true);
    if (y_labels)
        text_chart_put_y_labels(t);
    for (int row = 0; row < t->rows; row++)
        text_chart_put_plot_row(t, row);
    text_chart_put_x_axis(t);
    if (x_label)
        text_chart_put_centered(t, x_label, t->left, t->columns);
    lk__bytes_char(&t->out, '\0');
    return lk__bytes_status(&t->out);
}

static lk_status text_chart_check(const lk_line_chart *chart, lk_text_style style)
{
    LK_TRY(lk__line_chart_check(chart));
    if (style.columns < LEAST_COLUMNS || style.rows < LEAST_ROWS || style.columns > MOST_CELLS ||
        style.rows > MOST_CELLS)
        LK_FAIL(LK_ERR_ARGUMENT, "line chart: a text of %d columns and %d rows; %d x %d … %d x %d", style.columns,
                style.rows, LEAST_COLUMNS, LEAST_ROWS, MOST_CELLS, MOST_CELLS);
    return LK_OK;
}

char *lk_line_chart_text(const lk_line_chart *chart, lk_text_style style)
{
    if (text_chart_check(chart, style) != LK_OK)
        return NULL;
    text_chart t = {.chart = chart, .style = style};
    t.braille = !style.ascii && (style.color || chart->series_count <= 1);
    t.dots_x = t.braille ? 2 : 1;
    t.dots_y = t.braille ? 4 : 1;
    lk_status status = text_chart_draw(&t);
    lk__free(t.cells);
    if (status == LK_OK)
        return (char *)t.out.data;
    lk__bytes_free(&t.out);
    return NULL;
}
