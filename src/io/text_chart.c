/* A line chart in a terminal. A cell holds 2 x 4 dots of Braille (U+2800 and up) in the colour of the series that came
 * there last; without colours, which Braille would need to tell series apart, one mark of a series. */
#include "base/mem.h"
#include "base/status.h"
#include "io/chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    int left;          /* columns that the numbers of the y axis take, and its line */
    int columns, rows; /* of the plot */
    bool has_right;    /* numbers at the right */
    lk__axis x, y, right;
    cell *cells; /* [rows][columns] */
    lk__bytes out;
} text_chart;

static const char *const ascii_marks[LK_MAX_SERIES] = {"*", "+", "o", "x", "#", "@", "%", "&"};
static const char *const unicode_marks[LK_MAX_SERIES] = {"●", "▲", "■", "◆", "○", "△", "□", "◇"};

/* Of the 256 colours of terminals, those next to lk__colours that show on black and on white. */
static const unsigned char ansi_colours[LK_MAX_SERIES] = {32, 202, 35, 169, 178, 74, 244, 137};

static const char *mark_of(const text_chart *t, int series)
{
    if (t->braille)
        return "━";
    return t->style.ascii ? ascii_marks[series] : unicode_marks[series];
}

static int text_width(const char *text)
{
    return lk__utf8_length(text);
}

static void put_times(lk__bytes *out, const char *text, int times)
{
    for (int i = 0; i < times; i++)
        lk__bytes_text(out, text);
}

static void put_cut(lk__bytes *out, const char *text, int columns)
{
    for (uint32_t c; columns > 0 && (c = lk__utf8_next(&text)); columns--)
        lk__bytes_utf8(out, c < 0x20 ? ' ' : c);
}

static void put_centred(text_chart *t, const char *text, int from, int columns)
{
    int width = text_width(text);
    put_times(&t->out, " ", from + (width < columns ? (columns - width) / 2 : 0));
    put_cut(&t->out, text, columns);
    lk__bytes_char(&t->out, '\n');
}

static void set_series(text_chart *t, int series)
{
    if (!t->style.colour)
        return;
    if (series == NO_SERIES)
        lk__bytes_text(&t->out, "\033[0m");
    else
        lk__bytes_format(&t->out, "\033[38;5;%dm", ansi_colours[series]);
}

/* --- legend ------------------------------------------------------------------------------------------------------ */

/* Writes the legend in at most `most` rows, or only counts them. */
static int legend(text_chart *t, int most, bool write)
{
    int row = 0, column = 0;
    for (int s = 0; s < t->chart->series_count && most > 0; s++) {
        const char *name = t->chart->series[s].name;
        if (!name || !lk__series_shows(&t->chart->series[s]))
            continue;
        int width = 2 + text_width(name);
        if (column > 0 && column + 3 + width > t->style.columns) {
            if (row + 1 >= most)
                break;
            row++;
            column = 0;
            if (write)
                lk__bytes_char(&t->out, '\n');
        }
        if (write) {
            put_times(&t->out, " ", column > 0 ? 3 : 0);
            set_series(t, s);
            lk__bytes_text(&t->out, mark_of(t, s));
            set_series(t, NO_SERIES);
            lk__bytes_char(&t->out, ' ');
            put_cut(&t->out, name, t->style.columns - 2);
        }
        column += (column > 0 ? 3 : 0) + width;
    }
    if (write && column > 0)
        lk__bytes_char(&t->out, '\n');
    return row + (column > 0);
}

/* --- dots -------------------------------------------------------------------------------------------------------- */

static int dots_across(const text_chart *t)
{
    return t->columns * (t->braille ? 2 : 1);
}

static int dots_down(const text_chart *t)
{
    return t->rows * (t->braille ? 4 : 1);
}

static int place(const lk__axis *axis, double value, int dots)
{
    int at = (int)lround(lk__axis_place(axis, value) * (dots - 1));
    return at < 0 ? 0 : at >= dots ? dots - 1 : at;
}

