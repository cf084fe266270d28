#include "io/charts/line_chart.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/status.h"

#include <math.h>

enum { DEFAULT_WIDTH = 720, DEFAULT_HEIGHT = 440, PIXELS_A_ROW_OF_TICKS = 32, PIXELS_A_COLUMN_OF_TICKS = 40 };
enum { SAMPLE = 26, SAMPLE_GAP = 6, ENTRY_GAP = 18, FIT = 256, MOST_MARKED = 40 };

/* --- checks and ranges ------------------------------------------------------------------------------------------- */

static lk_status line_chart_check_range(const char *axis, double min, double max)
{
    if (!lk__plot_value(min) || !lk__plot_value(max) || min > max)
        LK_FAIL(LK_ERR_ARGUMENT, "line chart: %s_min is %g and %s_max %g; min <= max, and neither beyond 1e150", axis,
                min, axis, max);
    return LK_OK;
}

lk_status lk__line_chart_check(const lk_line_chart *chart)
{
    if (chart->series_count < 0 || chart->series_count > LK_MAX_SERIES)
        LK_FAIL(LK_ERR_ARGUMENT, "line chart: %d series; 0 … %d can be told apart", chart->series_count, LK_MAX_SERIES);
    LK_TRY(line_chart_check_range("x", chart->x_min, chart->x_max));
    LK_TRY(line_chart_check_range("y", chart->y_min, chart->y_max));
    return line_chart_check_range("right", chart->right_min, chart->right_max);
}

static bool line_chart_has_point(const lk_series *series, int64_t i)
{
    return lk__plot_value(series->x[i]) && lk__plot_value(series->y[i]);
}

static void line_chart_range_include(lk_axis_range *range, double value)
{
    range->min = fmin(range->min, value);
    range->max = fmax(range->max, value);
    range->whole = range->whole && value == floor(value);
}

bool lk__series_shows(const lk_series *series)
{
    int64_t i = 0;
    while (i < series->count && !line_chart_has_point(series, i))
        i++;
    return i < series->count;
}

bool lk__line_chart_has_right(const lk_line_chart *chart)
{
    for (int s = 0; s < chart->series_count; s++)
        if (chart->series[s].right && lk__series_shows(&chart->series[s]))
            return true;
    return false;
}

void lk__series_join(lk_series *series, int parts, double min, double max, double *x, double *y)
{
    int64_t count = 0, n = 0, part = 0;
    double sum_x = 0, sum_y = 0;
    if (series->count <= parts)
        return;
    for (int64_t i = 0; i <= series->count; i++) {
        bool end = i == series->count;
        if (!end && !(line_chart_has_point(series, i)))
            continue;
        double at = end ? 0 : (series->x[i] - min) / (max - min) * (parts - 1);
        int64_t own = end ? -1 : (int64_t)fmin(fmax(at, (double)part), parts - 1);
        if (n > 0 && own != part) {
            x[count] = sum_x / (double)n;
            y[count++] = sum_y / (double)n;
            sum_x = sum_y = 0;
            n = 0;
        }
        if (!end) {
            sum_x += series->x[i];
            sum_y += series->y[i];
            n++;
            part = own;
        }
    }
    series->x = x;
    series->y = y;
    series->count = count;
}

/* Extends the range to what the caller asked for, if min < max. */
static void line_chart_range_extend(lk_axis_range *range, double min, double max)
{
    bool asked = min < max;
    range->round_min = !asked || range->min < min;
    range->round_max = !asked || range->max > max;
    if (asked) {
        range->min = fmin(range->min, min);
        range->max = fmax(range->max, max);
        range->whole = false;
    }
}

void lk__line_chart_ranges(const lk_line_chart *chart, lk_axis_range *x, lk_axis_range *y, lk_axis_range *right)
{
    *x = *y = *right = (lk_axis_range){.min = INFINITY, .max = -INFINITY, .whole = true};
    for (int s = 0; s < chart->series_count; s++) {
        const lk_series *series = &chart->series[s];
        for (int64_t i = 0; i < series->count; i++)
            if (line_chart_has_point(series, i)) {
                line_chart_range_include(x, series->x[i]);
                line_chart_range_include(series->right ? right : y, series->y[i]);
            }
    }
    if (chart->x_min < chart->x_max) {
        x->min = fmin(x->min, chart->x_min);
        x->max = fmax(x->max, chart->x_max);
    }
    line_chart_range_extend(y, chart->y_min, chart->y_max);
    line_chart_range_extend(right, chart->right_min, chart->right_max);
}

/* --- the picture ------------------------------------------------------------------------------------------------- */

static void line_chart_make_y_axis(double height, const lk_axis_range *range, lk_axis *y)
{
    int most = (int)(height - 100) / PIXELS_A_ROW_OF_TICKS;
    lk__axis_make(y, range->min, range->max, most, range->whole, range->round_min, range->round_max);
}

/* Makes as many ticks as their numbers leave space for. */
static void line_chart_make_x_axis(const lk_chart_frame *f, const lk_axis_range *range, lk_axis *x)
{
    double width = f->right - f->left;
    for (int most = (int)(width / PIXELS_A_COLUMN_OF_TICKS);; most--) {
        lk__axis_make(x, range->min, range->max, most, range->whole, false, false);
        double distance = x->unit / (x->max - x->min) * width;
        if (most <= 2 || lk__tick_width(f->canvas, x) + 12 <= distance)
            return;
    }
}

/* Draws the legend in rows above the chart, because inside it could cover a line. If the picture is too small for all
 * rows, the last ones are left out. */