static void dot(text_chart *t, int x, int y, int series)
{
    /* The bits of a Braille pattern's dots, by column and row. */
    static const unsigned char bits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    int across = t->braille ? 2 : 1, down = t->braille ? 4 : 1;
    cell *c = &t->cells[y / down * t->columns + x / across];
    c->dots |= bits[x % across][y % down];
    c->series = (signed char)series;
}

/* Bresenham: "Algorithm for computer control of a digital plotter", 1965. */
static void line(text_chart *t, int x, int y, int x_end, int y_end, int series)
{
    int dx = abs(x_end - x), dy = -abs(y_end - y), error = dx + dy;
    for (;;) {
        dot(t, x, y, series);
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

static void draw_series(text_chart *t, int number)
{
    const lk_series *series = &t->chart->series[number];
    bool joined = false;
    int last_x = 0, last_y = 0;
    for (int64_t i = 0; i < series->count; i++) {
        bool there = lk__plot_value(series->x[i]) && lk__plot_value(series->y[i]);
        if (there) {
            int x = place(&t->x, series->x[i], dots_across(t));
            int y = dots_down(t) - 1 - place(series->right ? &t->right : &t->y, series->y[i], dots_down(t));
            line(t, joined ? last_x : x, joined ? last_y : y, x, y, number);
            last_x = x;
            last_y = y;
        }
        joined = there;
    }
}

/* --- axes -------------------------------------------------------------------------------------------------------- */

static int widest_number(const lk__axis *axis)
{
    int widest = 0;
    for (int i = 0; i < axis->ticks; i++) {
        char text[LK__TICK_TEXT];
        lk__axis_text(axis, i, text);
        widest = text_width(text) > widest ? text_width(text) : widest;
    }
    return widest;
}

static void make_y_axis(const text_chart *t, const lk__range *range, lk__axis *y)
{
    bool round = t->rows >= ROWS_TO_ROUND;
    lk__axis_make(y, range->min, range->max, t->rows / 2, range->whole, round && range->round_min,
                  round && range->round_max);
}

static void make_axes(text_chart *t)
{
    lk__range x, y, right;
    lk__line_chart_ranges(t->chart, &x, &y, &right);
    make_y_axis(t, &y, &t->y);
    make_y_axis(t, &right, &t->right);
    t->left = widest_number(&t->y) + 2;
    t->columns = t->style.columns - t->left;
    int right_columns = widest_number(&t->right) + 2;
    t->has_right = lk__line_chart_has_right(t->chart) && t->columns - right_columns >= LEAST_PLOT;
    t->columns -= t->has_right ? right_columns : 0;
    for (int most = t->columns / 4;; most--) {
        lk__axis_make(&t->x, x.min, x.max, most, x.whole, false, false);
        double distance = t->x.unit / (t->x.max - t->x.min) * t->columns;
        if (most <= 2 || widest_number(&t->x) + 2 <= distance)
            return;
    }
}

/* The number of the tick in this row; "": there is none. */
static void tick_of_row(const text_chart *t, const lk__axis *axis, int row, char number[LK__TICK_TEXT])
{
    number[0] = '\0';
    for (int i = 0; i < axis->ticks; i++) {
        int dots = dots_down(t), at = dots - 1 - place(axis, lk__axis_tick(axis, i), dots);
        if (at / (t->braille ? 4 : 1) == row)
            lk__axis_text(axis, i, number);
    }
}

static void put_right_tick(text_chart *t, int row, int used)
{
    char number[LK__TICK_TEXT];
    tick_of_row(t, &t->right, row, number);
    put_times(&t->out, " ", t->columns - used);
    lk__bytes_text(&t->out, t->style.ascii ? (*number ? "+" : "|") : *number ? "├" : "│");
    if (*number)
        lk__bytes_char(&t->out, ' ');
    lk__bytes_text(&t->out, number);
}

static void put_plot_row(text_chart *t, int row)
{
    char number[LK__TICK_TEXT];
    tick_of_row(t, &t->y, row, number);
    put_times(&t->out, " ", t->left - 2 - text_width(number));
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
            set_series(t, series);
        }
        if (cells[i].series == NO_SERIES)
            lk__bytes_char(&t->out, ' ');
        else if (t->braille)
            lk__bytes_utf8(&t->out, 0x2800u + cells[i].dots);
        else
            lk__bytes_text(&t->out, mark_of(t, cells[i].series));
    }
    if (series != NO_SERIES)
        set_series(t, NO_SERIES);
    if (t->has_right)
        put_right_tick(t, row, used);
    lk__bytes_char(&t->out, '\n');
}

static int tick_column(const text_chart *t, int tick)
{
    return place(&t->x, lk__axis_tick(&t->x, tick), dots_across(t)) / (t->braille ? 2 : 1);
}

static void put_x_axis(text_chart *t)
{
    put_times(&t->out, " ", t->left - 1);
    lk__bytes_text(&t->out, t->style.ascii ? "+" : "└");
    for (int column = 0, tick = 0; column < t->columns; column++) {
        bool marked = false;
        for (; tick < t->x.ticks && tick_column(t, tick) <= column; tick++)
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
        int width = text_width(number), at = t->left + tick_column(t, tick) - width / 2;
        if (at + width > t->style.columns)
            at = t->style.columns - width;
        if (at < column + (column > 0))
            continue;
        put_times(&t->out, " ", at - column);
        lk__bytes_text(&t->out, number);
        column = at + width;
    }
    lk__bytes_char(&t->out, '\n');
}

/* --- the whole --------------------------------------------------------------------------------------------------- */

/* Above their axes; that of the right one is left out where both do not fit. */
static void put_y_labels(text_chart *t)
{
    const char *left = t->chart->y_label ? t->chart->y_label : "";
    const char *right = t->has_right && t->chart->right_label ? t->chart->right_label : "";
    int between = t->style.columns - text_width(left) - text_width(right);
    put_cut(&t->out, left, t->style.columns);
    if (*right && between > 0) {
        put_times(&t->out, " ", between);
        lk__bytes_text(&t->out, right);
    }
    lk__bytes_char(&t->out, '\n');
}

static lk_status draw(text_chart *t)
{
    const lk_line_chart *chart = t->chart;
    bool labels = t->style.rows >= ROWS_FOR_LABELS;
    const char *x_label = labels ? chart->x_label : NULL;
    bool y_labels = labels && (chart->y_label || chart->right_label);
    int legend_rows = legend(t, t->style.rows / 4, false), axis_rows = 2;
    t->rows = t->style.rows - legend_rows - axis_rows - (chart->title != NULL) - (x_label != NULL) - y_labels;
    make_axes(t);

    size_t count = (size_t)t->rows * (size_t)t->columns;
    t->cells = lk__calloc(count, sizeof *t->cells);
    if (!t->cells)
        return LK_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        t->cells[i].series = NO_SERIES;
    for (int s = 0; s < chart->series_count; s++)
        draw_series(t, s);

    if (chart->title)
        put_centred(t, chart->title, 0, t->style.columns);
    legend(t, legend_rows, true);
    if (y_labels)
        put_y_labels(t);
    for (int row = 0; row < t->rows; row++)
        put_plot_row(t, row);
    put_x_axis(t);
    if (x_label)
        put_centred(t, x_label, t->left, t->columns);
    lk__bytes_char(&t->out, '\0');
    return lk__bytes_status(&t->out);
}

static lk_status check(const lk_line_chart *chart, lk_text_style style)
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
    if (check(chart, style) != LK_OK)
        return NULL;
    text_chart t = {.chart = chart, .style = style};
    t.braille = !style.ascii && (style.colour || chart->series_count <= 1);
    lk_status status = draw(&t);
    lk__free(t.cells);
    if (status == LK_OK)
        return (char *)t.out.data;
    lk__bytes_free(&t.out);
    return NULL;
}