static void line_chart_draw_legend(lk_chart_frame *f, const lk_line_chart *chart)
{
    const lk_canvas_table *draw = f->canvas->table;
    double x = f->left, lowest = f->top + (f->bottom - f->top) / 2, widest = f->right - f->left - SAMPLE - SAMPLE_GAP;
    bool any = false;
    for (int s = 0; s < chart->series_count; s++) {
        char name[FIT];
        if (!chart->series[s].name || !lk__series_shows(&chart->series[s]))
            continue;
        lk__canvas_fit(f->canvas, chart->series[s].name, lk__label_font, widest, name, sizeof name);
        double width = SAMPLE + SAMPLE_GAP + draw->text_width(f->canvas, name, lk__label_font);
        if (any && x + width > f->right) {
            x = f->left;
            f->top += LK__ROW;
        }
        if (f->top + LK__ROW > lowest)
            return;
        lk_point line[] = {{x, f->top + 6}, {x + SAMPLE, f->top + 6}};
        draw->lines(f->canvas, line, 2, lk__series_pen(s));
        draw->text(f->canvas, (lk_point){x + SAMPLE + SAMPLE_GAP, f->top + 10}, name, lk__label_font, LK__LEFT, 0);
        x += width + ENTRY_GAP;
        any = true;
    }
    if (any)
        f->top += LK__ROW + 8;
}

/* Draws a line through each run of points without a gap. Marks the points of short series, and those that are alone. */
static void line_chart_draw_series(const lk_chart_frame *f, const lk_axis *x, const lk_axis *y, const lk_series *series,
                                   int number, lk_point *run)
{
    const lk_canvas_table *draw = f->canvas->table;
    lk_pen pen = lk__series_pen(number);
    int length = 0;
    for (int64_t i = 0; i <= series->count; i++) {
        if (i < series->count && line_chart_has_point(series, i)) {
            run[length].x = f->left + (f->right - f->left) * lk__axis_position(x, series->x[i]);
            run[length].y = f->bottom - (f->bottom - f->top) * lk__axis_position(y, series->y[i]);
            length++;
            continue;
        }
        if (length > 1)
            draw->lines(f->canvas, run, length, pen);
        for (int k = 0; k < length && (length == 1 || series->count <= MOST_MARKED); k++)
            draw->disc(f->canvas, run[k], 2.8, pen.color);
        length = 0;
    }
}

lk_status lk__line_chart_draw(const lk_line_chart *chart, lk_canvas *canvas, lk_area area, lk_chart_frame *frame,
                              lk_axis *x, lk_axis *y)
{
    lk_axis_range x_range, y_range, right_range;
    lk__line_chart_ranges(chart, &x_range, &y_range, &right_range);
    lk_axis right;
    line_chart_make_y_axis(area.height, &y_range, y);
    line_chart_make_y_axis(area.height, &right_range, &right);
    bool has_right = lk__line_chart_has_right(chart);

    int64_t longest = 0;
    for (int s = 0; s < chart->series_count; s++)
        longest = lk__max(longest, chart->series[s].count);
    if (longest > INT32_MAX)
        LK_FAIL(LK_ERR_ARGUMENT, "line chart: a series of %lld points", (long long)longest);
    lk_point *run = lk__calloc((size_t)longest + 1, sizeof *run);
    if (!run)
        return LK_ERR_MEMORY;

    lk_labels labels = {chart->title, chart->x_label, chart->y_label, chart->right_label};
    lk__frame_begin(frame, canvas, area, labels, y, has_right ? &right : NULL);
    line_chart_draw_legend(frame, chart);
    line_chart_make_x_axis(frame, &x_range, x);
    lk__frame_y(frame, y);
    if (has_right)
        lk__frame_right(frame, &right);
    lk__frame_x(frame, x);
    for (int s = 0; s < chart->series_count; s++)
        line_chart_draw_series(frame, x, chart->series[s].right ? &right : y, &chart->series[s], s, run);
    lk__free(run);
    return LK_OK;
}

lk_status lk_line_chart_write(const lk_line_chart *chart, const char *path)
{
    return lk_line_charts_write(NULL, chart, 1, path);
}

lk_status lk_line_charts_write(const char *title, const lk_line_chart *charts, int count, const char *path)
{
    int width = 0, height = 0;
    for (int i = 0; i < count; i++) {
        int own_width = charts[i].width ? charts[i].width : DEFAULT_WIDTH;
        int own_height = charts[i].height ? charts[i].height : DEFAULT_HEIGHT;
        LK_TRY(lk__line_chart_check(&charts[i]));
        LK_TRY(lk__canvas_check_size(own_width, own_height));
        width += own_width;
        height = (int)lk__max(height, own_height);
        LK_TRY(lk__canvas_check_size(width, height)); /* each time, so that the sum cannot overflow */
    }
    lk_canvas *canvas;
    LK_TRY(lk__canvas_open(path, width, height, &canvas));
    lk_area area = {0, 0, width, height};
    lk_status status = LK_OK;
    if (title)
        area = lk__draw_title(canvas, area, title);
    for (int i = 0; i < count && status == LK_OK; i++) {
        lk_chart_frame frame;
        lk_axis x, y;
        area.width = charts[i].width ? charts[i].width : DEFAULT_WIDTH;
        status = lk__line_chart_draw(&charts[i], canvas, area, &frame, &x, &y);
        area.left += area.width;
    }
    if (status == LK_OK)
        status = lk__canvas_write(canvas, path);
    lk__canvas_release(canvas);
    return status;
}
